//! Reading attributes, by several threads, those that are wanted first.

use std::collections::{HashSet, VecDeque};
use std::ffi::CStr;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::stream::Builder;
use sys::dir::{Directory, Statx, StatxFlags, StatxTimestamp};

use super::connection::Connection;
use super::details::{Types, details};
use super::entry::{Attributes, EntryId, Kind, Timestamp};
use super::fields::Fields;
use super::intern::Strings;
use super::record::{self, AttributeRows, FORMAT, OwnerKind};
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
}

#[derive(Debug, Default)]
struct State {
    names: Vec<Arc<Names>>,
    /// The next part: which names, and which of them.
    next: (usize, u32),
    part: u32,
    wanted: VecDeque<Task>,
    /// Names that nobody has taken yet, or is not done with.
    left: u64,
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
}

impl Work {
    pub(super) fn new() -> Work {
        let state = State { part: *PART.start(), ..State::default() };
        Work { state: Mutex::new(state), changed: Condvar::new() }
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
        self.state().wanted.push_back(Task::List(ids));
        self.changed.notify_all();
    }

    /// Puts the details of entries before all others.
    pub(super) fn ask(&self, ids: Vec<EntryId>) {
        self.state().wanted.push_back(Task::Details(ids));
        self.changed.notify_all();
    }

    /// Waits for something to do; `None` if there will be nothing more in this phase.
    fn next(&self, phase: Phase) -> Option<Task> {
        let mut state = self.state();
        loop {
            if state.over {
                return None;
            }
            if let Some(task) = state.wanted.pop_front() {
                return Some(task);
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
    pub(super) strings: &'a Strings<'a>,
    pub(super) types: &'a Types<'a>,
}

/// What a thread gathers.
#[derive(Debug)]
struct Gathered {
    rows: AttributeRows,
    builder: Builder,
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
            match task {
                Task::Range(names, range) => self.range(&names, range, &mut gathered)?,
                Task::List(ids) => {
                    self.each(&ids, |id, name, kind| self.read(id, name, kind, &mut gathered))?;
                    self.send(&mut gathered)?;
                }
                Task::Details(ids) => self.each(&ids, |id, name, kind| {
                    let found = details(self.directory, self.types, id, name, kind);
                    let mut builder = Builder::new(FORMAT);
                    record::details(&found, &mut builder)?;
                    self.connection.send(&builder)
                })?,
            }
        }
        Ok(())
    }

    fn range(
        &self,
        names: &Names,
        range: std::ops::Range<u32>,
        gathered: &mut Gathered,
    ) -> io::Result<()> {
        let Some(view) = names.view() else { return Ok(()) };
        let mut since = self.clock.monotonic();
        for row in range {
            let Ok(index) = usize::try_from(row) else { continue };
            let kind = Kind::from_number(view.kinds[index]);
            self.read(names.first + row, view.c_name(index), kind, gathered)?;
            if row % 16 == 15 && self.clock.monotonic().saturating_sub(since) >= PATIENCE {
                self.send(gathered)?;
                since = self.clock.monotonic();
            }
        }
        self.send(gathered)
    }

    /// Calls `each` with those of the entries that there are, their names and the types of the directory.
    fn each(
        &self,
        ids: &[EntryId],
        mut each: impl FnMut(EntryId, &CStr, Kind) -> io::Result<()>,
    ) -> io::Result<()> {
        let names = self.work.state().names.clone();
        for id in ids {
            let after = names.partition_point(|names| names.first <= *id);
            let Some(names) = after.checked_sub(1).and_then(|at| names.get(at)) else { continue };
            let row = id - names.first;
            let Some(view) = names.view().filter(|_| row < names.count) else { continue };
            let Ok(index) = usize::try_from(row) else { continue };
            each(*id, view.c_name(index), Kind::from_number(view.kinds[index]))?;
        }
        Ok(())
    }

    /// Reads what is asked for of these entries and sends it, in parts.
    ///
    /// # Errors
    ///
    /// The client is gone.
    pub(super) fn read_all(&self, entries: &[(EntryId, &CStr, Kind)]) -> io::Result<()> {
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
            builder: Builder::new(FORMAT),
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
        kind: Kind,
        gathered: &mut Gathered,
    ) -> io::Result<()> {
        // A type by name needs no look at the file.
        let by_name_alone = self.fields == Fields::MIME_TYPE && kind != Kind::Unknown;
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
        if known.kind == Kind::Link && self.fields.contains(Fields::TARGET) {
            self.follow(name, &mut known)?;
        }
        if self.fields.contains(Fields::MIME_TYPE) {
            let found = self.types.by_name(name.to_bytes(), known.kind);
            known.mime_type = found.map_or(Ok(0), |name| self.strings.number(name.as_bytes()))?;
        }
        let is_new = |owners: &mut HashSet<_>| owners.insert((known.user, known.group));
        if self.fields.contains(Fields::OWNER_NAMES) && is_new(&mut gathered.owners) {
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

/// What to ask the file system for.
pub(super) fn mask(fields: Fields) -> StatxFlags {
    const MASKS: [(Fields, StatxFlags); 11] = [
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
        (Fields::OWNER_NAMES, StatxFlags::UID.union(StatxFlags::GID)),
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
