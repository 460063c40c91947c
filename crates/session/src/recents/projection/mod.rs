//! The list as the files that GTK's and KDE's programs read, and what those programs did to them meanwhile.

mod base;
mod lock;
mod merge;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use store::disk::Disk;
use store::publish::{InPlace, PublishError, publish_private, remove_stale};

use self::base::Base;
use self::lock::Lock;
use self::merge::{Merge, Presence, merge};
use self::plan::{Found, Next, next, theirs};
use super::links::{self, LinksError, LinksOutcome};
use super::policy::{Reason, Verdict};
use super::xbel::{Condition, Document, TooLarge};
use super::{Entry, Places, Recents, RecentsError, Record, Timestamp, Uri};

pub use self::lock::LockError;

/// How long another program's lock is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

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
    /// The shared file is longer than any list; nothing is changed.
    #[error("cannot read {path:?}")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How long it is.
        source: TooLarge,
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
        let mut overtaken = HashMap::new();
        loop {
            let attempt = Attempt { recents, places: &places, had_dir, overtaken: &mut overtaken };
            match attempt.run(&mut projected) {
                Err(ProjectionError::NotWritten(PublishError::Overtaken { .. }))
                    if attempts < ATTEMPTS =>
                {
                    attempts += 1;
                }
                other => break other?,
            }
        }
    }
    let most = recents.limits().links;
    let list = recents.list()?.clone();
    let disk = recents.disk();
    let mut base = read_base(disk, &places);
    projected.links = links::project(&places, &list, disk, base.linked, most)?;
    let opened = list.iter().flat_map(|entry| &entry.applications).map(|one| one.modified).max();
    if opened.is_some_and(|opened| opened > base.linked) {
        base.linked = opened.unwrap_or_default();
        projected.written_bytes += write_base(disk, &places, &base)?;
    }
    Ok(projected)
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

/// One attempt to write the shared file, which others may overtake.
struct Attempt<'a> {
    recents: &'a mut Recents,
    places: &'a Places,
    had_dir: bool,
    /// What attempts before this one took in: it is others' though the file may not have it any more.
    overtaken: &'a mut HashMap<Uri, Entry>,
}

impl Attempt<'_> {
    fn run(self, projected: &mut Projected) -> Result<(), ProjectionError> {
        let Attempt { recents, places, had_dir, overtaken } = self;
        let base = read_base(recents.disk(), places);
        let found = read(recents.disk(), places, had_dir, recents.now())?;
        let theirs = theirs(&found);
        let list = recents.list()?.clone();
        let Merge { mut records, capped, restored } = merge(&base, &list, &theirs);
        let refused = refuse(recents, &mut records, &base);
        projected.restored += restored;
        if !records.is_empty() {
            for record in &records {
                match record {
                    Record::Forget(forgetting) => projected.deleted += forgetting.marks.len(),
                    Record::Put(entry) => {
                        projected.taken_in += 1;
                        overtaken.insert(entry.uri.clone(), entry.clone());
                    }
                    _ => projected.taken_in += 1,
                }
            }
            recents.take_in(records)?;
        }
        let list = recents.list()?.clone();
        let (disk, now) = (recents.disk(), recents.now());
        let Next { text, base: new } =
            next(&found, &list, &base, &capped, &refused, overtaken, now);
        if text.is_none() && new == base {
            return Ok(());
        }
        // Only now: KDE's programs wait a tenth of a second for the lock, and then leave their document out.
        let _lock = Lock::of(&places.xbel, recents.clock(), PATIENCE)?;
        if let Some(text) = text {
            if found.presence == Presence::Damaged && found.stat.is_some_and(|stat| stat.len > 0) {
                projected.kept_aside = keep_damaged(disk, places);
            }
            let expected = InPlace::Still(found.stat);
            publish_private(disk, &places.xbel, text.as_bytes(), expected)?;
            projected.written_bytes += text.len();
            projected.xbel = XbelOutcome::Written;
        }
        projected.written_bytes += write_base(disk, places, &new)?;
        Ok(())
    }
}

/// Takes out of the records what the policy does not let in; returns the documents.
fn refuse(recents: &mut Recents, records: &mut Vec<Record>, base: &Base) -> HashSet<Uri> {
    let mut refused = HashSet::new();
    records.retain(|record| {
        let Record::Put(entry) = record else { return true };
        match recents.decide_foreign(entry) {
            Verdict::Remember => true,
            // What was there before we came is nobody's secret.
            Verdict::Leave(Reason::Private(_)) if base.entries.is_empty() => false,
            Verdict::Leave(_) => {
                refused.insert(entry.uri.clone());
                false
            }
        }
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
        let document = Document::new();
        return Ok(Found { stat, document, presence, written: now });
    };
    let bytes = disk.read(path).map_err(unread)?;
    let document = Document::parse(bytes)
        .map_err(|source| ProjectionError::TooLarge { path: path.clone(), source })?;
    let presence = match document.condition() {
        Condition::Whole => Presence::Whole,
        Condition::Damaged => Presence::Damaged,
    };
    let micros = i64::try_from(stat.mtime_ns / 1000).unwrap_or(i64::MAX);
    Ok(Found { stat: Some(stat), document, presence, written: Timestamp(micros) })
}

/// Keeps a copy of the damaged file; `None` if that fails, which is no reason to keep the list from everybody.
fn keep_damaged(disk: &dyn Disk, places: &Places) -> Option<PathBuf> {
    let path = damaged_path(places);
    let bytes = disk.read(&places.xbel).ok()?;
    publish_private(disk, &path, &bytes, InPlace::Anything).ok()?;
    Some(path)
}
