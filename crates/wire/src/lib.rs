//! A message of D-Bus read where it lies: nothing is copied, and bytes that are no message are an error.
//!
//! Begin with [`message()`], which reads a [`Header`], and [`body::values`], which reads what is in the body. A
//! [`Draft`](write::Draft) writes a message, and [`socket`] has a small blocking connection. README.md has an example.
//!
//! What is accepted is what the reference implementation accepts (D-Bus specification, "Message Protocol"): names by
//! their grammar, zero padding, each header field once and of its type. A message whose body was cut off when it was
//! recorded is still a message; [`Header::is_cut`] says so.

pub mod body;
mod cursor;
mod grammar;
pub mod known;
pub mod signature;
pub mod socket;
pub mod write;

use std::num::NonZeroU32;

use cursor::Cursor;
pub use cursor::Endian;

/// The longest message that the protocol allows, in bytes.
pub const LONGEST: u32 = 1 << 27;
/// The longest array, the header's fields included, in bytes.
const LONGEST_ARRAY: u32 = 1 << 26;
/// What stands before the header's fields, their length included, in bytes.
pub const FIXED: usize = 16;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageType {
    /// A call of a method.
    Call,
    /// The answer to a call.
    Return,
    /// The refusal of a call.
    Error,
    /// A signal.
    Signal,
    /// A kind that the specification does not have yet; 0 is none.
    Other(u8),
}

impl MessageType {
    fn of(byte: u8) -> Option<MessageType> {
        Some(match byte {
            0 => return None,
            1 => MessageType::Call,
            2 => MessageType::Return,
            3 => MessageType::Error,
            4 => MessageType::Signal,
            other => MessageType::Other(other),
        })
    }

    /// Returns the number that stands for it in a message.
    fn code(self) -> u8 {
        match self {
            MessageType::Call => 1,
            MessageType::Return => 2,
            MessageType::Error => 3,
            MessageType::Signal => 4,
            MessageType::Other(other) => other,
        }
    }
}

/// The flags of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// Says whether the sender wants no answer.
    #[must_use]
    pub fn no_reply_expected(self) -> bool {
        self.0 & 1 != 0
    }

    /// Says whether no service may be started for it.
    #[must_use]
    pub fn no_auto_start(self) -> bool {
        self.0 & 2 != 0
    }

    /// Says whether the person at the screen may be asked for a permission.
    #[must_use]
    pub fn allow_interactive_authorization(self) -> bool {
        self.0 & 4 != 0
    }
}

/// A message: its header, and its body undecoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'m> {
    /// What it is.
    pub kind: MessageType,
    /// Its flags.
    pub flags: Flags,
    /// Its number among the sender's messages.
    pub serial: NonZeroU32,
    /// The number of the call that it answers.
    pub reply_serial: Option<NonZeroU32>,
    /// The object that is called, or that sends the signal.
    pub path: Option<&'m str>,
    /// The interface of the member.
    pub interface: Option<&'m str>,
    /// The method or signal.
    pub member: Option<&'m str>,
    /// The error's name.
    pub error_name: Option<&'m str>,
    /// Who it is for; none is everybody who asked for such signals.
    pub destination: Option<&'m str>,
    /// The unique name of who sent it.
    pub sender: Option<&'m str>,
    /// The types of the body.
    pub signature: &'m str,
    /// How many descriptors came with it.
    pub unix_fds: u32,
    /// The order of bytes in its numbers.
    pub endian: Endian,
    /// How many bytes the body had when it was sent.
    pub body_length: u32,
    /// The bytes of the body, as many as there are.
    pub body: &'m [u8],
}

impl Header<'_> {
    /// A message that says nothing.
    const EMPTY: Header<'static> = Header {
        kind: MessageType::Other(0),
        flags: Flags(0),
        serial: NonZeroU32::MIN,
        reply_serial: None,
        path: None,
        interface: None,
        member: None,
        error_name: None,
        destination: None,
        sender: None,
        signature: "",
        unix_fds: 0,
        endian: Endian::Little,
        body_length: 0,
        body: &[],
    };

    /// Says whether the end of the body is missing.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        usize::try_from(self.body_length).map_or(true, |length| self.body.len() < length)
    }
}

