//! Reading attributes, by several threads, those that are wanted first.

use std::collections::{HashSet, VecDeque};
use std::ffi::CStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use store::stream::StreamBuilder;
use sys::device::Device;
use sys::dir::{OpenDirectory, Statx, StatxFlags, StatxTimestamp};
use sys::usage::waits_of_thread;

use super::connection::Connection;
use super::details::{Types, details};
use super::entry::{Attributes, EntryId, EntryKind, FileTime};
use super::fields::AttributeSet;
use super::intern::Strings;
use super::record::{self, AttributeRows, FORMAT, OwnerKind};
use super::scan::Names;
use sys::clock::Clock;

/// The first part has this many entries; each later one twice as many, up to the last of these.
const PART: std::ops::RangeInclusive<u32> = 64..=8192;
/// A part is sent before it is full after this time: a slow file system, or a network.
const PATIENCE: Duration = Duration::from_millis(40);
/// A file system is slow if an entry takes longer: cached ones take 1 to 2 µs, uncached ones 50 and more.
const SLOW: Duration = Duration::from_micros(25);
/// The first entries say nothing: they may be the first that are read at all.
const ENOUGH: u32 = 32;
/// It waits for at least one in so many entries: a block of ext4 has 16 inodes.
const WAITS: u32 = 16;
/// So many wanted entries are looked at and told together while a directory is followed.
const WANTED_PART: usize = 64;
/// No part of a slow file system has more entries.
const SLOW_PART: u32 = 1024;

/// What is to be read, shared by the threads that read it.
#[derive(Debug)]
pub(super) struct Work {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether the disk has a head that moves; looked up when it is slow.
    seeks: OnceLock<bool>,
    /// Where a test stops whoever has looked at what is wanted and has not told it.
    #[cfg(test)]
    stop: Mutex<Option<TestStop>>,
}

/// Says that somebody has looked, and waits until he may tell what he saw.
#[cfg(test)]
pub(super) type TestStop = (std::sync::mpsc::Sender<()>, std::sync::mpsc::Receiver<()>);

#[derive(Debug, Default)]
struct State {
    names: Vec<Arc<Names>>,
    /// Which of them are only looked at when they are wanted.
    only_wanted: Vec<bool>,
    /// The next part: which names, and which of them.
    next: (usize, u32),
    part: u32,
    wanted: VecDeque<Task>,
    /// The last question whether anything has changed: what answers it answers those before.
    check: Option<u32>,
    /// Whether reading takes long, so that more threads help.
    slow: bool,
    /// Whether all names are there.
    whole: bool,
    /// Whether the threads end.
    over: bool,
}

/// What a thread does next.
#[derive(Debug)]
enum Task {
    /// These one after another.
    Range(Arc<Names>, std::ops::Range<u32>),
    /// These, in any order.
    List(Vec<EntryId>),
    /// The details of these.
    Details(Vec<EntryId>),
    /// Whatever has changed, to answer the question of this number.
    Check(u32),
}

