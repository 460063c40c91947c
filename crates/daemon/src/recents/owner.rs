//! The owner of the service's state; it handles one event after the other.

use report::error::chain;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bus::request::ReplyTo;
use bus::server::recent::{Incoming, NAME, OpenedDocument, RecentCall, Server};
use recents::policy::{DenialReason, Private};
use recents::{
    Addition, AdditionOutcome, Recents, RecentsError, RememberingProgram, Uri, UriError, Watcher,
    sandbox, writer,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::super::service_thread::State;
use super::RecentsServiceOptions;
use super::caller::{Caller, Callers, Confined, Identity};
use super::quota::Quota;
use super::watch::Watch;
use super::work::{self, FileVersions, Job, RoundResult, Worker};

/// How long the start waits for a writer process that runs without the daemon.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a service beside another process that watches looks whether that has ended.
const WATCHES_AGAIN: Duration = Duration::from_secs(10);
/// The delay before the next round of writing after a failure; it doubles with each further failure.
const RETRY: Duration = Duration::from_secs(2);
/// The longest delay after failures.
const MOST_RETRY: Duration = Duration::from_secs(60);
/// The most calls that wait for the identification of their callers.
const MOST_WAITING: usize = 1024;
/// The most of these of one connection.
const MOST_WAITING_EACH: usize = 128;
/// The most callers that wait for one round of writing.
const MOST_SYNCED: usize = 1024;
/// The most bytes of an addition whose fields keep their limits.
const LONGEST: usize = 32 << 10;
/// The answer to a sandboxed program whose document is excluded. It is the same for all reasons, because the user's rules are private.
const LEFT_OUT: &str = "it is not remembered";
/// The answer to a caller that has used up its quota.
const TOO_MUCH: &str = "cannot take so many documents at once: try again in a minute";

/// The unique name of a connection, with the identity of its caller.
type IdentifiedCaller = (String, Identity);

enum Event {
    Incoming(Incoming),
    Identified(String, Identity),
    /// A watched file may have changed.
    Touched,
    /// The worker finished a job; `None` if the worker has ended.
    Done(Option<RoundResult>),
    /// The next round of writing is due.
    Due,
    /// Another process may have ended that watched.
    Unwatched,
    Stop,
}

struct ServiceOwner {
    server: Option<Server>,
    /// Held while this process sees every addition, so that programs need not start a writer.
    watcher: Option<Watcher>,
    /// When it is tried again to hold it, on the monotonic clock.
    watches_at: Duration,
    watch: Watch,
    recents: Recents,
    worker: Worker,
    callers: Callers,
    quota: Quota,
    waiting: VecDeque<(ReplyTo, RecentCall)>,
    /// When the next round of writing begins, on the monotonic clock.
    due: Option<Duration>,
    /// When the last round began.
    began: Duration,
    /// The delay of the next round if the current one fails.
    retry: Duration,
    /// The callers that wait for the end of the next round.
    synced: Vec<ReplyTo>,
    /// The versions of the files after the last round.
    seen: Option<FileVersions>,
    options: RecentsServiceOptions,
    identified: (UnboundedSender<IdentifiedCaller>, UnboundedReceiver<IdentifiedCaller>),
}

/// Serves until `stopped`, then writes pending changes.
pub(super) fn serve(
    options: RecentsServiceOptions,
    state: &Arc<State>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    state.set_busy(true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = connect(&options).await;
        let new = || {
            let (disk, clock) = (options.disk.clone(), options.clock.clone());
            Recents::new(options.places.clone(), RememberingProgram::Ordinary, disk, clock)
        };
        let (recents, worker) = (new(), Worker::start(new(), options.address.clone())?);
        let hub = ServiceOwner {
            server,
            watcher: None,
            watches_at: Duration::ZERO,
            watch: Watch::new()?,
            recents,
            worker,
            callers: Callers::new(options.host.clone()),
            quota: Quota::default(),
            waiting: VecDeque::new(),
            due: None,
            began: Duration::ZERO,
            retry: RETRY,
            synced: Vec::new(),
            seen: None,
            options,
            identified: unbounded_channel(),
        };
        hub.run(state, stopped).await;
        Ok(())
    })
}

