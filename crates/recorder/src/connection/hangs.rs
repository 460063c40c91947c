//! A session that records hangs: which threads are marked, and what the programs keep of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use hangs::kernel::{EventWaitKind, HangPrograms, ThreadMarker};
use kernelwork::kernel::WorkTracer;
use report::error::chain;
use rustix::io::Errno;
use sys::clock::Clock;
use sys::perf::{PausedEvent, SamplerEvent};
use sys::pidfd;
use trace::backend::bpf::served::hang_messages::{HangReply, HangRequest, WAITS_AT_ONCE};
use trace::backend::bpf::served::protocol::Reply;
use wakeups::kernel::WakeupTracer;

use super::{
    Connection, ConnectionEnd, OpenSession, SessionWork, answer, failed, no_session, pause,
};
use crate::caller::{Caller, is_ending};
use crate::events::{EventHandout, is_needed};
use crate::quota::SessionKind;

/// How long reports that do not wake anybody may lie in the ring: those about waits inside of an absence. The client, which
/// looks at threads that are away, asks for them much sooner.
const REST: Duration = Duration::from_secs(1);
/// The most messages of reports that are sent before the answer about a thread: more than the ring holds.
const ROUNDS: usize = 4;
/// The most messages with waits in one answer: more than their ring holds.
const WAIT_ROUNDS: usize = 8;

/// Shorter waits of other threads are not recorded when hangs are followed.
const SHORTEST: Duration = Duration::from_millis(5);

/// Shorter operations are not recorded each, in nanoseconds.
const SHORTEST_OPERATION: u64 = 10_000;

/// The least time between two beginnings to record who wakes whom, or operations: to attach programs stops all processors for a moment.
const FOLLOW_AGAIN: Duration = Duration::from_millis(200);

/// How long a caller who reads may take to receive descriptors: so many times a moment.
const MOMENTS: u32 = 20;
/// See `MOMENTS`.
const MOMENT: Duration = Duration::from_millis(1);

/// The programs of a session.
pub(super) struct HangSession {
    // It goes first: it uses a map of the others.
    /// Those that record operations of `io_uring`.
    operations: FollowedPrograms<WorkTracer>,
    programs: HangPrograms,
    events: EventHandout,
    /// Those that record who wakes whom.
    wakeups: FollowedPrograms<WakeupTracer>,
}

/// Programs that record only while the client wants it.
#[derive(Debug)]
struct FollowedPrograms<T> {
    /// None until they were wanted, and where the kernel does not take them.
    tracer: Option<T>,
    /// When they began to record the last time.
    began: Option<Duration>,
    /// Whether the kernel does not take them, which is in the log.
    is_refused: bool,
}

impl<T> Default for FollowedPrograms<T> {
    fn default() -> FollowedPrograms<T> {
        FollowedPrograms { tracer: None, began: None, is_refused: false }
    }
}

impl<T> FollowedPrograms<T> {
    /// Returns the programs, which are to record or not to; they are loaded the first time, and record then.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: it is too soon to begin again. `EOPNOTSUPP`: the kernel does not take them, of which `log` is told the reason once.
    fn get(
        &mut self,
        is_on: bool,
        clock: &dyn Clock,
        load: impl FnOnce() -> Result<T, String>,
        log: impl FnOnce(&str),
    ) -> Result<&mut T, Errno> {
        if is_on {
            let now = clock.monotonic();
            if self.began.is_some_and(|at| now.saturating_sub(at) < FOLLOW_AGAIN) {
                return Err(Errno::AGAIN);
            }
            self.began = Some(now);
        }
        if self.tracer.is_none() && !self.is_refused {
            match load() {
                Ok(tracer) => {
                    self.tracer = Some(tracer);
                    // To load them takes a while.
                    self.began = Some(clock.monotonic());
                }
                Err(why) => {
                    self.is_refused = true;
                    log(&why);
                }
            }
        }
        self.tracer.as_mut().ok_or(Errno::OPNOTSUPP)
    }
}

/// What is sent in messages of records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TakenRecords {
    Waits,
    Operations,
}

impl HangSession {
    /// Gives what was recorded to `each` until it takes no more; returns how many records were lost.
    fn take(&mut self, what: TakenRecords, each: impl FnMut(&[u8]) -> bool) -> io::Result<u64> {
        match what {
            TakenRecords::Waits => {
                let Some(tracer) = &mut self.wakeups.tracer else { return Ok(0) };
                tracer.offer(usize::MAX, each);
                tracer.lost()
            }
            TakenRecords::Operations => {
                let Some(tracer) = &mut self.operations.tracer else { return Ok(0) };
                tracer.offer_numbered(usize::MAX, each);
                Ok(tracer.losses()?.records)
            }
        }
    }

