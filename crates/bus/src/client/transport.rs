//! The settings client's way to the buses: one thread, one connection to each bus, everything in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, ThreadId};

use settings::client::{
    ChangeCompletion, DatabaseSignal, Deliver, SignalDelivery, Transport, TransportError,
};
use settings::profile::ProfileBus;
use tokio::sync::mpsc;
use tokio::time::Instant;
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::{Message, Signature};

use super::TIMEOUT;
use super::dconf::{Bytes, SERVICE, WRITER, touches};
use crate::raw::{Link, Received};

/// Reaches the settings service on the session bus and hears the system bus.
///
/// Connects when it is first used, and again when a connection is lost. Answers and signals are handed
/// on by one thread in the order in which they arrive.
#[derive(Clone, Debug)]
pub struct BusTransport {
    commands: mpsc::UnboundedSender<Command>,
    thread: ThreadId,
}

/// What the thread is asked to do.
enum Command {
    Change { object_path: String, body: Vec<u8>, done: ChangeCompletion },
    Init { object_path: String, answer: Answer },
    Watch { bus: ProfileBus, watched: Watched, answer: Answer },
    Unwatch { number: u64 },
}

type Answer = SyncSender<Result<u64, TransportError>>;

/// One subscription.
struct Watched {
    number: u64,
    object_path: String,
    path: String,
    deliver: Deliver,
}

impl Watched {
    fn rule(&self) -> String {
        let Watched { object_path, path, .. } = self;
        format!("type='signal',interface='{WRITER}',path='{object_path}',arg0path='{path}'")
    }
}

impl BusTransport {
    /// Starts the thread. `None` stands for the buses that the environment names.
    ///
    /// # Errors
    ///
    /// There is no thread or no runtime for it.
    pub fn start(session: Option<String>, system: Option<String>) -> std::io::Result<BusTransport> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (commands, received) = mpsc::unbounded_channel();
        let lines =
            [Line::new(ProfileBus::Session, session), Line::new(ProfileBus::System, system)];
        let thread = thread::Builder::new()
            .name("settings bus".to_owned())
            .spawn(move || runtime.block_on(run(received, lines)))?;
        Ok(BusTransport { commands, thread: thread.thread().id() })
    }

    fn ask(&self, command: impl FnOnce(Answer) -> Command) -> Result<u64, TransportError> {
        if thread::current().id() == self.thread {
            return Err(failure("cannot wait for the bus while it delivers something"));
        }
        let (answer, answered): (Answer, Receiver<_>) = sync_channel(1);
        let _ = self.commands.send(command(answer));
        answered.recv().unwrap_or_else(|_| Err(failure("the connection to the bus has ended")))
    }
}

impl Transport for BusTransport {
    fn change(&self, object_path: &str, body: Vec<u8>, done: ChangeCompletion) {
        let object_path = object_path.to_owned();
        if let Err(unsent) = self.commands.send(Command::Change { object_path, body, done })
            && let Command::Change { done, .. } = unsent.0
        {
            done(Err(failure("the connection to the bus has ended")));
        }
    }

    fn init(&self, object_path: &str) -> Result<(), TransportError> {
        let object_path = object_path.to_owned();
        self.ask(|answer| Command::Init { object_path, answer }).map(|_| ())
    }

    fn watch(
        &self,
        bus: ProfileBus,
        object_path: &str,
        path: &str,
        deliver: Deliver,
    ) -> Result<SignalDelivery, TransportError> {
        let (object_path, path) = (object_path.to_owned(), path.to_owned());
        let watched = Watched { number: 0, object_path, path, deliver };
        let number = self.ask(|answer| Command::Watch { bus, watched, answer })?;
        Ok(Box::new(Unwatch { number, commands: self.commands.clone() }))
    }
}

/// Ends a subscription when it is dropped.
struct Unwatch {
    number: u64,
    commands: mpsc::UnboundedSender<Command>,
}

impl Drop for Unwatch {
    fn drop(&mut self) {
        // If the thread has ended, so has the subscription.
        let _ = self.commands.send(Command::Unwatch { number: self.number });
    }
}

