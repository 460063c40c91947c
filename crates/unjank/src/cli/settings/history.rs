//! `history`: who changed what, and when.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::SystemTime;

use clap::Args;
use report::paint::Tone;
use report::paragraph::counted;
use report::text::{columns, cut};
use serde::Serialize;
use settings::history::{self, HistoryEntry, HistoryFilter, HistoryValue};
use sys::clock::{Clock, SystemClock};

use super::environment;
use super::session::MessageStyle;
use crate::cli::screen::sayln;
use crate::cli::{moment, screen};
use crate::error::{Error, FailureCategory, Verdict};

/// The name and version of the JSON document; docs/settings.md has the fields.
const SCHEMA: &str = "unjank.settings.history/1";
/// How many changes a person is shown if they do not say.
const SHOWN: usize = 20;

#[derive(Debug, Args)]
pub(super) struct History {
    /// Show only changes since this time: 2h, yesterday, 10:30, 2026-11-21.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Show only keys at or below this path.
    #[arg(long, value_parser = super::path)]
    path: Option<String>,
    /// Show only changes by programs whose path ends with this.
    #[arg(long)]
    exe: Option<String>,
    /// Show only the latest N changes [default: 20, all with --json].
    #[arg(short, value_name = "N")]
    n: Option<usize>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl History {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let now = moment::local(SystemClock::start().now());
        let filter = HistoryFilter {
            since: self.since.as_deref().map(|text| read_moment(text, &now)).transpose()?,
            path: self.path.clone(),
            exe: self.exe.clone(),
            ..HistoryFilter::default()
        };
        let all = read()?;
        let entries: Vec<HistoryEntry> =
            all.iter().filter_map(|entry| filter.select(entry)).collect();
        let most = self.n.unwrap_or(if self.json { usize::MAX } else { SHOWN });
        let shown = &entries[entries.len().saturating_sub(most)..];
        if self.json {
            return json(shown, out);
        }
        if entries.is_empty() {
            writeln!(out, "No recorded change matches.")?;
            writeln!(
                out,
                "\nunjank's settings service records changes within a second while it runs: docs/settings.md."
            )?;
            return Ok(Verdict::Yes);
        }
        sayln!(out, "{}", verdict(&entries, shown.len()))?;
        writeln!(out)?;
        for entry in shown {
            change(entry, &now, out)?;
        }
        if let Some(last) = shown.last() {
            writeln!(out)?;
            sayln!(out, "Undo a change by its number: unjank settings undo {}", last.id)?;
        }
        Ok(Verdict::Yes)
    }
}

/// Reads the history; says on stderr if a part of it is lost.
pub(super) fn read() -> Result<Vec<HistoryEntry>, Error> {
    let places = environment::places(&environment::read());
    let recorded = history::read(&*store::disk::real(), &places).map_err(|error| {
        let file = history::file(&places);
        Error::new(FailureCategory::Config, format!("read the history {}", file.display()))
            .because(error)
            .hint("the settings service sets it aside with the next change and starts a new one")
    })?;
    if recorded.is_damaged {
        let file = history::file(&places);
        let text = format!("a part of the history {} is damaged and left out", file.display());
        MessageStyle::Unjank.warn("", "", &text);
    }
    Ok(recorded.entries)
}

pub(super) fn read_moment(text: &str, now: &jiff::Zoned) -> Result<SystemTime, Error> {
    report::moment::parse(text, now).map_err(|why| {
        Error::new(FailureCategory::User, format!("parse the time {text:?}")).hint(why)
    })
}

fn verdict(entries: &[HistoryEntry], shown: usize) -> String {
    let keys: BTreeSet<&str> =
        entries.iter().flat_map(|entry| &entry.keys).map(|key| &*key.path).collect();
    let programs: BTreeSet<String> = entries.iter().map(program).collect();
    let mut text = format!(
        "{} of {} by {}",
        counted(entries.len(), "change"),
        counted(keys.len(), "key"),
        counted(programs.len(), "program")
    );
    if shown < entries.len() {
        text += &format!("; the latest {shown}");
    }
    text + "."
}

/// The name of the executable, else the bus name.
fn program(entry: &HistoryEntry) -> String {
    if entry.is_from_outside() {
        return "another program, which replaced the file".to_owned();
    }
    let exe = entry.process.as_ref().and_then(|process| process.exe.as_ref());
    let name = exe.and_then(|exe| exe.file_name()).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| entry.sender.clone())
}

