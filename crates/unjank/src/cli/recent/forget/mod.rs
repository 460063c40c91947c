//! `recent forget`: documents go out of every list on this machine, and it is looked whether they did.

mod running;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::time::{Duration, SystemTime};

use clap::Args;
use daemon::recents::settings::BusSettings;
use forget::{
    self, DocumentName, ForgetReport, SearchLimits, SearchReport, Selection, StoreKind, Survey,
    Trouble,
};
use recents::policy::{DenialReason, PolicySubject, RetentionVerdict as Decision};
use recents::{RecentTime, Recents};
use sys::clock::{Clock, SystemClock};

use super::service;
use crate::cli::progress::Progress;
use crate::cli::{catalogue, moment, screen};
use crate::error::{Error, FailureCategory, Verdict};

/// How fast files are searched at least, in bytes a second, to tell how long it takes.
const SEARCHED_A_SECOND: u64 = 100 << 20;

/// Forget documents in every list on this machine.
///
/// Example: unjank recent forget ~/Taxes --dry-run
///
/// Removes the documents that match all options from unjank's journal, recently-used.xbel, KDE's links and
/// activities, lists in settings of programs and in dconf, sessions of editors, LibreOffice's list, metadata of viewers, and thumbnails. Then searches these and other files of programs for the names, and lists what was not searched. The exit status is 1 if a trace is left.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true)))]
#[command(
    override_usage = "unjank recent forget [OPTIONS] DOCUMENT…\n       unjank recent forget [OPTIONS] --app NAME | --since TIME | --before TIME | --denied | --all"
)]
pub(super) struct Forget {
    /// Files, folders with all documents below them, or URIs.
    #[arg(value_name = "DOCUMENT", group = "which")]
    documents: Vec<OsString>,
    /// Documents that this program opened, such as okular.
    #[arg(long, value_name = "NAME", group = "which")]
    app: Vec<String>,
    /// Documents used since this time: 2h, yesterday, 10:30, 2026-11-21.
    #[arg(long, value_name = "TIME", group = "which")]
    since: Option<String>,
    /// Documents used before this time.
    #[arg(long, value_name = "TIME", group = "which")]
    before: Option<String>,
    /// Documents that your rules deny, recorded before the rule was added.
    #[arg(long, group = "which", conflicts_with_all = ["documents", "app", "since", "before"])]
    denied: bool,
    /// All documents.
    #[arg(long, group = "which", conflicts_with_all = ["documents", "app", "since", "before", "denied"])]
    all: bool,
    /// Show what would be removed, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Search every file of the home and the runtime directory, including documents and large files.
    #[arg(long)]
    search_all: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl Forget {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let clock = SystemClock::start();
        let mut selection = self.selection(clock.now())?;
        let mut recents = super::recents()?;
        // Searching may take a while where programs keep much: then somebody who watches is told.
        let progress = screen::is_error_terminal().then(Progress::start);
        let step = |what: &str, done: u64, all: u64| {
            let time = |bytes: u64| Duration::from_millis(bytes * 1000 / SEARCHED_A_SECOND);
            progress.iter().for_each(|progress| progress.step(what, time(done), time(all)));
        };
        step("looking into every list", 0, SEARCHED_A_SECOND);
        let survey = forget::survey(&mut recents);
        let chosen = if self.denied {
            let denied = denied(&survey, &mut recents);
            selection.names = denied.iter().cloned().collect();
            denied
        } else {
            survey.choose(&selection)
        };
        let running = running::programs(&recents.places().home);
        let mut report = ForgetReport::new(&recents, &survey, &chosen, &running);
        // A selection of no names is one of all.
        let is_nothing = self.denied && chosen.is_empty();
        if !self.dry_run && !is_nothing {
            let limits = match self.search_all {
                true => SearchLimits::everything(),
                false => SearchLimits::default(),
            };
            let places = recents.places().clone();
            // It would go on writing into the file that was replaced.
            if survey.has(StoreKind::Metadata, &chosen) {
                let ended = service::end(service::METADATA, &forget::metadata(&places));
                report.ended.extend(ended.into_iter().map(|pid| (service::METADATA, pid)));
            }
            let mut forget_once = || {
                step("taking the documents out", 0, SEARCHED_A_SECOND);
                forget_once(&mut recents, &survey, &selection, &chosen, limits, &step)
            };
            let mut searched = forget_once();
            // Only the service can let go of a log that it reads; its bus starts it again when somebody needs it.
            let is_held = |search: &SearchReport| {
                search.remaining.iter().any(|left| forget::is_of_activities(&places, &left.file))
            };
            if is_held(&searched) {
                let ended = service::end(service::ACTIVITIES, &forget::activities(&places));
                if !ended.is_empty() {
                    searched = forget_once();
                }
                report.ended.extend(ended.into_iter().map(|pid| ("kactivitymanagerd", pid)));
            }
            report.finish(searched);
        }
        if let Some(progress) = progress {
            progress.end();
        }
        if self.json {
            catalogue::print_json(&mut screen::json(), &report.json())?;
        } else {
            report.print(out)?;
        }
        Ok(if report.is_done() { Verdict::Yes } else { Verdict::No })
    }