/// Connects and requests the name. Without them the journal is still watched.
async fn connect(options: &RecentsServiceOptions) -> Option<Server> {
    let served = async {
        let mut server = Server::connect(options.address.as_deref()).await?;
        server.own(options.takeover).await?;
        Ok::<Server, bus::server::ServerError>(server)
    };
    match served.await {
        Ok(server) => {
            tracing::info!(name = NAME, "serving recent documents");
            Some(server)
        }
        Err(error) => {
            tracing::info!(error = chain(&error), "recent documents are not served on a bus");
            None
        }
    }
}

impl ServiceOwner {
    async fn run(mut self, state: &Arc<State>, mut stopped: oneshot::Receiver<()>) {
        self.start_watching(PATIENCE);
        loop {
            self.start_due();
            let is_busy = self.due.is_some() || !self.worker.is_idle() || !self.waiting.is_empty();
            state.set_busy(is_busy);
            if let Some(server) = &mut self.server
                && let Err(error) = server.flush().await
            {
                tracing::warn!(%error, "cannot answer");
                self.server = None;
            }
            match self.wait(&mut stopped).await {
                Event::Stop => break,
                Event::Done(None) => {
                    // Without it programs start writers, as they do without this service.
                    tracing::error!("nobody writes recent documents any more");
                    break;
                }
                event => self.handle(event),
            }
        }
        self.end().await;
    }

    /// Becomes the process that writes additions, so that programs need not start a writer.
    fn start_watching(&mut self, patience: Duration) {
        let watching = self
            .follow()
            .and_then(|()| Watcher::of(&*self.options.disk, &self.options.places, patience));
        self.watches_at = self.options.clock.monotonic() + WATCHES_AGAIN;
        match watching {
            // Earlier additions may not have been written by anybody.
            Ok(Some(watcher)) => {
                self.watcher = Some(watcher);
                self.touch();
            }
            Ok(None) => tracing::debug!("another process watches recent documents"),
            Err(error) if patience.is_zero() => {
                tracing::debug!(%error, "cannot watch recent documents");
            }
            Err(error) => tracing::warn!(%error, "cannot watch recent documents"),
        }
    }

    /// Watches the files at their current paths: `volatile` moves the journal to memory and back.
    fn follow(&mut self) -> io::Result<()> {
        for file in work::watched(&mut self.recents) {
            let parent = file.parent().unwrap_or(std::path::Path::new("/"));
            store::publish::make_directory(&*self.options.disk, parent)?;
            self.watch.add(&file)?;
        }
        // Where there is no directory there are no rules; whoever makes them changes a list, too.
        let _ = self.watch.add(&self.options.places.rules());
        Ok(())
    }

