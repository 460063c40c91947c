//! What we asked the bus and the service manager, and what they tell unasked.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use zbus::message::Type;
use zbus::{Message, Variant};

use super::{Incoming, Process};

/// The name of the service manager.
pub(super) const MANAGER: &str = "org.freedesktop.systemd1";

/// The question behind a serial number that we sent.
#[derive(Debug)]
pub(super) enum Question {
    Process(String),
    Environment,
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
                match (name, owner) {
                    (MANAGER, _) => Some(Incoming::ManagerChanged),
                    (name, "") => Some(Incoming::Gone(name.to_owned())),
                    _ => None,
                }
            }
            _ => None,
        },
        // Serial numbers are no secret: an answer counts if it comes from the one who was asked.
        Type::MethodReturn | Type::Error if !by_bus => {
            let serial = header.reply_serial()?.get();
            if !matches!(questions.get(&serial), Some(Question::Environment)) {
                return None;
            }
            questions.remove(&serial);
            Some(Incoming::Environment(environment(message)))
        }
        answer @ (Type::MethodReturn | Type::Error) => {
            Some(match questions.remove(&header.reply_serial()?.get())? {
                Question::Release => Incoming::Released,
                // The bus answers for a manager that is not there.
                Question::Environment => Incoming::Environment(None),
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
fn process(message: &Message) -> Option<Process> {
    let body = message.body();
    let known: HashMap<&str, Variant<'_>> = body.deserialize().ok()?;
    let number = |name| known.get(name).and_then(|value| u32::try_from(value).ok());
    let pidfd = match known.get("ProcessFD") {
        Some(Variant::Fd(fd)) => fd.try_clone().ok().and_then(|fd| OwnedFd::try_from(fd).ok()),
        _ => None,
    };
    Some(Process { pid: number("ProcessID")?, uid: number("UnixUserID")?, pidfd })
}

/// Reads the property of the service manager.
///
/// Whoever owns its name could answer; on a session bus that is whoever could change our environment by other means.
fn environment(message: &Message) -> Option<Vec<String>> {
    if message.message_type() != Type::MethodReturn {
        return None;
    }
    let body = message.body();
    let value: Variant<'_> = body.deserialize().ok()?;
    Vec::<String>::try_from(value).ok()
}
