//! The lists of recent documents in memory: the journal, `recently-used.xbel` and `RecentDocuments`, with copies on the disk.
//!
//! The rule `volatile` says where they are to be; [`settle`] brings them there, from every state that a crash or another
//! program may have left. docs/recents-volatile.md has the states.

mod journal;
mod store;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::store::{MovableStore, Occupant, StoreShape};
use super::policy::{Keeping, RetentionVerdict};
use super::projection::{LockError, lock_list, remove_stale_lock};
use super::xbel::XbelDocument;
use super::{JournalRecord, Recents, RecentsError, RecentsFiles};

/// How long another process that moves the lists is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the lists are not where they are to be. They can be read and written where they are; nothing is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolatileError {
    /// Another process moves them, and hangs.
    #[error("cannot lock {path:?}")]
    NotLocked {
        /// The lock.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// A KDE program holds the lock of the shared list.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A list is where it was, or its name stands for what is said in docs/recents-volatile.md.
    #[error("cannot move {path:?}")]
    NotMoved {
        /// The list.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// The list has no copy of now on the disk; the one before is as it was.
    #[error("cannot copy {path:?} to the disk")]
    NotSaved {
        /// The list.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// What one of the lists had more than the journal cannot be put into it.
    #[error(transparent)]
    Journal(#[from] RecentsError),
}

/// Where a list is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListPlace {
    /// In memory, with its copy on the disk if there is one yet.
    Memory {
        /// The file or folder in memory.
        memory: PathBuf,
        /// The copy.
        copy: Option<PathBuf>,
    },
    /// On the disk.
    Disk,
    /// Its symlink points to memory, and nothing is there: a session has ended, or the machine has crashed.
    Lost,
    /// Nowhere yet.
    Nowhere,
    /// Something else has its name, and is left alone.
    Blocked,
}

/// Returns where the shared list and KDE's links are.
#[must_use]
pub fn places_of_lists(recents: &Recents) -> [(PathBuf, ListPlace); 2] {
    let stores = stores(recents);
    stores.map(|store| {
        let place = match store.occupant(&store.name) {
            Ok(Occupant::Link(memory)) if store.is_ours(&memory) => {
                let copy = store.copy();
                match recents.disk().stat(&memory) {
                    Ok(_) => ListPlace::Memory {
                        memory,
                        copy: recents.disk().stat(&copy).is_ok().then_some(copy),
                    },
                    Err(_) => ListPlace::Lost,
                }
            }
            Ok(Occupant::Store) => ListPlace::Disk,
            Ok(Occupant::Nothing) => ListPlace::Nowhere,
            Ok(Occupant::Link(_) | Occupant::Other) | Err(_) => ListPlace::Blocked,
        };
        (store.name.clone(), place)
    })
}

/// Returns the copies of the lists on the disk, whether they are there or not: the shared list's and the folder of links'.
#[must_use]
pub fn copies(places: &RecentsFiles) -> [PathBuf; 2] {
    [&places.xbel, &places.links].map(|name| {
        let mut copy = name.as_os_str().to_owned();
        copy.push(store::COPY);
        PathBuf::from(copy)
    })
}

/// Returns the file that has the shared list: where its name points if that is in memory, else the name itself.
#[must_use]
pub fn list_file(recents: &Recents) -> PathBuf {
    let [list, _] = stores(recents);
    match list.occupant(&list.name) {
        Ok(Occupant::Link(target)) if list.is_ours(&target) => target,
        _ => list.name.clone(),
    }
}

/// Brings the lists to where the rules say: to memory, also after a crash or when a program has replaced a symlink, or back
/// to the disk.
///
/// # Errors
///
/// [`VolatileError`]; each list is where it was, and another attempt goes on from there.
pub fn settle(recents: &mut Recents) -> Result<(), VolatileError> {
    if recents.has_unreadable_rules() {
        // Where they should be is not known.
        return Ok(());
    }
    let keeping = match (recents.limits().keeping, &recents.places().runtime) {
        // Without a runtime directory nobody can say where they should be.
        (Keeping::Volatile, None) => return Ok(()),
        (keeping, _) => keeping,
    };
    let is_settled = |store: &MovableStore<'_>| match keeping {
        Keeping::Volatile => store.is_in_memory(),
        Keeping::Durable => store.is_on_disk(),
    };
    if keeping == Keeping::Durable {
        recents.leave_memory()?;
    }
    let mut all_settled = true;
    for store in stores(recents) {
        all_settled &= is_settled(&store).map_err(not_moved(&store.name))?;
    }
    if all_settled {
        return Ok(());
    }
    let _lock = lock(recents)?;
    rescue(recents, keeping)?;
    // KDE's programs do not write meanwhile; GTK's may, which is seen.
    let _list = lock_list(recents.places(), recents.clock())?;
    for store in stores(recents) {
        let moved = match keeping {
            Keeping::Volatile => store.move_to_memory(),
            Keeping::Durable => store.move_to_disk(),
        };
        moved.map_err(not_moved(&store.name))?;
    }
    Ok(())
}

/// Removes what a process that was killed while it copied the shared list has left: the copy, which names documents, and
/// its lock. What cannot be removed now is tried again with the next round.
pub(super) fn remove_leftovers(recents: &Recents) {
    let [list, _] = stores(recents);
    let _ = ::store::publish::remove_stale(recents.disk(), &list.copy(), recents.stale_before_ns());
    let _ = remove_stale_lock(recents.places(), recents.clock());
}

/// Has programs that watch the name of the shared list see that it has changed: a symlink does not say so by itself.
///
/// # Errors
///
/// [`VolatileError`]; programs that run see the list as it was until it changes again.
pub(crate) fn announce(recents: &Recents) -> Result<(), VolatileError> {
    let [list, _] = stores(recents);
    let Ok(Occupant::Link(target)) = list.occupant(&list.name) else { return Ok(()) };
    let (Ok(file), Ok(link)) = (std::fs::metadata(&target), std::fs::symlink_metadata(&list.name))
    else {
        return Ok(());
    };
    let time = |about: &std::fs::Metadata| (about.mtime(), about.mtime_nsec());
    if !list.is_ours(&target) || time(&link) > time(&file) {
        return Ok(());
    }
    let _lock = lock(recents)?;
    list.announce().map_err(not_moved(&list.name))
}

/// Copies the lists that are in memory to the disk, durably.
///
/// # Errors
///
/// [`VolatileError::NotSaved`], [`VolatileError::NotLocked`].
pub fn save(recents: &Recents) -> Result<(), VolatileError> {
    let _lock = lock(recents)?;
    for store in stores(recents) {
        store
            .save()
            .map_err(|source| VolatileError::NotSaved { path: store.name.clone(), source })?;
    }
    Ok(())
}

/// Copies the lists as [`save`] does, if one is in memory.
///
/// # Errors
///
/// As [`save`].
pub fn save_if_moved(recents: &Recents) -> Result<(), VolatileError> {
    let is_moved = |(_, place): &(PathBuf, ListPlace)| matches!(place, ListPlace::Memory { .. });
    if places_of_lists(recents).iter().any(is_moved) { save(recents) } else { Ok(()) }
}

/// Copies the lists as [`save`] does, if the copy of the shared list is older than `age`.
///
/// # Errors
///
/// As [`save`].
pub(crate) fn save_if_older(recents: &Recents, age: Duration) -> Result<(), VolatileError> {
    let [list, _] = stores(recents);
    let is_moved =
        matches!(list.occupant(&list.name), Ok(Occupant::Link(target)) if list.is_ours(&target));
    let copied = recents.disk().stat(&list.copy()).map_or(0, |stat| stat.mtime_ns / 1000);
    let is_old = copied < i128::from(recents.now().before(age).0);
    if is_moved && is_old { save(recents) } else { Ok(()) }
}

/// Whether the directory of the shared list is on a file system on which two names can be exchanged.
///
/// # Errors
///
/// As `renameat2(2)`, such as [`io::ErrorKind::InvalidInput`] of a file system that cannot.
pub fn probe(recents: &Recents) -> io::Result<()> {
    let (disk, data) = (recents.disk(), &recents.places().data);
    ::store::publish::make_directory(disk, data)?;
    remove_probe(recents);
    let probe = probe_of(recents);
    disk.symlink(&probe.memory, &probe.name)?;
    let announced = probe.announce();
    remove_probe(recents);
    announced
}

/// Removes what a killed [`probe`] has left: symlinks to nowhere.
pub fn remove_probe(recents: &Recents) {
    let probe = probe_of(recents);
    // Usually there is none.
    let _ = recents.disk().remove(&probe.aside());
    let _ = recents.disk().remove(&probe.name);
}

fn probe_of(recents: &Recents) -> MovableStore<'_> {
    MovableStore {
        disk: recents.disk(),
        shape: StoreShape::File,
        name: recents.places().data.join(".unjank-probe"),
        memory: PathBuf::from("/nowhere"),
    }
}

