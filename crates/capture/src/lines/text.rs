//! A line of text for an event, as people read them.

use report::text::{Charset, visible};

use super::{kind, value};
use crate::event::CaptureEvent;
use wire::body::{BodyValue, values};
use wire::{self, Header, MessageType};

/// The most of a text that is shown.
const LONGEST: usize = 60;

/// Returns the line of an event, without its time; `None` for events that are not shown.
///
/// Nothing in it can move a terminal's cursor.
#[must_use]
pub fn text(event: &CaptureEvent<'_>) -> Option<String> {
    let line = match event {
        CaptureEvent::Message(message) => match wire::message(message.bytes) {
            Ok(header) => described(&header),
            Err(error) => format!("no message: {error}"),
        },
        CaptureEvent::Dropped(dropped) => format!("{} messages were dropped", dropped.count),
        CaptureEvent::Damaged(damaged) => format!("{} at byte {}", damaged.what, damaged.at),
        CaptureEvent::Bus(_) | CaptureEvent::Peer(_) | CaptureEvent::End(_) => return None,
    };
    Some(visible(&line, Charset::Unicode).into_owned())
}

fn described(header: &Header<'_>) -> String {
    let sender = header.sender.unwrap_or("-");
    let destination = header.destination.unwrap_or("*");
    let mut line = format!("{:6} {sender} -> {destination}", kind(header.kind));
    match header.kind {
        MessageType::Return | MessageType::Error => {
            if let Some(serial) = header.reply_serial {
                line.push_str(&format!(" #{serial}"));
            }
            header.error_name.iter().for_each(|name| line.push_str(&format!(" {name}")));
        }
        _ => {
            line.push_str(&format!(" #{}", header.serial));
            header.path.iter().for_each(|path| line.push_str(&format!(" {path}")));
            let interface = header.interface.map(|name| format!("{name}.")).unwrap_or_default();
            let member = header.member.unwrap_or("?");
            line.push_str(&format!(" {interface}{member}"));
        }
    }
    if !header.signature.is_empty() {
        let shown = values(header).take(8).map(|value| match value {
            Ok(value) => short(&value),
            Err(_) => "…".to_owned(),
        });
        line.push_str(&format!(" ({})", shown.collect::<Vec<_>>().join(", ")));
    }
    line
}

fn short(value: &BodyValue<'_>) -> String {
    let cut = |text: &str| {
        // Quotes are escaped as well, so that the end of the text is unambiguous.
        let text = text.escape_debug().to_string();
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    };
    match value {
        BodyValue::Text(text) => format!("\"{}\"", cut(text)),
        BodyValue::Path(text) | BodyValue::Signature(text) => cut(text),
        BodyValue::Bytes(bytes) => format!("b\"{}\"", cut(&value::readable(bytes))),
        BodyValue::Byte(number) => number.to_string(),
        BodyValue::Boolean(truth) => truth.to_string(),
        BodyValue::Int16(number) => number.to_string(),
        BodyValue::Uint16(number) => number.to_string(),
        BodyValue::Int32(number) => number.to_string(),
        BodyValue::Uint32(number) => number.to_string(),
        BodyValue::Int64(number) => number.to_string(),
        BodyValue::Uint64(number) => number.to_string(),
        BodyValue::Double(number) => number.to_string(),
        BodyValue::Descriptor(place) => format!("descriptor {place}"),
        BodyValue::Variant(_, inside) => short(inside),
        BodyValue::Array(array) if array.is_empty() => "[]".to_owned(),
        BodyValue::Array(array) if array.is_dictionary() => "{…}".to_owned(),
        BodyValue::Array(_) => "[…]".to_owned(),
        BodyValue::Structure(members) => {
            let shown: Vec<String> = members.iter().take(4).map(short).collect();
            let rest = if members.len() > 4 { ", …" } else { "" };
            format!("({}{rest})", shown.join(", "))
        }
        BodyValue::Entry(_) => "{…}".to_owned(),
    }
}