    fn selection(&self, now: SystemTime) -> Result<Selection, Error> {
        let zoned = moment::local(now);
        let read = |text: &Option<String>| -> Result<Option<RecentTime>, Error> {
            let time = text.as_deref().map(|text| report::moment::parse(text, &zoned)).transpose();
            let time = time.map_err(|because| {
                Error::new(FailureCategory::User, "read the time")
                    .because(std::io::Error::other(because))
            })?;
            Ok(time.map(RecentTime::of))
        };
        let name = |text: &OsString| Ok(DocumentName::of_uri(&super::uri(text)?));
        Ok(Selection {
            names: self.documents.iter().map(name).collect::<Result<_, Error>>()?,
            applications: self.app.clone(),
            since: read(&self.since)?,
            before: read(&self.before)?,
        })
    }
}

/// Returns the documents that the user's rules deny.
pub(super) fn denied(survey: &Survey, recents: &mut Recents) -> BTreeSet<DocumentName> {
    let disk = store::disk::real();
    let mut is_denied = |item: &forget::RememberedDocument| {
        let uri = item.uri.clone().or_else(|| item.name.to_uri());
        let programs = item.applications.iter().map(String::as_str);
        let mut programs = programs.chain(item.applications.is_empty().then_some(""));
        uri.is_some_and(|uri| {
            programs.any(|application| {
                let subject = PolicySubject { uri: &uri, mime: None, application };
                let verdict = recents.policy().decide_by_rules(&*disk, subject);
                matches!(verdict, Decision::Leave(DenialReason::Rule { .. }))
            })
        })
    };
    let items = survey.items.iter().filter(|item| is_denied(item));
    items.map(|item| item.name.clone()).collect()
}

/// Takes the documents out everywhere, and searches where they are still.
fn forget_once(
    recents: &mut Recents,
    survey: &Survey,
    selection: &Selection,
    chosen: &BTreeSet<DocumentName>,
    limits: SearchLimits,
    step: &dyn Fn(&str, u64, u64),
) -> SearchReport {
    let mut settings = BusSettings::default();
    let mut troubles: Vec<Trouble> =
        forget::remove(recents, &mut settings, survey, selection, chosen);
    let remaining = forget::survey(recents);
    let staying: BTreeSet<DocumentName> =
        remaining.items.into_iter().map(|item| item.name).collect();
    let mut progress = |done, all| step("searching what programs keep", done, all);
    let mut report = forget::search(recents.places(), chosen, &staying, limits, &mut progress);
    troubles.append(&mut report.troubles);
    SearchReport { troubles, ..report }
}
