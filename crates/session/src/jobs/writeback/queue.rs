//! What waits to be written: files are gathered while others are on their way, and go out in the order in which they lie on the disk.
//!
//! One batch is on its way while the next one gathers: on a disk that keeps up with the job batches are small, on one that does not they are large and cost it the fewest ways to and fro.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sys::sched::{start_writeback, wait_for_writeback};
use sys::socket::Full;

use super::Progress;
use crate::clock::Clock;

/// How many bytes are gathered at least, unless no more come.
const LEAST: u64 = 1 << 20;
/// How many bytes are gathered at most. Further files wait in the mailbox, and their program with them.
const MOST_BYTES: u64 = 8 << 20;
/// How many files are gathered at most.
const MOST: usize = 256;
/// How many of those that were found from outside may come on top: all of them are open here.
const MOST_FOUND: usize = MOST + MOST / 2;
/// When so many have their turn, no more are taken: files that somebody waits for need not be many to have it.
const MOST_BEGUN: usize = 2 * MOST;
/// How many bytes are on their way to the disk at a time. Whoever wants to read waits behind them, on a disk that takes requests as they come.
const WINDOW: i64 = 1 << 20;
/// How many bytes are started at a time: the disk has something to do while the next are made ready.
const PART: i64 = WINDOW / 2;
/// As how many bytes a part counts at least: a request takes its time, however short it is.
const LEAST_COST: i64 = 64 << 10;
/// File systems keep files up to this size apart from larger ones (ext4: `mb_stream_req`), so those that have no place yet are started apart, too.
const SMALL: u64 = 64 << 10;
/// How long the last files are given to go out a window at a time.
const FINISH: Duration = Duration::from_millis(800);

/// Why the next step is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// A file came, or a word.
    ToWork,
    /// Nothing came.
    ByTime,
}

/// What has its turn.
enum Work {
    Part(Part),
    /// Somebody who is to be told that all before was started.
    Told(OwnedFd),
}

/// A part of a file, from one place to another.
struct Part {
    file: Rc<File>,
    from: i64,
    to: i64,
}

impl Part {
    /// Returns as much of its beginning as is started at a time.
    fn first(&self) -> Part {
        let to = self.to.min(self.from.saturating_add(PART));
        Part { file: Rc::clone(&self.file), from: self.from, to }
    }

    fn cost(&self) -> i64 {
        (self.to - self.from).max(LEAST_COST)
    }
}

/// Files whose write-back is to be started: part by part, never more than a window on the way.
pub(super) struct Queue {
    /// By device and inode, with their lengths.
    gathered: BTreeMap<(u64, u64), (File, u64)>,
    gathered_bytes: u64,
    begun: VecDeque<Work>,
    on_the_way: VecDeque<Part>,
    cost_on_the_way: i64,
    progress: Arc<Progress>,
}

