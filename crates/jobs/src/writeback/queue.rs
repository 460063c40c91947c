//! The queue of files to write: files are collected while others are written, and are written in the order of their positions on the disk.
//!
//! One batch is written while the next one gathers: a disk that keeps up with the job gets small batches, a slower one gets large batches, which cost it the fewest seeks.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sys::sched::{start_writeback, wait_for_writeback};
use sys::socket::Full;

use super::WritebackProgress;
use super::gathering::{FlushCandidate, Step, WriterState};
use sys::clock::Clock;

/// The window: the most bytes that are in write-back at a time. On a disk without an I/O scheduler, reads wait behind them.
const WINDOW: i64 = 1 << 20;
/// The bytes that are started at a time: the disk is busy while the next part is prepared.
const PART: i64 = WINDOW / 2;
/// The least bytes for which a part counts: also a short request takes time.
const LEAST_COST: i64 = 64 << 10;
/// File systems place files up to this size apart from larger ones (ext4: `mb_stream_req`), so files without a position are started apart, too.
const SMALL: u64 = 64 << 10;
/// How long the last files are written a window at a time.
const FINISH: Duration = Duration::from_millis(800);

/// A scheduled item.
enum QueueItem {
    Part(FileRange),
    /// A sender that waits until everything before is started.
    Tell(OwnedFd),
}

/// A range of a file.
struct FileRange {
    file: Rc<File>,
    from: i64,
    to: i64,
}

impl FileRange {
    /// Returns its beginning, as long as one part.
    fn first(&self) -> FileRange {
        let to = self.to.min(self.from.saturating_add(PART));
        FileRange { file: Rc::clone(&self.file), from: self.from, to }
    }

    fn cost(&self) -> i64 {
        (self.to - self.from).max(LEAST_COST)
    }
}

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continue {
    Yes,
    No,
}

/// The files whose write-back is to be started, part by part, with never more than a window in write-back.
pub(super) struct Queue {
    begun: VecDeque<QueueItem>,
    on_the_way: VecDeque<FileRange>,
    cost_on_the_way: i64,
    progress: Arc<WritebackProgress>,
}

impl Queue {
    pub(super) fn new(progress: Arc<WritebackProgress>) -> Queue {
        Queue { begun: VecDeque::new(), on_the_way: VecDeque::new(), cost_on_the_way: 0, progress }
    }

    pub(super) fn state(&self) -> WriterState {
        WriterState { begun: self.begun.len(), is_held: self.is_held() }
    }

    fn is_held(&self) -> bool {
        self.progress.held.load(Ordering::Relaxed)
    }

    /// Executes the next step, then a part of the scheduled files. Returns false at the end.
    pub(super) fn go(&mut self, step: Step, clock: &dyn Clock) -> Continue {
        match step {
            Step::Begin(files) => self.begin(files),
            Step::Tell(waiting) => self.begun.push_back(QueueItem::Tell(waiting)),
            Step::Finish(asking) => {
                if !self.is_held() {
                    self.finish(clock);
                }
                // The sender notices the closed socket.
                drop(asking);
            }
            Step::End => {
                self.finish(clock);
                return Continue::No;
            }
            Step::GoOn => (),
        }
        if !self.is_held() {
            self.advance();
        }
        Continue::Yes
    }

    /// Waits until the next part fits into the window.
    fn make_room(&mut self) {
        let Some(QueueItem::Part(next)) = self.begun.front() else { return };
        let cost = next.first().cost();
        while self.cost_on_the_way > 0 && self.cost_on_the_way + cost > WINDOW {
            let Some(oldest) = self.on_the_way.pop_front() else { break };
            // The file cannot be written; `fsync` reports that to its program.
            let _ = wait_for_writeback(&*oldest.file, oldest.from, oldest.to - oldest.from);
            self.cost_on_the_way -= oldest.cost();
        }
    }

    fn advance(&mut self) {
        self.make_room();
        let whole = match self.begun.pop_front() {
            Some(QueueItem::Part(part)) => part,
            Some(QueueItem::Tell(waiting)) => return tell(&waiting),
            None => return,
        };
        let part = whole.first();
        let to = part.to;
        if self.start(&part) {
            self.cost_on_the_way += part.cost();
            self.on_the_way.push_back(part);
        }
        if to < whole.to {
            self.begun.push_front(QueueItem::Part(FileRange { from: to, ..whole }));
        }
    }

    /// Starts a part; returns whether the file system supports that.
    fn start(&self, part: &FileRange) -> bool {
        // On others (FUSE, network) the kernel's flusher writes the file as always.
        let length = part.to - part.from;
        let started = start_writeback(&*part.file, part.from, length).is_ok();
        if started {
            self.progress.bytes.fetch_add(length.unsigned_abs(), Ordering::Relaxed);
        }
        started
    }

