//! A record as lines of JSON, one for each event, for programs that read JSON; and as lines of text for people.
//!
//! [docs/bus-files.md] has the fields.
//!
//! [docs/bus-files.md]: https://github.com/unjank/unjank/blob/main/docs/bus-files.md

mod read;
mod text;
mod value;

use std::io::Write;

pub(super) use read::{events, is_one};
pub use text::text;

use serde::Serialize;

use super::event::{
    CaptureEvent, CapturedBus, CapturedMessage, DamagedSection, Dropped, PeerRecord, RecordingEnd,
};
use wire::{self, Endian, Flags, Header, MessageType};

/// Whether lines hold the bytes of their messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// They do, in hexadecimal digits: the lines can be converted back.
    Included,
    /// They do not.
    LeftOut,
}

/// A line that is no message's.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Plain<'e> {
    Bus(&'e CapturedBus),
    Peer(&'e PeerRecord),
    Dropped(&'e Dropped),
    End(&'e RecordingEnd),
    Damaged { place: u64, what: &'e str },
}

/// The fields of a message's header.
#[derive(Serialize)]
struct HeaderText<'m> {
    #[serde(rename = "type")]
    kind: &'static str,
    serial: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_serial: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sender: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'m str>,
    flags: Vec<&'static str>,
    #[serde(skip_serializing_if = "is_zero")]
    unix_fds: u32,
    #[serde(skip_serializing_if = "is_little")]
    endian: &'static str,
    signature: &'m str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_little(endian: &str) -> bool {
    endian == "little"
}

/// Returns the word for a kind of message.
#[must_use]
pub fn kind(kind: MessageType) -> &'static str {
    match kind {
        MessageType::Call => "call",
        MessageType::Return => "return",
        MessageType::Error => "error",
        MessageType::Signal => "signal",
        MessageType::Other(_) => "other",
    }
}

fn flags(flags: Flags) -> Vec<&'static str> {
    [
        (flags.no_reply_expected(), "no_reply_expected"),
        (flags.no_auto_start(), "no_auto_start"),
        (flags.allow_interactive_authorization(), "allow_interactive_authorization"),
    ]
    .into_iter()
    .filter_map(|(is_set, word)| is_set.then_some(word))
    .collect()
}

/// Writes the line of an event.
pub fn write(out: &mut Vec<u8>, event: &CaptureEvent<'_>, bytes: Bytes) {
    match event {
        CaptureEvent::Bus(bus) => plain(out, &Plain::Bus(bus)),
        CaptureEvent::Peer(peer) => plain(out, &Plain::Peer(peer)),
        CaptureEvent::Dropped(dropped) => plain(out, &Plain::Dropped(dropped)),
        CaptureEvent::End(end) => plain(out, &Plain::End(end)),
        CaptureEvent::Damaged(damaged) => {
            let DamagedSection { at, what } = &**damaged;
            plain(out, &Plain::Damaged { place: *at, what });
        }
        CaptureEvent::Message(found) => message(out, found, bytes),
    }
    out.push(b'\n');
}

fn plain(out: &mut Vec<u8>, line: &Plain<'_>) {
    // Numbers and texts always have a JSON form, and memory takes all that is written.
    let _ = serde_json::to_writer(out, line);
}

fn message(out: &mut Vec<u8>, message: &CapturedMessage<'_>, bytes: Bytes) {
    let CapturedMessage { at, bus, length, bytes: raw } = message;
    let _ = write!(out, r#"{{"event":"message","at":{},"bus":{bus},"length":{length}"#, at.0);
    match wire::message(raw) {
        Ok(header) => {
            // The fields follow in the same object, so its first brace becomes a comma.
            let begin = out.len();
            let _ = serde_json::to_writer(&mut *out, &said(&header));
            out[begin] = b',';
            out.pop();
            value::body(out, &header);
        }
        Err(error) => {
            out.extend(br#","fault":"#);
            let _ = serde_json::to_writer(&mut *out, &error.to_string());
        }
    }
    if bytes == Bytes::Included {
        out.extend(br#","bytes":""#);
        for byte in *raw {
            let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
            out.extend([digit(byte >> 4), digit(byte & 15)]);
        }
        out.push(b'"');
    }
    out.push(b'}');
}

fn said<'m>(header: &Header<'m>) -> HeaderText<'m> {
    HeaderText {
        kind: kind(header.kind),
        serial: header.serial.get(),
        reply_serial: header.reply_serial.map(std::num::NonZeroU32::get),
        sender: header.sender,
        destination: header.destination,
        path: header.path,
        interface: header.interface,
        member: header.member,
        error: header.error_name,
        flags: flags(header.flags),
        unix_fds: header.unix_fds,
        endian: if header.endian == Endian::Little { "little" } else { "big" },
        signature: header.signature,
    }
}

#[cfg(test)]
mod tests;
