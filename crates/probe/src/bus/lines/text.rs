//! A line of text for an event, as people read them.

use report::text::{Charset, visible};

use super::{kind, value};
use crate::bus::capture::Event;
use crate::bus::wire::body::{Value, values};
use crate::bus::wire::{self, Header, Kind};

/// The most of a text that is shown.
const LONGEST: usize = 60;

/// Returns the line of an event, without its time; none for what is not worth one.
///
/// Nothing in it can move a terminal's cursor.
#[must_use]
pub fn text(event: &Event<'_>) -> Option<String> {
    let line = match event {
        Event::Message(message) => match wire::message(message.bytes) {
            Ok(header) => described(&header),
            Err(error) => format!("no message: {error}"),
        },
        Event::Dropped(dropped) => format!("{} messages were dropped", dropped.count),
        Event::Damaged(damaged) => format!("{} at byte {}", damaged.what, damaged.at),
        Event::Bus(_) | Event::Peer(_) | Event::End(_) => return None,
    };
    Some(visible(&line, Charset::Unicode).into_owned())
}

fn described(header: &Header<'_>) -> String {
    let sender = header.sender.unwrap_or("-");
    let destination = header.destination.unwrap_or("*");
    let mut line = format!("{:6} {sender} -> {destination}", kind(header.kind));
    match header.kind {
        Kind::Return | Kind::Error => {
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

fn short(value: &Value<'_>) -> String {
    let cut = |text: &str| {
        // Quotes are escaped as well, so that the end of the text can be told.
        let text = text.escape_debug().to_string();
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    };
    match value {
        Value::Text(text) => format!("\"{}\"", cut(text)),
        Value::Path(text) | Value::Signature(text) => cut(text),
        Value::Bytes(bytes) => format!("b\"{}\"", cut(&value::readable(bytes))),
        Value::Byte(number) => number.to_string(),
        Value::Boolean(truth) => truth.to_string(),
        Value::Int16(number) => number.to_string(),
        Value::Uint16(number) => number.to_string(),
        Value::Int32(number) => number.to_string(),
        Value::Uint32(number) => number.to_string(),
        Value::Int64(number) => number.to_string(),
        Value::Uint64(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::Descriptor(place) => format!("descriptor {place}"),
        Value::Variant(_, inside) => short(inside),
        Value::Array(array) if array.is_empty() => "[]".to_owned(),
        Value::Array(array) if array.is_dictionary() => "{…}".to_owned(),
        Value::Array(_) => "[…]".to_owned(),
        Value::Structure(members) => {
            let shown: Vec<String> = members.iter().take(4).map(short).collect();
            let rest = if members.len() > 4 { ", …" } else { "" };
            format!("({}{rest})", shown.join(", "))
        }
        Value::Entry(_) => "{…}".to_owned(),
    }
}
