//! The owner of all state: takes one event after the other and decides what follows from it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bus::request::{ReplyTo, Request};
use bus::server::{Incoming, Server};
use session::clock::Clock;
use session::settings::changeset::Changeset;
use session::settings::engine::{Answer, Engine, Kind, Report};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::DaemonError;
use super::blame::{self, Record};
use super::disk::{DiskThread, Done};
use super::part::Part;
use super::senders::{self, Senders};
use super::systemd::Notifier;
use super::watch::Watch;
use super::{host, listing, recents};

/// Messages that are taken before the disk and the clock are looked at again.
const BURST: usize = 256;

/// Everything that can happen.
#[derive(Debug)]
enum Event {
    /// A message, or the end of the connection.
    Incoming(Incoming),
    /// The disk thread finished something; `None` if it ended.
    Disk(Option<Done>),
    /// Another program touched these databases.
    Edited(Vec<session::settings::engine::DatabaseId>),
    /// The last client of a listing has left.
    Left,
    /// A signal asked us to end.
    Signal(&'static str),
    /// Something waited for this time.
    Tick,
    /// Nothing happened for long enough.
    Idle,
}

/// How far the end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not in sight.
    Serving,
    /// The name is being given back; calls that were sent to it still arrive.
    Releasing,
    /// No call arrives any more; what was accepted is being stored and answered.
    Draining,
}

/// The signals that ask us to end.
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
    pub(super) listings: Option<listing::Service>,
    pub(super) host: Option<host::Service>,
    pub(super) recents: Option<recents::Service>,
    pub(super) signals: Signals,
    pub(super) senders: Senders,
    pub(super) blame: Record,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) idle_exit: Option<Duration>,
    pub(super) notifier: Notifier,
}

/// Where the loop is.
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
            let event = self.wait(&progress).await;
            self.handle(event, name, &mut progress)?;
            for _ in 0..BURST {
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
        self.engine.is_idle() && self.disk.is_idle() && self.blame.is_idle()
    }

    /// Gives the disk its work and the bus its messages.
    fn pump(&mut self) {
        while let Some(job) = self.engine.next_job() {
            self.disk.run(job);
        }
        while let Some(answer) = self.engine.next_answer() {
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
            // Our own commits stir the watched directory several times; one look after each is enough.
            edited = self.watch.next(), if self.disk.is_idle() => Event::Edited(edited),
            () = listing::left(self.listings.as_ref()) => Event::Left,
            () = Part::left(self.host.as_ref().map(host::Service::part)) => Event::Left,
            () = Part::left(self.recents.as_ref().map(recents::Service::part)) => Event::Left,
            () = timer => then,
        }
    }

    fn next_deadline(&self, progress: &Progress) -> (Option<Duration>, Event) {
        let tick = self.engine.deadline();
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

    /// Says whether nobody would miss us: a text file that people edit has to be followed for ever.
    fn may_leave(&self) -> bool {
        let listings = self.listings.as_ref().is_none_or(listing::Service::is_idle);
        let host = self.host.as_ref().is_none_or(host::Service::is_idle);
        let recents = self.recents.as_ref().is_none_or(recents::Service::is_idle);
        listings && host && recents && self.is_idle() && !self.watch.has(Kind::Keyfile)
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
            Event::Disk(Some(Done::Job(done))) => self.engine.finished(done),
            Event::Disk(Some(Done::Names(names, reply_to))) => {
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
            // Somebody may have asked for a directory since the time was up.
            Event::Idle if !self.may_leave() => {}
            Event::Idle => self.leave("idle", name, progress),
            Event::Tick => self.engine.tick(),
        }
        Ok(())
    }

    fn request(&mut self, request: Request) {
        let reply_to = match &request {
            Request::Change { reply_to, .. }
            | Request::Init { reply_to, .. }
            | Request::Blame { reply_to }
            | Request::Names { reply_to, .. } => reply_to,
        };
        if self.senders.is_new(reply_to.sender()) {
            self.server.identify(reply_to.sender());
        }
        match request {
            Request::Change { reply_to, database, blob } => {
                let changeset = Changeset::decode(blob.bytes());
                tracing::debug!(%database, sender = reply_to.sender(), changes = changeset.len(), "Change");
                let parameters = || blame::change_parameters(blob.bytes());
                let path = || database.object_path();
                self.blame.add(reply_to.sender(), path, "Change", parameters);
                let sender = reply_to.sender().to_owned();
                self.engine.change(&database, changeset, &sender, reply_to);
            }
            Request::Init { reply_to, database } => {
                tracing::debug!(%database, sender = reply_to.sender(), "Init");
                let path = || database.object_path();
                self.blame.add(reply_to.sender(), path, "Init", || "()".to_owned());
                self.engine.init(&database, reply_to);
            }
            Request::Blame { reply_to } => self.blame.ask(reply_to),
            Request::Names { reply_to, kind } => self.disk.list(self.engine.names(kind), reply_to),
        }
    }

    fn answer(&mut self, answer: &Answer<ReplyTo>) {
        match answer {
            Answer::Changed { token, tag } => self.server.reply_text(token, tag),
            Answer::Initialised { token } => self.server.reply_empty(token),
            Answer::Failed { token, error } => self.server.reply_error(token, error),
            Answer::Notify { id, prefix, changes, tag } => {
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

    /// Gives the name back, so that the bus starts another one of us for calls from now on.
    fn leave(&mut self, why: &str, name: &str, progress: &mut Progress) {
        if progress.phase != Phase::Serving {
            return;
        }
        tracing::info!(why, name, "ending");
        // First, or systemd would take the start of our successor for one that has already happened.
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
        // Who each sender was can no longer be asked.
        self.blame = Record::new(bus::server::Blame::Off);
        self.drain(progress);
    }
}

fn log(report: &Report) {
    match report {
        Report::Merged { .. } => tracing::info!("{report}"),
        _ => tracing::warn!("{report}"),
    }
}
