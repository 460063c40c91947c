//! Decides what a call to `org.freedesktop.Flatpak` means.

use host::command::StartError;
use sys::pidfd::SignalScope;
use zbus::message::Header;
use zbus::{Message, Signature};

use super::decode::{self, NoCommand};
use super::{DEVELOPMENT, DEVELOPMENT_PATH, HOST1, Incoming, introspect};
use crate::errors::Refusal;
use crate::raw::Caller;
use crate::request::ReplyTo;
use crate::server::dispatch::{PropertiesCall, machine_id};

const SESSION_PATH: &str = "/org/freedesktop/Flatpak/SessionHelper";
const SESSION: &str = "org.freedesktop.Flatpak.SessionHelper";
const PEER: &str = "org.freedesktop.DBus.Peer";
const INTROSPECTABLE: &str = "org.freedesktop.DBus.Introspectable";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// The version of both interfaces of the original.
const VERSION: u32 = 1;

/// What to do with a call.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The owner of the state answers.
    Ask(Box<Incoming>),
    /// The answer needs no state.
    Answer(Caller, Answer),
    /// The call asks for a command that cannot be.
    NotStarted(Caller, StartError),
    /// The call makes no sense here.
    Refuse(Caller, Refusal),
}

/// An answer that needs no state.
#[derive(Debug)]
pub(super) enum Answer {
    /// Nothing.
    Empty,
    /// One string.
    Text(String),
    /// The version of an interface.
    Version(u32),
    /// All properties of an interface: its version.
    Properties(u32),
}

/// What is at an object path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Development,
    SessionHelper,
    /// No object, but these below it.
    Above(&'static [&'static str]),
    Nowhere,
}

impl Node {
    fn at(path: &str) -> Node {
        match path {
            DEVELOPMENT_PATH => Node::Development,
            SESSION_PATH => Node::SessionHelper,
            "/" => Node::Above(&["org"]),
            "/org" => Node::Above(&["freedesktop"]),
            "/org/freedesktop" => Node::Above(&["Flatpak"]),
            "/org/freedesktop/Flatpak" => Node::Above(&["Development", "SessionHelper"]),
            _ => Node::Nowhere,
        }
    }

    fn has(self, interface: &str) -> bool {
        match self {
            Node::Development => interface == DEVELOPMENT || interface == HOST1,
            Node::SessionHelper => interface == SESSION,
            _ => false,
        }
    }

    fn introspect(self) -> String {
        let interfaces: &[&str] = match self {
            Node::Development => {
                &[introspect::STANDARD, introspect::DEVELOPMENT, introspect::HOST1]
            }
            Node::SessionHelper => &[introspect::STANDARD, introspect::SESSION_HELPER],
            _ => &[],
        };
        let children = match self {
            Node::Above(children) => children,
            _ => &[],
        };
        introspect::node(interfaces, children.iter().copied())
    }
}

/// Decides what the call `message` means.
pub(super) fn dispatch(message: &Message) -> Verdict {
    let header = message.header();
    let caller = Caller::of(message, &header);
    let ask =
        |caller, meaning: fn(ReplyTo) -> Incoming| Verdict::Ask(Box::new(meaning(ReplyTo(caller))));
    match decide(message, &header) {
        Ok(Meaning::Answer(answer)) => Verdict::Answer(caller, answer),
        Ok(Meaning::Command(command)) => match command {
            Ok(request) => {
                let (reply_to, request) = (ReplyTo(caller), Box::new(request));
                Verdict::Ask(Box::new(Incoming::Command { reply_to, request }))
            }
            Err(NoCommand::NotStarted(error)) => Verdict::NotStarted(caller, error),
            Err(NoCommand::Refused(refusal)) => Verdict::Refuse(caller, refusal),
        },
        Ok(Meaning::Signal(pid, signal, scope)) => {
            let reply_to = ReplyTo(caller);
            Verdict::Ask(Box::new(Incoming::Signal { reply_to, pid, signal, scope }))
        }
        Ok(Meaning::Session) => ask(caller, |reply_to| Incoming::Session { reply_to }),
        Err(refusal) => Verdict::Refuse(caller, refusal),
    }
}

enum Meaning {
    Answer(Answer),
    Command(Result<host::command::CommandRequest, NoCommand>),
    Signal(u32, u32, SignalScope),
    Session,
}

fn decide(message: &Message, header: &Header<'_>) -> Result<Meaning, Refusal> {
    let path = header.path().map_or("/", |path| path.as_str());
    let node = Node::at(path);
    let method = header.member().map_or("", |member| member.as_str());
    let interface = header.interface().map(|interface| interface.as_str());
    let body = message.body();
    let plain = *header.signature() == Signature::Unit;
    let typed = |expected: &'static str| {
        let found = header.signature().to_string_no_parens();
        if found == expected { Ok(()) } else { Err(Refusal::WrongType { found, expected }) }
    };
    let missing = || {
        let interface = interface.unwrap_or_default().to_owned();
        match node {
            Node::Development | Node::SessionHelper if node.has(&interface) => {
                Refusal::NoMethod(method.to_owned())
            }
            Node::Development | Node::SessionHelper => {
                Refusal::NoInterface { interface, path: path.to_owned() }
            }
            _ => Refusal::NoObject(path.to_owned()),
        }
    };
    match (interface.unwrap_or_default(), method, node) {
        (PEER, "Ping", _) if plain => Ok(Meaning::Answer(Answer::Empty)),
        (PEER, "GetMachineId", _) if plain => Ok(Meaning::Answer(Answer::Text(machine_id()?))),
        (INTROSPECTABLE, "Introspect", node) if plain => {
            Ok(Meaning::Answer(Answer::Text(node.introspect())))
        }
        (PROPERTIES, _, Node::Development | Node::SessionHelper) => {
            properties(message, node).unwrap_or_else(|| Err(missing()))
        }
        (DEVELOPMENT | "", "HostCommand", Node::Development) => {
            typed("ayaaya{uh}a{ss}u")?;
            Ok(Meaning::Command(decode::command(&body)))
        }
        (HOST1 | "", "HostCommandWithOptions", Node::Development) => {
            typed("ayaaya{uh}a{ss}ua{sv}")?;
            Ok(Meaning::Command(decode::command_with_options(message, &body)))
        }
        (DEVELOPMENT | "", "HostCommandSignal", Node::Development) => {
            typed("uub")?;
            let unreadable = |_| Refusal::Invalid("these arguments".to_owned());
            let (pid, signal, group) = body.deserialize().map_err(unreadable)?;
            let scope = if group { SignalScope::Group } else { SignalScope::Process };
            Ok(Meaning::Signal(pid, signal, scope))
        }
        (SESSION | "", "RequestSession", Node::SessionHelper) => {
            typed("")?;
            Ok(Meaning::Session)
        }
        _ => Err(missing()),
    }
}

/// Answers `Properties`; `None` if there is no such method.
fn properties(message: &Message, node: Node) -> Option<Result<Meaning, Refusal>> {
    let PropertiesCall { interface, property, reads } = PropertiesCall::read(message)?;
    Some(match property.as_deref() {
        _ if !node.has(&interface) => Err(Refusal::NoProperties(interface)),
        None => Ok(Meaning::Answer(Answer::Properties(VERSION))),
        Some("version") if reads => Ok(Meaning::Answer(Answer::Version(VERSION))),
        Some("version") => Err(Refusal::ReadOnlyProperty("version".to_owned())),
        Some(property) => Err(Refusal::NoProperty(property.to_owned())),
    })
}