/// Why bytes are no message, or a body has no such values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at byte {at}")]
pub struct WireError {
    /// What is wrong.
    pub fault: DecodeFault,
    /// Where: bytes from the begin of the message, or of the body.
    pub at: usize,
}

/// What is wrong with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeFault {
    /// They end too early.
    #[error("the message is cut off")]
    Cut,
    /// The first byte is neither `l` nor `B`.
    #[error("no order of bytes")]
    Endian,
    /// The message's type is 0.
    #[error("no type of message")]
    Kind,
    /// Another version of the protocol.
    #[error("another version of the protocol")]
    Version,
    /// A serial is 0.
    #[error("a serial of 0")]
    Serial,
    /// Longer than the protocol allows.
    #[error("longer than the protocol allows")]
    TooLong,
    /// Padding that is not zero.
    #[error("padding that is not zero")]
    Padding,
    /// A header field of another type than its own, or with the code 0.
    #[error("a header field of a wrong type")]
    Field,
    /// A header field twice.
    #[error("a header field twice")]
    Twice,
    /// A header field that this type of message must have is missing.
    #[error("no {0}")]
    Missing(&'static str),
    /// A name that breaks its grammar.
    #[error("an invalid {0}")]
    Name(&'static str),
    /// Text that is not UTF-8, has a zero inside, or does not end with one.
    #[error("an invalid text")]
    Text,
    /// A signature that breaks its grammar.
    #[error("an invalid signature")]
    Signature,
    /// A boolean that is neither 0 nor 1.
    #[error("an invalid boolean")]
    Boolean,
    /// An array whose length ends within an element.
    #[error("an array that ends within an element")]
    Array,
    /// Nested more deeply, or of more parts, than anybody means.
    #[error("values nested too deeply")]
    TooDeep,
    /// Bytes after the last value.
    #[error("bytes after the end")]
    Trailing,
}

/// Returns the length of the message that begins with these bytes, as its first [`FIXED`] bytes say it.
///
/// # Errors
///
/// They begin no message; [`DecodeFault::Cut`] if there are too few of them to say.
pub fn length(bytes: &[u8]) -> Result<u32, WireError> {
    let fault = |fault, at| WireError { fault, at };
    let fixed: &[u8; FIXED] = bytes.first_chunk().ok_or(fault(DecodeFault::Cut, bytes.len()))?;
    let endian = Endian::of(fixed[0]).ok_or(fault(DecodeFault::Endian, 0))?;
    if MessageType::of(fixed[1]).is_none() {
        return Err(fault(DecodeFault::Kind, 1));
    }
    if fixed[3] != 1 {
        return Err(fault(DecodeFault::Version, 3));
    }
    let word = |at: usize| endian.u32([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let (body, fields) = (word(4), word(12));
    if fields > LONGEST_ARRAY || body > LONGEST {
        return Err(fault(DecodeFault::TooLong, 4));
    }
    // At most 2^26 + 2^27 and a little: no overflow.
    let whole = (16 + fields).next_multiple_of(8) + body;
    if whole > LONGEST { Err(fault(DecodeFault::TooLong, 4)) } else { Ok(whole) }
}

/// Reads the header of the message that these bytes are. The body may be cut off, the header may not.
///
/// # Errors
///
/// [`WireError`] if they are no message, or more than one.
pub fn message(bytes: &[u8]) -> Result<Header<'_>, WireError> {
    let whole = length(bytes)?;
    let endian = Endian::of(bytes[0]).ok_or(WireError { fault: DecodeFault::Endian, at: 0 })?;
    let kind = MessageType::of(bytes[1]).ok_or(WireError { fault: DecodeFault::Kind, at: 1 })?;
    let mut fixed = Cursor::new(bytes, 4, endian);
    let body_length = fixed.u32()?;
    let zero = WireError { fault: DecodeFault::Serial, at: 8 };
    let serial = NonZeroU32::new(fixed.u32()?).ok_or(zero)?;
    let mut header =
        Header { kind, flags: Flags(bytes[2]), serial, endian, body_length, ..Header::EMPTY };
    let fields = usize::try_from(fixed.u32()?).unwrap_or(usize::MAX);
    let mut cursor = fixed.within(fields)?;
    let mut seen = 0_u16;
    while !cursor.is_at_end() {
        field(&mut cursor, &mut header, &mut seen)?;
    }
    let mut after = Cursor::new(bytes, FIXED + fields, endian);
    after.pad(8)?;
    let has_more = usize::try_from(whole).is_ok_and(|whole| bytes.len() > whole);
    if has_more {
        return Err(WireError { fault: DecodeFault::Trailing, at: bytes.len() });
    }
    header.body = after.rest();
    required(&header)?;
    if header.signature.is_empty() && body_length != 0 {
        return Err(WireError { fault: DecodeFault::Trailing, at: after.at() });
    }
    Ok(header)
}

/// Reads one header field into its place.
fn field<'m>(
    cursor: &mut Cursor<'m>,
    header: &mut Header<'m>,
    seen: &mut u16,
) -> Result<(), WireError> {
    cursor.pad(8)?;
    let at = cursor.at();
    let fault = |fault| WireError { fault, at };
    let code = cursor.u8()?;
    let signature = cursor.signature()?;
    let expected = match code {
        0 => return Err(fault(DecodeFault::Field)),
        // The second is `CONTAINER_INSTANCE` of the reference implementation, not in the specification yet.
        1 | 10 => "o",
        2 | 3 | 4 | 6 | 7 => "s",
        5 | 9 => "u",
        8 => "g",
        // What later versions add is passed over.
        _ => return body::skip(cursor, signature),
    };
    if signature != expected {
        return Err(fault(DecodeFault::Field));
    }
    if *seen & (1 << code) != 0 {
        return Err(fault(DecodeFault::Twice));
    }
    *seen |= 1 << code;
    match code {
        1 => {
            header.path = Some(named(cursor.text()?, grammar::is_path, "object path", at)?);
        }
        2 => {
            header.interface = Some(named(cursor.text()?, grammar::is_interface, "interface", at)?);
        }
        3 => header.member = Some(named(cursor.text()?, grammar::is_member, "member", at)?),
        4 => {
            let name = named(cursor.text()?, grammar::is_interface, "error name", at)?;
            header.error_name = Some(name);
        }
        5 => {
            let serial = NonZeroU32::new(cursor.u32()?).ok_or(fault(DecodeFault::Serial))?;
            header.reply_serial = Some(serial);
        }
        6 => {
            let name = named(cursor.text()?, grammar::is_bus_name, "destination", at)?;
            header.destination = Some(name);
        }
        7 => header.sender = Some(named(cursor.text()?, grammar::is_bus_name, "sender", at)?),
        8 => {
            let types = cursor.signature()?;
            signature::check(types).map_err(|_| fault(DecodeFault::Signature))?;
            header.signature = types;
        }
        9 => header.unix_fds = cursor.u32()?,
        _ => {
            named(cursor.text()?, grammar::is_path, "object path", at)?;
        }
    }
    Ok(())
}

fn named<'m>(
    text: &'m str,
    is_one: fn(&str) -> bool,
    what: &'static str,
    at: usize,
) -> Result<&'m str, WireError> {
    if is_one(text) { Ok(text) } else { Err(WireError { fault: DecodeFault::Name(what), at }) }
}

/// Checks that a message has what its type requires.
fn required(header: &Header<'_>) -> Result<(), WireError> {
    let missing = |what| Err(WireError { fault: DecodeFault::Missing(what), at: FIXED });
    let (path, member) = (header.path.is_some(), header.member.is_some());
    match header.kind {
        MessageType::Call if !path => missing("object path"),
        MessageType::Call if !member => missing("member"),
        MessageType::Signal if !path => missing("object path"),
        MessageType::Signal if !member => missing("member"),
        MessageType::Signal if header.interface.is_none() => missing("interface"),
        MessageType::Error if header.error_name.is_none() => missing("error name"),
        MessageType::Return | MessageType::Error if header.reply_serial.is_none() => {
            missing("reply serial")
        }
        _ => Ok(()),
    }
}

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

#[cfg(test)]
mod tests;
