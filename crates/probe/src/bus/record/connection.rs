//! A connection to a bus on a plain socket: a few calls, and then a monitor whose bytes nobody looks at here.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bus::client::socket::{self, Descriptors, GreetError};

use super::RecordError;
use crate::bus::wire::write::{Draft, Marshal};
use crate::bus::wire::{self, Endian, Kind, body};

/// How long a bus may take to answer.
const PATIENCE: Duration = Duration::from_secs(25);
/// So much is read at once at least.
const PIECE: usize = 1 << 16;

/// A connection that calls the bus itself.
#[derive(Debug)]
pub(in crate::bus) struct Connection {
    socket: UnixStream,
    address: String,
    serial: u32,
    unique: String,
    buffer: Vec<u8>,
    /// Where the next message begins.
    at: usize,
    /// Where what has come ends.
    filled: usize,
}

/// How traffic is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The bus sends everything to a monitor.
    Monitor,
    /// An older bus sends what rules with `eavesdrop` ask for.
    Eavesdrop,
    /// Another program hands it on.
    Stream,
}

/// A bus's traffic: a descriptor from which messages come.
#[derive(Debug)]
pub struct Monitor {
    pub(super) descriptor: OwnedFd,
    /// What came with the answer that made it one.
    pub(super) begun: Vec<u8>,
    pub(super) way: Way,
    /// The process of the bus, if that is known.
    pub(super) bus_process: Option<u32>,
}

impl Monitor {
    /// Begins to watch the bus at an address; no rules are all messages.
    ///
    /// # Errors
    ///
    /// There is no bus, or it does not let us; nothing is left behind on it.
    pub fn attach(address: &str, rules: &[String]) -> Result<Monitor, RecordError> {
        let mut connection = Connection::open(address)?;
        let bus_process = connection.process_of_bus();
        let way = connection.become_monitor(rules)?;
        let Connection { socket, mut buffer, at, filled, .. } = connection;
        socket.set_read_timeout(None).map_err(|source| broken(address, source))?;
        buffer.truncate(filled);
        buffer.drain(..at);
        Ok(Monitor { descriptor: socket.into(), begun: buffer, way, bus_process })
    }

    /// Takes messages that another program hands on, one after the other.
    #[must_use]
    pub fn stream(descriptor: OwnedFd) -> Monitor {
        Monitor { descriptor, begun: Vec::new(), way: Way::Stream, bus_process: None }
    }

    /// Returns how traffic is seen.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way
    }

    /// Hands it to the process at the other end of a socket of messages; it goes on there.
    ///
    /// # Errors
    ///
    /// As [`sys::socket::send`].
    pub fn pass(self, socket: &OwnedFd) -> io::Result<()> {
        let way = if self.way == Way::Eavesdrop { b'e' } else { b'm' };
        let mut message = vec![way];
        message.extend(self.bus_process.unwrap_or(0).to_le_bytes());
        message.extend(&self.begun);
        sys::socket::send(socket, &message, Some(self.descriptor.as_fd()), sys::socket::Full::Wait)
    }

    /// Takes one that another process passed; none if it ended without one.
    ///
    /// # Errors
    ///
    /// As [`sys::socket::receive`].
    pub fn receive(socket: &OwnedFd) -> io::Result<Option<Monitor>> {
        sys::socket::wait_readable(socket, None)?;
        let mut buffer = vec![0; 1 << 18];
        let received = sys::socket::receive(socket, &mut buffer)?;
        let Some(descriptor) = received.descriptor else { return Ok(None) };
        buffer.truncate(received.length);
        let Some((way, rest)) = buffer.split_first() else { return Ok(None) };
        let Some((process, begun)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let way = if *way == b'e' { Way::Eavesdrop } else { Way::Monitor };
        let bus_process = Some(u32::from_le_bytes(*process)).filter(|process| *process != 0);
        Ok(Some(Monitor { descriptor, begun: begun.to_vec(), way, bus_process }))
    }
}

