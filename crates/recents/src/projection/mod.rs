//! Writes the list into the files that GTK and KDE programs read, and merges the changes of those programs.

mod base;
mod lock;
mod merge;
mod plan;
mod receipts;
#[cfg(test)]
mod session;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use store::disk::Disk;
use store::publish::{InPlace, PublishError, publish_private, remove_stale};

use self::base::{Base, Version};
use self::lock::Lock;
use self::merge::{Merge, Presence, Reading, merge};
use self::plan::{NextStep, NextVersion, Plans, SharedFile, theirs};
use super::links::{self, LinksError, LinksOutcome};
use super::places::{LAST_VERSION, last_version_paths};
use super::policy::{DenialReason, RetentionRule, RetentionVerdict};
use super::xbel::{Condition, MAX_BYTES, XbelDocument};
use super::{JournalRecord, RecentList, RecentTime, Recents, RecentsError, RecentsFiles, Uri};

pub use self::lock::LockError;
use sys::clock::Clock;

/// The time limit for another program's lock.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often other programs may write the file during a merge before the merge fails.
const ATTEMPTS: usize = 20;

/// Why the files do not contain the list.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// Another program holds the lock; nothing is changed. Try again later.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The shared file cannot be read; nothing is changed.
    #[error("cannot read {path:?}")]
    Unread {
        /// The file.
        path: PathBuf,
        /// The error of the disk.
        source: io::Error,
    },
    /// The journal cannot be read, or the changes of other programs cannot be appended to it; the files are as they were.
    #[error(transparent)]
    Journal(#[from] RecentsError),
    /// A file could not be written; the changes of other programs are in the journal.
    #[error(transparent)]
    NotWritten(#[from] PublishError),
    /// The links could not be written; the shared file contains the list.
    #[error(transparent)]
    Links(#[from] LinksError),
}

impl ProjectionError {
    /// Returns whether other programs were at the shared file all the time: a moment later it can succeed.
    #[must_use]
    pub fn is_contention(&self) -> bool {
        matches!(
            self,
            ProjectionError::Lock(LockError::Held { .. })
                | ProjectionError::NotWritten(PublishError::Overtaken { .. })
        )
    }
}

/// The outcome of a projection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projected {
    /// The outcome for the shared file.
    pub xbel: XbelOutcome,
    /// The outcome of updating the links.
    pub links: LinksOutcome,
    /// How many entries of other programs are new or changed.
    pub taken_in: usize,
    /// How many entries were deleted by other programs' users.
    pub deleted: usize,
    /// How many entries were lost by other programs and are restored.
    pub restored: usize,
    /// Where the damaged file is kept, if it was damaged.
    pub kept_aside: Option<PathBuf>,
    /// How many bytes were written, links apart.
    pub written_bytes: usize,
}

/// The outcome for the shared file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XbelOutcome {
    /// It contained the list already.
    #[default]
    Unchanged,
    /// It was written.
    Written,
    /// Something other than a regular file is in its place, because the user wants no list there. It is not changed.
    Blocked,
}

/// Returns the path of the base; it names no document.
#[must_use]
fn base_path(places: &RecentsFiles) -> PathBuf {
    places.state.join("projection")
}

/// Returns a hard link to the last known version of the shared file. It tells whether another program has read that version,
/// also when a further program has replaced it meanwhile. It contains documents, and is removed when one is forgotten.
#[must_use]
pub(crate) fn last_version_path(disk: &dyn Disk, places: &RecentsFiles) -> PathBuf {
    match (disk.read_link(&places.xbel), &places.runtime) {
        // A hard link needs the same file system.
        (Ok(target), Some(dir)) if target.starts_with(dir) => dir.join(LAST_VERSION),
        _ => places.state.join(LAST_VERSION),
    }
}

/// Returns the path at which the last damaged shared file is kept.
#[must_use]
pub fn damaged_path(places: &RecentsFiles) -> PathBuf {
    let mut name = places.xbel.as_os_str().to_owned();
    name.push(".damaged");
    PathBuf::from(name)
}

