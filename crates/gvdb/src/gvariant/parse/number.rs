//! Number tokens.

use super::super::ParseError;
use super::super::double;
use super::error;
use super::syntax::Tree;

/// Says whether a number token can only be a double.
pub(super) fn is_double(token: &[u8]) -> bool {
    let has = |part: &[u8]| token.windows(part.len()).any(|window| window == part);
    has(b".") || (!token.starts_with(b"0x") && has(b"e")) || has(b"inf") || has(b"nan")
}

/// Reads the number `token` of `tree` as a double.
pub(super) fn double(tree: &Tree<'_>, token: &[u8]) -> Result<f64, ParseError> {
    let read = double::read(token);
    if read.number != 0.0 && read.out_of_range {
        return Err(tree.error("number too big for any type"));
    }
    check_end(tree, token, read.len)?;
    Ok(read.number)
}

/// A whole number: its sign apart, so that it has room for all types.
#[derive(Clone, Copy, Debug)]
pub(super) struct Integer {
    negative: bool,
    magnitude: u64,
}

impl Integer {
    /// Reads the number `token` of `tree` as a whole number.
    pub(super) fn read(tree: &Tree<'_>, token: &[u8]) -> Result<Integer, ParseError> {
        let (negative, text) = match token.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, token),
        };
        let Ok((magnitude, len)) = magnitude(text) else {
            return Err(tree.error("integer too big for any type"));
        };
        check_end(tree, token, token.len() - text.len() + len)?;
        Ok(Integer { negative: negative && magnitude != 0, magnitude })
    }

    /// Returns the value if a signed type up to `max` holds it.
    pub(super) fn signed(self, max: i64) -> Option<i64> {
        let magnitude = self.magnitude.checked_sub(u64::from(self.negative))?;
        let value = i64::try_from(magnitude).ok().filter(|&value| value <= max)?;
        // The complement of one less is the negative.
        Some(if self.negative { !value } else { value })
    }

    /// Returns the value if an unsigned type up to `max` holds it.
    pub(super) fn unsigned(self, max: u64) -> Option<u64> {
        (!self.negative && self.magnitude <= max).then_some(self.magnitude)
    }
}

/// The number has more than 64 bits.
struct Overflow;

/// Reads a whole number as C's `strtoull` with base 0 does: a sign of its own, then hexadecimal, octal or decimal.
/// Returns the value, negated in 64 bits if it had a minus, and how many bytes belong to it.
fn magnitude(text: &[u8]) -> Result<(u64, usize), Overflow> {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let body = &text[sign..];
    let (base, prefix) = match body {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => (16, 2),
        [b'0', ..] => (8, 0),
        _ => (10, 0),
    };
    let digits = body[prefix..].iter().map_while(|&c| char::from(c).to_digit(base));
    let count = digits.clone().count();
    if count == 0 {
        return Ok((0, 0));
    }
    let mut value = 0_u64;
    for digit in digits {
        value = value
            .checked_mul(u64::from(base))
            .and_then(|value| value.checked_add(u64::from(digit)))
            .ok_or(Overflow)?;
    }
    let value = if text.first() == Some(&b'-') { value.wrapping_neg() } else { value };
    Ok((value, sign + prefix + count))
}

/// Checks that the number in `token` is as long as the token.
fn check_end(tree: &Tree<'_>, token: &[u8], len: usize) -> Result<(), ParseError> {
    if len == token.len() {
        return Ok(());
    }
    let at = tree.at.start + len;
    Err(error(&(at..at + 1), "invalid character in number"))
}
