//! Following a directory: names that were touched are looked at again, and what has become of them is told.
//!
//! What the kernel says of a change is not believed beyond the name: by the time it is read, the file may be another one. So nothing depends on the
//! order of events, and the last look at a name is always after its last change.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use store::stream::StreamBuilder;
use sys::dir::{FileName, OpenDirectory, StatxFlags, is_vanished};
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

/// What was missed because there was too much is looked for again after this time where the names cannot be read …
const AGAIN: Duration = Duration::from_secs(1);
/// … and not followed any more after so many times.
const TRIES: u32 = 3;

/// File systems whose files change without this kernel: only what is changed from here is told.
///
/// The numbers are from `linux/magic.h`; it has none of vboxsf, GFS2 and Lustre, which have them in their sources.
const REMOTE: [u64; 16] = [
    0x6969,      // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
    0x517b,      // SMB
    0x6573_5546, // FUSE
    0x0102_1997, // 9P
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS, as OpenAFS has it
    0x6b41_4653, // AFS, as the kernel has it
    0x7375_7245, // Coda
    0x786f_4256, // vboxsf: directories of the host of a virtual machine
    0x7461_636f, // OCFS2
    0x0116_1970, // GFS2
    0x0bd0_0bd0, // Lustre
    0x9fa0,      // /proc
    0x6265_6572, // /sys
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
    watch: &'a DirectoryWatch,
    known: ClientNames,
    /// The id of the next new name.
    next: EntryId,
    /// Nothing that changed before was missed.
    checked: SystemTime,
    /// How often what was missed since then was looked for and could not be found.
    missed: u32,
    /// When it was looked for last, by the monotonic clock.
    tried: Duration,
    /// Whether there is more to follow.
    more: MoreToFollow,
}

/// Whether there is more to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoreToFollow {
    More,
    Nothing,
}

