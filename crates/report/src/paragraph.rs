//! Running text, broken into lines.

use std::borrow::Cow;

use crate::text::{Charset, columns, in_ascii, visible};

/// Writes `text` in lines of at most `width` columns; the first begins with `first`, the others with as many spaces.
///
/// A word that is longer than a line stands alone and whole: it may be a path to be pasted.
/// What a terminal would obey in `text` is escaped ([`crate::text::visible`]); the lines are not too long in ASCII either.
#[must_use]
pub fn wrap(text: &str, width: usize, first: &str) -> String {
    let indent = columns(first);
    let mut lines = first.to_owned();
    let mut column = indent;
    let text = visible(text, Charset::Unicode);
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let length = columns(word).max(columns(&signs_spelled(word)));
        if column > indent && column + 1 + length > width {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            column = indent;
        }
        if column > indent {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines.push('\n');
    lines
}

/// Returns a word with our typographic signs as ASCII writes them; other letters stay.
fn signs_spelled(word: &str) -> Cow<'_, str> {
    if word.is_ascii() {
        return Cow::Borrowed(word);
    }
    let mut letter = [0; 4];
    let mut spelled = String::with_capacity(word.len() + 4);
    for sign in word.chars() {
        spelled.push_str(in_ascii(sign).unwrap_or(sign.encode_utf8(&mut letter)));
    }
    Cow::Owned(spelled)
}

/// Writes a number with its noun: `1 step`, `3 steps`.
#[must_use]
pub fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Leaves out the numbers that Rust adds to what the system says: ` (os error 2)`.
#[must_use]
pub fn without_error_numbers(text: &str) -> String {
    const BEFORE: &str = " (os error ";
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEFORE) {
        plain.push_str(before);
        match after.split_once(')') {
            Some((number, after)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                rest = after;
            }
            _ => {
                plain.push_str(BEFORE);
                rest = after;
            }
        }
    }
    plain + rest
}

/// Returns a sentence that begins with a capital letter.
#[must_use]
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_before_the_edge_and_hang_below_the_first() {
        insta::assert_snapshot!(
            wrap("one two three /a/path/that/is/longer/than/a/line four", 20, "  1. "),
            @r"
          1. one two three
             /a/path/that/is/longer/than/a/line
             four
        "
        );
        assert_eq!(wrap("", 20, "- "), "- \n");
    }

    #[test]
    fn text_of_others_neither_begins_a_line_nor_moves_the_edge() {
        let name = "a\x1b]0;x\x07\u{202e}b";
        let text = wrap(&format!("cannot read {name}\nunjank: all is well"), 80, "- ");
        assert_eq!(text, "- cannot read a\\x1b]0;x\\x07\\u{202e}b\\nunjank: all is well\n");
        assert_eq!(wrap("日本 語語 a", 6, ""), "日本\n語語 a\n");
    }

    #[test]
    fn the_numbers_of_errors_are_left_out_wherever_they_stand() {
        let said = "/a: No such file or directory (os error 2); try (os error x) or (os error 13)";
        assert_eq!(
            without_error_numbers(said),
            "/a: No such file or directory; try (os error x) or"
        );
    }
}
