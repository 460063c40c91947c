//! The caller of `org.freedesktop.Flatpak.Development`: one command on the host, and what becomes of it.
//!
//! It speaks D-Bus by itself: the command that is run for somebody takes a millisecond or two, and a runtime with its
//! connection would double that (docs/decisions/0008).

mod connection;
#[doc(hidden)]
pub mod wire;

pub use self::connection::Greeting;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use self::connection::{BUS, Connection};
use self::wire::{Call, Kind, Message, Writer};
use super::socket::Deadline;

/// The name of the service.
pub const SERVICE: &str = "org.freedesktop.Flatpak";
const PATH: &str = "/org/freedesktop/Flatpak/Development";
const INTERFACE: &str = "org.freedesktop.Flatpak.Development";
/// A command that ends before we know its number is one of the last so many that ended.
const EARLY: usize = 64;
/// What our own service offers besides.
const EXTENSION: &str = "org.unjank.Host1";

/// Why the bus does not carry the command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// Nobody listens at the bus's address; nothing was asked for.
    #[error("cannot connect to the bus")]
    NoBus(#[source] io::Error),
    /// Somebody may listen at the bus's address, and cannot be reached; nothing was asked for.
    #[error("the bus cannot be reached")]
    Unreachable(#[source] io::Error),
    /// The bus broke the connection before it took us; nothing was asked for.
    #[error("the bus broke the connection in the greeting")]
    NotGreeted(#[source] io::Error),
    /// The bus did not take us in time; nothing was asked for.
    #[error("the bus has not answered within {} s", limit.as_secs_f32())]
    Silent {
        /// How long it was waited for.
        limit: Duration,
    },
    /// The bus does not take us, or passes no descriptors; nothing was asked for.
    #[error("the bus does not take us: {0}")]
    Rejected(String),
    /// The connection broke; what was asked for may have been done.
    #[error("the connection to the bus broke")]
    Lost(#[source] io::Error),
}

/// What the command finds of the service's environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherits {
    /// All of it.
    All,
    /// Nothing.
    Nothing,
}

/// What becomes of the command when our connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutUs {
    /// It runs on.
    RunsOn,
    /// It is ended.
    Ends,
}

/// A command for the host.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// Where it starts; where the service is if it is empty.
    pub directory: &'a [u8],
    /// Its name and arguments.
    pub arguments: &'a [Vec<u8>],
    /// Its descriptors: its number for each, and ours.
    pub descriptors: &'a [(u32, BorrowedFd<'a>)],
    /// What it inherits.
    pub inherits: Inherits,
    /// Variables on top of that.
    pub environment: &'a [(String, String)],
    /// What becomes of it without us.
    pub without_us: WithoutUs,
}

/// What only our own service does for a command; another says that it has no such method.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Variables that it is not to find.
    pub unset: &'a [String],
    /// Its niceness.
    pub nice: Option<i32>,
    /// Whether it runs only when the machine has nothing else to do.
    pub idle: bool,
}

/// Who gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The command.
    Leader,
    /// All processes of its group.
    Group,
}

/// What the service or the bus says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command runs; this is its number on the host.
    Started(u32),
    /// It does not run.
    Refused {
        /// The D-Bus name of the error.
        name: String,
        /// Its text.
        text: String,
    },
    /// It has ended, with this status as `waitpid(2)` gives it.
    Exited(u32),
    /// A signal did not reach it, and why.
    NotSignalled(String),
    /// The service has ended; nobody knows what becomes of the command.
    ServiceGone,
}

/// A connection for one command.
#[derive(Debug)]
pub struct Host {
    connection: Connection,
    /// The serial number of the call that starts the command.
    start: u32,
    /// The serial number of the question whether the service still exists, or 0.
    question: u32,
    /// The unique name of the service and the command's number, once it runs.
    running: Option<(String, u32)>,
    /// Who said what of which command before we knew ours.
    early: Vec<(String, u32, u32)>,
}

/// What a message means for us.
enum Meaning {
    Nothing,
    Event(Event),
    Started {
        service: String,
        number: u32,
    },
    Exited {
        service: String,
        number: u32,
        status: u32,
    },
    /// The name is somebody else's now, or nobody's.
    Replaced,
}

