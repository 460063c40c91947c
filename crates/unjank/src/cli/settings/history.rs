//! `history` and `undo`: who changed what, and taking it back.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::SystemTime;

use bus::client::ClientError;
use bus::client::blocking::BlockingClient;
use clap::Args;
use probe::report::paint::Tone;
use probe::report::paragraph::counted;
use probe::report::table::{Align, Cell, Table, cut};
use serde::Serialize;
use session::clock::{Clock, SystemClock};
use session::settings::engine::{DatabaseId, Kind as DatabaseKind};
use session::settings::history::{self, Conflict, Entry, Filter, Forced, Value};
use session::settings::profile::{Description, Environment};
use session::settings::source::Source;
use store::table::gvariant::{Variant, View};

use super::environment;
use super::session::Voice;
use crate::cli::screen::sayln;
use crate::cli::{moment, screen};
use crate::error::{Error, Kind, Verdict};

/// The name and version of the JSON document; docs/settings.md has the fields.
const SCHEMA: &str = "unjank.settings.history/1";
/// How many changes a person is shown if they do not say.
const SHOWN: usize = 20;
/// No value takes more columns than this.
const VALUE_COLUMNS: usize = 32;

#[derive(Debug, Args)]
pub(super) struct History {
    /// Only changes from then on: 2h, yesterday, 10:30, 2026-11-21.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only keys at or below this path.
    #[arg(long, value_parser = super::path)]
    path: Option<String>,
    /// Only changes by programs whose path ends with this.
    #[arg(long)]
    exe: Option<String>,
    /// Show at most so many changes, the latest [default: 20, all with --json].
    #[arg(short, value_name = "N")]
    n: Option<usize>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Undo {
    /// The changes to take back, by their number in the history.
    #[arg(required_unless_present = "since", conflicts_with = "since")]
    id: Vec<u64>,
    /// Take back every change from then on.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Take back keys that were changed again since, too.
    #[arg(long)]
    force: bool,
}

impl History {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let now = moment::local(SystemClock::start().now());
        let filter = Filter {
            since: self.since.as_deref().map(|text| read_moment(text, &now)).transpose()?,
            path: self.path.clone(),
            exe: self.exe.clone(),
            ..Filter::default()
        };
        let entries: Vec<Entry> = read()?.iter().filter_map(|entry| filter.select(entry)).collect();
        let most = self.n.unwrap_or(if self.json { usize::MAX } else { SHOWN });
        let shown = &entries[entries.len().saturating_sub(most)..];
        if self.json {
            return json(shown, out);
        }
        if entries.is_empty() {
            writeln!(out, "No change is recorded that this asks for.")?;
            writeln!(
                out,
                "\nOur settings service records changes while it runs: docs/settings.md."
            )?;
            return Ok(Verdict::Yes);
        }
        sayln!(out, "{}", verdict(&entries, shown.len()))?;
        writeln!(out)?;
        write!(out, "{}", table(shown, &now).render(screen::width(), screen::paint()))?;
        if let Some(last) = shown.last() {
            writeln!(out)?;
            sayln!(out, "Take one back with its number: unjank settings undo {}", last.id)?;
        }
        Ok(Verdict::Yes)
    }
}

impl Undo {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let now = moment::local(SystemClock::start().now());
        let since = self.since.as_deref().map(|text| read_moment(text, &now)).transpose()?;
        let entries = self.select(read()?, since)?;
        let environment = environment::read();
        let current = |id: &DatabaseId, key: &str| current(&environment, id, key);
        let forced = if self.force { Forced::Yes } else { Forced::No };
        let undo = history::undo(&entries, current, forced);
        let mut plan =
            Table::new(&[("key", Align::Text), ("now", Align::Text), ("then", Align::Text)]);
        let mut keys = 0;
        for (id, changes) in &undo.changes {
            for (key, value) in changes.iter() {
                let now = current(id, key).map_or_else(|| "unset".into(), |value| value.print());
                let then = value.map_or_else(|| "unset".into(), Variant::print);
                let short = |text: &str| Cell::from(cut(text, VALUE_COLUMNS));
                plan.row(vec![Cell::from(key), short(&now), short(&then)]);
                keys += 1;
            }
        }
        if !self.dry_run {
            apply(&undo)?;
        }
        let done = if self.dry_run { "would be taken back" } else { "taken back" };
        sayln!(out, "{} {done}, {} left as they are.", counted(keys, "key"), undo.conflicts.len())?;
        if keys > 0 {
            writeln!(out)?;
            write!(out, "{}", plan.render(screen::width(), screen::paint()))?;
        }
        conflicts(&undo.conflicts, out)?;
        Ok(if undo.conflicts.is_empty() { Verdict::Yes } else { Verdict::No })
    }

    fn select(&self, all: Vec<Entry>, since: Option<SystemTime>) -> Result<Vec<Entry>, Error> {
        if let Some(since) = since {
            return Ok(all.into_iter().filter(|entry| entry.time >= since).collect());
        }
        let known: BTreeSet<u64> = all.iter().map(|entry| entry.id).collect();
        if let Some(unknown) = self.id.iter().find(|id| !known.contains(id)) {
            return Err(Error::new(Kind::User, format!("take back change {unknown}"))
                .because("the history has no such change")
                .hint("unjank settings history lists them"));
        }
        Ok(all.into_iter().filter(|entry| self.id.contains(&entry.id)).collect())
    }
}

