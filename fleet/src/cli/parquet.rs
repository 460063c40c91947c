//! `parquet --to DIR`.

use std::path::PathBuf;

use clap::Args;
use hangs::store::StoredHistory;
use report::paragraph::counted;
use unjank_export::facts::Fact;
use unjank_export::lake::{ExportTurn, LakeError, export};

use super::facts::FactOptions;
use super::{AS_FAR, Failure, Session, print};

/// Write a file of rows for each day; again, only what is new
#[derive(Debug, Args)]
pub(super) struct Parquet {
    /// The directory; it is made if it is missing.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    facts: FactOptions,
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
        let facts = self.all_facts(session, &stored)?;
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

    fn all_facts(&self, session: &Session, stored: &StoredHistory) -> Result<Vec<Fact>, Failure> {
        let seen_ns = session.now_ns();
        let all = self.facts.read(session, stored)?.into_iter();
        Ok(all.map(|(name, value)| Fact { seen_ns, name, value }).collect())
    }
}
