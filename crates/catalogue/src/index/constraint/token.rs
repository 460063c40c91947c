//! The words and signs of a constraint.

use super::ConstraintError;

/// A word, a sign or a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name, or a word with a meaning.
    Word(String),
    /// `[X-Foo-Bar]`: a name with signs in it.
    Bracketed(String),
    /// `'text'`.
    Text(String),
    Whole(i64),
    Fraction(f64),
    Sign(&'static str),
}

/// The longer before those that begin alike.
const SIGNS: [&str; 19] = [
    "~subseq", "~subin", "~in", "~~", "==", "=~", "!=", "!~", "<=", ">=", "<", ">", "~", "(", ")",
    "+", "-", "*", "/",
];

/// Splits a constraint; each token comes with the character that it begins at, from 1.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ConstraintError> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return Ok(found) };
        let at = text.len() - rest.len();
        let at = text[..at].chars().count() + 1;
        let error = |what: &str| ConstraintError { at, what: what.to_owned() };
        let (token, len) = match first {
            '\'' => quoted(rest).ok_or_else(|| error("this text has no end"))?,
            '[' => {
                let end = rest.find(']').ok_or_else(|| error("this name has no end"))?;
                (Token::Bracketed(rest[1..end].to_owned()), end + 1)
            }
            '0'..='9' | '.' => number(rest).ok_or_else(|| error("this is no number"))?,
            _ if first.is_alphabetic() || first == '_' => {
                let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                (Token::Word(rest[..end].to_owned()), end)
            }
            _ => {
                let sign = SIGNS.iter().find(|sign| is_sign(rest, sign));
                let sign = sign.ok_or_else(|| error("this is no sign of the language"))?;
                (Token::Sign(sign), sign.len())
            }
        };
        found.push((at, token));
        rest = &rest[len..];
    }
}

/// Returns whether `rest` begins with a sign; one that ends in a letter ends there.
fn is_sign(rest: &str, sign: &str) -> bool {
    let Some(after) = rest.strip_prefix(sign) else { return false };
    !sign.ends_with(char::is_alphabetic)
        || !after.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Reads a text in single quotes, in which a backslash stands before a quote or another one.
fn quoted(rest: &str) -> Option<(Token, usize)> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return Some((Token::Text(text), at + 1)),
            '\\' => text.push(chars.next()?.1),
            _ => text.push(c),
        }
    }
    None
}

fn number(rest: &str) -> Option<(Token, usize)> {
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let digits = &rest[..end];
    let token = if digits.contains('.') {
        Token::Fraction(digits.parse().ok()?)
    } else {
        Token::Whole(digits.parse().ok()?)
    };
    Some((token, end))
}
