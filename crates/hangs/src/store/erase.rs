//! Erases records: files are written anew without them, and the old bytes are overwritten before they are free.

use std::io;
use std::path::{Path, PathBuf};

use store::disk::Disk;
use store::journal::{Journal, JournalError};
use store::publish::{PublishError, is_link, publish, wipe};

use super::forgotten;
use super::selection::EraseSelection;
use super::{
    ENDING, ERASED, ERASED_BEFORE, HangStoreError, io_cause, lock_writer, open_segment,
    running_recorder, segments,
};
use crate::codec;
use crate::model::HangRecord;

/// What was erased.
#[derive(Debug, Default)]
pub struct EraseOutcome {
    /// Hangs.
    pub hangs: u64,
    /// Hangs of others that named the program that was meant, and do not any more.
    pub mentions: u64,
    /// Periods, or parts of them.
    pub periods: u64,
    /// Files that cannot be read, and were removed as a whole because everything was meant.
    pub unreadable_files: u64,
    /// Files that cannot be read and stay, because not everything was meant.
    pub kept_files: u64,
    /// Records that cannot be read and stay, because not everything was meant.
    pub kept_records: u64,
    /// Why a file still has what was to be erased, for each such file.
    pub not_erased: Vec<HangStoreError>,
}

/// Erases records from the store in `dir`, and has a recorder that runs leave out what it has of them in its memory; it goes on.
/// `now_ns` is in nanoseconds since 1970. A file that cannot be erased keeps no other from it.
///
/// # Errors
///
/// [`HangStoreError`]: nothing was erased, or it is not durable.
pub fn erase(
    disk: &dyn Disk,
    dir: &Path,
    selection: &EraseSelection,
    now_ns: u64,
) -> Result<EraseOutcome, HangStoreError> {
    let mut outcome = EraseOutcome::default();
    let _turn = match lock_writer(disk, dir) {
        // There is no store.
        Err(HangStoreError::Unusable { source, .. })
            if source.kind() == io::ErrorKind::NotFound =>
        {
            return Ok(outcome);
        }
        turn => turn?,
    };
    outcome.not_erased = finish(disk, dir)?;
    if running_recorder(disk, dir).is_some() {
        // It has in its memory what it stores later.
        let noted = forgotten::note(disk, dir, selection, now_ns);
        outcome.not_erased.extend(noted.map_err(|source| not_erased(dir, source)).err());
    } else {
        // An order for one that has ended since.
        forgotten::clear(disk, dir).map_err(|source| not_erased(dir, source))?;
    }
    for (_, path) in segments(disk, dir).map_err(HangStoreError::unusable(dir))? {
        let done = erase_from(disk, &path, selection, &mut outcome);
        outcome.not_erased.extend(done.err());
    }
    disk.sync_dir(dir).map_err(|source| not_erased(dir, source))?;
    Ok(outcome)
}

