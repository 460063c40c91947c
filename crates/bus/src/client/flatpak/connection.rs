//! A connection to the bus on a blocking socket: two round trips until a call is answered, no runtime and no thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sys::stream::{self, Empty};

use super::HostError;
use super::address;
use super::wire::{self, Call, Malformed, Writer};

/// Messages that are longer are skipped: nobody answers us with so much.
const LONGEST: usize = 1 << 20;
/// So much is taken from the socket at once.
const CHUNK: usize = 4096;
/// What the bus says before the first message is shorter.
const LONGEST_GREETING: usize = 4096;

/// How a bus is greeted, but for the last line.
const LINES: &[u8] = b"\0AUTH EXTERNAL\r\nDATA\r\nNEGOTIATE_UNIX_FD\r\n";
/// Messages follow.
const LAST_LINE: &[u8] = b"BEGIN\r\n";

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
}

impl Connection {
    /// Connects, asks for a name and to be told of what matches `rule`; the bus has not answered that yet.
    pub(super) fn open(
        address: &[u8],
        greeting: Greeting,
        rule: &str,
    ) -> Result<Connection, HostError> {
        let socket = address::connect(address).map_err(HostError::NoBus)?;
        let mut connection = Connection { socket, serial: 0, buffer: Vec::new(), at: 0, skip: 0 };
        let hello = connection.take_number();
        let calls = [
            call_of_bus(hello, "Hello", "").write(|_| ()),
            call_of_bus(connection.take_number(), "AddMatch", "s").write(|body| body.text(rule)),
        ]
        .concat();
        // Who we are, the bus asks the kernel: our own number may be another one where it runs (user namespaces).
        let (first, then) = match greeting {
            // Whoever woke up for the greeting need not be woken for these calls.
            Greeting::AtOnce => ([LINES, LAST_LINE, &calls].concat(), None),
            Greeting::StepByStep => (LINES.to_vec(), Some([LAST_LINE, &calls])),
        };
        stream::send(&connection.socket, &first, &[]).map_err(HostError::NoBus)?;
        connection.buffer = greeted(&connection.socket)?;
        for bytes in then.into_iter().flatten() {
            stream::send(&connection.socket, bytes, &[]).map_err(HostError::NoBus)?;
        }
        if greeting == Greeting::StepByStep {
            // Until it has read the last line of the greeting, it does not look for descriptors.
            while connection.next(|message| message.reply_to == hello)? != Some(true) {
                sys::socket::wait_readable(&connection, None).map_err(HostError::Lost)?;
            }
        }
        Ok(connection)
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
        stream::send(&self.socket, &call.write(body), descriptors).map_err(HostError::Lost)?;
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

/// Waits for the answers to the greeting, and returns what came behind them.
fn greeted(socket: &OwnedFd) -> Result<Vec<u8>, HostError> {
    let mut heard = Vec::new();
    loop {
        if let Some(after) = answers(&heard)? {
            return Ok(heard.split_off(after));
        }
        if heard.len() > LONGEST_GREETING {
            return Err(Malformed.into());
        }
        let held = heard.len();
        heard.resize(held + CHUNK, 0);
        let came = stream::receive(socket, &mut heard[held..], Empty::Wait);
        let came = came.map_err(HostError::NoBus)?;
        heard.truncate(held + came);
        if came == 0 {
            return Err(HostError::NoBus(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

/// Returns where the messages begin, once the bus has agreed to everything.
fn answers(heard: &[u8]) -> Result<Option<usize>, HostError> {
    let mut at = 0;
    for expected in [&b"DATA"[..], b"OK", b"AGREE_UNIX_FD"] {
        let rest = heard.get(at..).unwrap_or_default();
        let Some(length) = rest.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        let line = &rest[..length];
        if !line.starts_with(expected) {
            return Err(HostError::Rejected(String::from_utf8_lossy(line).into_owned()));
        }
        at += length + 2;
    }
    Ok(Some(at))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let connection =
            Connection { socket: ours.into(), serial: 0, buffer: Vec::new(), at: 0, skip: 0 };
        (connection, theirs)
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
    fn the_answers_are_told_from_what_follows() {
        let heard = b"DATA\r\nOK 12ab\r\nAGREE_UNIX_FD\r\nl\x02";
        assert!(matches!(answers(heard), Ok(Some(at)) if &heard[at..] == b"l\x02"));
        for cut in 0..heard.len() - 2 {
            assert!(matches!(answers(&heard[..cut]), Ok(None)));
        }
        let rejected = answers(b"DATA\r\nREJECTED EXTERNAL\r\n").unwrap_err();
        assert!(matches!(rejected, HostError::Rejected(text) if text == "REJECTED EXTERNAL"));
        assert!(matches!(answers(b"DATA\r\nOK 1\r\nERROR\r\n"), Err(HostError::Rejected(_))));
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
