//! Messages as bytes (D-Bus specification, Message Protocol): what a caller of a few methods needs, and no more.

/// No message is longer (Message Format).
const LONGEST: usize = 128 << 20;
/// The fixed part of a header and the length of the array of fields.
const FIXED: usize = 16;

/// A message being written, in little-endian order.
#[derive(Debug, Default)]
pub(in crate::client) struct Writer(Vec<u8>);

/// The place of an array's length, which is known at its end.
#[derive(Debug)]
pub(in crate::client) struct ArrayStart {
    length_at: usize,
    start: usize,
}

impl Writer {
    pub(in crate::client) fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    pub(in crate::client) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(in crate::client) fn number(&mut self, value: u32) {
        self.align(4);
        self.0.extend(value.to_le_bytes());
    }

    pub(in crate::client) fn truth(&mut self, value: bool) {
        self.number(value.into());
    }

    pub(in crate::client) fn text(&mut self, text: &str) {
        self.number(length(text.len()));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    pub(in crate::client) fn signature(&mut self, signature: &str) {
        // Ours are constants of a few letters.
        self.0.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.0.extend(signature.as_bytes());
        self.0.push(0);
    }

    /// Writes `ay` with a zero byte at its end, as GLib writes file names.
    pub(in crate::client) fn bytes(&mut self, bytes: &[u8]) {
        self.number(length(bytes.len() + 1));
        self.0.extend(bytes);
        self.0.push(0);
    }

    /// Begins an array of elements that are aligned to `to` bytes.
    pub(in crate::client) fn array(&mut self, to: usize) -> ArrayStart {
        self.number(0);
        let length_at = self.0.len() - 4;
        self.align(to);
        ArrayStart { length_at, start: self.0.len() }
    }

    pub(in crate::client) fn end(&mut self, array: &ArrayStart) {
        let bytes = length(self.0.len() - array.start).to_le_bytes();
        self.0[array.length_at..array.length_at + 4].copy_from_slice(&bytes);
    }
}

/// A length that is too long becomes one that every reader refuses.
fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A call of a method.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Call<'a> {
    pub(in crate::client) serial: u32,
    pub(in crate::client) destination: &'a str,
    pub(in crate::client) path: &'a str,
    pub(in crate::client) interface: &'a str,
    pub(in crate::client) member: &'a str,
    /// The types of the body.
    pub(in crate::client) signature: &'a str,
    /// How many descriptors go with it.
    pub(in crate::client) descriptors: u32,
}

impl Call<'_> {
    /// Writes the call with the body that `body` writes.
    pub(in crate::client) fn write(&self, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer(Vec::with_capacity(512));
        // Little-endian, a method call, an answer is wanted, version 1.
        writer.0.extend([b'l', 1, 0, 1]);
        writer.number(0);
        writer.number(self.serial);
        let fields = writer.array(8);
        for (code, kind, text) in [
            (1, "o", self.path),
            (2, "s", self.interface),
            (3, "s", self.member),
            (6, "s", self.destination),
        ] {
            writer.align(8);
            writer.byte(code);
            writer.signature(kind);
            writer.text(text);
        }
        if !self.signature.is_empty() {
            writer.align(8);
            writer.byte(8);
            writer.signature("g");
            writer.signature(self.signature);
        }
        if self.descriptors > 0 {
            writer.align(8);
            writer.byte(9);
            writer.signature("u");
            writer.number(self.descriptors);
        }
        writer.end(&fields);
        writer.align(8);
        let start = writer.0.len();
        body(&mut writer);
        let bytes = length(writer.0.len() - start).to_le_bytes();
        writer.0[4..8].copy_from_slice(&bytes);
        writer.0
    }
}

/// The bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bus sent bytes that are no message")]
pub struct Malformed;

