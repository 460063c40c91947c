//! A client that writes its calls byte by byte, for what a library would not write.
#![allow(dead_code, unreachable_pub, reason = "each test uses the part it needs")]
#![allow(clippy::unwrap_used, reason = "the tests are other programs")]

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::raw::{INTERFACE, PATH, PATIENCE, Wanted};

/// Values one behind the other, as D-Bus lays them out.
#[derive(Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    pub fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    pub fn number(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(u32::try_from(bytes.len()).unwrap());
        self.0.extend(bytes);
    }

    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.0.push(0);
    }

    /// An array of elements with this alignment.
    pub fn array(&mut self, alignment: usize, fill: impl FnOnce(&mut Bytes)) {
        self.number(0);
        let length_at = self.0.len() - 4;
        self.align(alignment);
        let start = self.0.len();
        fill(self);
        let length = u32::try_from(self.0.len() - start).unwrap();
        self.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// A field of a header.
    pub fn field(&mut self, code: u8, kind: &str, write: impl FnOnce(&mut Bytes)) {
        self.align(8);
        self.0.extend([code, 1, kind.as_bytes()[0], 0]);
        write(self);
    }
}

/// The body of a `HostCommand` whose descriptors have these handles, whether they make sense or not.
pub fn command(wanted: &Wanted<'_>, handles: &[(u32, u32)]) -> Vec<u8> {
    let mut body = Bytes::default();
    body.bytes(wanted.directory);
    body.array(4, |body| wanted.words.iter().for_each(|word| body.bytes(word)));
    body.array(8, |body| {
        for (target, handle) in handles {
            body.align(8);
            body.number(*target);
            body.number(*handle);
        }
    });
    body.array(8, |_| {});
    body.number(wanted.flags);
    body.0
}

/// A connection.
pub struct Wire {
    stream: UnixStream,
    serial: u32,
}

/// What came back: the body, or the name of the error.
pub type Answer = Result<Vec<u8>, String>;

impl Wire {
    pub fn connect(address: &str) -> Wire {
        let path = address.split_once("path=").unwrap().1.split(',').next().unwrap();
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let uid = rustix::process::geteuid().as_raw().to_string();
        let hex: String = uid.bytes().map(|byte| format!("{byte:02x}")).collect();
        write!(stream, "\0AUTH EXTERNAL {hex}\r\nNEGOTIATE_UNIX_FD\r\n").unwrap();
        let mut lines = 0;
        let mut byte = [0];
        while lines < 2 {
            stream.read_exact(&mut byte).unwrap();
            lines += usize::from(byte[0] == b'\n');
        }
        stream.write_all(b"BEGIN\r\n").unwrap();
        Wire::over(stream)
    }

    /// Goes on with a connection that the bus was greeted on.
    pub fn over(stream: UnixStream) -> Wire {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut wire = Wire { stream, serial: 0 };
        let bus = "org.freedesktop.DBus";
        wire.send(bus, "/org/freedesktop/DBus", bus, "Hello", "", &[], &[]).unwrap().unwrap();
        wire
    }

    /// Calls a method of the service.
    pub fn call(
        &mut self,
        method: &str,
        signature: &str,
        body: &[u8],
        passed: &[BorrowedFd<'_>],
    ) -> io::Result<Answer> {
        self.send("org.freedesktop.Flatpak", PATH, INTERFACE, method, signature, body, passed)
    }

    /// Calls a method of the service and does not wait for the answer.
    pub fn post(
        &mut self,
        method: &str,
        signature: &str,
        body: &[u8],
        passed: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.write("org.freedesktop.Flatpak", PATH, INTERFACE, method, signature, body, passed)
    }

    /// Takes the next answer to a call, whichever that was.
    pub fn answer(&mut self) -> io::Result<Answer> {
        loop {
            match self.receive()? {
                (2, _, _, body) => return Ok(Ok(body)),
                (3, _, error, _) => return Ok(Err(error)),
                _ => {}
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a call has as many parts")]
    pub fn send(
        &mut self,
        destination: &str,
        path: &str,
        interface: &str,
        method: &str,
        signature: &str,
        body: &[u8],
        passed: &[BorrowedFd<'_>],
    ) -> io::Result<Answer> {
        self.write(destination, path, interface, method, signature, body, passed)?;
        loop {
            let (kind, serial, error, body) = self.receive()?;
            match kind {
                2 if serial == self.serial => return Ok(Ok(body)),
                3 if serial == self.serial => return Ok(Err(error)),
                _ => {}
            }
        }
    }

    /// Calls a method and does not wait for the answer.
    #[expect(clippy::too_many_arguments, reason = "a call has as many parts")]
    pub fn write(
        &mut self,
        destination: &str,
        path: &str,
        interface: &str,
        method: &str,
        signature: &str,
        body: &[u8],
        passed: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.serial += 1;
        let mut message = Bytes(vec![b'l', 1, 0, 1]);
        message.number(u32::try_from(body.len()).unwrap());
        message.number(self.serial);
        message.array(8, |fields| {
            fields.field(1, "o", |field| field.text(path));
            fields.field(2, "s", |field| field.text(interface));
            fields.field(3, "s", |field| field.text(method));
            fields.field(6, "s", |field| field.text(destination));
            if !signature.is_empty() {
                fields.field(8, "g", |field| {
                    field.0.push(u8::try_from(signature.len()).unwrap());
                    field.0.extend(signature.as_bytes());
                    field.0.push(0);
                });
            }
            if !passed.is_empty() {
                let count = u32::try_from(passed.len()).unwrap();
                fields.field(9, "u", |field| field.number(count));
            }
        });
        message.align(8);
        message.0.extend(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !passed.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(passed)));
        }
        let parts = [IoSlice::new(&message.0)];
        let sent = sendmsg(&self.stream, &parts, &mut control, SendFlags::NOSIGNAL)?;
        self.stream.write_all(&message.0[sent..])
    }

    /// Takes a message: its type, what it answers, the name of its error, its body.
    fn receive(&mut self) -> io::Result<(u8, u32, String, Vec<u8>)> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
        let mut fields = vec![0; number(12).next_multiple_of(8)];
        self.stream.read_exact(&mut fields)?;
        let mut body = vec![0; number(4)];
        self.stream.read_exact(&mut body)?;
        let (mut at, mut serial, mut error) = (0, 0, String::new());
        while at + 8 <= number(12) {
            let (code, kind) = (fields[at], fields[at + 2]);
            at += 4;
            let value = u32::from_le_bytes(fields[at..at + 4].try_into().unwrap());
            let length = match kind {
                b'u' => 4,
                b'g' => usize::from(fields[at]) + 2,
                _ => value as usize + 5,
            };
            match code {
                4 => error = String::from_utf8_lossy(&fields[at + 4..at + length - 1]).into_owned(),
                5 => serial = value,
                _ => {}
            }
            at = (at + length).next_multiple_of(8);
        }
        Ok((head[1], serial, error, body))
    }
}
