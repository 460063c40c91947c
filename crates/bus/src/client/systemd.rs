//! The user's systemd, `org.freedesktop.systemd1`: scopes for processes that run already, and programs that it is about to start.
//!
//! org.freedesktop.systemd1(5). Nobody is started to answer: where there is no systemd on the bus, there is none.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use futures_util::StreamExt;
use zbus::{MatchRule, Message, MessageStream, Variant};

use super::{BusClient, ClientError, refused};
use wire::body::{BodyValue, values};
use wire::socket::{Descriptors, GreetError, LAST_LINE, LINES, MessageBuffer, answered};
use wire::write::{Draft, Marshal};
use wire::{Endian, Header, MessageType};

const NAME: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// No environment is longer.
const LONGEST: usize = 4 << 20;

/// Asks the user's systemd for the environment that it gives to programs, over a connection to its own socket,
/// `systemd/private` in the runtime directory. Each step may take as long as the socket's timeouts say.
///
/// On the bus the name of systemd is whoever's who takes it first where there is none. Its own socket is no bus: whoever
/// answers there says that he is `org.freedesktop.systemd1`, which no client of a bus accepts as a sender.
///
/// # Errors
///
/// Nobody answers in the words of systemd.
pub fn environment_of(mut socket: &UnixStream) -> Result<Vec<String>, ClientError> {
    let broken = |error: io::Error| ClientError::Broken(error);
    let mut arguments = Marshal::new(Endian::Little);
    arguments.text(MANAGER);
    arguments.text("Environment");
    let call = Draft {
        destination: NAME,
        path: PATH,
        interface: "org.freedesktop.DBus.Properties",
        member: "Get",
        signature: "ss",
        body: &arguments.bytes(),
        ..Draft::new(MessageType::Call, 1)
    }
    .bytes();
    socket.write_all(LINES).map_err(broken)?;
    let begun = answered(socket, Descriptors::Welcome, None).map_err(|error| match error {
        GreetError::Lost(error) => ClientError::Broken(error),
        error @ GreetError::Rejected(_) => ClientError::Broken(io::Error::other(error)),
    })?;
    socket.write_all(&[LAST_LINE, &call].concat()).map_err(broken)?;
    let unexpected = || ClientError::Unexpected { destination: NAME.to_owned() };
    let mut messages = MessageBuffer::new(begun, usize::MAX);
    loop {
        while let Some(bytes) = messages.take().map_err(|_| unexpected())? {
            let message = wire::message(bytes).map_err(|_| unexpected())?;
            if message.reply_serial.is_some_and(|to| to.get() == 1) {
                return environment(&message).ok_or_else(unexpected);
            }
        }
        if messages.waiting() > LONGEST {
            return Err(unexpected());
        }
        match socket.read(messages.room(4096)).map_err(broken)? {
            0 => return Err(broken(io::ErrorKind::UnexpectedEof.into())),
            count => messages.fill(count),
        }
    }
}

/// Reads the value of the property.
fn environment(message: &Header<'_>) -> Option<Vec<String>> {
    let value = values(message).next().filter(|_| message.kind == MessageType::Return)?.ok()?;
    let BodyValue::Variant("as", value) = value else { return None };
    let BodyValue::Array(array) = *value else { return None };
    array
        .items()
        .map(|item| if let Ok(BodyValue::Text(text)) = item { Some(text.to_owned()) } else { None })
        .collect()
}

/// A scope to be made.
#[derive(Clone, Copy, Debug)]
pub struct ScopeRequest<'s> {
    /// Its name, with `.scope`.
    pub name: &'s str,
    /// The slice that it belongs to: `background.slice`.
    pub slice: &'s str,
    /// What people are shown.
    pub description: &'s str,
    /// Processes that run already.
    pub processes: &'s [u32],
}

impl BusClient {
    /// Asks for a scope, in which the processes may make cgroups of their own, and waits until they are in it. It is gone with the last of them.
    ///
    /// # Errors
    ///
    /// There is no systemd on this bus, or it refused: nothing has changed. Without an answer in time it may come later.
    pub async fn start_scope(&self, scope: &ScopeRequest<'_>) -> Result<(), ClientError> {
        // The answer to the call comes before the processes are there.
        let mut signals = self.signals().await?;
        let properties = vec![
            ("Description", Variant::from(scope.description)),
            ("Slice", Variant::from(scope.slice)),
            ("PIDs", Variant::from(scope.processes.to_vec())),
            ("Delegate", Variant::from(true)),
            ("CollectMode", Variant::from("inactive-or-failed")),
        ];
        let none: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        let body = (scope.name, "fail", properties, none);
        let answer = self.call(NAME, PATH, MANAGER, "StartTransientUnit", &body).await?;
        let unexpected = || ClientError::Unexpected { destination: NAME.to_owned() };
        let job: zbus::OwnedObjectPath = answer.body().deserialize().map_err(|_| unexpected())?;
        while let Some(Ok(message)) = signals.next().await {
            if let Some(result) = removed(&message, &job) {
                return if result == "done" { Ok(()) } else { Err(unexpected()) };
            }
        }
        Err(unexpected())
    }