fn failure(text: &str) -> TransportError {
    TransportError { text: text.to_owned() }
}

/// Serves until nobody can ask any more.
async fn run(mut commands: mpsc::UnboundedReceiver<Command>, lines: [Line; 2]) {
    let [mut session, mut system] = lines;
    let mut count = 0;
    loop {
        let deadline = session.deadline().into_iter().chain(system.deadline()).min();
        let overdue = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Change { object_path, body, done }) => {
                    let waiting = PendingReply::Change(done);
                    session.call(&object_path, "Change", &Bytes(&body), waiting).await;
                }
                Some(Command::Init { object_path, answer }) => {
                    session.call(&object_path, "Init", &(), PendingReply::Answer(answer, 0)).await;
                }
                Some(Command::Watch { bus, mut watched, answer }) => {
                    count += 1;
                    watched.number = count;
                    let line = if bus == ProfileBus::System { &mut system } else { &mut session };
                    line.watch(watched, answer).await;
                }
                Some(Command::Unwatch { number }) => {
                    session.unwatch(number).await;
                    system.unwatch(number).await;
                }
                None => return,
            },
            message = session.next() => session.take(message),
            message = system.next() => system.take(message),
            () = overdue => {
                session.give_up_overdue();
                system.give_up_overdue();
            }
        }
    }
}

/// Who waits for an answer of the bus or the service.
enum PendingReply {
    Change(ChangeCompletion),
    Answer(Answer, u64),
}

impl PendingReply {
    fn fail(self, error: TransportError) {
        match self {
            PendingReply::Change(done) => done(Err(error)),
            // Whoever does not wait any more needs no answer.
            PendingReply::Answer(answer, _) => drop(answer.send(Err(error))),
        }
    }
}

/// The connection to one bus and everything that depends on it.
struct Line {
    bus: ProfileBus,
    address: Option<String>,
    link: Option<Link>,
    waiting: HashMap<u32, (Instant, PendingReply)>,
    watches: Vec<Watched>,
}

impl Line {
    fn new(bus: ProfileBus, address: Option<String>) -> Line {
        Line { bus, address, link: None, waiting: HashMap::new(), watches: Vec::new() }
    }

    async fn next(&mut self) -> Option<Received> {
        match &mut self.link {
            Some(link) => link.next().await,
            None => std::future::pending().await,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|(deadline, _)| *deadline).min()
    }

    /// Connects if there is no connection, and subscribes again to what was subscribed.
    async fn connected(&mut self) -> Result<&mut Link, TransportError> {
        if self.link.is_none() {
            let builder = match (&self.address, self.bus) {
                (Some(address), _) => Builder::address(&**address),
                (None, ProfileBus::System) => Builder::system(),
                (None, ProfileBus::Session) => Builder::session(),
            };
            let connection = super::connected(builder)
                .await
                .map_err(|error| failure(&format!("cannot connect to the bus: {error}")))?;
            let mut link = Link::over(connection);
            for watched in &self.watches {
                link.ask_bus("AddMatch", &watched.rule());
            }
            self.link = Some(link);
        }
        self.link.as_mut().ok_or_else(|| failure("there is no connection to the bus"))
    }

    async fn call<B>(&mut self, object_path: &str, method: &str, body: &B, waiting: PendingReply)
    where
        B: serde::Serialize + zbus::DynamicType,
    {
        let link = match self.connected().await {
            Ok(link) => link,
            Err(error) => return waiting.fail(error),
        };
        let call = Message::method_call(object_path, method)
            .destination(SERVICE)
            .interface(WRITER)
            .build(body);
        match call {
            Ok(call) => {
                let serial = call.primary_header().serial_num().get();
                link.push(Ok(call));
                self.send(serial, waiting).await;
            }
            Err(error) => waiting.fail(failure(&format!("cannot call {object_path}: {error}"))),
        }
    }