fn lock(recents: &Recents) -> Result<Box<dyn ::store::disk::FileLock>, VolatileError> {
    let path = recents.places().state.join("volatile.lock");
    let made = ::store::publish::make_directory(recents.disk(), &recents.places().state);
    made.and_then(|()| recents.disk().own(&path, PATIENCE))
        .and_then(|lock| lock.ok_or_else(|| io::ErrorKind::ResourceBusy.into()))
        .map_err(|source| VolatileError::NotLocked { path, source })
}

fn not_moved(path: &Path) -> impl FnOnce(io::Error) -> VolatileError {
    let path = path.to_owned();
    move |source| VolatileError::NotMoved { path, source }
}

fn stores(recents: &Recents) -> [MovableStore<'_>; 2] {
    let places = recents.places();
    let in_memory = |name: &Path| match (&places.runtime, name.file_name()) {
        (Some(dir), Some(last)) => dir.join(last),
        // Nowhere: only a symlink says where it is.
        _ => PathBuf::new(),
    };
    [(StoreShape::File, &places.xbel), (StoreShape::Folder, &places.links)].map(|(shape, name)| {
        MovableStore { disk: recents.disk(), shape, name: name.clone(), memory: in_memory(name) }
    })
}

/// Puts what would be replaced or removed into the journal, if that lacks it: what a program wrote into the list in memory
/// a moment ago, or what the last copy has after a crash.
fn rescue(recents: &mut Recents, keeping: Keeping) -> Result<(), VolatileError> {
    let [list, _] = stores(recents);
    let is_replaced = list.occupant(&list.name).map_err(not_moved(&list.name))? == Occupant::Store;
    let aside = list.aside();
    let mut lists = Vec::new();
    if is_replaced || keeping == Keeping::Durable {
        // The copy is older than what is in memory.
        let is_there = recents.disk().stat(&list.memory).is_ok();
        lists.push(if is_there { list.memory.clone() } else { list.copy() });
    }
    if list.occupant(&aside).map_err(not_moved(&aside))? == Occupant::Store {
        lists.push(aside);
    }
    for path in lists {
        let Ok(bytes) = recents.disk().read_unnoticed(&path) else { continue };
        let Ok(document) = XbelDocument::parse(bytes) else { continue };
        let known = recents.list()?.clone();
        let mut lost: Vec<_> = document.bookmarks().iter().filter_map(|one| one.entry()).collect();
        lost.retain(|entry| {
            known.get(&entry.uri).is_none() && !known.is_forgotten(&entry.uri, entry.last_used())
        });
        let mut records = Vec::new();
        for entry in lost {
            if recents.decide_foreign(entry) == RetentionVerdict::Remember {
                records.push(JournalRecord::Put(entry.clone()));
            }
        }
        if !records.is_empty() {
            recents.take_in(records)?;
        }
    }
    Ok(())
}
