//! A connection to the bus on a blocking socket: two round trips until a call is answered, no runtime and no thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sys::stream::{self, Empty};

use super::HostError;
use super::wire::{self, Call, Malformed, Writer};
use crate::client::socket::{self, Deadline, Descriptors, GreetError, LAST_LINE, LINES};

/// Messages that are longer are skipped: nobody answers us with so much.
const LONGEST: usize = 1 << 20;
/// So much is taken from the socket at once.
const CHUNK: usize = 4096;

/// The bus itself.
pub(super) const BUS: &str = "org.freedesktop.DBus";

/// How a bus is greeted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// All lines together and the first calls behind them, as the reference implementation takes them.
    AtOnce,
    /// A line that begins the messages only when all others are answered: xdg-dbus-proxy, the bus of a sandbox, takes the
    /// answers for messages otherwise. One round trip more.
    StepByStep,
}

/// A connection to the bus.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    serial: u32,
    buffer: Vec<u8>,
    /// Where the next message begins in the buffer.
    at: usize,
    /// How much of a message that is too long is still to come.
    skip: usize,
    /// Whether any message has come.
    heard: bool,
}

impl Connection {
    /// Connects, asks for a name and to be told of what matches `rule`; the bus has not answered that yet.
    pub(super) fn open(
        address: &[u8],
        greeting: Greeting,
        rule: &str,
        deadline: &Deadline<'_>,
    ) -> Result<Connection, HostError> {
        let broken = |error: io::Error| not_greeted(error, deadline);
        let left = deadline.remaining().map_err(broken)?;
        let socket = socket::connect(address, left).map_err(|error| match error.kind() {
            // Nobody listens there, or it is no address for us.
            io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Unsupported => HostError::NoBus(error),
            io::ErrorKind::TimedOut => broken(error),
            _ => HostError::Unreachable(error),
        })?;
        let mut connection = Connection::over(socket);
        let hello = connection.take_number();
        let calls = [
            call_of_bus(hello, "Hello", "").write(|_| ()),
            call_of_bus(connection.take_number(), "AddMatch", "s").write(|body| body.text(rule)),
        ]
        .concat();
        let (first, then) = match greeting {
            // Whoever woke up for the greeting need not be woken for these calls.
            Greeting::AtOnce => ([LINES, LAST_LINE, &calls].concat(), None),
            Greeting::StepByStep => (LINES.to_vec(), Some([LAST_LINE, &calls])),
        };
        stream::send(&connection.socket, &first, &[]).map_err(broken)?;
        let answered = socket::answered(&connection.socket, Descriptors::Needed, Some(deadline));
        connection.buffer = answered.map_err(|error| match error {
            GreetError::Lost(source) => broken(source),
            GreetError::Rejected(text) => HostError::Rejected(text),
        })?;
        for bytes in then.into_iter().flatten() {
            stream::send(&connection.socket, bytes, &[]).map_err(broken)?;
        }
        if greeting == Greeting::StepByStep {
            // Until it has read the last line of the greeting, it does not look for descriptors.
            connection.wait_for(hello, deadline).map_err(|error| match error {
                HostError::Lost(source) => broken(source),
                error => error,
            })?;
        }
        Ok(connection)
    }

    fn over(socket: OwnedFd) -> Connection {
        Connection { socket, serial: 0, buffer: Vec::new(), at: 0, skip: 0, heard: false }
    }

    /// Waits for the answer to a call.
    fn wait_for(&mut self, serial: u32, deadline: &Deadline<'_>) -> Result<(), HostError> {
        while self.next(|message| message.reply_to == serial)? != Some(true) {
            let left = deadline.remaining().map_err(HostError::Lost)?;
            sys::socket::wait_readable(&self.socket, Some(left)).map_err(HostError::Lost)?;
        }
        Ok(())
    }

    /// Says whether the bus has sent any message.
    pub(super) fn has_heard(&self) -> bool {
        self.heard
    }

    /// Sends a call to the bus itself and returns its serial number.
    pub(super) fn call_bus(
        &mut self,
        member: &str,
        signature: &str,
        body: impl FnOnce(&mut Writer),
    ) -> Result<u32, HostError> {
        self.send(call_of_bus(0, member, signature), &[], body)
    }

    fn take_number(&mut self) -> u32 {
        // Nobody makes so many calls in a life; 0 is no number of a message.
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        self.serial
    }

