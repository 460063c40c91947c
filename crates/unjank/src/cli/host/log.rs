//! `unjank host log`: who ran which command of the host, how it ended and what it used.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use host::log::json::CommandLogRecord;
use host::log::{self, LogContents, LogEntry};
use report::paragraph::counted;
use serde::Serialize;
use sys::clock::{Clock, SystemClock};

use crate::cli::{document, moment, screen};
use crate::error::{Error, FailureCategory, Verdict};

/// The name and version of the JSON document; docs/host.md has the fields.
const SCHEMA: &str = "unjank.host.log/1";
/// How many commands a person is shown if they do not say.
const SHOWN: usize = 20;

/// Show the log of host commands: caller, command, result and resource usage.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank host log --app org.vim.Vim --since 2h")]
pub(super) struct Log {
    /// Show only commands since this time: 2h, yesterday, 10:30, 2026-11-21.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Show only commands of this application.
    #[arg(long)]
    app: Option<String>,
    /// Show only commands with another exit status than 0.
    #[arg(long)]
    failed: bool,
    /// Show only the latest N commands [default: 20, all with --json].
    #[arg(short, value_name = "N")]
    n: Option<usize>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    commands: Vec<CommandLogRecord>,
    /// How many bytes of the log cannot be read, if it is damaged.
    damaged_bytes: Option<u64>,
    /// Logs that were damaged and set aside, with all that could not be read of them.
    set_aside: Vec<PathBuf>,
}

impl Log {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let now = moment::local(SystemClock::start().now());
        let since = self.since.as_deref().map(|text| {
            report::moment::parse(text, &now).map_err(|why| {
                Error::new(FailureCategory::User, format!("parse the time {text:?}")).hint(why)
            })
        });
        let since = since.transpose()?;
        let file = file()?;
        let disk = store::disk::real();
        let recorded = log::read(&*disk, &file).map_err(|error| {
            Error::new(FailureCategory::Config, format!("read the log {}", file.display()))
                .because(error)
        })?;
        let wanted = |entry: &&LogEntry| {
            since.is_none_or(|since| entry.time >= since)
                && self.app.as_ref().is_none_or(|app| entry.application == *app)
                && !(self.failed && entry.is_success())
        };
        let entries: Vec<&LogEntry> = recorded.entries.iter().filter(wanted).collect();
        let set_aside = log::set_aside(&*disk, &file);
        let most = self.n.unwrap_or(if self.json { usize::MAX } else { SHOWN });
        let shown = &entries[entries.len().saturating_sub(most)..];
        let mut out = screen::stdout();
        if self.json {
            let commands = shown.iter().map(|entry| CommandLogRecord::of(entry)).collect();
            let damaged_bytes = recorded.damaged_bytes;
            let document = Document { schema: SCHEMA, commands, damaged_bytes, set_aside };
            document::print_whole(&document)?;
            return Ok(Verdict::Yes);
        }
        tell_damage(&mut out, &recorded, &set_aside)?;
        if entries.is_empty() {
            writeln!(out, "No recorded host command matches.")?;
            return Ok(Verdict::Yes);
        }
        let not_well = entries.iter().filter(|entry| !entry.is_success()).count();
        let part = match entries.len() == shown.len() {
            true => String::new(),
            false => format!("; the latest {} are shown", shown.len()),
        };
        let commands = counted(entries.len(), "command");
        writeln!(out, "{commands}, {not_well} of them not with 0{part}.\n")?;
        let table = log::text::table(shown, &now);
        write!(out, "{}", table.render(screen::width(), screen::paint()))?;
        write!(out, "{}", log::text::reasons(shown, screen::width()))?;
        Ok(Verdict::Yes)
    }
}

/// Says what the log lacks because its file was damaged.
fn tell_damage(
    out: &mut impl Write,
    recorded: &LogContents,
    set_aside: &[PathBuf],
) -> Result<(), Error> {
    if let Some(bytes) = recorded.damaged_bytes {
        let bytes = counted(usize::try_from(bytes).unwrap_or(usize::MAX), "byte");
        writeln!(
            out,
            "The log is damaged: {bytes} of it cannot be read; all other records are shown.\n"
        )?;
    }
    for file in set_aside {
        let file = screen::shown(&file.to_string_lossy()).into_owned();
        writeln!(out, "A damaged log is kept as {file}; its readable part is shown.")?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn file() -> Result<PathBuf, Error> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.map(|state| log::file(&state)).ok_or_else(|| {
        Error::new(FailureCategory::Config, "find the state directory").because("HOME is not set")
    })
}
