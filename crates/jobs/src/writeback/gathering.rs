//! The files that wait for the writing thread: how many, how large, and from which sender.
//!
//! Several threads add files and one thread takes them. The queue is bounded as a whole and for each sender, so that only a
//! program that hands over more than the disk can write has to wait.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use sys::file_reference::{FileAttributes, FileReference};

/// The least bytes of a batch, unless no more files come.
pub(super) const LEAST: u64 = 1 << 20;
/// The most bytes of one sender. With its next file the sender waits.
pub(super) const MOST_BYTES_OF_ONE: u64 = 8 << 20;
/// The most files of one sender.
pub(super) const MOST_OF_ONE: usize = 256;
/// The most bytes of all senders.
const MOST_BYTES: u64 = 2 * MOST_BYTES_OF_ONE;
/// The most files of all senders.
const MOST: usize = MOST_OF_ONE + MOST_OF_ONE / 2;
/// The most files in addition that were found by the search.
const MOST_FOUND: usize = MOST + MOST_OF_ONE / 2;
/// The most files that are scheduled: a flush schedules files also when they are few.
const MOST_BEGUN: usize = 2 * MOST_OF_ONE;
/// The time without a new file after which the gathered files are started.
const QUIET: Duration = Duration::from_millis(20);
/// The interval between two checks whether the job is still held.
const HELD: Duration = Duration::from_millis(100);

/// A file whose write-back is to be started.
#[derive(Debug)]
pub(super) struct FlushCandidate {
    pub(super) file: FileReference,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) length: u64,
}

impl FlushCandidate {
    pub(super) fn new(file: FileReference, about: &FileAttributes) -> FlushCandidate {
        let (device, inode) = (about.device_number(), about.inode);
        FlushCandidate { file, device, inode, length: about.length }
    }
}

/// The next step of the writing thread.
#[derive(Debug)]
pub(super) enum Step {
    /// Schedule these files.
    Begin(Vec<FlushCandidate>),
    /// Send a message to this socket when everything that was scheduled is started.
    Tell(OwnedFd),
    /// Start everything that was scheduled soon, then close the socket.
    Finish(OwnedFd),
    /// Start everything that was scheduled soon, then end.
    End,
    /// Continue with the scheduled files.
    GoOn,
}

/// The state of the writing thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriterState {
    /// How many files are scheduled.
    pub(super) begun: usize,
    /// Whether the job is held; nothing is started then.
    pub(super) is_held: bool,
}

/// The files that wait, shared by all threads.
#[derive(Debug)]
pub(super) struct FileCollector {
    inside: Mutex<Inside>,
    changed: Condvar,
    /// Readable when there may be room again.
    room: OwnedFd,
}

#[derive(Debug, Default)]
struct Inside {
    /// The files by device and inode, so that each counts once.
    files: BTreeMap<(u64, u64), FlushCandidate>,
    bytes: u64,
    /// Files and bytes of each sender. Files that the search found have no sender.
    senders: HashMap<u32, (usize, u64)>,
    /// The steps before the files that are gathered now.
    steps: VecDeque<Step>,
    /// How many files were added in all.
    came: u64,
    /// How many files are scheduled, in `steps` and by the writing thread.
    queued: usize,
    begun: usize,
}

impl Inside {
    fn has_room_for(&self, sender: u32) -> bool {
        let (files, bytes) = self.senders.get(&sender).copied().unwrap_or_default();
        self.queued + self.begun < MOST_BEGUN
            && self.files.len() < MOST
            && self.bytes < MOST_BYTES
            && files < MOST_OF_ONE
            && bytes < MOST_BYTES_OF_ONE
    }

    /// Returns whether the gathered files are enough for a batch.
    fn is_due(&self) -> bool {
        let is_full = |of: &(usize, u64)| of.0 >= MOST_OF_ONE || of.1 >= MOST_BYTES_OF_ONE;
        self.bytes >= LEAST || self.files.len() >= MOST_OF_ONE || self.senders.values().any(is_full)
    }

