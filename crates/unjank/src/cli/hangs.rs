//! `unjank hangs`: what froze, for how long and on what; declared here, done and written by the crate `hangs`.

mod applied;
mod compare;
mod notify;

use std::cell::OnceCell;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::hangs::history::{HangGrouping, HangHistory, TimeSpan, group};
use ::hangs::json::{HangDocument, HangListDocument, HangTopDocument};
use ::hangs::recorder::{RecorderError, RecorderOptions, SourceChange, ThreadSource, record};
use ::hangs::remedy::AppliedRemedies;
use ::hangs::store::{self as hang_store, EraseSelection, HangStoreError, StoredHistory};
use ::hangs::summary::HangSummary;
use ::hangs::text::{HangTextStyle, erased_text, kept_text, number, recorder_hint};
use ::hangs::watch::{HangNews, HangWatcher};
use ::setup::SetupPart;
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use doctor::RecordedHangs;
use jiff::Zoned;
use recents::RecentsFiles;
use report::paragraph::wrap;
use report::provenance::Provenance;
use report::text::visible;
use store::disk::Disk;
use sys::clock::{Clock, SystemClock};

use self::compare::Comparison;
use self::notify::HangNotifier;
use super::new_file::NewFile;
use super::screen::sayln;
use super::setup::state as setup_state;
use super::{beside, document, interrupt, moment, screen};
use crate::error::{Error, FailureCategory, Verdict};

