//! The service end: owns a name, turns calls into requests and sends what the owner of the state decides.

mod dispatch;
pub mod flatpak;
mod introspect;
mod owned_name;
mod peers;
pub mod recent;

use std::collections::HashMap;
use std::io;

use settings::engine::{ChangeError, DatabaseId};
use zbus::{Connection, Message};

use crate::errors;
use crate::raw::{self, Caller, Link};
use crate::request::{BusRequest, ReplyTo};

pub use dispatch::CallRecording;
use dispatch::{Answer, Verdict};

/// What arrived.
#[derive(Debug)]
pub enum Incoming {
    /// A call that the owner of the state has to answer.
    Request(BusRequest),
    /// The answer to [`Server::identify`].
    Process {
        /// The unique name that was asked for.
        sender: String,
        /// Its process id, or what the bus said.
        pid: Result<u32, String>,
    },
    /// A name is no longer ours: another process took it, or we released it.
    NameLost,
    /// The answer to [`Server::release`]: every call to the name has arrived before this.
    Released,
    /// A call that was answered without the owner; only [`Server::flush`] is to be done.
    Answered,
    /// The connection is gone; nothing arrives any more.
    Closed,
}

/// Why there is no service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// There is no bus at the address.
    #[error("cannot connect to the session bus")]
    NoBus(#[source] io::Error),
    /// The name belongs to another process and it keeps it.
    #[error("the name {name} already has an owner")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The bus did not give us the name.
    #[error("cannot own the name {name}")]
    NoName {
        /// The name.
        name: String,
        /// What the bus said.
        source: io::Error,
    },
}

/// What to do when the name has an owner that lets it be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// Leave it alone.
    Never,
    /// Take the name.
    IfAllowed,
}

/// The question behind a serial number that we sent to the bus.
#[derive(Debug)]
enum Question {
    ProcessOf(String),
    Release,
}

/// One connection that serves.
///
/// Replies and signals are sent in the order in which they are given, by [`Server::flush`].
#[derive(Debug)]
pub struct Server {
    link: Link,
    blame: CallRecording,
    questions: HashMap<u32, Question>,
}

impl Server {
    /// Connects to the bus at `address`, or to the session bus that the environment names.
    ///
    /// # Errors
    ///
    /// There is no connection.
    pub async fn connect(
        address: Option<&str>,
        blame: CallRecording,
    ) -> Result<Server, ServerError> {
        Ok(Server::on(owned_name::connect(address).await?, blame))
    }

    /// Serves on a connection that exists. Must be called before the connection is polled again.
    #[must_use]
    pub fn over(connection: Connection, blame: CallRecording) -> Server {
        Server::on(Link::over(connection), blame)
    }

    fn on(link: Link, blame: CallRecording) -> Server {
        Server { link, blame, questions: HashMap::new() }
    }

    /// Returns our unique name; empty without a bus.
    #[must_use]
    pub fn unique_name(&self) -> &str {
        self.link.connection().unique_name().map_or("", |name| name.as_str())
    }

    /// Returns what tells this bus from others.
    #[must_use]
    pub fn bus_id(&self) -> &str {
        self.link.connection().server_guid().as_str()
    }

    /// Takes `name`, without queueing for it; others may take it over if they say so.
    ///
    /// # Errors
    ///
    /// The name is not ours.
    pub async fn own(&mut self, name: &str, takeover: Takeover) -> Result<(), ServerError> {
        owned_name::own(&self.link, name, takeover).await
    }

    /// Gives `name` back. [`Incoming::Released`] follows when no further call can arrive for it.
    pub fn release(&mut self, name: &str) {
        let serial = self.link.ask_bus("ReleaseName", &name);
        self.questions.extend(serial.map(|serial| (serial, Question::Release)));
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

    /// Returns the length of what was given since the last flush, in bytes.
    #[must_use]
    pub fn outgoing_bytes(&self) -> usize {
        self.link.outgoing_bytes()
    }

    /// Sends what was given since the last flush. Must not be dropped half-way.
    ///
    /// # Errors
    ///
    /// The connection is gone; what was given is lost.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.link.flush().await
    }

    /// Answers a `Change` with its tag, or a `Blame` with its text.
    pub fn reply_text(&mut self, reply_to: &ReplyTo, text: &str) {
        self.link.reply(&reply_to.0, &text);
    }

    /// Answers an `Init`.
    pub fn reply_empty(&mut self, reply_to: &ReplyTo) {
        self.link.reply(&reply_to.0, &());
    }

    /// Answers the introspection of the object that holds databases.
    pub fn reply_names(&mut self, reply_to: &ReplyTo, names: &[String]) {
        let xml = introspect::node(&[], names.iter().map(String::as_str));
        self.link.reply(&reply_to.0, &xml);
    }

    /// Answers a request with the error that a change ended in.
    pub fn reply_error(&mut self, reply_to: &ReplyTo, error: &ChangeError) {
        self.link.fail(&reply_to.0, errors::of_change(error), &error.text);
    }

    /// Sends `Notify` from the object of a database.
    pub fn notify(&mut self, database: &DatabaseId, prefix: &str, changes: &[String], tag: &str) {
        let signal = Message::signal(database.object_path(), "ca.desrt.dconf.Writer", "Notify");
        self.link.push(signal.build(&(prefix, changes, tag)));
    }

    fn take(&mut self, message: &Message) -> Option<Incoming> {
        if !raw::is_call(message) {
            return peers::take(&mut self.questions, message);
        }
        match dispatch::dispatch(message, self.blame) {
            Verdict::Ask(request) => return Some(Incoming::Request(request)),
            Verdict::Answer(caller, answer) => self.answer(&caller, answer),
            Verdict::Refuse(caller, refusal) => {
                tracing::debug!(sender = &*caller.sender, %refusal, "refused a call");
                self.link.fail(&caller, refusal.name(), &refusal.to_string());
            }
        }
        Some(Incoming::Answered)
    }

    fn answer(&mut self, caller: &Caller, answer: Answer) {
        match answer {
            Answer::Empty => self.link.reply(caller, &()),
            Answer::Text(text) => self.link.reply(caller, &text),
            Answer::NoProperties => {
                self.link.reply(caller, &HashMap::<&str, zbus::Variant<'_>>::new());
            }
        }
    }
}
