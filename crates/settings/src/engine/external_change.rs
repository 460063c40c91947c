//! Changes of other programs to the files of a database.

use std::io;

use store::disk::{Disk, PinnedFile};
use store::publish::copy_aside;

use super::answer::{ChangeError, EngineNotice};
use super::failure::{UNCHANGED, raise};
use super::file_identity::{self, FileIdentity};
use super::files::Files;
use super::load::{decode, read_text};
use super::text;
use crate::database::KeyTable;
use crate::names::{DatabaseId, DatabaseKind};

/// Whether an incomplete file may still be being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It was the same some time ago, so it is taken as it is.
    Now,
    /// It was seen for the first time.
    NotYet,
}

/// The change of another program to a file.
#[derive(Debug)]
pub(super) enum Outside {
    /// No change.
    Same,
    /// The file was removed or is incomplete; the program may not have finished.
    Unsettled,
    /// The file is no intact database; a copy was kept, and the service's version is to be restored.
    Damaged,
    /// The file has other settings; a missing file means no settings.
    Changed(ReplacedDatabase),
}

/// The settings that another program wrote.
#[derive(Debug)]
pub(super) struct ReplacedDatabase {
    pub(super) table: KeyTable,
    /// The generation in their file; 0 without one.
    pub(super) generation: u64,
    pub(super) seen: FileIdentity,
    /// The open file, which keeps its inode number from being reused.
    pub(super) held: PinnedFile,
}

/// Checks the file of a `Writer` database or the text of a `keyfile` database for changes of another program.
pub(super) fn outside(
    disk: &dyn Disk,
    id: &DatabaseId,
    files: &Files,
    seen: FileIdentity,
    settled: Settled,
    reports: &mut Vec<EngineNotice>,
) -> Result<Outside, ChangeError> {
    let path = if id.kind() == DatabaseKind::Keyfile { &files.text } else { &files.image };
    let cannot_look = |error: io::Error| {
        ChangeError::new(&format!("cannot read {}", path.display()), &error, UNCHANGED)
    };
    let now = file_identity::look(disk, path).map_err(cannot_look)?;
    if now == seen {
        return Ok(Outside::Same);
    }
    if now == FileIdentity::Missing && settled == Settled::NotYet {
        return Ok(Outside::Unsettled);
    }
    if id.kind() == DatabaseKind::Keyfile {
        let (file, seen) = read_text(disk, files)?;
        let (table, skipped) = text::read(&file);
        if skipped > 0 {
            reports.push(EngineNotice::TextSkipped { id: id.clone(), keys: skipped });
        }
        let held = PinnedFile::default();
        return Ok(Outside::Changed(ReplacedDatabase { table, generation: 0, seen, held }));
    }
    let file_identity::Contents { bytes, seen, held } =
        file_identity::read(disk, path).map_err(cannot_look)?;
    match bytes.map(|bytes| decode(&bytes)) {
        Some(Err(_broken)) if settled == Settled::NotYet => Ok(Outside::Unsettled),
        Some(Err(_broken)) => {
            let kept = copy_aside(disk, path).map_err(cannot_look)?;
            reports.push(EngineNotice::OutsideDamaged { id: id.clone(), kept: Some(kept) });
            Ok(Outside::Damaged)
        }
        other => {
            raise(&files.flag, reports);
            let (table, generation) = other.and_then(Result::ok).unwrap_or_default();
            Ok(Outside::Changed(ReplacedDatabase { table, generation, seen, held }))
        }
    }
}

/// Checks the image of a `shm` database for changes of another service of this user. An invalid image is not checked
/// twice: it is volatile, and the service's version replaces it.
pub(super) fn outside_volatile(
    disk: &dyn Disk,
    files: &Files,
    seen: FileIdentity,
) -> Result<Option<ReplacedDatabase>, ChangeError> {
    let path = &files.image;
    let cannot_look = |error: io::Error| {
        ChangeError::new(&format!("cannot read {}", path.display()), &error, UNCHANGED)
    };
    let now = file_identity::look(disk, path).map_err(cannot_look)?;
    if now == seen || now == FileIdentity::Missing {
        return Ok(None);
    }
    let file_identity::Contents { bytes, seen, held } =
        file_identity::read(disk, path).map_err(cannot_look)?;
    let decoded = bytes.and_then(|bytes| decode(&bytes).ok());
    Ok(decoded.map(|(table, generation)| ReplacedDatabase { table, generation, seen, held }))
}