    async fn watch(&mut self, watched: Watched, answer: Answer) {
        let waiting = PendingReply::Answer(answer, watched.number);
        match self.connected().await {
            Ok(link) => match link.ask_bus("AddMatch", &watched.rule()) {
                Some(serial) => {
                    self.watches.push(watched);
                    self.send(serial, waiting).await;
                }
                None => waiting.fail(failure("cannot subscribe")),
            },
            Err(error) => waiting.fail(error),
        }
    }

    async fn unwatch(&mut self, number: u64) {
        let Some(index) = self.watches.iter().position(|watched| watched.number == number) else {
            return;
        };
        let watched = self.watches.swap_remove(index);
        if let Some(link) = &mut self.link {
            link.ask_bus("RemoveMatch", &watched.rule());
            if link.flush().await.is_err() {
                self.lose();
            }
        }
    }

    /// Sends what was put out and remembers who waits for the answer.
    async fn send(&mut self, serial: u32, waiting: PendingReply) {
        self.waiting.insert(serial, (Instant::now() + TIMEOUT, waiting));
        if let Some(link) = &mut self.link
            && link.flush().await.is_err()
        {
            self.lose();
        }
    }

    fn take(&mut self, message: Option<Received>) {
        let Some(message) = message else { return self.lose() };
        match message.message_type() {
            Type::Signal => self.deliver(&message),
            Type::MethodReturn | Type::Error => {
                let serial = message.header().reply_serial();
                let waiting = serial.and_then(|serial| self.waiting.remove(&serial.get()));
                if let Some((_, waiting)) = waiting {
                    answer(waiting, &message);
                }
            }
            Type::MethodCall => {}
        }
    }

    fn deliver(&self, message: &Message) {
        let header = message.header();
        let (Some(object_path), Some(member)) = (header.path(), header.member()) else { return };
        if header.interface().is_none_or(|interface| interface.as_str() != WRITER) {
            return;
        }
        let body = message.body();
        let signal =
            match member.as_str() {
                "Notify" => body
                    .deserialize()
                    .map(|(prefix, changes, tag)| DatabaseSignal::Notify { prefix, changes, tag }),
                "WritabilityNotify" => {
                    body.deserialize().map(|path| DatabaseSignal::Writability { path })
                }
                _ => return,
            };
        // Anyone may send anything; what is no such signal is not one.
        let Ok(signal) = signal else { return };
        let (DatabaseSignal::Notify { prefix: place, .. }
        | DatabaseSignal::Writability { path: place }) = &signal;
        // Copied, so that a watcher may end its own subscription.
        let delivers: Vec<Deliver> = self
            .watches
            .iter()
            .filter(|watched| watched.object_path == object_path.as_str())
            .filter(|watched| touches(place, &watched.path))
            .map(|watched| Arc::clone(&watched.deliver))
            .collect();
        for deliver in delivers {
            deliver(signal.clone());
        }
    }

    fn give_up_overdue(&mut self) {
        let now = Instant::now();
        let overdue: Vec<u32> = self
            .waiting
            .iter()
            .filter(|(_, (deadline, _))| *deadline <= now)
            .map(|(serial, _)| *serial)
            .collect();
        for serial in overdue {
            if let Some((_, waiting)) = self.waiting.remove(&serial) {
                let text = format!("no answer within {} s", TIMEOUT.as_secs());
                waiting.fail(failure(&text));
            }
        }
    }

    fn lose(&mut self) {
        self.link = None;
        for (_, (_, waiting)) in self.waiting.drain() {
            waiting.fail(failure("the connection to the bus broke"));
        }
    }
}

fn answer(waiting: PendingReply, message: &Message) {
    let body = message.body();
    if message.message_type() == Type::Error {
        let text = body.deserialize::<&str>().unwrap_or("refused without a reason");
        return waiting.fail(failure(text));
    }
    match waiting {
        PendingReply::Change(done) => done(if *body.signature() == Signature::Str {
            body.deserialize().map_err(|error| failure(&error.to_string()))
        } else {
            Err(failure("the service answered something else than a tag"))
        }),
        // Whoever does not wait any more needs no answer.
        PendingReply::Answer(answer, number) => drop(answer.send(Ok(number))),
    }
}