impl Work {
    pub(super) fn new() -> Work {
        let state = State { part: *PART.start(), ..State::default() };
        Work {
            state: Mutex::new(state),
            changed: Condvar::new(),
            seeks: OnceLock::new(),
            #[cfg(test)]
            stop: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds names whose attributes are to be read.
    pub(super) fn add(&self, names: Arc<Names>) {
        let mut state = self.state();
        state.names.push(names);
        state.only_wanted.push(false);
        self.changed.notify_all();
    }

    /// Adds names that are only looked at when they are wanted.
    pub(super) fn keep(&self, names: Arc<Names>) {
        let mut state = self.state();
        state.names.push(names);
        state.only_wanted.push(true);
    }

    /// Says that all names are there.
    pub(super) fn whole(&self) {
        self.state().whole = true;
        self.changed.notify_all();
    }

    /// Stops whoever looks at what is wanted next, before that is told.
    #[cfg(test)]
    pub(super) fn stop_next(&self, stop: TestStop) {
        *self.stop.lock().unwrap() = Some(stop);
    }

    /// Stops where a test wants that.
    #[cfg(test)]
    fn stop(&self) {
        let stop = self.stop.lock().unwrap().take();
        if let Some((looked, may_tell)) = stop {
            looked.send(()).unwrap();
            may_tell.recv().unwrap();
        }
    }

    /// Lets all threads end.
    pub(super) fn end(&self) {
        self.state().over = true;
        self.changed.notify_all();
    }

    /// Puts entries before all others.
    pub(super) fn want(&self, ids: Vec<EntryId>) {
        self.state().wanted.push_back(Task::List(ids));
        self.changed.notify_all();
    }

    /// Puts the details of entries before all others.
    pub(super) fn ask(&self, ids: Vec<EntryId>) {
        self.state().wanted.push_back(Task::Details(ids));
        self.changed.notify_all();
    }

    /// Has it told what has changed by then, and that it was told, once everything was read.
    pub(super) fn check(&self, question: u32) {
        self.state().check = Some(question);
        self.changed.notify_all();
    }

    /// Whether there are names whose attributes nobody reads yet.
    pub(super) fn is_left(&self) -> bool {
        let mut state = self.state();
        state.left().0 < state.names.len()
    }

    /// Takes in how long a part took, and how often it had to wait: a thread that others keep from running waits for
    /// nothing, and more threads would not help it.
    fn took(&self, rows: u32, time: Duration, waits: u64) {
        let waited = waits >= u64::from(rows / WAITS);
        if rows >= ENOUGH && waited && time > SLOW.saturating_mul(rows) {
            let mut state = self.state();
            if !state.slow {
                state.slow = true;
                self.changed.notify_all();
            }
        }
    }

    /// Whether reading takes long.
    fn is_slow(&self) -> bool {
        self.state().slow
    }

    /// Waits for something to do; `None` if there will be nothing more in this phase.
    fn next(&self, phase: Phase) -> Option<Task> {
        let mut state = self.state();
        loop {
            if state.over || phase == Phase::UntilSlow && state.slow {
                return None;
            }
            if phase == Phase::WhenSlow && !state.slow {
                if state.whole && state.names.len() <= state.left().0 {
                    return None;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if phase == Phase::Wanted
                && let Some(question) = state.check.take()
            {
                return Some(Task::Check(question));
            }
            if let Some(task) = state.wanted.pop_front() {
                return Some(task);
            }
            if let Some(task) = state.part() {
                return Some(task);
            }
            if phase != Phase::Wanted && state.whole {
                // Those who wait in case it gets slow need not wait longer.
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What a thread reads until it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Everything once.
    First,
    /// As the first, but only until a file system turns out to be slow.
    UntilSlow,
    /// As the first, but only when a file system turned out to be slow.
    WhenSlow,
    /// What is wanted after that, until the end.
    Wanted,
}

impl State {
    /// The next names that are to be read, and the first of them.
    fn left(&mut self) -> (usize, u32) {
        while self.only_wanted.get(self.next.0) == Some(&true) {
            self.next = (self.next.0 + 1, 0);
        }
        self.next
    }

    fn part(&mut self) -> Option<Task> {
        let (block, row) = self.left();
        let names = self.names.get(block)?;
        let most = if self.slow { SLOW_PART } else { *PART.end() };
        let end = names.count.min(row.saturating_add(self.part.min(most)));
        let task = Task::Range(Arc::clone(names), row..end);
        self.next = if end == names.count { (block + 1, 0) } else { (block, end) };
        self.part = self.part.saturating_mul(2).min(*PART.end());
        Some(task)
    }
}

/// What a thread needs to read attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) directory: &'a OpenDirectory,
    pub(super) fields: AttributeSet,
    pub(super) connection: &'a Connection,
    pub(super) work: &'a Work,
    pub(super) clock: &'a dyn Clock,
    pub(super) strings: &'a Strings<'a>,
    pub(super) types: &'a Types<'a>,
}

/// What a thread gathers.
#[derive(Debug)]
struct Gathered {
    rows: AttributeRows,
    builder: StreamBuilder,
    /// Users and groups whose names the client knows.
    owners: HashSet<(u32, u32)>,
}

impl Reader<'_> {
    /// Reads what there is to read, until the phase is over.
    ///
    /// # Errors
    ///
    /// The client is gone.
    pub(super) fn run(&self, phase: Phase) -> io::Result<()> {
        let mut gathered = self.gather();
        while let Some(task) = self.work.next(phase) {
            self.perform(task, &mut gathered)?;
        }
        Ok(())
    }

    /// Reads what is wanted after everything was read once, beside one who tells changes: `alone` keeps that one from it while what it returns is there, and `check` has it tell what has changed.
    ///
    /// # Errors
    ///
    /// The client is gone.
    pub(super) fn run_beside<Guard>(
        &self,
        alone: impl Fn() -> Guard,
        check: impl Fn(u32) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut gathered = self.gather();
        while let Some(task) = self.work.next(Phase::Wanted) {
            match task {
                // What is told later was seen later: neither looks while the other has not told yet.
                Task::List(ids) => {
                    for part in ids.chunks(WANTED_PART) {
                        let _alone = alone();
                        self.list(part, &mut gathered)?;
                    }
                }
                Task::Check(question) => check(question)?,
                task => self.perform(task, &mut gathered)?,
            }
        }
        Ok(())
    }

    fn perform(&self, task: Task, gathered: &mut Gathered) -> io::Result<()> {
        match task {
            Task::Range(names, range) => self.range(&names, range, gathered),
            Task::List(ids) => self.list(&ids, gathered),
            Task::Details(ids) => self.each(&ids, |id, name, kind| {
                let found = details(self.directory, self.types, id, name, kind);
                let mut builder = StreamBuilder::new(FORMAT);
                record::details(&found, &mut builder)?;
                self.connection.send(&builder)
            }),
            // Nobody follows: what has changed is not known, and who asks is not answered.
            Task::Check(_) => Ok(()),
        }
    }

    fn list(&self, ids: &[EntryId], gathered: &mut Gathered) -> io::Result<()> {
        self.each(ids, |id, name, kind| self.read(id, name, kind, gathered))?;
        #[cfg(test)]
        self.work.stop();
        self.send(gathered)
    }

    fn range(
        &self,
        names: &Names,
        range: std::ops::Range<u32>,
        gathered: &mut Gathered,
    ) -> io::Result<()> {
        let Some(view) = names.view() else { return Ok(()) };
        let (start, waits) = (self.clock.monotonic(), waits_of_thread());
        let count = range.len();
        if self.work.is_slow() && *self.work.seeks.get_or_init(|| is_rotational(self.directory)) {
            self.touch_by_inode(names, range.clone());
        }
        let mut since = start;
        for row in range {
            let Ok(index) = usize::try_from(row) else { continue };
            let kind = EntryKind::from_number(view.kinds[index]);
            // Only those are asked for here that the directory does not tell.
            if self.fields == AttributeSet::KIND && kind != EntryKind::Unknown {
                continue;
            }
            self.read(names.first + row, view.c_name(index), kind, gathered)?;
            if row % 16 == 15 && self.clock.monotonic().saturating_sub(since) >= PATIENCE {
                self.send(gathered)?;
                since = self.clock.monotonic();
            }
        }
        let took = self.clock.monotonic().saturating_sub(start);
        let waits = waits_of_thread().saturating_sub(waits);
        self.work.took(u32::try_from(count).unwrap_or(u32::MAX), took, waits);
        self.send(gathered)
    }

    /// Brings inodes into memory in the order in which they are on the disk, so that its head moves one way.
    fn touch_by_inode(&self, names: &Names, range: std::ops::Range<u32>) {
        let Some(view) = names.view() else { return };
        let mut rows: Vec<u32> = range.collect();
        rows.sort_unstable_by_key(|row| names.inode(*row));
        for row in rows {
            let Ok(index) = usize::try_from(row) else { continue };
            // Whatever is wrong is found again when it is read.
            let _ = self.directory.status(view.c_name(index), StatxFlags::INO);
        }
    }

    /// Calls `each` with those of the entries that there are, their names and the types of the directory.
    fn each(
        &self,
        ids: &[EntryId],
        mut each: impl FnMut(EntryId, &CStr, EntryKind) -> io::Result<()>,
    ) -> io::Result<()> {
        let names = self.work.state().names.clone();
        for id in ids {
            let after = names.partition_point(|names| names.first <= *id);
            let Some(names) = after.checked_sub(1).and_then(|at| names.get(at)) else { continue };
            let row = id - names.first;
            let Some(view) = names.view().filter(|_| row < names.count) else { continue };
            let Ok(index) = usize::try_from(row) else { continue };
            each(*id, view.c_name(index), EntryKind::from_number(view.kinds[index]))?;
        }
        Ok(())
    }

    /// Reads what is asked for of these entries and sends it, in parts.
    ///
    /// # Errors
    ///
    /// The client is gone.
    pub(super) fn read_all(&self, entries: &[(EntryId, &CStr, EntryKind)]) -> io::Result<()> {
        let mut gathered = self.gather();
        for part in entries.chunks(8192) {
            for (id, name, kind) in part {
                self.read(*id, name, *kind, &mut gathered)?;
            }
            self.send(&mut gathered)?;
        }
        Ok(())
    }

    fn gather(&self) -> Gathered {
        Gathered {
            rows: AttributeRows::new(self.fields),
            builder: StreamBuilder::new(FORMAT),
            owners: HashSet::new(),
        }
    }

    fn send(&self, gathered: &mut Gathered) -> io::Result<()> {
        if gathered.rows.is_empty() {
            return Ok(());
        }
        gathered.builder.clear();
        gathered.rows.write(&mut gathered.builder)?;
        self.connection.send(&gathered.builder)
    }

    /// Reads what is asked for of one entry.
    fn read(
        &self,
        id: EntryId,
        name: &CStr,
        kind: EntryKind,
        gathered: &mut Gathered,
    ) -> io::Result<()> {
        // A type by name needs no look at the file.
        let by_name_alone = self.fields == AttributeSet::MIME_TYPE && kind != EntryKind::Unknown;
        let mut known = if by_name_alone {
            Attributes { fields: self.fields, kind, ..Attributes::default() }
        } else {
            match self.directory.status(name, mask(self.fields)) {
                Ok(status) => attributes(&status, self.fields),
                Err(error) => {
                    let number = error.raw_os_error().unwrap_or(0);
                    gathered.rows.push_failure(id, kind, number);
                    return Ok(());
                }
            }
        };
        if known.kind == EntryKind::Link && self.fields.contains(AttributeSet::TARGET) {
            self.follow(name, &mut known)?;
        }
        if self.fields.contains(AttributeSet::MIME_TYPE) {
            let found = self.types.by_name(name.to_bytes(), known.kind);
            known.mime_type = found.map_or(Ok(0), |name| self.strings.number(name.as_bytes()))?;
        }
        let is_new = |owners: &mut HashSet<_>| owners.insert((known.user, known.group));
        if self.fields.contains(AttributeSet::OWNER_NAMES) && is_new(&mut gathered.owners) {
            self.strings.owner(OwnerKind::User, known.user)?;
            self.strings.owner(OwnerKind::Group, known.group)?;
        }
        gathered.rows.push(id, &known);
        Ok(())
    }

    fn follow(&self, name: &CStr, known: &mut Attributes) -> io::Result<()> {
        if let Ok(target) = self.directory.target(name) {
            known.target = self.strings.number(&target)?;
        }
        let wanted = StatxFlags::TYPE | StatxFlags::MODE;
        known.target_mode =
            self.directory.target_status(name, wanted).map_or(0, |status| status.stx_mode);
        Ok(())
    }
}

/// Whether the directory is on a disk whose head moves.
fn is_rotational(directory: &OpenDirectory) -> bool {
    let Ok(status) = directory.own_status(StatxFlags::TYPE) else { return false };
    let number = (status.stx_dev_major, status.stx_dev_minor);
    let device = Device::numbered(Path::new("/sys"), number);
    device.and_then(|device| device.rotational).unwrap_or(false)
}

/// What to ask the file system for.
pub(super) fn mask(fields: AttributeSet) -> StatxFlags {
    const MASKS: [(AttributeSet, StatxFlags); 11] = [
        (AttributeSet::SIZE, StatxFlags::SIZE),
        (AttributeSet::MODE, StatxFlags::MODE),
        (AttributeSet::OWNER, StatxFlags::UID.union(StatxFlags::GID)),
        (AttributeSet::MODIFIED, StatxFlags::MTIME),
        (AttributeSet::ACCESSED, StatxFlags::ATIME),
        (AttributeSet::CHANGED, StatxFlags::CTIME),
        (AttributeSet::BORN, StatxFlags::BTIME),
        (AttributeSet::INODE, StatxFlags::INO),
        (AttributeSet::LINKS, StatxFlags::NLINK),
        (AttributeSet::BLOCKS, StatxFlags::BLOCKS),
        (AttributeSet::OWNER_NAMES, StatxFlags::UID.union(StatxFlags::GID)),
    ];
    let asked = MASKS.into_iter().filter(|(field, _)| fields.contains(*field));
    asked.fold(StatxFlags::TYPE, |mask, (_, flags)| mask | flags)
}

/// What the file system said.
fn attributes(status: &Statx, fields: AttributeSet) -> Attributes {
    let time = |time: StatxTimestamp| FileTime { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    let mut fields = fields;
    for (field, flag) in [
        (AttributeSet::BORN, StatxFlags::BTIME),
        (AttributeSet::MODIFIED, StatxFlags::MTIME),
        (AttributeSet::ACCESSED, StatxFlags::ATIME),
        (AttributeSet::CHANGED, StatxFlags::CTIME),
    ] {
        if status.stx_mask & flag.bits() == 0 {
            fields = fields.without(field);
        }
    }
    Attributes {
        fields,
        kind: EntryKind::from_mode(status.stx_mode),
        mode: status.stx_mode,
        size: status.stx_size,
        user: status.stx_uid,
        group: status.stx_gid,
        modified: time(status.stx_mtime),
        accessed: time(status.stx_atime),
        changed: time(status.stx_ctime),
        born: time(status.stx_btime),
        inode: status.stx_ino,
        links: status.stx_nlink,
        blocks: status.stx_blocks,
        device: (status.stx_rdev_major, status.stx_rdev_minor),
        file_system: (status.stx_dev_major, status.stx_dev_minor),
        ..Attributes::default()
    }
}
