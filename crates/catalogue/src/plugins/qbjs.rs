//! Qt's binary JSON (`qbjs`), in which `moc` of Qt 5 before 5.12 wrote metadata.
//!
//! A document is `qbjs`, a version (1) and a base; a base is an object or a list: its size, a flag with its length, the offset of a table, the items, the table.
//! All numbers are little-endian; offsets count from the base that they are in.

use std::borrow::Cow;

use super::value::JsonValue;

/// How deep values may be nested.
const DEPTH: usize = 64;

/// The most values in one document: a hostile table may point at one item again and again.
const VALUES: usize = 200_000;

/// A document that cannot be right.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a binary JSON document of Qt")]
pub(crate) struct InvalidDocument;

struct Reader<'a> {
    left: usize,
    bytes: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Decodes the document at the start of `bytes`.
///
/// # Errors
///
/// The bytes are no such document, or lead outside of it.
pub(crate) fn decode(bytes: &[u8]) -> Result<JsonValue<'_>, InvalidDocument> {
    if !bytes.starts_with(b"qbjs") || u32_at(bytes, 4) != Some(1) {
        return Err(InvalidDocument);
    }
    let base = bytes.get(8..).ok_or(InvalidDocument)?;
    Reader { left: VALUES, bytes: base }.base(0, DEPTH).ok_or(InvalidDocument)
}

impl<'a> Reader<'a> {
    /// Decodes the object or list at `at`.
    fn base(&mut self, at: usize, depth: usize) -> Option<JsonValue<'a>> {
        let depth = depth.checked_sub(1)?;
        let size = u32_at(self.bytes, at)? as usize;
        let base = self.bytes.get(at..at.checked_add(size)?)?;
        let head = u32_at(base, 4)?;
        let table = u32_at(base, 8)? as usize;
        let (is_object, count) = (head & 1 == 1, (head >> 1) as usize);
        // The table must fit, which bounds the count.
        base.get(table..table.checked_add(count.checked_mul(4)?)?)?;
        if !is_object {
            let items = (0..count).map(|i| {
                let value = u32_at(base, table + i * 4)?;
                self.value(base, at, value, depth)
            });
            return items.collect::<Option<Vec<_>>>().map(JsonValue::List);
        }
        let members = (0..count).map(|i| {
            let entry = u32_at(base, table + i * 4)? as usize;
            let value = u32_at(base, entry)?;
            let name = text(base, entry.checked_add(4)?, value & 0x10 != 0)?;
            Some((name, self.value(base, at, value, depth)?))
        });
        members.collect::<Option<Vec<_>>>().map(JsonValue::Object)
    }

    /// Decodes one value: three bits of type, a bit each for a short text or whole number and for a short key, 27 bits of data.
    fn value(
        &mut self,
        base: &'a [u8],
        base_at: usize,
        value: u32,
        depth: usize,
    ) -> Option<JsonValue<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (kind, latin_or_int, data) = (value & 7, value & 8 != 0, value >> 5);
        Some(match kind {
            0 => JsonValue::Null,
            1 => JsonValue::Bool(data != 0),
            // 27 bits with a sign.
            2 if latin_or_int => JsonValue::Int(i64::from((value.cast_signed()) >> 5)),
            2 => {
                let at = data as usize;
                let bytes = base.get(at..at.checked_add(8)?)?.try_into().ok()?;
                JsonValue::Float(f64::from_le_bytes(bytes))
            }
            3 => JsonValue::Text(text(base, data as usize, latin_or_int)?),
            4 | 5 => self.base(base_at.checked_add(data as usize)?, depth)?,
            _ => return None,
        })
    }
}

/// Reads a text: Latin-1 with a length of two bytes, or UTF-16 with a length of four.
fn text(base: &[u8], at: usize, is_latin: bool) -> Option<Cow<'_, str>> {
    if is_latin {
        let len = base.get(at..at.checked_add(2)?)?;
        let len = usize::from(u16::from_le_bytes(len.try_into().ok()?));
        let bytes = base.get(at + 2..at.checked_add(2)?.checked_add(len)?)?;
        if bytes.is_ascii() {
            return str::from_utf8(bytes).ok().map(Cow::Borrowed);
        }
        return Some(bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into());
    }
    let len = u32_at(base, at)? as usize;
    let bytes = base.get(at + 4..at.checked_add(4)?.checked_add(len.checked_mul(2)?)?)?;
    let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let text: String =
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    Some(text.into())
}
