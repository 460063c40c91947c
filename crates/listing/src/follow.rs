//! Following a directory: names that were touched are looked at again, and what has become of them is told.
//!
//! What the kernel says of a change is not believed beyond the name: by the time it is read, the file may be another one. So nothing depends on the
//! order of events, and the last look at a name is always after its last change.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use store::stream::StreamBuilder;
use sys::dir::{OpenDirectory, StatxFlags, is_vanished};
use sys::watch::{DirectoryChange, DirectoryWatch, Ready, WatchScope};

use super::attributes::Reader;
use super::connection::Connection;
use super::entry::{EntryId, EntryKind};
use super::error::{Failure, ListingStep, NOT_SUPPORTED};
use super::record::{FORMAT, NameRows, checked, failure, removed};
use super::request::ListingRequest;
use super::scan::{Names, give};
use sys::clock::Clock;

/// Changes within this time of others are told together …
const SHORTEST: Duration = Duration::from_millis(8);
/// … and within this time where they do not end. So often a person can look.
const LONGEST: Duration = Duration::from_millis(128);
/// How far the clock of a file system may be behind ours.
const CLOCKS_APART: Duration = Duration::from_secs(10);

/// File systems whose files change without this kernel: only what is changed from here is told.
const REMOTE: [u64; 8] = [
    0x6969,      // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
    0x6573_5546, // FUSE
    0x0102_1997, // 9P
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x9fa0,      // /proc
];

/// Begins to watch a directory; tells the client if it cannot be watched.
///
/// # Errors
///
/// The client is gone.
pub(super) fn watch(
    directory: &OpenDirectory,
    request: &ListingRequest,
    connection: &Connection,
    clock: &dyn Clock,
) -> io::Result<Option<(DirectoryWatch, SystemTime)>> {
    let scope = if request.fields.is_empty() { WatchScope::Names } else { WatchScope::Attributes };
    match DirectoryWatch::of(directory, scope) {
        Ok(watch) => {
            if directory.file_system().is_ok_and(|magic| REMOTE.contains(&magic)) {
                tell(connection, request, ListingStep::Follow, NOT_SUPPORTED)?;
            }
            Ok(Some((watch, clock.now())))
        }
        Err(error) => {
            let number = error.raw_os_error().unwrap_or(0);
            tell(connection, request, ListingStep::Follow, number)?;
            Ok(None)
        }
    }
}

fn tell(
    connection: &Connection,
    request: &ListingRequest,
    step: ListingStep,
    number: i32,
) -> io::Result<()> {
    let mut builder = StreamBuilder::new(FORMAT);
    failure(&Failure { path: request.path.clone(), step, number }, &mut builder)?;
    connection.send(&builder)
}

/// Tells the client what changes.
#[derive(Debug)]
pub(super) struct Follower<'a> {
    reader: Reader<'a>,
    request: &'a ListingRequest,
    watch: DirectoryWatch,
    known: ClientNames,
    /// The id of the next new name.
    next: EntryId,
    /// Nothing that changed before was missed.
    checked: SystemTime,
}

/// Whether there is more to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoreToFollow {
    More,
    Nothing,
}

