//! Asks polkit whether a caller may, in one call on the system bus.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use sys::clock::SystemClock;
use sys::stream::{self, Empty};
use wire::body::{BodyValue, values};
use wire::socket::{Deadline, Descriptors, LAST_LINE, LINES, MessageBuffer, answered, connect};
use wire::write::{Draft, Marshal};
use wire::{Endian, MessageType};

use crate::caller::Caller;

/// The action, as `org.unjank.recorder.policy` declares it.
pub(crate) const ACTION: &str = "org.unjank.recorder.trace";

/// How long polkit may take without a person.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a person may take to type a password.
const PATIENCE_WITH_PEOPLE: Duration = Duration::from_secs(240);
/// The longest message that is read, in bytes.
const LONGEST: usize = 1 << 20;

/// What polkit says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PolkitAnswer {
    /// Yes.
    Yes,
    /// After somebody has given a password, for which nobody was asked.
    WithPassword,
    /// No.
    No,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolkitError {
    /// There is no system bus, or no polkit on it.
    #[error("polkit is not there")]
    Absent(#[source] io::Error),
    /// It did not answer, or not in a way that is understood.
    #[error("cannot ask polkit")]
    Failed(#[source] io::Error),
    /// It answered with an error.
    #[error("polkit says {0}")]
    Error(String),
}

/// Asks whether a caller may; `people` says whether somebody may be asked for a password.
pub(crate) fn ask(bus: &str, caller: &Caller, people: bool) -> Result<PolkitAnswer, PolkitError> {
    let clock = SystemClock::start();
    let patience = if people { PATIENCE_WITH_PEOPLE } else { PATIENCE };
    let deadline = Deadline::after(&clock, patience);
    let mut client = BusClient::greet(bus, deadline)?;
    let hello = client.call(&Draft::to_bus(1, "Hello"))?;
    let PolkitReply::Other = hello else { return Err(misunderstood()) };
    let body = question(caller, people);
    client
        .call(&Draft {
            destination: "org.freedesktop.PolicyKit1",
            path: "/org/freedesktop/PolicyKit1/Authority",
            interface: "org.freedesktop.PolicyKit1.Authority",
            member: "CheckAuthorization",
            signature: "(sa{sv})sa{ss}us",
            body: &body,
            ..Draft::new(MessageType::Call, 2)
        })?
        .answer()
        .ok_or_else(misunderstood)
}

/// Returns the body of `CheckAuthorization`: the process that called, by its number, its user and when it began, so that no other is meant.
fn question(caller: &Caller, people: bool) -> Vec<u8> {
    let mut body = Marshal::new(Endian::Little);
    body.text("unix-process");
    body.array(8, |details| {
        let begin = |details: &mut Marshal, name: &str, kind: &str| {
            details.pad(8);
            details.text(name);
            details.signature(kind);
        };
        begin(details, "pid", "u");
        details.u32(caller.process);
        begin(details, "start-time", "t");
        details.u64(caller.start_time);
        // A number with a sign that holds all of the user's bits.
        begin(details, "uid", "i");
        details.u32(caller.user);
    });
    body.text(ACTION);
    body.array(8, |_| ());
    body.u32(people.into());
    body.text("");
    body.bytes()
}

fn misunderstood() -> PolkitError {
    PolkitError::Failed(io::ErrorKind::InvalidData.into())
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PolkitReply {
    /// Whether it is allowed, and whether a password would help.
    Authorization(bool, bool),
    /// Something else.
    Other,
}

impl PolkitReply {
    fn answer(self) -> Option<PolkitAnswer> {
        match self {
            PolkitReply::Authorization(true, _) => Some(PolkitAnswer::Yes),
            PolkitReply::Authorization(false, true) => Some(PolkitAnswer::WithPassword),
            PolkitReply::Authorization(false, false) => Some(PolkitAnswer::No),
            PolkitReply::Other => None,
        }
    }
}

/// A connection to the bus.
struct BusClient<'c> {
    socket: OwnedFd,
    messages: MessageBuffer,
    deadline: Deadline<'c>,
}

impl<'c> BusClient<'c> {
    fn greet(bus: &str, deadline: Deadline<'c>) -> Result<BusClient<'c>, PolkitError> {
        let socket =
            connect(bus.as_bytes(), deadline.limit()).map_err(|error| match error.kind() {
                // A bus that is busy decides all the same, when it is asked again.
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    PolkitError::Absent(error)
                }
                _ => PolkitError::Failed(error),
            })?;
        stream::send(&socket, LINES, &[]).map_err(PolkitError::Failed)?;
        let begun = answered(&socket, Descriptors::Welcome, Some(&deadline))
            .map_err(|error| PolkitError::Failed(io::Error::other(error)))?;
        stream::send(&socket, LAST_LINE, &[]).map_err(PolkitError::Failed)?;
        Ok(BusClient { socket, messages: MessageBuffer::new(begun, LONGEST), deadline })
    }

    /// Calls, and waits for the answer.
    fn call(&mut self, draft: &Draft<'_>) -> Result<PolkitReply, PolkitError> {
        stream::send(&self.socket, &draft.bytes(), &[]).map_err(PolkitError::Failed)?;
        loop {
            while let Some(bytes) = self.messages.take().map_err(|_| misunderstood())? {
                let message = wire::message(bytes).map_err(|_| misunderstood())?;
                if message.reply_serial.is_none_or(|to| to.get() != draft.serial) {
                    continue;
                }
                if message.kind == MessageType::Error {
                    return Err(error(message.error_name.unwrap_or_default()));
                }
                return Ok(match values(&message).next() {
                    Some(Ok(BodyValue::Structure(fields))) => match *fields {
                        [BodyValue::Boolean(may), BodyValue::Boolean(challenge), ..] => {
                            PolkitReply::Authorization(may, challenge)
                        }
                        _ => PolkitReply::Other,
                    },
                    _ => PolkitReply::Other,
                });
            }
            let left = self.deadline.remaining().map_err(PolkitError::Failed)?;
            let is_readable = sys::socket::wait_readable(&self.socket, Some(left));
            if !is_readable.map_err(PolkitError::Failed)? {
                continue;
            }
            match stream::receive(&self.socket, self.messages.room(4096), Empty::Fail) {
                Ok(0) => return Err(PolkitError::Failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.messages.fill(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(PolkitError::Failed(error)),
            }
        }
    }
}

/// Returns what an error of the bus means: that nobody has the name, or can be started for it, is no refusal.
fn error(name: &str) -> PolkitError {
    let short = name.strip_prefix("org.freedesktop.DBus.Error.").unwrap_or_default();
    let is_absent =
        matches!(short, "ServiceUnknown" | "NameHasNoOwner") || short.starts_with("Spawn.");
    match is_absent {
        true => PolkitError::Absent(io::Error::new(io::ErrorKind::NotFound, name.to_owned())),
        false => PolkitError::Error(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_on_the_bus_is_told_from_a_refusal() {
        let name = |short: &str| format!("org.freedesktop.DBus.Error.{short}");
        for short in ["ServiceUnknown", "NameHasNoOwner", "Spawn.ExecFailed"] {
            assert!(matches!(error(&name(short)), PolkitError::Absent(_)), "{short}");
        }
        for short in ["AccessDenied", "NoReply", "Timeout"] {
            assert!(matches!(error(&name(short)), PolkitError::Error(_)), "{short}");
        }
        let own = "org.freedesktop.PolicyKit1.Error.NotAuthorized";
        assert!(matches!(error(own), PolkitError::Error(text) if text == own));
    }
}
