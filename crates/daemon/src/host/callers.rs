//! The calling connections: their processes, and their waiting calls.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};

use bus::request::ReplyTo;
use bus::server::flatpak::BusProcess;
use host::command::CommandRequest;
use host::identity::{
    CallTraits, Caller, CallerKind, Client, IdentityError, ProcessDirectory, Speaks,
};
use host::process::ticks_now;

use super::quota::{Bounds, Ticket, WaitingCalls, Weight};

/// Processes whose identity is kept for their next connection.
const MOST_KEPT: usize = 256;
/// The number of new connections for which the bus's answer is cached: the most recent ones.
const MOST_EARLY: usize = 256;

/// The identity of a caller, or why it is not served; the reason is for the log.
pub(super) type Identity = Result<Arc<KnownCaller>, String>;

/// An identified caller.
#[derive(Debug)]
pub(super) struct KnownCaller {
    /// The process, and its application.
    pub(super) caller: Caller,
    /// When the process began.
    began: u64,
    /// The evidence that it is this process.
    evidence: Evidence,
    /// The process of the sandbox behind the proxy, if it was found.
    client: Option<Client>,
}

/// The evidence that a connection belongs to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// The bus passed a descriptor of the process.
    Process,
    /// The bus reported its number.
    Number,
}

impl KnownCaller {
    /// Returns the calling process and its executable, as far as they are known: never those of a proxy, which only passes
    /// messages on.
    pub(super) fn client(&self) -> (u32, Option<&Path>) {
        match (&self.client, self.caller.speaks) {
            (Some(client), _) => (client.pid, client.exe.as_deref()),
            (None, Speaks::ForItself) => (self.caller.pid, self.caller.exe.as_deref()),
            (None, Speaks::ForOthers) => (0, None),
        }
    }

    /// Returns the process whose terminal may be that of a command; 0 if it is not known.
    pub(super) fn terminal_owner(&self) -> u32 {
        let has_none = self.client.as_ref().is_some_and(|client| !client.has_terminal);
        if has_none { 0 } else { self.client().0 }
    }

    /// Checks whether a process of the host still holds the connection for which the bus reported its number. It is called before that number
    /// gives the caller more rights than a sandbox.
    ///
    /// # Errors
    ///
    /// It does not: the connected process has ended, and its number was reused.
    pub(super) fn prove(&self, host: &ProcessDirectory, bus: Option<u32>) -> Result<(), String> {
        let pid = self.caller.pid;
        if self.evidence == Evidence::Process || self.caller.application != CallerKind::Host {
            return Ok(());
        }
        let Some(bus) = bus else { return Ok(()) };
        if host.began(pid) != Some(self.began) {
            return Err(format!("process {pid} has ended"));
        }
        match host.connections_to(bus, pid) {
            Ok(0) => Err(format!("process {pid} does not hold the connection")),
            Ok(_) => Ok(()),
            Err(error) => {
                // The kernel is old, or the bus belongs to another user.
                tracing::debug!(%error, pid, "cannot see who holds a connection");
                Ok(())
            }
        }
    }
}

/// A call that waits until its caller is known.
#[derive(Debug)]
pub(super) enum Call {
    /// `HostCommand`.
    Command(ReplyTo, Box<CommandRequest>),
    /// `RequestSession`.
    Session(ReplyTo),
}

impl Call {
    fn weight(&self) -> Weight {
        match self {
            Call::Command(_, request) => weight_of(request),
            Call::Session(_) => Weight { calls: 1, ..Weight::default() },
        }
    }
}

/// Returns the resources of a command until it runs.
pub(super) fn weight_of(request: &CommandRequest) -> Weight {
    Weight { calls: 1, descriptors: request.descriptors.len(), bytes: request.size_bytes() }
}

/// One connection.
#[derive(Debug)]
struct Calling {
    identity: Option<Identity>,
    /// The application of these calls, as far as it is known.
    application: Arc<str>,
    waiting: VecDeque<Call>,
    /// A command of this connection is being started: the next one waits.
    is_starting: bool,
    /// Its next command waits for the quota of its application.
    ticket: Option<Ticket>,
}