/// Merges the changes of other programs, and writes the files.
///
/// It holds the lock of KDE's programs while it writes. A program that writes before that, or without the lock, is
/// noticed until the rename. Nothing is synced, because the files can be created again.
///
/// # Errors
///
/// Each variant says what was done. After an error of the journal nothing was written.
pub fn project(recents: &mut Recents) -> Result<Projected, ProjectionError> {
    let places = recents.places().clone();
    let mut projected = Projected::default();
    if recents.disk().stat(&places.xbel).is_ok_and(|stat| !stat.is_file()) {
        projected.xbel = XbelOutcome::Blocked;
    } else {
        // This comes before the lock, which creates the directory.
        let dir = places.xbel.parent().unwrap_or(Path::new("/"));
        let had_dir = recents.disk().stat(dir).is_ok();
        let before_ns = recents.stale_before_ns();
        // The temporary files of killed writers contain documents. A file that cannot be removed now is tried again the next time.
        let _ = remove_stale(recents.disk(), &places.xbel, before_ns);
        let mut attempts = 1;
        loop {
            match (Attempt { recents, places: &places, had_dir }).run(&mut projected) {
                Err(ProjectionError::NotWritten(PublishError::Overtaken { .. }))
                    if attempts < ATTEMPTS =>
                {
                    attempts += 1;
                }
                other => break other?,
            }
        }
        keep_last_version(recents.disk(), &places);
    }
    let most = recents.limits().links;
    let list = recents.list()?.clone();
    let refused = links::take_out_refused(recents, &list)?;
    let disk = recents.disk();
    let mut base = read_base(disk, &places);
    projected.links = links::project(&places, &list, disk, base.linked, most)?;
    projected.links.removed += refused;
    let opened = list.iter().flat_map(|entry| &entry.applications).map(|one| one.modified).max();
    if opened.is_some_and(|opened| opened > base.linked) {
        base.linked = opened.unwrap_or_default();
        projected.written_bytes += write_base(disk, &places, &base)?;
    }
    Ok(projected)
}

/// Returns the list together with the changes of other programs to the shared file since the base. Nothing is written.
///
/// # Errors
///
/// [`ProjectionError`]: the journal or the shared file cannot be read.
pub fn preview(recents: &mut Recents) -> Result<RecentList, ProjectionError> {
    let mut list = recents.list()?.clone();
    let places = recents.places().clone();
    let stat = recents.disk().stat(&places.xbel).ok().filter(|stat| stat.is_file());
    let known = identity_of(recents.disk(), &last_version_path(recents.disk(), &places));
    if stat.is_none_or(|stat| Some(stat.identity) == known) {
        return Ok(list);
    }
    let base = read_base(recents.disk(), &places);
    let found = read(recents.disk(), &places, true, recents.now())?;
    let limits = recents.limits();
    let oldest = limits.age.map(|age| recents.now().before(age));
    let floors = list.floors(limits.entries, oldest);
    let Merge { mut records, .. } = merge(&base, &list, &theirs(&found), &floors);
    refuse(recents, &mut records, &base);
    records.into_iter().for_each(|record| list.apply(record));
    list.limit(limits.entries, oldest);
    Ok(list)
}

fn read_base(disk: &dyn Disk, places: &RecentsFiles) -> Base {
    let bytes = disk.read(&base_path(places)).ok();
    bytes.and_then(|bytes| Base::decode(&bytes)).unwrap_or_default()
}

fn write_base(disk: &dyn Disk, places: &RecentsFiles, base: &Base) -> Result<usize, PublishError> {
    let bytes = base.encode();
    publish_private(disk, &base_path(places), &bytes, InPlace::Anything)?;
    Ok(bytes.len())
}

