//! The list as the files that GTK's and KDE's programs read, and what those programs did to them meanwhile.

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
use self::plan::{Found, Next, NextVersion, Plans, theirs};
use super::links::{self, LinksError, LinksOutcome};
use super::policy::{Reason, Rule, Verdict};
use super::xbel::{Condition, Document, MAX_BYTES};
use super::{List, Places, Recents, RecentsError, Record, Timestamp, Uri};

pub use self::lock::LockError;
use crate::clock::Clock;

/// How long another program's lock is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The second name of the shared file.
const LAST_VERSION: &str = "last-version";

/// How often the file may be written by others while we merge before that is an error.
const ATTEMPTS: usize = 20;

/// What a dead writer left is removed when it is so old.
const STALE: Duration = Duration::from_secs(60);

/// Why the files do not show the list.
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
        /// What the disk said.
        source: io::Error,
    },
    /// The journal cannot be read, or what others did cannot be put into it; the files are as they were.
    #[error(transparent)]
    Journal(#[from] RecentsError),
    /// A file could not be written; what was taken in is in the journal.
    #[error(transparent)]
    NotWritten(#[from] PublishError),
    /// The links could not be written; the shared file shows the list.
    #[error(transparent)]
    Links(#[from] LinksError),
}

/// What a projection found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projected {
    /// What became of the shared file.
    pub xbel: XbelOutcome,
    /// What became of the links.
    pub links: LinksOutcome,
    /// How many entries of other programs are new or changed.
    pub taken_in: usize,
    /// How many entries were deleted by other programs' users.
    pub deleted: usize,
    /// How many entries were lost by other programs and are back.
    pub restored: usize,
    /// Where the damaged file is kept, if it was damaged.
    pub kept_aside: Option<PathBuf>,
    /// How many bytes were written, links apart.
    pub written_bytes: usize,
}

/// What became of the shared file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XbelOutcome {
    /// It showed the list already.
    #[default]
    Unchanged,
    /// It was written.
    Written,
    /// Something else than a file is in its place: somebody wants no such list there. It is left alone.
    Blocked,
}

/// Returns the file that remembers what the shared file held; it names no document.
#[must_use]
pub fn base_path(places: &Places) -> PathBuf {
    places.state.join("projection")
}

/// Returns the second name of the shared file as we last knew it. It tells whether another program has read that version,
/// also when yet another one has replaced it meanwhile. It names documents, and goes when one is forgotten.
#[must_use]
pub fn last_version_path(disk: &dyn Disk, places: &Places) -> PathBuf {
    match (disk.read_link(&places.xbel), &places.runtime) {
        // A file has names on one file system only.
        (Ok(target), Some(dir)) if target.starts_with(dir) => dir.join(LAST_VERSION),
        _ => places.state.join(LAST_VERSION),
    }
}

/// Returns both names that a last version may have: that of a list on the disk, and that of one in memory.
pub(super) fn last_version_paths(places: &Places) -> impl Iterator<Item = PathBuf> {
    std::iter::once(&places.state).chain(&places.runtime).map(|dir| dir.join(LAST_VERSION))
}

/// Returns where a damaged shared file is kept; the last one that was.
#[must_use]
pub fn damaged_path(places: &Places) -> PathBuf {
    let mut name = places.xbel.as_os_str().to_owned();
    name.push(".damaged");
    PathBuf::from(name)
}

