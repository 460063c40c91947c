//! Background work: snapshots, checkpoints and the history.

use std::error::Error;
use std::path::PathBuf;

use store::disk::Disk;
use store::publish::publish;
use store::snapshots::Snapshots;

use super::access::{Access, Entered, Patience};
use super::answer::EngineNotice;
use super::files::Files;
use super::wal::Wal;
use crate::history::{Writer, Written};
use crate::names::DatabaseId;

/// One piece of background work.
#[derive(Debug)]
pub(super) enum Aside {
    /// Keep a snapshot of a published image.
    Snapshot { id: DatabaseId, snapshots: Snapshots, image: PathBuf, generation: u64, now_s: u64 },
    /// Keep the last image of a database that another program removed.
    LostImage { to: PathBuf, image: Vec<u8> },
    /// Fold the journal of a database into a new checkpoint.
    Checkpoint {
        id: DatabaseId,
        files: Box<Files>,
        wal: Wal,
        generation: u64,
        image: Vec<u8>,
        access: Access,
    },
    /// Write the gathered entries of the history.
    History(Box<Writer>),
}

/// The result of background work.
#[derive(Debug)]
pub(super) enum AsideDone {
    Snapshot { id: DatabaseId, snapshots: Snapshots },
    LostImage,
    Checkpoint { id: DatabaseId, wal: Wal, access: Access },
    History(Box<Writer>, Written),
}

impl Aside {
    /// Executes the work.
    pub(super) fn run(self, disk: &dyn Disk, reports: &mut Vec<EngineNotice>) -> AsideDone {
        match self {
            Aside::Snapshot { id, mut snapshots, image, generation, now_s } => {
                if let Err(error) = snapshots.keep(disk, &image, generation, now_s) {
                    let text =
                        format!("cannot keep a snapshot of {id}: {error}: {}", error.cause());
                    reports.push(EngineNotice::Aside { text });
                }
                AsideDone::Snapshot { id, snapshots }
            }
            Aside::LostImage { to, image } => {
                if let Err(error) = publish(disk, &to, &image) {
                    let text =
                        format!("cannot keep a removed database: {error}: {}", error.cause());
                    reports.push(EngineNotice::Aside { text });
                }
                AsideDone::LostImage
            }
            Aside::Checkpoint { id, files, mut wal, generation, image, mut access } => {
                let entered = access.enter(disk, &id, &files, Patience::Left, reports);
                // Another service of this user that holds the right folds the journal itself.
                let folded = match entered {
                    Ok(Entered::Busy) => Ok(()),
                    Ok(Entered::Yes) if !wal.is_current(disk, &files).unwrap_or(false) => Ok(()),
                    Ok(Entered::Yes) => wal.checkpoint(disk, &files, generation, &image),
                    Err(error) => Err(error),
                };
                access.leave();
                if let Err(error) = folded {
                    let text = format!("cannot fold the journal of {id}: {error}");
                    reports.push(EngineNotice::Aside { text });
                }
                AsideDone::Checkpoint { id, wal, access }
            }
            Aside::History(mut writer) => {
                let mut notes = Vec::new();
                let written = writer.write(disk, &mut notes).unwrap_or_else(|error| {
                    let cause = error.source().map_or_else(String::new, |why| format!(": {why}"));
                    notes.push(format!("cannot write the history: {error}{cause}"));
                    Written::Failed
                });
                reports.extend(notes.into_iter().map(|text| EngineNotice::Aside { text }));
                AsideDone::History(writer, written)
            }
        }
    }
}
