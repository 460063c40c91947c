//! The owner of all state: it handles one event after the other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bus::request::{BusRequest, ReplyTo};
use bus::server::{Incoming, Server};
use settings::changeset::Changeset;
use settings::engine::{DatabaseKind, Engine, EngineMessage, EngineNotice};
use sys::clock::Clock;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::DaemonError;
use super::blame::{self, Record};
use super::disk::{DiskOutcome, DiskThread};
use super::senders::{self, Senders};
use super::service_thread::RunningService;
use super::systemd::Notifier;
use super::watch::Watch;
use super::{host, listing, recents};

/// The most messages that are handled before the disk and the clock are checked again and answers are sent.
const BURST: usize = 256;
/// The longest time for which they are handled, because a single message may take long.
const LONGEST_BURST: Duration = Duration::from_millis(10);
/// The most bytes of their answers.
const LARGEST_BURST: usize = 1 << 20;

/// The events of the loop.
#[derive(Debug)]
enum Event {
    /// A message, or the end of the connection.
    Incoming(Incoming),
    /// The disk thread finished a job; `None` if the thread has ended.
    Disk(Option<DiskOutcome>),
    /// Another program may have changed these databases.
    Edited(Vec<settings::engine::DatabaseId>),
    /// The last client of a listing has left.
    Left,
    /// A signal asked the daemon to end.
    Signal(&'static str),
    /// A deadline has passed.
    Tick,
    /// The daemon has been idle for the configured time.
    Idle,
}

/// The progress of ending the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The daemon serves.
    Serving,
    /// The name is being released; calls that were sent to it still arrive.
    Releasing,
    /// No call arrives any more; what was accepted is being stored and answered.
    Draining,
}

/// The signals that ask the daemon to end.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Catches the signals from now on.
    pub(super) fn listen() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}

/// All state of the daemon.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) server: Server,
    pub(super) engine: Engine<ReplyTo>,
    pub(super) disk: DiskThread,
    pub(super) watch: Watch,
    pub(super) listings: Option<listing::ListingService>,
    pub(super) host: Option<host::HostService>,
    pub(super) recents: Option<recents::RecentsService>,
    pub(super) signals: Signals,
    pub(super) senders: Senders<u32>,
    /// The next answer, while the bus has not told yet who made the change.
    pub(super) held: Option<EngineMessage<ReplyTo>>,
    pub(super) blame: Record,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) idle_exit: Option<Duration>,
    pub(super) notifier: Notifier,
}

/// The state of the loop.
#[derive(Debug)]
struct Progress {
    phase: Phase,
    connected: bool,
    last_call: Duration,
}

impl Owner {
    /// Serves until the end, then returns when everything accepted is stored and answered.
    pub(super) async fn serve(mut self, name: &str) -> Result<(), DaemonError> {
        let mut progress =
            Progress { phase: Phase::Serving, connected: true, last_call: self.clock.monotonic() };
        loop {
            self.pump();
            self.flush(&mut progress).await;
            if progress.phase == Phase::Draining && self.is_idle() {
                break;
            }
            if self.held.is_none()
                && let Some(job) = self.engine.next_preparation()
            {
                self.disk.run(job);
            }
            let event = self.wait(&progress).await;
            self.handle(event, name, &mut progress)?;
            let began = self.clock.monotonic();
            for _ in 0..BURST {
                let is_over = self.clock.monotonic().saturating_sub(began) >= LONGEST_BURST
                    || self.server.outgoing_bytes() >= LARGEST_BURST;
                if is_over {
                    break;
                }
                let Some(incoming) = self.server.next_now().filter(|_| progress.connected) else {
                    break;
                };
                self.handle(Event::Incoming(incoming), name, &mut progress)?;
            }
        }
        self.disk.stop();
        tracing::info!(name, "ended");
        Ok(())
    }

    fn is_idle(&self) -> bool {
        let is_idle = self.engine.is_idle() && self.disk.is_idle() && self.blame.is_idle();
        is_idle && self.held.is_none()
    }

    /// Returns whether the bus has not yet told who made this change. A program may end as soon as it is answered, and then the history could not name it.
    fn awaits_identity(&self, answer: &EngineMessage<ReplyTo>) -> bool {
        let EngineMessage::Changed { token, .. } = answer else { return false };
        let sender = token.sender();
        self.senders.identity(sender).is_none() && !self.senders.is_forgotten(sender)
    }

