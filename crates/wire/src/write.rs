//! Writes messages: the few calls that a recorder makes, and those that tests and benchmarks send.

use super::{Endian, MessageType};

/// A message that is to be written. What is empty is left out.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'d> {
    /// What it is.
    pub kind: MessageType,
    /// Its flags; see [`Flags`](super::Flags).
    pub flags: u8,
    /// Its number, which is not 0.
    pub serial: u32,
    /// The number of the call that it answers; 0 is none.
    pub reply_serial: u32,
    /// The object.
    pub path: &'d str,
    /// The interface.
    pub interface: &'d str,
    /// The method or signal.
    pub member: &'d str,
    /// The error's name.
    pub error_name: &'d str,
    /// Who it is for.
    pub destination: &'d str,
    /// Who it is from; on a bus, the bus says that.
    pub sender: &'d str,
    /// The types of the body.
    pub signature: &'d str,
    /// How many descriptors go with it.
    pub unix_fds: u32,
    /// The body.
    pub body: &'d [u8],
    /// The order of bytes, the body's too.
    pub endian: Endian,
}

impl<'d> Draft<'d> {
    /// Begins a message without a body.
    #[must_use]
    pub fn new(kind: MessageType, serial: u32) -> Draft<'d> {
        Draft {
            kind,
            flags: 0,
            serial,
            reply_serial: 0,
            path: "",
            interface: "",
            member: "",
            error_name: "",
            destination: "",
            sender: "",
            signature: "",
            unix_fds: 0,
            body: &[],
            endian: Endian::Little,
        }
    }

    /// Begins a call of a method of the bus itself.
    #[must_use]
    pub fn to_bus(serial: u32, member: &'d str) -> Draft<'d> {
        Draft {
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            destination: "org.freedesktop.DBus",
            member,
            ..Draft::new(MessageType::Call, serial)
        }
    }

    /// Returns its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mark = if self.endian == Endian::Little { b'l' } else { b'B' };
        let mut out = Marshal::new(self.endian);
        out.bytes.extend([mark, self.kind.code(), self.flags, 1]);
        out.u32(u32::try_from(self.body.len()).unwrap_or(u32::MAX));
        out.u32(self.serial);
        out.array(8, |fields| {
            let mut text = |code: u8, kind: u8, text: &str| {
                if !text.is_empty() {
                    fields.pad(8);
                    fields.bytes.extend([code, 1, kind, 0]);
                    if kind == b'g' { fields.signature(text) } else { fields.text(text) }
                }
            };
            text(1, b'o', self.path);
            text(2, b's', self.interface);
            text(3, b's', self.member);
            text(4, b's', self.error_name);
            text(6, b's', self.destination);
            text(7, b's', self.sender);
            text(8, b'g', self.signature);
            for (code, number) in [(5, self.reply_serial), (9, self.unix_fds)] {
                if number != 0 {
                    fields.pad(8);
                    fields.bytes.extend([code, 1, b'u', 0]);
                    fields.u32(number);
                }
            }
        });
        out.pad(8);
        out.bytes.extend(self.body);
        out.bytes
    }
}

/// Values one after the other, each at its alignment.
#[derive(Clone, Debug)]
pub struct Marshal {
    bytes: Vec<u8>,
    endian: Endian,
}

impl Marshal {
    /// Begins with nothing.
    #[must_use]
    pub fn new(endian: Endian) -> Marshal {
        Marshal { bytes: Vec::new(), endian }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes zeros up to an alignment.
    pub fn pad(&mut self, alignment: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(alignment), 0);
    }

    /// Writes bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Writes `u`.
    pub fn u32(&mut self, number: u32) {
        self.pad(4);
        let bytes = match self.endian {
            Endian::Little => number.to_le_bytes(),
            Endian::Big => number.to_be_bytes(),
        };
        self.bytes.extend(bytes);
    }

    /// Writes `t`.
    pub fn u64(&mut self, number: u64) {
        self.pad(8);
        let bytes = match self.endian {
            Endian::Little => number.to_le_bytes(),
            Endian::Big => number.to_be_bytes(),
        };
        self.bytes.extend(bytes);
    }

    /// Writes `s` or `o`.
    pub fn text(&mut self, text: &str) {
        self.u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.bytes.extend(text.bytes());
        self.bytes.push(0);
    }

    /// Writes `g`.
    pub fn signature(&mut self, text: &str) {
        self.bytes.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.bytes.extend(text.bytes());
        self.bytes.push(0);
    }

    /// Writes `ay` with a zero byte at its end, as GLib writes file names.
    pub fn bytestring(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len() + 1).unwrap_or(u32::MAX));
        self.bytes.extend(bytes);
        self.bytes.push(0);
    }

    /// Writes an array whose elements are aligned like this.
    pub fn array(&mut self, alignment: usize, elements: impl FnOnce(&mut Marshal)) {
        self.u32(0);
        let length_at = self.bytes.len() - 4;
        self.pad(alignment);
        let begin = self.bytes.len();
        elements(self);
        let length = u32::try_from(self.bytes.len() - begin).unwrap_or(u32::MAX);
        let bytes = match self.endian {
            Endian::Little => length.to_le_bytes(),
            Endian::Big => length.to_be_bytes(),
        };
        self.bytes[length_at..length_at + 4].copy_from_slice(&bytes);
    }
}