/// Notes in the store in `dir` that everything before a moment, in nanoseconds since 1970, was erased: later nobody says of that
/// time that no recorder ran.
///
/// # Errors
///
/// As `open(2)`, `write(2)` and `rename(2)`; what was erased is erased all the same.
pub fn note_erased(disk: &dyn Disk, dir: &Path, before_ns: u64) -> io::Result<()> {
    let path = dir.join(ERASED_BEFORE);
    match is_link(disk, &path) {
        // Not made by us: what it points to stays.
        Ok(true) => disk.remove(&path)?,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let text = format!("{before_ns}\n");
    publish(disk, &path, text.as_bytes())
        .map(drop)
        .map_err(|error| io::Error::other(error.to_string()))
}

fn not_erased(path: &Path, source: io::Error) -> HangStoreError {
    HangStoreError::NotErased { path: path.to_owned(), source }
}

fn erase_from(
    disk: &dyn Disk,
    path: &Path,
    selection: &EraseSelection,
    outcome: &mut EraseOutcome,
) -> Result<(), HangStoreError> {
    let (mut journal, replay) = match open_segment(disk, path) {
        Ok(opened) => opened,
        Err(JournalError::NotOpened { path, source }) => return Err(not_erased(&path, source)),
        Err(_) if selection.is_everything() => {
            outcome.unreadable_files += 1;
            return wipe(disk, path).map_err(|source| not_erased(path, source));
        }
        Err(_) => {
            outcome.kept_files += 1;
            return Ok(());
        }
    };
    let base = super::next_number(&replay);
    let is_damaged = replay.damage.is_some();
    let mut kept = Vec::new();
    let (mut hangs, mut mentions, mut periods) = (0, 0, 0);
    let mut is_changed = false;
    for bytes in replay.into_all_records() {
        match codec::decode(&bytes) {
            Ok(record) => {
                let is_hang = matches!(record, HangRecord::Hang(_));
                let (rest, is_less) = selection.rest(record);
                is_changed |= is_less;
                hangs += u64::from(is_hang && rest.is_none());
                mentions += u64::from(is_less && is_hang && rest.is_some());
                periods += u64::from(is_less && !is_hang);
                match rest {
                    Some(rest) if is_less => kept.push(codec::encode(&rest)),
                    Some(_) => kept.push(bytes),
                    None => {}
                }
            }
            // Nobody knows what it is about.
            Err(_) if selection.is_everything() => is_changed = true,
            Err(_) => {
                outcome.kept_records += 1;
                kept.push(bytes);
            }
        }
    }
    // What was appended before the file was reset, and bytes that no record claims, go with everything.
    if !(is_changed || is_damaged || selection.is_everything()) {
        return Ok(());
    }
    let erased = erased_path(path);
    let is_linked = match disk.link(path, &erased) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::Unsupported => false,
        Err(source) => return Err(not_erased(path, source)),
    };
    let records: Vec<&[u8]> = kept.iter().map(Vec::as_slice).collect();
    match journal.restart(disk, base, &records) {
        Ok(()) if is_linked => wipe_old(disk, path, &erased)?,
        Ok(()) => {}
        Err(error) => {
            let source = io_cause(&error);
            // Otherwise the new file may be in place, and the next process goes on from there.
            let is_old_in_place = matches!(
                &error,
                JournalError::NotRestarted { source: PublishError::NotReplaced { .. }, .. }
            );
            if is_old_in_place && is_linked {
                disk.remove(&erased).map_err(|source| not_erased(&erased, source))?;
            }
            if !(is_old_in_place && is_full(&source) && records.is_empty()) {
                return Err(not_erased(path, source));
            }
            make_room(disk, path, base).map_err(|source| not_erased(path, source))?;
        }
    }
    outcome.hangs += hangs;
    outcome.mentions += mentions;
    outcome.periods += periods;
    Ok(())
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Erases a file of which nothing is kept on a disk that has no room for a new file beside it. If the process ends in between, or there is
/// no room for an empty file either, numbers of erased hangs may be given again.
fn make_room(disk: &dyn Disk, path: &Path, base: u64) -> io::Result<()> {
    wipe(disk, path)?;
    // What was meant is erased. A recorder makes the file that is missing.
    let _ = Journal::open(disk, path).and_then(|(mut journal, _)| journal.reset(base));
    Ok(())
}

fn erased_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ERASED);
    PathBuf::from(name)
}

/// Finishes what an earlier process began: old files that still have what was erased.
/// Returns what was not done.
pub(super) fn finish(disk: &dyn Disk, dir: &Path) -> Result<Vec<HangStoreError>, HangStoreError> {
    let mut failed = Vec::new();
    let names = disk.list(dir).map_err(HangStoreError::unusable(dir))?;
    for name in names {
        let Some(name) = name.to_str() else { continue };
        if let Some(segment) = name.strip_suffix(ERASED)
            && segment.ends_with(ENDING)
        {
            // Before the old bytes go, the new name must be there to stay.
            let done = disk.sync_dir(dir).map_err(|source| not_erased(&dir.join(name), source));
            let done = done.and_then(|()| wipe_old(disk, &dir.join(segment), &dir.join(name)));
            failed.extend(done.err());
        }
    }
    Ok(failed)
}

/// Overwrites and removes the old file, unless it is still the one in place.
fn wipe_old(disk: &dyn Disk, path: &Path, erased: &Path) -> Result<(), HangStoreError> {
    if is_link(disk, erased).map_err(|source| not_erased(erased, source))? {
        // Not made by us: what it points to stays.
        return disk.remove(erased).map_err(|source| not_erased(erased, source));
    }
    let identity = |path: &Path| match disk.stat(path) {
        Ok(stat) => Ok(Some(stat.identity)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(not_erased(path, source)),
    };
    let (in_place, old) = (identity(path)?, identity(erased)?);
    let done = match old {
        None => Ok(()),
        // The process ended before the new file was in place: this is a second name of the records.
        Some(_) if in_place == old => disk.remove(erased),
        Some(_) => wipe(disk, erased),
    };
    done.map_err(|source| not_erased(erased, source))
}
