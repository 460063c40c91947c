//! One caller: what he asks for, one thing after the other, and the records of his session.

mod hangs;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use report::error::chain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sys::clock::Clock;
use sys::pidfd;
use sys::socket::{self, Full};
use sys::syscall_set::Set;
use trace::backend::bpf::programs::WakeupPolicy;
use trace::backend::bpf::served::protocol::{
    AuthorizationPrompt, ERRORS_AT_ONCE, LONGEST, RECORDS, Refusal, RefusalKind, Reply, Request,
    TOTALS_AT_ONCE, TraceOrder, VERSION,
};
use trace::backend::bpf::session::{BpfSession, BpfSettings, ThreadState, WatchStart, descriptor};

use self::hangs::HangSession;
use crate::caller::{Caller, is_ending};
use crate::quota::{Quota, SessionKind, Share};
use crate::shared::Shared;

/// A connection without a session is ended when nothing is asked for so long.
const WITHOUT_SESSION: Duration = Duration::from_secs(10);
/// The least and the most bytes of a ring.
const RINGS: [u32; 2] = [64 << 10, 8 << 20];
/// The most requests in `PACE_PERIOD`; then they wait.
const PACE: u32 = 2000;
/// See `PACE`.
const PACE_PERIOD: Duration = Duration::from_secs(1);
/// How often it is looked whether a caller who is served no more has received what was sent.
const UNREAD: Duration = Duration::from_millis(100);
/// The most records that are put into messages before a request is looked for.
const RECORDS_AT_ONCE: usize = 1024;

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum ConnectionEnd {
    /// The caller ended it, or has ended.
    Gone,
    /// Nothing was asked for.
    Idle,
    /// The caller sent something that is no request.
    Misunderstood,
    /// The kernel failed.
    Failed(io::Error),
}

/// A caller, and his session.
pub(crate) struct Connection<'s> {
    socket: OwnedFd,
    caller: Caller,
    shared: &'s Shared<'s>,
    /// Whether the caller may have sessions.
    is_let_in: bool,
    /// Whether the access rule was asked: polkit is not, again and again, for one connection.
    has_asked: bool,
    session: Option<OpenSession>,
    buffer: Vec<u8>,
    /// Requests since `paced`.
    requests: u32,
    paced: Duration,
}

/// A session.
struct OpenSession {
    // It goes before its share does.
    work: SessionWork,
    /// How long records may lie in the ring that did not wake us.
    rest: Duration,
    /// How long more records are gathered after some were sent, so that neither end is woken for each.
    gather: Duration,
    /// Whether some were sent just now.
    has_sent: bool,
    _share: Share,
}

/// What a session is for.
enum SessionWork {
    Trace(Box<TraceSession>),
    Hangs(Box<HangSession>),
}

/// A session of `trace`.
struct TraceSession {
    kernel: BpfSession,
    calls: Set,
    is_detached: bool,
}

impl OpenSession {
    /// Says whether no records come any more.
    fn is_detached(&self) -> bool {
        match &self.work {
            SessionWork::Trace(session) => session.is_detached,
            SessionWork::Hangs(_) => false,
        }
    }

    /// Returns the descriptor that can be read when there are records.
    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.work {
            SessionWork::Trace(session) => session.kernel.as_fd(),
            SessionWork::Hangs(session) => session.as_fd(),
        }
    }

    /// As [`BpfSession::offer`].
    fn offer(&mut self, most: usize, each: impl FnMut(&[u8]) -> bool) -> usize {
        match &mut self.work {
            SessionWork::Trace(session) => session.kernel.offer(most, each),
            SessionWork::Hangs(session) => session.offer(most, each),
        }
    }
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Awaited {
    /// A request, or records.
    Anything,
    /// A request.
    Request,
    /// Room for a message.
    Room,
    /// Nothing but the end.
    Nothing,
}

/// Does nothing for a while; a signal may end it early.
fn pause(time: Duration) {
    let time = Timespec::try_from(time).unwrap_or_default();
    // It fails only if a signal ends it.
    let _ = poll(&mut [], Some(&time));
}

fn refused(kind: RefusalKind, text: impl Into<String>) -> Reply {
    Reply::Refused(Refusal { kind, text: text.into() })
}

fn failed(error: &io::Error) -> Reply {
    let number = error.raw_os_error().unwrap_or_else(|| {
        let number = match error.kind() {
            io::ErrorKind::NotFound => Errno::NOENT,
            io::ErrorKind::PermissionDenied => Errno::PERM,
            io::ErrorKind::AlreadyExists => Errno::EXIST,
            _ => Errno::IO,
        };
        number.raw_os_error()
    });
    Reply::Failed(number)
}

