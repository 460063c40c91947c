//! The values of a body as JSON: as they are meant, not as they are typed; the types are in the signature.

use std::io::Write;

use crate::bus::wire::body::{Array, Value, values};
use crate::bus::wire::{Header, WireError};

/// Writes `"body":[…]`, and what is wrong with it if it is not read to its end.
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

fn write(out: &mut Vec<u8>, value: &Value<'_>) -> Result<(), WireError> {
    match value {
        Value::Byte(byte) => number(out, byte),
        Value::Boolean(truth) => number(out, truth),
        Value::Int16(value) => number(out, value),
        Value::Uint16(value) => number(out, value),
        Value::Int32(value) => number(out, value),
        Value::Uint32(value) | Value::Descriptor(value) => number(out, value),
        Value::Int64(value) => number(out, value),
        Value::Uint64(value) => number(out, value),
        // JSON has no infinity.
        Value::Double(value) => drop(serde_json::to_writer(out, value)),
        Value::Text(value) | Value::Path(value) | Value::Signature(value) => text(out, value),
        Value::Bytes(bytes) => text(out, &readable(bytes)),
        Value::Array(array) if is_object(array) => object(out, array)?,
        Value::Array(array) => list(out, array.items())?,
        Value::Structure(members) => list(out, members.iter().cloned().map(Ok))?,
        Value::Entry(entry) => list(out, [entry.0.clone(), entry.1.clone()].into_iter().map(Ok))?,
        Value::Variant(_, inside) => write(out, inside)?,
    }
    Ok(())
}

/// Says whether an array's elements have names.
fn is_object(array: &Array<'_>) -> bool {
    array.is_dictionary() && matches!(array.element().as_bytes(), [_, b's' | b'o' | b'g', ..])
}

fn object(out: &mut Vec<u8>, array: &Array<'_>) -> Result<(), WireError> {
    out.push(b'{');
    let mut first = true;
    for item in array.items() {
        let Value::Entry(entry) = item? else { continue };
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
    items: impl Iterator<Item = Result<Value<'m>, WireError>>,
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
