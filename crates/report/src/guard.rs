//! The last net before a terminal: a writer that lets through nothing that a terminal obeys but line ends and our own tones.
//!
//! It is no substitute for [`crate::text::visible`], which also keeps a name from beginning a line or setting a tone.

use std::io::{self, Write};

use crate::paint::Paint;
use crate::text::{is_shown, json_escaped, spelled};

/// What is written through a [`Guard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text for people.
    Text,
    /// JSON documents: an escape is one of JSON's, so that the document stays what it is.
    Json,
}

/// Passes printable text, line ends, tabs and the escape sequences of [`Paint::set`], and escapes everything else.
#[derive(Debug)]
pub struct Guard<W: Write> {
    inner: W,
    paint: Paint,
    content: Content,
    /// The beginning of a character or of an escape sequence, whose rest has not come yet.
    pending: Vec<u8>,
}

impl<W: Write> Guard<W> {
    /// Guards `inner`, a terminal that shows text as `paint` says.
    pub fn new(inner: W, paint: Paint, content: Content) -> Guard<W> {
        Guard { inner, paint, content, pending: Vec::new() }
    }

    fn pass(&mut self, bytes: &[u8], is_end: bool) -> io::Result<()> {
        let mut shown = String::with_capacity(bytes.len() + 16);
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            if first == b'\x1b' && self.content == Content::Text && self.paint.is_coloured() {
                match tone(rest) {
                    Sequence::Whole(sequence) => {
                        shown.push_str(sequence);
                        rest = &rest[sequence.len()..];
                        continue;
                    }
                    Sequence::Begun if !is_end => break,
                    Sequence::Begun | Sequence::Other => (),
                }
            }
            match first_letter(rest) {
                Letter::Char(letter) => {
                    self.letter(&mut shown, letter);
                    rest = &rest[letter.len_utf8()..];
                }
                Letter::Begun if !is_end => break,
                Letter::Begun | Letter::None => {
                    shown.push_str(&format!("\\x{first:02x}"));
                    rest = &rest[1..];
                }
            }
        }
        self.pending = rest.to_vec();
        self.inner.write_all(shown.as_bytes())
    }

    fn letter(&self, shown: &mut String, letter: char) {
        let charset = self.paint.charset();
        if matches!(letter, '\n' | '\t') || is_shown(letter, charset) {
            shown.push(letter);
        } else {
            let mut bytes = [0; 4];
            let letter = letter.encode_utf8(&mut bytes);
            shown.push_str(&match self.content {
                Content::Json => json_escaped(letter, charset),
                Content::Text => spelled(letter, charset),
            });
        }
    }

    /// Writes what is pending as it is, and returns the first error.
    fn settle(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() { Ok(()) } else { self.pass(&pending, true) }
    }
}

impl<W: Write> Write for Guard<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
        if self.pending.is_empty() && bytes.iter().all(is_plain) {
            self.inner.write_all(bytes)?;
        } else {
            let mut all = std::mem::take(&mut self.pending);
            all.extend_from_slice(bytes);
            self.pass(&all, false)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.settle()?;
        self.inner.flush()
    }
}

impl<W: Write> Drop for Guard<W> {
    fn drop(&mut self) {
        // Who wants to know of an error flushes.
        let _ = self.settle();
    }
}

enum Sequence {
    /// It sets or ends one of our tones.
    Whole(&'static str),
    /// More may make it one.
    Begun,
    Other,
}

/// Reads one of our own escape sequences at the beginning of `bytes`.
fn tone(bytes: &[u8]) -> Sequence {
    let all = SEQUENCES.iter().copied();
    if let Some(whole) = all.clone().find(|sequence| bytes.starts_with(sequence.as_bytes())) {
        return Sequence::Whole(whole);
    }
    let is_begun = all.clone().any(|sequence| sequence.as_bytes().starts_with(bytes));
    if is_begun { Sequence::Begun } else { Sequence::Other }
}

/// The escape sequences of our tones, and those in which clap sets help.
const SEQUENCES: [&str; 7] =
    ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[4m", "\x1b[32m", "\x1b[33m", "\x1b[1;31m"];

enum Letter {
    Char(char),
    /// More bytes may make it a character.
    Begun,
    None,
}

fn first_letter(bytes: &[u8]) -> Letter {
    let part = &bytes[..bytes.len().min(4)];
    let (valid, is_begun) = match str::from_utf8(part) {
        Ok(text) => (text, false),
        Err(error) => {
            let valid = part.get(..error.valid_up_to()).unwrap_or_default();
            (str::from_utf8(valid).unwrap_or_default(), error.error_len().is_none())
        }
    };
    match valid.chars().next() {
        Some(letter) => Letter::Char(letter),
        None if is_begun => Letter::Begun,
        None => Letter::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paint::Tone;
    use proptest::prelude::*;

    fn through(paint: Paint, content: Content, pieces: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut guard = Guard::new(&mut out, paint, content);
        for piece in pieces {
            guard.write_all(piece).unwrap();
        }
        guard.flush().unwrap();
        drop(guard);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_tone_of_ours_passes() {
        for tone in Tone::ALL {
            let text = Paint::On.set(tone, "x") + "\n";
            assert_eq!(through(Paint::On, Content::Text, &[text.as_bytes()]), text);
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(through(Paint::On, Content::Text, &bytes), text, "in pieces");
        }
    }

    #[test]
    fn what_is_not_ours_is_escaped_also_where_it_comes_in_pieces() {
        let text = "a\x1b]0;t\x07\x1b[2J\u{9b}31m\r\u{202e}é\n";
        let safe = "a\\x1b]0;t\\x07\\x1b[2J\\u{9b}31m\\r\\u{202e}é\n";
        for paint in [Paint::On, Paint::Off] {
            assert_eq!(through(paint, Content::Text, &[text.as_bytes()]), safe);
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(through(paint, Content::Text, &bytes), safe);
        }
        let cut: [&[u8]; 2] = [b"\xff\xe2\x82", b"x\x1b["];
        assert_eq!(through(Paint::On, Content::Text, &cut), r"\xff\xe2\x82x\x1b[");
        assert_eq!(through(Paint::Off, Content::Text, &[b"\x1b[1mx"]), r"\x1b[1mx");
        assert_eq!(through(Paint::AsciiOff, Content::Text, &["3 µs é".as_bytes()]), r"3 us \u{e9}");
    }

    #[test]
    fn json_stays_the_same_document() {
        let text = "{\"a\u{9b}\u{7f}\": \"\u{202e}😀\u{e0001}\"}";
        let shown = through(Paint::AsciiOn, Content::Json, &[text.as_bytes()]);
        assert_eq!(shown, r#"{"a\u009b\u007f": "\u202e\ud83d\ude00\udb40\udc01"}"#);
    }

    proptest! {
        #[test]
        fn no_byte_that_a_terminal_obeys_comes_through(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..20),
        ) {
            let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
            for paint in [Paint::On, Paint::AsciiOn, Paint::Off, Paint::AsciiOff] {
                let mut shown = through(paint, Content::Text, &pieces);
                for sequence in SEQUENCES.iter().filter(|_| paint.is_coloured()) {
                    shown = shown.replace(sequence, "");
                }
                let is_obeyed = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
                prop_assert!(!shown.contains(is_obeyed), "{:?}", shown);
            }
        }
    }
}
