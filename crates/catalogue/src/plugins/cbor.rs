//! CBOR (RFC 8949) as `moc` writes it into plugins, decoded into borrowed [`JsonValue`]s.

use std::borrow::Cow;

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};

use super::value::JsonValue;

/// How deep values may be nested; real metadata has six levels.
const DEPTH: usize = 64;

/// Says of the bytes of a member's name whether it is wanted: most are not, and are not looked at as text.
pub(crate) type MemberFilter<'w> = dyn Fn(&[u8]) -> bool + 'w;

/// Decodes one value at the decoder's place, without the members of objects that are not wanted.
///
/// # Errors
///
/// What is no CBOR, ends early, or is nested too deep. Byte strings have no JSON form and are refused.
pub(crate) fn value_where<'a>(
    decoder: &mut Decoder<'a>,
    is_wanted: &MemberFilter<'_>,
) -> Result<JsonValue<'a>, Error> {
    value_at(decoder, is_wanted, DEPTH)
}

fn value_at<'a>(
    decoder: &mut Decoder<'a>,
    is_wanted: &MemberFilter<'_>,
    depth: usize,
) -> Result<JsonValue<'a>, Error> {
    if let Some(bytes) = text_bytes(decoder) {
        return utf8(bytes).map(|text| JsonValue::Text(text.into()));
    }
    let depth = depth.checked_sub(1).ok_or_else(|| Error::message("nested too deep"))?;
    Ok(match decoder.datatype()? {
        Type::Bool => JsonValue::Bool(decoder.bool()?),
        Type::Null | Type::Undefined => {
            decoder.skip()?;
            JsonValue::Null
        }
        Type::U8
        | Type::U16
        | Type::U32
        | Type::U64
        | Type::I8
        | Type::I16
        | Type::I32
        | Type::I64
        | Type::Int => {
            let number = decoder.int()?;
            i64::try_from(number)
                .map_or_else(|_| JsonValue::Float(i128::from(number) as f64), JsonValue::Int)
        }
        Type::F16 | Type::F32 | Type::F64 => JsonValue::Float(decoder.f64()?),
        Type::String | Type::StringIndef => JsonValue::Text(text(decoder)?),
        Type::Array | Type::ArrayIndef => {
            let count = decoder.array()?;
            // Each item takes a byte at least, so that a length which lies ends at the end of the bytes.
            let mut items = Vec::new();
            while more(decoder, count, items.len())? {
                items.push(value_at(decoder, is_wanted, depth)?);
            }
            JsonValue::List(items)
        }
        Type::Map | Type::MapIndef => {
            let count = decoder.map()?;
            let (mut members, mut passed) = (Vec::new(), 0);
            while more(decoder, count, members.len() + passed)? {
                let name = match text_bytes(decoder) {
                    Some(name) if is_wanted(name) => Cow::Borrowed(utf8(name)?),
                    Some(_) => {
                        passed += 1;
                        skip(decoder)?;
                        continue;
                    }
                    None if decoder.datatype()? == Type::StringIndef => text(decoder)?,
                    None => Cow::Owned(decoder.int()?.to_string()),
                };
                if is_wanted(name.as_bytes()) {
                    members.push((name, value_at(decoder, is_wanted, depth)?));
                } else {
                    passed += 1;
                    skip(decoder)?;
                }
            }
            JsonValue::Object(members)
        }
        Type::Tag => {
            decoder.tag()?;
            value_at(decoder, is_wanted, depth)?
        }
        other => return Err(Error::type_mismatch(other)),
    })
}

/// Passes over one value; a text is not looked at.
fn skip(decoder: &mut Decoder<'_>) -> Result<(), Error> {
    if text_bytes(decoder).is_some() { Ok(()) } else { decoder.skip() }
}

/// Returns the bytes of the text at the decoder's place and passes over it; none, and nothing is passed, where there is none that is whole and in one part.
fn text_bytes<'a>(decoder: &mut Decoder<'a>) -> Option<&'a [u8]> {
    let (bytes, at) = (decoder.input(), decoder.position());
    if bytes.get(at)? >> 5 != 3 {
        return None;
    }
    let span = text_span(bytes, at)?;
    decoder.set_position(span.end);
    bytes.get(span)
}

fn utf8(bytes: &[u8]) -> Result<&str, Error> {
    str::from_utf8(bytes).map_err(|_| Error::message("not UTF-8 text"))
}

/// Returns where the text is whose head is at `at`: its length is in the low bits of its first byte, or in the bytes after it.
fn text_span(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let rest = bytes.get(at + 1..)?;
    let (head, len) = match bytes.get(at)? & 0x1f {
        len @ 0..24 => (1, u64::from(len)),
        24 => (2, u64::from(*rest.first()?)),
        25 => (3, u64::from(u16::from_be_bytes(*rest.first_chunk()?))),
        26 => (5, u64::from(u32::from_be_bytes(*rest.first_chunk()?))),
        27 => (9, u64::from_be_bytes(*rest.first_chunk()?)),
        _ => return None,
    };
    let start = at.checked_add(head)?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    (end <= bytes.len()).then_some(start..end)
}

/// Returns whether another item follows in a list or object of `count` items, or of any number until a break.
pub(super) fn more(
    decoder: &mut Decoder<'_>,
    count: Option<u64>,
    have: usize,
) -> Result<bool, Error> {
    if let Some(count) = count {
        return Ok((have as u64) < count);
    }
    if decoder.datatype()? == Type::Break {
        decoder.skip()?;
        return Ok(false);
    }
    Ok(true)
}

fn text<'a>(decoder: &mut Decoder<'a>) -> Result<Cow<'a, str>, Error> {
    if decoder.datatype()? == Type::String {
        return decoder.str().map(Cow::Borrowed);
    }
    let parts: Result<String, Error> = decoder.str_iter()?.collect();
    parts.map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map with a text of so many bytes that is not wanted, and `{"k": 1}` after it.
    fn map(len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = minicbor::Encoder::new(&mut bytes);
        let text = "x".repeat(len);
        encoder.map(2).unwrap().str("Name[de]").unwrap().str(&text).unwrap();
        encoder.str("k").unwrap().u8(1).unwrap();
        bytes
    }

    #[test]
    fn what_is_not_wanted_is_passed_over_whatever_its_length() {
        for len in [0, 1, 23, 24, 255, 256, 65_535, 65_536] {
            let bytes = map(len);
            let read = |wanted: &MemberFilter<'_>| value_where(&mut Decoder::new(&bytes), wanted);
            let one = JsonValue::Object(vec![("k".into(), JsonValue::Int(1))]);
            assert_eq!(read(&|name| !name.contains(&b'[')).unwrap(), one);
            assert_eq!(read(&|_| true).unwrap().members().len(), 2);
            for cut in 0..bytes.len().min(300) {
                let cut = &bytes[..cut];
                assert!(value_where(&mut Decoder::new(cut), &|name| name == b"k").is_err());
            }
        }
    }
}
