//! A connection to a bus on a plain socket: a few calls, then a monitor whose bytes are not decoded here.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use wire::socket::{self, Descriptors, GreetError, MessageBuffer};

use super::RecordError;
use wire::write::{Draft, Marshal};
use wire::{self, Endian, MessageType, WireError, body};

/// The time limit for the answer of a bus.
const PATIENCE: Duration = Duration::from_secs(25);
/// The time limit of each step for who only asks whether a bus is there.
const BRIEF: Duration = Duration::from_millis(500);
/// The least number of bytes for which a read has room.
const PIECE: usize = 1 << 16;

/// A connection that calls the bus itself.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: UnixStream,
    address: String,
    serial: u32,
    unique: String,
    messages: MessageBuffer,
}

/// How the bus passes messages to the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMethod {
    /// The bus sends everything to a monitor.
    Monitor,
    /// An older bus sends the messages that match rules with `eavesdrop`.
    Eavesdrop,
    /// Another program passes the messages on.
    Stream,
}

/// A bus's traffic: a descriptor from which messages come.
#[derive(Debug)]
pub struct BusMonitor {
    pub(super) descriptor: OwnedFd,
    /// Bytes that arrived together with the answer to `BecomeMonitor`.
    pub(super) begun: Vec<u8>,
    pub(super) way: CaptureMethod,
    /// The process of the bus, if it is known.
    pub(super) bus_process: Option<u32>,
}