    fn add(&mut self, written: FlushCandidate) {
        let length = written.length;
        let before = self.files.insert((written.device, written.inode), written);
        let before = before.map_or(0, |before| before.length);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(length);
        self.came += 1;
    }

    fn take(&mut self) -> Vec<FlushCandidate> {
        self.bytes = 0;
        self.senders.clear();
        std::mem::take(&mut self.files).into_values().collect()
    }

    /// Schedules all gathered files, followed by `step`.
    fn after_all(&mut self, step: Step) {
        let files = self.take();
        self.queued += files.len();
        self.steps.push_back(Step::Begin(files));
        self.steps.push_back(step);
    }
}

impl FileCollector {
    pub(super) fn new() -> io::Result<FileCollector> {
        let room = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(FileCollector { inside: Mutex::default(), changed: Condvar::new(), room })
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A panic leaves numbers that are only used as bounds.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is room for another file of `sender`.
    pub(super) fn has_room_for(&self, sender: u32) -> bool {
        self.lock().has_room_for(sender)
    }

    /// Adds a file of `sender`, for which there is room.
    pub(super) fn add(&self, written: FlushCandidate, sender: u32) {
        let mut inside = self.lock();
        let of = inside.senders.entry(sender).or_default();
        *of = (of.0 + 1, of.1.saturating_add(written.length));
        inside.add(written);
        self.changed.notify_all();
    }

    /// Adds a file that the search found, and waits a moment for room. The kernel's flusher writes a file that does not fit. Returns whether the file was added.
    pub(super) fn add_found(&self, written: FlushCandidate) -> bool {
        let mut inside = self.lock();
        if inside.files.len() >= MOST_FOUND {
            let full = |inside: &mut Inside| inside.files.len() >= MOST_FOUND;
            let waited = self.changed.wait_timeout_while(inside, HELD, full);
            inside = waited.unwrap_or_else(PoisonError::into_inner).0;
            if inside.files.len() >= MOST_FOUND {
                return false;
            }
        }
        inside.add(written);
        self.changed.notify_all();
        true
    }

    /// Schedules all files, and sends a message to `waiting` when they are started.
    pub(super) fn tell_after_all(&self, waiting: OwnedFd) {
        self.after_all(Step::Tell(waiting));
    }

    /// Has all files started soon, then `asking` closed.
    pub(super) fn finish(&self, asking: OwnedFd) {
        self.after_all(Step::Finish(asking));
    }

    /// Has all files started soon, then ends the writing thread.
    pub(super) fn end(&self) {
        self.after_all(Step::End);
    }

    fn after_all(&self, step: Step) {
        self.lock().after_all(step);
        self.changed.notify_all();
    }

    /// Readable when there may be room again.
    pub(super) fn room(&self) -> BorrowedFd<'_> {
        self.room.as_fd()
    }

    /// Clears the signal of room.
    pub(super) fn looked_for_room(&self) {
        // It fails if there was no signal.
        let _ = rustix::io::read(&self.room, &mut [0; 8]);
    }

    fn make_room(&self, inside: &mut Inside, begun: usize) {
        inside.begun = begun;
        self.changed.notify_all();
        // It fails only if it is readable already.
        let _ = rustix::io::write(&self.room, &1_u64.to_ne_bytes());
    }