/// Writes one change: who made it and when, then each key with both values.
///
/// Values are whole on a pipe; on a screen each is cut to a line of its own.
fn change(entry: &HistoryEntry, now: &jiff::Zoned, out: &mut dyn Write) -> io::Result<()> {
    let (paint, charset) = (screen::paint(), screen::charset());
    let who = match &entry.process {
        Some(process) => format!("{}, process {}", program(entry), process.pid),
        None => program(entry),
    };
    let head = format!("{}  {}  {who}", entry.id, report::moment::show(entry.time, now));
    writeln!(out, "{}", paint.set(Tone::Dim, &screen::sentence(&head)))?;
    let width = if screen::is_terminal() { screen::width() } else { usize::MAX };
    for key in &entry.keys {
        let (path, old, new) = (screen::shown(&key.path), shown(&key.old), shown(&key.new));
        let line = format!("    {path}: {old} -> {new}");
        if columns(&line) <= width {
            writeln!(out, "{line}")?;
        } else {
            let room = width.saturating_sub(SUBLINE.len() + 6);
            writeln!(out, "    {path}:")?;
            writeln!(out, "{SUBLINE}from: {}", cut(&old, room, charset))?;
            writeln!(out, "{SUBLINE}to:   {}", cut(&new, room, charset))?;
        }
    }
    if entry.left_out > 0 {
        writeln!(out, "    and {} more keys, for which the history has no space", entry.left_out)?;
    }
    Ok(())
}

/// What a line with one value begins with.
const SUBLINE: &str = "        ";

/// Returns a value as a person reads it.
pub(super) fn shown(value: &HistoryValue) -> String {
    match value {
        HistoryValue::Unset => "unset".to_owned(),
        HistoryValue::Hidden => "(not stored)".to_owned(),
        HistoryValue::TooLong(bytes) => format!("({bytes} bytes, not stored)"),
        HistoryValue::Set(value) => screen::shown(&value.print()).into_owned(),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    changes: Vec<Change<'a>>,
}

#[derive(Serialize)]
struct Change<'a> {
    id: u64,
    time: String,
    database: String,
    sender: &'a str,
    /// No caller of the service made the change: another program replaced the file.
    outside: bool,
    pid: Option<u32>,
    exe: Option<String>,
    tag: &'a str,
    keys: Vec<Key<'a>>,
    /// How many more keys changed.
    left_out: u64,
}

#[derive(Serialize)]
struct Key<'a> {
    path: &'a str,
    old: Option<String>,
    new: Option<String>,
    /// Values of this key are not stored: `old` and `new` say nothing.
    hidden: bool,
    /// A value of this key is too long to be stored.
    too_long: bool,
}

fn json(entries: &[HistoryEntry], out: &mut dyn Write) -> Result<Verdict, Error> {
    let text = |value: &HistoryValue| match value {
        HistoryValue::Set(value) => Some(value.print()),
        HistoryValue::Unset | HistoryValue::Hidden | HistoryValue::TooLong(_) => None,
    };
    let changes = entries.iter().map(|entry| Change {
        id: entry.id,
        time: jiff::Timestamp::try_from(entry.time).unwrap_or_default().to_string(),
        database: entry.database.to_string(),
        sender: &entry.sender,
        outside: entry.is_from_outside(),
        left_out: entry.left_out,
        pid: entry.process.as_ref().map(|process| process.pid),
        exe: entry
            .process
            .as_ref()
            .and_then(|process| process.exe.as_ref())
            .map(|exe| exe.to_string_lossy().into_owned()),
        tag: &entry.tag,
        keys: entry
            .keys
            .iter()
            .map(|key| Key {
                path: &key.path,
                old: text(&key.old),
                new: text(&key.new),
                hidden: key.old == HistoryValue::Hidden || key.new == HistoryValue::Hidden,
                too_long: [&key.old, &key.new]
                    .iter()
                    .any(|v| matches!(v, HistoryValue::TooLong(_))),
            })
            .collect(),
    });
    let document = Document { schema: SCHEMA, changes: changes.collect() };
    super::print_json(&document, out)?;
    Ok(Verdict::Yes)
}
