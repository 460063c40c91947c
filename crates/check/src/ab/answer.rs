//! Answers a program's questions: which calls succeed unmade, which begin later, which are made at once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::clock::{Clock, SystemClock};
use sys::seccomp::deciding::{CallVerdict, Handover, Listener, Question};

use super::change::{CallDifference, matches};

/// The most distinct files that are remembered of a run.
const FILES: usize = 10_000;

/// The intercepted calls of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct InterceptedCall {
    /// How many calls matched: those that were skipped or delayed, or would be in a run with the change.
    pub(super) matched: u64,
    /// By how much threads were held in all.
    pub(super) held: Duration,
    /// The files of the matching calls; none of a call without a descriptor.
    pub(super) files: BTreeMap<Option<PathBuf>, u64>,
}

/// Whether the change is made or only counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RunVariant {
    /// Matching calls are counted and made.
    Without,
    /// Matching calls are skipped or held.
    With,
}

/// The number of calls so far, for the thread that waits for the program.
#[derive(Clone, Debug, Default)]
pub(super) struct CallTally(Arc<Mutex<InterceptedCall>>);

impl CallTally {
    /// Returns the calls up to now.
    pub(super) fn read(&self) -> InterceptedCall {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, file: Option<PathBuf>, held: Duration) {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.matched += 1;
        asked.held += held;
        if asked.files.len() < FILES || asked.files.contains_key(&file) {
            *asked.files.entry(file).or_default() += 1;
        }
    }
}

/// Responds to calls in a thread of its own until no process of the program is left, which may be after the program's own end.
///
/// # Errors
///
/// The thread could not be created; the program must not be started, because its calls would not be answered.
pub(super) fn serve(
    handover: Handover,
    change: CallDifference,
    arm: RunVariant,
) -> io::Result<CallTally> {
    let tally = CallTally::default();
    let kept = tally.clone();
    sys::thread::spawn("answers", move || {
        // Without a listener there is no program either, and `spawn` says why.
        let Ok(listener) = handover.listener() else { return };
        SyscallResponder {
            listener,
            change,
            arm,
            clock: SystemClock::start(),
            held: BinaryHeap::new(),
            tally,
        }
        .work();
    })?;
    Ok(kept)
}

struct SyscallResponder {
    listener: Listener,
    change: CallDifference,
    arm: RunVariant,
    clock: SystemClock,
    /// Delayed calls: when to answer them, and their threads.
    held: BinaryHeap<Reverse<(Duration, u64)>>,
    tally: CallTally,
}

impl SyscallResponder {
    fn work(&mut self) {
        loop {
            let now = self.clock.monotonic();
            while let Some(Reverse((when, id))) = self.held.peek().copied() {
                if when > now {
                    break;
                }
                self.held.pop();
                // An error says that the thread was killed while it waited.
                let _ = self.listener.answer(id, CallVerdict::Make);
            }
            let wait =
                self.held.peek().map(|Reverse((when, _))| timespec(when.saturating_sub(now)));
            let mut ready = [PollFd::new(&self.listener, PollFlags::IN)];
            match poll(&mut ready, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => (),
                Err(_) => return,
            }
            let events = ready[0].revents();
            if events.contains(PollFlags::IN) {
                // An error says that the thread was killed before we heard it.
                if let Ok(question) = self.listener.receive() {
                    self.decide(&question);
                }
            } else if events.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                return;
            }
        }
    }

    fn decide(&mut self, question: &Question) {
        let is = |number: u32| i64::from(question.number) == i64::from(number);
        let skipped = self.change.skipped().iter().find(|kind| is(kind.number)).copied();
        let delay = self.change.delayed().iter().find(|(kind, _)| is(kind.number));
        let kind = skipped.or(delay.map(|(kind, _)| *kind));
        let file =
            kind.filter(|kind| CallDifference::names_a_file(*kind)).and_then(|_| file_of(question));
        let inside = match (self.change.pattern(), &file) {
            (None, _) => true,
            (Some(pattern), Some(file)) => matches(pattern, file.as_os_str().as_encoded_bytes()),
            (Some(_), None) => false,
        };
        if kind.is_none() || !inside {
            let _ = self.listener.answer(question.id, CallVerdict::Make);
            return;
        }
        let hold = delay.map_or(Duration::ZERO, |(_, by)| *by);
        match self.arm {
            RunVariant::Without => {
                self.tally.add(file, Duration::ZERO);
                let _ = self.listener.answer(question.id, CallVerdict::Make);
            }
            RunVariant::With if skipped.is_some() => {
                self.tally.add(file, Duration::ZERO);
                let _ = self.listener.answer(question.id, CallVerdict::Succeed);
            }
            RunVariant::With => {
                self.tally.add(file, hold);
                self.held.push(Reverse((self.clock.monotonic() + hold, question.id)));
            }
        }
    }
}

/// Returns the file that the first argument of a call is a descriptor of.
fn file_of(question: &Question) -> Option<PathBuf> {
    let descriptor = u32::try_from(question.arguments[0] & 0xffff_ffff).ok()?;
    // The thread's own table: it waits, but another of its process may replace the descriptor; that is the program's race, too.
    let link = format!("/proc/{}/fd/{descriptor}", question.thread);
    let path = rustix::fs::readlink(link, Vec::new()).ok()?.into_bytes();
    Some(PathBuf::from(std::ffi::OsString::from_vec(path)))
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
