//! `recent forget`: documents go out of every list on this machine, and it is looked whether they did.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::{Value as Json, json};
use session::clock::{Clock, SystemClock};
use session::recents::forget::{self, Kind as StoreKind, Left, Name, Selection, Survey, Trouble};
use session::recents::{Recents, Timestamp};

use super::{printable, service};
use crate::cli::{moment, screen};
use crate::error::{Error, Kind, Verdict};

/// The most lines that a person is shown of what was found.
const SHOWN: usize = 20;

/// Forget documents in every list on this machine.
///
/// Example: unjank recent forget ~/Taxes --dry-run
///
/// What fits all that is said is taken out of our journal, recently-used.xbel, KDE's links and activities, lists in
/// settings of programs, LibreOffice's, viewers' notes, and thumbnails. Then the bytes of all these are searched.
/// The exit status is 1 if anything is left.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true)))]
#[command(
    override_usage = "unjank recent forget [OPTIONS] DOCUMENT…\n       unjank recent forget [OPTIONS] --app NAME | --since TIME | --before TIME | --all"
)]
pub(super) struct Forget {
    /// Files, folders with all that is below them, or URIs.
    #[arg(value_name = "DOCUMENT", group = "which")]
    documents: Vec<OsString>,
    /// Documents that this program opened, such as okular.
    #[arg(long, value_name = "NAME", group = "which")]
    app: Vec<String>,
    /// Documents used from then on: 2h, yesterday, 10:30, 2026-11-21.
    #[arg(long, value_name = "TIME", group = "which")]
    since: Option<String>,
    /// Documents used before then.
    #[arg(long, value_name = "TIME", group = "which")]
    before: Option<String>,
    /// All documents.
    #[arg(long, group = "which", conflicts_with_all = ["documents", "app", "since", "before"])]
    all: bool,
    /// Show what is found and where, and leave it.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl Forget {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let clock = SystemClock::start();
        let selection = self.selection(clock.now())?;
        let mut recents = super::recents()?;
        // It takes a moment, unless there are very many thumbnails: then somebody who watches is told.
        let progress = std::io::stderr().is_terminal().then(screen::Progress::start);
        let step = |what: &str, at| {
            let seconds = Duration::from_secs;
            progress.iter().for_each(|progress| progress.step(what, seconds(at), seconds(3)));
        };
        step("looking into every list", 0);
        let survey = forget::survey(&mut recents);
        let chosen = survey.choose(&selection);
        let mut report = Report {
            home: recents.places().home.clone(),
            found: found(&survey, &chosen),
            holders: forget::holders(&survey, &chosen, &running()).into_iter().cloned().collect(),
            chosen,
            ended: Vec::new(),
            left: None,
            troubles: texts(&survey.troubles),
        };
        if !self.dry_run {
            step("taking the documents out, and searching every list", 1);
            let (mut left, mut troubles) =
                forget_once(&mut recents, &survey, &selection, &report.chosen);
            // Only the service can let go of a log that it reads; its bus starts it again when somebody needs it.
            if left.iter().any(|left| forget::is_of_activities(recents.places(), &left.file)) {
                step("ending KDE's activity service", 2);
                report.ended = service::end(&forget::activities(recents.places()));
                if !report.ended.is_empty() {
                    (left, troubles) =
                        forget_once(&mut recents, &survey, &selection, &report.chosen);
                }
            }
            report.troubles.extend(texts(&troubles));
            report.left = Some(left);
        }
        if let Some(progress) = progress {
            progress.end();
        }
        report.troubles.sort();
        report.troubles.dedup();
        if self.json {
            writeln!(out, "{:#}", report.json())?;
        } else {
            report.print(out)?;
        }
        let is_done = report.troubles.is_empty() && report.left.as_ref().is_none_or(Vec::is_empty);
        Ok(if is_done { Verdict::Yes } else { Verdict::No })
    }

    fn selection(&self, now: SystemTime) -> Result<Selection, Error> {
        let zoned = moment::local(now);
        let read = |text: &Option<String>| -> Result<Option<Timestamp>, Error> {
            let time = text.as_deref().map(|text| moment::parse(text, &zoned)).transpose();
            let time = time.map_err(|because| {
                Error::new(Kind::User, "read the time").because(std::io::Error::other(because))
            })?;
            Ok(time.map(Timestamp::of))
        };
        let name = |text: &OsString| Ok(Name::of_uri(&super::uri(text)?));
        Ok(Selection {
            names: self.documents.iter().map(name).collect::<Result<_, Error>>()?,
            applications: self.app.clone(),
            since: read(&self.since)?,
            before: read(&self.before)?,
        })
    }
}

/// What was found, and what became of it.
struct Report {
    home: PathBuf,
    chosen: BTreeSet<Name>,
    /// By kind of store and file, which documents.
    found: BTreeMap<(StoreKind, PathBuf), BTreeSet<Name>>,
    /// Programs that have a list in memory.
    holders: Vec<(u32, String)>,
    /// Services that had to end.
    ended: Vec<u32>,
    /// Where something is left; `None` if nothing was to be done.
    left: Option<Vec<Left>>,
    troubles: Vec<String>,
}

