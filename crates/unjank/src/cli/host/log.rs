//! `unjank host log`: who ran which command of the host, how it ended and what it used.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use probe::doctor::machine::quoted;
use probe::report::figure::{Quantity, duration};
use probe::report::paragraph::counted;
use probe::report::table::{Align, Cell, Table, cut};
use report::text::{Charset, visible};
use serde::Serialize;
use session::clock::{Clock, SystemClock};
use session::host::log::{self, EndedBy, Entry, Outcome};

use super::End;
use crate::cli::{document, moment, screen};
use crate::error::{Error, Kind, Verdict};

/// The name and version of the JSON document; docs/host.md has the fields.
const SCHEMA: &str = "unjank.host.log/1";
/// How many commands a person is shown if they do not say.
const SHOWN: usize = 20;
/// No command takes more columns than this.
const COMMAND_COLUMNS: usize = 40;
/// What became of it takes no more than these.
const END_COLUMNS: usize = 60;

/// Show who ran which command of the host, how it ended and what it used.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank host log --app org.vim.Vim --since 2h")]
pub(super) struct Log {
    /// Only commands from then on: 2h, yesterday, 10:30, 2026-11-21.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only commands of this application.
    #[arg(long)]
    app: Option<String>,
    /// Only commands that did not end with 0.
    #[arg(long)]
    failed: bool,
    /// Show at most so many commands, the latest [default: 20, all with --json].
    #[arg(short, value_name = "N")]
    n: Option<usize>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    commands: Vec<Line>,
}

/// One command, as programs read it.
#[derive(Debug, Default, Serialize)]
struct Line {
    id: u64,
    time: String,
    app: String,
    caller: u32,
    exe: Option<PathBuf>,
    command: Vec<String>,
    directory: Option<PathBuf>,
    /// `refused`, `not-started`, `runs`, `unknown`, `ended`.
    outcome: &'static str,
    why: Option<String>,
    /// Refusals of the application before this one that are not in the log.
    unrecorded: u64,
    pid: Option<u32>,
    wait_status: Option<i32>,
    seconds: Option<f64>,
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    memory_bytes: Option<u64>,
    /// `itself`, `caller-gone`, `timeout`.
    ended_by: Option<&'static str>,
}

impl Log {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let now = moment::local(SystemClock::start().now());
        let since = self.since.as_deref().map(|text| {
            moment::parse(text, &now).map_err(|why| {
                Error::new(Kind::User, format!("understand the time {text:?}")).hint(why)
            })
        });
        let since = since.transpose()?;
        let file = file()?;
        let all = log::read(&*store::disk::real(), &file).map_err(|error| {
            Error::new(Kind::Config, format!("read the log {}", file.display())).because(error)
        })?;
        let wanted = |entry: &&Entry| {
            since.is_none_or(|since| entry.time >= since)
                && self.app.as_ref().is_none_or(|app| entry.application == *app)
                && !(self.failed && is_success(&entry.outcome))
        };
        let entries: Vec<&Entry> = all.iter().filter(wanted).collect();
        let most = self.n.unwrap_or(if self.json { usize::MAX } else { SHOWN });
        let shown = &entries[entries.len().saturating_sub(most)..];
        let mut out = screen::stdout();
        if self.json {
            let commands = shown.iter().map(|entry| line(entry)).collect();
            let document = Document { schema: SCHEMA, commands };
            document::print_whole(&document)?;
            return Ok(Verdict::Yes);
        }
        if entries.is_empty() {
            writeln!(out, "No command of the host is recorded that this asks for.")?;
            return Ok(Verdict::Yes);
        }
        let not_well = entries.iter().filter(|entry| !is_success(&entry.outcome)).count();
        let part = match entries.len() == shown.len() {
            true => String::new(),
            false => format!("; the latest {} are shown", shown.len()),
        };
        let commands = counted(entries.len(), "command");
        writeln!(out, "{commands}, {not_well} of them not with 0{part}.\n")?;
        let mut table = Table::new(&[
            ("when", Align::Text),
            ("application", Align::Text),
            ("command", Align::Text),
            ("end", Align::Text),
            ("took", Align::Point),
            ("processor", Align::Point),
            ("memory", Align::Point),
        ]);
        for entry in shown {
            table.row(row(entry, &now));
        }
        write!(out, "{}", table.render(screen::width(), screen::paint()))?;
        Ok(Verdict::Yes)
    }
}

