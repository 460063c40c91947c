//! A connection to a bus that writes what a library would not write, and can serve.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::host_service::wire::Bytes;

pub const CALL: u8 = 1;
pub const RETURN: u8 = 2;
pub const ERROR: u8 = 3;
const BUS: &str = "org.freedesktop.DBus";

/// Whether a call wants an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Wanted,
    Unwanted,
}

/// Whom a call is for.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    pub path: String,
    pub interface: String,
    pub member: String,
}

impl Target {
    pub fn new(name: &str, path: &str, interface: &str, member: &str) -> Target {
        let [name, path, interface, member] = [name, path, interface, member].map(str::to_owned);
        Target { name, path, interface, member }
    }

    pub fn of_bus(member: &str) -> Target {
        Target::new(BUS, "/org/freedesktop/DBus", BUS, member)
    }
}

/// A message that came.
#[derive(Debug, Default)]
pub struct Message {
    pub kind: u8,
    pub serial: u32,
    pub reply_serial: u32,
    pub error: String,
    pub sender: String,
    pub member: String,
    pub signature: String,
    pub body: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

impl Message {
    /// The text that a body begins with.
    pub fn text(&self) -> String {
        let length =
            self.body.first_chunk::<4>().map_or(0, |chunk| u32::from_le_bytes(*chunk) as usize);
        String::from_utf8_lossy(self.body.get(4..4 + length).unwrap_or_default()).into_owned()
    }
}

/// A connection.
pub struct Wire {
    stream: UnixStream,
    serial: u32,
}

impl Wire {
    /// Connects to a socket of a bus, or of its proxy.
    pub fn connect(address: &str, patience: Duration) -> io::Result<Wire> {
        let path = address.split_once("path=").map_or(address, |(_, path)| path);
        let mut stream = UnixStream::connect(path.split(',').next().unwrap())?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let uid = rustix::process::geteuid().as_raw().to_string();
        let hex: String = uid.bytes().map(|byte| format!("{byte:02x}")).collect();
        // Line by line: the proxy takes what follows a line for messages.
        for line in [format!("\0AUTH EXTERNAL {hex}\r\n"), "NEGOTIATE_UNIX_FD\r\n".to_owned()] {
            stream.write_all(line.as_bytes())?;
            let mut byte = [0];
            while byte[0] != b'\n' {
                stream.read_exact(&mut byte)?;
            }
        }
        stream.write_all(b"BEGIN\r\n")?;
        let mut wire = Wire { stream, serial: 0 };
        wire.call(&Target::of_bus("Hello"), "", &[])?;
        Ok(wire)
    }

    /// Calls a method and waits for its answer.
    pub fn call(&mut self, target: &Target, signature: &str, body: &[u8]) -> io::Result<Message> {
        let serial = self.send(target, signature, body, &[], Reply::Wanted)?;
        loop {
            let message = self.receive()?;
            if message.reply_serial == serial && matches!(message.kind, RETURN | ERROR) {
                return Ok(message);
            }
        }
    }

    /// Sends a call and returns its number.
    pub fn send(
        &mut self,
        target: &Target,
        signature: &str,
        body: &[u8],
        passed: &[BorrowedFd<'_>],
        reply: Reply,
    ) -> io::Result<u32> {
        self.serial += 1;
        let mut message = Bytes(vec![b'l', CALL, u8::from(reply == Reply::Unwanted), 1]);
        message.number(u32::try_from(body.len()).unwrap());
        message.number(self.serial);
        message.array(8, |fields| {
            fields.field(1, "o", |field| field.text(&target.path));
            if !target.interface.is_empty() {
                fields.field(2, "s", |field| field.text(&target.interface));
            }
            fields.field(3, "s", |field| field.text(&target.member));
            fields.field(6, "s", |field| field.text(&target.name));
            signature_and_descriptors(fields, signature, passed.len());
        });
        self.write(message, body, passed)?;
        Ok(self.serial)
    }

    /// Answers a call with a text.
    pub fn answer(&mut self, call: &Message, text: &str) -> io::Result<()> {
        self.serial += 1;
        let mut body = Bytes::default();
        body.text(text);
        let mut message = Bytes(vec![b'l', RETURN, 1, 1]);
        message.number(u32::try_from(body.0.len()).unwrap());
        message.number(self.serial);
        message.array(8, |fields| {
            fields.field(5, "u", |field| field.number(call.serial));
            fields.field(6, "s", |field| field.text(&call.sender));
            signature_and_descriptors(fields, "s", 0);
        });
        self.write(message, &body.0, &[])
    }

    fn write(
        &mut self,
        mut message: Bytes,
        body: &[u8],
        passed: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
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

    /// Takes the next message.
    pub fn receive(&mut self) -> io::Result<Message> {
        let mut head = [0; 16];
        let descriptors = self.read(&mut head)?;
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let fields_length = number(12) as usize;
        let mut fields = vec![0; fields_length.next_multiple_of(8)];
        self.stream.read_exact(&mut fields)?;
        let mut body = vec![0; number(4) as usize];
        self.stream.read_exact(&mut body)?;
        let mut message =
            Message { kind: head[1], serial: number(8), body, descriptors, ..Message::default() };
        let mut at = 0;
        while at + 8 <= fields_length {
            let (code, kind) = (fields[at], fields[at + 2]);
            at += 4;
            let value = u32::from_le_bytes(fields[at..at + 4].try_into().unwrap());
            let (start, length) = match kind {
                b'u' => (at, 4),
                b'g' => (at + 1, usize::from(fields[at])),
                _ => (at + 4, value as usize),
            };
            let text = || String::from_utf8_lossy(&fields[start..start + length]).into_owned();
            match code {
                3 => message.member = text(),
                4 => message.error = text(),
                5 => message.reply_serial = value,
                7 => message.sender = text(),
                8 => message.signature = text(),
                _ => {}
            }
            let end = if kind == b'u' { at + 4 } else { start + length + 1 };
            at = end.next_multiple_of(8);
        }
        Ok(message)
    }

    /// Fills a buffer, and takes the descriptors that come with its first byte.
    fn read(&mut self, into: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [io::IoSliceMut::new(into)];
        let got = recvmsg(self.stream.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                descriptors.extend(passed);
            }
        }
        self.stream.read_exact(&mut into[got.bytes..])?;
        Ok(descriptors)
    }
}

fn signature_and_descriptors(fields: &mut Bytes, signature: &str, descriptors: usize) {
    if !signature.is_empty() {
        fields.field(8, "g", |field| {
            field.0.push(u8::try_from(signature.len()).unwrap());
            field.0.extend(signature.as_bytes());
            field.0.push(0);
        });
    }
    if descriptors > 0 {
        fields.field(9, "u", |field| field.number(u32::try_from(descriptors).unwrap()));
    }
}