/// Creates the hard link to the present shared file, unless it exists.
///
/// Without hard links it is not known whether a program has read the file, and the merge decides by time.
fn keep_last_version(disk: &dyn Disk, places: &RecentsFiles) {
    let path = last_version_path(disk, places);
    // The list has moved: the old hard link would keep documents that are forgotten.
    for other in last_version_paths(places).filter(|other| *other != path) {
        let _ = disk.remove(&other);
    }
    let (there, wanted) = (identity_of(disk, &path), identity_of(disk, &places.xbel));
    if there == wanted {
        return;
    }
    if there.is_some() {
        let _ = disk.remove(&path);
    }
    if wanted.is_some() {
        let _ = disk.link(&places.xbel, &path);
    }
}

fn identity_of(disk: &dyn Disk, path: &Path) -> Option<(u64, u64)> {
    disk.stat(path).ok().map(|stat| stat.identity)
}

/// Acquires KDE's lock of the shared list. Dropping the result releases it.
pub(super) fn lock_list(places: &RecentsFiles, clock: &dyn Clock) -> Result<impl Drop, LockError> {
    Lock::of(&places.xbel, clock, PATIENCE)
}

/// Removes the lock of the shared list if its owner has ended.
///
/// # Errors
///
/// As `stat(2)` and `unlink(2)`; the next program that writes the list removes it.
pub(super) fn remove_stale_lock(places: &RecentsFiles, clock: &dyn Clock) -> io::Result<()> {
    lock::remove_stale(&places.xbel, clock)
}

/// One attempt to write the shared file; another program may write first.
struct Attempt<'a> {
    recents: &'a mut Recents,
    places: &'a RecentsFiles,
    had_dir: bool,
}

impl Attempt<'_> {
    fn run(self, projected: &mut Projected) -> Result<(), ProjectionError> {
        let Attempt { recents, places, had_dir } = self;
        let base = read_base(recents.disk(), places);
        let found = read(recents.disk(), places, had_dir, recents.now())?;
        if !recents.list()?.is_empty() || !found.document.bookmarks().is_empty() {
            recents.make_salt()?;
        }
        let limits = recents.limits();
        let oldest = limits.age.map(|age| recents.now().before(age));
        let list = recents.list()?.clone();
        let floors = list.floors(limits.entries, oldest);
        let Merge { mut records, capped, restored } = merge(&base, &list, &theirs(&found), &floors);
        let refused = refuse(recents, &mut records, &base);
        projected.restored += restored;
        if !records.is_empty() {
            for record in &records {
                match record {
                    JournalRecord::Forget(forgetting) => {
                        projected.deleted += forgetting.marks.len()
                    }
                    _ => projected.taken_in += 1,
                }
            }
        }
        // A refused document is also forgotten, so that a program that has it in memory does not restore it when it is no longer refused.
        let unknown: Vec<&Uri> = refused.iter().filter(|uri| list.get(uri).is_none()).collect();
        if !unknown.is_empty() {
            records.push(JournalRecord::Forget(list.forgetting(unknown, recents.now())));
        }
        if !records.is_empty() {
            recents.take_in(records)?;
        }
        let list = recents.list()?.clone();
        let plans = Plans {
            list: &list,
            base: &base,
            capped: &capped,
            refused: &refused,
            floors: &list.floors(limits.entries, oldest),
            now: recents.now(),
        };
        let NextStep { base: as_it_is, version } = plans.next(&found);
        // The changes are appended first, so that they are not merged again if the file cannot be written.
        let is_replaced = identity_of(recents.disk(), &last_version_path(recents.disk(), places))
            != found.stat.map(|stat| stat.identity);
        // Whether the present version was read is still visible at its hard link.
        let before = match is_replaced {
            true => base.read_through,
            false => as_it_is.read_through,
        };
        if as_it_is != (Base { read_through: before, ..base.clone() }) {
            projected.written_bytes += write_base(recents.disk(), places, &as_it_is)?;
        }
        let Some(NextVersion { text, receipts, base: next }) = version else { return Ok(()) };
        recents.take_in(vec![receipts])?;
        let disk = recents.disk();
        // The lock is acquired late: KDE's programs wait a tenth of a second for it, and then drop their document.
        let _lock = Lock::of(&places.xbel, recents.clock(), PATIENCE)?;
        if found.presence == Presence::Damaged && found.stat.is_some_and(|stat| stat.len > 0) {
            projected.kept_aside = keep_damaged(disk, places);
        }
        publish_private(disk, &places.xbel, text.as_bytes(), InPlace::Still(found.stat))?;
        projected.written_bytes += text.len() + write_base(disk, places, &next)?;
        projected.xbel = XbelOutcome::Written;
        Ok(())
    }
}

