//! What a simulated disk holds: what readers see, what is durable, and what is on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::FaultEffect;
use crate::disk::FileStat;

/// More images than this are a protocol that is too large to explore whole.
const MAX_IMAGES: usize = 100_000;
/// What a device writes whole or not at all; a part of one is explored too.
pub(super) const SECTOR: usize = 512;
const MAX_LINKS: usize = 40;
/// In how many runs of sectors a write that is cut off may be torn.
const MAX_RUNS: usize = 4;

/// How much of a call takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallExtent {
    Nothing,
    Partial,
    Whole,
    /// Nobody sees it, and a power cut leaves any part of it.
    InFlight,
}

/// What is planned to fail.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plan {
    pub(super) fail: Option<(u64, i32, FaultEffect)>,
    pub(super) stop: Option<(u64, i32)>,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    pub(super) ticks: i128,
    pub(super) tokens: u64,
    pub(super) shares: bool,
    /// A directory that a power cut empties.
    pub(super) memory: Option<u64>,
    /// The files that are locked. Locks are no part of what a disk holds: they end with their holder.
    pub(super) locked: BTreeSet<PathBuf>,
    pub(super) plan: Plan,
    pub(super) history: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    Dir(Dir),
    File(FileNode),
    Link(PathBuf),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    pub(super) seen: BTreeMap<OsString, u64>,
    durable: BTreeMap<OsString, u64>,
    pending: Vec<Change>,
}

/// A change of names in one directory; each is atomic.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Link(OsString, u64),
    Unlink(OsString),
    Rename(OsString, OsString, u64),
    /// Two names with what each stands for from now on.
    Exchange([(OsString, u64); 2]),
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileNode {
    pub(super) seen: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    pending: Vec<Write>,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) mtime: i128,
    pub(super) ctime: i128,
    /// How many writers hold it open and locked.
    pub(super) writers: usize,
}

#[derive(Clone, Debug)]
struct Write {
    at: usize,
    bytes: Vec<u8>,
}

impl Default for State {
    fn default() -> State {
        State {
            nodes: BTreeMap::from([(ROOT, Node::Dir(Dir::default()))]),
            next: ROOT + 1,
            ticks: 1_000_000_000,
            tokens: 0,
            shares: false,
            memory: None,
            locked: BTreeSet::new(),
            plan: Plan::default(),
            history: Vec::new(),
        }
    }
}

const ROOT: u64 = 1;

impl State {
    /// Counts a call; returns how much of it happens and what it is answered if it fails.
    pub(super) fn step(&mut self, what: String) -> (CallExtent, Option<io::Error>) {
        let number = self.history.len() as u64;
        self.history.push(what);
        self.ticks += 1_000_000;
        if let Some((call, errno)) = self.plan.stop
            && number >= call
        {
            let how = if number == call { CallExtent::InFlight } else { CallExtent::Nothing };
            return (how, Some(io::Error::from_raw_os_error(errno)));
        }
        match self.plan.fail {
            Some((call, errno, effect)) if call == number => {
                let how = match effect {
                    FaultEffect::Nothing => CallExtent::Nothing,
                    FaultEffect::Partial => CallExtent::Partial,
                    FaultEffect::Whole => CallExtent::Whole,
                };
                (how, Some(io::Error::from_raw_os_error(errno)))
            }
            _ => (CallExtent::Whole, None),
        }
    }

    pub(super) fn add(&mut self, node: Node) -> u64 {
        self.next += 1;
        self.nodes.insert(self.next, node);
        self.next
    }

    /// Adds an empty file that no directory names.
    pub(super) fn add_file(&mut self, mode: u32) -> u64 {
        let (mtime, ctime) = (self.ticks, self.ticks);
        self.add(Node::File(FileNode { mode, mtime, ctime, ..FileNode::default() }))
    }

    pub(super) fn node(&self, number: u64) -> io::Result<&Node> {
        self.nodes.get(&number).ok_or_else(|| Errno::NOENT.into())
    }