impl Host {
    /// Connects to the bus at `address`.
    ///
    /// # Errors
    ///
    /// There is no bus, or it does not take us in time.
    pub fn connect(
        address: &[u8],
        greeting: Greeting,
        deadline: &Deadline<'_>,
    ) -> Result<Host, HostError> {
        let connection = Connection::open(address, greeting, &owner_rule(SERVICE), deadline)?;
        Ok(Host { connection, start: 0, question: 0, running: None, early: Vec::new() })
    }

    /// Asks for a command; [`Host::event`] tells what comes of it. Only one may run at a time.
    ///
    /// # Errors
    ///
    /// The connection broke, as it does when there are more descriptors than the bus passes on.
    pub fn start(
        &mut self,
        command: &Command<'_>,
        options: Option<&Options<'_>>,
    ) -> Result<(), HostError> {
        (self.running, self.question) = (None, 0);
        let call = match options {
            None => call("HostCommand", "ayaaya{uh}a{ss}u"),
            Some(_) => Call {
                interface: EXTENSION,
                ..call("HostCommandWithOptions", "ayaaya{uh}a{ss}ua{sv}")
            },
        };
        let descriptors: Vec<BorrowedFd<'_>> =
            command.descriptors.iter().map(|(_, descriptor)| *descriptor).collect();
        self.start = self.connection.send(call, &descriptors, |writer| {
            command.write(writer);
            if let Some(options) = options {
                options.write(writer);
            }
        })?;
        Ok(())
    }

    /// Sends a signal to the command, if it runs.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub fn signal(&mut self, signal: u32, to: To) -> Result<(), HostError> {
        let Some((_, number)) = self.running else { return Ok(()) };
        let call = call("HostCommandSignal", "uub");
        self.connection.send(call, &[], |writer| {
            writer.number(number);
            writer.number(signal);
            writer.truth(to == To::Group);
        })?;
        Ok(())
    }

    /// Returns the next thing that has happened; `None` if nothing has, without waiting.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub fn event(&mut self) -> Result<Option<Event>, HostError> {
        loop {
            let (start, question) = (self.start, self.question);
            let running = self.running.as_ref();
            let meaning =
                self.connection.next(|message| meaning(message, start, question, running))?;
            match meaning {
                None => return Ok(None),
                Some(Ok(Meaning::Nothing)) => (),
                Some(Ok(Meaning::Event(event))) => return Ok(Some(event)),
                Some(Ok(Meaning::Started { service, number })) => {
                    self.running = Some((service, number));
                    return Ok(Some(Event::Started(number)));
                }
                Some(Ok(Meaning::Exited { service, number, status })) => {
                    if self.running.is_some() {
                        return Ok(Some(Event::Exited(status)));
                    }
                    self.early.truncate(EARLY - 1);
                    self.early.insert(0, (service, number, status));
                }
                Some(Ok(Meaning::Replaced)) => self.ask()?,
                // One bad message from anybody is not the end of the command.
                Some(Err(wire::Malformed)) => (),
            }
        }
    }

    /// Returns the status of the command if that was said before its number was known.
    pub fn ended_early(&mut self) -> Option<u32> {
        let (service, number) = self.running.as_ref()?;
        let is_ours = |(from, of, _): &&(String, u32, u32)| from == service && of == number;
        self.early.iter().find(is_ours).map(|(_, _, status)| *status)
    }

    /// Says whether any message has come from the bus.
    #[must_use]
    pub fn has_heard(&self) -> bool {
        self.connection.has_heard()
    }

    /// Asks whether the service exists although its name is not its own any more.
    fn ask(&mut self) -> Result<(), HostError> {
        let Some((service, _)) = self.running.clone() else { return Ok(()) };
        let rule = owner_rule(&service);
        self.connection.call_bus("AddMatch", "s", |writer| writer.text(&rule))?;
        self.question =
            self.connection.call_bus("NameHasOwner", "s", |writer| writer.text(&service))?;
        Ok(())
    }
}

