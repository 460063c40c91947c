//! File name patterns: `*`, `?`, `[…]` and backslashes, as fnmatch(3) with a leading dot for itself alone.

use super::charset::{Charset, Piece};

/// A pattern of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    pattern: Vec<u32>,
    charset: Charset,
}

impl Glob {
    /// Makes a pattern; any bytes are one.
    pub(super) fn new(pattern: &[u8], charset: Charset) -> Glob {
        Glob { pattern: characters(pattern, charset), charset }
    }

    /// Says whether the whole of `name` is as the pattern says.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        let dot = u32::from(b'.');
        if name.first() == Some(&b'.')
            && !matches!(self.pattern.as_slice(), [first, ..] if *first == dot)
            && !matches!(self.pattern.as_slice(), [first, second, ..] if *first == u32::from(b'\\') && *second == dot)
        {
            return false;
        }
        xdg::pattern::matches(&self.pattern, &characters(name, self.charset))
    }
}

/// Returns the characters of a text; a byte that is none gets a number above all of them.
fn characters(mut text: &[u8], charset: Charset) -> Vec<u32> {
    let mut characters = Vec::with_capacity(text.len());
    while let Some((piece, length)) = charset.first(text) {
        let (taken, rest) = text.split_at(length);
        match piece {
            Piece::Char(letter) => characters.push(u32::from(letter)),
            Piece::Byte | Piece::Cut => {
                characters.extend(taken.iter().map(|byte| 0x11_0000 + u32::from(*byte)));
            }
        }
        text = rest;
    }
    characters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::new(pattern.as_bytes(), Charset::Utf8).matches(name.as_bytes())
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, wanted) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "a.rsx", false),
            ("*.rs", ".a.rs", false),
            (".*", ".a", true),
            ("a?c", "abc", true),
            ("a?c", "aéc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[[:digit:]]*", "9a", true),
            ("[ab", "[ab", true),
            ("\\*", "*", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("", "", true),
            ("*", "", true),
            ("a", "", false),
        ] {
            assert_eq!(matches(pattern, name), wanted, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(!matches(&"*a".repeat(100), &"a".repeat(99)));
        assert!(!matches(&format!("{}b", "*a".repeat(60)), &"a".repeat(5000)));
    }
}
