//! `undo`: takes changes back.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::SystemTime;

use clap::Args;
use report::paragraph::counted;
use session::clock::{Clock, SystemClock};
use session::settings::engine::DatabaseId;
use session::settings::history::{self, Conflict, Entry, Forced, Present, Reason};
use store::table::gvariant::Variant;

use super::current::{Current, apply, plan};
use super::history::{read, read_moment};
use crate::cli::moment;
use crate::cli::screen::sayln;
use crate::error::{Error, Kind, Verdict};

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

impl Undo {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let now = moment::local(SystemClock::start().now());
        let since = self.since.as_deref().map(|text| read_moment(text, &now)).transpose()?;
        let entries = self.select(read()?, since)?;
        let current = Current::open(entries.iter().map(|entry| &entry.database));
        let forced = if self.force { Forced::Yes } else { Forced::No };
        let undo = history::undo(&entries, &current, forced);
        if !self.dry_run {
            apply("take the changes back", &undo.changes)?;
        }
        let keys: usize = undo.changes.values().map(|changes| changes.len()).sum();
        let done = if self.dry_run { "would be taken back" } else { "taken back" };
        sayln!(out, "{} {done}, {} left as they are.", counted(keys, "key"), undo.conflicts.len())?;
        plan(&undo.changes, &current, out)?;
        if undo.left_out > 0 {
            writeln!(out, "\nThe history does not name {} more keys.", undo.left_out)?;
        }
        conflicts(&undo.conflicts, out)?;
        let is_whole = undo.conflicts.is_empty() && undo.left_out == 0;
        Ok(if is_whole { Verdict::Yes } else { Verdict::No })
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

impl Present for Current {
    fn value(&self, database: &DatabaseId, key: &str) -> Option<Variant> {
        self.get(database, key)
    }

    fn is_locked(&self, _database: &DatabaseId, key: &str) -> bool {
        self.locks(key)
    }
}

fn conflicts(conflicts: &[Conflict], out: &mut dyn Write) -> io::Result<()> {
    let mut changed = false;
    for Conflict { path, reason, .. } in conflicts {
        let why = match reason {
            Reason::Changed => {
                changed = true;
                "was changed again since"
            }
            Reason::NotStored => "its value is not in the history",
            Reason::Locked => "is locked by the administrator",
        };
        writeln!(out)?;
        sayln!(out, "left: {path}, {why}")?;
    }
    if changed {
        writeln!(out, "\nTake those that were changed again back as well with --force.")?;
    }
    Ok(())
}
