//! The connections that call: whose they are, and what each of them waits for.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};

use bus::request::ReplyTo;
use bus::server::flatpak::Process;
use session::host::command::Request;
use session::host::identity::{
    Application, CallTraits, Caller, Client, Host, IdentityError, Speaks,
};
use session::host::process::ticks_now;

/// Calls of one connection that may wait.
const MOST_WAITING: usize = 128;
/// Processes whose identity is kept for their next connection.
const MOST_KEPT: usize = 256;

/// What is known of a caller, or why it is not served; the reason is for the log.
pub(super) type Identity = Result<Arc<Known>, String>;

/// A caller that is known.
#[derive(Debug)]
pub(super) struct Known {
    /// The process, and what it belongs to.
    pub(super) caller: Caller,
    /// When the process began.
    began: u64,
    /// What says that it is this process.
    evidence: Evidence,
    /// The process of a sandbox that the connection of its proxy is made for, if it was found.
    client: Option<Client>,
}

/// What says that a connection is a process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// The bus passed the process itself on.
    Process,
    /// The bus said its number.
    Number,
}

impl Known {
    /// Returns the process that asks and its executable, as far as they are known: not those of a proxy, which only passes
    /// on what others say.
    pub(super) fn client(&self) -> (u32, Option<&Path>) {
        match (&self.client, self.caller.speaks) {
            (Some(client), _) => (client.pid, client.exe.as_deref()),
            (None, Speaks::ForItself) => (self.caller.pid, self.caller.exe.as_deref()),
            (None, Speaks::ForOthers) => (0, None),
        }
    }

    /// Returns the process whose terminal may be that of a command; 0 if nobody knows it.
    pub(super) fn terminal_owner(&self) -> u32 {
        let has_none = self.client.as_ref().is_some_and(|client| !client.has_terminal);
        if has_none { 0 } else { self.client().0 }
    }

    /// Looks whether a process of the host still holds the connection for which the bus said its number; before that number
    /// lets a caller do what a sandbox may not.
    ///
    /// # Errors
    ///
    /// It does not: whoever connected has ended, and this one got its number.
    pub(super) fn prove(&self, host: &Host, bus: Option<u32>) -> Result<(), String> {
        let pid = self.caller.pid;
        if self.evidence == Evidence::Process || self.caller.application != Application::Host {
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
                // An old kernel, or a bus of another user's.
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
    Command(ReplyTo, Box<Request>),
    /// `RequestSession`.
    Session(ReplyTo),
}

impl Call {
    fn descriptors(&self) -> usize {
        match self {
            Call::Command(_, request) => request.descriptors.len(),
            Call::Session(_) => 0,
        }
    }
}

/// One connection.
#[derive(Debug, Default)]
struct Calling {
    identity: Option<Identity>,
    waiting: VecDeque<Call>,
    /// A command of it is being started: the next one waits.
    is_starting: bool,
}

/// What is to be done about a call.
#[derive(Debug)]
pub(super) enum Queued {
    /// It waits.
    Waits,
    /// It waits, and the bus has to be asked who calls.
    AsksWho,
    /// There are too many.
    Refused(Call),
}

/// What a process is.
#[derive(Debug)]
pub(super) enum Learned {
    /// This.
    Known,
    /// Neither the kernel nor the host knows: its own files have to be looked at, for as long as that takes.
    LookInside(Suspect),
    /// It is the proxy of a sandbox: who asks has to be found among the processes inside.
    LookBehind(Proxied),
}

/// A connection of a proxy.
#[derive(Debug)]
pub(super) struct Proxied {
    host: Host,
    known: Arc<Known>,
    call: CallTraits,
}

impl Proxied {
    /// Whose it is.
    pub(super) fn application(&self) -> String {
        self.known.caller.application.policy_name()
    }

    /// Says whether the call passes a terminal on, whose owner has to be known.
    pub(super) fn has_terminal(&self) -> bool {
        self.call.terminal.is_some()
    }

    /// What is known without a look.
    pub(super) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known)
    }

    /// Looks for the process that asks.
    pub(super) fn look_behind(self) -> Arc<Known> {
        let Known { caller, began, evidence, .. } = &*self.known;
        let client = self.host.client_behind(caller, &self.call);
        Arc::new(Known { caller: caller.clone(), began: *began, evidence: *evidence, client })
    }
}

/// A process that nobody knows.
#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) pid: u32,
    pidfd: OwnedFd,
    host: Host,
    began: u64,
    evidence: Evidence,
}