    /// As [`Ring::offer`](sys::bpf::Ring::offer).
    pub(super) fn offer(&mut self, most: usize, each: impl FnMut(&[u8]) -> bool) -> usize {
        self.programs.ring.offer(most, each)
    }
}

impl AsFd for HangSession {
    /// Readable when there are reports that are to be read soon.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.programs.ring.as_fd()
    }
}

impl Connection<'_> {
    /// Does what a client that records hangs asks for, and answers.
    pub(super) fn handle_hangs(&mut self, request: HangRequest) -> Result<(), ConnectionEnd> {
        let reply = match request {
            HangRequest::Open => self.open_hangs(),
            HangRequest::Mark { process, wait } => self.mark(process, wait),
            HangRequest::Unmark { process } => match self.hangs() {
                Some(session) => answer(session.programs.marker.unmark(process)),
                None => no_session(),
            },
            HangRequest::Classify { process, wait, is_loop } => {
                let kind = if is_loop { EventWaitKind::Loop } else { EventWaitKind::Nested };
                match self.hangs() {
                    Some(session) => {
                        answer(session.programs.marker.classify(process, wait.into(), kind))
                    }
                    None => no_session(),
                }
            }
            HangRequest::State { process } => {
                let Some(session) = self.hangs() else { return self.send(&no_session()) };
                let reply = match session.programs.marker.state_bytes(process) {
                    Ok(state) => Reply::Hangs(HangReply::State(state)),
                    Err(error) => failed(&error),
                };
                // What led to this state is in the ring by now, and is told first.
                for _ in 0..ROUNDS {
                    if !self.send_records()? {
                        break;
                    }
                }
                reply
            }
            HangRequest::Lost => match self.hangs().map(|session| session.programs.marker.lost()) {
                Some(Ok(lost)) => Reply::Hangs(HangReply::Lost(lost)),
                Some(Err(error)) => failed(&error),
                None => no_session(),
            },
            HangRequest::Follow { is_on } => self.follow(is_on),
            HangRequest::Waits => return self.send_taken(TakenRecords::Waits),
            HangRequest::FollowOperations { is_on } => self.follow_operations(is_on),
            HangRequest::Operations => return self.send_taken(TakenRecords::Operations),
            HangRequest::Event { process, event } => match self.event(process, event) {
                Ok(opened) => {
                    let reply = Reply::Hangs(HangReply::Event);
                    return self.send_with(&reply.write(), Some(opened.as_fd()));
                }
                Err(reply) => reply,
            },
        };
        self.send(&reply)
    }

    /// Records who wakes whom, or stops it.
    fn follow(&mut self, is_on: bool) -> Reply {
        let (owner, user, shared) = (self.caller.owner(), self.caller.user, self.shared);
        let Some(session) = self.hangs() else { return no_session() };
        // It is about all threads of the user, and not only about those that were marked.
        if !Caller::may_trace_all_his_own() {
            return Reply::Failed(Errno::OPNOTSUPP.raw_os_error());
        }
        let is_new = session.wakeups.tracer.is_none();
        if is_new && !is_on {
            return Reply::Done;
        }
        let load = || WakeupTracer::load_of(owner, SHORTEST).map_err(|error| chain(&error));
        let log = |why: &str| (shared.log)(&format!("user {user}: {why}"));
        match session.wakeups.get(is_on, &shared.clock, load, log) {
            Err(number) => Reply::Failed(number.raw_os_error()),
            Ok(_) if is_new => Reply::Done,
            Ok(tracer) if is_on => answer(tracer.resume()),
            Ok(tracer) => {
                tracer.pause();
                Reply::Done
            }
        }
    }

    /// Records operations of `io_uring` of the marked processes, or stops it; the programs are loaded the first time, also to say whether
    /// the kernel takes them.
    fn follow_operations(&mut self, is_on: bool) -> Reply {
        let (owner, user, shared) = (self.caller.owner(), self.caller.user, self.shared);
        let Some(session) = self.hangs() else { return no_session() };
        let is_new = session.operations.tracer.is_none();
        let marked = session.programs.marker.marked();
        let load = || {
            let marked = marked.ok_or("the marked threads are in no map")?;
            let tracer = WorkTracer::load_operations_of(owner, marked, SHORTEST_OPERATION)
                .map_err(|error| chain(&error))?;
            match tracer.unseen() {
                [] => Ok(tracer),
                unseen => Err(unseen.join("; ")),
            }
        };
        let log = |why: &str| (shared.log)(&format!("user {user}: {why}"));
        match session.operations.get(is_on, &shared.clock, load, log) {
            Err(number) => Reply::Failed(number.raw_os_error()),
            Ok(_) if is_new && is_on => Reply::Done,
            Ok(tracer) if is_on => answer(tracer.resume()),
            Ok(tracer) => {
                tracer.pause();
                Reply::Done
            }
        }
    }

    /// Sends what was recorded.
    fn send_taken(&mut self, what: TakenRecords) -> Result<(), ConnectionEnd> {
        for round in 1.. {
            let Some(session) = self.hangs() else { return self.send(&no_session()) };
            let (mut records, mut is_full) = (Vec::new(), false);
            let lost = session.take(what, |record| {
                let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
                is_full = records.len() + 4 + record.len() > WAITS_AT_ONCE;
                if !is_full {
                    records.extend(length.to_ne_bytes());
                    records.extend(record);
                }
                !is_full
            });
            let lost = match lost {
                Ok(lost) => lost,
                Err(error) => return self.send(&failed(&error)),
            };
            let is_last = !is_full || round == WAIT_ROUNDS;
            self.send(&Reply::Hangs(HangReply::Waits { records, lost, is_last }))?;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    fn hangs(&mut self) -> Option<&mut HangSession> {
        match &mut self.session.as_mut()?.work {
            SessionWork::Hangs(session) => Some(session),
            SessionWork::Trace(_) => None,
        }
    }

    fn open_hangs(&mut self) -> Reply {
        let share = match self.begin(SessionKind::Hangs) {
            Ok(share) => share,
            Err(reply) => return reply,
        };
        let what = "a session for hangs";
        let programs = match HangPrograms::load_for(self.caller.owner()) {
            Ok(programs) => programs,
            Err(error) => return self.began(what, Some(error)),
        };
        self.session = Some(OpenSession {
            work: SessionWork::Hangs(Box::new(HangSession {
                operations: FollowedPrograms::default(),
                programs,
                events: EventHandout::default(),
                wakeups: FollowedPrograms::default(),
            })),
            rest: REST,
            gather: Duration::ZERO,
            has_sent: false,
            _share: share,
        });
        self.began(what, None::<io::Error>)
    }

    /// Opens an event of a marked process's first thread; returns what the caller is told if there is none for him.
    fn event(&mut self, process: u32, event: SamplerEvent) -> Result<OwnedFd, Reply> {
        let failed_with = |number: Errno| Reply::Failed(number.raw_os_error());
        let (owner, user) = (self.caller.owner(), self.caller.user);
        let now = self.shared.clock.monotonic();
        let may_send = self.may_send_event();
        let Some(session) = self.hangs() else { return Err(no_session()) };
        let state = session.programs.marker.state_bytes(process);
        if !state.is_ok_and(|state| state.is_some()) {
            return Err(failed_with(Errno::NOENT));
        }
        if !is_needed(event) {
            return Err(failed_with(Errno::INVAL));
        }
        if !may_send || !session.events.take(now) {
            return Err(failed_with(Errno::AGAIN));
        }
        if let Err(error) = session.events.load_filter(owner) {
            (self.shared.log)(&format!("user {user}: {}", chain(&error)));
        }
        // Held, so that its number is no other process's meanwhile.
        let held = pidfd::open(process).map_err(|_| failed_with(Errno::SRCH))?;
        self.check_process(process)?;
        let paused = PausedEvent::open(process, event).map_err(|error| failed(&error))?;
        // It may have executed a program with other rights just before. From now on the event ends with that, and the program in
        // the kernel asks at each sample.
        self.check_process(process)?;
        if pidfd::has_ended(&held).unwrap_or(true) {
            return Err(failed_with(Errno::SRCH));
        }
        let Some(session) = self.hangs() else { return Err(no_session()) };
        let event = session.events.begin(paused).map_err(|error| failed(&error))?;
        session.events.count_sent();
        Ok(event)
    }

    /// Says whether one more descriptor may be on its way to the caller. One who reads has taken the earlier ones within moments.
    fn may_send_event(&mut self) -> bool {
        for _ in 0..MOMENTS {
            let are_received = !self.has_unread();
            let Some(session) = self.hangs() else { return false };
            if session.events.has_room(are_received) {
                return true;
            }
            pause(MOMENT);
        }
        false
    }

    fn mark(&mut self, process: u32, wait: Option<[u64; 3]>) -> Reply {
        if self.hangs().is_none() {
            return no_session();
        }
        let gone = Reply::Failed(Errno::SRCH.raw_os_error());
        // Held, so that its number is no other process's meanwhile.
        let Ok(held) = pidfd::open(process) else { return gone };
        if let Err(reply) = self.check_process(process) {
            return reply;
        }
        let Some(session) = self.hangs() else { return no_session() };
        let marked = session.programs.marker.mark(process, wait.into());
        // A process that had begun to end before it was marked may never be seen again, and its number becomes another one's.
        if marked.is_ok() && (is_ending(process) || pidfd::has_ended(&held).unwrap_or(true)) {
            let _ = session.programs.marker.unmark(process);
            return gone;
        }
        answer(marked)
    }
}
