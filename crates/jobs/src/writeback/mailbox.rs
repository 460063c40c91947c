//! The socket at which programs of the job with the preloaded library announce the files that they are about to close.
//!
//! A caller connects to a socket in a directory that only the job's user reaches, and names one of its descriptors. No descriptor
//! is passed: the file is reached through `/proc/PID/fd` of the process that the kernel names as the caller, without a call to its file
//! system, and only processes of the job are accepted. So a caller can name only files of its own.
//! It waits for an answer before it closes the descriptor; the number of waiting files is bounded.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::file_reference::FileReference;
use sys::socket::{self, Full};

use super::WritebackProgress;
use super::file_systems::FileSystems;
use super::gathering::{FileCollector, FlushCandidate};
use sys::clock::{Clock, SystemClock};

/// The backlog of the socket; further callers wait in `connect`.
pub const WAITING: i32 = 64;
/// The most connected callers.
const MOST_CALLERS: usize = 512;
/// The most connected callers of one process: each is a thread of it.
const MOST_CALLERS_OF_ONE: usize = 32;
/// The most callers that are accepted before the connected ones are served again.
const MOST_NEW: usize = 64;
/// The time after which a silent caller is disconnected if its place is needed. A program in the idle class on a busy machine may
/// not get a processor for longer between its two calls.
const SILENCE: Duration = Duration::from_secs(1);
/// The interval between two checks for silent callers while all places are taken.
const ROUND: Duration = Duration::from_millis(100);
/// How long the result for a process is cached: process numbers are reused.
const BELIEVED: Duration = Duration::from_millis(100);

/// The first word of each message. A message of this word alone requests an answer when all earlier files are started.
const FILE: u8 = b'f';
const SYNC: u8 = b's';
/// The length of a message about a file: the word, the descriptor at byte 4, the device at byte 8 and the inode at byte 16.
const FILE_MESSAGE: usize = 24;

/// The answers: the file was added, its pages are not written back here, the caller shall start write-back itself, or shall wait longer.
const TAKEN: &[u8] = b"k";
const NOT_HERE: &[u8] = b"x";
const REFUSED: &[u8] = b"n";
const WAIT: &[u8] = b"w";

/// A file that a caller has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NamedFile {
    number: u32,
    device: u64,
    inode: u64,
}

/// The request of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    HandOver(NamedFile),
    TellAfterAll,
}

impl Request {
    fn parse(message: &[u8]) -> Option<Request> {
        let number =
            |at: usize| Some(u64::from_ne_bytes(message.get(at..at + 8)?.try_into().ok()?));
        match message {
            [SYNC] => Some(Request::TellAfterAll),
            [FILE, ..] if message.len() == FILE_MESSAGE => {
                let descriptor = u32::from_ne_bytes(message.get(4..8)?.try_into().ok()?);
                let named =
                    NamedFile { number: descriptor, device: number(8)?, inode: number(16)? };
                Some(Request::HandOver(named))
            }
            _ => None,
        }
    }
}

struct Caller {
    socket: OwnedFd,
    process: u32,
    since: Duration,
    /// The request, if the caller was told to wait.
    request: Option<Request>,
}

/// What follows for a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallerOutcome {
    Stays,
    IsDone,
}

/// The mailbox for the programs of a job.
pub(super) struct Mailbox<F> {
    listener: OwnedFd,
    /// Returns whether a process belongs to the job.
    is_of_job: F,
    known: Vec<(u32, Duration)>,
    callers: Vec<Caller>,
    file_systems: FileSystems,
    gathering: Arc<FileCollector>,
    progress: Arc<WritebackProgress>,
    clock: SystemClock,
    user: u32,
}

impl<F: Fn(u32) -> bool> Mailbox<F> {
    pub(super) fn new(
        listener: OwnedFd,
        is_of_job: F,
        gathering: Arc<FileCollector>,
        progress: Arc<WritebackProgress>,
    ) -> Mailbox<F> {
        Mailbox {
            listener,
            is_of_job,
            known: Vec::new(),
            callers: Vec::new(),
            file_systems: FileSystems::new(),
            gathering,
            progress,
            clock: SystemClock::start(),
            user: rustix::process::geteuid().as_raw(),
        }
    }

    /// Serves until the other end of `stopped` is closed.
    pub(super) fn serve(mut self, stopped: &OwnedFd) {
        while self.wait(stopped) {
            self.let_in();
            self.gathering.looked_for_room();
            let callers = std::mem::take(&mut self.callers);
            for mut caller in callers {
                if self.look_at(&mut caller) == CallerOutcome::Stays {
                    self.callers.push(caller);
                }
            }
        }
    }