fn read() -> Result<Vec<Entry>, Error> {
    let places = environment::places(&environment::read());
    history::read(&*store::disk::real(), &places).map_err(|error| {
        let file = history::file(&places);
        Error::new(Kind::Config, format!("read the history {}", file.display())).because(error)
    })
}

fn read_moment(text: &str, now: &jiff::Zoned) -> Result<SystemTime, Error> {
    moment::parse(text, now)
        .map_err(|why| Error::new(Kind::User, format!("understand the time {text:?}")).hint(why))
}

/// Returns the user's value as it is on disk now.
fn current(environment: &Environment, id: &DatabaseId, key: &str) -> Option<Variant> {
    let description = match id.kind() {
        DatabaseKind::User => Description::User(id.name().to_owned()),
        kind => Description::Service(format!("{}/{}", kind.segment(), id.name())),
    };
    let mut source = Source::new(description, environment);
    source.refresh(&mut |_| (), &mut |_| ());
    let table = source.table()?;
    Some(View::inside(table.value(key)?, table.order()).to_variant())
}

fn apply(undo: &history::Undo) -> Result<(), Error> {
    if undo.changes.is_empty() {
        return Ok(());
    }
    let failed = |error| {
        let kind = match error {
            ClientError::TimedOut { .. } => Kind::Busy,
            _ => Kind::Config,
        };
        Error::new(kind, "take the changes back")
            .because(Voice::Unjank.bus_error(&error))
            .hint("changing needs the settings service on the session bus")
    };
    let client = BlockingClient::connect(None).map_err(failed)?;
    for (id, changes) in &undo.changes {
        client.change(&id.object_path(), &changes.encode()).map_err(failed)?;
    }
    Ok(())
}

fn conflicts(conflicts: &[Conflict], out: &mut dyn Write) -> io::Result<()> {
    let mut changed = false;
    for conflict in conflicts {
        let (path, why) = match conflict {
            Conflict::Changed { path, .. } => {
                changed = true;
                (path, "was changed again since")
            }
            Conflict::Hidden { path, .. } => (path, "its value before is not in the history"),
        };
        writeln!(out)?;
        sayln!(out, "left: {path}, {why}")?;
    }
    if changed {
        writeln!(out, "\nTake those back as well with --force.")?;
    }
    Ok(())
}

fn verdict(entries: &[Entry], shown: usize) -> String {
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
fn program(entry: &Entry) -> String {
    let exe = entry.process.as_ref().and_then(|process| process.exe.as_ref());
    let name = exe.and_then(|exe| exe.file_name()).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| entry.sender.clone())
}

fn table(entries: &[Entry], now: &jiff::Zoned) -> Table {
    let mut table = Table::new(&[
        ("id", Align::Point),
        ("when", Align::Point),
        ("key", Align::Text),
        ("from", Align::Text),
        ("to", Align::Text),
        ("by", Align::Text),
    ]);
    for entry in entries {
        let mut first = true;
        for key in &entry.keys {
            let once = |text: String| if first { Cell::from(text) } else { Cell::default() };
            let (id, when) = (once(entry.id.to_string()), once(moment::show(entry.time, now)));
            let by = once(program(entry));
            table.row(vec![id, when, Cell::from(&*key.path), cell(&key.old), cell(&key.new), by]);
            first = false;
        }
    }
    table
}

fn cell(value: &Value) -> Cell {
    match value {
        Value::Unset => Cell::toned(Tone::Dim, "unset"),
        Value::Hidden => Cell::toned(Tone::Dim, "not stored"),
        Value::Set(value) => Cell::from(cut(&value.print(), VALUE_COLUMNS)),
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
    pid: Option<u32>,
    exe: Option<String>,
    tag: &'a str,
    keys: Vec<Key<'a>>,
}

#[derive(Serialize)]
struct Key<'a> {
    path: &'a str,
    old: Option<String>,
    new: Option<String>,
    /// Values of this key are not stored: `old` and `new` say nothing.
    hidden: bool,
}

fn json(entries: &[Entry], out: &mut dyn Write) -> Result<Verdict, Error> {
    let text = |value: &Value| match value {
        Value::Set(value) => Some(value.print()),
        Value::Unset | Value::Hidden => None,
    };
    let changes = entries.iter().map(|entry| Change {
        id: entry.id,
        time: jiff::Timestamp::try_from(entry.time).unwrap_or_default().to_string(),
        database: entry.database.to_string(),
        sender: &entry.sender,
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
                hidden: key.old == Value::Hidden || key.new == Value::Hidden,
            })
            .collect(),
    });
    let document = Document { schema: SCHEMA, changes: changes.collect() };
    super::print_json(&document, out)?;
    Ok(Verdict::Yes)
}