/// Removes records that the policy refuses; returns the documents that are to be removed from the file, too.
///
/// Documents that were in the file at the last projection stay, whatever the rules say now: the list may lack them because
/// the journal was damaged. Documents from before the first projection stay, too, unless a rule denies them.
fn refuse(recents: &mut Recents, records: &mut Vec<JournalRecord>, base: &Base) -> HashSet<Uri> {
    let mut refused = HashSet::new();
    let salt = recents.salt();
    records.retain(|record| {
        let JournalRecord::Put(entry) = record else { return true };
        let RetentionVerdict::Leave(reason) = recents.decide_foreign(entry) else { return true };
        if matches!(reason, DenialReason::UnreadableRules(_)) {
            // Nobody knows whether it is to go.
            return false;
        }
        let known = base.entries.get(&salt.mark(&entry.uri)).filter(|_| base.salt == salt);
        let was_there = known.is_some_and(|known| known.compare(entry) == Version::Same);
        let is_about_all = match &reason {
            DenialReason::Rule { line, .. } => {
                RetentionRule::parse(line) == Ok(Some(RetentionRule::Off))
            }
            // The document was used since private mode was turned on.
            DenialReason::Private(_) => false,
            _ => true,
        };
        let is_first_look = base.entries.is_empty();
        let stays = was_there || (is_first_look && is_about_all);
        if !stays {
            refused.insert(entry.uri.clone());
        }
        false
    });
    refused
}

fn read(
    disk: &dyn Disk,
    places: &RecentsFiles,
    had_dir: bool,
    now: RecentTime,
) -> Result<SharedFile, ProjectionError> {
    let path = &places.xbel;
    let unread = |source| ProjectionError::Unread { path: path.clone(), source };
    let stat = match disk.stat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        other => Some(other.map_err(unread)?),
    };
    let Some(stat) = stat else {
        // If the directory or the target of a symlink is missing, the file was not removed in order to forget something.
        let is_link = disk.read_link(path).is_ok();
        let presence = if is_link || !had_dir { Presence::Damaged } else { Presence::Removed };
        let (document, reading) = (XbelDocument::new(), Reading::Unknown);
        return Ok(SharedFile { stat, document, presence, written: now, reading });
    };
    let document = match disk.read_unnoticed(path) {
        // A file that grew too long is shortened, because no other program does that.
        Ok(bytes) if bytes.len() > MAX_BYTES => XbelDocument::parse_too_large(&bytes),
        Ok(bytes) => XbelDocument::parse(bytes).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            XbelDocument::parse_too_large(&[])
        }
        Err(error) => return Err(unread(error)),
    };
    let presence = match document.condition() {
        Condition::Whole if document.bookmarks().is_empty() => Presence::Empty,
        Condition::Whole => Presence::Whole,
        Condition::Damaged => Presence::Damaged,
    };
    let micros = i64::try_from(stat.mtime_ns / 1000).unwrap_or(i64::MAX);
    let reading = match disk.was_read(&last_version_path(disk, places)) {
        Ok(Some(true)) => Reading::Read,
        Ok(Some(false)) => Reading::Unread,
        Ok(None) | Err(_) => Reading::Unknown,
    };
    let written = RecentTime(micros);
    Ok(SharedFile { stat: Some(stat), document, presence, written, reading })
}

/// Keeps a copy of the damaged file; `None` if that fails, which does not prevent the projection.
fn keep_damaged(disk: &dyn Disk, places: &RecentsFiles) -> Option<PathBuf> {
    let path = damaged_path(places);
    let bytes = disk.read_unnoticed(&places.xbel).ok()?;
    publish_private(disk, &path, &bytes, InPlace::Anything).ok()?;
    Some(path)
}
