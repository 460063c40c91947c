//! File name patterns: `*`, `?`, `[…]` and backslashes, as fnmatch(3) with a leading dot for itself alone.

use super::charset::{Charset, Piece};

/// A pattern of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    pattern: Vec<u8>,
    charset: Charset,
}

impl Glob {
    /// Makes a pattern; any bytes are one.
    pub(super) fn new(pattern: impl Into<Vec<u8>>, charset: Charset) -> Glob {
        Glob { pattern: pattern.into(), charset }
    }

    /// Says whether the whole of `name` is as the pattern says.
    ///
    /// Takes time of at most the product of both lengths.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        if name.first() == Some(&b'.')
            && !matches!(self.pattern.as_slice(), [b'.', ..] | [b'\\', b'.', ..])
        {
            return false;
        }
        let (mut pattern, mut rest) = (&*self.pattern, name);
        // Where to go on when what follows the last star does not fit here.
        let mut star: Option<(&[u8], &[u8])> = None;
        loop {
            let step = if pattern.first() == Some(&b'*') {
                pattern = &pattern[1..];
                star = Some((pattern, rest));
                continue;
            } else if rest.is_empty() {
                if pattern.is_empty() {
                    return true;
                }
                // The name can only become shorter.
                return false;
            } else {
                self.one(pattern, rest)
            };
            match step {
                Some((after, left)) => (pattern, rest) = (after, left),
                None => {
                    let Some((after, from)) = star else { return false };
                    let Some((_, length)) = self.charset.first(from) else { return false };
                    rest = &from[length..];
                    pattern = after;
                    star = Some((after, rest));
                }
            }
        }
    }

    /// Matches one character of the name, and returns what is left of both.
    fn one<'a>(&self, pattern: &'a [u8], name: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let (piece, length) = self.charset.first(name)?;
        let left = &name[length..];
        match pattern {
            [] => None,
            [b'?', after @ ..] => Some((after, left)),
            [b'[', after @ ..] => match self.bracket(after, value(piece, name)) {
                Some((true, after)) => Some((after, left)),
                Some((false, _)) => None,
                // Without its end a bracket means itself.
                None => (name[0] == b'[').then_some((after, &name[1..])),
            },
            [b'\\', byte, after @ ..] => (name[0] == *byte).then_some((after, &name[1..])),
            [byte, after @ ..] => (name[0] == *byte).then_some((after, &name[1..])),
        }
    }

    /// Reads a bracket expression; says whether `wanted` is in it and what follows it.
    fn bracket<'a>(&self, mut rest: &'a [u8], wanted: u32) -> Option<(bool, &'a [u8])> {
        let negated = matches!(rest.first(), Some(b'!' | b'^'));
        if negated {
            rest = &rest[1..];
        }
        let mut found = false;
        let mut is_first = true;
        loop {
            match rest {
                [] => return None,
                [b']', after @ ..] if !is_first => return Some((found != negated, after)),
                [b'[', b':', after @ ..] => {
                    let end = after.windows(2).position(|pair| pair == b":]")?;
                    found |= is_of_class(&after[..end], wanted);
                    rest = &after[end + 2..];
                }
                _ => {
                    let (low, after) = self.element(rest)?;
                    rest = after;
                    let high = match rest {
                        [b'-', next, ..] if *next != b']' => {
                            let (high, after) = self.element(&rest[1..])?;
                            rest = after;
                            high
                        }
                        _ => low,
                    };
                    found |= (low..=high).contains(&wanted);
                }
            }
            is_first = false;
        }
    }

    fn element<'a>(&self, text: &'a [u8]) -> Option<(u32, &'a [u8])> {
        let text = if text.len() > 1 && text[0] == b'\\' { &text[1..] } else { text };
        let (piece, length) = self.charset.first(text)?;
        Some((value(piece, text), &text[length..]))
    }
}

/// Returns the character, or a number above all of them for a byte that is none.
fn value(piece: Piece, text: &[u8]) -> u32 {
    match piece {
        Piece::Char(letter) => u32::from(letter),
        Piece::Byte | Piece::Cut => 0x11_0000 + u32::from(text[0]),
    }
}

fn is_of_class(class: &[u8], value: u32) -> bool {
    let Some(letter) = char::from_u32(value) else { return false };
    match class {
        b"alpha" => letter.is_alphabetic(),
        b"digit" => letter.is_ascii_digit(),
        b"alnum" => letter.is_alphanumeric(),
        b"upper" => letter.is_uppercase(),
        b"lower" => letter.is_lowercase(),
        b"space" => letter.is_whitespace(),
        b"punct" => letter.is_ascii_punctuation(),
        b"xdigit" => letter.is_ascii_hexdigit(),
        b"cntrl" => letter.is_control(),
        b"blank" => matches!(letter, ' ' | '\t'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::new(pattern, Charset::Utf8).matches(name.as_bytes())
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
