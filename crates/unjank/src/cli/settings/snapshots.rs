//! `snapshots` and `restore`: the earlier states of databases that the service keeps, and going back to one.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use report::paragraph::counted;
use report::table::{Align, TableCell, TextTable};
use serde::Serialize;
use settings::changeset::Changeset;
use settings::earlier::{self, EarlierState};
use settings::engine::{DatabaseId, DatabaseKind};
use sys::clock::{Clock, SystemClock};

use super::current::{Current, apply, plan};
use super::environment;
use crate::cli::screen::sayln;
use crate::cli::{moment, screen};
use crate::error::{Error, FailureCategory, Verdict};

/// The name and version of the JSON document; docs/settings.md has the fields.
const SCHEMA: &str = "unjank.settings.snapshots/1";

#[derive(Debug, Args)]
pub(super) struct Snapshots {
    /// List only snapshots of this database.
    #[arg(long, value_name = "NAME", value_parser = database)]
    database: Option<DatabaseId>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Restore {
    /// The snapshot, by its name in `unjank settings snapshots`.
    #[arg(required_unless_present = "latest", conflicts_with = "latest")]
    snapshot: Option<String>,
    /// The newest readable snapshot of the database.
    #[arg(long)]
    latest: bool,
    /// The database of --latest.
    #[arg(long, value_name = "NAME", default_value = "user", value_parser = database)]
    database: DatabaseId,
    /// Reset only this directory.
    #[arg(long, value_name = "DIR", value_parser = super::dir)]
    path: Option<String>,
    /// Only print what would be changed.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    snapshots: Vec<Fields>,
}

#[derive(Serialize)]
struct Fields {
    name: String,
    database: String,
    generation: u64,
    time: String,
    bytes: u64,
    /// Null if it cannot be read.
    keys: Option<usize>,
    path: String,
}

impl Snapshots {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let mut all = list()?;
        all.retain(|state| self.database.as_ref().is_none_or(|id| state.database == *id));
        if self.json {
            let snapshots = all.iter().map(fields).collect();
            super::print_json(&Document { schema: SCHEMA, snapshots }, out)?;
            return Ok(Verdict::Yes);
        }
        if all.is_empty() {
            writeln!(out, "There is no snapshot.")?;
            writeln!(
                out,
                "\nunjank's settings service makes them while it runs: docs/settings.md."
            )?;
            return Ok(Verdict::Yes);
        }
        let now = moment::local(SystemClock::start().now());
        let mut table = TextTable::new(&[
            ("snapshot", Align::Text),
            ("made", Align::Text),
            ("keys", Align::Point),
            ("bytes", Align::Point),
        ]);
        for state in &all {
            let keys = match &state.table {
                Some(table) => table.len().to_string(),
                None => "damaged".to_owned(),
            };
            table.row(vec![
                TableCell::from(&*state.name),
                TableCell::from(report::moment::show(made(state), &now)),
                TableCell::from(keys),
                TableCell::from(state.bytes.to_string()),
            ]);
        }
        write!(out, "{}", table.render(screen::width(), screen::paint()))?;
        if let Some(last) = all.iter().rfind(|state| state.table.is_some()) {
            writeln!(out)?;
            sayln!(
                out,
                "Show what restoring one would change: unjank settings restore {} --dry-run",
                last.name
            )?;
        }
        Ok(Verdict::Yes)
    }
}

impl Restore {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let state = self.choose(list()?)?;
        let failed = || Error::new(FailureCategory::Config, format!("restore {}", state.name));
        let Some(table) = &state.table else {
            return Err(failed().because("the snapshot is damaged").hint(format!(
                "print its readable keys with: unjank settings salvage {} --print",
                state.path.display()
            )));
        };
        let id = &state.database;
        let current = Current::open(std::iter::once(id));
        let damaged = current.damaged_file(id).map_err(|error| failed().because(error))?;
        if let Some(path) = damaged {
            let hint = "the settings service repairs it with the next change of a key";
            return Err(failed().because(format!("{} is damaged", path.display())).hint(hint));
        }
        let mut changes = Changeset::default();
        let mut left = Vec::new();
        let is_wanted =
            |key: &str| self.path.as_ref().is_none_or(|dir| key.starts_with(dir.as_str()));
        for (key, value) in settings::merge::difference(&current.table(id), table).iter() {
            if !is_wanted(key) {
                continue;
            }
            if current.locks(key) {
                left.push(key.to_owned());
            } else {
                changes.change(key, value.cloned());
            }
        }
        let keys = changes.len();
        let changes: BTreeMap<DatabaseId, Changeset> =
            std::iter::once((id.clone(), changes)).filter(|(_, c)| !c.is_empty()).collect();
        if !self.dry_run {
            apply(&format!("restore {}", state.name), &changes)?;
        }
        let done = if self.dry_run { "would be changed" } else { "changed" };
        sayln!(out, "{} {done} to what {} holds.", counted(keys, "key"), state.name)?;
        plan(&changes, &current, out)?;
        for key in &left {
            writeln!(out)?;
            sayln!(out, "skipped: {key}, locked by the administrator")?;
        }
        if keys > 0 && !self.dry_run {
            writeln!(out, "\nTake it back: unjank settings history shows its number for undo.")?;
        }
        Ok(if left.is_empty() { Verdict::Yes } else { Verdict::No })
    }

    fn choose(&self, all: Vec<EarlierState>) -> Result<EarlierState, Error> {
        let wanted = |state: &EarlierState| match &self.snapshot {
            Some(name) => state.name == *name,
            None => state.database == self.database && state.table.is_some(),
        };
        all.into_iter().rfind(wanted).ok_or_else(|| {
            let what = match &self.snapshot {
                Some(name) => format!("restore {name}"),
                None => format!("restore a snapshot of {}", self.database.name()),
            };
            Error::new(FailureCategory::User, what)
                .because("there is no such snapshot")
                .hint("list the snapshots with: unjank settings snapshots")
        })
    }
}

fn list() -> Result<Vec<EarlierState>, Error> {
    let places = environment::places(&environment::read());
    let dir: PathBuf = places.snapshots();
    earlier::list(&*store::disk::real(), &dir).map_err(|error| {
        Error::new(FailureCategory::Config, format!("list the snapshots in {}", dir.display()))
            .because(error)
    })
}

fn fields(state: &EarlierState) -> Fields {
    Fields {
        name: state.name.clone(),
        database: state.database.to_string(),
        generation: state.generation,
        time: jiff::Timestamp::try_from(made(state)).unwrap_or_default().to_string(),
        bytes: state.bytes,
        keys: state.table.as_ref().map(|table| table.len()),
        path: state.path.to_string_lossy().into_owned(),
    }
}

fn made(state: &EarlierState) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(state.made_s)
}

fn database(name: &str) -> Result<DatabaseId, String> {
    DatabaseId::new(DatabaseKind::User, name)
        .ok_or_else(|| "a name has letters, digits and _ only".to_owned())
}
