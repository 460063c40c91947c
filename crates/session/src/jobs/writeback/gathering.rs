//! Files that wait until the thread that writes takes them on: how many, how large, and of whom.
//!
//! Several threads put files in and one takes them out. What is here is bounded as a whole and for each sender, so that a
//! program that hands over more than the disk takes waits by itself, and the others do not wait with it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use sys::file_reference::{FileAttributes, FileReference};

/// How many bytes are gathered at least before a batch begins, unless no more come.
pub(super) const LEAST: u64 = 1 << 20;
/// How many bytes of one sender are gathered at most. It waits with the next file.
pub(super) const MOST_BYTES_OF_ONE: u64 = 8 << 20;
/// How many files of one sender are gathered at most.
pub(super) const MOST_OF_ONE: usize = 256;
/// How many bytes of all senders are gathered at most.
const MOST_BYTES: u64 = 2 * MOST_BYTES_OF_ONE;
/// How many files of all senders are gathered at most.
const MOST: usize = MOST_OF_ONE + MOST_OF_ONE / 2;
/// How many of those that were found from outside may come on top.
const MOST_FOUND: usize = MOST + MOST_OF_ONE / 2;
/// When so many have their turn, no more are taken: files that somebody waits for need not be many to have it.
const MOST_BEGUN: usize = 2 * MOST_OF_ONE;
/// When no file has come for so long, those that were gathered are started.
const QUIET: Duration = Duration::from_millis(20);
/// How often it is looked whether the job is still held.
const HELD: Duration = Duration::from_millis(100);

/// A file whose write-back is to be started.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) file: FileReference,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) length: u64,
}

impl Written {
    pub(super) fn new(file: FileReference, about: &FileAttributes) -> Written {
        let (device, inode) = (about.device_number(), about.inode);
        Written { file, device, inode, length: about.length }
    }
}

/// What the thread that writes does next.
#[derive(Debug)]
pub(super) enum Step {
    /// These files have their turn.
    Begin(Vec<Written>),
    /// When all that has begun is on its way, this socket is told.
    Tell(OwnedFd),
    /// All that has begun is to be on its way soon; the socket is closed then.
    Finish(OwnedFd),
    /// The same, and then it ends.
    End,
    /// What has begun goes on.
    GoOn,
}

/// What the thread that writes is doing.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriterState {
    /// How many files have their turn.
    pub(super) begun: usize,
    /// Whether the job is held, so that nothing is started.
    pub(super) is_held: bool,
}

/// Files that wait, shared by all threads.
#[derive(Debug)]
pub(super) struct Gathering {
    inside: Mutex<Inside>,
    changed: Condvar,
    /// Can be read when there may be room again.
    room: OwnedFd,
}

#[derive(Debug, Default)]
struct Inside {
    /// By device and inode: a file that comes again counts once.
    files: BTreeMap<(u64, u64), Written>,
    bytes: u64,
    /// Of whom they are: files and bytes. Those that were found from outside are nobody's.
    senders: HashMap<u32, (usize, u64)>,
    /// What comes before the files that are gathered now.
    steps: VecDeque<Step>,
    /// How many files have come in all.
    came: u64,
    /// How many files of `steps` and of the thread that writes have their turn.
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

    /// Says whether the files that are gathered are enough for a batch.
    fn is_due(&self) -> bool {
        let is_full = |of: &(usize, u64)| of.0 >= MOST_OF_ONE || of.1 >= MOST_BYTES_OF_ONE;
        self.bytes >= LEAST || self.files.len() >= MOST_OF_ONE || self.senders.values().any(is_full)
    }

    fn add(&mut self, written: Written) {
        let length = written.length;
        let before = self.files.insert((written.device, written.inode), written);
        let before = before.map_or(0, |before| before.length);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(length);
        self.came += 1;
    }

    fn take(&mut self) -> Vec<Written> {
        self.bytes = 0;
        self.senders.clear();
        std::mem::take(&mut self.files).into_values().collect()
    }

    /// Gives all that is gathered its turn, and then does `step`.
    fn after_all(&mut self, step: Step) {
        let files = self.take();
        self.queued += files.len();
        self.steps.push_back(Step::Begin(files));
        self.steps.push_back(step);
    }
}

