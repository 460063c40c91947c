//! The owner of the service's state: takes one event after the other.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bus::request::ReplyTo;
use bus::server::recent::{Call, Document, Incoming, NAME, Server};
use session::recents::policy::{Private, Reason};
use session::recents::{
    Added, Addition, Program, Recents, RecentsError, Uri, UriError, Watcher, sandbox, writer,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::super::part::State;
use super::Options;
use super::caller::{Caller, Callers, Confined, Identity};
use super::quota::Quota;
use super::watch::Watch;
use super::work::{self, Done, Job, Seen, Worker};

/// How long a writer that runs without us is waited for at the start.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a failure the next round waits this long, then twice as long and so on.
const RETRY: Duration = Duration::from_secs(2);
/// It waits no longer than this.
const MOST_RETRY: Duration = Duration::from_secs(60);
/// Calls that wait until it is known who makes them.
const MOST_WAITING: usize = 1024;
/// Of these, calls of one connection.
const MOST_WAITING_EACH: usize = 128;
/// Callers that wait for one round of writing.
const MOST_SYNCED: usize = 1024;
/// No addition is longer whose fields are as they must be.
const LONGEST: usize = 32 << 10;
/// What a sandboxed program is told of a document that is left out, whatever the reason: rules are the user's matter.
const LEFT_OUT: &str = "it is not remembered";
/// What a caller is told that has used up its share.
const TOO_MUCH: &str = "cannot take so many documents at once: try again in a minute";

/// A caller, and what is known of it.
type Found = (String, Identity);

enum Event {
    Incoming(Incoming),
    Identified(String, Identity),
    /// A file may be another one.
    Touched,
    /// Work was done; `None` if nobody works any more.
    Done(Option<Done>),
    /// It is time for a round.
    Due,
    Stop,
}

struct Hub {
    server: Option<Server>,
    /// Held as long as we see every addition.
    watcher: Option<Watcher>,
    watch: Watch,
    recents: Recents,
    worker: Worker,
    callers: Callers,
    quota: Quota,
    waiting: VecDeque<(ReplyTo, Call)>,
    /// When the next round begins.
    due: Option<Duration>,
    /// When the last began.
    began: Duration,
    /// How long the next one waits after a failure.
    retry: Duration,
    /// Who wants to know when the next is done.
    synced: Vec<ReplyTo>,
    /// What the files were after the last round.
    seen: Option<Seen>,
    options: Options,
    identified: (UnboundedSender<Found>, UnboundedReceiver<Found>),
}

/// Serves until `stopped`, then writes what is not written yet.
pub(super) fn serve(
    options: Options,
    state: &Arc<State>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    state.set_busy(true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = connect(&options).await;
        let new = || {
            let (disk, clock) = (options.disk.clone(), options.clock.clone());
            Recents::new(options.places.clone(), Program::Ordinary, disk, clock)
        };
        let (recents, worker) = (new(), Worker::start(new(), options.address.clone())?);
        let hub = Hub {
            server,
            watcher: None,
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

/// Takes the name; without it there is still a journal to watch.
async fn connect(options: &Options) -> Option<Server> {
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
            tracing::info!(error = work::text(&error), "recent documents are not served on a bus");
            None
        }
    }
}

impl Hub {
    async fn run(mut self, state: &Arc<State>, mut stopped: oneshot::Receiver<()>) {
        self.start_watching();
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
                event => self.handle(event),
            }
        }
        self.end().await;
    }

    /// Sees to it that whoever adds something need not start a writer.
    fn start_watching(&mut self) {
        if let Err(error) = self.follow() {
            tracing::warn!(%error, "cannot watch recent documents");
            return;
        }
        match Watcher::of(&*self.options.disk, &self.options.places, PATIENCE) {
            // What was added until now was seen by nobody else.
            Ok(Some(watcher)) => {
                self.watcher = Some(watcher);
                self.touch();
            }
            Ok(None) => tracing::info!("another process watches recent documents"),
            Err(error) => tracing::warn!(%error, "cannot watch recent documents"),
        }
    }

    /// Watches the files where they are now: the journal goes to memory and back.
    fn follow(&mut self) -> io::Result<()> {
        for file in work::watched(&mut self.recents) {
            let parent = file.parent().unwrap_or(std::path::Path::new("/"));
            store::publish::make_directory(&*self.options.disk, parent)?;
            self.watch.add(&file)?;
        }
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
        tokio::select! {
            _ = stopped => Event::Stop,
            done = self.worker.next() => Event::Done(done),
            incoming = incoming => Event::Incoming(incoming),
            Some((sender, identity)) = self.identified.1.recv() => Event::Identified(sender, identity),
            () = self.watch.next(), if self.watcher.is_some() => Event::Touched,
            () = timer => Event::Due,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Incoming(Incoming::Call(reply_to, call)) => self.take(reply_to, call),
            Event::Incoming(Incoming::Process { sender, pid }) => match self.callers.look(pid) {
                Ok(look) => {
                    let tell = self.identified.0.clone();
                    tokio::spawn(async move {
                        // Nobody listens any more at the end.
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
            Event::Incoming(Incoming::NameLost | Incoming::Closed) => {
                tracing::warn!(name = NAME, "recent documents are not served on the bus any more");
                self.server = None;
                self.waiting.clear();
            }
            // Our own writing is seen too.
            Event::Touched if self.worker.is_idle() => {
                if self.seen.as_ref() != Some(&Seen::now(&mut self.recents)) {
                    self.touch();
                }
            }
            Event::Incoming(Incoming::Answered) | Event::Due | Event::Touched | Event::Stop => {}
            Event::Done(done) => self.done(done),
        }
    }

    /// Plans a round.
    fn touch(&mut self) {
        let now = self.options.clock.monotonic();
        let earliest = if self.began.is_zero() { now } else { self.began + writer::APART };
        self.due.get_or_insert(earliest.max(now + writer::GATHER));
    }

    /// Begins a round that is due.
    fn start_due(&mut self) {
        let now = self.options.clock.monotonic();
        if self.due.is_some_and(|due| due <= now) && self.worker.is_idle() {
            self.due = None;
            self.began = now;
            self.worker.run(Job::Write(std::mem::take(&mut self.synced)));
        }
    }

    fn done(&mut self, done: Option<Done>) {
        match done {
            Some(Done::Written(waiting, result)) => self.written(waiting, result),
            Some(Done::Forgot(reply_to, result)) => {
                self.seen = None;
                self.touch();
                let Some(server) = &mut self.server else { return };
                match result {
                    Ok(count) => server.forgot(&reply_to, count),
                    Err(error) => server.failed(&reply_to, &error),
                }
            }
            Some(Done::Snapshot) => {}
            None => {
                tracing::error!("nobody writes recent documents any more");
                self.watcher = None;
                self.due = None;
            }
        }
    }

    fn written(&mut self, waiting: Vec<ReplyTo>, result: Result<Seen, String>) {
        match result {
            Ok(before) => {
                self.retry = RETRY;
                if self.watcher.is_some()
                    && let Err(error) = self.follow()
                {
                    tracing::warn!(%error, "cannot watch recent documents any more");
                    self.watcher = None;
                }
                let now = Seen::now(&mut self.recents);
                let is_new = self.seen.as_ref().is_none_or(|known| known.journal != now.journal);
                // What was added while the round was under way may have come after it had read. Its own changes cannot be
                // told from that: after one that wrote comes another, until one finds all as it should be.
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

    /// Takes a call, or puts it off until it is known who makes it.
    fn take(&mut self, reply_to: ReplyTo, call: Call) {
        let Some(server) = &mut self.server else { return };
        let waits = |(other, _): &&(ReplyTo, Call)| other.sender() == reply_to.sender();
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

    /// Answers the calls whose callers are known.
    fn settle(&mut self) {
        for (reply_to, call) in std::mem::take(&mut self.waiting) {
            match self.callers.identity(reply_to.sender()).cloned() {
                Some(Ok(caller)) => self.answer(reply_to, call, &caller),
                Some(Err(why)) => {
                    if let Some(server) = &mut self.server {
                        server.denied(&reply_to, &format!("cannot tell who calls: {why}"));
                    }
                }
                None => self.waiting.push_back((reply_to, call)),
            }
        }
    }

    fn answer(&mut self, reply_to: ReplyTo, call: Call, caller: &Caller) {
        tracing::debug!(sender = reply_to.sender(), caller = caller.name, "called");
        let Some(server) = &mut self.server else { return };
        let is_own = matches!(call, Call::Add(_) | Call::Sync);
        if caller.confined == Confined::Yes && !is_own {
            return server.denied(&reply_to, "a sandboxed program may only add documents");
        }
        // What is too long is refused for that, and costs no more than any call.
        let bytes = size_of(&call);
        let bytes = if bytes > LONGEST { 0 } else { bytes };
        if is_own && !self.quota.take(caller, bytes, self.options.clock.monotonic()) {
            return server.too_much(&reply_to, TOO_MUCH);
        }
        match call {
            Call::Add(document) => self.add(&reply_to, document, caller),
            Call::Sync if self.synced.len() >= MOST_SYNCED => server.too_much(&reply_to, TOO_MUCH),
            Call::Sync => {
                self.synced.push(reply_to);
                match caller.confined {
                    Confined::No => self.due = Some(self.options.clock.monotonic()),
                    // It does not decide how often we work.
                    Confined::Yes => self.touch(),
                }
            }
            Call::List(query) => match self.recents.list() {
                Ok(list) => server.listed(&reply_to, &query.select(list)),
                Err(error) => server.failed(&reply_to, &work::text(&error)),
            },
            Call::Forget(uris) => {
                let uris: Result<Vec<Uri>, UriError> =
                    uris.iter().map(|uri| Uri::parse(uri.as_bytes())).collect();
                match uris {
                    Ok(uris) => self.worker.run(Job::Forget(uris, reply_to)),
                    Err(error) => server.invalid(&reply_to, &error.to_string()),
                }
            }
            Call::Private(wanted) => {
                let now = self.recents.now();
                let (disk, places) = (self.recents.disk(), self.recents.places());
                let done = match wanted {
                    None => Private::turn_off(disk, places, now)
                        .map(|_| ())
                        .map_err(|error| work::text(&error)),
                    Some(seconds) => {
                        let until = self.recents.now().after(Duration::from_secs(seconds));
                        let mode =
                            if seconds == 0 { Private::WithoutEnd } else { Private::Until(until) };
                        mode.turn_on(disk, places, now).map_err(|error| work::text(&error))
                    }
                };
                // What was there before is taken in, and what came meanwhile is taken out.
                self.due = Some(self.options.clock.monotonic());
                match done {
                    Ok(()) => server.done(&reply_to),
                    Err(error) => server.failed(&reply_to, &error),
                }
            }
            Call::Policy => {
                let limits = self.recents.limits();
                let now = self.recents.now();
                let off = self.recents.policy().off(&*self.options.disk, Some(&caller.name), now);
                let why = off.map(|reason| reason.to_string());
                let days = limits.age.map_or(0, |age| age.as_secs() / (24 * 60 * 60));
                server.policy(&reply_to, why.as_deref(), limits.entries, days);
            }
        }
    }

    fn add(&mut self, reply_to: &ReplyTo, document: Document, caller: &Caller) {
        let Some(server) = &mut self.server else { return };
        if caller.program == Program::Private {
            let why = match caller.confined {
                Confined::Yes => LEFT_OUT.to_owned(),
                Confined::No => Reason::PrivateProgram.to_string(),
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
            // Whoever runs it is outside of the sandbox.
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
        match self.recents.add(&addition) {
            Ok(Added::Remembered) => server.added(reply_to, None),
            Ok(Added::Left(_)) if is_confined => server.added(reply_to, Some(LEFT_OUT)),
            Ok(Added::Left(reason)) => server.added(reply_to, Some(&reason.to_string())),
            Err(RecentsError::Field(error)) => server.invalid(reply_to, &error.to_string()),
            Err(error) if is_confined => {
                tracing::warn!(error = work::text(&error), "cannot remember a document");
                server.failed(reply_to, "cannot remember the document");
            }
            Err(error) => server.failed(reply_to, &work::text(&error)),
        }
    }

    /// Writes what is not written yet, and lets go.
    async fn end(mut self) {
        // Whoever adds something from now on starts a writer.
        drop(self.watcher.take());
        if self.due.is_some() || self.seen.as_ref() != Some(&Seen::now(&mut self.recents)) {
            self.worker.run(Job::Write(std::mem::take(&mut self.synced)));
        }
        self.worker.run(Job::Snapshot);
        while !self.worker.is_idle() {
            let done = self.worker.next().await;
            if done.is_none() {
                break;
            }
            self.done(done);
        }
        if let Some(server) = &mut self.server {
            // Nobody is left to be told.
            let _ = server.flush().await;
        }
        self.worker.stop();
    }
}

/// Returns how long the texts of a call are.
fn size_of(call: &Call) -> usize {
    let Call::Add(Document { uri, mime, groups, application, exec, .. }) = call else { return 0 };
    let texts = [mime, application, exec].into_iter().flatten().chain(groups).chain([uri]);
    texts.map(String::len).sum()
}
