//! Writing a batch: one new image per database, in place before anybody is answered.

use std::io;
use std::path::Path;

use store::disk::{Disk, FileLock, Held};
use store::generation::{self, Retired};
use store::publish::{PublishError, copy_aside, publish, publish_volatile};
use store::table::gvariant::Variant;

use super::answer::{ChangeError, ErrorKind, Report};
use super::files::Files;
use super::live::Outcome;
use super::load::{decode, read_text};
use super::look::{self, Seen};
use super::names::{DatabaseId, Kind};
use super::text;
use super::wal::Wal;
use crate::settings::database::Table;

/// One batch of one database.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) id: DatabaseId,
    pub(super) files: Files,
    /// The whole new image.
    pub(super) image: Vec<u8>,
    /// Its generation.
    pub(super) generation: u64,
    /// The file as we last read or wrote it.
    pub(super) seen: Seen,
    /// What another program does to the file is overwritten: it was merged often enough, and was always faster.
    pub(super) force: bool,
    /// `keyfile`: what to change in the text, in this order.
    pub(super) edits: Vec<(Box<str>, Option<Variant>)>,
    /// `journal`: the record, and the journal it goes to.
    pub(super) wal: Option<(Wal, Vec<u8>)>,
    /// The file that was replaced.
    pub(super) replaced: Held,
}

/// What came of a [`Commit`].
#[derive(Debug)]
pub(super) struct Committed {
    pub(super) id: DatabaseId,
    pub(super) outcome: Outcome,
    pub(super) seen: Seen,
    pub(super) generation: u64,
    /// The image that was written.
    pub(super) image: Vec<u8>,
    pub(super) wal: Option<Wal>,
    /// The file that was replaced; freeing it can wait until the callers are answered.
    pub(super) replaced: Held,
}

/// What is in place after something failed, as a person reads it.
const UNCHANGED: &str = "nothing was changed";
const MAYBE: &str =
    "it cannot be said whether it was replaced; it is read again before the next change";
const NOT_DURABLE: &str = "the change is in place but may not survive a power cut";
const HIDDEN: &str =
    "the change is stored, but programs see it only after the next successful write";

impl Commit {
    /// Does the work.
    pub(super) fn run(mut self, disk: &dyn Disk, reports: &mut Vec<Report>) -> Committed {
        let wal = self.wal.take();
        let (outcome, wal) = match self.id.kind() {
            Kind::User => (self.user(disk, reports), None),
            Kind::Shm => (self.live_image(disk, reports, NotSeen::Unchanged), None),
            Kind::Keyfile => (self.keyfile(disk, reports), None),
            Kind::Journal => self.journal(disk, wal, reports),
        };
        Committed {
            outcome,
            seen: self.seen,
            generation: self.generation,
            image: self.image,
            wal,
            replaced: self.replaced,
            id: self.id,
        }
    }

    fn user(&mut self, disk: &dyn Disk, reports: &mut Vec<Report>) -> Outcome {
        if !self.force {
            match outside(disk, &self.id, &self.files, self.seen, Settled::Now, reports) {
                Err(error) => return Outcome::NotReplaced(error),
                Ok(Outside::Same | Outside::Unsettled | Outside::Damaged) => {}
                Ok(Outside::Changed(table, seen)) => {
                    self.seen = seen;
                    return Outcome::Outside(table);
                }
            }
        }
        let path = &self.files.image;
        self.replaced = disk.hold(path);
        let outcome = match publish(disk, path, &self.image) {
            Ok(stat) => {
                self.seen = Seen::File(stat);
                Outcome::Published
            }
            Err(error) => {
                let change_error = failure(path, &error);
                match error {
                    PublishError::NotDurable { .. } => {
                        self.seen = Seen::Unknown;
                        Outcome::NotDurable(change_error)
                    }
                    PublishError::NotReplaced { .. } => return Outcome::NotReplaced(change_error),
                    _ => {
                        self.seen = Seen::Unknown;
                        return Outcome::NotReplaced(change_error);
                    }
                }
            }
        };
        raise(&self.files.flag, reports);
        outcome
    }

    /// Replaces the image in the runtime directory and zeroes the header of the old one.
    fn live_image(
        &mut self,
        disk: &dyn Disk,
        reports: &mut Vec<Report>,
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

    fn keyfile(&mut self, disk: &dyn Disk, reports: &mut Vec<Report>) -> Outcome {
        let lock = match lock(disk, &self.files.lock) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Outcome::Busy,
            Err(error) => {
                let what = format!("cannot lock {}", self.files.lock.display());
                return Outcome::NotReplaced(ChangeError::new(&what, &error, UNCHANGED));
            }
        };
        let outcome = self.text_and_image(disk, reports);
        drop(lock);
        outcome
    }

