//! The values of a body, as a tree that borrows from the message.
//!
//! Arrays are read when they are walked through, so a long one costs nothing until somebody wants it; what is read at
//! once is bounded by `MOST_PARTS` and a limit on the depth.

use super::cursor::Cursor;
use super::{DecodeFault, Header, LONGEST_ARRAY, WireError, signature};

/// How deeply arrays, structures and variants may be nested in all, as the reference implementation has it.
pub(crate) const DEEPEST: u8 = 64;
/// How many parts one value may have that are read at once: members of structures and what is in variants.
pub(crate) const MOST_PARTS: u32 = 1 << 16;

/// A value.
#[derive(Clone, Debug)]
pub enum BodyValue<'m> {
    /// `y`
    Byte(u8),
    /// `b`
    Boolean(bool),
    /// `n`
    Int16(i16),
    /// `q`
    Uint16(u16),
    /// `i`
    Int32(i32),
    /// `u`
    Uint32(u32),
    /// `x`
    Int64(i64),
    /// `t`
    Uint64(u64),
    /// `d`
    Double(f64),
    /// `s`
    Text(&'m str),
    /// `o`
    Path(&'m str),
    /// `g`
    Signature(&'m str),
    /// `h`: the place of a descriptor among those that came with the message.
    Descriptor(u32),
    /// `ay`
    Bytes(&'m [u8]),
    /// Any other array, dictionaries included.
    Array(Array<'m>),
    /// `(…)`
    Structure(Vec<BodyValue<'m>>),
    /// `{…}`: an element of a dictionary.
    Entry(Box<(BodyValue<'m>, BodyValue<'m>)>),
    /// `v`: the type of what is inside, and it.
    Variant(&'m str, Box<BodyValue<'m>>),
}

/// An array that is not read yet.
#[derive(Clone, Debug)]
pub struct Array<'m> {
    element: &'m str,
    items: Cursor<'m>,
    depth: u8,
}

impl<'m> Array<'m> {
    /// Returns the type of its elements.
    #[must_use]
    pub fn element(&self) -> &'m str {
        self.element
    }

    /// Says whether it is a dictionary.
    #[must_use]
    pub fn is_dictionary(&self) -> bool {
        self.element.starts_with('{')
    }

    /// Says whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_at_end()
    }

    /// Reads its elements, in order; after an error nothing follows.
    #[must_use]
    pub fn items(&self) -> Items<'m> {
        Items { element: self.element, items: self.items.clone(), depth: self.depth, over: false }
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Items<'m> {
    element: &'m str,
    items: Cursor<'m>,
    depth: u8,
    over: bool,
}

impl<'m> Iterator for Items<'m> {
    type Item = Result<BodyValue<'m>, WireError>;

    fn next(&mut self) -> Option<Result<BodyValue<'m>, WireError>> {
        if self.over || self.items.is_at_end() {
            return None;
        }
        let mut parts = MOST_PARTS;
        let read = value(&mut self.items, self.element, self.depth, &mut parts);
        // What ends within an element is the array's fault, not a message that was cut off.
        let read = read.map_err(|error| match error.fault {
            DecodeFault::Cut => WireError { fault: DecodeFault::Array, at: error.at },
            _ => error,
        });
        self.over = read.is_err();
        Some(read)
    }
}

/// The values of a body.
#[derive(Clone, Debug)]
pub struct Values<'m> {
    signature: &'m str,
    cursor: Cursor<'m>,
    length: usize,
}

/// Reads the values of a message's body, in order; after an error nothing follows.
///
/// Of a body that was cut off, those that are whole come first and then [`DecodeFault::Cut`].
#[must_use]
pub fn values<'m>(header: &Header<'m>) -> Values<'m> {
    Values {
        signature: header.signature,
        cursor: Cursor::new(header.body, 0, header.endian),
        length: usize::try_from(header.body_length).unwrap_or(usize::MAX),
    }
}

impl<'m> Iterator for Values<'m> {
    type Item = Result<BodyValue<'m>, WireError>;

    fn next(&mut self) -> Option<Result<BodyValue<'m>, WireError>> {
        let Some((first, rest)) = signature::first(self.signature) else {
            let at = self.cursor.at();
            let trailing = at < self.length && self.length != usize::MAX;
            self.length = usize::MAX;
            return trailing.then_some(Err(WireError { fault: DecodeFault::Trailing, at }));
        };
        let read = value(&mut self.cursor, first, 0, &mut { MOST_PARTS });
        if read.is_ok() {
            self.signature = rest;
        } else {
            (self.signature, self.length) = ("", usize::MAX);
        }
        Some(read)
    }
}

/// Checks a whole body: every value in every array.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check(header: &Header<'_>) -> Result<(), WireError> {
    values(header).try_for_each(|value| check_value(&value?))
}

fn check_value(value: &BodyValue<'_>) -> Result<(), WireError> {
    match value {
        BodyValue::Array(array) => {
            // Numbers of which every pattern of bits is one need no look, only a length that fits.
            array.items().try_for_each(|item| check_value(&item?))
        }
        BodyValue::Structure(members) => members.iter().try_for_each(check_value),
        BodyValue::Entry(entry) => {
            check_value(&entry.0)?;
            check_value(&entry.1)
        }
        BodyValue::Variant(_, inside) => check_value(inside),
        _ => Ok(()),
    }
}