    /// Schedules files in the order of their positions on the disk.
    fn begin(&mut self, files: Vec<FlushCandidate>) {
        let opened = files.into_iter().filter_map(|written| {
            // Files that were deleted or replaced meanwhile need no write-back.
            if written.file.attributes().ok()?.links == 0 {
                return None;
            }
            let file = written.file.open_for_reading().ok()?;
            let place = sys::extents::first(&file);
            // Files that have a position come first; the others receive theirs now, in this order.
            let order =
                (written.device, place.is_none(), place, written.length > SMALL, written.inode);
            Some((order, file, written.length))
        });
        let mut files: Vec<_> = opened.collect();
        files.sort_unstable_by_key(|&(order, ..)| order);
        self.begun.extend(files.into_iter().map(|(_, file, length)| {
            let to = i64::try_from(length).unwrap_or(i64::MAX);
            QueueItem::Part(FileRange { file: Rc::new(file), from: 0, to })
        }));
    }

    /// Starts all remaining files: a window at a time for a while, then the rest at once.
    fn finish(&mut self, clock: &dyn Clock) {
        let end = clock.monotonic() + FINISH;
        while !self.begun.is_empty() && clock.monotonic() < end {
            self.advance();
        }
        for work in std::mem::take(&mut self.begun) {
            match work {
                QueueItem::Part(part) => drop(self.start(&part)),
                QueueItem::Tell(waiting) => tell(&waiting),
            }
        }
        // No further file has to wait for them, and an open file keeps its file system mounted.
        self.on_the_way.clear();
        self.cost_on_the_way = 0;
    }
}

fn tell(waiting: &OwnedFd) {
    // It fails if the caller has ended.
    let _ = sys::socket::send(waiting, b"d", None, Full::Fail);
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use sys::file_reference::FileReference;

    use super::*;
    use sys::clock::SystemClock;

    fn queue() -> Queue {
        Queue::new(Arc::new(WritebackProgress::default()))
    }

    fn file(directory: &tempfile::TempDir, name: &str, length: usize) -> FlushCandidate {
        let path = directory.path().canonicalize().unwrap().join(name);
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all(&vec![b'x'; length]).unwrap();
        let file = FileReference::at(&path).unwrap();
        let about = file.attributes().unwrap();
        FlushCandidate::new(file, &about)
    }

    fn begun(queue: &Queue) -> Vec<(Option<u64>, i64)> {
        let parts = queue.begun.iter().filter_map(|work| match work {
            QueueItem::Part(part) => Some((sys::extents::first(&*part.file), part.to)),
            QueueItem::Tell(_) => None,
        });
        parts.collect()
    }

    #[test]
    fn files_have_their_turn_in_the_order_of_their_places() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut queue = queue();
        let mut files = Vec::new();
        for number in 0..40_usize {
            // Files with a position come in its order, files without one behind them.
            let file = file(&directory, &(number * 7 % 40).to_string(), 4096 + number);
            if number % 2 == 0 {
                file.file.open_for_reading().unwrap().sync_all().unwrap();
            }
            files.push(file);
        }
        queue.begin(files);
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
        let lengths = [100_000, 9, 65_536, 65_537, 70];
        queue.begin(lengths.map(|length| file(&directory, &length.to_string(), length)).into());
        let lengths: Vec<i64> = begun(&queue).into_iter().map(|(_, length)| length).collect();
        let small = lengths.iter().take_while(|&&length| length <= 65_536).count();
        assert_eq!((lengths.len(), small), (5, 3), "{lengths:?}");
    }

    #[test]
    fn what_was_deleted_meanwhile_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut queue = queue();
        let files = vec![file(&directory, "temporary", 9), file(&directory, "kept", 5)];
        std::fs::remove_file(directory.path().join("temporary")).unwrap();
        let clock = SystemClock::start();
        assert_eq!(queue.go(Step::Begin(files), &clock), Continue::Yes);
        assert_eq!(queue.go(Step::End, &clock), Continue::No);
        assert_eq!(queue.progress.bytes.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn whoever_waits_is_told_when_all_before_is_on_its_way() {
        let directory = tempfile::tempdir().unwrap();
        let mut queue = queue();
        let clock = SystemClock::start();
        let files = ["a", "b", "c"].map(|name| file(&directory, name, 1000));
        queue.go(Step::Begin(files.into()), &clock);
        let (ours, theirs) = sys::socket::pair().unwrap();
        let mut word = [0; 4];
        queue.go(Step::Tell(theirs), &clock);
        queue.go(Step::Begin(vec![file(&directory, "behind", 1000)]), &clock);
        assert!(sys::socket::receive(&ours, &mut word).is_err(), "too early");
        queue.go(Step::GoOn, &clock);
        assert_eq!(sys::socket::receive(&ours, &mut word).unwrap().length, 1);
        assert_eq!(queue.progress.bytes.load(Ordering::Relaxed), 3000);
    }

    #[test]
    fn nothing_begins_while_the_job_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let mut queue = queue();
        let clock = SystemClock::start();
        queue.progress.held.store(true, Ordering::Relaxed);
        queue.go(Step::Begin(vec![file(&directory, "a", 1000)]), &clock);
        let (ours, theirs) = sys::socket::pair().unwrap();
        queue.go(Step::Finish(theirs), &clock);
        assert_eq!(sys::socket::receive(&ours, &mut [0; 4]).unwrap().length, 0, "it is answered");
        assert_eq!(queue.progress.bytes.load(Ordering::Relaxed), 0);
        queue.progress.held.store(false, Ordering::Relaxed);
        queue.go(Step::GoOn, &clock);
        assert_eq!(queue.progress.bytes.load(Ordering::Relaxed), 1000);
    }
}
