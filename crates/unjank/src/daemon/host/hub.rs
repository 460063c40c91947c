//! The owner of all state of host commands: takes one event after the other.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use bus::request::ReplyTo;
use bus::server::flatpak::{Incoming, Server};
use session::host::command::{Request, StartError};
use session::host::environment::Environment;
use session::host::keeper::{self, Report};
use session::host::log::{End, EndedBy, Entry, Outcome, Process, Writer};
use session::host::policy::Wanted;
use session::host::program::DEFAULT_SEARCH;
use sys::launch::Child;
use sys::pidfd::{Ended, Scope};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::super::part::State;
use super::Options;
use super::journal::Log;
use super::kept::{Keepers, Starting, watched};
use super::policy::{self, Followed};
use super::sandboxes::{Places, Session};
use super::senders::{Identity, Senders};
use super::variables::Variables;

/// A terminal has another size.
const SIGWINCH: i32 = 28;

/// A command on its way.
enum Started {
    /// It runs.
    Runs(Child),
    /// Its keeper does, and tells at this socket whether the command does.
    Kept(Child, OwnedFd),
}

/// What happens.
#[derive(Debug)]
pub(super) enum Event {
    /// Something arrived on the bus.
    Incoming(Incoming),
    /// A caller's files were looked at.
    Identified {
        /// Its unique name.
        sender: String,
        /// What was found.
        identity: Identity,
    },
    /// A command has ended and can be reaped.
    Ended(u32),
    /// A keeper tells something; `None` when it is gone.
    Kept(u64, Option<Report>),
    /// A keeper has ended and can be reaped.
    KeeperEnded(u64),
    /// The files for sandboxes are there, or cannot be.
    Session(io::Result<Places>),
    /// We are to end.
    Stop,
    /// A time is over.
    Tick,
}

/// A call that waits until its caller is known.
#[derive(Debug)]
enum Waiting {
    Command(ReplyTo, Box<Request>),
    Session(ReplyTo),
}

impl Waiting {
    fn reply_to(&self) -> &ReplyTo {
        match self {
            Waiting::Command(reply_to, _) | Waiting::Session(reply_to) => reply_to,
        }
    }
}

/// A command that runs.
#[derive(Debug)]
pub(super) struct Running {
    /// Who asked for it, who alone may send it signals and is told of its end.
    pub(super) sender: String,
    pub(super) pidfd: Arc<OwnedFd>,
    /// Its number in the log.
    pub(super) id: u64,
    pub(super) began: Duration,
    /// Who keeps it, if it has a keeper.
    pub(super) keeper: Option<u64>,
}

/// How far the end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// The name is being given back; calls that were sent to it still arrive.
    Releasing,
    Over,
}

/// All state of the service.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) server: Server,
    pub(super) options: Options,
    state: Arc<State>,
    senders: Senders,
    variables: Variables,
    policy: Followed,
    pub(super) log: Log,
    waiting: Vec<Waiting>,
    session: Session,
    /// Those who wait for its files.
    sandboxes: Vec<ReplyTo>,
    pub(super) running: HashMap<u32, Running>,
    pub(super) keepers: Keepers,
    events: UnboundedReceiver<Event>,
    pub(super) tell: UnboundedSender<Event>,
    phase: Phase,
}

impl Hub {
    pub(super) fn new(server: Server, options: Options, state: Arc<State>) -> Hub {
        let (tell, events) = unbounded_channel();
        let log = Log::start(Writer::new(options.disk.clone(), options.log.clone()));
        let senders = Senders::new(options.host.clone(), tell.clone());
        let variables = Variables::new(options.environment.clone());
        let policy = Followed::new(options.policy.clone());
        Hub {
            server,
            options,
            state,
            senders,
            variables,
            policy,
            log,
            waiting: Vec::new(),
            session: Session::default(),
            sandboxes: Vec::new(),
            running: HashMap::new(),
            keepers: Keepers::default(),
            events,
            tell,
            phase: Phase::Serving,
        }
    }

