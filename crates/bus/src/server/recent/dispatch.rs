//! Decides what a call to `org.unjank.Recent1` means.

use zbus::message::Header;
use zbus::{Message, Signature};

use super::{INTERFACE, PATH, RecentCall, decode};
use crate::errors::Refusal;
use crate::raw::Caller;
use crate::request::ReplyTo;
use crate::server::dispatch::machine_id;
use crate::server::introspect;

/// The longest arguments; of documents that are to be forgotten there may be many.
const MOST_BYTES: usize = 1 << 20;

/// What to do with a call.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The owner of the state answers.
    Ask(ReplyTo, RecentCall),
    /// Nothing is to be said.
    Empty(Caller),
    /// One string is the answer.
    Text(Caller, String),
    /// There are no properties.
    NoProperties(Caller),
    /// The call makes no sense here.
    Refuse(Caller, Refusal),
}

enum Meaning {
    Call(RecentCall),
    Empty,
    Text(String),
    NoProperties,
}

/// Decides what the call `message` means.
pub(super) fn dispatch(message: &Message) -> Verdict {
    let header = message.header();
    let caller = Caller::of(message, &header);
    match decide(message, &header) {
        Ok(Meaning::Call(call)) => Verdict::Ask(ReplyTo(caller), call),
        Ok(Meaning::Empty) => Verdict::Empty(caller),
        Ok(Meaning::Text(text)) => Verdict::Text(caller, text),
        Ok(Meaning::NoProperties) => Verdict::NoProperties(caller),
        Err(refusal) => Verdict::Refuse(caller, refusal),
    }
}

fn decide(message: &Message, header: &Header<'_>) -> Result<Meaning, Refusal> {
    let path = header.path().map_or("/", |path| path.as_str());
    let method = header.member().map_or("", |member| member.as_str());
    let interface = header.interface().map_or("", |interface| interface.as_str());
    let body = message.body();
    let plain = *header.signature() == Signature::Unit;
    let typed = |expected: &'static str| {
        let found = header.signature().to_string_no_parens();
        if found == expected { Ok(()) } else { Err(Refusal::WrongType { found, expected }) }
    };
    match (interface, method) {
        ("org.freedesktop.DBus.Peer", "Ping") if plain => return Ok(Meaning::Empty),
        ("org.freedesktop.DBus.Peer", "GetMachineId") if plain => {
            return machine_id().map(Meaning::Text);
        }
        ("org.freedesktop.DBus.Introspectable", "Introspect") if plain => {
            return Ok(Meaning::Text(introspection(path)));
        }
        _ if path != PATH => return Err(Refusal::NoObject(path.to_owned())),
        ("org.freedesktop.DBus.Properties", "GetAll") => {
            typed("s")?;
            return Ok(Meaning::NoProperties);
        }
        (INTERFACE | "", _) => {}
        _ => {
            let (interface, path) = (interface.to_owned(), path.to_owned());
            return Err(Refusal::NoInterface { interface, path });
        }
    }
    // It waits in memory until it is known who calls.
    if body.len() > MOST_BYTES {
        return Err(Refusal::Invalid(format!("arguments of {} bytes", body.len())));
    }
    let call = match method {
        "Add" => {
            typed("sa{sv}")?;
            decode::add(&body)?
        }
        "List" => {
            typed("a{sv}")?;
            decode::list(&body)?
        }
        "Forget" => {
            typed("as")?;
            decode::forget(&body)?
        }
        "Private" => {
            typed("bt")?;
            decode::private(&body)?
        }
        "Policy" => {
            typed("")?;
            RecentCall::Policy
        }
        "Sync" => {
            typed("")?;
            RecentCall::Sync
        }
        _ => return Err(Refusal::NoMethod(method.to_owned())),
    };
    Ok(Meaning::Call(call))
}

fn introspection(path: &str) -> String {
    match path {
        PATH => introspect::node(&[introspect::STANDARD, introspect::RECENT1], []),
        "/" => introspect::node(&[], ["org"]),
        "/org" => introspect::node(&[], ["unjank"]),
        "/org/unjank" => introspect::node(&[], ["Recent1"]),
        _ => introspect::node(&[], []),
    }
}