impl<'a> Follower<'a> {
    /// Takes what was listed: the names, and how many.
    pub(super) fn new(
        reader: Reader<'a>,
        request: &'a ListingRequest,
        (watch, checked): (DirectoryWatch, SystemTime),
        names: Vec<Arc<Names>>,
        next: EntryId,
    ) -> Follower<'a> {
        let known = ClientNames { names, table: None, hasher: RandomState::new() };
        Follower { reader, request, watch, known, next, checked }
    }

    /// Follows until the client or the directory is gone.
    ///
    /// # Errors
    ///
    /// The client is gone.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let mut pause = SHORTEST;
        loop {
            let connection = self.reader.connection;
            match self.watch.wait(connection, None)? {
                Ready::HungUp => return Ok(()),
                Ready::Nothing => continue,
                Ready::Changes => {}
            }
            if self.step()? == MoreToFollow::Nothing {
                return Ok(());
            }
            if sys::watch::pause(connection, pause)? == Ready::HungUp {
                return Ok(());
            }
            let goes_on = self.watch.wait(connection, Some(Duration::ZERO))? == Ready::Changes;
            pause = if goes_on { (pause * 2).min(LONGEST) } else { SHORTEST };
        }
    }

    /// Tells what has become of everything that was touched.
    fn step(&mut self) -> io::Result<MoreToFollow> {
        let now = self.reader.clock.now();
        let mut touched = BTreeSet::new();
        let (mut lost, mut gone, mut beside) = (false, false, false);
        self.watch.read(|change| match change {
            DirectoryChange::Name(name) => {
                if !touched.contains(name) {
                    touched.insert(name.to_owned());
                }
            }
            DirectoryChange::Lost => lost = true,
            DirectoryChange::Beside => beside = true,
            DirectoryChange::Gone => gone = true,
        })?;
        if beside && touched.is_empty() && !lost && !gone && !self.is_removed() {
            return Ok(MoreToFollow::More);
        }
        gone |= beside && self.is_removed();
        self.begin()?;
        if lost {
            self.compare(&mut touched)?;
        }
        self.checked = now;
        let next = self.settle(&touched)?;
        if gone {
            tell(self.reader.connection, self.request, ListingStep::Gone, 0)?;
            return Ok(MoreToFollow::Nothing);
        }
        Ok(next)
    }

    /// Returns whether the directory itself is no more.
    fn is_removed(&self) -> bool {
        let status = self.reader.directory.own_status(StatxFlags::NLINK);
        status.is_ok_and(|status| status.stx_nlink == 0)
    }

    /// Remembers the names, when they are needed for the first time. A name that was listed twice is removed once.
    fn begin(&mut self) -> io::Result<()> {
        let twice = self.known.begin();
        self.remove(&twice)
    }

    fn remove(&self, ids: &[EntryId]) -> io::Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut builder = StreamBuilder::new(FORMAT);
        removed(ids, &mut builder)?;
        self.reader.connection.send(&builder)
    }

    /// Looks at names and tells what is new: first what is gone, then the new names, then attributes.
    fn settle(&mut self, touched: &BTreeSet<CString>) -> io::Result<MoreToFollow> {
        let mut gone = Vec::new();
        let mut new = NameRows::default();
        let mut there = Vec::new();
        let first = self.next;
        for name in touched {
            let found = self.reader.directory.status(name, StatxFlags::TYPE);
            match (self.known.find(name), found) {
                (Some(id), Err(error)) if is_vanished(&error) => {
                    gone.push(id);
                    self.known.forget(name);
                }
                (Some(id), _) => there.push((id, name.as_c_str(), EntryKind::Unknown)),
                // What cannot be looked at now was there when it was touched or is not; the next look tells.
                (None, Err(_)) => {}
                (None, Ok(status)) => {
                    if self.next >= self.request.limits.entries {
                        tell(self.reader.connection, self.request, ListingStep::TooLarge, 0)?;
                        return Ok(MoreToFollow::Nothing);
                    }
                    let kind = EntryKind::from_mode(status.stx_mode);
                    new.push(name, kind)?;
                    if !self.request.fields.is_empty() {
                        there.push((self.next, name.as_c_str(), kind));
                    }
                    self.next += 1;
                }
            }
        }
        self.remove(&gone)?;
        if !new.is_empty() {
            let names = Arc::new(give(&mut new, Vec::new(), first, self.reader.connection)?);
            self.known.add(&names);
            self.reader.work.keep(names);
        }
        self.reader.read_all(&there)?;
        Ok(MoreToFollow::More)
    }

    /// Finds what may have changed by reading all names again.
    fn compare(&mut self, touched: &mut BTreeSet<CString>) -> io::Result<()> {
        let since = self.checked.checked_sub(CLOCKS_APART).unwrap_or(UNIX_EPOCH);
        let since = since.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let mut missing: BTreeSet<EntryId> = self.known.ids().collect();
        let mut buffer = vec![MaybeUninit::uninit(); 256 << 10];
        // A directory that cannot be read any more keeps what it had; its end is told by the watch.
        let Ok(directory) = self.reader.directory.again() else { return Ok(()) };
        loop {
            let more = directory.read(&mut buffer, |entry| match self.known.find(entry.name) {
                Some(id) => {
                    missing.remove(&id);
                    if self.has_changed(entry.name, since) {
                        touched.insert(entry.name.to_owned());
                    }
                }
                None => {
                    touched.insert(entry.name.to_owned());
                }
            });
            match more {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return Ok(()),
            }
        }
        touched
            .extend(missing.into_iter().filter_map(|id| self.known.name(id)).map(CStr::to_owned));
        Ok(())
    }

    /// Returns whether anything about a file may have changed since a second.
    fn has_changed(&self, name: &CStr, since: u64) -> bool {
        let Ok(status) = self.reader.directory.status(name, StatxFlags::CTIME) else { return true };
        let tells = status.stx_mask & StatxFlags::CTIME.bits() != 0;
        !tells || u64::try_from(status.stx_ctime.tv_sec).is_ok_and(|changed| changed >= since)
    }
}

