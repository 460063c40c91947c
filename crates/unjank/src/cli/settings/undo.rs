//! `undo`: takes changes back.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::SystemTime;

use clap::Args;
use gvdb::gvariant::Variant;
use report::paragraph::counted;
use settings::engine::DatabaseId;
use settings::history::{self, Conflict, Forced, HistoryEntry, Present, Reason};
use sys::clock::{Clock, SystemClock};

use super::current::{Current, apply, plan};
use super::history::{read, read_moment};
use crate::cli::moment;
use crate::cli::screen::sayln;
use crate::error::{Error, FailureCategory, Verdict};

#[derive(Debug, Args)]
pub(super) struct Undo {
    /// The changes to undo, by their number in the history.
    #[arg(required_unless_present = "since", conflicts_with = "since")]
    id: Vec<u64>,
    /// Undo every change since this time.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only print what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Also restore keys that were changed again since.
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
        let done = if self.dry_run { "would be restored" } else { "restored" };
        sayln!(out, "{} {done}, {} skipped.", counted(keys, "key"), undo.conflicts.len())?;
        if since.is_some() {
            writeln!(
                out,
                "Changes of the last second may not be recorded yet and are not included."
            )?;
        }
        plan(&undo.changes, &current, out)?;
        if undo.left_out > 0 {
            writeln!(out, "\nThe history does not contain {} more keys.", undo.left_out)?;
        }
        conflicts(&undo.conflicts, out)?;
        let is_whole = undo.conflicts.is_empty() && undo.left_out == 0;
        Ok(if is_whole { Verdict::Yes } else { Verdict::No })
    }

    fn select(
        &self,
        all: Vec<HistoryEntry>,
        since: Option<SystemTime>,
    ) -> Result<Vec<HistoryEntry>, Error> {
        if let Some(since) = since {
            return Ok(all.into_iter().filter(|entry| entry.time >= since).collect());
        }
        let known: BTreeSet<u64> = all.iter().map(|entry| entry.id).collect();
        if let Some(unknown) = self.id.iter().find(|id| !known.contains(id)) {
            return Err(Error::new(FailureCategory::User, format!("undo change {unknown}"))
                .because("the history does not contain it")
                .hint("list the changes with: unjank settings history"));
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
                "changed again since"
            }
            Reason::NotStored => "its value is not in the history",
            Reason::Locked => "locked by the administrator",
        };
        writeln!(out)?;
        sayln!(out, "skipped: {path}, {why}")?;
    }
    if changed {
        writeln!(out, "\nTake those that were changed again back as well with --force.")?;
    }
    Ok(())
}
