//! The values of a body as JSON: as they are meant, not as they are typed; the types are in the signature.

use std::io::Write;

use wire::body::{Array, BodyValue, values};
use wire::{Header, WireError};

/// Writes `"body":[…]`, and the error if it cannot be decoded completely.
pub(super) fn body(out: &mut Vec<u8>, header: &Header<'_>) {
    let begin = out.len();
    out.extend(br#","body":["#);
    let mut first = true;
    for value in values(header) {
        let before = out.len();
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        if let Err(error) = value.and_then(|value| write(out, &value)) {
            out.truncate(before);
            out.extend(br#"],"fault":"#);
            text(out, &error.to_string());
            return;
        }
    }
    out.push(b']');
    if first {
        out.truncate(begin);
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    // Memory takes all that is written.
    let _ = serde_json::to_writer(out, text);
}

fn number(out: &mut Vec<u8>, number: impl std::fmt::Display) {
    let _ = write!(out, "{number}");
}

fn write(out: &mut Vec<u8>, value: &BodyValue<'_>) -> Result<(), WireError> {
    match value {
        BodyValue::Byte(byte) => number(out, byte),
        BodyValue::Boolean(truth) => number(out, truth),
        BodyValue::Int16(value) => number(out, value),
        BodyValue::Uint16(value) => number(out, value),
        BodyValue::Int32(value) => number(out, value),
        BodyValue::Uint32(value) | BodyValue::Descriptor(value) => number(out, value),
        BodyValue::Int64(value) => number(out, value),
        BodyValue::Uint64(value) => number(out, value),
        // JSON has no infinity.
        BodyValue::Double(value) => drop(serde_json::to_writer(out, value)),
        BodyValue::Text(value) | BodyValue::Path(value) | BodyValue::Signature(value) => {
            text(out, value)
        }
        BodyValue::Bytes(bytes) => text(out, &readable(bytes)),
        BodyValue::Array(array) if is_object(array) => object(out, array)?,
        BodyValue::Array(array) => list(out, array.items())?,
        BodyValue::Structure(members) => list(out, members.iter().cloned().map(Ok))?,
        BodyValue::Entry(entry) => {
            list(out, [entry.0.clone(), entry.1.clone()].into_iter().map(Ok))?
        }
        BodyValue::Variant(_, inside) => write(out, inside)?,
    }
    Ok(())
}

/// Returns whether an array's elements have names.
fn is_object(array: &Array<'_>) -> bool {
    array.is_dictionary() && matches!(array.element().as_bytes(), [_, b's' | b'o' | b'g', ..])
}

fn object(out: &mut Vec<u8>, array: &Array<'_>) -> Result<(), WireError> {
    out.push(b'{');
    let mut first = true;
    for item in array.items() {
        let BodyValue::Entry(entry) = item? else { continue };
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        write(out, &entry.0)?;
        out.push(b':');
        write(out, &entry.1)?;
    }
    out.push(b'}');
    Ok(())
}

fn list<'m>(
    out: &mut Vec<u8>,
    items: impl Iterator<Item = Result<BodyValue<'m>, WireError>>,
) -> Result<(), WireError> {
    out.push(b'[');
    for (place, item) in items.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write(out, &item?)?;
    }
    out.push(b']');
    Ok(())
}

/// Shows bytes as text: what is no printable text, as in a C program's string.
pub(super) fn readable(bytes: &[u8]) -> String {
    // Paths and the like are sent with the zero that ends them in C.
    let shown = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    match std::str::from_utf8(shown) {
        Ok(text) if !text.chars().any(char::is_control) && !text.contains('\\') => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}