    /// Serves until we are told to end, or the name or the bus is lost.
    pub(super) async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut told = false;
        while self.phase != Phase::Over {
            self.pump();
            let starting = self.keepers.are_starting() || !self.waiting.is_empty();
            let used = self.session.is_used();
            let busy = !self.running.is_empty() || starting || used;
            if busy {
                self.state.set_busy(true);
            }
            if let Err(error) = self.server.flush().await {
                tracing::warn!(%error, "cannot answer");
                break;
            }
            // Other threads are woken only now: on a small machine they would run before whoever waits for the answer.
            self.log.flush();
            if !busy {
                self.state.set_busy(false);
            }
            let event = self.wait(&mut stopped, told).await;
            told |= matches!(event, Event::Stop);
            self.handle(event);
            while let Some(incoming) = self.server.next_now() {
                let over = matches!(incoming, Incoming::Closed);
                self.handle(Event::Incoming(incoming));
                if over {
                    break;
                }
            }
        }
        tracing::info!(running = self.running.len(), "ended serving host commands");
    }

    async fn wait(&mut self, stopped: &mut oneshot::Receiver<()>, told: bool) -> Event {
        let now = self.options.clock.monotonic();
        let timer = async {
            match self.variables.deadline() {
                Some(due) => tokio::time::sleep(due.saturating_sub(now)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            incoming = self.server.next() => Event::Incoming(incoming),
            Some(event) = self.events.recv() => event,
            _ = stopped, if !told => Event::Stop,
            () = timer => Event::Tick,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Incoming(incoming) => self.take(incoming),
            Event::Identified { sender, identity } => self.senders.found(&sender, identity),
            Event::Ended(pid) => self.reap(pid),
            Event::Kept(keeper, report) => self.kept(keeper, report),
            Event::KeeperEnded(keeper) => self.keepers.reap(keeper),
            Event::Session(places) => self.answer_sandboxes(&places),
            Event::Stop => {
                self.server.release();
                self.phase = Phase::Releasing;
            }
            Event::Tick => {}
        }
    }

    fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Command { reply_to, request } => {
                if self.variables.wants_to_ask(self.options.clock.monotonic()) {
                    self.server.ask_environment();
                }
                self.queue(Waiting::Command(reply_to, request));
            }
            Incoming::Session { reply_to } => self.queue(Waiting::Session(reply_to)),
            Incoming::Signal { reply_to, pid, signal, scope } => {
                let result = self.signal(reply_to.sender(), pid, signal, scope);
                self.server.signalled(&reply_to, &result);
            }
            Incoming::Process { sender, process } => self.senders.learn(&sender, process),
            Incoming::Environment(block) => {
                self.variables.learn(block.as_deref(), self.options.clock.monotonic());
            }
            Incoming::ManagerChanged => self.variables.doubt(),
            Incoming::Gone(sender) => self.gone(&sender),
            Incoming::Answered => {}
            Incoming::Released => self.phase = Phase::Over,
            Incoming::NameLost => {
                if self.phase == Phase::Serving {
                    tracing::warn!("another process took the name");
                    self.phase = Phase::Over;
                }
            }
            Incoming::Closed => {
                tracing::warn!("the bus is gone");
                self.phase = Phase::Over;
            }
        }
    }

    fn queue(&mut self, waiting: Waiting) {
        let sender = waiting.reply_to().sender();
        if self.senders.is_new(sender) {
            self.server.identify(sender);
        }
        self.waiting.push(waiting);
    }

    /// Does what waited, as far as everything about it is known by now; the calls of one caller in their order.
    fn pump(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let now = self.options.clock.monotonic();
        let environment = self.variables.get(now).is_some();
        for waiting in std::mem::take(&mut self.waiting) {
            let sender = waiting.reply_to().sender();
            let earlier = self.waiting.iter().any(|other| other.reply_to().sender() == sender);
            let known = self.senders.identity(sender).is_some();
            match waiting {
                Waiting::Command(reply_to, request) if known && environment && !earlier => {
                    self.command(reply_to, *request);
                }
                Waiting::Session(reply_to) if known && !earlier => self.session(reply_to),
                waiting => self.waiting.push(waiting),
            }
        }
    }

    /// Starts a command, or says why not; either is logged.
    fn command(&mut self, reply_to: ReplyTo, request: Request) {
        let began = self.options.clock.monotonic();
        let identity = self.senders.identity(reply_to.sender()).cloned();
        let identity = identity.unwrap_or_else(|| Err("it has left".to_owned()));
        let mut entry = Entry {
            id: 0,
            time: self.options.clock.now(),
            application: String::new(),
            caller: 0,
            exe: None,
            command: texts(&request.arguments),
            directory: (!request.directory.is_empty())
                .then(|| OsStr::from_bytes(&request.directory).into()),
            outcome: Outcome::Refused(String::new()),
        };
        if let Ok(caller) = &identity {
            entry.application = caller.application.policy_name();
            (entry.caller, entry.exe) = (caller.pid, caller.exe.clone());
        }
        match self.start(identity, request, began) {
            Ok(Started::Runs(child)) => self.began(reply_to, entry, child, began, None),
            Ok(Started::Kept(keeper, socket)) => {
                let starting = Starting { reply_to, entry, began };
                self.keepers.add(keeper, socket, starting, &self.tell);
            }
            Err(error) => self.not_started(&reply_to, entry, error),
        }
    }

    /// Takes it that a command runs.
    pub(super) fn began(
        &mut self,
        reply_to: ReplyTo,
        mut entry: Entry,
        child: Child,
        began: Duration,
        keeper: Option<u64>,
    ) {
        let sender = reply_to.sender().to_owned();
        tracing::debug!(sender, pid = child.pid, command = ?entry.command, "HostCommand");
        self.server.began(&reply_to, child.pid);
        entry.outcome = Outcome::Began(Process { pid: child.pid, began: 0 });
        let id = self.log.begin(entry);
        let pidfd = Arc::new(child.pidfd);
        if keeper.is_none() {
            self.await_end(child.pid, Arc::clone(&pidfd));
        }
        self.running.insert(child.pid, Running { sender, pidfd, id, began, keeper });
    }

    /// Takes it that a command will not run.
    pub(super) fn not_started(&mut self, reply_to: &ReplyTo, mut entry: Entry, error: StartError) {
        tracing::debug!(sender = reply_to.sender(), %error, "refused a command");
        self.server.not_started(reply_to, &error);
        entry.outcome = match error {
            StartError::Refused { why, .. } => Outcome::Refused(why),
            error => Outcome::NotStarted(error.to_string()),
        };
        self.log.begin(entry);
    }

    fn start(
        &mut self,
        identity: Identity,
        mut request: Request,
        now: Duration,
    ) -> Result<Started, StartError> {
        let command = request.name();
        let refused = |application: String, why: String| StartError::Refused {
            command: command.clone(),
            application,
            why,
        };
        let caller = identity.map_err(|why| refused("somebody unknown".to_owned(), why))?;
        let has_terminal = request.has_terminal();
        if has_terminal {
            request.add_terminal_type(caller.pid);
        }
        let none = Environment::default();
        let environment = self.variables.get(now).unwrap_or(&none);
        let found = request.prepare(environment)?;
        let search = environment.get("PATH").unwrap_or(DEFAULT_SEARCH.as_bytes());
        let wanted = Wanted {
            program: &found.path,
            arguments: request.arguments.get(1..).unwrap_or_default(),
            search: OsStr::from_bytes(search),
        };
        policy::check(&mut self.policy, &caller, &wanted, &request)
            .map_err(|why| refused(caller.application.policy_name(), why))?;
        let failed = |source| StartError::Program { command: command.clone(), source };
        let terms = request.terms(caller.pid);
        // zbus takes descriptors off the bus without the flag.
        sys::launch::close_on_exec(3).map_err(failed)?;
        let prepared = found.ready(request).map_err(failed)?;
        if has_terminal || terms.are_any() {
            let kept = keeper::start(&self.options.keeper, &prepared, &terms);
            return kept.map(|(child, socket)| Started::Kept(child, socket)).map_err(failed);
        }
        prepared.start().map(Started::Runs).map_err(failed)
    }

    /// Waits beside everything else until a process has ended.
    fn await_end(&self, pid: u32, pidfd: Arc<OwnedFd>) {
        let tell = self.tell.clone();
        tokio::spawn(async move {
            let ended = match watched(pidfd) {
                Ok(waited) => waited.readable().await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::error!(%error, pid, "cannot wait for a command");
            }
            // Nobody listens any more when we are ending.
            let _ = tell.send(Event::Ended(pid));
        });
    }

    fn session(&mut self, reply_to: ReplyTo) {
        if let Some(Err(why)) = self.senders.identity(reply_to.sender()) {
            return self.server.denied(&reply_to, &format!("cannot serve the caller: {why}"));
        }
        match self.session.places(&self.options, &self.tell) {
            Ok(Some(places)) => {
                self.server.session(&reply_to, &places.monitor, places.pkcs11.as_deref());
            }
            Ok(None) => self.sandboxes.push(reply_to),
            Err(error) => self.server.failed(&reply_to, &format!("cannot make a session: {error}")),
        }
    }

    fn answer_sandboxes(&mut self, places: &io::Result<Places>) {
        self.session.learn(places);
        for reply_to in std::mem::take(&mut self.sandboxes) {
            match places {
                Ok(places) => {
                    self.server.session(&reply_to, &places.monitor, places.pkcs11.as_deref());
                }
                Err(error) => {
                    let text = format!("cannot make a session: {error}");
                    self.server.failed(&reply_to, &text);
                }
            }
        }
    }

    fn signal(&mut self, sender: &str, pid: u32, signal: u32, scope: Scope) -> io::Result<()> {
        // The same answer for a stranger's command as for none.
        let running = self.running.get(&pid).filter(|running| running.sender == sender);
        let running = running.ok_or(io::ErrorKind::NotFound)?;
        let signal = i32::try_from(signal).ok().filter(|signal| (0..=64).contains(signal));
        let signal = signal.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "there is no signal of this number")
        })?;
        if signal == SIGWINCH && self.keepers.resize(running.keeper) {
            return Ok(());
        }
        sys::pidfd::signal(running.pidfd.as_fd(), pid, signal, scope)
    }

    fn gone(&mut self, sender: &str) {
        if self.senders.remove(sender) {
            self.server.forget(sender);
        }
        self.waiting.retain(|waiting| waiting.reply_to().sender() != sender);
        self.keepers.caller_is_gone(sender, &self.running);
    }

    fn reap(&mut self, pid: u32) {
        let Some(running) = self.running.get(&pid) else { return };
        let ended = match sys::pidfd::reap(running.pidfd.as_fd()) {
            Ok(Some(ended)) => ended,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, pid, "cannot learn how a command ended");
                self.running.remove(&pid);
                return;
            }
        };
        self.ended(pid, &ended, EndedBy::Itself);
    }

    /// Tells the caller of a command, and the log, that it has ended.
    pub(super) fn ended(&mut self, pid: u32, ended: &Ended, by: EndedBy) {
        let Some(running) = self.running.remove(&pid) else { return };
        self.server.exited(&running.sender, pid, ended.wait_status);
        let end = End {
            wait_status: ended.wait_status,
            after: self.options.clock.monotonic().saturating_sub(running.began),
            user: ended.user,
            system: ended.system,
            memory_bytes: ended.memory_bytes,
            by,
        };
        self.log.end(running.id, end);
    }
}

/// Bytes as people read them.
fn texts(words: &[Vec<u8>]) -> Vec<String> {
    words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
