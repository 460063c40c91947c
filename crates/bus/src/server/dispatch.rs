//! Decides what a call means. Objects exist for every legal database name; nothing is registered.

use settings::engine::{DatabaseId, DatabaseKind};
use zbus::message::Header;
use zbus::{Message, Signature};

use super::introspect;
use crate::errors::Refusal;
use crate::raw::Caller;
use crate::request::{Blob, BusRequest, ReplyTo};

const ROOT: &str = "/ca/desrt/dconf";
const WRITER: &str = "ca.desrt.dconf.Writer";
const SERVICE_INFO: &str = "ca.desrt.dconf.ServiceInfo";
const PEER: &str = "org.freedesktop.DBus.Peer";
const INTROSPECTABLE: &str = "org.freedesktop.DBus.Introspectable";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Whether calls are recorded and `ServiceInfo.Blame` exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRecording {
    /// The interface exists.
    On,
    /// The interface does not exist.
    Off,
}

/// What to do with a call.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The owner of the state answers.
    Ask(BusRequest),
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
    Databases(DatabaseKind),
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
                match below.and_then(DatabaseKind::from_segment) {
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
pub(crate) fn dispatch(message: &Message, blame: CallRecording) -> Verdict {
    let header = message.header();
    let caller = Caller::of(message, &header);
    match decide(message, &header, blame) {
        Ok(Meaning::Answer(answer)) => Verdict::Answer(caller, answer),
        Ok(Meaning::Change(database, blob)) => {
            Verdict::Ask(BusRequest::Change { reply_to: ReplyTo(caller), database, blob })
        }
        Ok(Meaning::Init(database)) => {
            Verdict::Ask(BusRequest::Init { reply_to: ReplyTo(caller), database })
        }
        Ok(Meaning::Blame) => Verdict::Ask(BusRequest::Blame { reply_to: ReplyTo(caller) }),
        Ok(Meaning::Names(kind)) => {
            Verdict::Ask(BusRequest::Names { reply_to: ReplyTo(caller), kind })
        }
        Err(refusal) => Verdict::Refuse(caller, refusal),
    }
}

enum Meaning {
    Answer(Answer),
    Change(DatabaseId, Blob),
    Init(DatabaseId),
    Blame,
    Names(DatabaseKind),
}

fn decide(
    message: &Message,
    header: &Header<'_>,
    blame: CallRecording,
) -> Result<Meaning, Refusal> {
    let path = header.path().map_or("/", |path| path.as_str());
    let node = Node::at(path);
    let method = header.member().map_or("", |member| member.as_str());
    let interface = header.interface().map(|interface| interface.as_str());
    let signature = header.signature();
    let plain = *signature == Signature::Unit;
    let nothing_there = || no_such_call(&node, path, interface, method, signature);
    match (interface.unwrap_or_default(), method, &node) {
        (PEER, "Ping", _) if plain => Ok(Meaning::Answer(Answer::Empty)),
        (PEER, "GetMachineId", _) if plain => Ok(Meaning::Answer(Answer::Text(machine_id()?))),
        (INTROSPECTABLE, "Introspect", node) if plain => Ok(introspection(node, blame)),
        (PROPERTIES, _, Node::Database(_)) => {
            properties(message, &[WRITER]).unwrap_or_else(|| Err(nothing_there()))
        }
        (PROPERTIES, _, Node::Service) => {
            let interfaces: &[&str] =
                if blame == CallRecording::On { &[SERVICE_INFO] } else { &[] };
            properties(message, interfaces).unwrap_or_else(|| Err(nothing_there()))
        }
        (WRITER, "Change", Node::Database(id)) => {
            let wrong =
                || Refusal::WrongType { found: signature.to_string_no_parens(), expected: "ay" };
            Ok(Meaning::Change(id.clone(), blob(&message.body()).ok_or_else(wrong)?))
        }
        (WRITER, "Init", Node::Database(id)) => {
            no_arguments(signature).map(|()| Meaning::Init(id.clone()))
        }
        (SERVICE_INFO, "Blame", Node::Service) if blame == CallRecording::On => {
            no_arguments(signature).map(|()| Meaning::Blame)
        }
        (WRITER, _, Node::Database(_)) => Err(Refusal::NoMethod(method.to_owned())),
        (SERVICE_INFO, _, Node::Service) if blame == CallRecording::On => {
            Err(Refusal::NoMethod(method.to_owned()))
        }
        _ => Err(nothing_there()),
    }
}

fn introspection(node: &Node, blame: CallRecording) -> Meaning {
    let text = match node {
        Node::Database(_) => introspect::node(&[introspect::STANDARD, introspect::WRITER], []),
        Node::Databases(kind) => return Meaning::Names(*kind),
        Node::Service => {
            let interfaces: &[&str] = match blame {
                CallRecording::On => &[introspect::STANDARD, introspect::SERVICE_INFO],
                CallRecording::Off => &[],
            };
            introspect::node(interfaces, DatabaseKind::ALL.map(DatabaseKind::segment))
        }
        Node::Above(child) => introspect::node(&[], [*child]),
        Node::Nowhere => introspect::node(&[], []),
    };
    Meaning::Answer(Answer::Text(text))
}

/// Answers `Properties` for an object whose interfaces have none; `None` if it has no such method.
fn properties(message: &Message, interfaces: &[&str]) -> Option<Result<Meaning, Refusal>> {
    let PropertiesCall { interface, property, .. } = PropertiesCall::read(message)?;
    Some(match property {
        _ if !interfaces.contains(&&*interface) => Err(Refusal::NoProperties(interface)),
        Some(property) => Err(Refusal::NoProperty(property)),
        None => Ok(Meaning::Answer(Answer::NoProperties)),
    })
}

/// The longest property that is read, in bytes: nobody may set any.
const LONGEST_PROPERTY: usize = 64 << 10;

/// A call of `org.freedesktop.DBus.Properties`.
pub(super) struct PropertiesCall {
    pub(super) interface: String,
    /// None for all of them.
    pub(super) property: Option<String>,
    /// Whether it is only to be read.
    pub(super) reads: bool,
}

impl PropertiesCall {
    /// Reads a call; `None` if the interface has no such method. What cannot be read names nothing.
    pub(super) fn read(message: &Message) -> Option<PropertiesCall> {
        let header = message.header();
        let body = message.body();
        let signature = header.signature().to_string_no_parens();
        let member = header.member()?.as_str();
        let (interface, property) = match (member, &*signature) {
            ("GetAll", "s") => (body.deserialize::<&str>().unwrap_or_default(), None),
            ("Get", "ss") => {
                let (interface, property) = body.deserialize::<(&str, &str)>().unwrap_or_default();
                (interface, Some(property))
            }
            // Each byte of an array in a variant would become a value, for as long as that takes.
            ("Set", "ssv") if body.len() > LONGEST_PROPERTY => ("", Some("")),
            ("Set", "ssv") => match body.deserialize::<(&str, &str, zbus::Variant<'_>)>() {
                Ok((interface, property, _)) => (interface, Some(property)),
                Err(_) => ("", Some("")),
            },
            _ => return None,
        };
        let (interface, property) = (interface.to_owned(), property.map(str::to_owned));
        Some(PropertiesCall { interface, property, reads: member != "Set" })
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
    Err(Refusal::WrongType { found: signature.to_string_no_parens(), expected: "" })
}

/// Says what is missing, from the object to the method.
fn no_such_call(
    node: &Node,
    path: &str,
    interface: Option<&str>,
    method: &str,
    signature: &Signature,
) -> Refusal {
    match (node, interface) {
        (Node::Database(_) | Node::Databases(_), _) => Refusal::NoSuchCall {
            method: method.to_owned(),
            // What the original prints for a call that names no interface.
            interface: interface.unwrap_or("(null)").to_owned(),
            signature: signature.to_string_no_parens(),
        },
        (Node::Service, Some(interface)) => {
            Refusal::NoInterface { interface: interface.to_owned(), path: path.to_owned() }
        }
        _ => Refusal::NoObject(path.to_owned()),
    }
}

/// Reads what identifies this machine on its buses.
pub(super) fn machine_id() -> Result<String, Refusal> {
    ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .into_iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .map(|text| text.trim().to_owned())
        .find(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .ok_or(Refusal::NoMachineId)
}