impl Queue {
    pub(super) fn new(progress: Arc<Progress>) -> Queue {
        Queue {
            gathered: BTreeMap::new(),
            gathered_bytes: 0,
            begun: VecDeque::new(),
            on_the_way: VecDeque::new(),
            cost_on_the_way: 0,
            progress,
        }
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(super) fn is_held(&self) -> bool {
        self.progress.held.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gathered.is_empty() && !self.is_busy()
    }

    /// Says whether there is something to do at once.
    pub(super) fn is_busy(&self) -> bool {
        !self.begun.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.gathered.len() >= MOST
            || self.gathered_bytes >= MOST_BYTES
            || self.begun.len() >= MOST_BEGUN
    }

    /// Takes a file on, if it is a regular one with something in it. Says so.
    pub(super) fn add(&mut self, file: File) -> bool {
        let Ok(metadata) = file.metadata() else { return false };
        let length = metadata.len();
        if !metadata.is_file() || length == 0 {
            return false;
        }
        // What is found when there is no more room is the flusher's.
        if self.gathered.len() < MOST_FOUND {
            let before = self.gathered.insert((metadata.dev(), metadata.ino()), (file, length));
            let before = before.map_or(0, |(_, length)| length);
            self.gathered_bytes = self.gathered_bytes.saturating_sub(before).saturating_add(length);
        }
        true
    }

    /// Gives all that is there its turn, and then tells `waiting`.
    pub(super) fn tell_after_all(&mut self, waiting: OwnedFd) {
        self.begin();
        self.begun.push_back(Work::Told(waiting));
    }

    /// Does the next part of the work: starts one part of a file, after it has waited for as much as that is too much.
    pub(super) fn step(&mut self, woken: Woken) {
        let is_due = self.gathered_bytes >= LEAST || self.is_full() || woken == Woken::ByTime;
        if self.begun.is_empty() && is_due {
            self.begin();
        }
        self.make_room();
        // Others may have come while it waited.
        if !self.is_held() {
            self.advance();
        }
    }

    /// Waits until the next part fits on the way.
    fn make_room(&mut self) {
        let Some(Work::Part(next)) = self.begun.front() else { return };
        let cost = next.first().cost();
        while self.cost_on_the_way > 0 && self.cost_on_the_way + cost > WINDOW {
            let Some(oldest) = self.on_the_way.pop_front() else { break };
            // It cannot be written: its program is told when it asks.
            let _ = wait_for_writeback(&*oldest.file, oldest.from, oldest.to - oldest.from);
            self.cost_on_the_way -= oldest.cost();
        }
    }

    fn advance(&mut self) {
        self.make_room();
        let whole = match self.begun.pop_front() {
            Some(Work::Part(part)) => part,
            Some(Work::Told(waiting)) => return tell(&waiting),
            None => return,
        };
        let part = whole.first();
        let to = part.to;
        if self.start(&part) {
            self.cost_on_the_way += part.cost();
            self.on_the_way.push_back(part);
        }
        if to < whole.to {
            self.begun.push_front(Work::Part(Part { from: to, ..whole }));
        }
    }

    /// Starts a part; says whether the file system can.
    fn start(&self, part: &Part) -> bool {
        // On one that cannot (FUSE, network) the flusher does it as always.
        let length = part.to - part.from;
        let started = start_writeback(&*part.file, part.from, length).is_ok();
        if started {
            self.progress.bytes.fetch_add(length.unsigned_abs(), Ordering::Relaxed);
        }
        started
    }

    /// Gives all gathered files their turn, in the order of their places on the disk.
    fn begin(&mut self) {
        self.gathered_bytes = 0;
        let mut files: Vec<_> = std::mem::take(&mut self.gathered)
            .into_iter()
            // What was deleted meanwhile, or replaced, needs no disk any more.
            .filter(|(_, (file, _))| file.metadata().is_ok_and(|metadata| metadata.nlink() > 0))
            .map(|((device, inode), (file, length))| {
                let place = sys::extents::first(&file);
                // Those that have a place first; the others get theirs now, in this order.
                ((device, place.is_none(), place, length > SMALL, inode), file, length)
            })
            .collect();
        files.sort_unstable_by_key(|&(key, ..)| key);
        self.begun.extend(files.into_iter().map(|(_, file, length)| {
            let to = i64::try_from(length).unwrap_or(i64::MAX);
            Work::Part(Part { file: Rc::new(file), from: 0, to })
        }));
    }

    /// Starts all that is left: a window at a time for a while, then the rest at once.
    pub(super) fn finish(&mut self, clock: &dyn Clock) {
        self.begin();
        let end = clock.monotonic() + FINISH;
        while self.is_busy() && clock.monotonic() < end {
            self.advance();
        }
        for work in std::mem::take(&mut self.begun) {
            match work {
                Work::Part(part) => drop(self.start(&part)),
                Work::Told(waiting) => tell(&waiting),
            }
        }
        // Nothing comes that would have to wait for them, and an open file keeps its file system mounted.
        self.on_the_way.clear();
        self.cost_on_the_way = 0;
    }
}

fn tell(waiting: &OwnedFd) {
    // It did not wait for so long.
    let _ = sys::socket::send(waiting, b"s", None, Full::Fail);
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::clock::SystemClock;

    fn queue() -> Queue {
        Queue::new(Arc::new(Progress::default()))
    }

    fn file(directory: &tempfile::TempDir, name: &str, length: usize) -> File {
        let path = directory.path().join(name);
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all(&vec![b'x'; length]).unwrap();
        File::open(&path).unwrap()
    }

    fn begun(queue: &Queue) -> Vec<(Option<u64>, i64)> {
        let parts = queue.begun.iter().filter_map(|work| match work {
            Work::Part(part) => Some((sys::extents::first(&*part.file), part.to)),
            Work::Told(_) => None,
        });
        parts.collect()
    }

    #[test]
    fn files_have_their_turn_in_the_order_of_their_places() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut queue = queue();
        for number in 0..40_usize {
            // What has a place lies in an order of its own, what has none comes behind it.
            let file = file(&directory, &(number * 7 % 40).to_string(), 4096 + number);
            if number % 2 == 0 {
                file.sync_all().unwrap();
            }
            assert!(queue.add(file));
        }
        queue.begin();
        let turns = begun(&queue);
        assert_eq!(turns.len(), 40);
        let places: Vec<u64> = turns.iter().filter_map(|&(place, _)| place).collect();
        assert!(places.is_sorted(), "{places:?}");
        let first_without = turns.iter().position(|(place, _)| place.is_none());
        assert!(first_without.is_none_or(|at| at == places.len()), "{turns:?}");
    }

    #[test]
    fn files_without_a_place_go_the_small_ones_first() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut queue = queue();
        for length in [100_000, 9, 65_536, 65_537, 70] {
            queue.add(file(&directory, &length.to_string(), length));
        }
        queue.begin();
        let lengths: Vec<i64> = begun(&queue).into_iter().map(|(_, length)| length).collect();
        let small = lengths.iter().take_while(|&&length| length <= 65_536).count();
        assert_eq!((lengths.len(), small), (5, 3), "{lengths:?}");
    }

    #[test]
    fn what_was_deleted_meanwhile_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut queue = queue();
        queue.add(file(&directory, "temporary", 9));
        queue.add(file(&directory, "kept", 5));
        std::fs::remove_file(directory.path().join("temporary")).unwrap();
        queue.finish(&SystemClock::start());
        assert_eq!(queue.progress.bytes.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn a_file_that_comes_again_counts_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut queue = queue();
        for _ in 0..3 {
            queue.add(file(&directory, "log", 5_000_000));
        }
        assert_eq!(queue.gathered_bytes, 5_000_000);
        assert!(!queue.is_full());
        queue.add(file(&directory, "another", 5_000_000));
        assert!(queue.is_full());
    }

    #[test]
    fn whoever_waits_is_told_when_all_before_is_on_its_way() {
        let directory = tempfile::tempdir().unwrap();
        let mut queue = queue();
        for name in ["a", "b", "c"] {
            queue.add(file(&directory, name, 1000));
        }
        let (ours, theirs) = sys::socket::pair().unwrap();
        queue.tell_after_all(theirs);
        queue.add(file(&directory, "behind", 1000));
        let mut word = [0; 4];
        for _ in 0..3 {
            assert!(sys::socket::receive(&ours, &mut word).is_err(), "too early");
            queue.step(Woken::ToWork);
        }
        queue.step(Woken::ToWork);
        assert_eq!(sys::socket::receive(&ours, &mut word).unwrap().length, 1);
        assert_eq!(queue.progress.bytes.load(Ordering::Relaxed), 3000);
    }
}
