//! The caller of `org.freedesktop.Flatpak.Development`: one command on the host, and what becomes of it.
//!
//! It speaks D-Bus by itself: the command that is run for somebody takes a millisecond or two, and a runtime with its
//! connection would double that (docs/decisions/0008). The program for sandboxes contains nothing else of D-Bus.

mod connection;
pub mod flatpak_spawn;
pub mod life;
pub mod order;
#[cfg(test)]
mod tests;

pub use self::connection::Greeting;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use self::connection::{BUS, Connection};
use wire::body::{BodyValue, Values, values};
use wire::socket::{Deadline, MessageBuffer};
use wire::write::{Draft, Marshal};
use wire::{Header, MessageType};

/// The name of the service.
pub const SERVICE: &str = "org.freedesktop.Flatpak";
/// `org.freedesktop.DBus.Error.UnknownMethod`: no such object, interface or method.
pub const UNKNOWN_METHOD: &str = "org.freedesktop.DBus.Error.UnknownMethod";
/// `org.freedesktop.DBus.Error.InvalidArgs`: the method exists, the arguments are not its own.
pub const INVALID_ARGS: &str = "org.freedesktop.DBus.Error.InvalidArgs";
/// `org.freedesktop.DBus.Error.NoReply`: the command may have been started.
pub const NO_REPLY: &str = "org.freedesktop.DBus.Error.NoReply";
/// `org.unjank.Host1.Error.Refused`: the policy of host commands forbids it, or the caller is not who it says; nothing ran.
pub const HOST_REFUSED: &str = "org.unjank.Host1.Error.Refused";
const NO_OWNER: &str = "org.freedesktop.DBus.Error.NameHasNoOwner";
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
pub enum EnvironmentInheritance {
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
pub struct HostCommandSpec<'a> {
    /// Where it starts; where the service is if it is empty.
    pub directory: &'a [u8],
    /// Its name and arguments.
    pub arguments: &'a [Vec<u8>],
    /// Its descriptors: its number for each, and ours.
    pub descriptors: &'a [(u32, BorrowedFd<'a>)],
    /// What it inherits.
    pub inherits: EnvironmentInheritance,
    /// Variables on top of that.
    pub environment: &'a [(String, String)],
    /// What becomes of it without us.
    pub without_us: WithoutUs,
}

/// What only our own service does for a command; another says that it has no such method.
#[derive(Clone, Copy, Debug)]
pub struct ExtraOptions<'a> {
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
pub enum HostEvent {
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
pub struct HostConnection {
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
    Event(HostEvent),
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

impl HostConnection {
    /// Connects to the bus at `address`.
    ///
    /// # Errors
    ///
    /// There is no bus, or it does not take us in time.
    pub fn connect(
        address: &[u8],
        greeting: Greeting,
        deadline: &Deadline<'_>,
    ) -> Result<HostConnection, HostError> {
        let connection = Connection::open(address, greeting, &owner_rule(SERVICE), deadline)?;
        Ok(HostConnection { connection, start: 0, question: 0, running: None, early: Vec::new() })
    }