    /// Shows the programs that systemd starts from now on.
    ///
    /// # Errors
    ///
    /// There is no systemd on this bus.
    pub async fn launches(&self) -> Result<UnitLaunches, ClientError> {
        Ok(UnitLaunches { stream: self.signals().await? })
    }

    /// Has the manager tell what it does.
    async fn signals(&self) -> Result<MessageStream, ClientError> {
        if self.name_owner(NAME).await?.is_none() {
            return Err(ClientError::Unexpected { destination: NAME.to_owned() });
        }
        let rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .interface(MANAGER)
            .path(PATH)
            .build()
            .map_err(refused)?;
        let stream = MessageStream::for_match_rule(rule, &self.connection, None);
        let stream = stream.await.map_err(refused)?;
        // Without it the manager says nothing.
        self.call(NAME, PATH, MANAGER, "Subscribe", &()).await?;
        Ok(stream)
    }
}

/// Units of programs as they are started.
#[derive(Debug)]
pub struct UnitLaunches {
    stream: MessageStream,
}

impl UnitLaunches {
    /// Waits for the next one and returns the unit's name; `None` when the connection is gone.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            let message = self.stream.next().await?.ok()?;
            if let Some(unit) = launched(&message).filter(|unit| is_program(unit)) {
                return Some(unit);
            }
        }
    }
}

/// Returns how `job` ended, if a signal tells of that.
fn removed(message: &Message, job: &zbus::OwnedObjectPath) -> Option<String> {
    let header = message.header();
    if header.message_type() != zbus::message::Type::Signal || header.member()? != "JobRemoved" {
        return None;
    }
    let body = message.body();
    let (_, of, _, result): (u32, zbus::OwnedObjectPath, String, String) =
        body.deserialize().ok()?;
    (of == *job).then_some(result)
}

/// Returns the unit that a signal tells of: one that was loaded, or that has something to do.
fn launched(message: &Message) -> Option<String> {
    let header = message.header();
    if header.message_type() != zbus::message::Type::Signal {
        return None;
    }
    let body = message.body();
    match header.member()?.as_str() {
        "UnitNew" => {
            let (unit, _): (String, zbus::OwnedObjectPath) = body.deserialize().ok()?;
            Some(unit)
        }
        "JobNew" => {
            let (_, _, unit): (u32, zbus::OwnedObjectPath, String) = body.deserialize().ok()?;
            Some(unit)
        }
        _ => None,
    }
}

/// Says whether a unit is a program that a person starts: `app-…` by the desktop's convention (systemd.io/DESKTOP_ENVIRONMENTS), `dbus-…` for one that is started by a call.
fn is_program(unit: &str) -> bool {
    let kind = unit.ends_with(".scope") || unit.ends_with(".service");
    kind && (unit.starts_with("app-") || unit.starts_with("dbus-:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_does_not_speak_as_systemd_does_is_an_error() {
        let says = |answers: &[&[u8]]| {
            let answers: Vec<Vec<u8>> = answers.iter().map(|bytes| bytes.to_vec()).collect();
            let (ours, theirs) = UnixStream::pair().unwrap();
            let other = std::thread::Builder::new().spawn(move || {
                for answer in answers {
                    let mut buffer = [0; 4096];
                    let _ = (&theirs).read(&mut buffer);
                    let _ = (&theirs).write_all(&answer);
                }
            });
            let said = environment_of(&ours);
            other.unwrap().join().unwrap();
            said.map_err(|error| error.to_string())
        };
        let greeted: &[u8] = b"DATA\r\nOK 12ab\r\nAGREE_UNIX_FD\r\n";
        assert!(says(&[]).is_err());
        assert!(says(&[b"HTTP/1.1 400 Bad Request\r\n\r\n"]).is_err());
        assert!(says(&[greeted]).is_err());
        assert!(says(&[greeted, &[0xff; 100]]).is_err());
        // A length that nobody waits for.
        let long = b"l\x02\x01\x01\xff\xff\xff\x07\x01\0\0\0\0\0\0\0";
        assert!(says(&[greeted, long]).is_err());
    }

    #[test]
    fn programs_are_told_from_other_units() {
        for program in [
            "app-gnome-firefox-12.scope",
            "app-org.kde.dolphin@1f.service",
            "dbus-:1.2-org.gnome.Nautilus@0.service",
        ] {
            assert!(is_program(program), "{program}");
        }
        for other in [
            "unjank-run-7.scope",
            "background.slice",
            "app-x.slice",
            "pulseaudio.service",
            "dbus.service",
        ] {
            assert!(!is_program(other), "{other}");
        }
    }
}
