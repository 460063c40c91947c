//! CBOR (RFC 8949) as `moc` writes it into plugins, decoded into borrowed [`Value`]s.

use std::borrow::Cow;

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};

use super::value::Value;

/// How deep values may be nested; real metadata has six levels.
const DEPTH: usize = 64;

/// Decodes one value at the decoder's place.
///
/// # Errors
///
/// What is no CBOR, ends early, or is nested too deep. Byte strings have no JSON form and are refused.
pub fn value<'a>(decoder: &mut Decoder<'a>) -> Result<Value<'a>, Error> {
    value_where(decoder, &|_| true)
}

/// Says of the name of a member whether it is wanted.
pub type Wanted<'w> = dyn Fn(&str) -> bool + 'w;

/// Decodes one value at the decoder's place, without the members of objects that are not wanted.
///
/// # Errors
///
/// As [`value`].
pub fn value_where<'a>(
    decoder: &mut Decoder<'a>,
    is_wanted: &Wanted<'_>,
) -> Result<Value<'a>, Error> {
    value_at(decoder, is_wanted, DEPTH)
}

fn value_at<'a>(
    decoder: &mut Decoder<'a>,
    is_wanted: &Wanted<'_>,
    depth: usize,
) -> Result<Value<'a>, Error> {
    let depth = depth.checked_sub(1).ok_or_else(|| Error::message("nested too deep"))?;
    Ok(match decoder.datatype()? {
        Type::Bool => Value::Bool(decoder.bool()?),
        Type::Null | Type::Undefined => {
            decoder.skip()?;
            Value::Null
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
                .map_or_else(|_| Value::Float(i128::from(number) as f64), Value::Int)
        }
        Type::F16 | Type::F32 | Type::F64 => Value::Float(decoder.f64()?),
        Type::String | Type::StringIndef => Value::Text(text(decoder)?),
        Type::Array | Type::ArrayIndef => {
            let count = decoder.array()?;
            // Each item takes a byte at least, so that a length which lies ends at the end of the bytes.
            let mut items = Vec::new();
            while more(decoder, count, items.len())? {
                items.push(value_at(decoder, is_wanted, depth)?);
            }
            Value::List(items)
        }
        Type::Map | Type::MapIndef => {
            let count = decoder.map()?;
            let (mut members, mut passed) = (Vec::new(), 0);
            while more(decoder, count, members.len() + passed)? {
                let name = match decoder.datatype()? {
                    Type::String | Type::StringIndef => text(decoder)?,
                    _ => Cow::Owned(decoder.int()?.to_string()),
                };
                if is_wanted(&name) {
                    members.push((name, value_at(decoder, is_wanted, depth)?));
                } else {
                    passed += 1;
                    decoder.skip()?;
                }
            }
            Value::Object(members)
        }
        Type::Tag => {
            decoder.tag()?;
            value_at(decoder, is_wanted, depth)?
        }
        other => return Err(Error::type_mismatch(other)),
    })
}

/// Says whether another item follows in a list or object of `count` items, or of any number until a break.
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
