//! What we asked the bus, and what it tells unasked.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use zbus::message::Type;
use zbus::{Message, Variant};

use super::{BusProcess, Incoming};

/// The question behind a serial number that we sent.
#[derive(Debug)]
pub(super) enum Question {
    Process(String),
    BusProcess,
    Release,
}

/// Reads a message that is no call.
pub(super) fn take(questions: &mut HashMap<u32, Question>, message: &Message) -> Option<Incoming> {
    let header = message.header();
    let body = message.body();
    let by_bus = header.sender().is_some_and(|sender| sender.as_str() == "org.freedesktop.DBus");
    match header.message_type() {
        Type::MethodCall => None,
        // Names that start with `org.freedesktop.DBus` belong to the bus alone.
        Type::Signal if !by_bus => None,
        Type::Signal => match header.member()?.as_str() {
            "NameLost" => {
                let name: &str = body.deserialize().ok()?;
                (name == super::NAME).then_some(Incoming::NameLost)
            }
            "NameOwnerChanged" => {
                let (name, _, owner): (&str, &str, &str) = body.deserialize().ok()?;
                let name = name.starts_with(':').then(|| name.to_owned())?;
                Some(if owner.is_empty() { Incoming::Gone(name) } else { Incoming::Came(name) })
            }
            _ => None,
        },
        // Serial numbers are no secret: an answer counts if it comes from the one who was asked.
        Type::MethodReturn | Type::Error if !by_bus => None,
        answer @ (Type::MethodReturn | Type::Error) => {
            Some(match questions.remove(&header.reply_serial()?.get())? {
                Question::Release => Incoming::Released,
                Question::BusProcess => Incoming::BusProcess(body.deserialize().ok()),
                Question::Process(sender) => {
                    let text = || body.deserialize::<&str>().unwrap_or("no answer").to_owned();
                    let process = match answer {
                        Type::MethodReturn => process(message).ok_or_else(text),
                        _ => Err(text()),
                    };
                    Incoming::Process { sender, process }
                }
            })
        }
    }
}

/// Reads `GetConnectionCredentials`.
fn process(message: &Message) -> Option<BusProcess> {
    let body = message.body();
    let known: HashMap<&str, Variant<'_>> = body.deserialize().ok()?;
    let number = |name| known.get(name).and_then(|value| u32::try_from(value).ok());
    let pidfd = match known.get("ProcessFD") {
        Some(Variant::Fd(fd)) => fd.try_clone().ok().and_then(|fd| OwnedFd::try_from(fd).ok()),
        _ => None,
    };
    Some(BusProcess { pid: number("ProcessID")?, uid: number("UnixUserID")?, pidfd })
}
