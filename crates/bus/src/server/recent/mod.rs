//! The service end of `org.unjank.Recent1`: recent documents for programs that are on the bus.

mod decode;
mod dispatch;

use std::collections::HashMap;
use std::io;

use recents::query::Query;
use recents::{Privacy, RecentEntry};
use zbus::message::Type;
use zbus::{Connection, Message, Variant};

use super::{ServerError, Takeover, owned_name};
use crate::errors;
use crate::raw::{self, Link};
use crate::request::ReplyTo;
use dispatch::Verdict;

/// The name that programs call.
pub const NAME: &str = "org.unjank.Session1";
/// The object.
pub const PATH: &str = "/org/unjank/Recent1";
/// The interface.
pub const INTERFACE: &str = "org.unjank.Recent1";

/// What a program wants.
#[derive(Clone, Debug, PartialEq)]
pub enum RecentCall {
    /// A document is to be remembered. Answered by [`Server::added`].
    Add(OpenedDocument),
    /// Documents are wanted. Answered by [`Server::listed`].
    List(Query),
    /// Documents of these URIs are to be forgotten. Answered by [`Server::forgot`].
    Forget(Vec<String>),
    /// Private mode is to be on for so many seconds (0: without end), or off (`None`). Answered by [`Server::done`].
    Private(Option<u64>),
    /// What holds is wanted. Answered by [`Server::policy`].
    Policy,
    /// The files that other programs read are to be written now. Answered by [`Server::done`].
    Sync,
}

/// A document that a program opened, as it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenedDocument {
    /// Its URI; nobody has looked at it.
    pub uri: String,
    /// Its MIME type.
    pub mime: Option<String>,
    /// What kinds of documents it belongs to.
    pub groups: Vec<String>,
    /// What the program calls itself; a sandbox knows better.
    pub application: Option<String>,
    /// The command line that opens the document again.
    pub exec: Option<String>,
    /// Whether only this program shall show it.
    pub privacy: Privacy,
}

/// What arrived.
#[derive(Debug)]
pub enum Incoming {
    /// A call; who makes it is for the bus to say.
    Call(ReplyTo, RecentCall),
    /// The answer to [`Server::identify`].
    Process {
        /// The unique name that was asked for.
        sender: String,
        /// Its process, or what the bus said.
        pid: Result<u32, String>,
    },
    /// The name is no longer ours.
    NameLost,
    /// A call that was answered already; only [`Server::flush`] is to be done.
    Answered,
    /// The connection is gone; nothing arrives any more.
    Closed,
}

/// One connection that serves. Replies and signals are sent in the order in which they are given.
#[derive(Debug)]
pub struct Server {
    link: Link,
    /// Whom we asked the bus about.
    questions: HashMap<u32, String>,
}

impl Server {
    /// Connects to the bus at `address`, or to the session bus that the environment names.
    ///
    /// # Errors
    ///
    /// There is no connection.
    pub async fn connect(address: Option<&str>) -> Result<Server, ServerError> {
        Ok(Server::on(owned_name::connect(address).await?))
    }

    /// Serves on a connection that exists. Must be called before the connection is polled again.
    #[must_use]
    pub fn over(connection: Connection) -> Server {
        Server::on(Link::over(connection))
    }

    fn on(link: Link) -> Server {
        Server { link, questions: HashMap::new() }
    }

    /// Takes the name, without queueing for it; others may take it over if they say so.
    ///
    /// # Errors
    ///
    /// The name is not ours.
    pub async fn own(&mut self, takeover: Takeover) -> Result<(), ServerError> {
        owned_name::own(&self.link, NAME, takeover).await
    }

    /// Asks which process `sender` is; [`Incoming::Process`] follows.
    pub fn identify(&mut self, sender: &str) {
        let serial = self.link.ask_bus("GetConnectionUnixProcessID", &sender);
        self.questions.extend(serial.map(|serial| (serial, sender.to_owned())));
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

    /// Sends what was given since the last flush. Must not be dropped half-way.
    ///
    /// # Errors
    ///
    /// The connection is gone; what was given is lost.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.link.flush().await
    }

    /// Answers an `Add`: why the document was left out, or nothing.
    pub fn added(&mut self, reply_to: &ReplyTo, why: Option<&str>) {
        self.link.reply(&reply_to.0, &why.unwrap_or_default());
    }

    /// Answers a `List`.
    pub fn listed(&mut self, reply_to: &ReplyTo, entries: &[&RecentEntry]) {
        let documents: Vec<_> = entries.iter().map(|entry| document(entry)).collect();
        self.link.reply(&reply_to.0, &documents);
    }