fn answer(result: io::Result<()>) -> Reply {
    result.map_or_else(|error| failed(&error), |()| Reply::Done)
}

impl<'s> Connection<'s> {
    /// Begins with a caller who has not been let in.
    pub(crate) fn new(socket: OwnedFd, caller: Caller, shared: &'s Shared<'s>) -> Connection<'s> {
        let paced = shared.clock.monotonic();
        Connection {
            socket,
            caller,
            shared,
            is_let_in: false,
            has_asked: false,
            session: None,
            buffer: vec![0; LONGEST],
            requests: 0,
            paced,
        }
    }

    /// Serves the caller until the end.
    pub(crate) fn serve(&mut self) -> ConnectionEnd {
        loop {
            match self.step() {
                Ok(()) => {}
                Err(end) => return end,
            }
        }
    }

    fn step(&mut self) -> Result<(), ConnectionEnd> {
        self.wait_for_work()?;
        match socket::receive_bytes(&self.socket, &mut self.buffer) {
            Ok(0) => return Err(ConnectionEnd::Gone),
            Ok(length) => {
                let message = self.buffer.get(..length).unwrap_or_default();
                let request = Request::read(message);
                let Ok(request) = request else {
                    let text = "the request is not one that this service knows";
                    let _ = self.send(&refused(RefusalKind::Misunderstood, text));
                    return Err(ConnectionEnd::Misunderstood);
                };
                self.pace()?;
                self.handle(request)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Longer than any request.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(ConnectionEnd::Misunderstood);
            }
            Err(_) => return Err(ConnectionEnd::Gone),
        }
        self.send_records().map(drop)
    }

    /// Waits until there is something to do: at the latest when records that woke nobody have rested long enough.
    fn wait_for_work(&mut self) -> Result<(), ConnectionEnd> {
        let is_live = self.session.as_ref().is_some_and(|session| !session.is_detached());
        match (is_live, &self.session) {
            (true, Some(session)) => {
                let is_asked = session.has_sent && self.wait(Awaited::Request, session.gather)?;
                if !is_asked {
                    self.wait(Awaited::Anything, session.rest)?;
                }
                let quiet = self.shared.clock.monotonic().saturating_sub(self.asked());
                if quiet >= self.shared.options.quiet { Err(ConnectionEnd::Idle) } else { Ok(()) }
            }
            _ => {
                let limit = self.patience();
                match self.wait(Awaited::Anything, limit)? {
                    true => Ok(()),
                    false => Err(ConnectionEnd::Idle),
                }
            }
        }
    }

    /// Returns how long nothing may be asked.
    fn patience(&self) -> Duration {
        if self.session.is_some() { self.shared.options.quiet } else { WITHOUT_SESSION }
    }

    fn asked(&self) -> Duration {
        self.paced
    }

    /// Waits, at most `limit`; says whether what was waited for has come.
    fn wait(&self, awaited: Awaited, limit: Duration) -> Result<bool, ConnectionEnd> {
        let timeout = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        let events = match awaited {
            Awaited::Anything | Awaited::Request => PollFlags::IN,
            Awaited::Room => PollFlags::OUT,
            Awaited::Nothing => PollFlags::empty(),
        };
        let held = self.caller.held();
        let mut polled =
            vec![PollFd::from_borrowed_fd(held, PollFlags::IN), PollFd::new(&self.socket, events)];
        if let Some(session) = &self.session
            && awaited == Awaited::Anything
            && !session.is_detached()
        {
            polled.push(PollFd::from_borrowed_fd(session.descriptor(), PollFlags::IN));
        }
        let count = match poll(&mut polled, Some(&timeout)) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(ConnectionEnd::Failed(error.into())),
        };
        let happened = |at: usize| polled.get(at).map_or(PollFlags::empty(), PollFd::revents);
        let is_over = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        if !happened(0).is_empty() || happened(1).intersects(is_over) {
            return Err(ConnectionEnd::Gone);
        }
        Ok(count > 0)
    }

    /// Lets requests wait that come too fast: they would take the time of others.
    fn pace(&mut self) -> Result<(), ConnectionEnd> {
        let now = self.shared.clock.monotonic();
        let past = now.saturating_sub(self.paced);
        if past >= PACE_PERIOD {
            (self.requests, self.paced) = (0, now);
        } else if self.requests >= PACE {
            self.wait(Awaited::Nothing, PACE_PERIOD.saturating_sub(past))?;
            (self.requests, self.paced) = (0, self.shared.clock.monotonic());
        }
        self.requests += 1;
        Ok(())
    }

    fn send(&self, reply: &Reply) -> Result<(), ConnectionEnd> {
        self.send_bytes(&reply.write())
    }

    fn send_bytes(&self, bytes: &[u8]) -> Result<(), ConnectionEnd> {
        self.send_with(bytes, None)
    }

    /// Sends a message, with a descriptor if one is given, and waits for room as long as the caller may be stopped. Meanwhile his ring
    /// fills, which is counted.
    fn send_with(&self, bytes: &[u8], passed: Option<BorrowedFd<'_>>) -> Result<(), ConnectionEnd> {
        loop {
            match socket::send(&self.socket, bytes, passed, Full::Fail) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let limit = self.patience();
                    if !self.wait(Awaited::Room, limit)? {
                        return Err(ConnectionEnd::Idle);
                    }
                }
                // Others read nothing. The service goes on without another descriptor on its way, and this caller has no event.
                Err(error)
                    if passed.is_some()
                        && error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error()) =>
                {
                    return self.send(&Reply::Failed(Errno::AGAIN.raw_os_error()));
                }
                Err(_) => return Err(ConnectionEnd::Gone),
            }
        }
    }

    /// Says whether something that was sent was not received.
    fn has_unread(&self) -> bool {
        socket::has_unread(&self.socket).unwrap_or(false)
    }

    /// Ends the session, and waits until what was sent was received or cannot be any more: descriptors on their way count against the
    /// service's own open files, also when the connection is over, and the caller's quota has to hold them together.
    fn end(&mut self) {
        let had_hangs =
            matches!(&self.session, Some(OpenSession { work: SessionWork::Hangs(_), .. }));
        self.session = None;
        if had_hangs {
            // The caller sees the end behind what he has not read.
            let _ = socket::hang_up(&self.socket);
            while self.has_unread() {
                pause(UNREAD);
            }
        }
    }

    /// Sends records that are in the ring; says whether there may be more.
    fn send_records(&mut self) -> Result<bool, ConnectionEnd> {
        let Some(session) = &mut self.session else { return Ok(false) };
        let mut message = vec![RECORDS];
        let mut is_full = false;
        let taken = session.offer(RECORDS_AT_ONCE, |record| {
            let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
            is_full = message.len() + 4 + record.len() > LONGEST;
            if !is_full {
                message.extend(length.to_ne_bytes());
                message.extend(record);
            }
            !is_full
        });
        session.has_sent = message.len() > 1;
        if message.len() > 1 {
            self.send_bytes(&message)?;
        }
        Ok(is_full || taken == RECORDS_AT_ONCE)
    }

    fn handle(&mut self, request: Request) -> Result<(), ConnectionEnd> {
        let reply = match request {
            Request::Hello { version, prompt } => self.let_in(&version, prompt),
            Request::OpenTrace(order) => self.open(&order),
            Request::Totals => return self.totals(),
            Request::Errors => return self.errors(),
            Request::TakeTotals { thread, seen } => {
                let Some(session) = self.trace() else { return self.send(&no_session()) };
                let taken = match session.kernel.take_totals(thread, &seen) {
                    Ok(taken) => taken,
                    Err(error) => return self.send(&failed(&error)),
                };
                let mut batches = taken.chunks(TOTALS_AT_ONCE).peekable();
                if batches.peek().is_none() {
                    return self.send(&Reply::Totals { totals: Vec::new(), is_last: true });
                }
                while let Some(batch) = batches.next() {
                    let totals =
                        batch.iter().map(|(number, total)| (thread, *number, total.clone()));
                    let is_last = batches.peek().is_none();
                    self.send(&Reply::Totals { totals: totals.collect(), is_last })?;
                }
                return Ok(());
            }
            Request::Watch { process, from } => self.watch(process, from),
            Request::Adopt { thread, process, number, times } => {
                self.adopt([thread, process], number, times)
            }
            Request::Detach => {
                let Some(session) = self.trace_mut() else { return self.send(&no_session()) };
                session.kernel.detach();
                session.is_detached = true;
                while self.send_records()? {}
                Reply::Done
            }
            Request::Unwatch { process } => {
                self.with_session(|session| answer(session.kernel.unwatch(process)))
            }
            Request::Watched => self.with_session(|session| match session.kernel.watched() {
                Ok(processes) => Reply::Processes(processes),
                Err(error) => failed(&error),
            }),
            Request::ThreadState { thread } => self.with_session(|session| {
                let state = descriptor(thread)
                    .map(|descriptor| session.kernel.thread_state(descriptor.as_fd()));
                Reply::State(state.unwrap_or(ThreadState::Outside))
            }),
            Request::Losses => self.with_session(|session| match session.kernel.faults() {
                Ok(losses) => Reply::Losses(losses),
                Err(error) => failed(&error),
            }),
            Request::Hangs(request) => return self.handle_hangs(request),
        };
        self.send(&reply)
    }

    fn with_session(&self, body: impl FnOnce(&TraceSession) -> Reply) -> Reply {
        self.trace().map_or_else(no_session, body)
    }

    /// Returns the session, if it is one of `trace`.
    fn trace(&self) -> Option<&TraceSession> {
        match &self.session.as_ref()?.work {
            SessionWork::Trace(session) => Some(session),
            SessionWork::Hangs(_) => None,
        }
    }

    fn trace_mut(&mut self) -> Option<&mut TraceSession> {
        match &mut self.session.as_mut()?.work {
            SessionWork::Trace(session) => Some(session),
            SessionWork::Hangs(_) => None,
        }
    }

    fn let_in(&mut self, version: &str, prompt: AuthorizationPrompt) -> Reply {
        if version != VERSION {
            let text = format!(
                "it is of version {VERSION}, and unjank of {version}; systemctl restart unjank-recorder.service"
            );
            return refused(RefusalKind::OtherVersion, text);
        }
        if std::mem::replace(&mut self.has_asked, true) {
            return refused(RefusalKind::Misunderstood, "a connection is let in once");
        }
        match self.shared.options.access.check(&self.caller, prompt) {
            Ok(()) => {
                self.is_let_in = true;
                Reply::Done
            }
            Err(reason) => {
                let Caller { user, process, .. } = self.caller;
                (self.shared.log)(&format!("refused user {user} (process {process}): {reason}"));
                refused(RefusalKind::NotAllowed, reason)
            }
        }
    }

    /// Takes a share for a session of a kind, if one can begin now.
    fn begin(&self, kind: SessionKind) -> Result<Share, Reply> {
        if !self.is_let_in || self.session.is_some() {
            let text = "no session can begin at this point";
            return Err(refused(RefusalKind::Misunderstood, text));
        }
        let now = self.shared.clock.monotonic();
        Quota::session(&self.shared.quota, self.caller.user, kind, now)
            .map_err(|used_up| refused(RefusalKind::TooMany, used_up.to_string()))
    }

    /// Says in the log that a session began, or why the kernel did not take its programs; returns the answer.
    fn began<E: std::error::Error>(&self, what: &str, error: Option<E>) -> Reply {
        let Caller { user, process, .. } = self.caller;
        let Some(error) = error else {
            (self.shared.log)(&format!("user {user} (process {process}) began {what}"));
            return Reply::Done;
        };
        // What the verifier says is for who looks after the machine.
        (self.shared.log)(&format!("user {user}: {}", chain(&error)));
        let text = "the kernel did not take the programs; journalctl -u unjank-recorder.service has the reason";
        refused(RefusalKind::Kernel, text)
    }

    fn open(&mut self, order: &TraceOrder) -> Reply {
        let share = match self.begin(SessionKind::Trace) {
            Ok(share) => share,
            Err(reply) => return reply,
        };
        let calls = Set::of(order.calls.iter().copied());
        let [least, most] = RINGS;
        let settings = BpfSettings {
            calls: &calls,
            threshold_ns: order.threshold_ns,
            kept: &order.kept,
            threads: order.threads,
            stacks: order.stacks,
            ring_bytes: order.ring_bytes.clamp(least, most).next_power_of_two(),
            wakes: order.wakes,
            owner: Some(self.caller.owner()),
        };
        let kernel = match BpfSession::load(&settings) {
            Ok(kernel) => kernel,
            Err(error) => return self.began("a session", Some(error)),
        };
        let [rest, gather] = match order.wakes {
            WakeupPolicy::Paced => [20, 1].map(Duration::from_millis),
            WakeupPolicy::Each => [100, 0].map(Duration::from_millis),
        };
        let work = TraceSession { kernel, calls, is_detached: false };
        let work = SessionWork::Trace(Box::new(work));
        self.session = Some(OpenSession { work, rest, gather, has_sent: false, _share: share });
        self.began("a session", None::<io::Error>)
    }

    /// Says whether the caller may trace a process; else returns what he is told.
    fn check_process(&self, process: u32) -> Result<(), Reply> {
        match self.caller.may_trace(process) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let text = format!("process {process} is not one that its caller may trace");
                Err(refused(RefusalKind::NotYours, text))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    fn watch(&self, process: u32, from: WatchStart) -> Reply {
        let Some(session) = self.trace() else { return no_session() };
        let gone = Reply::Failed(Errno::SRCH.raw_os_error());
        // Held, so that its number is no other process's meanwhile.
        let Ok(held) = pidfd::open(process) else { return gone };
        if let Err(reply) = self.check_process(process) {
            return reply;
        }
        let watched = session.kernel.watch(process, from);
        // The programs take a number out of the filter when its process ends. One that had begun to end before it was there
        // would stay, and mean another process later.
        if is_ending(process) || pidfd::has_ended(&held).unwrap_or(true) {
            let _ = session.kernel.unwatch(process);
            return gone;
        }
        answer(watched)
    }

    fn adopt(
        &self,
        [thread, process]: [u32; 2],
        number: u32,
        [now_ns, queued_ns]: [u64; 2],
    ) -> Reply {
        let Some(session) = self.trace() else { return no_session() };
        if let Err(reply) = self.check_process(process) {
            return reply;
        }
        let Some(held) = descriptor(thread) else {
            return Reply::Failed(Errno::SRCH.raw_os_error());
        };
        let is_its_own = std::fs::exists(format!("/proc/{process}/task/{thread}")).unwrap_or(false);
        let is_watched = session.kernel.watched().is_ok_and(|watched| watched.contains(&process));
        if !is_its_own || !is_watched || !session.calls.contains(number) {
            return Reply::Failed(Errno::INVAL.raw_os_error());
        }
        let times = [now_ns.min(sys::bpf::clock_ns()), queued_ns];
        answer(session.kernel.adopt(held.as_fd(), [thread, process], number, times))
    }

    fn totals(&mut self) -> Result<(), ConnectionEnd> {
        let Some(session) = self.trace() else { return self.send(&no_session()) };
        let mut batch = Vec::with_capacity(TOTALS_AT_ONCE);
        let mut end = None;
        let visited = session.kernel.visit_totals(|thread, number, total| {
            if batch.len() == TOTALS_AT_ONCE {
                let totals = std::mem::take(&mut batch);
                if let Err(failed) = self.send(&Reply::Totals { totals, is_last: false }) {
                    end = Some(failed);
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            batch.push((thread, number, total));
            Ok(())
        });
        match (end, visited) {
            (Some(end), _) => Err(end),
            (None, Err(error)) => self.send(&failed(&error)),
            (None, Ok(())) => self.send(&Reply::Totals { totals: batch, is_last: true }),
        }
    }

    fn errors(&mut self) -> Result<(), ConnectionEnd> {
        let Some(session) = self.trace() else { return self.send(&no_session()) };
        let errors = match session.kernel.errors() {
            Ok(errors) => errors,
            Err(error) => return self.send(&failed(&error)),
        };
        let mut rest = &errors[..];
        loop {
            let (batch, more) = rest.split_at(rest.len().min(ERRORS_AT_ONCE));
            rest = more;
            let is_last = rest.is_empty();
            self.send(&Reply::Errors { errors: batch.to_vec(), is_last })?;
            if is_last {
                return Ok(());
            }
        }
    }
}

fn no_session() -> Reply {
    refused(RefusalKind::Misunderstood, "there is no session")
}

/// Tells a caller why he is not served, if he listens.
pub(crate) fn turn_away(socket: &OwnedFd, kind: RefusalKind, text: String) {
    let _ = socket::send(socket, &refused(kind, text).write(), None, Full::Fail);
}

/// Serves one caller, and says how it ended.
pub(crate) fn serve(socket: OwnedFd, caller: Caller, shared: &Shared<'_>, share: Share) {
    let Caller { user, process, .. } = caller;
    let mut connection = Connection::new(socket, caller, shared);
    let end = connection.serve();
    let had_session = connection.session.is_some();
    let why = match &end {
        ConnectionEnd::Gone if !had_session => None,
        ConnectionEnd::Gone => Some("ended".to_owned()),
        ConnectionEnd::Idle if !had_session => None,
        ConnectionEnd::Idle => Some("was ended, since it asked for nothing".to_owned()),
        ConnectionEnd::Misunderstood => Some("was ended, since it sent no request".to_owned()),
        ConnectionEnd::Failed(error) => Some(format!("was ended: {error}")),
    };
    if let Some(why) = why {
        (shared.log)(&format!("the connection of user {user} (process {process}) {why}"));
    }
    connection.end();
    drop(connection);
    drop(share);
}