    fn text_and_image(&mut self, disk: &dyn Disk, reports: &mut Vec<Report>) -> Outcome {
        let (mut file, now) = match read_text(disk, &self.files) {
            Ok(found) => found,
            Err(error) => return Outcome::NotReplaced(error),
        };
        if now != self.seen || now == Seen::Unknown {
            let (table, skipped) = text::read(&file);
            if skipped > 0 {
                reports.push(Report::TextSkipped { id: self.id.clone(), keys: skipped });
            }
            self.seen = now;
            return Outcome::Outside(table);
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
                Ok(stat) => self.seen = Seen::File(stat),
                Err(error) => {
                    let change_error = failure(&self.files.text, &error);
                    match error {
                        PublishError::NotDurable { .. } => {
                            self.seen = Seen::Unknown;
                            not_durable = Some(change_error);
                        }
                        PublishError::NotReplaced { .. } => {
                            return Outcome::NotReplaced(change_error);
                        }
                        _ => {
                            self.seen = Seen::Unknown;
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

    fn journal(
        &mut self,
        disk: &dyn Disk,
        wal: Option<(Wal, Vec<u8>)>,
        reports: &mut Vec<Report>,
    ) -> (Outcome, Option<Wal>) {
        let Some((mut wal, record)) = wal else {
            let text = format!("the journal of {} is not open; {UNCHANGED}", self.id);
            return (Outcome::NotReplaced(ChangeError { kind: ErrorKind::Failed, text }), None);
        };
        match wal.store(disk, &self.files, self.generation, &record, &self.image) {
            Ok(()) => (self.live_image(disk, reports, NotSeen::Hidden), Some(wal)),
            Err(error) => (Outcome::NotReplaced(error), Some(wal)),
        }
    }
}

/// What it means that the live image could not be replaced.
#[derive(Clone, Copy, Debug)]
enum NotSeen {
    /// The change did not happen.
    Unchanged,
    /// The change is stored elsewhere.
    Hidden,
}

/// Raises the flag of a `Writer` database.
pub(super) fn raise(flag: &Path, reports: &mut Vec<Report>) {
    if let Err(error) = generation::raise(flag) {
        reports.push(aside("cannot tell readers that the database changed", flag, &error));
    }
}

fn aside(what: &str, path: &Path, error: &io::Error) -> Report {
    Report::Aside { text: format!("{what} ({}): {error}", path.display()) }
}

/// Says what a failed publish leaves.
pub(super) fn failure(path: &Path, error: &PublishError) -> ChangeError {
    let (what, now) = match error {
        PublishError::NotReplaced { step, .. } => {
            (format!("cannot {step} {}", path.display()), UNCHANGED)
        }
        PublishError::NotDurable { .. } => {
            (format!("cannot sync the directory of {}", path.display()), NOT_DURABLE)
        }
        _ => (format!("cannot replace {}", path.display()), MAYBE),
    };
    let mut change_error = ChangeError::new(&what, error.cause(), now);
    if matches!(error, PublishError::NotDurable { .. }) {
        change_error.kind = ErrorKind::NotDurable;
    }
    change_error
}

/// Takes the lock of a text file without waiting; `None` if another host holds it.
fn lock(disk: &dyn Disk, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
    match disk.try_lock(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_dir(disk, path.parent().ok_or(error)?)?;
            disk.try_lock(path)
        }
        other => other,
    }
}

/// Makes a directory and those above it. The text that is published into it makes them durable.
fn make_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    match (disk.create_dir(dir, 0o700), dir.parent()) {
        (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => {
            make_dir(disk, above)?;
            disk.create_dir(dir, 0o700)
        }
        (Err(error), _) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        (made, _) => made,
    }
}

/// Whether a file that looks unfinished may still be being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It looked the same some time ago: this is all there will be.
    Now,
    /// It was just seen for the first time.
    NotYet,
}

/// What another program did to a file.
#[derive(Debug)]
pub(super) enum Outside {
    /// Nothing.
    Same,
    /// It removed it or left it unfinished; this may not be the end.
    Unsettled,
    /// It left something that is no intact database; a copy was kept, ours is to be put back.
    Damaged,
    /// It put other settings in place; no file at all means no settings.
    Changed(Table, Seen),
}

/// Looks what another program did to the file of a `Writer` database or to the text of a `keyfile` database.
pub(super) fn outside(
    disk: &dyn Disk,
    id: &DatabaseId,
    files: &Files,
    seen: Seen,
    settled: Settled,
    reports: &mut Vec<Report>,
) -> Result<Outside, ChangeError> {
    let path = if id.kind() == Kind::Keyfile { &files.text } else { &files.image };
    let cannot_look = |error: io::Error| {
        ChangeError::new(&format!("cannot read {}", path.display()), &error, UNCHANGED)
    };
    let now = look::look(disk, path).map_err(cannot_look)?;
    if now == seen {
        return Ok(Outside::Same);
    }
    if now == Seen::Missing && settled == Settled::NotYet {
        return Ok(Outside::Unsettled);
    }
    if id.kind() == Kind::Keyfile {
        let (file, now) = read_text(disk, files)?;
        let (table, skipped) = text::read(&file);
        if skipped > 0 {
            reports.push(Report::TextSkipped { id: id.clone(), keys: skipped });
        }
        return Ok(Outside::Changed(table, now));
    }
    let (bytes, now) = look::read(disk, path).map_err(cannot_look)?;
    match bytes.map(|bytes| decode(&bytes)) {
        Some(Err(_broken)) if settled == Settled::NotYet => Ok(Outside::Unsettled),
        Some(Err(_broken)) => {
            let kept = copy_aside(disk, path).map_err(cannot_look)?;
            reports.push(Report::OutsideDamaged { id: id.clone(), kept: Some(kept) });
            Ok(Outside::Damaged)
        }
        other => {
            raise(&files.flag, reports);
            let (table, _generation) = other.and_then(Result::ok).unwrap_or_default();
            Ok(Outside::Changed(table, now))
        }
    }
}