    /// Answers a `Forget` with how many documents there were.
    pub fn forgot(&mut self, reply_to: &ReplyTo, count: usize) {
        self.link.reply(&reply_to.0, &u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Answers a `Policy`: whether anything is remembered, and how much is kept; 0 days are for ever.
    pub fn policy(&mut self, reply_to: &ReplyTo, why_not: Option<&str>, entries: usize, days: u64) {
        let holds = HashMap::from([
            ("remembers", Variant::from(why_not.is_none())),
            ("why-not", Variant::from(why_not.unwrap_or_default().to_owned())),
            ("entries", Variant::from(u64::try_from(entries).unwrap_or(u64::MAX))),
            ("days", Variant::from(days)),
        ]);
        self.link.reply(&reply_to.0, &holds);
    }

    /// Answers what has no result.
    pub fn done(&mut self, reply_to: &ReplyTo) {
        self.link.reply(&reply_to.0, &());
    }

    /// Answers with an error that has no better name.
    pub fn failed(&mut self, reply_to: &ReplyTo, text: &str) {
        self.link.fail(&reply_to.0, errors::FAILED, text);
    }

    /// Answers that the arguments make no sense.
    pub fn invalid(&mut self, reply_to: &ReplyTo, text: &str) {
        self.link.fail(&reply_to.0, errors::INVALID_ARGS, text);
    }

    /// Refuses a call because its caller has too many.
    pub fn too_much(&mut self, reply_to: &ReplyTo, text: &str) {
        self.link.fail(&reply_to.0, errors::LIMITS_EXCEEDED, text);
    }

    /// Refuses a call because of who makes it.
    pub fn denied(&mut self, reply_to: &ReplyTo, text: &str) {
        self.link.fail(&reply_to.0, errors::ACCESS_DENIED, text);
    }

    /// Tells everybody that the list is another one.
    pub fn changed(&mut self) {
        self.link.push(Message::signal(PATH, INTERFACE, "Changed").build(&()));
    }

    fn take(&mut self, message: &Message) -> Option<Incoming> {
        if !raw::is_call(message) {
            return self.heard(message);
        }
        match dispatch::dispatch(message) {
            Verdict::Ask(reply_to, call) => return Some(Incoming::Call(reply_to, call)),
            Verdict::Empty(caller) => self.link.reply(&caller, &()),
            Verdict::Text(caller, text) => self.link.reply(&caller, &text),
            Verdict::NoProperties(caller) => {
                self.link.reply(&caller, &HashMap::<&str, Variant<'_>>::new());
            }
            Verdict::Refuse(caller, refusal) => {
                tracing::debug!(sender = &*caller.sender, %refusal, "refused a call");
                self.link.fail(&caller, refusal.name(), &refusal.to_string());
            }
        }
        Some(Incoming::Answered)
    }

    /// Reads what the bus says.
    fn heard(&mut self, message: &Message) -> Option<Incoming> {
        let header = message.header();
        // Names that start with `org.freedesktop.DBus` belong to the bus alone.
        if header.sender().is_none_or(|sender| sender.as_str() != "org.freedesktop.DBus") {
            return None;
        }
        let body = message.body();
        match header.message_type() {
            Type::MethodCall => None,
            Type::Signal => {
                let name: &str = body.deserialize().ok()?;
                (header.member()?.as_str() == "NameLost" && name == NAME)
                    .then_some(Incoming::NameLost)
            }
            answer @ (Type::MethodReturn | Type::Error) => {
                let sender = self.questions.remove(&header.reply_serial()?.get())?;
                let text = || body.deserialize::<&str>().unwrap_or("no answer").to_owned();
                let pid = match answer {
                    Type::MethodReturn => body.deserialize::<u32>().map_err(|_| text()),
                    _ => Err(text()),
                };
                Some(Incoming::Process { sender, pid })
            }
        }
    }
}

/// Describes an entry; times are microseconds since 1970.
fn document(entry: &RecentEntry) -> HashMap<&'static str, Variant<'_>> {
    let mut fields = HashMap::from([
        ("uri", Variant::from(entry.uri.as_str())),
        ("groups", Variant::from(entry.groups.clone())),
        ("private", Variant::from(entry.privacy == Privacy::Private)),
        ("added", Variant::from(entry.added.0)),
        ("modified", Variant::from(entry.modified.0)),
        ("visited", Variant::from(entry.visited.0)),
    ]);
    let names: Vec<String> = entry.applications.iter().map(|one| one.name.clone()).collect();
    fields.insert("applications", Variant::from(names));
    let texts =
        [("mime", &entry.mime), ("title", &entry.title), ("description", &entry.description)];
    for (name, text) in texts {
        fields.extend(text.as_deref().map(|text| (name, Variant::from(text))));
    }
    fields
}