impl Gathering {
    pub(super) fn new() -> io::Result<Gathering> {
        let room = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Gathering { inside: Mutex::default(), changed: Condvar::new(), room })
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        // Whoever panicked in between left numbers that only bound.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether `sender` may hand over another file now.
    pub(super) fn has_room_for(&self, sender: u32) -> bool {
        self.lock().has_room_for(sender)
    }

    /// Takes a file of `sender`, for whom there is room.
    pub(super) fn add(&self, written: Written, sender: u32) {
        let mut inside = self.lock();
        let of = inside.senders.entry(sender).or_default();
        *of = (of.0 + 1, of.1.saturating_add(written.length));
        inside.add(written);
        self.changed.notify_all();
    }

    /// Takes a file that was found from outside, and waits a moment for room; what does not fit is left to the kernel. Says whether it was taken.
    pub(super) fn add_found(&self, written: Written) -> bool {
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

    /// Gives all that is there its turn, and then has `waiting` told.
    pub(super) fn tell_after_all(&self, waiting: OwnedFd) {
        self.after_all(Step::Tell(waiting));
    }

    /// Has all that is there started soon, and then `asking` closed.
    pub(super) fn finish(&self, asking: OwnedFd) {
        self.after_all(Step::Finish(asking));
    }

    /// Has all that is there started soon, and ends the thread that writes.
    pub(super) fn end(&self) {
        self.after_all(Step::End);
    }

    fn after_all(&self, step: Step) {
        self.lock().after_all(step);
        self.changed.notify_all();
    }

    /// Can be read when there may be room where there was none.
    pub(super) fn room(&self) -> BorrowedFd<'_> {
        self.room.as_fd()
    }

    /// Takes note that room was looked for.
    pub(super) fn looked_for_room(&self) {
        // Nothing was said: it was looked for without being told.
        let _ = rustix::io::read(&self.room, &mut [0; 8]);
    }

    fn make_room(&self, inside: &mut Inside, begun: usize) {
        inside.begun = begun;
        self.changed.notify_all();
        // It says so already.
        let _ = rustix::io::write(&self.room, &1_u64.to_ne_bytes());
    }

    /// Returns what to do next, and waits for it: until files are there that are due, or none has come for a while, or somebody asks for all.
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
                // Whether it still is, is not known here.
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

    /// A file of some length, which is never opened.
    fn written(inode: u64, length: u64) -> Written {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        Written { file: FileReference::at(&here).unwrap(), device: 1, inode, length }
    }

    const IDLE: WriterState = WriterState { begun: 0, is_held: false };

    #[test]
    fn a_sender_that_hands_over_much_waits_and_others_do_not() {
        let gathering = Gathering::new().unwrap();
        for inode in 0..256 {
            assert!(gathering.has_room_for(7));
            gathering.add(written(inode, 10), 7);
        }
        assert!(!gathering.has_room_for(7) && gathering.has_room_for(8));
        gathering.add(written(1000, 9 << 20), 8);
        assert!(!gathering.has_room_for(8) && gathering.has_room_for(9));
        // Their turn makes room for all, and says so.
        assert!(matches!(gathering.next(IDLE), Step::Begin(files) if files.len() == 257));
        assert!(sys::socket::wait_readable(gathering.room(), Some(Duration::ZERO)).unwrap());
        gathering.looked_for_room();
        assert!(!sys::socket::wait_readable(gathering.room(), Some(Duration::ZERO)).unwrap());
        assert!(gathering.has_room_for(7) && gathering.has_room_for(8));
    }

    #[test]
    fn all_senders_together_are_bounded_too() {
        let gathering = Gathering::new().unwrap();
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
        // Whoever asks for all again and again gets no more in.
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
        let gathering = Gathering::new().unwrap();
        for _ in 0..3 {
            gathering.add(written(5, 500_000), 1);
        }
        assert_eq!(gathering.lock().bytes, 500_000);
    }

    #[test]
    fn few_files_have_their_turn_when_no_more_come() {
        let gathering = Gathering::new().unwrap();
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