fn is_success(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Ended(_, end) => end.wait_status == 0,
        Outcome::Began(process) => process.is_alive(),
        _ => false,
    }
}

fn row(entry: &Entry, now: &jiff::Zoned) -> Vec<Cell> {
    let when = moment::local(entry.time);
    let format = if when.date() == now.date() { "%H:%M:%S" } else { "%F %H:%M" };
    let words: Vec<String> = entry.command.iter().map(|word| quoted(word)).collect();
    let mut cells: Vec<Cell> = vec![
        when.strftime(format).to_string().into(),
        visible(&entry.application, Charset::Unicode).into_owned().into(),
        cut(&visible(&words.join(" "), Charset::Unicode), COMMAND_COLUMNS).into(),
        cut(&visible(&how(entry), Charset::Unicode), END_COLUMNS).into(),
    ];
    match &entry.outcome {
        Outcome::Ended(_, end) => {
            cells.push(duration(end.after).into());
            cells.push(duration(end.user + end.system).into());
            cells.push(Quantity::Size.show(bytes(end.memory_bytes)).into());
        }
        _ => cells.extend(["", "", ""].map(Cell::from)),
    }
    cells
}

/// Says in a few words what became of a command.
fn how(entry: &Entry) -> String {
    match &entry.outcome {
        Outcome::Refused(why) if entry.unrecorded > 0 => {
            format!("refused, and {} before it: {why}", entry.unrecorded)
        }
        Outcome::Refused(why) => format!("refused: {why}"),
        Outcome::NotStarted(_) => "not started".to_owned(),
        Outcome::Began(process) if process.is_alive() => format!("runs ({})", process.pid),
        Outcome::Began(_) => "unknown".to_owned(),
        Outcome::Ended(_, end) => {
            let how = match End::of(u32::from_ne_bytes(end.wait_status.to_ne_bytes())) {
                End::Code(code) => code.to_string(),
                End::Signal(number) => format!("signal {number}"),
                End::Unknown => "unknown".to_owned(),
            };
            match end.by {
                EndedBy::Itself => how,
                EndedBy::CallerGone => format!("{how}, caller gone"),
                EndedBy::Timeout => format!("{how}, took too long"),
            }
        }
    }
}

fn line(entry: &Entry) -> Line {
    let mut line = Line {
        id: entry.id,
        time: jiff::Timestamp::try_from(entry.time).unwrap_or_default().to_string(),
        app: entry.application.clone(),
        caller: entry.caller,
        exe: entry.exe.clone(),
        command: entry.command.clone(),
        directory: entry.directory.clone(),
        unrecorded: entry.unrecorded,
        ..Line::default()
    };
    match &entry.outcome {
        Outcome::Refused(why) => (line.outcome, line.why) = ("refused", Some(why.clone())),
        Outcome::NotStarted(why) => (line.outcome, line.why) = ("not-started", Some(why.clone())),
        Outcome::Began(process) => {
            line.outcome = if process.is_alive() { "runs" } else { "unknown" };
            line.pid = Some(process.pid);
        }
        Outcome::Ended(process, end) => {
            let seconds = |time: Duration| Some(time.as_secs_f64());
            line.outcome = "ended";
            line.pid = Some(process.pid);
            line.wait_status = Some(end.wait_status);
            (line.seconds, line.memory_bytes) = (seconds(end.after), Some(end.memory_bytes));
            (line.user_seconds, line.system_seconds) = (seconds(end.user), seconds(end.system));
            line.ended_by = Some(match end.by {
                EndedBy::Itself => "itself",
                EndedBy::CallerGone => "caller-gone",
                EndedBy::Timeout => "timeout",
            });
        }
    }
    line
}

#[expect(clippy::cast_precision_loss, reason = "a size that is shown with three digits")]
fn bytes(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn file() -> Result<PathBuf, Error> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.map(|state| log::file(&state)).ok_or_else(|| {
        Error::new(Kind::Config, "find the state directory").because("HOME is not set")
    })
}