    /// Sends a call with descriptors and returns its serial number.
    pub(super) fn send(
        &mut self,
        mut call: Call<'_>,
        descriptors: &[BorrowedFd<'_>],
        body: impl FnOnce(&mut Writer),
    ) -> Result<u32, HostError> {
        call.serial = self.take_number();
        call.descriptors = u32::try_from(descriptors.len()).unwrap_or(u32::MAX);
        // Descriptors go with the first byte of their own message: brokers do not agree on less.
        stream::send(&self.socket, &call.write(body), descriptors)
            .map_err(|error| HostError::Lost(reset(error)))?;
        Ok(self.serial)
    }

    /// Gives the next message that has come to `read`; `None` if none has come whole.
    pub(super) fn next<T>(
        &mut self,
        read: impl FnOnce(&wire::Message<'_>) -> T,
    ) -> Result<Option<T>, HostError> {
        loop {
            let skipped = self.skip.min(self.buffer.len() - self.at);
            self.at += skipped;
            self.skip -= skipped;
            let waiting = self.buffer.get(self.at..).unwrap_or_default();
            match wire::whole_length(waiting)? {
                Some(whole) if whole > LONGEST => {
                    self.skip = whole;
                    continue;
                }
                Some(whole) if whole <= waiting.len() => {
                    let message = wire::parse(&waiting[..whole])?;
                    self.heard = true;
                    let result = read(&message);
                    self.at += whole;
                    return Ok(Some(result));
                }
                _ => (),
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Takes what has come; says whether anything has.
    fn fill(&mut self) -> Result<bool, HostError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let held = self.buffer.len();
        self.buffer.resize(held + CHUNK, 0);
        let came = stream::receive(&self.socket, &mut self.buffer[held..], Empty::Fail);
        self.buffer.truncate(held + came.as_ref().map_or(0, |count| *count));
        match came {
            Ok(0) => Err(HostError::Lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(HostError::Lost(error)),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<Malformed> for HostError {
    fn from(_: Malformed) -> HostError {
        HostError::Lost(io::Error::new(io::ErrorKind::InvalidData, Malformed.to_string()))
    }
}

/// What it means that the greeting was broken off: nothing was asked for.
fn not_greeted(error: io::Error, deadline: &Deadline<'_>) -> HostError {
    match error.kind() {
        io::ErrorKind::TimedOut => HostError::Silent { limit: deadline.limit() },
        _ => HostError::NotGreeted(reset(error)),
    }
}

/// A bus that is gone when we write: to programs a broken pipe is a reader of theirs that wants no more, which is no error.
fn reset(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::ErrorKind::ConnectionReset.into(),
        _ => error,
    }
}

/// A call to the bus itself.
fn call_of_bus<'a>(serial: u32, member: &'a str, signature: &'a str) -> Call<'a> {
    Call {
        serial,
        destination: BUS,
        path: "/org/freedesktop/DBus",
        interface: BUS,
        member,
        signature,
        descriptors: 0,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Connection::over(ours.into()), theirs)
    }

    /// A message with a text of `length` letters.
    fn message(length: usize) -> Vec<u8> {
        let call = Call {
            serial: 1,
            destination: "a.b",
            path: "/",
            interface: "a.b",
            member: "M",
            signature: "s",
            descriptors: 0,
        };
        call.write(|writer| writer.text(&"x".repeat(length)))
    }

    #[test]
    fn messages_come_in_any_pieces_and_long_ones_are_skipped() {
        let (mut connection, theirs) = pair();
        let long = message(2 << 20);
        let bytes = [message(3), long, message(5000), message(7)].concat();
        let writer = std::thread::spawn(move || {
            // The lengths of the pieces have no common measure with those of the messages.
            for piece in bytes.chunks(4091) {
                std::io::Write::write_all(&mut &theirs, piece).unwrap();
            }
        });
        let mut lengths = Vec::new();
        let ended = loop {
            match connection.next(|message| message.first_text().unwrap().len()) {
                Ok(Some(length)) => lengths.push(length),
                Ok(None) => {
                    sys::socket::wait_readable(&connection, None).unwrap();
                }
                Err(error) => break error,
            }
        };
        writer.join().unwrap();
        assert_eq!(lengths, [3, 5000, 7]);
        assert!(matches!(ended, HostError::Lost(_)));
    }

    #[test]
    fn bytes_that_are_no_message_end_the_connection() {
        let (mut connection, theirs) = pair();
        std::io::Write::write_all(&mut &theirs, &[0xff; 64]).unwrap();
        assert!(matches!(connection.next(|_| ()), Err(HostError::Lost(_))));
    }
}