impl Calling {
    fn new(application: Arc<str>) -> Calling {
        Calling {
            identity: None,
            application,
            waiting: VecDeque::new(),
            is_starting: false,
            ticket: None,
        }
    }

    fn weight(&self) -> Weight {
        let mut all = Weight::default();
        self.waiting.iter().for_each(|call| all += call.weight());
        all
    }
}

/// What the caller of this module must do for a call.
#[derive(Debug)]
pub(super) enum Queued {
    /// The call waits.
    Waits,
    /// The call waits, and the process must be requested from the bus.
    AsksWho,
    /// The call waits, and the bus has reported the process.
    Said(Result<BusProcess, String>),
    /// There are too many calls.
    Refused(Call),
}

/// A connection that came to the bus.
#[derive(Debug)]
struct Arrival {
    /// When it came, in ticks since boot.
    ticks: u64,
    credentials: Credentials,
}

/// The bus's answer about the process of a connection that has not called yet.
#[derive(Debug)]
enum Credentials {
    /// It was not requested, or the answer is not needed any more.
    NotAsked,
    /// It was requested.
    Asked,
    /// This one.
    Said(Result<BusProcess, String>),
}

/// The result of identifying a process.
#[derive(Debug)]
pub(super) enum Learned {
    /// This one.
    Known,
    /// Neither the kernel nor the host knows its application: its own files have to be read, which may block.
    LookInside(Suspect),
    /// It is the proxy of a sandbox: the calling process has to be found inside.
    LookBehind(Proxied),
}

/// A connection of a proxy.
#[derive(Debug)]
pub(super) struct Proxied {
    host: ProcessDirectory,
    known: Arc<KnownCaller>,
    call: CallTraits,
}

impl Proxied {
    /// Its application.
    pub(super) fn application(&self) -> String {
        self.known.caller.application.policy_name()
    }

    /// Returns whether the call passes a terminal, whose owner must be known.
    pub(super) fn has_terminal(&self) -> bool {
        self.call.terminal.is_some()
    }

    /// Returns the identity that is known without a search.
    pub(super) fn known(&self) -> Arc<KnownCaller> {
        Arc::clone(&self.known)
    }

    /// Searches the calling process.
    pub(super) fn look_behind(self) -> Arc<KnownCaller> {
        let KnownCaller { caller, began, evidence, .. } = &*self.known;
        let client = self.host.client_behind(caller, &self.call);
        Arc::new(KnownCaller { caller: caller.clone(), began: *began, evidence: *evidence, client })
    }
}

/// A process whose application is not known.
#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) pid: u32,
    pidfd: OwnedFd,
    host: ProcessDirectory,
    began: u64,
    evidence: Evidence,
}

/// All connections that have called and have not left.
#[derive(Debug)]
pub(super) struct Callers {
    host: ProcessDirectory,
    known: HashMap<String, Calling>,
    /// Connections that came to the bus.
    came: HashMap<String, Arrival>,
    /// Those whose process was requested when they came, the oldest first; some may have left.
    early: VecDeque<String>,
    /// Connections that are not in `came` existed at that time.
    since: u64,
    /// Processes that have connections, by number and beginning.
    processes: HashMap<(u32, u64), Weak<KnownCaller>>,
    /// The resources of the waiting calls.
    waiting: WaitingCalls,
    /// The application for calls of connections that are not identified yet.
    nobody: Arc<str>,
}

impl Callers {
    /// Creates an empty set of callers with limits for their waiting calls.
    pub(super) fn new(host: ProcessDirectory, bounds: Bounds) -> Callers {
        Callers {
            host,
            known: HashMap::new(),
            came: HashMap::new(),
            early: VecDeque::new(),
            since: ticks_now(),
            processes: HashMap::new(),
            waiting: WaitingCalls::new(bounds),
            nobody: "".into(),
        }
    }

    /// Records a new connection, whose process is requested at once: the answer is there when it calls,
    /// and a process that ends soon is still known.
    pub(super) fn came(&mut self, sender: String) {
        if self.early.len() >= MOST_EARLY
            && let Some(oldest) = self.early.pop_front()
        {
            self.take_credentials(&oldest);
        }
        self.early.push_back(sender.clone());
        let arrival = Arrival { ticks: ticks_now(), credentials: Credentials::Asked };
        self.came.insert(sender, arrival);
    }