    /// Waits for the next step: until a batch is complete, or no file has come for a while, or a flush is requested.
    pub(super) fn next(&self, writer: WriterState) -> Step {
        let mut inside = self.lock();
        if inside.begun != writer.begun {
            self.make_room(&mut inside, writer.begun);
        }
        let (mut is_quiet, mut has_waited) = (false, false);
        loop {
            if let Some(step) = inside.steps.pop_front() {
                if let Step::Begin(files) = &step {
                    inside.queued = inside.queued.saturating_sub(files.len());
                    self.make_room(&mut inside, writer.begun + files.len());
                }
                return step;
            }
            let is_empty = inside.files.is_empty();
            if writer.is_held {
                // Only the caller knows whether the job is still held.
                if has_waited {
                    return Step::GoOn;
                }
                has_waited = true;
            } else if writer.begun > 0 {
                return Step::GoOn;
            } else if !is_empty && (is_quiet || inside.is_due()) {
                let files = inside.take();
                self.make_room(&mut inside, files.len());
                return Step::Begin(files);
            }
            if is_empty && writer.begun == 0 {
                inside = self.changed.wait(inside).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let came = inside.came;
            let time = if writer.is_held { HELD } else { QUIET };
            let waited = self.changed.wait_timeout(inside, time);
            let (now, result) = waited.unwrap_or_else(PoisonError::into_inner);
            inside = now;
            is_quiet = result.timed_out() && inside.came == came;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a given length, which is never opened.
    fn written(inode: u64, length: u64) -> FlushCandidate {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        FlushCandidate { file: FileReference::at(&here).unwrap(), device: 1, inode, length }
    }

    const IDLE: WriterState = WriterState { begun: 0, is_held: false };

    #[test]
    fn a_sender_that_hands_over_much_waits_and_others_do_not() {
        let gathering = FileCollector::new().unwrap();
        for inode in 0..256 {
            assert!(gathering.has_room_for(7));
            gathering.add(written(inode, 10), 7);
        }
        assert!(!gathering.has_room_for(7) && gathering.has_room_for(8));
        gathering.add(written(1000, 9 << 20), 8);
        assert!(!gathering.has_room_for(8) && gathering.has_room_for(9));
        // Scheduling them makes room for all senders, and signals that.
        assert!(matches!(gathering.next(IDLE), Step::Begin(files) if files.len() == 257));
        assert!(sys::socket::wait_readable(gathering.room(), Some(Duration::ZERO)).unwrap());
        gathering.looked_for_room();
        assert!(!sys::socket::wait_readable(gathering.room(), Some(Duration::ZERO)).unwrap());
        assert!(gathering.has_room_for(7) && gathering.has_room_for(8));
    }

    #[test]
    fn all_senders_together_are_bounded_too() {
        let gathering = FileCollector::new().unwrap();
        let mut taken = 0;
        for sender in 0..100 {
            for inode in 0..20 {
                if gathering.has_room_for(sender) {
                    gathering.add(written(u64::from(sender) * 100 + inode, 10), sender);
                    taken += 1;
                }
            }
        }
        assert_eq!(taken, MOST);
        for inode in MOST..MOST_FOUND {
            assert!(gathering.add_found(written(1_000_000 + u64::try_from(inode).unwrap(), 1)));
        }
        assert!(!gathering.add_found(written(2_000_000, 1)));
        // A sender that flushes again and again cannot add more files.
        for _ in 0..10 {
            let (_, asking) = sys::socket::pair().unwrap();
            gathering.tell_after_all(asking);
            for sender in 0..100 {
                if gathering.has_room_for(sender) {
                    gathering.add(written(u64::from(sender), 10), sender);
                }
            }
        }
        let inside = gathering.lock();
        assert!(inside.queued + inside.files.len() <= MOST_BEGUN + MOST, "{}", inside.queued);
    }

    #[test]
    fn a_file_that_comes_again_counts_once() {
        let gathering = FileCollector::new().unwrap();
        for _ in 0..3 {
            gathering.add(written(5, 500_000), 1);
        }
        assert_eq!(gathering.lock().bytes, 500_000);
    }

    #[test]
    fn few_files_have_their_turn_when_no_more_come() {
        let gathering = FileCollector::new().unwrap();
        gathering.add(written(5, 10), 1);
        assert!(matches!(gathering.next(IDLE), Step::Begin(files) if files.len() == 1));
        gathering.add(written(6, 10), 1);
        let busy = WriterState { begun: 3, is_held: false };
        assert!(matches!(gathering.next(busy), Step::GoOn), "the next batch begins after this one");
        let held = WriterState { begun: 0, is_held: true };
        assert!(matches!(gathering.next(held), Step::GoOn), "nothing begins while it is held");
        let (_ours, asking) = sys::socket::pair().unwrap();
        gathering.finish(asking);
        assert!(matches!(gathering.next(held), Step::Begin(files) if files.len() == 1));
        assert!(matches!(gathering.next(held), Step::Finish(_)));
    }
}
