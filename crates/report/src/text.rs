//! Text that others wrote, made safe and unambiguous on a line of a terminal.
//!
//! File names, command lines, D-Bus bodies, settings and messages of other programs may hold escape sequences that change
//! the terminal, line breaks that forge a line of output, and marks that reverse the reading order.
//! Everything of that kind passes through [`visible`] or [`visible_bytes`] before a person sees it.
//! Sentences of ours that hold such text pass through [`spelled`], which differs in the character set ASCII alone.
//! Machine output (`--json`, `--print0`, dumps on a pipe) keeps the bytes as they are.

use std::borrow::Cow;
use std::fmt::Write;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The characters that the reader's terminal shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// All of Unicode.
    #[default]
    Unicode,
    /// ASCII alone, as in the locale `C`.
    Ascii,
}

/// So many marks that take no column may follow a letter; scripts need three or four.
const MOST_MARKS: usize = 8;

/// Returns `text` on one line, with each character that a terminal would obey or hide written as an escape.
///
/// Control characters become `\n`, `\t`, `\r` or `\x1b`; line and paragraph separators, bidirectional controls and other
/// format characters become `\u{202e}`. The joiners U+200C and U+200D stay, because scripts and emoji need them.
/// A combining mark stays behind a letter; one that has none, and those of a flood, become escapes.
/// A backslash stays as it is, so that paths remain readable: the result is for people and is not parsed again.
#[must_use]
pub fn visible(text: &str, charset: Charset) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let mut writer = Writer::new(charset, Spelling::Exact, text.len());
    writer.text(text);
    writer.finish(text)
}

/// Returns bytes as [`visible`] returns text; bytes that are not UTF-8 become `\xff`.
#[must_use]
pub fn visible_bytes(bytes: &[u8], charset: Charset) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return visible(text, charset);
    }
    let mut writer = Writer::new(charset, Spelling::Exact, bytes.len());
    for chunk in bytes.utf8_chunks() {
        writer.text(chunk.valid());
        writer.bytes(chunk.invalid());
    }
    Cow::Owned(writer.shown)
}

/// Returns a sentence or a cell of ours as [`visible`] does; in ASCII the typographic signs that we use are spelled,
/// `×` as `x` and `…` as `...`, instead of escaped.
#[must_use]
pub fn spelled(text: &str, charset: Charset) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let mut writer = Writer::new(charset, Spelling::Typographic, text.len());
    writer.text(text);
    writer.finish(text)
}