/// Passes over a value of this type, which must be one complete type, and checks it.
pub(super) fn skip<'m>(cursor: &mut Cursor<'m>, types: &'m str) -> Result<(), WireError> {
    if !signature::is_single(types) {
        return Err(cursor.fault(DecodeFault::Signature));
    }
    check_value(&value(cursor, types, 1, &mut { MOST_PARTS })?)
}

/// Reads one value of a type that was checked to be complete.
fn value<'m>(
    cursor: &mut Cursor<'m>,
    types: &'m str,
    depth: u8,
    parts: &mut u32,
) -> Result<BodyValue<'m>, WireError> {
    *parts = parts.checked_sub(1).ok_or(cursor.fault(DecodeFault::TooDeep))?;
    let code = types.as_bytes().first().copied().ok_or(cursor.fault(DecodeFault::Signature))?;
    Ok(match code {
        b'y' => BodyValue::Byte(cursor.u8()?),
        b'b' => match cursor.u32()? {
            0 => BodyValue::Boolean(false),
            1 => BodyValue::Boolean(true),
            _ => return Err(cursor.fault(DecodeFault::Boolean)),
        },
        b'n' => BodyValue::Int16(cursor.u16()?.cast_signed()),
        b'q' => BodyValue::Uint16(cursor.u16()?),
        b'i' => BodyValue::Int32(cursor.u32()?.cast_signed()),
        b'u' => BodyValue::Uint32(cursor.u32()?),
        b'x' => BodyValue::Int64(cursor.u64()?.cast_signed()),
        b't' => BodyValue::Uint64(cursor.u64()?),
        b'd' => BodyValue::Double(f64::from_bits(cursor.u64()?)),
        b's' => BodyValue::Text(cursor.text()?),
        b'o' => {
            let fault = cursor.fault(DecodeFault::Name("object path"));
            let path = cursor.text()?;
            BodyValue::Path(if super::grammar::is_path(path) { path } else { return Err(fault) })
        }
        b'g' => {
            let fault = cursor.fault(DecodeFault::Signature);
            let text = cursor.signature()?;
            signature::check(text).map_err(|_| fault)?;
            BodyValue::Signature(text)
        }
        b'h' => BodyValue::Descriptor(cursor.u32()?),
        b'a' => array(cursor, &types[1..], depth)?,
        b'(' | b'{' => structure(cursor, types, depth, parts)?,
        b'v' => {
            let fault = cursor.fault(DecodeFault::Signature);
            let inside = cursor.signature()?;
            if !signature::is_single(inside) {
                return Err(fault);
            }
            let depth = deeper(cursor, depth)?;
            BodyValue::Variant(inside, Box::new(value(cursor, inside, depth, parts)?))
        }
        _ => return Err(cursor.fault(DecodeFault::Signature)),
    })
}

fn deeper(cursor: &Cursor<'_>, depth: u8) -> Result<u8, WireError> {
    if depth < DEEPEST { Ok(depth + 1) } else { Err(cursor.fault(DecodeFault::TooDeep)) }
}

fn array<'m>(
    cursor: &mut Cursor<'m>,
    element: &'m str,
    depth: u8,
) -> Result<BodyValue<'m>, WireError> {
    let length = cursor.u32()?;
    if length > LONGEST_ARRAY {
        return Err(cursor.fault(DecodeFault::TooLong));
    }
    let code = element.as_bytes().first().copied().unwrap_or_default();
    // The padding before the first element is not part of the length, and is there without elements too.
    cursor.pad(signature::alignment(code))?;
    let length = usize::try_from(length).map_err(|_| cursor.fault(DecodeFault::TooLong))?;
    let items = cursor.within(length)?;
    let bytes = cursor.take(length)?;
    let depth = deeper(cursor, depth)?;
    if code == b'y' {
        return Ok(BodyValue::Bytes(bytes));
    }
    if signature::fixed(code).is_some_and(|size| length % size != 0) {
        return Err(cursor.fault(DecodeFault::Array));
    }
    Ok(BodyValue::Array(Array { element, items, depth }))
}

fn structure<'m>(
    cursor: &mut Cursor<'m>,
    types: &'m str,
    depth: u8,
    parts: &mut u32,
) -> Result<BodyValue<'m>, WireError> {
    cursor.pad(8)?;
    let depth = deeper(cursor, depth)?;
    let mut rest = &types[1..types.len() - 1];
    let mut members = Vec::new();
    while let Some((first, after)) = signature::first(rest) {
        members.push(value(cursor, first, depth, parts)?);
        rest = after;
    }
    if !types.starts_with('{') {
        return Ok(BodyValue::Structure(members));
    }
    let [key, value] = <[BodyValue<'m>; 2]>::try_from(members)
        .map_err(|_| cursor.fault(DecodeFault::Signature))?;
    Ok(BodyValue::Entry(Box::new((key, value))))
}