    /// Returns the bus's answer for a connection from before its first call, or marks it as pending.
    fn take_credentials(&mut self, sender: &str) -> Credentials {
        let Some(arrival) = self.came.get_mut(sender) else { return Credentials::NotAsked };
        std::mem::replace(&mut arrival.credentials, Credentials::NotAsked)
    }

    /// Returns when a connection came to the bus.
    fn came_at(&self, sender: &str) -> u64 {
        self.came.get(sender).map_or(self.since, |arrival| arrival.ticks)
    }

    /// Removes a connection with its waiting calls. Returns its place among those that wait for other commands
    /// of their application.
    pub(super) fn gone(&mut self, sender: &str) -> Option<Ticket> {
        self.came.remove(sender);
        let calling = self.known.remove(sender)?;
        self.waiting.remove(&calling.application, calling.weight());
        calling.ticket
    }

    /// Adds a call.
    pub(super) fn queue(&mut self, sender: &str, call: Call) -> Queued {
        let weight = call.weight();
        let known = self.known.get(sender);
        let application = known.map_or(&self.nobody, |calling| &calling.application);
        if !self.waiting.may_wait(application, weight) {
            return Queued::Refused(call);
        }
        let is_new = known.is_none();
        self.waiting.add(application, weight);
        let new = || Calling::new(Arc::clone(&self.nobody));
        self.known.entry(sender.to_owned()).or_insert_with(new).waiting.push_back(call);
        if !is_new {
            return Queued::Waits;
        }
        match self.take_credentials(sender) {
            Credentials::NotAsked => Queued::AsksWho,
            Credentials::Asked => Queued::Waits,
            Credentials::Said(process) => Queued::Said(process),
        }
    }

    /// Removes the next call of a connection that is identified, starts no command and waits for no quota.
    pub(super) fn next(&mut self, sender: &str) -> Option<(Call, Identity)> {
        let calling = self.known.get_mut(sender)?;
        if calling.is_starting || calling.ticket.is_some() {
            return None;
        }
        let identity = calling.identity.clone()?;
        let call = calling.waiting.pop_front()?;
        self.waiting.remove(&calling.application, call.weight());
        Some((call, identity))
    }

    /// Returns a call from [`Callers::next`], which waits at this place until [`Callers::resume`].
    pub(super) fn put_back(&mut self, sender: &str, call: Call, ticket: Ticket) {
        if let Some(calling) = self.known.get_mut(sender) {
            self.waiting.add(&calling.application, call.weight());
            calling.waiting.push_front(call);
            calling.ticket = Some(ticket);
        }
    }

    /// Ends the wait of a connection for the quota.
    pub(super) fn resume(&mut self, sender: &str) {
        if let Some(calling) = self.known.get_mut(sender) {
            calling.ticket = None;
        }
    }

    /// Records that a call of an application is being started; it keeps its resources.
    pub(super) fn hold(&mut self, application: &Arc<str>, weight: Weight) {
        self.waiting.add(application, weight);
    }

    /// Records that such a call was started or failed.
    pub(super) fn release(&mut self, application: &Arc<str>, weight: Weight) {
        self.waiting.remove(application, weight);
    }

    /// Returns whether a command of the connection is being started.
    pub(super) fn set_starting(&mut self, sender: &str, is_starting: bool) {
        if let Some(calling) = self.known.get_mut(sender) {
            calling.is_starting = is_starting;
        }
    }

    /// Returns whether any call waits.
    pub(super) fn are_waiting(&self) -> bool {
        self.waiting.are_any()
    }

    /// Returns the connections with waiting calls.
    pub(super) fn waiting(&self) -> Vec<String> {
        let waits = |(_, calling): &(&String, &Calling)| !calling.waiting.is_empty();
        self.known.iter().filter(waits).map(|(sender, _)| sender.clone()).collect()
    }