    /// Asks for a command; [`HostConnection::event`] tells what comes of it. Only one may run at a time.
    ///
    /// # Errors
    ///
    /// The connection broke, as it does when there are more descriptors than the bus passes on.
    pub fn start(
        &mut self,
        command: &HostCommandSpec<'_>,
        options: Option<&ExtraOptions<'_>>,
    ) -> Result<(), HostError> {
        (self.running, self.question) = (None, 0);
        let call = match options {
            None => call("HostCommand", "ayaaya{uh}a{ss}u"),
            Some(_) => Draft {
                interface: EXTENSION,
                ..call("HostCommandWithOptions", "ayaaya{uh}a{ss}ua{sv}")
            },
        };
        let descriptors: Vec<BorrowedFd<'_>> =
            command.descriptors.iter().map(|(_, descriptor)| *descriptor).collect();
        self.start = self.connection.send(&call, &descriptors, |writer| {
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
        self.connection.send(&call, &[], |writer| {
            writer.u32(number);
            writer.u32(signal);
            writer.u32((to == To::Group).into());
        })?;
        Ok(())
    }

    /// Returns the next thing that has happened; `None` if nothing has, without waiting.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub fn event(&mut self) -> Result<Option<HostEvent>, HostError> {
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
                    return Ok(Some(HostEvent::Started(number)));
                }
                Some(Ok(Meaning::Exited { service, number, status })) => {
                    if self.running.is_some() {
                        return Ok(Some(HostEvent::Exited(status)));
                    }
                    self.early.truncate(EARLY - 1);
                    self.early.insert(0, (service, number, status));
                }
                Some(Ok(Meaning::Replaced)) => self.ask()?,
                // One bad message from anybody is not the end of the command.
                Some(Err(Malformed)) => (),
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
        self.connection.call_bus("AddMatch", &rule)?;
        self.question = self.connection.call_bus("NameHasOwner", &service)?;
        Ok(())
    }
}

/// Asks the bus at `address` which process owns the name of the service; `None` if none does. Nothing is started.
///
/// # Errors
///
/// There is no bus, or it does not say.
pub fn service_process(
    address: &[u8],
    greeting: Greeting,
    deadline: &Deadline<'_>,
) -> Result<Option<u32>, HostError> {
    let mut connection = Connection::open(address, greeting, &owner_rule(SERVICE), deadline)?;
    let question = connection.call_bus("GetConnectionUnixProcessID", SERVICE)?;
    let answer = connection.answer(question, deadline, |message| match message.kind {
        MessageType::Return => number(&mut body(message, "u")?).map(Some),
        _ if message.error_name == Some(NO_OWNER) => Ok(None),
        _ => Err(Malformed),
    })?;
    answer.map_err(|Malformed| {
        let text = "the bus does not say which process owns the name";
        HostError::Lost(io::Error::new(io::ErrorKind::InvalidData, text))
    })
}

/// The rule for who owns `name`.
fn owner_rule(name: &str) -> String {
    format!(
        "type='signal',sender='{BUS}',interface='{BUS}',member='NameOwnerChanged',arg0='{name}'"
    )
}

impl HostCommandSpec<'_> {
    fn write(&self, writer: &mut Marshal) {
        let mut flags = 0;
        if self.inherits == EnvironmentInheritance::Nothing {
            flags |= 1;
        }
        if self.without_us == WithoutUs::Ends {
            flags |= 2;
        }
        writer.bytestring(self.directory);
        writer.array(4, |words| self.arguments.iter().for_each(|word| words.bytestring(word)));
        writer.array(8, |entries| {
            for ((number, _), handle) in self.descriptors.iter().zip(0..) {
                entries.pad(8);
                entries.u32(*number);
                entries.u32(handle);
            }
        });
        writer.array(8, |entries| {
            for (name, value) in self.environment {
                entries.pad(8);
                entries.text(name);
                entries.text(value);
            }
        });
        writer.u32(flags);
    }
}

impl ExtraOptions<'_> {
    fn write(&self, writer: &mut Marshal) {
        writer.array(8, |entries| {
            let begin = |entries: &mut Marshal, name: &str, signature: &str| {
                entries.pad(8);
                entries.text(name);
                entries.signature(signature);
            };
            if !self.unset.is_empty() {
                begin(entries, "unset-env", "as");
                entries.array(4, |names| self.unset.iter().for_each(|name| names.text(name)));
            }
            if let Some(nice) = self.nice {
                begin(entries, "nice", "i");
                entries.u32(nice.cast_unsigned());
            }
            if self.idle {
                begin(entries, "idle", "b");
                entries.u32(1);
            }
        });
    }
}

impl AsFd for HostConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

fn call<'a>(member: &'a str, signature: &'a str) -> Draft<'a> {
    Draft {
        destination: SERVICE,
        path: PATH,
        interface: INTERFACE,
        member,
        signature,
        ..Draft::new(MessageType::Call, 0)
    }
}

