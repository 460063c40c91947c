//! A connection to the bus on a blocking socket: two round trips until a call is answered, no runtime and no thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sys::stream::{self, Empty};
use wire::socket::{self, Deadline, Descriptors, GreetError, LAST_LINE, LINES, MessageBuffer};
use wire::write::{Draft, Marshal};
use wire::{Endian, Header, WireError};

use super::HostError;

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
    messages: MessageBuffer,
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
        let mut body = Marshal::new(Endian::Little);
        body.text(rule);
        let added = Draft::to_bus(connection.take_number(), "AddMatch");
        let added = Draft { signature: "s", body: &body.bytes(), ..added }.bytes();
        let calls = [Draft::to_bus(hello, "Hello").bytes(), added].concat();
        let (first, then) = match greeting {
            // Whoever woke up for the greeting need not be woken for these calls.
            Greeting::AtOnce => ([LINES, LAST_LINE, &calls].concat(), None),
            Greeting::StepByStep => (LINES.to_vec(), Some([LAST_LINE, &calls])),
        };
        stream::send(&connection.socket, &first, &[]).map_err(broken)?;
        let answered = socket::answered(&connection.socket, Descriptors::Needed, Some(deadline));
        let begun = answered.map_err(|error| match error {
            GreetError::Lost(source) => broken(source),
            GreetError::Rejected(text) => HostError::Rejected(text),
        })?;
        connection.messages = MessageBuffer::new(begun, LONGEST);
        for bytes in then.into_iter().flatten() {
            stream::send(&connection.socket, bytes, &[]).map_err(broken)?;
        }
        if greeting == Greeting::StepByStep {
            // Until it has read the last line of the greeting, it does not look for descriptors.
            connection.answer(hello, deadline, |_| ()).map_err(|error| match error {
                HostError::Lost(source) => broken(source),
                error => error,
            })?;
        }
        Ok(connection)
    }

    fn over(socket: OwnedFd) -> Connection {
        let messages = MessageBuffer::new(Vec::new(), LONGEST);
        Connection { socket, serial: 0, messages, heard: false }
    }

    /// Waits for the answer to a call and gives it to `read`; other messages are skipped.
    pub(super) fn answer<T>(
        &mut self,
        serial: u32,
        deadline: &Deadline<'_>,
        read: impl Fn(&Header<'_>) -> T,
    ) -> Result<T, HostError> {
        loop {
            let answer =
                self.next(|message| super::answers(message, serial).then(|| read(message)))?;
            match answer {
                Some(Some(answer)) => return Ok(answer),
                Some(None) => (),
                None => {
                    let left = deadline.remaining().map_err(HostError::Lost)?;
                    sys::socket::wait_readable(&self.socket, Some(left))
                        .map_err(HostError::Lost)?;
                }
            }
        }
    }

    /// Says whether the bus has sent any message.
    pub(super) fn has_heard(&self) -> bool {
        self.heard
    }

    /// Sends a call with a text to the bus itself and returns its serial number.
    pub(super) fn call_bus(&mut self, member: &str, text: &str) -> Result<u32, HostError> {
        let call = Draft { signature: "s", ..Draft::to_bus(0, member) };
        self.send(&call, &[], |body| body.text(text))
    }

    fn take_number(&mut self) -> u32 {
        // Nobody makes so many calls in a life; 0 is no number of a message.
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        self.serial
    }

    /// Sends a call with descriptors and returns its serial number.
    pub(super) fn send(
        &mut self,
        call: &Draft<'_>,
        descriptors: &[BorrowedFd<'_>],
        body: impl FnOnce(&mut Marshal),
    ) -> Result<u32, HostError> {
        let mut arguments = Marshal::new(Endian::Little);
        body(&mut arguments);
        let arguments = arguments.bytes();
        let serial = self.take_number();
        let unix_fds = u32::try_from(descriptors.len()).unwrap_or(u32::MAX);
        let bytes = Draft { serial, unix_fds, body: &arguments, ..*call }.bytes();
        // Descriptors go with the first byte of their own message: brokers do not agree on less.
        stream::send(&self.socket, &bytes, descriptors)
            .map_err(|error| HostError::Lost(reset(error)))?;
        Ok(serial)
    }

    /// Gives the next message that has come to `read`; `None` if none has come whole.
    pub(super) fn next<T>(
        &mut self,
        read: impl FnOnce(&Header<'_>) -> T,
    ) -> Result<Option<T>, HostError> {
        while self.messages.whole()?.is_none() {
            if !self.fill()? {
                return Ok(None);
            }
        }
        let Some(bytes) = self.messages.take()? else { return Ok(None) };
        let message = wire::message(bytes)?;
        self.heard = true;
        Ok(Some(read(&message)))
    }

    /// Takes what has come; says whether anything has.
    fn fill(&mut self) -> Result<bool, HostError> {
        match stream::receive(&self.socket, self.messages.room(CHUNK), Empty::Fail) {
            Ok(0) => Err(HostError::Lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.messages.fill(count);
                Ok(true)
            }
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

impl From<WireError> for HostError {
    fn from(error: WireError) -> HostError {
        let text = format!("the bus sent bytes that are no message: {error}");
        HostError::Lost(io::Error::new(io::ErrorKind::InvalidData, text))
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
        let mut body = Marshal::new(Endian::Little);
        body.text(&"x".repeat(length));
        Draft { signature: "s", body: &body.bytes(), ..Draft::to_bus(1, "M") }.bytes()
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
            match connection.next(|message| crate::client::first_text(message).len()) {
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