/// Reads values in the order of bytes of whoever sent them.
#[derive(Clone, Debug)]
pub(in crate::client) struct Reader<'a> {
    /// From the start of the message, or of its body: both are aligned to eight bytes.
    bytes: &'a [u8],
    at: usize,
    big: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(count).ok_or(Malformed)?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(taken)
    }

    fn align(&mut self, to: usize) -> Result<(), Malformed> {
        let next = self.at.next_multiple_of(to);
        self.take(next - self.at).map(|_| ())
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(in crate::client) fn number(&mut self) -> Result<u32, Malformed> {
        self.align(4)?;
        let bytes = self.take(4)?.try_into().map_err(|_| Malformed)?;
        Ok(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    pub(in crate::client) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        self.ended(length)
    }

    /// Takes a signature: that of a variant stands before its value.
    pub(in crate::client) fn signature(&mut self) -> Result<&'a str, Malformed> {
        let length = self.byte()?.into();
        self.ended(length)
    }

    /// Takes an array of texts.
    pub(in crate::client) fn texts(&mut self) -> Result<Vec<&'a str>, Malformed> {
        let length = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        let end = self.at.checked_add(length).ok_or(Malformed)?;
        let mut texts = Vec::new();
        while self.at < end {
            texts.push(self.text()?);
        }
        if self.at == end { Ok(texts) } else { Err(Malformed) }
    }

    /// Takes a text of `length` bytes and the zero byte behind it.
    fn ended(&mut self, length: usize) -> Result<&'a str, Malformed> {
        let text = self.take(length)?;
        if self.byte()? != 0 {
            return Err(Malformed);
        }
        std::str::from_utf8(text).map_err(|_| Malformed)
    }

    /// Skips a value of a basic type; header fields have no other.
    fn skip(&mut self, kind: &str) -> Result<(), Malformed> {
        let (align, bytes) = match kind {
            "y" => (1, 1),
            "n" | "q" => (2, 2),
            "b" | "i" | "u" | "h" => (4, 4),
            "x" | "t" | "d" => (8, 8),
            "s" | "o" => return self.text().map(|_| ()),
            "g" => return self.signature().map(|_| ()),
            _ => return Err(Malformed),
        };
        self.align(align)?;
        self.take(bytes).map(|_| ())
    }
}

/// A message that came.
#[derive(Clone, Debug)]
pub(in crate::client) struct Message<'a> {
    pub(in crate::client) kind: Kind,
    /// The call that it answers, or 0.
    pub(in crate::client) reply_to: u32,
    pub(in crate::client) sender: &'a str,
    pub(in crate::client) interface: &'a str,
    pub(in crate::client) member: &'a str,
    pub(in crate::client) error: &'a str,
    pub(in crate::client) signature: &'a str,
    body: Reader<'a>,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Kind {
    Call,
    Reply,
    Error,
    Signal,
    /// To be ignored (Message Types).
    Unknown,
}

impl<'a> Message<'a> {
    /// Returns the body, if its types are these.
    pub(in crate::client) fn body(&self, signature: &str) -> Result<Reader<'a>, Malformed> {
        if self.signature == signature { Ok(self.body.clone()) } else { Err(Malformed) }
    }

    /// Returns the first text of the body, if it begins with one.
    pub(in crate::client) fn first_text(&self) -> Result<&'a str, Malformed> {
        if self.signature.starts_with('s') { self.body.clone().text() } else { Ok("") }
    }
}

/// Returns how long the message is that begins with `bytes`, once that can be known.
pub(in crate::client) fn whole_length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(fixed) = bytes.get(..FIXED) else { return Ok(None) };
    let big = match fixed {
        [b'l', _, _, 1, ..] => false,
        [b'B', _, _, 1, ..] => true,
        _ => return Err(Malformed),
    };
    let at = |at| Reader { bytes: fixed, at, big }.number();
    let size = |number: u32| usize::try_from(number).map_err(|_| Malformed);
    let (body, fields) = (size(at(4)?)?, size(at(12)?)?);
    if body > LONGEST || fields > LONGEST {
        return Err(Malformed);
    }
    let whole = (FIXED + fields).next_multiple_of(8) + body;
    if whole > LONGEST { Err(Malformed) } else { Ok(Some(whole)) }
}

/// Reads one whole message.
pub(in crate::client) fn parse(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
    let whole = whole_length(bytes)?.ok_or(Malformed)?;
    let bytes = bytes.get(..whole).ok_or(Malformed)?;
    let big = bytes[0] == b'B';
    let mut reader = Reader { bytes, at: 12, big };
    let fields = usize::try_from(reader.number()?).map_err(|_| Malformed)?;
    let end = FIXED + fields;
    let body_at = end.next_multiple_of(8);
    let mut message = Message {
        kind: match bytes[1] {
            1 => Kind::Call,
            2 => Kind::Reply,
            3 => Kind::Error,
            4 => Kind::Signal,
            0 => return Err(Malformed),
            _ => Kind::Unknown,
        },
        reply_to: 0,
        sender: "",
        interface: "",
        member: "",
        error: "",
        signature: "",
        body: Reader { bytes: bytes.get(body_at..).ok_or(Malformed)?, at: 0, big },
    };
    reader.bytes = bytes.get(..end).ok_or(Malformed)?;
    while reader.at < end {
        reader.align(8)?;
        let code = reader.byte()?;
        match (code, reader.signature()?) {
            (2, "s") => message.interface = reader.text()?,
            (3, "s") => message.member = reader.text()?,
            (4, "s") => message.error = reader.text()?,
            (5, "u") => message.reply_to = reader.number()?,
            (7, "s") => message.sender = reader.text()?,
            (8, "g") => message.signature = reader.signature()?,
            (_, kind) => reader.skip(kind)?,
        }
    }
    Ok(message)
}