/// Takes in what other programs did to the files, and writes them so that they show the list.
///
/// KDE's programs are kept out by their own lock while it writes; whoever writes before that, or takes no lock, is
/// noticed until the moment of the rename. Nothing is synced: the files can be made again.
///
/// # Errors
///
/// Each variant says what was done. After one of the journal nothing was written.
pub fn project(recents: &mut Recents) -> Result<Projected, ProjectionError> {
    let places = recents.places().clone();
    let mut projected = Projected::default();
    if recents.disk().stat(&places.xbel).is_ok_and(|stat| !stat.is_file()) {
        projected.xbel = XbelOutcome::Blocked;
    } else {
        // Before the lock makes the directory.
        let dir = places.xbel.parent().unwrap_or(Path::new("/"));
        let had_dir = recents.disk().stat(dir).is_ok();
        let before = recents.now().before(STALE);
        // What dead writers left names documents. What cannot be removed now is tried again the next time.
        let _ = remove_stale(recents.disk(), &places.xbel, i128::from(before.0) * 1000);
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

/// Returns the list with what other programs wrote into the shared file since we last knew it. Nothing is written.
///
/// # Errors
///
/// [`ProjectionError`]: the journal or the shared file cannot be read.
pub fn preview(recents: &mut Recents) -> Result<List, ProjectionError> {
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

fn read_base(disk: &dyn Disk, places: &Places) -> Base {
    let bytes = disk.read(&base_path(places)).ok();
    bytes.and_then(|bytes| Base::decode(&bytes)).unwrap_or_default()
}

fn write_base(disk: &dyn Disk, places: &Places, base: &Base) -> Result<usize, PublishError> {
    let bytes = base.encode();
    publish_private(disk, &base_path(places), &bytes, InPlace::Anything)?;
    Ok(bytes.len())
}

/// Gives the file that is in place its second name, unless it has it.
///
/// Where that cannot be done it is not known what was read, and time has to tell.
fn keep_last_version(disk: &dyn Disk, places: &Places) {
    let path = last_version_path(disk, places);
    // The list has moved: the old name would keep documents that are forgotten.
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

/// Takes KDE's lock of the shared list, which is given back when what is returned is dropped.
pub(super) fn lock_list(places: &Places, clock: &dyn Clock) -> Result<impl Drop, LockError> {
    Lock::of(&places.xbel, clock, PATIENCE)
}

/// One attempt to write the shared file, which others may overtake.
struct Attempt<'a> {
    recents: &'a mut Recents,
    places: &'a Places,
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
                    Record::Forget(forgetting) => projected.deleted += forgetting.marks.len(),
                    _ => projected.taken_in += 1,
                }
            }
        }
        // A program that has a refused one in memory does not bring it back when it is refused no more.
        let unknown: Vec<&Uri> = refused.iter().filter(|uri| list.get(uri).is_none()).collect();
        if !unknown.is_empty() {
            records.push(Record::Forget(list.forgetting(unknown, recents.now())));
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
        let Next { base: as_it_is, version } = plans.next(&found);
        // First what was taken in: it must not be taken in again if the file cannot be written.
        let is_replaced = identity_of(recents.disk(), &last_version_path(recents.disk(), places))
            != found.stat.map(|stat| stat.identity);
        // Who has read the version in place can still be seen at its second name.
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
        // Only now: KDE's programs wait a tenth of a second for the lock, and then leave their document out.
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

/// Takes out of the records what the policy does not let in; returns the documents that shall go from the file, too.
///
/// What was there when we last looked stays, whatever the rules say by now: our list may lack it because the journal was
/// damaged. So does what was there before we came, unless a rule is about it.
fn refuse(recents: &mut Recents, records: &mut Vec<Record>, base: &Base) -> HashSet<Uri> {
    let mut refused = HashSet::new();
    let salt = recents.salt();
    records.retain(|record| {
        let Record::Put(entry) = record else { return true };
        let Verdict::Leave(reason) = recents.decide_foreign(entry) else { return true };
        let known = base.entries.get(&salt.mark(&entry.uri)).filter(|_| base.salt == salt);
        let was_there = known.is_some_and(|known| known.compare(entry) == Version::Same);
        let is_about_all = match &reason {
            Reason::Rule { line, .. } => Rule::parse(line) == Ok(Some(Rule::Off)),
            // It was used since private mode was turned on.
            Reason::Private(_) => false,
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
    places: &Places,
    had_dir: bool,
    now: Timestamp,
) -> Result<Found, ProjectionError> {
    let path = &places.xbel;
    let unread = |source| ProjectionError::Unread { path: path.clone(), source };
    let stat = match disk.stat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        other => Some(other.map_err(unread)?),
    };
    let Some(stat) = stat else {
        // A directory that is gone, or a link whose target is, was not removed to forget something.
        let is_link = disk.read_link(path).is_ok();
        let presence = if is_link || !had_dir { Presence::Damaged } else { Presence::Removed };
        let (document, reading) = (Document::new(), Reading::Unknown);
        return Ok(Found { stat, document, presence, written: now, reading });
    };
    let document = match disk.read_unnoticed(path) {
        // One that grew too long is shortened: nobody else does that.
        Ok(bytes) if bytes.len() > MAX_BYTES => Document::parse_too_large(&bytes),
        Ok(bytes) => Document::parse(bytes).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Document::parse_too_large(&[]),
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
    let written = Timestamp(micros);
    Ok(Found { stat: Some(stat), document, presence, written, reading })
}

/// Keeps a copy of the damaged file; `None` if that fails, which is no reason to keep the list from everybody.
fn keep_damaged(disk: &dyn Disk, places: &Places) -> Option<PathBuf> {
    let path = damaged_path(places);
    let bytes = disk.read_unnoticed(&places.xbel).ok()?;
    publish_private(disk, &path, &bytes, InPlace::Anything).ok()?;
    Some(path)
}
