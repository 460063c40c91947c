//! Cuts a text into tokens, one ahead.

use std::ops::Range;

use super::super::ParseError;
use super::error;

/// The tokens of a text.
pub(super) struct Tokens<'t> {
    text: &'t [u8],
    /// Behind the last token that was cut off.
    end: usize,
    /// Where the token that was cut off but not taken begins.
    start: Option<usize>,
}

impl<'t> Tokens<'t> {
    /// Starts at the first token; a zero ends the text.
    pub(super) fn new(text: &'t [u8]) -> Tokens<'t> {
        let len = text.iter().position(|&c| c == 0).unwrap_or(text.len());
        Tokens { text: &text[..len], end: 0, start: None }
    }

    /// Returns the next token without taking it; empty at the end of the text.
    pub(super) fn peek(&mut self) -> &'t [u8] {
        let start = match self.start {
            Some(start) => start,
            None => {
                let rest = &self.text[self.end..];
                let start = self.end + rest.iter().take_while(|&&c| is_space(c)).count();
                self.end = start + token_len(&self.text[start..]);
                self.start = Some(start);
                start
            }
        };
        &self.text[start..self.end]
    }

    /// Takes the next token.
    pub(super) fn take(&mut self) -> &'t [u8] {
        let token = self.peek();
        self.start = None;
        token
    }

    /// Takes the next token if it is `token`.
    pub(super) fn consume(&mut self, token: &str) -> bool {
        let found = self.peek() == token.as_bytes();
        if found {
            self.start = None;
        }
        found
    }

    /// Takes the next token, which must be `token`; `purpose` says why.
    pub(super) fn require(&mut self, token: &str, purpose: &str) -> Result<(), ParseError> {
        if self.consume(token) {
            Ok(())
        } else {
            Err(self.error_here(&format!("expected '{token}'{purpose}")))
        }
    }

    /// Returns where the next token lies.
    pub(super) fn range(&mut self) -> Range<usize> {
        let len = self.peek().len();
        self.end - len..self.end
    }

    /// Returns where the last token that was taken ends.
    pub(super) fn taken_to(&self) -> usize {
        self.end
    }

    /// Makes an error about the place where the next token begins.
    pub(super) fn error_here(&mut self, message: &str) -> ParseError {
        let start = self.range().start;
        error(&(start..start), message)
    }

    /// Makes an error about the next token.
    pub(super) fn error_token(&mut self, message: &str) -> ParseError {
        error(&self.range(), message)
    }

    /// Checks that nothing but space is left.
    pub(super) fn expect_end(&mut self) -> Result<(), ParseError> {
        if self.peek().is_empty() { Ok(()) } else { Err(self.error_here("expected end of input")) }
    }
}

/// White space as GLib's C locale has it, without the vertical tab.
fn is_space(c: u8) -> bool {
    matches!(c, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)
}

/// Returns the length of the token at the start of `text`, which is not space.
fn token_len(text: &[u8]) -> usize {
    let while_in = |accept: fn(u8) -> bool| text.iter().take_while(|&&c| accept(c)).count();
    match text {
        [] => 0,
        [b'-' | b'+' | b'.' | b'0'..=b'9', ..] => {
            while_in(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'+' | b'.'))
        }
        [b'b', quote @ (b'\'' | b'"'), rest @ ..] => 2 + quoted_len(rest, *quote),
        [b'a'..=b'z', ..] => while_in(|c| c.is_ascii_alphanumeric()),
        [quote @ (b'\'' | b'"'), rest @ ..] => 1 + quoted_len(rest, *quote),
        [b'@' | b'%', rest @ ..] => 1 + type_len(rest),
        _ => 1,
    }
}

/// Returns the length of what follows an opening quote, up to and with the closing one.
fn quoted_len(text: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while let Some(&c) = text.get(at) {
        at += 1;
        if c == quote {
            return at;
        }
        if c == b'\\' && at < text.len() {
            at += 1;
        }
    }
    at
}

/// Returns the length of a type: up to a space, comma, colon or a bracket that closes nothing in it.
fn type_len(text: &[u8]) -> usize {
    let mut open = 0_usize;
    for (at, &c) in text.iter().enumerate() {
        match c {
            b',' | b':' | b'>' | b']' => return at,
            c if is_space(c) => return at,
            b'(' | b'{' => open += 1,
            b')' | b'}' if open == 0 => return at,
            b')' | b'}' => open -= 1,
            _ => (),
        }
    }
    text.len()
}
