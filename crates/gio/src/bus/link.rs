//! The thread of a bus: it sends requests in their order, and receives answers and signals.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use settings::client::{ChangeCompletion, TransportError};
use settings::profile::ProfileBus;
use sys::clock::{Clock, SystemClock};

use super::BusEvents;
use super::call::BusCall;
use super::connection::{Arrival, BusConnection, BusError};
use crate::environment;
use crate::thread::{self, ThreadWake};

/// How long an answer is waited for: as GLib waits.
const PATIENCE: Duration = Duration::from_secs(25);

/// What the thread is to do.
pub(super) enum LinkRequest {
    Call { call: BusCall, done: ChangeCompletion },
    AddMatch { rule: String, done: ChangeCompletion },
    RemoveMatch { rule: String },
    End,
}

/// A bus and its thread, which is started by the first request.
pub(super) struct BusLink {
    bus: ProfileBus,
    events: Arc<dyn BusEvents>,
    queue: Mutex<RequestQueue>,
}

#[derive(Default)]
struct RequestQueue {
    requests: VecDeque<LinkRequest>,
    /// Wakes the thread, once it runs.
    wake: Option<Arc<ThreadWake>>,
}

impl BusLink {
    pub(super) fn new(bus: ProfileBus, events: Arc<dyn BusEvents>) -> Arc<BusLink> {
        Arc::new(BusLink { bus, events, queue: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, RequestQueue> {
        // Nothing that can panic is called under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread do something. Never waits for a bus.
    pub(super) fn push(self: &Arc<BusLink>, request: LinkRequest) {
        let mut queue = self.lock();
        if let Some(wake) = &queue.wake {
            let wake = Arc::clone(wake);
            queue.requests.push_back(request);
            if wake.wake() {
                return;
            }
            // The program closed all descriptors: this thread is not woken any more, unless by a signal.
            std::mem::forget((wake, queue.wake.take()));
        } else if matches!(request, LinkRequest::End) {
            return;
        } else {
            queue.requests.push_back(request);
        }
        if let Err(error) = self.start(&mut queue) {
            let requests = std::mem::take(&mut queue.requests);
            drop(queue);
            let text = format!("cannot start a thread for the bus: {error}");
            refuse(requests, &TransportError { text });
        }
    }

    fn start(self: &Arc<BusLink>, queue: &mut RequestQueue) -> std::io::Result<()> {
        let wake = Arc::new(ThreadWake::new()?);
        let (link, wakes) = (Arc::clone(self), Arc::clone(&wake));
        thread::start("unjank-settings", move || LinkThread::new(link, wakes).run())?;
        queue.wake = Some(wake);
        Ok(())
    }
}

/// Tells each of the requests that it failed.
fn refuse(requests: impl IntoIterator<Item = LinkRequest>, error: &TransportError) {
    for request in requests {
        match request {
            LinkRequest::Call { done, .. } | LinkRequest::AddMatch { done, .. } => {
                done(Err(error.clone()));
            }
            LinkRequest::RemoveMatch { .. } | LinkRequest::End => {}
        }
    }
}

/// A call that was sent and not answered.
struct PendingCall {
    /// Kept to be made once more; calls of the bus itself are not.
    call: Option<BusCall>,
    done: Option<ChangeCompletion>,
    deadline: Duration,
}

/// The state of the thread.
struct LinkThread {
    link: Arc<BusLink>,
    wake: Arc<ThreadWake>,
    clock: SystemClock,
    connection: Option<BusConnection>,
    was_connected: bool,
    /// The rules that the bus should know, and how often each was asked for.
    rules: BTreeMap<String, usize>,
    pending: BTreeMap<u32, PendingCall>,
    is_ending: bool,
    /// Whether the program closed the descriptors of the thread.
    is_closed: bool,
}

impl LinkThread {
    fn new(link: Arc<BusLink>, wake: Arc<ThreadWake>) -> LinkThread {
        LinkThread {
            link,
            wake,
            clock: SystemClock::start(),
            connection: None,
            was_connected: false,
            rules: BTreeMap::new(),
            pending: BTreeMap::new(),
            is_ending: false,
            is_closed: false,
        }
    }

    fn run(&mut self) {
        while !(self.is_ending && self.pending.is_empty()) {
            let requests = std::mem::take(&mut self.link.lock().requests);
            self.serve(requests);
            if self.link.lock().requests.is_empty() {
                self.wait();
            }
            if self.is_closed {
                return self.abandon();
            }
            self.receive();
            self.expire();
        }
    }

    /// Ends after the program closed descriptors that are not its own; another thread is started by a request.
    fn abandon(&mut self) {
        // Their numbers may belong to somebody else by now: they are not closed once more.
        std::mem::forget((Arc::clone(&self.wake), self.connection.take()));
        let mut queue = self.link.lock();
        if queue.wake.as_ref().is_some_and(|wake| Arc::ptr_eq(wake, &self.wake)) {
            queue.wake = None;
        }
        drop(queue);
        let error = TransportError { text: "the program closed the connection".to_owned() };
        for done in std::mem::take(&mut self.pending).into_values().filter_map(|call| call.done) {
            done(Err(error.clone()));
        }
    }

    fn serve(&mut self, requests: VecDeque<LinkRequest>) {
        for request in requests {
            match request {
                LinkRequest::Call { call, done } => self.call(call, Some(done), true),
                LinkRequest::AddMatch { rule, done } => {
                    // A new connection is told the rules that it does not know yet.
                    self.call(BusCall::match_call("AddMatch", &rule), Some(done), false);
                    *self.rules.entry(rule).or_default() += 1;
                }
                LinkRequest::RemoveMatch { rule } => {
                    if self.connection.is_some() {
                        self.call(BusCall::match_call("RemoveMatch", &rule), None, false);
                    }
                    if let Some(count) = self.rules.get_mut(&rule) {
                        *count -= 1;
                        if *count == 0 {
                            self.rules.remove(&rule);
                        }
                    }
                }
                LinkRequest::End => self.is_ending = true,
            }
        }
    }

    /// Sends a call, over a new connection if there is none.
    fn call(&mut self, call: BusCall, done: Option<ChangeCompletion>, is_kept: bool) {
        let sent = match self.connect() {
            Ok(connection) => connection.send(&call).map_err(|error| TransportError {
                text: format!("The connection is closed: {error}"),
            }),
            Err(error) => Err(error),
        };
        match sent {
            Ok(serial) => {
                let deadline = self.clock.monotonic().saturating_add(PATIENCE);
                let kept = is_kept.then(|| call.repeated()).flatten();
                self.pending.insert(serial, PendingCall { call: kept, done, deadline });
            }
            Err(error) => {
                if let Some(done) = done {
                    done(Err(error));
                }
            }
        }
    }

    /// Returns the connection, a new one if there is none.
    fn connect(&mut self) -> Result<&mut BusConnection, TransportError> {
        if self.connection.is_none() {
            let none = || TransportError { text: "the environment names no such bus".to_owned() };
            let address = environment::bus_address(self.link.bus).ok_or_else(none)?;
            let mut connection = BusConnection::open(&address, &self.clock, PATIENCE)?;
            for rule in self.rules.keys() {
                // A connection that fails now fails again when it is read.
                let _ = connection.send(&BusCall::match_call("AddMatch", rule));
            }
            self.connection = Some(connection);
            if std::mem::replace(&mut self.was_connected, true) {
                self.link.events.reconnected();
            }
        }
        let lost = || TransportError { text: "The connection is closed".to_owned() };
        self.connection.as_mut().ok_or_else(lost)
    }

    /// Waits for a request, a message or the end of the patience with a call.
    fn wait(&mut self) {
        let now = self.clock.monotonic();
        let first = self.pending.values().map(|pending| pending.deadline).min();
        let limit = first.map(|deadline| deadline.saturating_sub(now));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut descriptors = vec![PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
        if let Some(connection) = &self.connection {
            descriptors.push(PollFd::from_borrowed_fd(connection.descriptor(), PollFlags::IN));
        }
        // An interruption is as good as a message: all are looked at.
        let _ = poll(&mut descriptors, limit.as_ref());
        self.is_closed = !self.wake.take();
    }

    fn receive(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        match connection.receive() {
            Ok(arrivals) => {
                for arrival in arrivals {
                    match arrival {
                        Arrival::Answer(serial, result) => self.answer(serial, result),
                        Arrival::Signal(signal) => self.link.events.signal(signal),
                    }
                }
            }
            Err(error) => {
                self.connection = None;
                let text = format!("The connection is closed: {error}");
                for (_, pending) in std::mem::take(&mut self.pending) {
                    if let Some(done) = pending.done {
                        done(Err(TransportError { text: text.clone() }));
                    }
                }
            }
        }
    }

    fn answer(&mut self, serial: u32, result: Result<String, BusError>) {
        let Some(pending) = self.pending.remove(&serial) else { return };
        if let (Err(error), Some(call)) = (&result, pending.call)
            && error.is_lost_service()
        {
            // Made again it has the same effect; the program was told already that the value is set.
            return self.call(call, pending.done, true);
        }
        if let Some(done) = pending.done {
            done(result.map_err(TransportError::from));
        }
    }

    fn expire(&mut self) {
        let now = self.clock.monotonic();
        let is_late = |pending: &PendingCall| pending.deadline <= now;
        if !self.pending.values().any(is_late) {
            return;
        }
        let all = std::mem::take(&mut self.pending);
        let (late, rest) = all.into_iter().partition(|(_, pending)| is_late(pending));
        self.pending = rest;
        let late: BTreeMap<u32, PendingCall> = late;
        for done in late.into_values().filter_map(|pending| pending.done) {
            done(Err(TransportError { text: "Timeout was reached".to_owned() }));
        }
    }
}

impl fmt::Debug for BusLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusLink").field("bus", &self.bus).finish_non_exhaustive()
    }
}
