//! Reading attributes, by several threads, those that are wanted first.

use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::stream::Builder;
use sys::dir::{Directory, Statx, StatxFlags, StatxTimestamp};

use super::connection::Connection;
use super::entry::{Attributes, EntryId, Kind, StringId, Timestamp};
use super::fields::Fields;
use super::record::{AttributeRows, FORMAT, StringRows};
use super::scan::Names;
use crate::clock::Clock;

/// The first part has this many entries; each later one twice as many, up to the last of these.
const PART: std::ops::RangeInclusive<u32> = 64..=8192;
/// A part is sent before it is full after this time: a slow file system, or a network.
const PATIENCE: Duration = Duration::from_millis(40);

/// What is to be read, shared by the threads that read it.
#[derive(Debug)]
pub(super) struct Work {
    state: Mutex<State>,
    changed: Condvar,
    strings: Mutex<Strings>,
}

#[derive(Debug, Default)]
struct State {
    names: Vec<Arc<Names>>,
    /// The next part: which names, and which of them.
    next: (usize, u32),
    part: u32,
    wanted: VecDeque<Vec<EntryId>>,
    /// Names that nobody has taken yet, or is not done with.
    left: u64,
    /// Whether all names are there.
    whole: bool,
    /// Whether the threads end.
    over: bool,
}

/// Strings that the client knows.
#[derive(Debug, Default)]
struct Strings {
    numbers: HashMap<Box<[u8]>, StringId>,
    rows: StringRows,
}

/// What a thread does next.
enum Task {
    /// These one after another.
    Range(Arc<Names>, std::ops::Range<u32>),
    /// These, in any order.
    List(Vec<EntryId>),
}