fn broken(address: &str, source: io::Error) -> RecordError {
    // A broken pipe would look as if nobody read our own output.
    let is_pipe = source.kind() == io::ErrorKind::BrokenPipe;
    let source = if is_pipe { io::ErrorKind::ConnectionReset.into() } else { source };
    RecordError::Broken { address: address.to_owned(), source }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// Connects to the bus at `address` and gets a name.
    pub(in crate::bus) fn open(address: &str) -> Result<Connection, RecordError> {
        let no_bus = |source| RecordError::NoBus { address: address.to_owned(), source };
        let socket = socket::connect(address.as_bytes(), PATIENCE).map_err(no_bus)?;
        let mut socket = UnixStream::from(socket);
        socket.set_read_timeout(Some(PATIENCE)).map_err(no_bus)?;
        // Descriptors that come with messages are closed at once by plain reads.
        let greeting = [socket::LINES, socket::LAST_LINE].concat();
        socket.write_all(&greeting).map_err(no_bus)?;
        let buffer = socket::answered(&socket, Descriptors::Welcome, None);
        let buffer = buffer.map_err(|error| match error {
            GreetError::Lost(source) => no_bus(source),
            other => no_bus(io::Error::new(io::ErrorKind::PermissionDenied, other)),
        })?;
        let mut connection = Connection {
            socket,
            address: address.to_owned(),
            serial: 0,
            unique: String::new(),
            filled: buffer.len(),
            buffer,
            at: 0,
        };
        let hello = connection.call(&Draft::to_bus(0, "Hello"))?;
        connection.unique = first_text(&hello).unwrap_or_default().to_owned();
        Ok(connection)
    }

    /// Returns its unique name.
    pub(in crate::bus) fn unique(&self) -> &str {
        &self.unique
    }

    /// Returns the address that it was opened at.
    pub(in crate::bus) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a call with the next serial, and returns that.
    pub(in crate::bus) fn send(&mut self, draft: &Draft<'_>) -> Result<u32, RecordError> {
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        let bytes = Draft { serial: self.serial, ..*draft }.bytes();
        self.send_bytes(&bytes)?;
        Ok(self.serial)
    }

    /// Waits for the next message.
    pub(in crate::bus) fn next(&mut self) -> Result<Vec<u8>, RecordError> {
        self.receive().map(<[u8]>::to_vec)
    }

    /// Waits for the next message and returns it where it lies.
    pub(in crate::bus) fn receive(&mut self) -> Result<&[u8], RecordError> {
        let length = loop {
            if let Some(length) = self.whole()? {
                break length;
            }
            self.fill()?;
        };
        let begin = self.at;
        self.at += length;
        Ok(&self.buffer[begin..self.at])
    }

    /// Returns the length of the next message, if it is there as a whole.
    pub(in crate::bus) fn whole(&self) -> Result<Option<usize>, RecordError> {
        let waiting = &self.buffer[self.at..self.filled];
        match wire::length(waiting) {
            Ok(length) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                Ok((length <= waiting.len()).then_some(length))
            }
            Err(error) if error.fault == wire::Fault::Cut => Ok(None),
            Err(error) => {
                let source = io::Error::new(io::ErrorKind::InvalidData, error.to_string());
                Err(broken(&self.address, source))
            }
        }
    }

    /// Reads what has come, and waits for it.
    fn fill(&mut self) -> Result<(), RecordError> {
        self.buffer.copy_within(self.at..self.filled, 0);
        (self.at, self.filled) = (0, self.filled - self.at);
        if self.buffer.len() - self.filled < PIECE / 2 {
            self.buffer.resize((2 * self.buffer.len()).max(PIECE), 0);
        }
        match self.socket.read(&mut self.buffer[self.filled..]) {
            Ok(0) => Err(broken(&self.address, io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.filled += count;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(broken(&self.address, error)),
        }
    }

    /// Sends what is written already.
    pub(in crate::bus) fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        self.socket.write_all(bytes).map_err(|source| broken(&self.address, source))
    }

    /// Calls, and waits for the answer; what else comes meanwhile is left.
    pub(in crate::bus) fn call(&mut self, draft: &Draft<'_>) -> Result<Vec<u8>, RecordError> {
        let serial = self.send(draft)?;
        loop {
            let bytes = self.next()?;
            let Ok(header) = wire::message(&bytes) else { continue };
            if header.reply_serial.is_none_or(|to| to.get() != serial) {
                continue;
            }
            match header.kind {
                Kind::Error => {
                    return Err(RecordError::Refused {
                        address: self.address.clone(),
                        name: header.error_name.unwrap_or_default().to_owned(),
                        text: first_text(&bytes).unwrap_or_default().trim_end().to_owned(),
                    });
                }
                Kind::Return => return Ok(bytes),
                _ => {}
            }
        }
    }

    /// Waits for messages without an end from now on, and returns what ends that from another thread.
    pub(in crate::bus) fn wait_for_ever(&self) -> io::Result<UnixStream> {
        self.socket.set_read_timeout(None)?;
        self.socket.try_clone()
    }

    /// Asks in which process the bus runs; many say so.
    fn process_of_bus(&mut self) -> Option<u32> {
        let mut arguments = Marshal::new(Endian::Little);
        arguments.text("org.freedesktop.DBus");
        let arguments = arguments.bytes();
        let draft = Draft {
            signature: "s",
            body: &arguments,
            ..Draft::to_bus(0, "GetConnectionUnixProcessID")
        };
        let answer = self.call(&draft).ok()?;
        match body::values(&wire::message(&answer).ok()?).next()?.ok()? {
            body::Value::Uint32(process) => Some(process),
            _ => None,
        }
    }

    fn become_monitor(&mut self, rules: &[String]) -> Result<Way, RecordError> {
        let mut arguments = Marshal::new(Endian::Little);
        arguments.array(4, |texts| rules.iter().for_each(|rule| texts.text(rule)));
        arguments.u32(0);
        let arguments = arguments.bytes();
        let asked = self.call(&Draft {
            interface: "org.freedesktop.DBus.Monitoring",
            signature: "asu",
            body: &arguments,
            ..Draft::to_bus(0, "BecomeMonitor")
        });
        match asked {
            Ok(_) => Ok(Way::Monitor),
            // Buses from before monitors were thought of.
            Err(RecordError::Refused { name, .. })
                if name.starts_with("org.freedesktop.DBus.Error.Unknown") =>
            {
                self.eavesdrop(rules)?;
                Ok(Way::Eavesdrop)
            }
            Err(error) => Err(error),
        }
    }

    /// Asks for messages by rules that also see what is meant for others.
    pub(in crate::bus) fn eavesdrop(&mut self, rules: &[String]) -> Result<(), RecordError> {
        let kinds = ["signal", "method_call", "method_return", "error"];
        let all = kinds.map(|kind| format!("type='{kind}'"));
        let rules = if rules.is_empty() { &all[..] } else { rules };
        for rule in rules {
            let rule = if rule.contains("eavesdrop=") {
                rule.clone()
            } else {
                format!("eavesdrop='true',{rule}")
            };
            self.add_match(&rule)?;
        }
        Ok(())
    }

    /// Asks for messages by a rule.
    pub(in crate::bus) fn add_match(&mut self, rule: &str) -> Result<(), RecordError> {
        let mut arguments = Marshal::new(Endian::Little);
        arguments.text(rule);
        let arguments = arguments.bytes();
        let draft = Draft { signature: "s", body: &arguments, ..Draft::to_bus(0, "AddMatch") };
        self.call(&draft).map(|_| ())
    }
}

/// Returns the text that is a message's first value.
pub(super) fn first_text(bytes: &[u8]) -> Option<&str> {
    match body::values(&wire::message(bytes).ok()?).next()?.ok()? {
        body::Value::Text(text) => Some(text),
        _ => None,
    }
}
