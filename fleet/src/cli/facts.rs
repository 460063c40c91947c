//! The options about the machine, which `parquet` and `otlp` have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use hangs::store::StoredHistory;
use unjank_export::facts::{parse_fact, parse_facts, read_machine};

use super::{Failure, Session};

/// What is told of the machine.
#[derive(Clone, Debug, Args)]
pub(super) struct FactOptions {
    /// Also write the system, the kernel and the models of the disks of this machine.
    #[arg(long)]
    facts: bool,
    /// Also write this about the machine, such as nautilus=43.2-1.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_fact)]
    fact: Vec<(String, String)>,
    /// Also write what the lines NAME=VALUE of this file say, which is read anew each time.
    #[arg(long, value_name = "FILE")]
    facts_from: Option<PathBuf>,
}

impl FactOptions {
    /// Returns what is so now, each name once: what the person types holds before the file, and the file before the machine.
    pub(super) fn read(
        &self,
        session: &Session,
        stored: &StoredHistory,
    ) -> Result<Vec<(String, String)>, Failure> {
        let mut all = Vec::new();
        if self.facts {
            let calls = stored.hangs.values().flat_map(|hang| &hang.calls);
            let objects = calls.filter_map(|call| call.object.as_ref());
            let devices: BTreeSet<&str> = objects.map(|object| &*object.device).collect();
            all.extend(read_machine(&*session.disk, Path::new("/"), &devices));
        }
        if let Some(path) = &self.facts_from {
            let unread = |why: String| {
                let failure = Failure::new(format!("cannot read facts from {path:?}: {why}"));
                failure.hint("a fact is a line NAME=VALUE, such as nautilus=43.2-1")
            };
            // The directory in which this runs is where the person says it.
            let bytes = session.disk.read(&std::path::absolute(path)?);
            let bytes = bytes.map_err(|error| unread(report::error::chain(&error)))?;
            all.extend(parse_facts(&bytes).map_err(unread)?);
        }
        all.extend(self.fact.iter().cloned());
        let mut known = BTreeSet::new();
        let mut last: Vec<(String, String)> =
            all.into_iter().rev().filter(|(name, _)| known.insert(name.clone())).collect();
        last.reverse();
        Ok(last)
    }
}
