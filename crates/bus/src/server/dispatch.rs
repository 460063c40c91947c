//! Decides what a call means. Objects exist for every legal database name; nothing is registered.

use session::settings::engine::{DatabaseId, Kind};
use zbus::message::Header;
use zbus::{Message, Signature};

use super::introspect;
use crate::errors::Refusal;
use crate::raw::Caller;
use crate::request::{Blob, ReplyTo, Request};

const ROOT: &str = "/ca/desrt/dconf";
const WRITER: &str = "ca.desrt.dconf.Writer";
const SERVICE_INFO: &str = "ca.desrt.dconf.ServiceInfo";
const PEER: &str = "org.freedesktop.DBus.Peer";
const INTROSPECTABLE: &str = "org.freedesktop.DBus.Introspectable";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Whether calls are recorded and `ServiceInfo.Blame` exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The interface exists.
    On,
    /// The interface does not exist.
    Off,
}

/// What to do with a call.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The owner of the state answers.
    Ask(Request),
    /// The answer needs no state.
    Answer(Caller, Answer),
    /// The call makes no sense here.
    Refuse(Caller, Refusal),
}

/// An answer that needs no state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing.
    Empty,
    /// One string.
    Text(String),
    /// No properties.
    NoProperties,
}

/// What is at an object path.
#[derive(Debug, PartialEq, Eq)]
enum Node {
    /// One database.
    Database(DatabaseId),
    /// The databases of one kind.
    Databases(Kind),
    /// The service itself.
    Service,
    /// No object, but one below it.
    Above(&'static str),
    /// No object.
    Nowhere,
}

impl Node {
    fn at(path: &str) -> Node {
        match path {
            "/" => Node::Above("ca"),
            "/ca" => Node::Above("desrt"),
            "/ca/desrt" => Node::Above("dconf"),
            ROOT => Node::Service,
            _ => {
                let below = path.strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/'));
                match below.and_then(Kind::from_segment) {
                    Some(kind) => Node::Databases(kind),
                    None => {
                        DatabaseId::from_object_path(path).map_or(Node::Nowhere, Node::Database)
                    }
                }
            }
        }
    }
}

/// Decides what the call `message` means.
pub(crate) fn dispatch(message: &Message, blame: Blame) -> Verdict {
    let header = message.header();
    let caller = Caller::of(message, &header);
    match decide(message, &header, blame) {
        Ok(Meaning::Answer(answer)) => Verdict::Answer(caller, answer),
        Ok(Meaning::Change(database, blob)) => {
            Verdict::Ask(Request::Change { reply_to: ReplyTo(caller), database, blob })
        }
        Ok(Meaning::Init(database)) => {
            Verdict::Ask(Request::Init { reply_to: ReplyTo(caller), database })
        }
        Ok(Meaning::Blame) => Verdict::Ask(Request::Blame { reply_to: ReplyTo(caller) }),
        Ok(Meaning::Names(kind)) => {
            Verdict::Ask(Request::Names { reply_to: ReplyTo(caller), kind })
        }
        Err(refusal) => Verdict::Refuse(caller, refusal),
    }
}

enum Meaning {
    Answer(Answer),
    Change(DatabaseId, Blob),
    Init(DatabaseId),
    Blame,
    Names(Kind),
}

fn decide(message: &Message, header: &Header<'_>, blame: Blame) -> Result<Meaning, Refusal> {
    let path = header.path().map_or("/", |path| path.as_str());
    let node = Node::at(path);
    let method = header.member().map_or("", |member| member.as_str());
    let interface = match header.interface() {
        Some(interface) => interface.as_str(),
        None => implied_interface(&node, method, blame),
    };
    let signature = header.signature();
    match (interface, method, &node) {
        (PEER, "Ping", _) if *signature == Signature::Unit => Ok(Meaning::Answer(Answer::Empty)),
        (PEER, "GetMachineId", _) if *signature == Signature::Unit => {
            Ok(Meaning::Answer(Answer::Text(machine_id()?)))
        }
        (INTROSPECTABLE, "Introspect", node) if *signature == Signature::Unit => {
            Ok(introspection(node, blame))
        }
        (PROPERTIES, _, Node::Database(_)) => properties(message, header, &[WRITER]),
        (PROPERTIES, _, Node::Service) => match blame {
            Blame::On => properties(message, header, &[SERVICE_INFO]),
            Blame::Off => properties(message, header, &[]),
        },
        (WRITER, "Change", Node::Database(id)) => {
            let body = message.body();
            let blob = blob(&body).ok_or_else(|| Refusal::WrongType {
                found: signature.to_string_no_parens(),
                expected: "(ay)",
            });
            Ok(Meaning::Change(id.clone(), blob?))
        }
        (WRITER, "Init", Node::Database(id)) => {
            no_arguments(signature).map(|()| Meaning::Init(id.clone()))
        }
        (WRITER, _, Node::Database(_)) => Err(Refusal::NoMethod(method.to_owned())),
        (SERVICE_INFO, _, Node::Service) if blame == Blame::On => match method {
            "Blame" => no_arguments(signature).map(|()| Meaning::Blame),
            _ => Err(Refusal::NoMethod(method.to_owned())),
        },
        (PEER | INTROSPECTABLE, _, Node::Service)
        | (_, _, Node::Database(_) | Node::Databases(_)) => {
            Err(no_such_call(method, interface, signature))
        }
        (_, _, Node::Service) => {
            Err(Refusal::NoInterface { interface: interface.to_owned(), path: path.to_owned() })
        }
        (_, _, Node::Above(_) | Node::Nowhere) => Err(Refusal::NoObject(path.to_owned())),
    }
}

/// Returns the interface that a call means which names none.
fn implied_interface(node: &Node, method: &str, blame: Blame) -> &'static str {
    let _ = (node, method, blame);
    ""
}