    /// Passes jobs to the disk threads and messages to the bus.
    fn pump(&mut self) {
        while let Some(job) = self.engine.next_job() {
            if job.replaces_files() {
                self.watch.sleep(self.clock.monotonic());
            }
            self.disk.run(job);
        }
        while let Some(answer) = self.held.take().or_else(|| self.engine.next_answer()) {
            if self.awaits_identity(&answer) {
                self.held = Some(answer);
                break;
            }
            self.answer(&answer);
        }
        while let Some((reply_to, text)) = self.blame.settle(&self.senders) {
            self.server.reply_text(&reply_to, text);
        }
        while let Some(report) = self.engine.next_report() {
            log(&report);
        }
        let version = self.engine.watched_version();
        if self.watch.is_behind(version) {
            self.watch.follow(version, self.engine.watched());
        }
    }

    async fn flush(&mut self, progress: &mut Progress) {
        if let Err(error) = self.server.flush().await
            && progress.connected
        {
            tracing::warn!(%error, "cannot answer");
            self.lose_bus(progress);
        }
    }

    async fn wait(&mut self, progress: &Progress) -> Event {
        let now = self.clock.monotonic();
        let (due, then) = self.next_deadline(progress);
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep(due.saturating_sub(now)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            done = self.disk.next() => Event::Disk(done),
            incoming = self.server.next(), if progress.connected => Event::Incoming(incoming),
            name = self.signals.next() => Event::Signal(name),
            // Our own commits cause several events in the watched directory; one check after some of them is enough.
            edited = self.watch.next(), if self.disk.leaves_databases_alone() => Event::Edited(edited),
            () = listing::left(self.listings.as_ref()) => Event::Left,
            () = RunningService::left(self.host.as_ref().map(host::HostService::part)) => Event::Left,
            () = RunningService::left(self.recents.as_ref().map(recents::RecentsService::part)) => Event::Left,
            () = timer => then,
        }
    }

    fn next_deadline(&self, progress: &Progress) -> (Option<Duration>, Event) {
        let tick = [self.engine.deadline(), self.watch.asleep_until()].into_iter().flatten().min();
        let idle = self
            .idle_exit
            .filter(|_| progress.phase == Phase::Serving && self.may_leave())
            .map(|patience| progress.last_call + patience);
        match (tick, idle) {
            (Some(tick), Some(idle)) if idle < tick => (Some(idle), Event::Idle),
            (Some(tick), _) => (Some(tick), Event::Tick),
            (None, idle) => (idle, Event::Idle),
        }
    }

    /// Returns whether the daemon may end: a text file that people edit has to be followed for as long as the session lasts.
    fn may_leave(&self) -> bool {
        let listings = self.listings.as_ref().is_none_or(listing::ListingService::is_idle);
        let host = self.host.as_ref().is_none_or(host::HostService::is_idle);
        let recents = self.recents.as_ref().is_none_or(recents::RecentsService::is_idle);
        listings && host && recents && self.is_idle() && !self.watch.has(DatabaseKind::Keyfile)
    }

    fn handle(
        &mut self,
        event: Event,
        name: &str,
        progress: &mut Progress,
    ) -> Result<(), DaemonError> {
        match event {
            Event::Incoming(Incoming::Request(request)) => {
                progress.last_call = self.clock.monotonic();
                self.request(request);
            }
            Event::Incoming(Incoming::Answered) => progress.last_call = self.clock.monotonic(),
            Event::Incoming(Incoming::Process { sender, pid }) => self.learn(&sender, pid),
            Event::Incoming(Incoming::Released) => self.drain(progress),
            Event::Incoming(Incoming::NameLost) => {
                if progress.phase == Phase::Serving {
                    tracing::warn!(name, "another process took the name");
                    self.notifier.stopping();
                    self.drain(progress);
                }
            }
            Event::Incoming(Incoming::Closed) => {
                tracing::warn!("the bus is gone");
                self.lose_bus(progress);
            }
            Event::Disk(Some(DiskOutcome::Job(done))) => self.engine.finished(done),
            Event::Disk(Some(DiskOutcome::Names(names, reply_to))) => {
                self.server.reply_names(&reply_to, &names);
            }
            Event::Disk(None) => return Err(DaemonError::DiskThreadGone),
            Event::Edited(databases) => {
                for database in databases {
                    self.engine.outside_edit(&database);
                }
            }
            Event::Signal(signal) => self.leave(signal, name, progress),
            Event::Left => progress.last_call = self.clock.monotonic(),
            // A client may have requested a directory since the deadline.
            Event::Idle if !self.may_leave() => {}
            Event::Idle => self.leave("idle", name, progress),
            Event::Tick => {
                self.watch.wake(self.clock.monotonic());
                self.engine.tick();
            }
        }
        Ok(())
    }

