//! Writes a batch: one new image for each database, in place before any caller is answered.

use gvdb::PatchableImage;
use gvdb::gvariant::Variant;
use store::disk::{Disk, PinnedFile};
use store::generation::Retired;
use store::publish::{PreallocationSlot, PublishError, publish, publish_into, publish_volatile};

use super::access::{Access, Entered, Patience};
use super::answer::{ChangeError, EngineNotice, ErrorKind};
use super::external_change::{Outside, ReplacedDatabase, Settled, outside, outside_volatile};
use super::failure::{UNCHANGED, aside, failure, raise};
use super::file_identity::{self, FileIdentity};
use super::files::Files;
use super::live::Outcome;
use super::load::{read_journal, read_text};
use super::text;
use super::wal::Wal;
use crate::names::{DatabaseId, DatabaseKind};

/// One batch of one database.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) id: DatabaseId,
    pub(super) files: Files,
    /// The whole new image.
    pub(super) image: PatchableImage,
    /// Its generation.
    pub(super) generation: u64,
    /// The identity of the file when it was last read or written.
    pub(super) seen: FileIdentity,
    /// Whether the changes of another program are overwritten, because it wrote first too often.
    pub(super) force: bool,
    /// `keyfile`: what to change in the text, in this order.
    pub(super) edits: Vec<(Box<str>, Option<Variant>)>,
    /// `journal`: the record, and the journal it goes to.
    pub(super) wal: Option<(Wal, Vec<u8>)>,
    /// The lock against other services.
    pub(super) access: Access,
    /// The time limit for that lock.
    pub(super) patience: Patience,
    /// The file that was last seen; it keeps its number until this is dropped.
    pub(super) held: PinnedFile,
    /// Where the file is that was made for the image of a `Writer` database, if there is one.
    pub(super) preallocation: PreallocationSlot,
}

/// The result of a [`Commit`].
#[derive(Debug)]
pub(super) struct Committed {
    pub(super) id: DatabaseId,
    pub(super) outcome: Outcome,
    pub(super) seen: FileIdentity,
    pub(super) generation: u64,
    /// The image that was written.
    pub(super) image: PatchableImage,
    pub(super) wal: Option<Wal>,
    /// The lock is held if another program's changes have to be merged first.
    pub(super) access: Access,
    /// The file that is in place now.
    pub(super) held: PinnedFile,
    /// The file that was replaced; freeing it can wait until the callers are answered.
    pub(super) replaced: PinnedFile,
}

/// What is in place after a failure, as a person reads it.
const HIDDEN: &str =
    "the change is stored, but programs see it only after the next successful write";

impl Commit {
    /// Executes the work.
    pub(super) fn run(mut self, disk: &dyn Disk, reports: &mut Vec<EngineNotice>) -> Committed {
        let mut replaced = PinnedFile::default();
        let entered = self.access.enter(disk, &self.id, &self.files, self.patience, reports);
        let outcome = match entered {
            Ok(Entered::Busy) => Outcome::Busy,
            Err(error) => Outcome::NotReplaced(error),
            Ok(Entered::Yes) => match self.id.kind() {
                DatabaseKind::User => self.user(disk, &mut replaced, reports),
                DatabaseKind::Shm => self.shm(disk, &mut replaced, reports),
                DatabaseKind::Keyfile => self.text_and_image(disk, reports),
                DatabaseKind::Journal => self.journal(disk, reports),
            },
        };
        if !matches!(outcome, Outcome::Outside(_)) {
            self.access.leave();
        }
        Committed {
            outcome,
            seen: self.seen,
            generation: self.generation,
            image: self.image,
            wal: self.wal.map(|(wal, _record)| wal),
            access: self.access,
            held: self.held,
            replaced,
            id: self.id,
        }
    }

    fn user(
        &mut self,
        disk: &dyn Disk,
        replaced: &mut PinnedFile,
        reports: &mut Vec<EngineNotice>,
    ) -> Outcome {
        if !self.force {
            match outside(disk, &self.id, &self.files, self.seen, Settled::Now, reports) {
                Err(error) => return Outcome::NotReplaced(error),
                Ok(Outside::Same | Outside::Unsettled | Outside::Damaged) => {}
                Ok(Outside::Changed(found)) => return self.found(found),
            }
        }
        let path = &self.files.image;
        let preallocated = self.preallocation.take();
        let outcome = match publish_into(disk, path, &self.image, preallocated) {
            Ok(stat) => {
                self.seen = FileIdentity::File(stat);
                *replaced = std::mem::replace(&mut self.held, disk.hold(path));
                Outcome::Published
            }
            Err(error) => {
                let change_error = failure(path, &error);
                match error {
                    PublishError::NotDurable { .. } => {
                        self.seen = FileIdentity::Unknown;
                        Outcome::NotDurable(change_error)
                    }
                    PublishError::NotReplaced { .. } => return Outcome::NotReplaced(change_error),
                    _ => {
                        self.seen = FileIdentity::Unknown;
                        return Outcome::NotReplaced(change_error);
                    }
                }
            }
        };
        raise(&self.files.flag, reports);
        outcome
    }

    /// Reads the file that another program wrote.
    fn found(&mut self, mut found: ReplacedDatabase) -> Outcome {
        self.seen = found.seen;
        self.held = std::mem::take(&mut found.held);
        Outcome::Outside(found)
    }