/// Show when programs of this session hung, and on what.
///
/// Without a command it lists today's hangs, the longest first. They are recorded while `unjank setup hangs` is on.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    before_help = "Example: unjank hangs --since yesterday"
)]
pub(crate) struct Hangs {
    #[command(subcommand)]
    other: Option<Command>,
    #[command(flatten)]
    list: Listing,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show one hang: its account, its stack and what mends it
    Show {
        /// The number that the list shows.
        number: u64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Count hangs by program, process, cause, file, function or unit
    Top {
        /// By what: program, process, cause, file, function, unit.
        #[arg(long, default_value = "program", value_parser = HangGrouping::parse)]
        by: HangGrouping,
        #[command(flatten)]
        which: Selection,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print each hang when it has ended, and a long one while it goes on
    Watch {
        /// Show hangs of 2 s and longer as notifications on the desktop, and print nothing.
        #[arg(long)]
        notify: bool,
    },
    /// Compare the rate of hangs before and after a moment, or a part that was switched on
    Compare(Comparison),
    /// Write a page with a lane for each program
    Timeline {
        /// The file; it must not exist.
        #[arg(short, long, value_name = "FILE.html")]
        output: PathBuf,
        #[command(flatten)]
        which: Selection,
    },
    /// Erase what was recorded
    Forget {
        #[command(flatten)]
        which: Selection,
    },
    /// Write or send hangs for DuckDB, OpenTelemetry, Prometheus, pprof and Perfetto, by unjank-export
    #[command(disable_help_flag = true)]
    Export {
        /// A command of unjank-export and its options, or --help.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
    /// Record, until it is stopped; `unjank setup hangs` has this run in each session
    Record {
        /// Also follow programs of this name, which have no display.
        #[arg(long, value_name = "NAME")]
        program: Vec<String>,
        /// How much the records may take, in MiB.
        #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65536))]
        limit: u64,
    },
}

/// Which hangs.
#[derive(Debug, Args)]
struct Selection {
    /// Since this moment: yesterday, 10:30, 3 days, 2026-11-21.
    #[arg(long, value_name = "MOMENT")]
    since: Option<String>,
    /// Until this moment.
    #[arg(long, value_name = "MOMENT")]
    until: Option<String>,
    /// Everything that is recorded.
    #[arg(long, conflicts_with_all = ["since", "until"])]
    all: bool,
    /// Only hangs of this program.
    #[arg(long, value_name = "NAME", value_parser = program_name())]
    program: Option<String>,
}

/// Reads the name of a program as it is stored: what is no text in it has a character that stands for it.
fn program_name() -> impl TypedValueParser<Value = String> {
    clap::builder::OsStringValueParser::new().try_map(|name| {
        Some(name.to_string_lossy().into_owned())
            .filter(|name| !name.is_empty())
            .ok_or("it is empty")
    })
}

#[derive(Debug, Args)]
struct Listing {
    #[command(flatten)]
    which: Selection,
    /// Print at most so many.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Print JSON (fields: docs/hangs.md).
    #[arg(long)]
    json: bool,
}

fn parsed(text: &str, now: &Zoned) -> Result<u64, Error> {
    let at = report::moment::parse(text, now).map_err(|why| {
        let what = format!("read the moment {}", visible(text, screen::charset()));
        Error::new(FailureCategory::User, what).because(why)
    })?;
    Ok(unix_ns(at))
}

/// Returns how a moment was said that was read.
fn said(text: &Option<String>, at_ns: Option<u64>, now: &Zoned) -> Option<String> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(at_ns?);
    Some(report::moment::name(text.as_deref()?, time, now))
}

/// Returns the nanoseconds since 1970.
fn unix_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn nanoseconds(at: &Zoned) -> u64 {
    unix_ns(at.timestamp().into())
}

impl Selection {
    /// Returns the two moments.
    fn bounds(&self, now: &Zoned) -> Result<(Option<u64>, Option<u64>), Error> {
        let moment =
            |text: &Option<String>| text.as_deref().map(|text| parsed(text, now)).transpose();
        let (since, until) = (moment(&self.since)?, moment(&self.until)?);
        let hint = match (since, until) {
            (Some(since), Some(until)) if since > until => "before that of --until",
            (Some(since), _) if since > nanoseconds(now) => "in the past",
            bounds => return Ok(bounds),
        };
        Err(Error::new(FailureCategory::User, "use this span of time")
            .hint(format!("the moment of --since has to be {hint}")))
    }

    /// Returns the span, today if nothing is said, and what it is called.
    fn span(&self, now: &Zoned) -> Result<(TimeSpan, String), Error> {
        let (since, until) = self.bounds(now)?;
        let said = (said(&self.since, since, now), said(&self.until, until, now));
        let (from_ns, name) = match said {
            _ if self.all => (0, "in all that is recorded".to_owned()),
            (None, None) => (parsed("today", now)?, "today".to_owned()),
            (Some(since), None) => (0, format!("since {since}")),
            (None, Some(until)) => (0, format!("until {until}")),
            (Some(since), Some(until)) => (0, format!("from {since} to {until}")),
        };
        let name = visible(&name, screen::charset()).into_owned();
        let span = TimeSpan { from_ns: since.unwrap_or(from_ns), to_ns: until.unwrap_or(u64::MAX) };
        Ok((span, name))
    }
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn absolute(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn directory() -> Result<PathBuf, Error> {
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.map(|state| state.join("unjank/hangs")).ok_or_else(|| {
        Error::new(FailureCategory::Config, "find this user's directories").hint("set HOME")
    })
}

fn failed(what: &'static str) -> impl Fn(HangStoreError) -> Error {
    move |error| {
        let kind = match error {
            HangStoreError::RecorderRuns { .. } | HangStoreError::Busy { .. } => {
                FailureCategory::Busy
            }
            _ => FailureCategory::Config,
        };
        Error::new(kind, what).because(error)
    }
}

/// The store, and how its hangs are written.
struct Session {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    now: Zoned,
    home: Option<PathBuf>,
    applied: OnceCell<AppliedRemedies>,
}

impl Session {
    fn open() -> Result<Session, Error> {
        let now = moment::local(SystemClock::start().now());
        let (disk, home) = (store::disk::real(), absolute("HOME"));
        Ok(Session { disk, dir: directory()?, now, home, applied: OnceCell::new() })
    }

    /// Returns what is on of that which removes causes.
    fn applied(&self) -> &AppliedRemedies {
        self.applied.get_or_init(applied::applied)
    }

    fn stored(&self) -> Result<StoredHistory, Error> {
        hang_store::read(&*self.disk, &self.dir).map_err(failed("read the hangs"))
    }

    fn select(&self, which: &Selection) -> Result<(HangHistory, TimeSpan, String), Error> {
        let (span, name) = which.span(&self.now)?;
        let program = which.program.as_deref();
        let history = HangHistory::select(&self.stored()?, span, program, nanoseconds(&self.now));
        Ok((history, span, name))
    }

    fn style(&self) -> HangTextStyle<'_> {
        let (paint, width) = (screen::paint(), screen::width());
        let (home, applied) = (self.home.as_deref(), self.applied());
        HangTextStyle { home, now: &self.now, paint, width, applied }
    }

    /// Says why nothing new is recorded, where that is so. `is_counted`: the records tell of a time that was watched.
    fn hint(&self, out: &mut impl Write, is_counted: bool) -> Result<(), Error> {
        let is_running = hang_store::running_recorder(&*self.disk, &self.dir).is_some();
        if let Some(hint) = recorder_hint(is_running, is_counted, is_switched_on) {
            out.write_all(wrap(hint, screen::width(), "").as_bytes())?;
        }
        Ok(())
    }
}

fn print(text: &str) -> Result<(), Error> {
    let mut out = screen::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

impl Hangs {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        let session = Session::open()?;
        match self.other {
            None => list(&session, &self.list),
            Some(Command::Show { number, json }) => show(&session, number, json),
            Some(Command::Top { by, which, json }) => top(&session, by, &which, json),
            Some(Command::Watch { notify }) => watch(&session, notify),
            Some(Command::Compare(comparison)) => comparison.run(&session),
            Some(Command::Timeline { output, which }) => timeline(&session, &output, &which),
            Some(Command::Forget { which }) => forget(&session, &which),
            Some(Command::Export { arguments }) => {
                Err(beside::run_program("unjank-export", "unjank-export", &arguments))
            }
            Some(Command::Record { program, limit }) => run_recorder(&session, program, limit),
        }
    }
}

/// Returns what is told of yesterday's hangs, if recording is on, or was then.
pub(super) fn yesterday() -> Option<RecordedHangs> {
    let session = Session::open().ok()?;
    let [from_ns, to_ns] = ["yesterday", "today"].map(|text| parsed(text, &session.now).ok());
    let span = TimeSpan { from_ns: from_ns?, to_ns: to_ns?.saturating_sub(1) };
    let stored = match session.stored() {
        Ok(stored) => stored,
        // Who records nothing misses nothing.
        Err(error) => {
            return is_switched_on().then(|| RecordedHangs::unreadable(&error.cause()));
        }
    };
    let history = HangHistory::select(&stored, span, None, nanoseconds(&session.now));
    let is_told = history.coverage.recorder_ns > 0
        || history.damage.is_some()
        || hang_store::running_recorder(&*session.disk, &session.dir).is_some()
        || is_switched_on();
    if !is_told {
        return None;
    }
    let summary = HangSummary::of(&history, session.applied());
    let sentence = session.style().yesterday(&summary);
    Some(RecordedHangs { sentence, facts: serde_json::to_value(&summary).ok()? })
}

fn is_switched_on() -> bool {
    let states = setup_state::of_session().all();
    states.into_iter().any(|(part, state)| part == SetupPart::Hangs && state.is_on())
}

fn list(session: &Session, listing: &Listing) -> Result<Verdict, Error> {
    let (history, span, name) = session.select(&listing.which)?;
    if listing.json {
        document::print("unjank.hangs/1", &HangListDocument::of(&history, session.applied()))?;
        return Ok(Verdict::Yes);
    }
    print(&session.style().list(&history, span, &name, listing.limit))?;
    session.hint(&mut screen::stdout(), history.coverage.recorder_ns > 0)?;
    Ok(Verdict::Yes)
}

fn show(session: &Session, number: u64, json: bool) -> Result<Verdict, Error> {
    let stored = session.stored()?;
    let Some(hang) = stored.hangs.get(&number) else {
        let none = Error::new(FailureCategory::User, format!("find hang {number}"));
        let none = none.hint("unjank hangs --all lists the numbers");
        let none = match stored.damage() {
            Some(damage) => none.hint(damage),
            None => none,
        };
        none.report();
        return Ok(Verdict::No);
    };
    match json {
        true => {
            document::print("unjank.hangs.show/1", &HangDocument::beside(hang, session.applied()))?
        }
        false => print(&session.style().sheet(hang))?,
    }
    Ok(Verdict::Yes)
}

fn top(
    session: &Session,
    by: HangGrouping,
    which: &Selection,
    json: bool,
) -> Result<Verdict, Error> {
    let (history, span, name) = session.select(which)?;
    let groups = group(&history.hangs, by);
    let by = HangGrouping::ALL.iter().find(|(_, known)| *known == by).map_or("", |(name, _)| name);
    match json {
        true => document::print("unjank.hangs.top/1", &HangTopDocument::of(by, &groups, &history))?,
        false => print(&session.style().top(&history, &groups, span, &name, by))?,
    }
    Ok(Verdict::Yes)
}

fn watch(session: &Session, notify: bool) -> Result<Verdict, Error> {
    let end = interrupt::socket()?;
    session.hint(&mut screen::stderr(), true)?;
    let mut notifier = if notify { Some(HangNotifier::begin()?) } else { None };
    let watcher = HangWatcher::begin(Arc::clone(&session.disk), session.dir.clone());
    let mut watcher = watcher.map_err(failed("read the hangs"))?;
    watcher.run(&end, &mut |hang, news| {
        if let Some(notifier) = &mut notifier {
            // Parts are switched on while it watches.
            let applied = applied::applied();
            return notifier.show(hang, &HangTextStyle { applied: &applied, ..session.style() });
        }
        if news == HangNews::GoesOn {
            return Ok(());
        }
        let mut out = screen::stdout();
        writeln!(out, "{}  {}", hang.number, session.style().line(hang))?;
        out.flush()
    })?;
    Ok(Verdict::Yes)
}

fn timeline(
    session: &Session,
    output: &std::path::Path,
    which: &Selection,
) -> Result<Verdict, Error> {
    let (history, span, name) = session.select(which)?;
    let file = NewFile::make(output)?;
    let provenance = Provenance::of_this_machine(super::command_line(), SystemClock::start().now());
    file.write(&::hangs::page::render_page(&history, span, &name, &session.style(), &provenance))?;
    Ok(Verdict::Yes)
}

fn forget(session: &Session, which: &Selection) -> Result<Verdict, Error> {
    let (since_ns, until_ns) = which.bounds(&session.now)?;
    for (text, at_ns) in [(&which.since, since_ns), (&which.until, until_ns)] {
        let said = said(text, at_ns, &session.now);
        if said.as_deref() != text.as_deref().map(str::trim) {
            // What is erased does not come back.
            return Err(Error::new(FailureCategory::User, "erase by the moment that is given")
                .because(std::io::Error::other("it is still to come today"))
                .hint("yesterday's is written with its date: 2026-11-21T10:30"));
        }
    }
    if since_ns.is_none() && until_ns.is_none() && which.program.is_none() && !which.all {
        return Err(Error::new(FailureCategory::User, "forget nothing in particular")
            .hint("unjank hangs forget --all, or --since, --until, --program"));
    }
    let selection = EraseSelection { since_ns, until_ns, program: which.program.clone() };
    let now_ns = nanoseconds(&session.now);
    let outcome = hang_store::erase(&*session.disk, &session.dir, &selection, now_ns);
    let outcome = outcome.map_err(failed("erase hangs"))?;
    let kept = kept_text(&outcome);
    let is_whole = outcome.not_erased.is_empty() && kept.is_none();
    let is_any = outcome.hangs > 0 || outcome.periods > 0 || outcome.unreadable_files > 0;
    if selection.is_everything() && is_any {
        // Of what could not be erased the list tells all the same. Without the note it says that records may have been erased, which is true,
        // too.
        let _ = hang_store::note_erased(&*session.disk, &session.dir, now_ns);
    }
    print(&erased_text(&outcome))?;
    if let Some(kept) = kept {
        let what = format!("erase what is in {kept} in {}: not readable", session.dir.display());
        Error::new(FailureCategory::Config, what)
            .hint("unjank hangs forget --all removes what is there")
            .report();
    }
    for error in outcome.not_erased {
        failed("erase all that was meant")(error).report();
    }
    Ok(if is_whole { Verdict::Yes } else { Verdict::No })
}

/// Says how programs are observed from now on.
fn say_source(change: &SourceChange) {
    // Without a reader of the message the records say the same.
    for line in wrap(&change.to_string(), screen::error_width(), "").lines() {
        let _ = sayln!(screen::stderr(), "{line}");
    }
}

fn run_recorder(session: &Session, named: Vec<String>, limit: u64) -> Result<Verdict, Error> {
    let stop = interrupt::flag();
    #[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
    let excluded = RecentsFiles::from_variables(|name| std::env::var_os(name));
    let options = RecorderOptions {
        dir: session.dir.clone(),
        limit_bytes: limit << 20,
        named,
        excluded: Some(excluded),
        sources: super::trace::sources(),
    };
    let clock = SystemClock::start();
    if let holder @ Some(_) = hang_store::running_recorder(&*session.disk, &session.dir) {
        return Err(failed("record hangs")(HangStoreError::RecorderRuns { holder }));
    }
    sayln!(screen::stderr(), "recording hangs into {}", session.dir.display())?;
    let source = ThreadSource::find(super::trace::recorder(), say_source);
    let done = record(&options, source, &session.disk, &clock, &stop, &mut |_| {});
    let summary = done.map_err(|error| match error {
        RecorderError::Store(error) => failed("record hangs")(error),
        other => Error::new(FailureCategory::Config, "record hangs").because(other),
    })?;
    let length = report::figure::duration(clock.monotonic().max(Duration::from_millis(1)));
    writeln!(
        screen::stderr(),
        "{} of {} in {length}",
        number(summary.hangs, "hang"),
        number(summary.programs, "program")
    )?;
    Ok(Verdict::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_that_is_to_come_is_refused() {
        let now = Zoned::now();
        let select = |since: &str| Selection {
            since: Some(since.to_owned()),
            until: None,
            all: false,
            program: None,
        };
        assert!(select("3 days").bounds(&now).is_ok());
        assert!(select("9000-01-01").bounds(&now).is_err());
    }

    #[test]
    fn a_span_that_begins_on_the_day_before_is_called_so() {
        let now: Zoned = "2026-11-21T13:30:00+00:00[UTC]".parse().unwrap();
        let called = |since: Option<&str>, until: Option<&str>| {
            let (since, until) = (since.map(str::to_owned), until.map(str::to_owned));
            Selection { since, until, all: false, program: None }.span(&now).unwrap().1
        };
        assert_eq!(called(Some("14:00"), Some("13:00")), "from 14:00 yesterday to 13:00");
        assert_eq!(called(Some("14:00"), None), "since 14:00 yesterday");
        assert_eq!(called(Some("12:00"), Some("13:00")), "from 12:00 to 13:00");
        assert_eq!(called(None, Some("2026-11-20")), "until 2026-11-20");
    }

    #[test]
    fn nothing_is_erased_by_a_time_of_day_that_is_still_to_come() {
        let dir = tempfile::tempdir().unwrap();
        let now: Zoned = "2026-11-21T13:30:00+00:00[UTC]".parse().unwrap();
        let (disk, dir) = (store::disk::real(), dir.path().join("none"));
        let session = Session { disk, dir, now, home: None, applied: OnceCell::new() };
        let erase = |since: Option<&str>, until: Option<&str>| {
            let (since, until) = (since.map(str::to_owned), until.map(str::to_owned));
            forget(&session, &Selection { since, until, all: false, program: None })
        };
        for (since, until) in [(None, Some("13:31")), (Some("23:00"), None)] {
            let error = erase(since, until).unwrap_err();
            assert!(error.to_string().contains("erase by the moment"), "{error}");
        }
        assert!(erase(Some("13:00"), None).is_ok());
        assert!(erase(Some("2026-11-20T23:00"), Some("13:00")).is_ok());
    }

    #[test]
    fn the_name_of_a_program_need_not_be_text() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let parse = |name: &[u8]| {
            let command = clap::Command::new("test");
            program_name().parse_ref(&command, None, OsStr::from_bytes(name))
        };
        assert_eq!(parse(b"caf\xe9").unwrap(), "caf\u{fffd}");
        assert!(parse(b"").is_err());
    }
}