/// Returns whether there is a bus at `address` now, be it one that refuses another connection, or that does not answer in
/// half a second.
#[must_use]
pub fn is_bus_at(address: &str) -> bool {
    match Connection::open_within(address, BRIEF) {
        Ok(_) | Err(RecordError::Refused { .. }) => true,
        Err(RecordError::NoBus { source, .. } | RecordError::Broken { source, .. }) => {
            matches!(source.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
        }
        Err(_) => false,
    }
}

impl BusMonitor {
    /// Begins to monitor the bus at an address. Without rules it receives all messages.
    ///
    /// # Errors
    ///
    /// There is no bus, or it refuses; the connection is closed.
    pub fn attach(address: &str, rules: &[String]) -> Result<BusMonitor, RecordError> {
        let mut connection = Connection::open(address)?;
        let bus_process = connection.process_of_bus();
        let way = connection.become_monitor(rules)?;
        let Connection { socket, messages, .. } = connection;
        socket.set_read_timeout(None).map_err(|source| broken(address, source))?;
        Ok(BusMonitor { descriptor: socket.into(), begun: messages.rest(), way, bus_process })
    }

    /// Reads the messages that another program passes on through a stream.
    #[must_use]
    pub fn stream(descriptor: OwnedFd) -> BusMonitor {
        BusMonitor { descriptor, begun: Vec::new(), way: CaptureMethod::Stream, bus_process: None }
    }

    /// Returns how the bus passes messages to the recorder.
    #[must_use]
    pub fn way(&self) -> CaptureMethod {
        self.way
    }

    /// Passes the monitor to the process at the other end of a message socket.
    ///
    /// # Errors
    ///
    /// As [`sys::socket::send`].
    pub fn pass(self, socket: &OwnedFd) -> io::Result<()> {
        let way = if self.way == CaptureMethod::Eavesdrop { b'e' } else { b'm' };
        let mut message = vec![way];
        message.extend(self.bus_process.unwrap_or(0).to_le_bytes());
        message.extend(&self.begun);
        sys::socket::send(socket, &message, Some(self.descriptor.as_fd()), sys::socket::Full::Wait)
    }

    /// Receives a monitor that another process passes; `None` if it ends without passing one.
    ///
    /// # Errors
    ///
    /// As [`sys::socket::receive`].
    pub fn receive(socket: &OwnedFd) -> io::Result<Option<BusMonitor>> {
        sys::socket::wait_readable(socket, None)?;
        let mut buffer = vec![0; 1 << 18];
        let received = sys::socket::receive(socket, &mut buffer)?;
        let Some(descriptor) = received.descriptor else { return Ok(None) };
        buffer.truncate(received.length);
        let Some((way, rest)) = buffer.split_first() else { return Ok(None) };
        let Some((process, begun)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let way = if *way == b'e' { CaptureMethod::Eavesdrop } else { CaptureMethod::Monitor };
        let bus_process = Some(u32::from_le_bytes(*process)).filter(|process| *process != 0);
        Ok(Some(BusMonitor { descriptor, begun: begun.to_vec(), way, bus_process }))
    }
}

fn broken(address: &str, source: io::Error) -> RecordError {
    // A broken pipe would look as if the reader of this program's output had ended.
    let is_pipe = source.kind() == io::ErrorKind::BrokenPipe;
    let source = if is_pipe { io::ErrorKind::ConnectionReset.into() } else { source };
    RecordError::Broken { address: address.to_owned(), source }
}

fn no_message(address: &str, error: WireError) -> RecordError {
    broken(address, io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// Connects to the bus at `address` and receives a unique name.
    pub(crate) fn open(address: &str) -> Result<Connection, RecordError> {
        Connection::open_within(address, PATIENCE)
    }

    /// Does so with a time limit for each step, and for each later answer.
    fn open_within(address: &str, limit: Duration) -> Result<Connection, RecordError> {
        let no_bus = |source| RecordError::NoBus { address: address.to_owned(), source };
        let socket = socket::connect(address.as_bytes(), limit).map_err(no_bus)?;
        let mut socket = UnixStream::from(socket);
        socket.set_read_timeout(Some(limit)).map_err(no_bus)?;
        // A plain `read` closes the descriptors that come with messages.
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
            messages: MessageBuffer::new(buffer, usize::MAX),
        };
        let hello = connection.call(&Draft::to_bus(0, "Hello"))?;
        connection.unique = first_text(&hello).unwrap_or_default().to_owned();
        Ok(connection)
    }

    /// Returns its unique name.
    pub(crate) fn unique(&self) -> &str {
        &self.unique
    }

    /// Returns the address of the bus.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a call with the next serial, and returns the serial.
    pub(crate) fn send(&mut self, draft: &Draft<'_>) -> Result<u32, RecordError> {
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        let bytes = Draft { serial: self.serial, ..*draft }.bytes();
        self.send_bytes(&bytes)?;
        Ok(self.serial)
    }

    /// Waits for the next message.
    pub(crate) fn next(&mut self) -> Result<Vec<u8>, RecordError> {
        self.receive().map(<[u8]>::to_vec)
    }

    /// Waits for the next message and returns it in the receive buffer.
    pub(crate) fn receive(&mut self) -> Result<&[u8], RecordError> {
        while self.whole()?.is_none() {
            self.fill()?;
        }
        let taken = self.messages.take().map_err(|error| no_message(&self.address, error))?;
        Ok(taken.unwrap_or_default())
    }

    /// Returns the length of the next message, if it has arrived completely.
    pub(crate) fn whole(&mut self) -> Result<Option<usize>, RecordError> {
        self.messages.whole().map_err(|error| no_message(&self.address, error))
    }

    /// Waits until bytes arrive, and reads them.
    fn fill(&mut self) -> Result<(), RecordError> {
        match self.socket.read(self.messages.room(PIECE / 2)) {
            Ok(0) => Err(broken(&self.address, io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.messages.fill(count);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(broken(&self.address, error)),
        }
    }

    /// Sends bytes that are marshalled already.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        self.socket.write_all(bytes).map_err(|source| broken(&self.address, source))
    }

    /// Calls a method and waits for the answer. Other messages that arrive meanwhile are dropped.
    pub(crate) fn call(&mut self, draft: &Draft<'_>) -> Result<Vec<u8>, RecordError> {
        let serial = self.send(draft)?;
        loop {
            let bytes = self.next()?;
            let Ok(header) = wire::message(&bytes) else { continue };
            if header.reply_serial.is_none_or(|to| to.get() != serial) {
                continue;
            }
            match header.kind {
                MessageType::Error => {
                    return Err(RecordError::Refused {
                        address: self.address.clone(),
                        name: header.error_name.unwrap_or_default().to_owned(),
                        text: first_text(&bytes).unwrap_or_default().trim_end().to_owned(),
                    });
                }
                MessageType::Return => return Ok(bytes),
                _ => {}
            }
        }
    }

    /// Removes the time limit of reading, and returns a handle by which another thread ends the wait.
    pub(crate) fn wait_for_ever(&self) -> io::Result<UnixStream> {
        self.socket.set_read_timeout(None)?;
        self.socket.try_clone()
    }

    /// Requests the process of the bus, which many buses report.
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
            body::BodyValue::Uint32(process) => Some(process),
            _ => None,
        }
    }

    fn become_monitor(&mut self, rules: &[String]) -> Result<CaptureMethod, RecordError> {
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
            Ok(_) => Ok(CaptureMethod::Monitor),
            // Buses that are older than `BecomeMonitor`.
            Err(RecordError::Refused { name, .. })
                if name.starts_with("org.freedesktop.DBus.Error.Unknown") =>
            {
                self.eavesdrop(rules)?;
                Ok(CaptureMethod::Eavesdrop)
            }
            Err(error) => Err(error),
        }
    }

    /// Adds match rules that include messages for other connections.
    pub(crate) fn eavesdrop(&mut self, rules: &[String]) -> Result<(), RecordError> {
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

    /// Adds a match rule.
    pub(crate) fn add_match(&mut self, rule: &str) -> Result<(), RecordError> {
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
        body::BodyValue::Text(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_bus_that_accepts_and_says_nothing_is_there_and_one_that_ended_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let address = format!("unix:path={}", path.display());
        let silent = UnixListener::bind(&path).unwrap();
        assert!(is_bus_at(&address));
        drop(silent);
        assert!(!is_bus_at(&address));
        std::fs::remove_file(&path).unwrap();
        assert!(!is_bus_at(&address));
    }
}