/// The rule for who owns `name`.
fn owner_rule(name: &str) -> String {
    format!(
        "type='signal',sender='{BUS}',interface='{BUS}',member='NameOwnerChanged',arg0='{name}'"
    )
}

impl Command<'_> {
    fn write(&self, writer: &mut Writer) {
        let mut flags = 0;
        if self.inherits == Inherits::Nothing {
            flags |= 1;
        }
        if self.without_us == WithoutUs::Ends {
            flags |= 2;
        }
        writer.bytes(self.directory);
        let array = writer.array(4);
        self.arguments.iter().for_each(|argument| writer.bytes(argument));
        writer.end(&array);
        let array = writer.array(8);
        for ((number, _), handle) in self.descriptors.iter().zip(0..) {
            writer.align(8);
            writer.number(*number);
            writer.number(handle);
        }
        writer.end(&array);
        let array = writer.array(8);
        for (name, value) in self.environment {
            writer.align(8);
            writer.text(name);
            writer.text(value);
        }
        writer.end(&array);
        writer.number(flags);
    }
}

impl Options<'_> {
    fn write(&self, writer: &mut Writer) {
        let all = writer.array(8);
        if !self.unset.is_empty() {
            writer.align(8);
            writer.text("unset-env");
            writer.signature("as");
            let array = writer.array(4);
            self.unset.iter().for_each(|name| writer.text(name));
            writer.end(&array);
        }
        if let Some(nice) = self.nice {
            writer.align(8);
            writer.text("nice");
            writer.signature("i");
            writer.number(u32::from_ne_bytes(nice.to_ne_bytes()));
        }
        if self.idle {
            writer.align(8);
            writer.text("idle");
            writer.signature("b");
            writer.truth(true);
        }
        writer.end(&all);
    }
}

impl AsFd for Host {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

fn call<'a>(member: &'a str, signature: &'a str) -> Call<'a> {
    Call {
        serial: 0,
        destination: SERVICE,
        path: PATH,
        interface: INTERFACE,
        member,
        signature,
        descriptors: 0,
    }
}

/// Finds out what a message says. Of a command that runs only its own service may say that it ended.
fn meaning(
    message: &Message<'_>,
    start: u32,
    question: u32,
    running: Option<&(String, u32)>,
) -> Result<Meaning, wire::Malformed> {
    let answers = |serial: u32| serial != 0 && message.reply_to == serial;
    Ok(match message.kind {
        Kind::Reply if answers(start) && running.is_none() => {
            let number = message.body("u")?.number()?;
            Meaning::Started { service: message.sender.to_owned(), number }
        }
        Kind::Error if answers(start) && running.is_none() => {
            let (name, text) = (message.error.to_owned(), message.first_text()?.to_owned());
            Meaning::Event(Event::Refused { name, text })
        }
        Kind::Reply if answers(question) => match message.body("b")?.number()? {
            0 => Meaning::Event(Event::ServiceGone),
            _ => Meaning::Nothing,
        },
        Kind::Error if message.reply_to > start && message.sender != BUS => {
            Meaning::Event(Event::NotSignalled(message.first_text()?.to_owned()))
        }
        Kind::Signal if message.member == "HostCommandExited" && message.interface == INTERFACE => {
            let mut body = message.body("uu")?;
            let (number, status) = (body.number()?, body.number()?);
            let is_ours =
                running.is_none_or(|(service, ours)| *service == message.sender && *ours == number);
            if is_ours {
                Meaning::Exited { service: message.sender.to_owned(), number, status }
            } else {
                Meaning::Nothing
            }
        }
        Kind::Signal if message.member == "NameOwnerChanged" && message.sender == BUS => {
            let mut body = message.body("sss")?;
            let (name, old, new) = (body.text()?, body.text()?, body.text()?);
            match running {
                Some((service, _)) if name == service && new.is_empty() => {
                    Meaning::Event(Event::ServiceGone)
                }
                Some((service, _)) if old == service && new != service => Meaning::Replaced,
                _ => Meaning::Nothing,
            }
        }
        _ => Meaning::Nothing,
    })
}
