//! Work that nobody waits for: snapshots, checkpoints and the history.

use std::path::PathBuf;

use store::disk::Disk;
use store::publish::publish;
use store::snapshots::Snapshots;

use super::answer::Report;
use super::files::Files;
use super::names::DatabaseId;
use super::wal::Wal;
use crate::settings::history::Writer;

/// One piece of work that nobody waits for.
#[derive(Debug)]
pub(super) enum Aside {
    /// Keep a snapshot of a published image.
    Snapshot { id: DatabaseId, snapshots: Snapshots, image: PathBuf, generation: u64, now_s: u64 },
    /// Keep the last image of a database that another program removed.
    Farewell { to: PathBuf, image: Vec<u8> },
    /// Fold the journal of a database into a new checkpoint.
    Checkpoint { id: DatabaseId, files: Files, wal: Wal, generation: u64, image: Vec<u8> },
    /// Write what was gathered for the history.
    History(Writer),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum AsideDone {
    Snapshot { id: DatabaseId, snapshots: Snapshots },
    Farewell,
    Checkpoint { id: DatabaseId, wal: Wal },
    History(Writer),
}

impl Aside {
    /// Does the work.
    pub(super) fn run(self, disk: &dyn Disk, reports: &mut Vec<Report>) -> AsideDone {
        match self {
            Aside::Snapshot { id, mut snapshots, image, generation, now_s } => {
                if let Err(error) = snapshots.keep(disk, &image, generation, now_s) {
                    let text =
                        format!("cannot keep a snapshot of {id}: {error}: {}", error.cause());
                    reports.push(Report::Aside { text });
                }
                AsideDone::Snapshot { id, snapshots }
            }
            Aside::Farewell { to, image } => {
                if let Err(error) = publish(disk, &to, &image) {
                    let text =
                        format!("cannot keep a removed database: {error}: {}", error.cause());
                    reports.push(Report::Aside { text });
                }
                AsideDone::Farewell
            }
            Aside::Checkpoint { id, files, mut wal, generation, image } => {
                if let Err(error) = wal.checkpoint(disk, &files, generation, &image) {
                    let text = format!("cannot fold the journal of {id}: {error}");
                    reports.push(Report::Aside { text });
                }
                AsideDone::Checkpoint { id, wal }
            }
            Aside::History(mut writer) => {
                if let Err(error) = writer.write(disk) {
                    reports
                        .push(Report::Aside { text: format!("cannot write the history: {error}") });
                }
                AsideDone::History(writer)
            }
        }
    }
}