    /// Waits for an event; returns false at the end.
    fn wait(&self, stopped: &OwnedFd) -> bool {
        let mut polled = vec![PollFd::new(stopped, PollFlags::IN)];
        let more = self.callers.len() < MOST_CALLERS;
        polled.push(PollFd::new(
            &self.listener,
            if more { PollFlags::IN } else { PollFlags::empty() },
        ));
        let room = self.gathering.room();
        let (mut is_silent, mut is_waiting) = (false, false);
        for caller in &self.callers {
            is_silent |= caller.request.is_none();
            is_waiting |= caller.request.is_some();
            // A waiting caller sends nothing more; only its hang-up is noticed.
            let wanted = if caller.request.is_none() { PollFlags::IN } else { PollFlags::empty() };
            polled.push(PollFd::new(&caller.socket, wanted));
        }
        if is_waiting {
            polled.push(PollFd::new(&room, PollFlags::IN));
        }
        let round = Timespec { tv_sec: 0, tv_nsec: i64::from(ROUND.subsec_nanos()) };
        let time = (is_silent && !more).then_some(round);
        // A signal ends the wait early, which does no harm.
        let _ = poll(&mut polled, time.as_ref());
        polled.first().is_some_and(|stopped| stopped.revents().is_empty())
    }

    /// Accepts new callers that are processes of the job and of the same user.
    fn let_in(&mut self) {
        let now = self.clock.monotonic();
        self.known.retain(|(_, since)| now.saturating_sub(*since) < BELIEVED);
        for _ in 0..MOST_NEW {
            if self.callers.len() >= MOST_CALLERS && !self.make_room(now, |_| true) {
                return;
            }
            let Ok(socket) = socket::accept_at(&self.listener) else { return };
            let Ok(peer) = sys::peer::credentials(&socket) else { continue };
            if peer.user != self.user || peer.process == 0 || !self.is_known(peer.process, now) {
                continue;
            }
            let process = peer.process;
            let is_its = |caller: &Caller| caller.process == process;
            let of_it = self.callers.iter().filter(|caller| is_its(caller)).count();
            if of_it < MOST_CALLERS_OF_ONE || self.make_room(now, is_its) {
                self.callers.push(Caller { socket, process, since: now, request: None });
            }
        }
    }

    /// Disconnects the callers that have been silent for too long, of those that `is_concerned` names; returns whether there were any.
    fn make_room(&mut self, now: Duration, is_concerned: impl Fn(&Caller) -> bool) -> bool {
        let before = self.callers.len();
        self.callers.retain(|caller| {
            let is_late = now.saturating_sub(caller.since) >= SILENCE;
            caller.request.is_some() || !is_late || !is_concerned(caller)
        });
        self.callers.len() < before
    }

    fn is_known(&mut self, process: u32, now: Duration) -> bool {
        if self.known.iter().any(|(known, _)| *known == process) {
            return true;
        }
        let is_known = (self.is_of_job)(process);
        if is_known {
            self.known.push((process, now));
        }
        is_known
    }

    fn look_at(&mut self, caller: &mut Caller) -> CallerOutcome {
        let is_new = caller.request.is_none();
        if is_new {
            let mut message = [0; FILE_MESSAGE];
            match socket::receive_bytes(&caller.socket, &mut message) {
                Ok(length) => caller.request = Request::parse(&message[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return CallerOutcome::Stays;
                }
                Err(_) => return CallerOutcome::IsDone,
            }
        }
        match caller.request {
            None => CallerOutcome::IsDone,
            Some(Request::TellAfterAll) => {
                answer(&caller.socket, WAIT);
                if let Ok(socket) = caller.socket.try_clone() {
                    self.gathering.tell_after_all(socket);
                }
                CallerOutcome::IsDone
            }
            Some(Request::HandOver(named)) => {
                if !is_new && has_gone(&caller.socket) {
                    return CallerOutcome::IsDone;
                }
                if !self.gathering.has_room_for(caller.process) {
                    if is_new {
                        answer(&caller.socket, WAIT);
                    }
                    return CallerOutcome::Stays;
                }
                let word = self.take(caller.process, named);
                answer(&caller.socket, word);
                CallerOutcome::IsDone
            }
        }
    }

    /// Adds the file that `process` has named, if it is the named one and can be written back here. Returns the answer.
    fn take(&mut self, process: u32, named: NamedFile) -> &'static [u8] {
        match self.file_systems.accept_descriptor(process, named.number) {
            Ok(true) => (),
            Ok(false) => return NOT_HERE,
            Err(_) => return REFUSED,
        }
        let Ok(file) = FileReference::of_descriptor(process, named.number) else { return REFUSED };
        let Ok(about) = file.attributes() else { return REFUSED };
        // A thread may have a descriptor table of its own, in which the number is another file.
        let is_named = (about.device_number(), about.inode) == (named.device, named.inode);
        if !is_named || !about.may_be_read_by(self.user) || !self.file_systems.accept(&about) {
            return REFUSED;
        }
        if about.length > 0 {
            self.gathering.add(FlushCandidate::new(file, &about), process);
            self.progress.handed_over.fetch_add(1, Ordering::Relaxed);
        }
        TAKEN
    }
}

/// Returns whether the other end has been closed.
fn has_gone(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|gone| gone > 0)
}

fn answer(socket: impl AsFd, word: &[u8]) {
    // It fails if the caller has ended.
    let _ = socket::send(socket, word, None, Full::Fail);
}
