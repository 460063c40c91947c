//! The service end of `org.freedesktop.Flatpak`: host commands, and what `flatpak run` asks for when it starts.

mod bus_queries;
mod decode;
mod dispatch;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use host::command::{CommandRequest, StartError};
use zbus::{Connection, Message, Variant};

use super::{ServerError, Takeover, introspect, owned_name};
use crate::errors;
use crate::raw::{self, Link};
use crate::request::ReplyTo;
use bus_queries::Question;
use dispatch::{Answer, Verdict};

/// The name that programs call.
pub const NAME: &str = "org.freedesktop.Flatpak";
/// The object of host commands.
pub(crate) const DEVELOPMENT_PATH: &str = "/org/freedesktop/Flatpak/Development";
/// Its interface.
pub(crate) const DEVELOPMENT: &str = "org.freedesktop.Flatpak.Development";
/// Its interface with what the original has not; at the same object.
pub(crate) const HOST1: &str = "org.unjank.Host1";

/// What arrived.
#[derive(Debug)]
pub enum Incoming {
    /// A command is to run.
    Command {
        /// Receives its number or the error.
        reply_to: ReplyTo,
        /// The command.
        request: Box<CommandRequest>,
    },
    /// A command is to get a signal.
    Signal {
        /// Receives an empty reply or the error.
        reply_to: ReplyTo,
        /// The number of the command.
        pid: u32,
        /// The signal.
        signal: u32,
        /// Who gets it.
        scope: sys::pidfd::SignalScope,
    },
    /// `flatpak run` wants to know where the files are that follow the host's.
    Session {
        /// Receives the places.
        reply_to: ReplyTo,
    },
    /// The answer to [`Server::identify`].
    Process {
        /// The unique name that was asked for.
        sender: String,
        /// What the bus knows of its process, or what it said.
        process: Result<BusProcess, String>,
    },
    /// The answer to [`Server::ask_bus_process`]: the number of the bus's own process, if it says.
    BusProcess(Option<u32>),
    /// A connection came to the bus; its unique name.
    Came(String),
    /// A connection has left the bus; its unique name.
    Gone(String),
    /// The name is no longer ours: another process took it, or we released it.
    NameLost,
    /// The answer to [`Server::release`]: every call to the name has arrived before this.
    Released,
    /// A call that was answered already; only [`Server::flush`] is to be done.
    Answered,
    /// The connection is gone; nothing arrives any more.
    Closed,
}

/// What the bus knows of the process behind a name.
#[derive(Debug)]
pub struct BusProcess {
    /// Its number, as the bus counts.
    pub pid: u32,
    /// The user that it ran as when it connected.
    pub uid: u32,
    /// The process itself, from buses that pass it on.
    pub pidfd: Option<OwnedFd>,
}

/// One connection that serves.
///
/// Replies and signals are sent in the order in which they are given, by [`Server::flush`].
#[derive(Debug)]
pub struct Server {
    link: Link,
    questions: HashMap<u32, Question>,
}

impl Server {
    /// Connects to the bus at `address`, or to the session bus that the environment names.
    ///
    /// # Errors
    ///
    /// There is no connection.
    pub async fn connect(address: Option<&str>) -> Result<Server, ServerError> {
        let mut server = Server::on(owned_name::connect(address).await?);
        // When a connection came tells whose it was: the number of its process may be another's by the time of a call.
        server.link.tell_bus("AddMatch", &CONNECTIONS);
        Ok(server)
    }

    /// Serves on a connection that exists. Must be called before the connection is polled again.
    #[must_use]
    pub fn over(connection: Connection) -> Server {
        Server::on(Link::over(connection))
    }

    fn on(link: Link) -> Server {
        Server { link, questions: HashMap::new() }
    }

    /// Returns our unique name; empty without a bus.
    #[must_use]
    pub fn unique_name(&self) -> &str {
        self.link.connection().unique_name().map_or("", |name| name.as_str())
    }

    /// Takes the name, without queueing for it; others may take it over if they say so.
    ///
    /// # Errors
    ///
    /// The name is not ours.
    pub async fn own(&mut self, takeover: Takeover) -> Result<(), ServerError> {
        owned_name::own(&self.link, NAME, takeover).await
    }

    /// Gives the name back. [`Incoming::Released`] follows when no further call can arrive for it.
    pub fn release(&mut self) {
        let serial = self.link.ask_bus("ReleaseName", &NAME);
        self.questions.extend(serial.map(|serial| (serial, Question::Release)));
    }

    /// Asks which process `sender` is. [`Incoming::Process`] follows.
    pub fn identify(&mut self, sender: &str) {
        let serial = self.link.ask_bus("GetConnectionCredentials", &sender);
        let question = Question::Process(sender.to_owned());
        self.questions.extend(serial.map(|serial| (serial, question)));
    }

