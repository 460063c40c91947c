//! The owner of all state of host commands: handles one event after the other.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bus::request::ReplyTo;
use bus::server::flatpak::{BusProcess, Incoming, Server};
use host::command::StartError;
use host::log::Writer;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::super::service_thread::State;
use super::HostServiceOptions;
use super::callers::{Call, Callers, Identity, Learned, Proxied, Queued, Suspect};
use super::event::Event;
use super::journal::Log;
use super::keepers::{Keepers, Starting};
use super::policy::Followed;
use super::quota::Quota;
use super::running::Running;
use super::sandboxes::{Places, Session};
use super::starters::Starters;
use super::variables::{self, Variables};

/// The most pending jobs up to which programs behind proxies are searched.
const MOST_JOBS: usize = 16;
/// The most searches at a time for programs without a terminal. A search reads files of every process of a sandbox, each of which
/// may wait for that process, which waits for a processor: threads that start commands must be left.
const MOST_SEARCHES: usize = 2;

/// The work of a thread.
#[derive(Debug)]
pub(super) enum Job {
    /// Identify the caller of this connection; the fallback if that takes too long.
    Identify(String, Identity),
    /// Start a command.
    Start(Box<Starting>),
}

/// The progress of ending the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// The name is being released; calls that were sent to it still arrive.
    Releasing,
    Over,
}

/// All state of the service.
#[derive(Debug)]
pub(super) struct ServiceOwner {
    pub(super) server: Server,
    pub(super) options: HostServiceOptions,
    state: Arc<State>,
    /// The process of the bus, once it is known.
    pub(super) bus: Option<u32>,
    pub(super) callers: Callers,
    variables: Variables,
    pub(super) policy: Followed,
    pub(super) log: Log,
    pub(super) starters: Starters,
    pub(super) jobs: HashMap<u64, Job>,
    /// Counts the searches behind proxies: each has a copy until its thread is done.
    searches: Arc<()>,
    pub(super) quota: Quota,
    session: Session,
    /// Callers that wait for the files of sandboxes.
    sandboxes: Vec<ReplyTo>,
    pub(super) running: HashMap<u32, Running>,
    pub(super) keepers: Keepers,
    events: UnboundedReceiver<Event>,
    pub(super) tell: UnboundedSender<Event>,
    phase: Phase,
}

