//! Text that others wrote, made safe and unambiguous on a line of a terminal.
//!
//! File names, command lines, D-Bus bodies, settings and messages of other programs may hold escape sequences that change
//! the terminal, line breaks that forge a line of output, and marks that reverse the reading order.
//! Everything of that kind passes through [`visible`] or [`visible_bytes`] before a person sees it.
//! Machine output (`--json`, `--print0`, dumps on a pipe) keeps the bytes as they are.

use std::borrow::Cow;
use std::fmt::Write;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// The characters that the reader's terminal shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// All of Unicode.
    #[default]
    Unicode,
    /// ASCII alone, as in the locale `C`.
    Ascii,
}

/// Returns `text` on one line, with each character that a terminal would obey or hide written as an escape.
///
/// Control characters become `\n`, `\t`, `\r` or `\x1b`; line and paragraph separators, bidirectional controls and other
/// format characters become `\u{202e}`. The joiners U+200C and U+200D stay, because scripts and emoji need them.
/// A backslash stays as it is, so that paths remain readable: the result is for people and is not parsed again.
#[must_use]
pub fn visible(text: &str, charset: Charset) -> Cow<'_, str> {
    let Some((first, _)) = text.char_indices().find(|&(_, letter)| !is_shown(letter, charset))
    else {
        return Cow::Borrowed(text);
    };
    let mut shown = String::with_capacity(text.len() + 8);
    shown.push_str(&text[..first]);
    for letter in text[first..].chars() {
        push(&mut shown, letter, charset);
    }
    Cow::Owned(shown)
}

/// Returns bytes as [`visible`] returns text; bytes that are not UTF-8 become `\xff`.
#[must_use]
pub fn visible_bytes(bytes: &[u8], charset: Charset) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return visible(text, charset);
    }
    let mut shown = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            push(&mut shown, letter, charset);
        }
        for byte in chunk.invalid() {
            push_byte(&mut shown, *byte);
        }
    }
    Cow::Owned(shown)
}

fn push(shown: &mut String, letter: char, charset: Charset) {
    match letter {
        '\n' => shown.push_str("\\n"),
        '\t' => shown.push_str("\\t"),
        '\r' => shown.push_str("\\r"),
        letter if is_shown(letter, charset) => shown.push(letter),
        letter => match u8::try_from(letter) {
            Ok(byte) if letter.is_ascii() => push_byte(shown, byte),
            _ => write!(shown, "\\u{{{:x}}}", u32::from(letter)).expect("a string takes all text"),
        },
    }
}

fn push_byte(shown: &mut String, byte: u8) {
    write!(shown, "\\x{byte:02x}").expect("a string takes all text");
}

/// Says whether a terminal shows this character, and does nothing else with it.
fn is_shown(letter: char, charset: Charset) -> bool {
    if letter.is_ascii() {
        return !letter.is_ascii_control();
    }
    if charset == Charset::Ascii {
        return false;
    }
    if matches!(letter, '\u{200c}' | '\u{200d}') {
        return true;
    }
    !matches!(
        letter.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_text_is_borrowed() {
        for text in ["", "a b", "Übung.txt", "日本語", "👩\u{200d}💻", r"C:\x"] {
            assert!(matches!(visible(text, Charset::Unicode), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn what_a_terminal_obeys_is_written_as_an_escape() {
        let shown = |text| visible(text, Charset::Unicode).into_owned();
        assert_eq!(shown("a\x1b]0;title\x07b"), r"a\x1b]0;title\x07b");
        assert_eq!(shown("one\ntwo\r\tthree"), r"one\ntwo\r\tthree");
        assert_eq!(shown("\u{9b}31m"), r"\u{9b}31m");
        assert_eq!(shown("\u{202e}fdp.exe\u{2066}"), r"\u{202e}fdp.exe\u{2066}");
        assert_eq!(shown("a\u{2028}b\u{feff}"), r"a\u{2028}b\u{feff}");
        assert_eq!(visible("é\u{7f}", Charset::Ascii), r"\u{e9}\x7f");
    }

    #[test]
    fn bytes_that_are_no_text_are_written_as_bytes() {
        assert_eq!(visible_bytes(b"a\xff\xc3b\x1b", Charset::Unicode), r"a\xff\xc3b\x1b");
        assert_eq!(visible_bytes("é".as_bytes(), Charset::Unicode), "é");
    }

    proptest! {
        #[test]
        fn nothing_that_a_terminal_obeys_is_left(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for charset in [Charset::Unicode, Charset::Ascii] {
                let shown = visible_bytes(&bytes, charset);
                prop_assert!(!shown.chars().any(char::is_control));
                prop_assert_eq!(visible(&shown, charset), shown.clone());
                prop_assert!(charset == Charset::Unicode || shown.is_ascii());
            }
        }
    }
}