    fn request(&mut self, request: BusRequest) {
        let reply_to = match &request {
            BusRequest::Change { reply_to, .. }
            | BusRequest::Init { reply_to, .. }
            | BusRequest::Blame { reply_to }
            | BusRequest::Names { reply_to, .. } => reply_to,
        };
        if self.senders.is_new(reply_to.sender()) {
            let sender = reply_to.sender();
            if !self.server.identify(sender) {
                self.senders.learn(sender, Err("the bus cannot be asked".to_owned()));
            }
        }
        match request {
            BusRequest::Change { reply_to, database, blob } => {
                let changeset = Changeset::read(blob.bytes());
                let changes = changeset.as_ref().map_or(0, Changeset::len);
                tracing::debug!(%database, sender = reply_to.sender(), changes, "Change");
                let parameters = || blame::change_parameters(blob.bytes());
                let path = || database.object_path();
                self.blame.add(reply_to.sender(), path, "Change", parameters);
                let sender = reply_to.sender().to_owned();
                match changeset {
                    Ok(changeset) => self.engine.change(&database, changeset, &sender, reply_to),
                    Err(refused) => self.engine.refuse_change(&database, &refused, reply_to),
                }
            }
            BusRequest::Init { reply_to, database } => {
                tracing::debug!(%database, sender = reply_to.sender(), "Init");
                let path = || database.object_path();
                self.blame.add(reply_to.sender(), path, "Init", || "()".to_owned());
                self.engine.init(&database, reply_to);
            }
            BusRequest::Blame { reply_to } => self.blame.ask(reply_to),
            BusRequest::Names { reply_to, kind } => {
                self.disk.list(self.engine.names(kind), reply_to)
            }
        }
    }

    fn answer(&mut self, answer: &EngineMessage<ReplyTo>) {
        match answer {
            EngineMessage::Changed { token, tag } => self.server.reply_text(token, tag),
            EngineMessage::Initialised { token } => self.server.reply_empty(token),
            EngineMessage::Failed { token, error } => self.server.reply_error(token, error),
            EngineMessage::Notify { id, prefix, changes, tag } => {
                self.server.notify(id, prefix, changes, tag);
            }
        }
    }

    fn learn(&mut self, sender: &str, pid: Result<u32, String>) {
        if let Ok(pid) = pid {
            self.engine.identify(sender, senders::process(pid));
        }
        self.senders.learn(sender, pid);
    }

    /// Releases the bus name, so that the bus starts another daemon for calls from now on.
    fn leave(&mut self, why: &str, name: &str, progress: &mut Progress) {
        if progress.phase != Phase::Serving {
            return;
        }
        tracing::info!(why, name, "ending");
        // This comes first; otherwise systemd would take the start of the successor for one that has already happened.
        self.notifier.stopping();
        self.server.release(name);
        progress.phase = Phase::Releasing;
    }

    fn drain(&mut self, progress: &mut Progress) {
        if progress.phase != Phase::Draining {
            progress.phase = Phase::Draining;
            self.engine.begin_shutdown();
        }
    }

    fn lose_bus(&mut self, progress: &mut Progress) {
        progress.connected = false;
        self.notifier.stopping();
        // The bus can no longer be asked about senders.
        self.senders = Senders::default();
        self.blame = Record::new(bus::server::CallRecording::Off);
        self.drain(progress);
    }
}

fn log(report: &EngineNotice) {
    match report {
        EngineNotice::Merged { .. } => tracing::info!("{report}"),
        _ => tracing::warn!("{report}"),
    }
}
