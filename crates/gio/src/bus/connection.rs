//! A connection to a bus that has been greeted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use settings::client::{DatabaseSignal, TransportError};
use sys::clock::Clock;
use sys::stream;
use wire::body::{BodyValue, values};
use wire::socket::{Deadline, Descriptors, LAST_LINE, LINES, MessageBuffer, answered, connect};
use wire::write::Draft;
use wire::{Header, MessageType};

use super::call::BusCall;
use super::{LONGEST_MESSAGE, WRITER};
use crate::boundary::said;

/// A message that arrived.
#[derive(Debug)]
pub(super) enum Arrival {
    /// The answer to the call with this number: its first text.
    Answer(u32, Result<String, BusError>),
    /// A signal of a database.
    Signal(DatabaseSignal),
}

/// An error of the bus or of the service.
#[derive(Debug)]
pub(super) struct BusError {
    name: String,
    text: String,
}

impl BusError {
    /// Whether the service ended before it answered: another one may have the call made.
    pub(super) fn is_lost_service(&self) -> bool {
        self.name == "org.freedesktop.DBus.Error.NoReply"
    }
}

impl From<BusError> for TransportError {
    fn from(error: BusError) -> TransportError {
        TransportError { text: format!("{}: {}", error.name, error.text) }
    }
}

/// The connection.
#[derive(Debug)]
pub(super) struct BusConnection {
    socket: OwnedFd,
    messages: MessageBuffer,
    serial: u32,
}

impl BusConnection {
    /// Connects to a bus and greets it, within `limit`.
    pub(super) fn open(
        address: &[u8],
        clock: &dyn Clock,
        limit: Duration,
    ) -> Result<BusConnection, TransportError> {
        let failed = |error: &dyn std::error::Error| TransportError {
            text: format!("Could not connect: {}", said(error)),
        };
        let deadline = Deadline::after(clock, limit);
        let socket = connect(address, limit).map_err(|error| failed(&error))?;
        stream::send(&socket, LINES, &[]).map_err(|error| failed(&error))?;
        let begun = answered(&socket, Descriptors::Welcome, Some(&deadline))
            .map_err(|error| failed(&error))?;
        let messages = MessageBuffer::new(begun, LONGEST_MESSAGE);
        let connection = BusConnection { socket, messages, serial: 1 };
        let hello = [LAST_LINE, &Draft::to_bus(1, "Hello").bytes()].concat();
        stream::send(&connection.socket, &hello, &[]).map_err(|error| failed(&error))?;
        Ok(connection)
    }

    /// Returns the socket, to be polled.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a call and returns its number.
    pub(super) fn send(&mut self, call: &BusCall) -> io::Result<u32> {
        self.serial = self.serial.checked_add(1).unwrap_or(2);
        let draft = Draft {
            destination: call.destination,
            path: &call.object_path,
            interface: call.interface,
            member: call.member,
            signature: call.signature,
            body: &call.body,
            ..Draft::new(MessageType::Call, self.serial)
        };
        stream::send(&self.socket, &draft.bytes(), &[])?;
        Ok(self.serial)
    }

    /// Takes what arrived, without waiting.
    ///
    /// # Errors
    ///
    /// The connection ended, or what arrived is no message; nothing more can be done with it.
    pub(super) fn receive(&mut self) -> io::Result<Vec<Arrival>> {
        let mut arrivals = Vec::new();
        loop {
            match stream::receive(&self.socket, self.messages.room(16 << 10), stream::Empty::Fail) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.messages.fill(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            self.take(&mut arrivals)?;
        }
        self.take(&mut arrivals)?;
        Ok(arrivals)
    }

    fn take(&mut self, arrivals: &mut Vec<Arrival>) -> io::Result<()> {
        let wrong = |_| io::Error::from(io::ErrorKind::InvalidData);
        while let Some(bytes) = self.messages.take().map_err(wrong)? {
            arrivals.extend(arrival(&wire::message(bytes).map_err(wrong)?));
        }
        Ok(())
    }
}

fn arrival(message: &Header<'_>) -> Option<Arrival> {
    if message.kind == MessageType::Signal {
        return signal(message).map(Arrival::Signal);
    }
    let serial = message.reply_serial?.get();
    let text = match values(message).next() {
        Some(Ok(BodyValue::Text(text))) => text.to_owned(),
        _ => String::new(),
    };
    if message.kind == MessageType::Error {
        let name = message.error_name.unwrap_or_default().to_owned();
        return Some(Arrival::Answer(serial, Err(BusError { name, text })));
    }
    Some(Arrival::Answer(serial, Ok(text)))
}

fn signal(message: &Header<'_>) -> Option<DatabaseSignal> {
    if message.interface != Some(WRITER) {
        return None;
    }
    let mut body = values(message);
    let mut next = || body.next()?.ok();
    match (message.member?, message.signature) {
        ("Notify", "sass") => {
            let Some(BodyValue::Text(prefix)) = next() else { return None };
            let Some(BodyValue::Array(changes)) = next() else { return None };
            let Some(BodyValue::Text(tag)) = next() else { return None };
            let changes = changes.items().map(|item| match item {
                Ok(BodyValue::Text(text)) => Some(text.to_owned()),
                _ => None,
            });
            Some(DatabaseSignal::Notify {
                prefix: prefix.to_owned(),
                changes: changes.collect::<Option<_>>()?,
                tag: tag.to_owned(),
            })
        }
        ("WritabilityNotify", "s") => match next() {
            Some(BodyValue::Text(path)) => {
                Some(DatabaseSignal::Writability { path: path.to_owned() })
            }
            _ => None,
        },
        _ => None,
    }
}
