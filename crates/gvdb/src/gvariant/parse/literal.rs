//! Strings and bytestrings: undoing escapes.

use std::ops::Range;

use super::super::ParseError;
use super::error;

/// Undoes the escapes of a string token that stands at `at`; the result may not be valid UTF-8.
pub(super) fn string(token: &[u8], at: &Range<usize>) -> Result<Vec<u8>, ParseError> {
    let mut out = Vec::with_capacity(token.len());
    let mut position = 1;
    while let Some(c) = next_escape(token, 0, &mut position, &mut out, at)? {
        let digits = match c {
            b'u' => 4,
            b'U' => 8,
            other => {
                out.push(other);
                continue;
            }
        };
        let text = token.get(position..).unwrap_or(&[]);
        let valid = text.iter().take(digits).take_while(|c| c.is_ascii_hexdigit()).count();
        let number = std::str::from_utf8(&text[..valid])
            .ok()
            .and_then(|text| u32::from_str_radix(text, 16).ok())
            .filter(|&number| valid == digits && number != 0);
        let Some(number) = number else {
            let start = at.start + position;
            let message = format!("invalid {digits}-character unicode escape");
            return Err(error(&(start..start + valid), &message));
        };
        match char::from_u32(number) {
            Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            // No string, path or signature holds this; which one it was meant for decides the error.
            None => out.push(0xff),
        }
        position += digits;
    }
    Ok(out)
}

/// Undoes the escapes of a bytestring token that stands at `at`.
pub(super) fn bytestring(token: &[u8], at: &Range<usize>) -> Result<Vec<u8>, ParseError> {
    let mut out = Vec::with_capacity(token.len());
    let mut position = 2;
    while let Some(c) = next_escape(token, 1, &mut position, &mut out, at)? {
        if !(b'0'..=b'7').contains(&c) {
            out.push(c);
            continue;
        }
        let mut value = c - b'0';
        for _ in 0..2 {
            match token.get(position) {
                // The bits that three digits have too many fall off.
                Some(c @ b'0'..=b'7') => value = value << 3 | (c - b'0'),
                _ => break,
            }
            position += 1;
        }
        out.push(value);
    }
    Ok(out)
}

/// Copies up to the next escape that is not the same in strings and bytestrings, and returns its character;
/// `None` behind the closing quote, which is the one at `quote`.
fn next_escape(
    token: &[u8],
    quote: usize,
    position: &mut usize,
    out: &mut Vec<u8>,
    at: &Range<usize>,
) -> Result<Option<u8>, ParseError> {
    let unterminated = || error(at, "unterminated string constant");
    let quote = token.get(quote).copied().ok_or_else(unterminated)?;
    loop {
        let c = *token.get(*position).ok_or_else(unterminated)?;
        *position += 1;
        if c == quote {
            return Ok(None);
        }
        if c != b'\\' {
            out.push(c);
            continue;
        }
        let escaped = *token.get(*position).ok_or_else(unterminated)?;
        *position += 1;
        match escaped {
            b'a' => out.push(0x07),
            b'b' => out.push(0x08),
            b'f' => out.push(0x0c),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(0x0b),
            // A line may go on behind a backslash.
            b'\n' => (),
            other => return Ok(Some(other)),
        }
    }
}