    pub(super) fn dir(&mut self, number: u64) -> io::Result<&mut Dir> {
        match self.nodes.get_mut(&number) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(_) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    pub(super) fn file(&mut self, number: u64) -> io::Result<&mut FileNode> {
        match self.nodes.get_mut(&number) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(Errno::ISDIR.into()),
            Some(Node::Link(_)) => Err(Errno::LOOP.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// Finds the directory that holds `path`, its last name, and what that name stands for, if anything.
    pub(super) fn place(&self, path: &Path) -> io::Result<(u64, OsString, Option<u64>)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let above = self.find(path.parent().ok_or(Errno::INVAL)?)?;
        let Node::Dir(dir) = self.node(above)? else { return Err(Errno::NOTDIR.into()) };
        Ok((above, name.to_owned(), dir.seen.get(name).copied()))
    }

    /// Finds what `path` stands for, following symlinks.
    pub(super) fn find(&self, path: &Path) -> io::Result<u64> {
        let mut way = vec![ROOT];
        let mut left = MAX_LINKS;
        self.walk(&mut way, path, &mut left)?;
        Ok(way.last().copied().unwrap_or(ROOT))
    }

    /// Goes on along `path`; `way` holds the directories on the way, so that `..` finds back.
    fn walk(&self, way: &mut Vec<u64>, path: &Path, left: &mut usize) -> io::Result<()> {
        for component in path.components() {
            match component {
                Component::RootDir => way.truncate(1),
                Component::ParentDir if way.len() > 1 => {
                    way.pop();
                }
                Component::Normal(name) => {
                    let at = way.last().copied().unwrap_or(ROOT);
                    let Node::Dir(dir) = self.node(at)? else { return Err(Errno::NOTDIR.into()) };
                    let next = dir.seen.get(name).copied().ok_or(Errno::NOENT)?;
                    match self.node(next)? {
                        Node::Link(target) => {
                            *left = left.checked_sub(1).ok_or(Errno::LOOP)?;
                            self.walk(way, target, left)?;
                        }
                        Node::Dir(_) | Node::File(_) => way.push(next),
                    }
                }
                Component::ParentDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn seed_dir(&mut self, path: &Path) -> u64 {
        let mut at = ROOT;
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            let found = self.dir(at).ok().and_then(|dir| dir.seen.get(name).copied());
            at = found.unwrap_or_else(|| {
                let made = self.add(Node::Dir(Dir::default()));
                self.seed_name(at, name, made);
                made
            });
        }
        at
    }

    pub(super) fn seed_file(&mut self, path: &Path, contents: &[u8]) {
        let (mtime, ctime) = (self.ticks, self.ticks);
        let seen = Arc::new(contents.to_vec());
        let durable = seen.clone();
        let node = FileNode { seen, durable, mode: 0o600, mtime, ctime, ..FileNode::default() };
        self.seed(path, Node::File(node));
    }

    pub(super) fn seed_link(&mut self, path: &Path, target: &Path) {
        self.seed(path, Node::Link(target.to_owned()));
    }

    fn seed(&mut self, path: &Path, node: Node) {
        let dir = self.seed_dir(path.parent().unwrap_or(Path::new("/")));
        let number = self.add(node);
        self.seed_name(dir, path.file_name().unwrap_or(OsStr::new("")), number);
    }

    fn seed_name(&mut self, dir: u64, name: &OsStr, number: u64) {
        if let Ok(dir) = self.dir(dir) {
            dir.seen.insert(name.to_owned(), number);
            dir.durable.insert(name.to_owned(), number);
        }
    }

    /// Returns every state that a power cut may leave, `None` if they are too many.
    pub(super) fn after_power_cut(&self) -> Option<Vec<State>> {
        let nodes = self.nodes.clone();
        let (plan, history, locked) = (Plan::default(), Vec::new(), BTreeSet::new());
        let mut images = vec![State { nodes, plan, history, locked, ..*self }];
        let in_memory = self.in_memory();
        for (number, node) in &self.nodes {
            if in_memory.contains(number) {
                for image in &mut images {
                    match self.memory == Some(*number) {
                        true => image.nodes.insert(*number, Node::Dir(Dir::default())),
                        false => image.nodes.remove(number),
                    };
                }
                continue;
            }
            let left: Vec<Node> = match node {
                Node::Dir(dir) => dir.after_power_cut()?.into_iter().map(Node::Dir).collect(),
                Node::File(file) => file.after_power_cut()?.into_iter().map(Node::File).collect(),
                Node::Link(_) => continue,
            };
            // A file that no directory names any more is the same whatever it holds.
            let mut next = Vec::with_capacity(images.len() * left.len());
            for image in images {
                let some = if self.may_be_named(*number) { &left[..] } else { &left[..1] };
                for node in some {
                    let mut image = image.clone();
                    image.nodes.insert(*number, node.clone());
                    next.push(image);
                }
                if next.len() > MAX_IMAGES {
                    return None;
                }
            }
            images = next;
        }
        Some(images)
    }

    /// Returns the directory that a power cut empties, with all that is below it.
    fn in_memory(&self) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut left: Vec<u64> = self.memory.into_iter().collect();
        while let Some(number) = left.pop() {
            if found.insert(number)
                && let Some(Node::Dir(dir)) = self.nodes.get(&number)
            {
                left.extend(dir.seen.values());
            }
        }
        found
    }

    /// Tells whether a power cut takes away a file or directory.
    pub(super) fn is_in_memory(&self, number: u64) -> bool {
        self.in_memory().contains(&number)
    }

    fn may_be_named(&self, number: u64) -> bool {
        number == ROOT
            || self.nodes.values().any(|node| match node {
                Node::Dir(dir) => {
                    dir.durable.values().any(|named| *named == number)
                        || dir.pending.iter().any(|change| match change {
                            Change::Link(_, named) | Change::Rename(_, _, named) => {
                                *named == number
                            }
                            Change::Exchange(both) => {
                                both.iter().any(|(_, named)| *named == number)
                            }
                            Change::Unlink(_) => false,
                        })
                }
                Node::File(_) | Node::Link(_) => false,
            })
    }
}

impl Dir {
    /// Makes a change of names.
    pub(super) fn change(&mut self, change: Change, how: CallExtent) {
        if how == CallExtent::Nothing {
            return;
        }
        if how != CallExtent::InFlight {
            change.apply(&mut self.seen);
        }
        self.pending.push(change);
    }

    /// Makes the changes durable, in order.
    pub(super) fn sync(&mut self, how: CallExtent) {
        let count = match how {
            CallExtent::Nothing | CallExtent::InFlight => 0,
            CallExtent::Partial => self.pending.len() / 2,
            CallExtent::Whole => self.pending.len(),
        };
        for change in self.pending.drain(..count) {
            change.apply(&mut self.durable);
        }
    }

    /// Any subset of the pending changes may have been made durable: no file system promises an order.
    fn after_power_cut(&self) -> Option<Vec<Dir>> {
        let subsets = 1_usize.checked_shl(u32::try_from(self.pending.len()).ok()?)?;
        if subsets > MAX_IMAGES {
            return None;
        }
        let mut images = Vec::with_capacity(subsets);
        for subset in 0..subsets {
            let mut names = self.durable.clone();
            for (position, change) in self.pending.iter().enumerate() {
                if subset >> position & 1 == 1 {
                    change.apply(&mut names);
                }
            }
            images.push(Dir { seen: names.clone(), durable: names, pending: Vec::new() });
        }
        Some(images)
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<OsString, u64>) {
        match self {
            Change::Link(name, number) => {
                names.insert(name.clone(), *number);
            }
            Change::Unlink(name) => {
                names.remove(name);
            }
            Change::Rename(from, to, number) => {
                names.remove(from);
                names.insert(to.clone(), *number);
            }
            Change::Exchange(both) => names.extend(both.iter().cloned()),
        }
    }
}

impl FileNode {
    /// Writes into the cache: readers see it, and a sync makes it durable.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8], how: CallExtent) {
        let bytes = match how {
            CallExtent::Nothing => return,
            CallExtent::Partial => &bytes[..bytes.len() / 2],
            CallExtent::Whole | CallExtent::InFlight => bytes,
        };
        let write = Write { at, bytes: bytes.to_vec() };
        if how != CallExtent::InFlight {
            write.apply(Arc::make_mut(&mut self.seen));
        }
        self.pending.push(write);
    }

    /// Writes through to the medium, sector by sector.
    pub(super) fn write_through(&mut self, at: usize, bytes: &[u8], how: CallExtent) {
        let count = match how {
            CallExtent::Nothing => return,
            CallExtent::InFlight => {
                // A long write in a few runs of sectors, so that the images stay few enough.
                let run = (bytes.len() / MAX_RUNS).next_multiple_of(SECTOR).max(SECTOR);
                self.pending.extend(bytes.chunks(run).enumerate().map(|(number, sectors)| Write {
                    at: at + number * run,
                    bytes: sectors.to_vec(),
                }));
                return;
            }
            CallExtent::Partial => bytes.len() / SECTOR / 2 * SECTOR,
            CallExtent::Whole => bytes.len(),
        };
        let write = Write { at, bytes: bytes[..count].to_vec() };
        write.apply(Arc::make_mut(&mut self.seen));
        write.apply(Arc::make_mut(&mut self.durable));
    }

    /// Makes the contents durable. A failed sync drops what it did not write: readers see it as before, and no later
    /// sync writes it.
    pub(super) fn sync(&mut self, how: CallExtent) {
        let count = match how {
            CallExtent::InFlight => return,
            CallExtent::Nothing => 0,
            CallExtent::Partial => self.pending.len() / 2,
            CallExtent::Whole => self.pending.len(),
        };
        let half = (how == CallExtent::Partial).then(|| self.pending.get(count).cloned()).flatten();
        for write in self.pending.drain(..).take(count) {
            write.apply(Arc::make_mut(&mut self.durable));
        }
        if let Some(mut write) = half {
            write.bytes.truncate(write.bytes.len() / 2);
            write.apply(Arc::make_mut(&mut self.durable));
        }
    }

    /// Drops the pages that are not pending, so that readers see what the medium holds.
    pub(super) fn drop_clean(&mut self) {
        self.seen = self.durable.clone();
        for write in &self.pending {
            write.apply(Arc::make_mut(&mut self.seen));
        }
    }

    /// Any subset of the pending writes may have been made durable, each in part: a prefix, or its length without
    /// its bytes.
    fn after_power_cut(&self) -> Option<Vec<FileNode>> {
        let mut images = vec![self.durable.clone()];
        for write in &self.pending {
            let parts = write.parts(self.pending.len() == 1);
            if images.len() * (parts.len() + 1) > MAX_IMAGES {
                return None;
            }
            let mut next = images.clone();
            for part in &parts {
                next.extend(images.iter().cloned().map(|mut image| {
                    part.apply(Arc::make_mut(&mut image));
                    image
                }));
            }
            images = next;
        }
        let of = |bytes: Arc<Vec<u8>>| FileNode {
            seen: bytes.clone(),
            durable: bytes,
            pending: Vec::new(),
            writers: 0,
            ..self.clone()
        };
        Some(images.into_iter().map(of).collect())
    }
}

impl Write {
    fn apply(&self, file: &mut Vec<u8>) {
        if file.len() < self.at {
            file.resize(self.at, 0);
        }
        let (over, behind) = self.bytes.split_at(self.bytes.len().min(file.len() - self.at));
        file[self.at..self.at + over.len()].copy_from_slice(over);
        file.extend_from_slice(behind);
    }

    /// Returns what may be found of this write, besides nothing.
    fn parts(&self, alone: bool) -> Vec<Write> {
        let len = self.bytes.len();
        let mut cuts = vec![len / 2, len];
        if alone {
            cuts.extend([1.min(len), len.saturating_sub(1)]);
        }
        let mut parts: Vec<Write> = cuts
            .into_iter()
            .map(|cut| Write { at: self.at, bytes: self.bytes[..cut].to_vec() })
            .collect();
        if alone {
            parts.push(Write { at: self.at, bytes: vec![0; len] });
        }
        parts
    }
}

/// Finds the directory and the name for a file that must not be there.
pub(super) fn free_name(state: &State, path: &Path) -> io::Result<(u64, OsString)> {
    match state.place(path)? {
        (above, name, None) => Ok((above, name)),
        (_, _, Some(_)) => Err(Errno::EXIST.into()),
    }
}

/// Describes a node.
pub(super) fn stat_of(state: &State, number: u64) -> io::Result<FileStat> {
    let (kind, len, mode, owner, mtime_ns, ctime_ns) = match state.node(number)? {
        Node::Dir(_) => (0o040_000, 0, 0o700, (0, 0), 0, 0),
        Node::Link(_) => (0o120_000, 0, 0o777, (0, 0), 0, 0),
        Node::File(file) => {
            (0o100_000, file.seen.len(), file.mode, file.owner, file.mtime, file.ctime)
        }
    };
    let len = len as u64;
    Ok(FileStat { identity: (1, number), len, mtime_ns, ctime_ns, mode: kind | mode, owner })
}