/// All connections that have called and have not left.
#[derive(Debug)]
pub(super) struct Callers {
    host: Host,
    known: HashMap<String, Calling>,
    /// When connections came to the bus, in ticks since the machine began.
    came: HashMap<String, u64>,
    /// Those that are not in `came` were there at that time.
    since: u64,
    /// Processes that have connections, by number and beginning.
    processes: HashMap<(u32, u64), Weak<Known>>,
    /// Calls that wait.
    waiting: usize,
    /// Descriptors of calls that wait.
    descriptors: usize,
    most_descriptors: usize,
}

impl Callers {
    /// Begins to know callers; `most_descriptors` may wait with their calls.
    pub(super) fn new(host: Host, most_descriptors: usize) -> Callers {
        Callers {
            host,
            known: HashMap::new(),
            came: HashMap::new(),
            since: ticks_now(),
            processes: HashMap::new(),
            waiting: 0,
            descriptors: 0,
            most_descriptors,
        }
    }

    /// Takes it that a connection came to the bus.
    pub(super) fn came(&mut self, sender: String) {
        self.came.insert(sender, ticks_now());
    }

    /// Takes it that a connection has left; what it waited for is dropped.
    pub(super) fn gone(&mut self, sender: &str) {
        self.came.remove(sender);
        if let Some(calling) = self.known.remove(sender) {
            self.waiting -= calling.waiting.len();
            self.descriptors -= calling.waiting.iter().map(Call::descriptors).sum::<usize>();
        }
    }

    /// Takes a call.
    pub(super) fn queue(&mut self, sender: &str, call: Call) -> Queued {
        let count = call.descriptors();
        if self.descriptors + count > self.most_descriptors {
            return Queued::Refused(call);
        }
        let is_new = !self.known.contains_key(sender);
        let calling = self.known.entry(sender.to_owned()).or_default();
        if calling.waiting.len() >= MOST_WAITING {
            return Queued::Refused(call);
        }
        calling.waiting.push_back(call);
        self.waiting += 1;
        self.descriptors += count;
        if is_new { Queued::AsksWho } else { Queued::Waits }
    }

    /// Takes the next call of a connection that is known and starts nothing.
    pub(super) fn next(&mut self, sender: &str) -> Option<(Call, Identity)> {
        let calling = self.known.get_mut(sender).filter(|calling| !calling.is_starting)?;
        let identity = calling.identity.clone()?;
        let call = calling.waiting.pop_front()?;
        self.waiting -= 1;
        self.descriptors -= call.descriptors();
        Some((call, identity))
    }

    /// Says whether a command of the connection is being started.
    pub(super) fn set_starting(&mut self, sender: &str, is_starting: bool) {
        if let Some(calling) = self.known.get_mut(sender) {
            calling.is_starting = is_starting;
        }
    }

    /// Says whether anybody waits.
    pub(super) fn are_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Returns those who wait.
    pub(super) fn waiting(&self) -> Vec<String> {
        let waits = |(_, calling): &(&String, &Calling)| !calling.waiting.is_empty();
        self.known.iter().filter(waits).map(|(sender, _)| sender.clone()).collect()
    }

    /// Takes what the bus says of a connection's process, and what the kernel and the host do.
    pub(super) fn learn(&mut self, sender: &str, process: Result<Process, String>) -> Learned {
        if !self.known.contains_key(sender) {
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
        let came = self.came.get(sender).copied().unwrap_or(self.since);
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
        process: Result<Process, String>,
    ) -> Result<Result<Arc<Known>, Suspect>, String> {
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
        let came = self.came.get(sender).copied().unwrap_or(self.since);
        if evidence == Evidence::Number && began > came + 1 {
            // The one that connected has ended, and whoever holds the connection now is not this one.
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
        let known = Arc::new(Known { caller, began, evidence, client: None });
        if self.processes.len() >= MOST_KEPT {
            self.processes.retain(|_, kept| kept.strong_count() > 0);
        }
        self.processes.insert((pid, began), Arc::downgrade(&known));
        Ok(Ok(known))
    }

    /// Takes what a connection's process is. That stays: it never becomes somebody else.
    pub(super) fn settle(&mut self, sender: &str, identity: Identity) {
        if let Some(calling) = self.known.get_mut(sender) {
            calling.identity.get_or_insert(identity);
        }
    }
}

impl Suspect {
    /// Looks at what the process says of itself, for as long as its files take.
    pub(super) fn look_inside(&self) -> Identity {
        let caller = self.host.look_inside(self.pid).map_err(|error| text(&error))?;
        // If it has not ended by now, the number was its own all the time.
        match is_over(&self.pidfd) {
            false => {
                let Suspect { began, evidence, .. } = *self;
                Ok(Arc::new(Known { caller, began, evidence, client: None }))
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