    async fn wait(&mut self, stopped: &mut oneshot::Receiver<()>) -> Event {
        let now = self.options.clock.monotonic();
        let timer = async {
            match self.due {
                Some(due) => tokio::time::sleep(due.saturating_sub(now)).await,
                None => std::future::pending().await,
            }
        };
        let incoming = async {
            match &mut self.server {
                Some(server) => server.next().await,
                None => std::future::pending().await,
            }
        };
        let unwatched = tokio::time::sleep(self.watches_at.saturating_sub(now));
        tokio::select! {
            _ = stopped => Event::Stop,
            done = self.worker.next() => Event::Done(done),
            incoming = incoming => Event::Incoming(incoming),
            Some((sender, identity)) = self.identified.1.recv() => Event::Identified(sender, identity),
            () = self.watch.next(), if self.watcher.is_some() => Event::Touched,
            () = timer => Event::Due,
            () = unwatched, if self.watcher.is_none() => Event::Unwatched,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Incoming(Incoming::Call(reply_to, call)) => self.take(reply_to, call),
            Event::Incoming(Incoming::Process { sender, pid }) => match self.callers.look(pid) {
                Ok(look) => {
                    let tell = self.identified.0.clone();
                    tokio::spawn(async move {
                        // The receiver is gone when the service ends.
                        let _ = tell.send((sender, look.await));
                    });
                }
                Err(why) => {
                    self.callers.settle(&sender, Err(why));
                    self.settle();
                }
            },
            Event::Identified(sender, identity) => {
                self.callers.found(&sender, identity);
                self.settle();
            }
            Event::Incoming(ended @ (Incoming::NameLost | Incoming::Closed)) => {
                tracing::warn!(name = NAME, "recent documents are not served on the bus any more");
                self.server = None;
                self.waiting.clear();
                if matches!(ended, Incoming::NameLost) {
                    // Whoever has the name now watches.
                    self.watcher = None;
                }
            }
            Event::Unwatched => self.start_watching(Duration::ZERO),
            // Our own writes cause events, too: they change nothing against `seen`.
            Event::Touched if self.worker.is_idle() => {
                if self.seen.as_ref() != Some(&FileVersions::now(&mut self.recents)) {
                    self.touch();
                }
            }
            Event::Done(Some(done)) => self.done(done),
            Event::Incoming(Incoming::Answered)
            | Event::Due
            | Event::Touched
            | Event::Done(None)
            | Event::Stop => {}
        }
    }

    /// Schedules a round of writing.
    fn touch(&mut self) {
        let now = self.options.clock.monotonic();
        let earliest = if self.began.is_zero() { now } else { self.began + writer::APART };
        self.due.get_or_insert(earliest.max(now + writer::GATHER));
    }

    /// Begins the round if it is due.
    fn start_due(&mut self) {
        let now = self.options.clock.monotonic();
        if self.due.is_some_and(|due| due <= now) && self.worker.is_idle() {
            self.due = None;
            self.began = now;
            self.worker.run(Job::Write(std::mem::take(&mut self.synced)));
        }
    }

    fn done(&mut self, done: RoundResult) {
        match done {
            RoundResult::Written(waiting, result) => self.written(waiting, result),
            RoundResult::Forgot(reply_to, result) => {
                self.seen = None;
                self.touch();
                let Some(server) = &mut self.server else { return };
                match result {
                    Ok(count) => server.forgot(&reply_to, count),
                    Err(error) => server.failed(&reply_to, &error),
                }
            }
            RoundResult::Snapshot => {}
        }
    }

    fn written(&mut self, waiting: Vec<ReplyTo>, result: Result<FileVersions, String>) {
        match result {
            Ok(before) => {
                self.retry = RETRY;
                if self.watcher.is_some()
                    && let Err(error) = self.follow()
                {
                    tracing::warn!(%error, "cannot watch recent documents any more");
                    self.watcher = None;
                }
                let now = FileVersions::now(&mut self.recents);
                let is_new = self.seen.as_ref().is_none_or(|known| known.journal != now.journal);
                // An addition during the round may have come after the round read the journal. The round's own changes look the
                // same; therefore a round that wrote is followed by another one, until one changes nothing.
                if now != before {
                    self.touch();
                }
                self.seen = Some(now);
                if let Some(server) = &mut self.server {
                    waiting.iter().for_each(|reply_to| server.done(reply_to));
                    if is_new {
                        server.changed();
                    }
                }
            }
            Err(error) => {
                if self.retry == RETRY {
                    tracing::warn!(error, "cannot write the lists that other programs read");
                }
                self.due = Some(self.options.clock.monotonic() + self.retry);
                self.retry = (self.retry * 2).min(MOST_RETRY);
                if let Some(server) = &mut self.server {
                    waiting.iter().for_each(|reply_to| server.failed(reply_to, &error));
                }
            }
        }
    }