impl<'a> Follower<'a> {
    /// Begins with a watch that was made before anything was listed, at `checked`.
    pub(super) fn new(
        reader: Reader<'a>,
        request: &'a ListingRequest,
        watch: &'a DirectoryWatch,
        checked: SystemTime,
    ) -> Follower<'a> {
        let known = ClientNames { names: Vec::new(), table: None, hasher: RandomState::new() };
        let more = MoreToFollow::More;
        let tried = Duration::ZERO;
        Follower { reader, request, watch, known, next: 0, checked, missed: 0, tried, more }
    }

    /// Takes what was listed: the names, and how many.
    pub(super) fn take(&mut self, names: Vec<Arc<Names>>, next: EntryId) {
        (self.known.names, self.next) = (names, next);
    }

    /// Tells what has changed by now, and then that the question of this number is answered; not that if nothing is followed any more, or something was missed.
    ///
    /// # Errors
    ///
    /// The client is gone.
    pub(super) fn check(&mut self, question: u32) -> io::Result<()> {
        if self.step()? == MoreToFollow::Nothing || self.missed > 0 {
            return Ok(());
        }
        let mut builder = StreamBuilder::new(FORMAT);
        checked(question, &mut builder)?;
        self.reader.connection.send(&builder)
    }

    /// Tells what has become of everything that was touched.
    fn step(&mut self) -> io::Result<MoreToFollow> {
        if self.more == MoreToFollow::More {
            self.more = self.look()?;
        }
        Ok(self.more)
    }

    fn look(&mut self) -> io::Result<MoreToFollow> {
        let now = self.reader.clock.now();
        let mut touched = BTreeSet::new();
        let (mut lost, mut gone, mut beside) = (self.missed > 0, false, false);
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
        // A change is no reason to try again sooner: what keeps the names from being read may last for a moment.
        let is_due = self.time_to_next_try().is_none_or(|time| time.is_zero());
        let compared = if lost && is_due { self.compare(&mut touched) } else { Ok(()) };
        if compared.is_err() {
            (self.missed, self.tried) = (self.missed + 1, self.reader.clock.monotonic());
        } else if is_due {
            (self.missed, self.checked) = (0, now);
        }
        let mut next = self.settle(&touched)?;
        if let Err(error) = compared
            && self.missed >= TRIES
            && next == MoreToFollow::More
        {
            let number = error.raw_os_error().unwrap_or(0);
            tell(self.reader.connection, self.request, ListingStep::Follow, number)?;
            next = MoreToFollow::Nothing;
        }
        if gone {
            tell(self.reader.connection, self.request, ListingStep::Gone, 0)?;
            return Ok(MoreToFollow::Nothing);
        }
        Ok(next)
    }

    /// Returns how long it takes until what was missed is looked for again; nothing if nothing was missed.
    fn time_to_next_try(&self) -> Option<Duration> {
        let next = self.tried + AGAIN;
        (self.missed > 0).then(|| next.saturating_sub(self.reader.clock.monotonic()))
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
        let mut is_too_large = false;
        let found = match self.found(touched) {
            Ok(found) => found,
            Err(error) => {
                let number = error.raw_os_error().unwrap_or(0);
                tell(self.reader.connection, self.request, ListingStep::Follow, number)?;
                return Ok(MoreToFollow::Nothing);
            }
        };
        for (name, found) in touched.iter().zip(found) {
            match (self.known.find(name), found) {
                (Some(id), None) => {
                    gone.push(id);
                    self.known.forget(name);
                }
                (Some(id), Some(_)) => there.push((id, name.as_c_str(), EntryKind::Unknown)),
                (None, None) => {}
                (None, Some(_)) if self.next >= self.request.limits.entries => is_too_large = true,
                (None, Some(kind)) => {
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
        if is_too_large {
            tell(self.reader.connection, self.request, ListingStep::TooLarge, 0)?;
            return Ok(MoreToFollow::Nothing);
        }
        Ok(MoreToFollow::More)
    }

    /// Returns which of these names there are, each with its type: as the files say, else as the directory does, which may be one that can be read and not searched.
    ///
    /// # Errors
    ///
    /// Neither can be known.
    fn found(&self, touched: &BTreeSet<CString>) -> io::Result<Vec<Option<EntryKind>>> {
        let mut found = Vec::with_capacity(touched.len());
        let mut listed: Option<BTreeMap<CString, EntryKind>> = None;
        for name in touched {
            found.push(match self.reader.directory.status(name, StatxFlags::TYPE) {
                Ok(status) => Some(EntryKind::from_mode(status.stx_mode)),
                Err(error) if is_vanished(&error) => None,
                Err(_) => {
                    let listed = match &mut listed {
                        Some(listed) => listed,
                        None => listed.insert(self.listed(touched)?),
                    };
                    listed.get(name).copied()
                }
            });
        }
        Ok(found)
    }

    /// Returns those of these names that the directory has now, with the types that it tells.
    fn listed(&self, touched: &BTreeSet<CString>) -> io::Result<BTreeMap<CString, EntryKind>> {
        let mut listed = BTreeMap::new();
        let read = self.read_again(|entry| {
            if touched.contains(entry.name) {
                listed.insert(entry.name.to_owned(), EntryKind::from_number(entry.kind));
            }
        });
        match read {
            Err(error) if !is_vanished(&error) => Err(error),
            _ => Ok(listed),
        }
    }

    /// Finds what may have changed by reading all names again.
    fn compare(&self, touched: &mut BTreeSet<CString>) -> io::Result<()> {
        let since = self.checked.checked_sub(CLOCKS_APART).unwrap_or(UNIX_EPOCH);
        let since = since.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let mut missing: BTreeSet<EntryId> = self.known.ids().collect();
        let read = self.read_again(|entry| match self.known.find(entry.name) {
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
        match read {
            // One that is no more keeps what it had; its end is told by the watch.
            Err(error) if is_vanished(&error) => return Ok(()),
            read => read?,
        }
        touched
            .extend(missing.into_iter().filter_map(|id| self.known.name(id)).map(CStr::to_owned));
        Ok(())
    }

    /// Reads all names again.
    fn read_again(&self, mut each: impl FnMut(FileName<'_>)) -> io::Result<()> {
        let mut buffer = vec![MaybeUninit::uninit(); 256 << 10];
        let directory = self.reader.directory.again()?;
        while directory.read(&mut buffer, &mut each)? {}
        Ok(())
    }

    /// Returns whether anything about a file may have changed since a second.
    fn has_changed(&self, name: &CStr, since: u64) -> bool {
        let Ok(status) = self.reader.directory.status(name, StatxFlags::CTIME) else { return true };
        let tells = status.stx_mask & StatxFlags::CTIME.bits() != 0;
        !tells || u64::try_from(status.stx_ctime.tv_sec).is_ok_and(|changed| changed >= since)
    }
}

/// Keeps others from looking at the directory and telling of it.
pub(super) fn alone<'m, 'a>(follower: &'m Mutex<Follower<'a>>) -> MutexGuard<'m, Follower<'a>> {
    follower.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Follows until the client or the directory is gone.
///
/// # Errors
///
/// The client is gone.
pub(super) fn run(
    follower: &Mutex<Follower<'_>>,
    watch: &DirectoryWatch,
    connection: &Connection,
) -> io::Result<()> {
    let mut pause = SHORTEST;
    let mut patience = None;
    loop {
        match watch.wait(connection, patience)? {
            Ready::HungUp => return Ok(()),
            Ready::Nothing if patience.is_none() => continue,
            Ready::Nothing | Ready::Changes => {}
        }
        {
            let mut follower = alone(follower);
            if follower.step()? == MoreToFollow::Nothing {
                return Ok(());
            }
            patience = follower.time_to_next_try();
        }
        if sys::watch::pause(connection, pause)? == Ready::HungUp {
            return Ok(());
        }
        let goes_on = watch.wait(connection, Some(Duration::ZERO))? == Ready::Changes;
        pause = if goes_on { (pause * 2).min(LONGEST) } else { SHORTEST };
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