/// Reads bytes from anywhere as messages: for tests that try to break it.
#[doc(hidden)]
pub fn read_anything(mut bytes: &[u8]) {
    while let Ok(Some(whole)) = whole_length(bytes) {
        let Some((message, rest)) = bytes.split_at_checked(whole) else { return };
        bytes = rest;
        let Ok(message) = parse(message) else { return };
        let _ = message.first_text();
        let numbers = message.body("uu").and_then(|mut body| Ok((body.number()?, body.number()?)));
        let texts = message.body("sss").and_then(|mut body| Ok((body.text()?, body.text()?)));
        let all =
            message.body("v").and_then(|mut body| body.signature().and_then(|_| body.texts()));
        std::hint::black_box((numbers.is_ok(), texts.is_ok(), all.is_ok()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(big: bool) -> Vec<u8> {
        // As dbus-daemon 1.14 passes it on, but for the order of the bytes.
        let mut writer = Writer::default();
        writer.0.extend([b'l', 4, 1, 1]);
        writer.number(8);
        writer.number(7);
        let fields = writer.array(8);
        for (code, kind, text) in [
            (1, "o", "/org/freedesktop/Flatpak/Development"),
            (2, "s", "org.freedesktop.Flatpak.Development"),
            (3, "s", "HostCommandExited"),
            (6, "s", ":1.5"),
            (7, "s", ":1.4"),
        ] {
            writer.align(8);
            writer.byte(code);
            writer.signature(kind);
            writer.text(text);
        }
        writer.align(8);
        writer.byte(8);
        writer.signature("g");
        writer.signature("uu");
        writer.end(&fields);
        writer.align(8);
        writer.number(4711);
        writer.number(256);
        if big {
            let signal = zbus::Message::signal("/o/p", "org.x.Y", "HostCommandExited");
            let built = signal.endian(zbus::wire::Endian::Big).build(&(4711_u32, 256_u32));
            return built.unwrap().data().to_vec();
        }
        writer.0
    }

    #[test]
    fn a_signal_is_read_in_either_order_of_bytes() {
        for big in [false, true] {
            let bytes = exited(big);
            assert_eq!(whole_length(&bytes), Ok(Some(bytes.len())));
            let message = parse(&bytes).unwrap();
            assert_eq!((message.kind, message.member), (Kind::Signal, "HostCommandExited"));
            let mut body = message.body("uu").unwrap();
            assert_eq!((body.number(), body.number()), (Ok(4711), Ok(256)));
            assert_eq!(body.number(), Err(Malformed));
            assert!(message.body("us").is_err());
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_an_error_or_a_message() {
        let bytes = exited(false);
        for cut in 0..bytes.len() {
            assert!(parse(&bytes[..cut]).is_err());
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                read_anything(&changed);
            }
        }
    }

    #[test]
    fn the_corpus_is_read_whole_and_cut() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/host_message");
        let mut messages = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            (0..=bytes.len()).for_each(|cut| read_anything(&bytes[..cut]));
            messages += usize::from(parse(&bytes).is_ok());
        }
        assert!(messages >= 5, "{messages}");
    }

    #[test]
    fn a_call_is_what_zbus_reads() {
        let call = Call {
            serial: 3,
            destination: "org.freedesktop.Flatpak",
            path: "/org/freedesktop/Flatpak/Development",
            interface: "org.freedesktop.Flatpak.Development",
            member: "HostCommand",
            signature: "ayaaya{ss}u",
            descriptors: 0,
        };
        let bytes = call.write(|writer| {
            writer.bytes(b"/tmp");
            let array = writer.array(4);
            writer.bytes(b"sh");
            writer.bytes(b"-c");
            writer.end(&array);
            let array = writer.array(8);
            writer.align(8);
            writer.text("A");
            writer.text("b");
            writer.end(&array);
            writer.number(2);
        });
        let ours = parse(&bytes).unwrap();
        assert_eq!((ours.kind, ours.member, ours.reply_to), (Kind::Call, "HostCommand", 0));
        let environment = std::collections::HashMap::from([("A", "b")]);
        let words = [&b"sh\0"[..], &b"-c\0"[..]];
        let theirs = zbus::Message::method_call(call.path, call.member)
            .destination(call.destination)
            .interface(call.interface)
            .build(&(&b"/tmp\0"[..], &words[..], environment, 2_u32));
        let theirs = theirs.unwrap();
        assert_eq!(theirs.body().signature().to_string_no_parens(), call.signature);
        let body = |bytes: &[u8]| {
            let start = bytes.len()
                - usize::try_from(u32::from_le_bytes(bytes[4..8].try_into().unwrap())).unwrap();
            bytes[start..].to_vec()
        };
        assert_eq!(body(&bytes), body(theirs.data()));
    }
}