    /// Answers a call, or keeps it until its caller is identified.
    fn take(&mut self, reply_to: ReplyTo, call: RecentCall) {
        let Some(server) = &mut self.server else { return };
        let waits = |(other, _): &&(ReplyTo, RecentCall)| other.sender() == reply_to.sender();
        if self.waiting.len() >= MOST_WAITING
            || self.waiting.iter().filter(waits).count() >= MOST_WAITING_EACH
        {
            return server.too_much(&reply_to, "too many calls are waiting");
        }
        if self.callers.is_new(reply_to.sender()) {
            server.identify(reply_to.sender());
        }
        self.waiting.push_back((reply_to, call));
        self.settle();
    }

    /// Answers the waiting calls whose callers are identified.
    fn settle(&mut self) {
        let mut unidentified = Vec::new();
        for (reply_to, call) in std::mem::take(&mut self.waiting) {
            match self.callers.identity(reply_to.sender()) {
                Some(Ok(caller)) => self.answer(reply_to, call, &caller),
                Some(Err(why)) => {
                    if let Some(server) = &mut self.server {
                        server.denied(&reply_to, &format!("cannot tell who calls: {why}"));
                    }
                    unidentified.push(reply_to);
                }
                None => self.waiting.push_back((reply_to, call)),
            }
        }
        for reply_to in unidentified {
            self.callers.forget(reply_to.sender());
        }
    }

    fn answer(&mut self, reply_to: ReplyTo, call: RecentCall, caller: &Caller) {
        tracing::debug!(sender = reply_to.sender(), caller = caller.name, "called");
        let Some(server) = &mut self.server else { return };
        let is_own = matches!(call, RecentCall::Add(_) | RecentCall::Sync);
        if caller.confined == Confined::Yes && !is_own {
            return server.denied(&reply_to, "a sandboxed program may only add documents");
        }
        // A call that is too long is refused and costs as much quota as the shortest one.
        let bytes = size_of(&call);
        let bytes = if bytes > LONGEST { 0 } else { bytes };
        if is_own && !self.quota.take(caller, bytes, self.options.clock.monotonic()) {
            return server.too_much(&reply_to, TOO_MUCH);
        }
        match call {
            RecentCall::Add(document) => self.add(&reply_to, document, caller),
            RecentCall::Sync if self.synced.len() >= MOST_SYNCED => {
                server.too_much(&reply_to, TOO_MUCH)
            }
            RecentCall::Sync => {
                self.synced.push(reply_to);
                match caller.confined {
                    Confined::No => self.due = Some(self.options.clock.monotonic()),
                    // A sandboxed program does not decide how often files are written.
                    Confined::Yes => self.touch(),
                }
            }
            RecentCall::List(query) => match self.recents.list() {
                Ok(list) => server.listed(&reply_to, &query.select(list)),
                Err(error) => server.failed(&reply_to, &chain(&error)),
            },
            RecentCall::Forget(uris) => {
                let uris: Result<Vec<Uri>, UriError> =
                    uris.iter().map(|uri| Uri::parse(uri.as_bytes())).collect();
                match uris {
                    Ok(uris) => self.worker.run(Job::Forget(uris, reply_to)),
                    Err(error) => server.invalid(&reply_to, &error.to_string()),
                }
            }
            RecentCall::Private(wanted) => {
                let clock = self.recents.clock();
                let (disk, places) = (self.recents.disk(), self.recents.places());
                let done = match wanted {
                    None => Private::turn_off(disk, places, clock)
                        .map(|_| ())
                        .map_err(|error| chain(&error)),
                    Some(seconds) => {
                        let until = self.recents.now().after(Duration::from_secs(seconds));
                        let mode =
                            if seconds == 0 { Private::WithoutEnd } else { Private::Until(until) };
                        mode.turn_on(disk, places, clock).map_err(|error| chain(&error))
                    }
                };
                // The list from before is imported, and documents that were added in private mode are removed.
                self.due = Some(self.options.clock.monotonic());
                match done {
                    Ok(()) => server.done(&reply_to),
                    Err(error) => server.failed(&reply_to, &error),
                }
            }
            RecentCall::Policy => {
                let limits = self.recents.limits();
                let now = self.recents.now();
                let off = self.recents.policy().off(&*self.options.disk, Some(&caller.name), now);
                let why = off.map(|reason| reason.to_string());
                let days = limits.age.map_or(0, |age| age.as_secs() / (24 * 60 * 60));
                server.policy(&reply_to, why.as_deref(), limits.entries, days);
            }
        }
    }