    /// Identifies a connection by the bus's answer and by facts of the kernel and of the host.
    pub(super) fn learn(&mut self, sender: &str, process: Result<BusProcess, String>) -> Learned {
        if !self.known.contains_key(sender) {
            if let Some(arrival) = self.came.get_mut(sender)
                && matches!(arrival.credentials, Credentials::Asked)
            {
                arrival.credentials = Credentials::Said(process);
            }
            return Learned::Known;
        }
        match self.recognize(sender, process) {
            Ok(Err(suspect)) => return Learned::LookInside(suspect),
            Ok(Ok(known)) if known.caller.speaks == Speaks::ForOthers => {
                let call = self.traits(sender);
                return Learned::LookBehind(Proxied { host: self.host.clone(), known, call });
            }
            Ok(Ok(known)) => self.settle(sender, Ok(known)),
            Err(why) => self.settle(sender, Err(why)),
        }
        Learned::Known
    }

    /// Returns what is known of the first call of a connection.
    fn traits(&self, sender: &str) -> CallTraits {
        let came = self.came_at(sender);
        let first = self.known.get(sender).and_then(|calling| calling.waiting.front());
        match first {
            Some(Call::Command(_, request)) => {
                let words = request.arguments.clone();
                CallTraits { terminal: request.terminal(), words, came }
            }
            _ => CallTraits { came, ..CallTraits::default() },
        }
    }

    fn recognize(
        &mut self,
        sender: &str,
        process: Result<BusProcess, String>,
    ) -> Result<Result<Arc<KnownCaller>, Suspect>, String> {
        let process = process.map_err(|why| format!("the bus does not know its process: {why}"))?;
        if process.uid != rustix::process::geteuid().as_raw() {
            return Err(format!("it belongs to another user ({})", process.uid));
        }
        let pid = process.pid;
        let ended = || format!("process {pid} has ended");
        let evidence = if process.pidfd.is_some() { Evidence::Process } else { Evidence::Number };
        let opened = || sys::pidfd::open(pid).map_err(|error| format!("{}: {error}", ended()));
        let pidfd = process.pidfd.map_or_else(opened, Ok)?;
        let began = self.host.began(pid).ok_or_else(ended)?;
        let came = self.came_at(sender);
        if evidence == Evidence::Number && began > came + 1 {
            // The connected process has ended, and its number was reused.
            return Err(format!("process {pid} began after the connection came"));
        }
        let kept = self.processes.get(&(pid, began)).and_then(Weak::upgrade);
        if let Some(known) = kept.filter(|known| known.evidence == evidence) {
            return Ok(Ok(known));
        }
        let Some(caller) = self.host.recognize(pid).map_err(|error| text(&error))? else {
            return Ok(Err(Suspect { pid, pidfd, host: self.host.clone(), began, evidence }));
        };
        if is_over(&pidfd) {
            return Err(ended());
        }
        let known = Arc::new(KnownCaller { caller, began, evidence, client: None });
        if self.processes.len() >= MOST_KEPT {
            self.processes.retain(|_, kept| kept.strong_count() > 0);
        }
        self.processes.insert((pid, began), Arc::downgrade(&known));
        Ok(Ok(known))
    }

    /// Records the identity of a connection's process, which never changes.
    pub(super) fn settle(&mut self, sender: &str, identity: Identity) {
        let Some(calling) = self.known.get_mut(sender) else { return };
        if calling.identity.is_some() {
            return;
        }
        let weight = calling.weight();
        self.waiting.remove(&calling.application, weight);
        if let Ok(known) = &identity {
            calling.application = known.caller.application.policy_name().into();
        }
        self.waiting.add(&calling.application, weight);
        calling.identity = Some(identity);
    }
}

impl Suspect {
    /// Reads the claim of the process in its own files, which may block.
    pub(super) fn look_inside(&self) -> Identity {
        let caller = self.host.look_inside(self.pid).map_err(|error| text(&error))?;
        // If it has not ended by now, the number was not reused.
        match is_over(&self.pidfd) {
            false => {
                let Suspect { began, evidence, .. } = *self;
                Ok(Arc::new(KnownCaller { caller, began, evidence, client: None }))
            }
            true => Err(format!("process {} has ended", self.pid)),
        }
    }
}

fn is_over(pidfd: &OwnedFd) -> bool {
    sys::pidfd::has_ended(pidfd).unwrap_or(true)
}

fn text(error: &IdentityError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}