/// Returns a JSON document with each character that a terminal obeys or hides as an escape of JSON: it stays the same document.
#[must_use]
pub fn json_escaped(json: &str, charset: Charset) -> Cow<'_, str> {
    let is_kept = |letter: char| matches!(letter, '\n' | '\t') || is_shown(letter, charset);
    if json.chars().all(is_kept) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for letter in json.chars() {
        if is_kept(letter) {
            escaped.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    Cow::Owned(escaped)
}

/// Returns how many columns of a terminal `text` takes, which holds nothing that a terminal obeys.
#[must_use]
pub fn columns(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// Takes letters out of the middle until `text` is at most `width` columns wide; a letter keeps its marks.
#[must_use]
pub fn cut(text: &str, width: usize, charset: Charset) -> String {
    if columns(text) <= width || width == 0 {
        return text.to_owned();
    }
    let gap = match charset {
        Charset::Unicode => "…",
        Charset::Ascii if width < 8 => ".",
        Charset::Ascii => "...",
    };
    let keep = width - columns(gap).min(width);
    let clusters = clusters(text);
    let head = leading(clusters.iter().copied(), keep.div_ceil(2));
    let tail = leading(clusters.iter().rev().copied(), keep - columns(&text[..head]));
    format!("{}{gap}{}", &text[..head], &text[text.len() - tail..])
}

/// Returns how many bytes the first clusters take that fit into `width` columns.
fn leading<'a>(clusters: impl Iterator<Item = &'a str>, width: usize) -> usize {
    let (mut bytes, mut taken) = (0, 0);
    for cluster in clusters {
        taken += columns(cluster);
        if taken > width {
            break;
        }
        bytes += cluster.len();
    }
    bytes
}

/// Splits a text where it may be cut: not before a mark, nor at a joiner.
fn clusters(text: &str) -> Vec<&str> {
    let mut clusters = Vec::new();
    let mut begin = 0;
    let mut is_joined = true;
    for (at, letter) in text.char_indices() {
        if !is_joined && letter.width().unwrap_or(0) > 0 {
            clusters.push(&text[begin..at]);
            begin = at;
        }
        is_joined = letter == '\u{200d}';
    }
    clusters.push(&text[begin..]);
    clusters
}

/// Says whether a terminal shows this character, and does nothing else with it.
#[must_use]
pub fn is_shown(letter: char, charset: Charset) -> bool {
    if letter.is_ascii() {
        return !letter.is_ascii_control();
    }
    if charset == Charset::Ascii {
        return false;
    }
    if is_joiner(letter) {
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

fn is_joiner(letter: char) -> bool {
    matches!(letter, '\u{200c}' | '\u{200d}')
}

/// Says whether a character is drawn onto the one before it.
fn is_mark(letter: char) -> bool {
    matches!(
        letter.general_category(),
        GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark
    )
}

/// Returns a typographic sign that we use as ASCII writes it.
#[must_use]
pub fn in_ascii(letter: char) -> Option<&'static str> {
    Some(match letter {
        '…' => "...",
        '×' => "x",
        '±' => "+/-",
        'µ' => "u",
        '·' | '–' | '—' | '−' | '─' | '╌' | '┄' | '▍' | '▎' | '▏' => "-",
        '│' => "|",
        '█' | '▉' | '▊' | '▋' | '▌' => "#",
        '▲' => "!",
        '●' => "*",
        '◐' | '◉' => "o",
        '▶' => ">",
        '◀' => "<",
        '→' | '⇢' => "->",
        '←' => "<-",
        '↑' => "^",
        '↓' => "v",
        '“' | '”' => "\"",
        '‘' | '’' => "'",
        '≥' => ">=",
        '≤' => "<=",
        '½' => "1/2",
        '²' => "^2",
        _ => return None,
    })
}

/// What becomes of typographic signs in ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// They are escaped: the text is somebody's.
    Exact,
    /// They are spelled: the text is ours.
    Typographic,
}

/// Writes text character by character, in the form that is shown.
struct Writer {
    shown: String,
    charset: Charset,
    spelling: Spelling,
    /// How many marks stand on the last letter; nothing where there is no letter.
    marks: Option<usize>,
    is_changed: bool,
}

impl Writer {
    fn new(charset: Charset, spelling: Spelling, length: usize) -> Writer {
        let shown = String::with_capacity(length + 8);
        Writer { shown, charset, spelling, marks: None, is_changed: false }
    }

    fn text(&mut self, text: &str) {
        text.chars().for_each(|letter| self.letter(letter));
    }

    fn letter(&mut self, letter: char) {
        if letter.is_ascii() || !is_shown(letter, self.charset) {
            self.marks = (!letter.is_ascii_control()).then_some(0);
        } else if is_mark(letter) || is_joiner(letter) {
            self.marks = self.marks.map(|marks| marks + 1);
            if self.marks.is_none_or(|marks| marks > MOST_MARKS) {
                return self.escape(letter);
            }
        } else {
            self.marks = Some(0);
        }
        if is_shown(letter, self.charset) {
            return self.shown.push(letter);
        }
        match in_ascii(letter) {
            Some(sign) if self.spelling == Spelling::Typographic => {
                self.is_changed = true;
                self.shown.push_str(sign);
            }
            _ => self.escape(letter),
        }
    }

    fn escape(&mut self, letter: char) {
        self.is_changed = true;
        match letter {
            '\n' => self.shown.push_str("\\n"),
            '\t' => self.shown.push_str("\\t"),
            '\r' => self.shown.push_str("\\r"),
            letter if letter.is_ascii() => self.bytes(&[letter as u8]),
            letter => {
                write!(self.shown, "\\u{{{:x}}}", u32::from(letter))
                    .expect("a string takes all text");
            }
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            write!(self.shown, "\\x{byte:02x}").expect("a string takes all text");
        }
    }

    fn finish(self, text: &str) -> Cow<'_, str> {
        if self.is_changed { Cow::Owned(self.shown) } else { Cow::Borrowed(text) }
    }
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
    fn marks_need_a_letter_and_do_not_flood() {
        let shown = |text| visible(text, Charset::Unicode).into_owned();
        assert_eq!(shown("e\u{301}"), "e\u{301}");
        assert_eq!(shown("\u{301}e"), r"\u{301}e");
        assert_eq!(shown("\n\u{301}"), r"\n\u{301}");
        let flood = shown(&format!("e{}", "\u{301}".repeat(10_000)));
        assert_eq!(columns(&flood), 1 + 7 * (10_000 - MOST_MARKS));
        assert!(flood.starts_with("e\u{301}") && flood.ends_with(r"\u{301}"));
    }

    #[test]
    fn what_we_write_is_spelled_in_ascii_and_what_others_write_is_escaped() {
        assert_eq!(spelled("x × 1.2 … 3 µs, é", Charset::Ascii), r"x x 1.2 ... 3 us, \u{e9}");
        assert_eq!(visible("a…", Charset::Ascii), r"a\u{2026}");
        assert_eq!(spelled("3 µs\n", Charset::Unicode), r"3 µs\n");
    }

    #[test]
    fn a_cut_text_keeps_both_ends_and_whole_letters() {
        let cut = |text, width| cut(text, width, Charset::Unicode);
        assert_eq!(cut("/home/ana/.config/dconf/user", 11), "/home…/user");
        assert_eq!(cut("short", 11), "short");
        assert_eq!(cut("日本語の長い名前", 9), "日本…名前");
        assert_eq!(cut("日本語の長い名前", 8), "日本…前");
        assert_eq!(cut("e\u{301}e\u{301}e\u{301}e\u{301}", 3), "e\u{301}…e\u{301}");
        assert_eq!(super::cut("/home/ana/.config/dconf/user", 11, Charset::Ascii), "/hom...user");
        for width in 1..20 {
            let cut = cut("a日b本👩\u{200d}💻語e\u{301}xyz", width);
            assert!(columns(&cut) <= width, "{cut} in {width}");
        }
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
                prop_assert_eq!(spelled(&shown, charset), &*shown);
            }
        }
    }
}
