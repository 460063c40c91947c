//! `parquet --to DIR`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use hangs::store::StoredHistory;
use report::paragraph::counted;
use unjank_export::facts::{Fact, parse_fact, read_machine};
use unjank_export::lake::{ExportTurn, LakeError, export};

use super::{AS_FAR, Failure, Session, print};

/// Write a file of rows for each day; again, only what is new
#[derive(Debug, Args)]
pub(super) struct Parquet {
    /// The directory; it is made if it is missing.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Also write the system, the kernel and the models of the disks of this machine.
    #[arg(long)]
    facts: bool,
    /// Also write this about the machine, such as nautilus=43.2-1.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_fact)]
    fact: Vec<(String, String)>,
}

impl Parquet {
    pub(super) fn run(self, session: &Session) -> Result<(), Failure> {
        let failure = |error: LakeError| match error {
            LakeError::NotRead { .. } | LakeError::OtherColumns { .. } => {
                Failure::of(&error).hint("move that file out of the directory and run this again")
            }
            _ => Failure::of(&error),
        };
        let files = session.store_files();
        let mut stored = session.stored_records()?;
        let turn = ExportTurn::take(&*session.disk, &self.to, &session.source).map_err(failure)?;
        if session.store_files() != files {
            // Records may have been erased while another export ran.
            stored = session.stored_records()?;
        }
        let facts = self.all_facts(session, &stored);
        let outcome = export(&turn, &stored, &facts).map_err(failure)?;
        let hangs = counted(outcome.hangs, "hang");
        let files = counted(outcome.files, "file");
        let to = self.to.display();
        let said = match (outcome.new_hangs, outcome.files) {
            (0, 0) => format!("Nothing new: {hangs} in {to} already"),
            (new, _) => format!("{hangs}, {new} of them new: {files} written in {to}"),
        };
        let limit = if stored.damage().is_some() { AS_FAR } else { "" };
        print(&format!("{said}{limit}."))?;
        Ok(())
    }

    fn all_facts(&self, session: &Session, stored: &StoredHistory) -> Vec<Fact> {
        let mut all = self.fact.clone();
        if self.facts {
            let calls = stored.hangs.values().flat_map(|hang| &hang.calls);
            let objects = calls.filter_map(|call| call.object.as_ref());
            let devices: BTreeSet<&str> = objects.map(|object| &*object.device).collect();
            all.extend(read_machine(&*session.disk, Path::new("/"), &devices));
        }
        let seen_ns = session.now_ns();
        all.into_iter().map(|(name, value)| Fact { seen_ns, name, value }).collect()
    }
}