impl Work {
    pub(super) fn new() -> Work {
        let state = State { part: *PART.start(), ..State::default() };
        let strings = Mutex::new(Strings::default());
        Work { state: Mutex::new(state), changed: Condvar::new(), strings }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds names whose attributes are to be read.
    pub(super) fn add(&self, names: Arc<Names>) {
        let mut state = self.state();
        state.left += u64::from(names.count);
        state.names.push(names);
        self.changed.notify_all();
    }

    /// Adds names that are only looked at when they are wanted.
    pub(super) fn keep(&self, names: Arc<Names>) {
        let mut state = self.state();
        state.names.push(names);
        state.next = (state.names.len(), 0);
    }

    /// Says that all names are there.
    pub(super) fn whole(&self) {
        self.state().whole = true;
        self.changed.notify_all();
    }

    /// Lets all threads end.
    pub(super) fn end(&self) {
        self.state().over = true;
        self.changed.notify_all();
    }

    /// Puts entries before all others.
    pub(super) fn want(&self, ids: Vec<EntryId>) {
        self.state().wanted.push_back(ids);
        self.changed.notify_all();
    }

    /// Waits for something to do; `None` if there will be nothing more in this phase.
    fn next(&self, phase: Phase) -> Option<Task> {
        let mut state = self.state();
        loop {
            if state.over {
                return None;
            }
            if let Some(ids) = state.wanted.pop_front() {
                return Some(Task::List(ids));
            }
            if let Some(task) = state.part() {
                return Some(task);
            }
            if phase == Phase::First && state.whole {
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
    /// What is wanted after that, until the end.
    Wanted,
}

impl State {
    fn part(&mut self) -> Option<Task> {
        let (block, row) = self.next;
        let names = self.names.get(block)?;
        let end = names.count.min(row.saturating_add(self.part));
        let task = Task::Range(Arc::clone(names), row..end);
        self.next = if end == names.count { (block + 1, 0) } else { (block, end) };
        self.part = self.part.saturating_mul(2).min(*PART.end());
        Some(task)
    }
}

/// What a thread needs to read attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) directory: &'a Directory,
    pub(super) fields: Fields,
    pub(super) connection: &'a Connection,
    pub(super) work: &'a Work,
    pub(super) clock: &'a dyn Clock,
}

impl Reader<'_> {
    /// Reads what there is to read, until the phase is over.
    ///
    /// # Errors
    ///
    /// The client is gone.
    pub(super) fn run(&self, phase: Phase) -> io::Result<()> {
        let mut rows = AttributeRows::new(self.fields);
        let mut builder = Builder::new(FORMAT);
        while let Some(task) = self.work.next(phase) {
            match task {
                Task::Range(names, range) => self.range(&names, range, &mut rows, &mut builder)?,
                Task::List(ids) => self.list(&ids, &mut rows, &mut builder)?,
            }
        }
        Ok(())
    }

    fn range(
        &self,
        names: &Names,
        range: std::ops::Range<u32>,
        rows: &mut AttributeRows,
        builder: &mut Builder,
    ) -> io::Result<()> {
        let Some(view) = names.view() else { return Ok(()) };
        let mut since = self.clock.monotonic();
        for row in range {
            let Ok(index) = usize::try_from(row) else { continue };
            let kind = Kind::from_number(view.kinds[index]);
            self.read(names.first + row, view.c_name(index), kind, rows)?;
            if row % 16 == 15 && self.clock.monotonic().saturating_sub(since) >= PATIENCE {
                self.send(rows, builder)?;
                since = self.clock.monotonic();
            }
        }
        self.send(rows, builder)
    }

    fn list(
        &self,
        ids: &[EntryId],
        rows: &mut AttributeRows,
        builder: &mut Builder,
    ) -> io::Result<()> {
        let names = self.work.state().names.clone();
        for id in ids {
            let after = names.partition_point(|names| names.first <= *id);
            let Some(names) = after.checked_sub(1).and_then(|at| names.get(at)) else { continue };
            let row = id - names.first;
            let Some(view) = names.view().filter(|_| row < names.count) else { continue };
            let Ok(index) = usize::try_from(row) else { continue };
            let kind = Kind::from_number(view.kinds[index]);
            self.read(*id, view.c_name(index), kind, rows)?;
        }
        self.send(rows, builder)
    }

    fn send(&self, rows: &mut AttributeRows, builder: &mut Builder) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        builder.clear();
        rows.write(builder)?;
        self.connection.send(builder)
    }

    /// Reads what is asked for of one entry.
    fn read(
        &self,
        id: EntryId,
        name: &CStr,
        kind: Kind,
        rows: &mut AttributeRows,
    ) -> io::Result<()> {
        let status = match self.directory.status(name, mask(self.fields)) {
            Ok(status) => status,
            Err(error) => {
                rows.push_failure(id, kind, error.raw_os_error().unwrap_or(0));
                return Ok(());
            }
        };
        let mut known = attributes(&status, self.fields);
        if known.kind == Kind::Link && self.fields.contains(Fields::TARGET) {
            self.follow(name, &mut known)?;
        }
        rows.push(id, &known);
        Ok(())
    }

    fn follow(&self, name: &CStr, known: &mut Attributes) -> io::Result<()> {
        if let Ok(target) = self.directory.target(name) {
            known.target = self.string(&target)?;
        }
        let wanted = StatxFlags::TYPE | StatxFlags::MODE;
        known.target_mode =
            self.directory.target_status(name, wanted).map_or(0, |status| status.stx_mode);
        Ok(())
    }

    /// The number of a string; the client knows it before anything that speaks of it.
    fn string(&self, string: &[u8]) -> io::Result<StringId> {
        let mut strings = self.work.strings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = strings.numbers.get(string) {
            return Ok(*number);
        }
        let number = u32::try_from(strings.numbers.len() + 1).unwrap_or(0);
        strings.numbers.insert(string.into(), number);
        strings.rows.push(string)?;
        let mut builder = Builder::new(FORMAT);
        strings.rows.write(number, &mut builder)?;
        self.connection.send(&builder)?;
        Ok(number)
    }
}

/// What to ask the file system for.
pub(super) fn mask(fields: Fields) -> StatxFlags {
    const MASKS: [(Fields, StatxFlags); 10] = [
        (Fields::SIZE, StatxFlags::SIZE),
        (Fields::MODE, StatxFlags::MODE),
        (Fields::OWNER, StatxFlags::UID.union(StatxFlags::GID)),
        (Fields::MODIFIED, StatxFlags::MTIME),
        (Fields::ACCESSED, StatxFlags::ATIME),
        (Fields::CHANGED, StatxFlags::CTIME),
        (Fields::BORN, StatxFlags::BTIME),
        (Fields::INODE, StatxFlags::INO),
        (Fields::LINKS, StatxFlags::NLINK),
        (Fields::BLOCKS, StatxFlags::BLOCKS),
    ];
    let asked = MASKS.into_iter().filter(|(field, _)| fields.contains(*field));
    asked.fold(StatxFlags::TYPE, |mask, (_, flags)| mask | flags)
}

/// What the file system said.
fn attributes(status: &Statx, fields: Fields) -> Attributes {
    let time = |time: StatxTimestamp| Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    let mut fields = fields;
    for (field, flag) in [
        (Fields::BORN, StatxFlags::BTIME),
        (Fields::MODIFIED, StatxFlags::MTIME),
        (Fields::ACCESSED, StatxFlags::ATIME),
        (Fields::CHANGED, StatxFlags::CTIME),
    ] {
        if status.stx_mask & flag.bits() == 0 {
            fields = fields.without(field);
        }
    }
    Attributes {
        fields,
        kind: Kind::from_mode(status.stx_mode),
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