impl ServiceOwner {
    pub(super) fn new(
        server: Server,
        options: HostServiceOptions,
        state: Arc<State>,
    ) -> ServiceOwner {
        let (tell, events) = unbounded_channel();
        let log = Log::start(Writer::new(options.disk.clone(), options.log.clone()));
        let callers = Callers::new(options.host.clone(), options.bounds);
        let variables = Variables::new(options.environment.clone());
        let policy = Followed::new(options.policy.clone());
        let quota = Quota::new(options.bounds);
        let starters = Starters::new(Arc::clone(&options.clock));
        ServiceOwner {
            server,
            options,
            state,
            bus: None,
            callers,
            variables,
            policy,
            log,
            starters,
            jobs: HashMap::new(),
            searches: Arc::new(()),
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

    /// Serves until the end is requested, or the name or the bus is lost.
    pub(super) async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut told = false;
        self.server.ask_bus_process();
        while self.phase != Phase::Over {
            let starting = self.keepers.are_starting() || !self.jobs.is_empty();
            let waiting = self.callers.are_waiting() || !self.sandboxes.is_empty();
            let busy = !self.running.is_empty()
                || starting
                || waiting
                || self.session.is_used()
                || self.log.deadline().is_some();
            if busy {
                self.state.set_busy(true);
            }
            if let Err(error) = self.server.flush().await {
                tracing::warn!(%error, "cannot answer");
                break;
            }
            // Other threads are woken later: on a small machine they would take the processor from the command and its caller.
            self.log.flush_if_due(self.options.clock.monotonic());
            if !busy {
                self.state.set_busy(false);
            }
            let event = self.wait(&mut stopped, told).await;
            told |= matches!(event, Event::Stop);
            self.handle(event);
            self.resume();
            while let Some(incoming) = self.server.next_now() {
                let over = matches!(incoming, Incoming::Closed);
                self.handle(Event::Incoming(incoming));
                self.resume();
                if over {
                    break;
                }
            }
        }
        tracing::info!(running = self.running.len(), "ended serving host commands");
    }

    async fn wait(&mut self, stopped: &mut oneshot::Receiver<()>, told: bool) -> Event {
        let now = self.options.clock.monotonic();
        let due = [
            self.variables.deadline(),
            self.starters.deadline(),
            self.keepers.deadline(),
            self.log.deadline(),
        ];
        let due = due.into_iter().flatten().min();
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
            Incoming::Came(sender) => {
                self.server.identify(&sender);
                self.callers.came(sender);
            }
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
            Queued::AsksWho => {
                self.server.identify(&sender);
            }
            Queued::Said(process) => self.learn(&sender, process),
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

    /// Handles the bus's answer about a caller.
    fn learn(&mut self, sender: &str, process: Result<BusProcess, String>) {
        match self.callers.learn(sender, process) {
            Learned::Known => self.advance(sender),
            Learned::LookInside(suspect) => self.look_inside(sender, suspect),
            Learned::LookBehind(proxied) => self.look_behind(sender, proxied),
        }
    }

    /// Has a thread read the files of a process.
    fn look_inside(&mut self, sender: &str, suspect: Suspect) {
        // Its application is not known yet; it cannot choose its control group.
        let group = std::fs::read_to_string(format!("/proc/{}/cgroup", suspect.pid));
        let whose = format!("?{}", group.unwrap_or_default());
        let late = Err("its files cannot be read".to_owned());
        self.identify(sender, &whose, late, move || suspect.look_inside());
    }

    /// Has a thread search the process behind a proxy.
    fn look_behind(&mut self, sender: &str, proxied: Proxied) {
        // Also those that nobody waits for any more, and whose threads still hang.
        let searches = Arc::strong_count(&self.searches) - 1;
        let too_many = self.jobs.len() > MOST_JOBS || searches >= MOST_SEARCHES;
        if too_many && !proxied.has_terminal() {
            // The log then has only the proxy: a search among many clients takes long.
            self.callers.settle(sender, Ok(proxied.known()));
            return self.advance(sender);
        }
        let late = Ok(proxied.known());
        let whose = proxied.application();
        let counted = Arc::clone(&self.searches);
        self.identify(sender, &whose, late, move || {
            let found = proxied.look_behind();
            drop(counted);
            Ok(found)
        });
    }

    /// Has a thread identify a caller; `late` is used if that takes too long.
    fn identify(
        &mut self,
        sender: &str,
        whose: &str,
        late: Identity,
        look: impl FnOnce() -> Identity + Send + 'static,
    ) {
        let tell = self.tell.clone();
        let work = move |job| {
            // It fails only when the service ends.
            let _ = tell.send(Event::Identified { job, identity: look() });
        };
        match self.starters.begin(whose.into(), work) {
            Ok(job) => drop(self.jobs.insert(job, Job::Identify(sender.to_owned(), late))),
            Err(error) => {
                self.callers.settle(sender, late.map_err(|_| error.to_string()));
                self.advance(sender);
            }
        }
    }

    fn identified(&mut self, job: u64, identity: Identity) {
        self.starters.finish(job);
        if let Some(Job::Identify(sender, _)) = self.jobs.remove(&job) {
            self.callers.settle(&sender, identity);
            self.advance(&sender);
        }
    }

    /// Requests the environment of the session, if the cached one is old.
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
            // It fails only when the service ends.
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

    /// Executes the calls of a connection in their order, as far as its caller and the environment are known.
    pub(super) fn advance(&mut self, sender: &str) {
        let now = self.options.clock.monotonic();
        let Some(environment) = self.variables.get(now) else { return };
        while let Some((call, identity)) = self.callers.next(sender) {
            match call {
                Call::Command(reply_to, request) => {
                    let waits = self.command(reply_to, request, identity, Arc::clone(&environment));
                    if let Some((call, application)) = waits {
                        let ticket = self.quota.wait(&application, sender);
                        self.callers.put_back(sender, call, ticket);
                    }
                }
                Call::Session(reply_to) => self.session(reply_to, &identity),
            }
        }
    }

    /// Continues with connections whose application may start a command again.
    fn resume(&mut self) {
        while let Some(sender) = self.quota.resume() {
            self.callers.resume(&sender);
            self.advance(&sender);
        }
    }

    fn tick(&mut self) {
        for job in self.starters.late() {
            match self.jobs.remove(&job) {
                Some(Job::Identify(sender, late)) => {
                    self.callers.settle(&sender, late);
                    self.advance(&sender);
                }
                Some(Job::Start(starting)) => {
                    self.callers.release(&starting.application, starting.weight);
                    let sender = starting.reply_to.sender().to_owned();
                    self.too_late(*starting);
                    self.callers.set_starting(&sender, false);
                    self.advance(&sender);
                }
                None => {}
            }
        }
        for starting in self.keepers.late(self.options.clock.monotonic()) {
            self.too_late(starting);
        }
        // Calls may have waited for the environment.
        self.advance_all();
    }

    /// Replies that a command took too long to start. It may begin before it is ended.
    fn too_late(&mut self, starting: Starting) {
        let command = starting.entry.command.first().cloned().unwrap_or_default();
        let source = io::ErrorKind::TimedOut.into();
        self.not_started(starting, StartError::MayHaveBegun { command, source });
    }

    fn session(&mut self, reply_to: ReplyTo, identity: &Identity) {
        if let Err(why) = identity {
            tracing::info!(why, sender = reply_to.sender(), "refused a session");
            return self.server.denied(&reply_to, "cannot serve this caller");
        }
        let tell = self.tell.clone();
        let made = move |places| {
            // It fails only when the service ends.
            let _ = tell.send(Event::Session(places));
        };
        match self.session.places(&self.options, made) {
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
        if let Some(ticket) = self.callers.gone(sender) {
            self.quota.leave(&ticket);
        }
        for job in self.jobs.values_mut() {
            if let Job::Start(starting) = job {
                starting.caller_gone |= starting.reply_to.sender() == sender;
            }
        }
        self.keepers.caller_is_gone(sender, &self.running);
    }
}