/// Takes the documents out everywhere, and returns where they are still.
fn forget_once(
    recents: &mut Recents,
    survey: &Survey,
    selection: &Selection,
    chosen: &BTreeSet<Name>,
) -> (Vec<Left>, Vec<Trouble>) {
    let mut troubles = forget::remove(recents, survey, selection, chosen);
    let remaining = forget::survey(recents);
    let staying: BTreeSet<Name> = remaining.items.into_iter().map(|item| item.name).collect();
    let (left, more) = forget::left(recents.places(), chosen, &staying);
    troubles.extend(more);
    (left, troubles)
}

fn found(
    survey: &Survey,
    chosen: &BTreeSet<Name>,
) -> BTreeMap<(StoreKind, PathBuf), BTreeSet<Name>> {
    let mut found: BTreeMap<_, BTreeSet<Name>> = BTreeMap::new();
    for item in survey.items.iter().filter(|item| chosen.contains(&item.name)) {
        found.entry((item.kind, item.file.clone())).or_default().insert(item.name.clone());
    }
    found
}

fn texts(troubles: &[Trouble]) -> Vec<String> {
    let text = |trouble: &Trouble| {
        let mut text = trouble.to_string();
        let mut cause = std::error::Error::source(trouble);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    };
    troubles.iter().map(text).collect()
}

/// Returns the processes of this user, with their names; not those of this program, in whatever version, which keep nothing that was forgotten.
fn running() -> Vec<(u32, String)> {
    let user = rustix::process::getuid().as_raw();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let is_ours = entry.metadata().ok()?.uid() == user;
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            let name = name.trim_end();
            (is_ours && name != env!("CARGO_PKG_NAME")).then(|| (number, name.to_owned()))
        })
        .collect()
}

impl Report {
    fn documents(&self) -> BTreeSet<&Name> {
        self.found.values().flatten().collect()
    }

    fn verdict(&self) -> String {
        let documents = self.documents().len();
        let documents = probe::report::paragraph::counted(documents, "document");
        match &self.left {
            _ if self.found.is_empty() && self.left.as_ref().is_none_or(Vec::is_empty) => {
                "No list on this machine has such a document.".to_owned()
            }
            None => format!("{documents} would be forgotten."),
            Some(left) if left.is_empty() && self.troubles.is_empty() => {
                format!("Forgot {documents}; a search of every list finds nothing.")
            }
            Some(left) if left.is_empty() => {
                format!(
                    "Forgot {documents} where that was possible; not every list could be searched."
                )
            }
            Some(left) => format!(
                "Forgot {documents}, but {} still named.",
                if left.len() == 1 {
                    "in one file something is"
                } else {
                    "in some files something is"
                }
            ),
        }
    }

    fn print(&self, out: &mut dyn Write) -> Result<(), Error> {
        writeln!(out, "{}", self.verdict())?;
        let show = |path: &Path| match path.strip_prefix(&self.home) {
            Ok(rest) => printable(&format!("~/{}", rest.display())),
            Err(_) => printable(&path.display().to_string()),
        };
        if !self.found.is_empty() {
            writeln!(out)?;
        }
        let mut by_kind: BTreeMap<StoreKind, Vec<(&PathBuf, usize)>> = BTreeMap::new();
        for ((kind, file), names) in &self.found {
            by_kind.entry(*kind).or_default().push((file, names.len()));
        }
        for (kind, files) in &by_kind {
            let count: BTreeSet<&Name> =
                self.found.iter().filter(|((k, _), _)| k == kind).flat_map(|(_, n)| n).collect();
            let file = match files.as_slice() {
                [(file, _)] => show(file),
                [(file, _), ..] => {
                    let dir = file.parent().unwrap_or(file);
                    format!("{} files, such as in {}", files.len(), show(dir))
                }
                [] => String::new(),
            };
            writeln!(out, "{:22}  {:>6}  {file}", kind.title(), count.len())?;
        }
        if self.left.is_none() && !self.found.is_empty() {
            writeln!(out)?;
            let documents = self.documents();
            for name in documents.iter().take(SHOWN) {
                writeln!(out, "{}", printable(&show(Path::new(&name.to_string()))))?;
            }
            if documents.len() > SHOWN {
                writeln!(out, "… and {} more", documents.len() - SHOWN)?;
            }
        }
        for left in self.left.iter().flatten() {
            writeln!(out, "left: {} ({})", show(&left.file), left.documents)?;
        }
        for trouble in &self.troubles {
            writeln!(out, "trouble: {}", printable(trouble))?;
        }
        for number in &self.ended {
            writeln!(
                out,
                "ended: kactivitymanagerd ({number}), which read old pages; it starts again when it is needed"
            )?;
        }
        for (number, name) in &self.holders {
            let name = printable(name);
            writeln!(
                out,
                "running: {name} ({number}) may still have its list in memory; end it, and forget again"
            )?;
        }
        Ok(())
    }

    fn json(&self) -> Json {
        let found = self.found.iter().map(|((kind, file), names)| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            json!({ "store": kind.title(), "file": file.to_string_lossy(), "documents": names })
        });
        let left = self.left.as_ref().map(|left| {
            let left = left.iter().map(
                |left| json!({ "file": left.file.to_string_lossy(), "documents": left.documents }),
            );
            left.collect::<Vec<_>>()
        });
        let holders =
            self.holders.iter().map(|(number, name)| json!({ "pid": number, "name": name }));
        json!({
            "schema": "unjank.recent.forget/1",
            "documents": self.documents().len(),
            "found": found.collect::<Vec<_>>(),
            "left": left,
            "troubles": self.troubles,
            "ended": self.ended,
            "running": holders.collect::<Vec<_>>(),
        })
    }
}