    fn add(&mut self, reply_to: &ReplyTo, document: OpenedDocument, caller: &Caller) {
        let Some(server) = &mut self.server else { return };
        if caller.program == RememberingProgram::Private {
            let why = match caller.confined {
                Confined::Yes => LEFT_OUT.to_owned(),
                Confined::No => DenialReason::PrivateProgram.to_string(),
            };
            return server.added(reply_to, Some(&why));
        }
        let uri = match Uri::parse(document.uri.as_bytes()) {
            Ok(uri) => uri,
            Err(error) => return server.invalid(reply_to, &error.to_string()),
        };
        let is_confined = caller.confined == Confined::Yes;
        let application = document.application.filter(|_| !is_confined);
        let application = application.unwrap_or_else(|| caller.name.clone());
        let exec = match document.exec {
            // The command would be run outside of the sandbox, so a sandboxed program cannot set it.
            _ if is_confined => sandbox::command_line(&caller.name),
            Some(exec) => exec,
            None => format!("{} %u", caller.name),
        };
        let addition = Addition {
            uri,
            mime: document.mime,
            groups: document.groups,
            privacy: document.privacy,
            exec,
            application,
            at: self.recents.now(),
        };
        let added = self.recents.add(&addition);
        if matches!(added, Ok(AdditionOutcome::Remembered)) && self.watcher.is_none() {
            // No event of its file comes.
            self.touch();
        }
        let Some(server) = &mut self.server else { return };
        match added {
            Ok(AdditionOutcome::Remembered) => server.added(reply_to, None),
            Ok(AdditionOutcome::Left(_)) if is_confined => server.added(reply_to, Some(LEFT_OUT)),
            Ok(AdditionOutcome::Left(reason)) => server.added(reply_to, Some(&reason.to_string())),
            Err(RecentsError::Field(error)) => server.invalid(reply_to, &error.to_string()),
            Err(error) if is_confined => {
                tracing::warn!(error = chain(&error), "cannot remember a document");
                server.failed(reply_to, "cannot remember the document");
            }
            Err(error) => server.failed(reply_to, &chain(&error)),
        }
    }

    /// Writes pending changes and releases the watch.
    async fn end(mut self) {
        // From now on, a program that adds a document starts a writer.
        drop(self.watcher.take());
        if self.due.is_some() || self.seen.as_ref() != Some(&FileVersions::now(&mut self.recents)) {
            self.worker.run(Job::Write(std::mem::take(&mut self.synced)));
        }
        self.worker.run(Job::Snapshot);
        while !self.worker.is_idle() {
            let Some(done) = self.worker.next().await else { break };
            self.done(done);
        }
        if let Some(server) = &mut self.server {
            // There is no connection left to answer on.
            let _ = server.flush().await;
        }
        self.worker.stop();
    }
}

/// Returns the total length of a call's texts in bytes.
fn size_of(call: &RecentCall) -> usize {
    let RecentCall::Add(OpenedDocument { uri, mime, groups, application, exec, .. }) = call else {
        return 0;
    };
    let texts = [mime, application, exec].into_iter().flatten().chain(groups).chain([uri]);
    texts.map(String::len).sum()
}
