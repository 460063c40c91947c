//! The owner of all state of host commands: takes one event after the other.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bus::request::ReplyTo;
use bus::server::flatpak::{Incoming, Process, Server};
use session::host::command::StartError;
use session::host::keeper::Report;
use session::host::log::Writer;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::super::part::State;
use super::Options;
use super::callers::{Call, Callers, Identity, Learned, Proxied, Queued, Suspect};
use super::journal::Log;
use super::kept::{Keepers, Starting};
use super::policy::Followed;
use super::quota::Quota;
use super::sandboxes::{Places, Session};
use super::start::Started;
use super::starters::Starters;
use super::variables::{self, Variables};

/// Work that may wait while programs behind proxies are looked for.
const MOST_LOOKS: usize = 16;

/// What happens.
#[derive(Debug)]
pub(super) enum Event {
    /// Something arrived on the bus.
    Incoming(Incoming),
    /// A caller's files were looked at.
    Identified {
        /// The number of the job.
        job: u64,
        /// What was found.
        identity: Identity,
    },
    /// A command was started, or could not be.
    Started {
        /// The number of the job.
        job: u64,
        /// What came of it.
        result: Result<Started, StartError>,
    },
    /// The service manager told the environment of the session, or there is none.
    Environment(io::Result<Option<Vec<String>>>),
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

/// What a thread was asked to do.
#[derive(Debug)]
pub(super) enum Job {
    /// To find out who asks by this connection, and what is known of that if it takes too long.
    Identify(String, Identity),
    /// To start a command.
    Start(Box<Starting>),
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
    /// Whose it is.
    pub(super) application: Arc<str>,
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
    /// The process of the bus, once it has said.
    pub(super) bus: Option<u32>,
    pub(super) callers: Callers,
    variables: Variables,
    pub(super) policy: Followed,
    pub(super) log: Log,
    pub(super) starters: Starters,
    pub(super) jobs: HashMap<u64, Job>,
    pub(super) quota: Quota,
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
        let callers = Callers::new(options.host.clone(), options.bounds.waiting_descriptors);
        let variables = Variables::new(options.environment.clone());
        let policy = Followed::new(options.policy.clone());
        let quota = Quota::new(options.bounds);
        Hub {
            server,
            options,
            state,
            bus: None,
            callers,
            variables,
            policy,
            log,
            starters: Starters::new(),
            jobs: HashMap::new(),
            quota,
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
        self.server.ask_bus_process();
        while self.phase != Phase::Over {
            let starting = self.keepers.are_starting() || !self.jobs.is_empty();
            let waiting = self.callers.are_waiting() || !self.sandboxes.is_empty();
            let busy = !self.running.is_empty() || starting || waiting || self.session.is_used();
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
        let due = self.variables.deadline().into_iter().chain(self.starters.deadline()).min();
        let timer = async {
            match due {
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
            Event::Identified { job, identity } => self.identified(job, identity),
            Event::Started { job, result } => self.started(job, result),
            Event::Environment(answer) => self.learn_environment(&answer),
            Event::Ended(pid) => self.reap(pid),
            Event::Kept(keeper, report) => self.kept(keeper, report),
            Event::KeeperEnded(keeper) => self.keepers.reap(keeper),
            Event::Session(places) => self.answer_sandboxes(&places),
            Event::Stop => {
                self.server.release();
                self.phase = Phase::Releasing;
            }
            Event::Tick => self.tick(),
        }
    }

    fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Command { reply_to, request } => {
                self.refresh_environment();
                self.queue(Call::Command(reply_to, request));
            }
            Incoming::Session { reply_to } => self.queue(Call::Session(reply_to)),
            Incoming::Signal { reply_to, pid, signal, scope } => {
                let result = self.signal(reply_to.sender(), pid, signal, scope);
                self.server.signalled(&reply_to, &result);
            }
            Incoming::Process { sender, process } => self.learn(&sender, process),
            Incoming::BusProcess(pid) => self.bus = pid,
            Incoming::Came(sender) => self.callers.came(sender),
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

    fn queue(&mut self, call: Call) {
        let sender = match &call {
            Call::Command(reply_to, _) | Call::Session(reply_to) => reply_to.sender().to_owned(),
        };
        match self.callers.queue(&sender, call) {
            Queued::AsksWho => self.server.identify(&sender),
            Queued::Waits => self.advance(&sender),
            Queued::Refused(Call::Command(reply_to, request)) => {
                let why = "too many calls wait";
                self.server
                    .not_started(&reply_to, &StartError::TooMany { command: request.name(), why });
            }
            Queued::Refused(Call::Session(reply_to)) => {
                self.server.failed(&reply_to, "too many calls wait");
            }
        }
    }

    /// Takes what the bus says of a caller.
    fn learn(&mut self, sender: &str, process: Result<Process, String>) {
        match self.callers.learn(sender, process) {
            Learned::Known => self.advance(sender),
            Learned::LookInside(suspect) => self.look_inside(sender, suspect),
            Learned::LookBehind(proxied) => self.look_behind(sender, proxied),
        }
    }

    /// Has the files of a process looked at.
    fn look_inside(&mut self, sender: &str, suspect: Suspect) {
        // Nobody knows yet whose it is; its control group it cannot choose.
        let group = std::fs::read_to_string(format!("/proc/{}/cgroup", suspect.pid));
        let whose = format!("?{}", group.unwrap_or_default());
        let late = Err("its files cannot be read".to_owned());
        self.identify(sender, &whose, late, move || suspect.look_inside());
    }

    /// Has the process looked for that speaks through a proxy.
    fn look_behind(&mut self, sender: &str, proxied: Proxied) {
        if self.jobs.len() > MOST_LOOKS && !proxied.has_terminal() {
            // The log does without it: a look among many clients takes long.
            self.callers.settle(sender, Ok(proxied.known()));
            return self.advance(sender);
        }
        let late = Ok(proxied.known());
        let whose = proxied.application();
        self.identify(sender, &whose, late, move || Ok(proxied.look_behind()));
    }

    /// Has a thread find out who asks; `late` is what counts if that takes too long.
    fn identify(
        &mut self,
        sender: &str,
        whose: &str,
        late: Identity,
        look: impl FnOnce() -> Identity + Send + 'static,
    ) {
        let tell = self.tell.clone();
        let work = move |job| {
            // Nobody listens any more when we are ending.
            let _ = tell.send(Event::Identified { job, identity: look() });
        };
        match self.starters.begin(whose.into(), self.options.clock.monotonic(), work) {
            Ok(job) => drop(self.jobs.insert(job, Job::Identify(sender.to_owned(), late))),
            Err(error) => {
                self.callers.settle(sender, late.map_err(|_| error.to_string()));
                self.advance(sender);
            }
        }
    }

    fn identified(&mut self, job: u64, identity: Identity) {
        self.starters.finish(job, self.options.clock.monotonic());
        if let Some(Job::Identify(sender, _)) = self.jobs.remove(&job) {
            self.callers.settle(&sender, identity);
            self.advance(&sender);
        }
    }

    /// Asks for the environment of the session, if what is known is old.
    fn refresh_environment(&mut self) {
        let now = self.options.clock.monotonic();
        if !self.variables.wants_to_ask(now) {
            return;
        }
        let socket = variables::socket(&self.options.runtime);
        if !socket.exists() {
            return self.variables.learn(None, now);
        }
        let tell = self.tell.clone();
        let asking = sys::thread::spawn("host-manager", move || {
            // Nobody listens any more when we are ending.
            let _ = tell.send(Event::Environment(variables::ask(&socket)));
        });
        if let Err(error) = asking {
            tracing::warn!(%error, "cannot ask for the session's environment");
            self.variables.fail();
        }
    }

    fn learn_environment(&mut self, answer: &io::Result<Option<Vec<String>>>) {
        match answer {
            Ok(block) => {
                self.variables.learn(block.as_deref(), self.options.clock.monotonic());
            }
            Err(error) => {
                tracing::warn!(%error, "the service manager does not tell the session's environment");
                self.variables.fail();
            }
        }
        self.advance_all();
    }

    fn advance_all(&mut self) {
        for sender in self.callers.waiting() {
            self.advance(&sender);
        }
    }

    /// Does what a connection waits for, as far as everything about it is known by now; its calls in their order.
    pub(super) fn advance(&mut self, sender: &str) {
        let now = self.options.clock.monotonic();
        let Some(environment) = self.variables.get(now) else { return };
        while let Some((call, identity)) = self.callers.next(sender) {
            match call {
                Call::Command(reply_to, request) => {
                    self.command(reply_to, *request, identity, Arc::clone(&environment));
                }
                Call::Session(reply_to) => self.session(reply_to, &identity),
            }
        }
    }

    fn tick(&mut self) {
        let late = self.starters.late(self.options.clock.monotonic());
        for job in late {
            match self.jobs.remove(&job) {
                Some(Job::Identify(sender, late)) => {
                    self.callers.settle(&sender, late);
                    self.advance(&sender);
                }
                Some(Job::Start(starting)) => {
                    let sender = starting.reply_to.sender().to_owned();
                    let command = starting.entry.command.first().cloned().unwrap_or_default();
                    let source = io::ErrorKind::TimedOut.into();
                    self.not_started(*starting, StartError::Program { command, source });
                    self.callers.set_starting(&sender, false);
                    self.advance(&sender);
                }
                None => {}
            }
        }
        // The environment may have been waited for.
        self.advance_all();
    }

    fn session(&mut self, reply_to: ReplyTo, identity: &Identity) {
        if let Err(why) = identity {
            tracing::info!(why, sender = reply_to.sender(), "refused a session");
            return self.server.denied(&reply_to, "cannot serve this caller");
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

    fn gone(&mut self, sender: &str) {
        self.callers.gone(sender);
        for job in self.jobs.values_mut() {
            if let Job::Start(starting) = job {
                starting.caller_gone |= starting.reply_to.sender() == sender;
            }
        }
        self.keepers.caller_is_gone(sender, &self.running);
    }
}
