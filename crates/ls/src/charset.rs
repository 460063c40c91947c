//! Characters of names: what they are in the user's character set, whether they can be printed, and how wide they are.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};
use unicode_width::UnicodeWidthChar;

/// How the bytes of a name are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charset {
    /// One byte, one character; only those of ASCII can be printed.
    Ascii,
    /// UTF-8; bytes that are none stand for themselves.
    Utf8,
    /// The same for a terminal: characters that turn the reading order around or are invisible count as bytes that are none.
    /// GNU ls prints them.
    Utf8Terminal,
}

/// One character of a name, or bytes that are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A character.
    Char(char),
    /// A byte that begins no character.
    Byte,
    /// The beginning of a character that the end of the name cuts off: all bytes that are left.
    Cut,
}

impl Charset {
    /// Returns the same characters as a terminal may get them.
    pub(super) fn on_terminal(self) -> Charset {
        match self {
            Charset::Ascii => Charset::Ascii,
            Charset::Utf8 | Charset::Utf8Terminal => Charset::Utf8Terminal,
        }
    }

    /// Splits the first character off, with its length in bytes; nothing at the end.
    pub(super) fn first(self, name: &[u8]) -> Option<(Piece, usize)> {
        let byte = *name.first()?;
        if byte.is_ascii() {
            return Some((Piece::Char(char::from(byte)), 1));
        }
        if self == Charset::Ascii {
            return Some((Piece::Byte, 1));
        }
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return Some((Piece::Byte, 1)),
        };
        let taken = name.get(..length).unwrap_or(name);
        Some(match std::str::from_utf8(taken) {
            Ok(text) => match text.chars().next() {
                Some(letter) if self == Charset::Utf8 || is_harmless(letter) => {
                    (Piece::Char(letter), length)
                }
                _ => (Piece::Byte, 1),
            },
            // `error_len` is nothing where more bytes could make it whole.
            Err(error) if error.error_len().is_none() => (Piece::Cut, name.len()),
            Err(_) => (Piece::Byte, 1),
        })
    }

    /// Returns the columns that `text` takes; what cannot be printed takes none, a byte that is no character one.
    pub(super) fn width(self, text: &[u8]) -> usize {
        if text.iter().all(|byte| (0x20..0x7f).contains(byte)) {
            return text.len();
        }
        let mut width = 0;
        let mut rest = text;
        while let Some((piece, length)) = self.first(rest) {
            width += match piece {
                Piece::Char(letter) => columns(letter).unwrap_or(usize::from(!letter.is_control())),
                // A terminal of one-byte characters shows nothing for the others.
                Piece::Byte | Piece::Cut => usize::from(self != Charset::Ascii),
            };
            rest = &rest[length..];
        }
        width
    }
}

/// Says whether a terminal does nothing but show `letter`; those that it cannot show are told by [`is_printable`].
fn is_harmless(letter: char) -> bool {
    letter == '\u{ad}'
        || letter.general_category() != GeneralCategory::Format
        || report::text::is_shown(letter, report::text::Charset::Unicode)
}

/// Says whether a terminal shows `letter`, as the C library has it.
pub(super) fn is_printable(letter: char) -> bool {
    if letter.is_ascii() {
        return (' '..='~').contains(&letter);
    }
    !matches!(
        letter.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Unassigned
            | GeneralCategory::Surrogate
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    )
}

/// Returns the columns of a character that can be printed.
pub(super) fn columns(letter: char) -> Option<usize> {
    // glibc, whose widths terminals follow, gives spacing marks and the soft hyphen a column.
    let least = match letter.general_category() {
        _ if letter.is_ascii() => 1,
        GeneralCategory::SpacingMark => 1,
        _ => usize::from(letter == '\u{ad}'),
    };
    is_printable(letter).then(|| UnicodeWidthChar::width(letter).unwrap_or(0).max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_character_stand_for_themselves() {
        let utf8 = Charset::Utf8;
        assert_eq!(utf8.first("é!".as_bytes()), Some((Piece::Char('é'), 2)));
        assert_eq!(utf8.first(b"\xff!"), Some((Piece::Byte, 1)));
        assert_eq!(utf8.first(b"\xe2\x82"), Some((Piece::Cut, 2)));
        assert_eq!(utf8.first(b"\xe2(\x82"), Some((Piece::Byte, 1)));
        assert_eq!(utf8.first(b"\xed\xa0\x80"), Some((Piece::Byte, 1)), "a surrogate");
        assert_eq!(Charset::Ascii.first("é".as_bytes()), Some((Piece::Byte, 1)));
        assert_eq!(utf8.first(b""), None);
    }

    #[test]
    fn width_is_what_a_terminal_shows() {
        assert_eq!(Charset::Utf8.width("日本é\u{301}".as_bytes()), 5);
        assert_eq!(Charset::Utf8.width(b"a\x1b\xff"), 2);
        assert_eq!(Charset::Ascii.width("aé".as_bytes()), 1);
    }
}