fn introspection(node: &Node, blame: Blame) -> Meaning {
    let text = match node {
        Node::Database(_) => introspect::node(&[introspect::STANDARD, introspect::WRITER], []),
        Node::Databases(kind) => return Meaning::Names(*kind),
        Node::Service => {
            let interfaces: &[&str] = match blame {
                Blame::On => &[introspect::STANDARD, introspect::SERVICE_INFO],
                Blame::Off => &[],
            };
            introspect::node(interfaces, Kind::ALL.map(Kind::segment))
        }
        Node::Above(child) => introspect::node(&[], [*child]),
        Node::Nowhere => introspect::node(&[], []),
    };
    Meaning::Answer(Answer::Text(text))
}

/// Answers `Properties` for an object whose interfaces have none.
fn properties(
    message: &Message,
    header: &Header<'_>,
    interfaces: &[&str],
) -> Result<Meaning, Refusal> {
    let method = header.member().map_or("", |member| member.as_str());
    let body = message.body();
    let signature = header.signature().to_string_no_parens();
    let (interface, property) = match (method, &*signature) {
        ("GetAll", "s") => (body.deserialize::<&str>(), None),
        ("Get", "ss") => split(body.deserialize::<(&str, &str)>()),
        ("Set", "ssv") => split(
            body.deserialize::<(&str, &str, zbus::Variant<'_>)>()
                .map(|(interface, property, _)| (interface, property)),
        ),
        _ => return Err(no_such_call(method, PROPERTIES, header.signature())),
    };
    let interface = interface.unwrap_or_default();
    if !interfaces.contains(&interface) {
        return Err(Refusal::NoProperties(interface.to_owned()));
    }
    match property {
        Some(property) => Err(Refusal::NoProperty(property.to_owned())),
        None => Ok(Meaning::Answer(Answer::NoProperties)),
    }
}

fn split<'a>(pair: zbus::Result<(&'a str, &'a str)>) -> (zbus::Result<&'a str>, Option<&'a str>) {
    match pair {
        Ok((interface, property)) => (Ok(interface), Some(property)),
        Err(error) => (Err(error), Some("")),
    }
}

fn blob(body: &zbus::message::Body) -> Option<Blob> {
    if body.signature().to_string() != "ay" {
        return None;
    }
    // A bus has checked the length; a peer without a bus may not have.
    let bytes: &[u8] = body.deserialize().ok()?;
    (bytes.len() + 4 == body.len()).then(|| Blob(body.data().clone()))
}

fn no_arguments(signature: &Signature) -> Result<(), Refusal> {
    if *signature == Signature::Unit {
        return Ok(());
    }
    Err(Refusal::WrongType { found: signature.to_string_no_parens(), expected: "()" })
}

fn no_such_call(method: &str, interface: &str, signature: &Signature) -> Refusal {
    Refusal::NoSuchCall {
        method: method.to_owned(),
        interface: interface.to_owned(),
        signature: signature.to_string_no_parens(),
    }
}

/// Reads what identifies this machine on its buses.
fn machine_id() -> Result<String, Refusal> {
    ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .into_iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .map(|text| text.trim().to_owned())
        .find(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .ok_or(Refusal::NoMachineId)
}