    /// Asks which process the bus is. [`Incoming::BusProcess`] follows.
    pub fn ask_bus_process(&mut self) {
        let bus = "org.freedesktop.DBus";
        let serial = self.link.ask_bus("GetConnectionUnixProcessID", &bus);
        self.questions.extend(serial.map(|serial| (serial, Question::BusProcess)));
    }

    /// Waits for what arrives next. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Incoming {
        loop {
            let Some(message) = self.link.next().await else { return Incoming::Closed };
            if let Some(incoming) = self.take(&message) {
                return incoming;
            }
        }
    }

    /// Returns something that has already arrived.
    pub fn next_now(&mut self) -> Option<Incoming> {
        loop {
            let message = self.link.next_now()?;
            if let Some(incoming) = self.take(&message) {
                return Some(incoming);
            }
        }
    }

    /// Sends what was given since the last flush. Must not be dropped half-way.
    ///
    /// # Errors
    ///
    /// The connection is gone; what was given is lost.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.link.flush().await
    }

    /// Answers a command that began with its number.
    pub fn began(&mut self, reply_to: &ReplyTo, pid: u32) {
        self.link.reply(&reply_to.0, &pid);
    }

    /// Answers a command that did not begin.
    pub fn not_started(&mut self, reply_to: &ReplyTo, error: &StartError) {
        self.link.fail(&reply_to.0, errors::of_start(error), &error.to_string());
    }

    /// Answers a signal that was sent, or why it was not.
    pub fn signalled(&mut self, reply_to: &ReplyTo, result: &io::Result<()>) {
        match result {
            Ok(()) => self.link.reply(&reply_to.0, &()),
            Err(error) => {
                let name = errors::of_signal(error);
                let text = match name {
                    errors::NO_SUCH_PID => "No such pid".to_owned(),
                    _ => format!("cannot send the signal: {error}"),
                };
                self.link.fail(&reply_to.0, name, &text);
            }
        }
    }

    /// Answers `flatpak run` with the directory that follows the host, and the socket of its certificates.
    pub fn session(&mut self, reply_to: &ReplyTo, monitor: &Path, pkcs11: Option<&Path>) {
        let text = |path: &Path| Variant::from(path.to_string_lossy().into_owned());
        let mut places = HashMap::from([("path", text(monitor))]);
        places.extend(pkcs11.map(|socket| ("pkcs11-socket", text(socket))));
        self.link.reply(&reply_to.0, &places);
    }

    /// Answers anything with an error that has no better name.
    pub fn failed(&mut self, reply_to: &ReplyTo, text: &str) {
        self.link.fail(&reply_to.0, errors::FAILED, text);
    }

    /// Refuses a call because of who makes it.
    pub fn denied(&mut self, reply_to: &ReplyTo, text: &str) {
        self.link.fail(&reply_to.0, errors::ACCESS_DENIED, text);
    }

    /// Tells `sender`, and nobody else, that its command ended.
    pub fn exited(&mut self, sender: &str, pid: u32, wait_status: i32) {
        let signal = Message::signal(DEVELOPMENT_PATH, DEVELOPMENT, "HostCommandExited");
        let signal = signal.destination(sender);
        self.link.push(signal.build(&(pid, wait_status.cast_unsigned())));
    }

    fn take(&mut self, message: &Message) -> Option<Incoming> {
        if !raw::is_call(message) {
            return bus_queries::take(&mut self.questions, message);
        }
        match dispatch::dispatch(message) {
            Verdict::Ask(incoming) => return Some(*incoming),
            Verdict::Answer(caller, answer) => match answer {
                Answer::Empty => self.link.reply(&caller, &()),
                Answer::Text(text) => self.link.reply(&caller, &text),
                Answer::Version(version) => self.link.reply(&caller, &Variant::from(version)),
                Answer::Properties(version) => {
                    let all = HashMap::from([("version", Variant::from(version))]);
                    self.link.reply(&caller, &all);
                }
            },
            Verdict::NotStarted(caller, error) => {
                self.link.fail(&caller, errors::of_start(&error), &error.to_string());
            }
            Verdict::Refuse(caller, refusal) => {
                tracing::debug!(sender = &*caller.sender, %refusal, "refused a call");
                self.link.fail(&caller, refusal.name(), &refusal.to_string());
            }
        }
        Some(Incoming::Answered)
    }
}

/// The rule for connections that come and go.
const CONNECTIONS: &str = "type='signal',sender='org.freedesktop.DBus',\
    interface='org.freedesktop.DBus',member='NameOwnerChanged'";