/// The names that the client knows.
#[derive(Debug)]
struct ClientNames {
    /// By their ids.
    names: Vec<Arc<Names>>,
    /// Those that are not removed, by their names; made when it is needed.
    table: Option<HashTable<EntryId>>,
    hasher: RandomState,
}

impl ClientNames {
    /// Makes the table and returns the ids of names that were there before.
    fn begin(&mut self) -> Vec<EntryId> {
        if self.table.is_some() {
            return Vec::new();
        }
        let count = self.names.last().map_or(0, |names| names.first + names.count);
        self.table = Some(HashTable::with_capacity(count as usize));
        let mut twice = Vec::new();
        for index in 0..self.names.len() {
            let names = Arc::clone(&self.names[index]);
            twice.extend(self.enter(&names));
        }
        twice
    }

    /// Adds names that are new.
    fn add(&mut self, names: &Arc<Names>) {
        self.names.push(Arc::clone(names));
        self.enter(names);
    }

    /// Puts names into the table, and returns the ids of those that are in it already.
    fn enter(&mut self, new: &Names) -> Vec<EntryId> {
        let Some(view) = new.view() else { return Vec::new() };
        let Some(mut table) = self.table.take() else { return Vec::new() };
        let mut twice = Vec::new();
        for (index, id) in (0..view.len()).zip(new.first..) {
            let name = view.c_name(index);
            let is_it = |other: &EntryId| self.name(*other) == Some(name);
            match table.entry(self.hash(name), is_it, |id| self.hash_of(*id)) {
                Entry::Vacant(place) => {
                    place.insert(id);
                }
                Entry::Occupied(_) => twice.push(id),
            }
        }
        self.table = Some(table);
        twice
    }

    fn hash(&self, name: &CStr) -> u64 {
        self.hasher.hash_one(name.to_bytes())
    }

    fn hash_of(&self, id: EntryId) -> u64 {
        self.hash(self.name(id).unwrap_or_default())
    }

    fn name(&self, id: EntryId) -> Option<&CStr> {
        let after = self.names.partition_point(|names| names.first <= id);
        let names = self.names.get(after.checked_sub(1)?)?;
        let row = usize::try_from(id - names.first).ok()?;
        let view = names.view()?;
        (row < view.len()).then(|| view.c_name(row))
    }

    fn find(&self, name: &CStr) -> Option<EntryId> {
        let table = self.table.as_ref()?;
        table.find(self.hash(name), |id| self.name(*id) == Some(name)).copied()
    }

    fn forget(&mut self, name: &CStr) {
        let Some(mut table) = self.table.take() else { return };
        let found = table.find_entry(self.hash(name), |id| self.name(*id) == Some(name));
        if let Ok(found) = found {
            found.remove();
        }
        self.table = Some(table);
    }

    fn ids(&self) -> impl Iterator<Item = EntryId> {
        self.table.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests;