/// The values of a message are not those that it should have.
struct Malformed;

/// Says whether a message answers the call with this number; 0 is none.
fn answers(message: &Header<'_>, serial: u32) -> bool {
    message.reply_serial.is_some_and(|answered| answered.get() == serial)
}

/// Returns the values of a message, if their types are these.
fn body<'m>(message: &Header<'m>, signature: &str) -> Result<Values<'m>, Malformed> {
    if message.signature == signature { Ok(values(message)) } else { Err(Malformed) }
}

fn number(values: &mut Values<'_>) -> Result<u32, Malformed> {
    match values.next() {
        Some(Ok(BodyValue::Uint32(number))) => Ok(number),
        Some(Ok(BodyValue::Boolean(truth))) => Ok(truth.into()),
        _ => Err(Malformed),
    }
}

fn text<'m>(values: &mut Values<'m>) -> Result<&'m str, Malformed> {
    match values.next() {
        Some(Ok(BodyValue::Text(text))) => Ok(text),
        _ => Err(Malformed),
    }
}

/// Returns the text that a message begins with.
fn first_text(message: &Header<'_>) -> String {
    text(&mut values(message)).unwrap_or_default().to_owned()
}

/// Finds out what a message says. Of a command that runs only its own service may say that it ended.
fn meaning(
    message: &Header<'_>,
    start: u32,
    question: u32,
    running: Option<&(String, u32)>,
) -> Result<Meaning, Malformed> {
    let (member, sender) = (message.member.unwrap_or_default(), message.sender.unwrap_or_default());
    Ok(match message.kind {
        MessageType::Return if answers(message, start) && running.is_none() => {
            let number = number(&mut body(message, "u")?)?;
            Meaning::Started { service: sender.to_owned(), number }
        }
        MessageType::Error if answers(message, start) && running.is_none() => {
            let name = message.error_name.unwrap_or_default().to_owned();
            Meaning::Event(HostEvent::Refused { name, text: first_text(message) })
        }
        MessageType::Return if answers(message, question) => {
            match number(&mut body(message, "b")?)? {
                0 => Meaning::Event(HostEvent::ServiceGone),
                _ => Meaning::Nothing,
            }
        }
        MessageType::Error
            if sender != BUS && message.reply_serial.is_some_and(|to| to.get() > start) =>
        {
            Meaning::Event(HostEvent::NotSignalled(first_text(message)))
        }
        MessageType::Signal
            if member == "HostCommandExited" && message.interface == Some(INTERFACE) =>
        {
            let mut body = body(message, "uu")?;
            let (number, status) = (number(&mut body)?, number(&mut body)?);
            let is_ours =
                running.is_none_or(|(service, ours)| *service == sender && *ours == number);
            if is_ours {
                Meaning::Exited { service: sender.to_owned(), number, status }
            } else {
                Meaning::Nothing
            }
        }
        MessageType::Signal if member == "NameOwnerChanged" && sender == BUS => {
            let mut body = body(message, "sss")?;
            let (name, old, new) = (text(&mut body)?, text(&mut body)?, text(&mut body)?);
            match running {
                Some((service, _)) if name == service && new.is_empty() => {
                    Meaning::Event(HostEvent::ServiceGone)
                }
                Some((service, _)) if old == service && new != service => Meaning::Replaced,
                _ => Meaning::Nothing,
            }
        }
        _ => Meaning::Nothing,
    })
}

/// Reads bytes from anywhere as messages and returns how many they are: for tests that try to break it.
#[doc(hidden)]
#[must_use]
pub fn read_anything(bytes: &[u8]) -> usize {
    let mut messages = MessageBuffer::new(bytes.to_vec(), 1 << 20);
    let mut count = 0;
    while let Ok(Some(bytes)) = messages.take() {
        let Ok(message) = wire::message(bytes) else { break };
        for running in [None, Some((":1.4".to_owned(), 4711))] {
            std::hint::black_box(meaning(&message, 1, 2, running.as_ref()).is_ok());
        }
        count += 1;
    }
    count
}
