//! What another program did to the files of a database.

use std::io;

use store::disk::{Disk, Held};
use store::publish::copy_aside;

use super::answer::{ChangeError, Report};
use super::files::Files;
use super::load::{decode, read_text};
use super::look::{self, Seen};
use super::names::{DatabaseId, Kind};
use super::text;
use super::write::{UNCHANGED, raise};
use crate::settings::database::Table;

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
    Changed(Found),
}

/// The settings that another program put in place.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) table: Table,
    /// What their file says its generation is; 0 if it says nothing.
    pub(super) generation: u64,
    pub(super) seen: Seen,
    /// Keeps the number of the file that was seen from being given to another one.
    pub(super) held: Held,
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
        let (file, seen) = read_text(disk, files)?;
        let (table, skipped) = text::read(&file);
        if skipped > 0 {
            reports.push(Report::TextSkipped { id: id.clone(), keys: skipped });
        }
        let held = Held::default();
        return Ok(Outside::Changed(Found { table, generation: 0, seen, held }));
    }
    let look::Contents { bytes, seen, held } = look::read(disk, path).map_err(cannot_look)?;
    match bytes.map(|bytes| decode(&bytes)) {
        Some(Err(_broken)) if settled == Settled::NotYet => Ok(Outside::Unsettled),
        Some(Err(_broken)) => {
            let kept = copy_aside(disk, path).map_err(cannot_look)?;
            reports.push(Report::OutsideDamaged { id: id.clone(), kept: Some(kept) });
            Ok(Outside::Damaged)
        }
        other => {
            raise(&files.flag, reports);
            let (table, generation) = other.and_then(Result::ok).unwrap_or_default();
            Ok(Outside::Changed(Found { table, generation, seen, held }))
        }
    }
}

/// Looks what another service of this user did to the image of a `shm` database. What is no database is not looked at
/// twice: it is volatile, and ours is put in its place.
pub(super) fn outside_volatile(
    disk: &dyn Disk,
    files: &Files,
    seen: Seen,
) -> Result<Option<Found>, ChangeError> {
    let path = &files.image;
    let cannot_look = |error: io::Error| {
        ChangeError::new(&format!("cannot read {}", path.display()), &error, UNCHANGED)
    };
    let now = look::look(disk, path).map_err(cannot_look)?;
    if now == seen || now == Seen::Missing {
        return Ok(None);
    }
    let look::Contents { bytes, seen, held } = look::read(disk, path).map_err(cannot_look)?;
    let decoded = bytes.and_then(|bytes| decode(&bytes).ok());
    Ok(decoded.map(|(table, generation)| Found { table, generation, seen, held }))
}