    fn shm(
        &mut self,
        disk: &dyn Disk,
        replaced: &mut PinnedFile,
        reports: &mut Vec<EngineNotice>,
    ) -> Outcome {
        match outside_volatile(disk, &self.files, self.seen) {
            Err(error) => return Outcome::NotReplaced(error),
            Ok(Some(found)) => return self.found(found),
            Ok(None) => {}
        }
        let outcome = self.live_image(disk, reports, NotSeen::Unchanged);
        if matches!(outcome, Outcome::Published) {
            *replaced = std::mem::replace(&mut self.held, disk.hold(&self.files.image));
            self.seen =
                file_identity::look(disk, &self.files.image).unwrap_or(FileIdentity::Unknown);
        }
        outcome
    }

    /// Replaces the image in the runtime directory and zeroes the header of the old one.
    fn live_image(
        &mut self,
        disk: &dyn Disk,
        reports: &mut Vec<EngineNotice>,
        otherwise: NotSeen,
    ) -> Outcome {
        let path = &self.files.image;
        let retired = Retired::open(disk, path).unwrap_or_else(|error| {
            reports.push(aside("cannot open the old image", path, &error));
            None
        });
        if let Err(error) = publish_volatile(disk, path, &self.image) {
            return match otherwise {
                NotSeen::Unchanged => Outcome::NotReplaced(failure(path, &error)),
                NotSeen::Hidden => Outcome::Hidden(ChangeError::new(
                    &format!("cannot replace {}", path.display()),
                    error.cause(),
                    HIDDEN,
                )),
            };
        }
        if let Some(Err(error)) = retired.map(Retired::retire) {
            reports.push(aside("cannot tell the readers of the old image", path, &error));
        }
        Outcome::Published
    }

    fn text_and_image(&mut self, disk: &dyn Disk, reports: &mut Vec<EngineNotice>) -> Outcome {
        let (mut file, now) = match read_text(disk, &self.files) {
            Ok(found) => found,
            Err(error) => return Outcome::NotReplaced(error),
        };
        if now != self.seen || now == FileIdentity::Unknown {
            let (table, skipped) = text::read(&file);
            if skipped > 0 {
                reports.push(EngineNotice::TextSkipped { id: self.id.clone(), keys: skipped });
            }
            return self.found(ReplacedDatabase {
                table,
                generation: 0,
                seen: now,
                held: PinnedFile::default(),
            });
        }
        let mut not_durable = None;
        let before = file.to_bytes();
        for (path, value) in &self.edits {
            if let Err(error) = text::edit(&mut file, path, value.as_ref()) {
                let text = format!("cannot store {path} in a key file: {error}; {UNCHANGED}");
                return Outcome::NotReplaced(ChangeError { kind: ErrorKind::Invalid, text });
            }
        }
        let after = file.to_bytes();
        if after != before {
            match publish(disk, &self.files.text, &after) {
                Ok(stat) => self.seen = FileIdentity::File(stat),
                Err(error) => {
                    let change_error = failure(&self.files.text, &error);
                    match error {
                        PublishError::NotDurable { .. } => {
                            self.seen = FileIdentity::Unknown;
                            not_durable = Some(change_error);
                        }
                        PublishError::NotReplaced { .. } => {
                            return Outcome::NotReplaced(change_error);
                        }
                        _ => {
                            self.seen = FileIdentity::Unknown;
                            return Outcome::NotReplaced(change_error);
                        }
                    }
                }
            }
        }
        match (self.live_image(disk, reports, NotSeen::Hidden), not_durable) {
            (Outcome::Published, Some(error)) => Outcome::NotDurable(error),
            (outcome, _) => outcome,
        }
    }

    fn journal(&mut self, disk: &dyn Disk, reports: &mut Vec<EngineNotice>) -> Outcome {
        let Some((wal, record)) = &mut self.wal else {
            let text = format!("the journal of {} is not open; {UNCHANGED}", self.id);
            return Outcome::NotReplaced(ChangeError { kind: ErrorKind::Failed, text });
        };
        match wal.is_current(disk, &self.files) {
            Err(error) => {
                let what = format!("cannot read {}", self.files.log.display());
                return Outcome::NotReplaced(ChangeError::new(&what, &error, UNCHANGED));
            }
            Ok(false) => {
                return match read_journal(disk, &self.id, &self.files, reports) {
                    Ok(read) => {
                        *wal = read.wal;
                        let (table, generation) = (read.table, read.generation);
                        let (seen, held) = (FileIdentity::Unknown, PinnedFile::default());
                        Outcome::Outside(ReplacedDatabase { table, generation, seen, held })
                    }
                    Err(error) => Outcome::NotReplaced(error),
                };
            }
            Ok(true) => {}
        }
        match wal.store(disk, &self.files, self.generation, record, &self.image) {
            Ok(()) => self.live_image(disk, reports, NotSeen::Hidden),
            Err(error) => Outcome::NotReplaced(error),
        }
    }
}

/// The consequence when the live image cannot be replaced.
#[derive(Clone, Copy, Debug)]
enum NotSeen {
    /// The change did not happen.
    Unchanged,
    /// The change is stored elsewhere.
    Hidden,
}
