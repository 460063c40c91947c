//! Reads the language of filters: `from:org.a.B and (slower-than:5ms or error:*) not member:Get*`.

use super::Node;
use super::glob::Glob;
use wire::MessageType;

/// So deeply parentheses and `not` may be nested.
const DEEPEST: usize = 64;

/// Why a text is no filter.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// A word with a colon that is none of the language's.
    #[error(
        "unknown key {0:?}; use from, to, with, iface, member, path, type, pid, app, bus, slower-than or error"
    )]
    Key(String),
    /// A value that the key cannot have.
    #[error("unknown value {key}:{value}; use {say}")]
    Value {
        /// The key.
        key: &'static str,
        /// The text of the user.
        value: String,
        /// What could be.
        say: &'static str,
    },
    /// A quotation mark without another.
    #[error("a quotation is not closed")]
    Quotation,
    /// A parenthesis without another.
    #[error("a parenthesis is not closed, or not opened")]
    Parenthesis,
    /// `and`, `or` or `not` with nothing behind it.
    #[error("the end of the message is missing")]
    Unfinished,
    /// Parentheses in parentheses without end.
    #[error("the filter is nested more than {DEEPEST} levels deep")]
    TooDeep,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Token {
    Open,
    Close,
    And,
    Or,
    Not,
    Term(String, Option<String>),
}

/// Reads a filter; the empty text is every message.
pub(super) fn parse(text: &str) -> Result<Node, FilterError> {
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Ok(Node::Every);
    }
    let mut reader = Reader { tokens: &tokens, depth: 0 };
    let node = reader.any()?;
    if reader.tokens.is_empty() { Ok(node) } else { Err(FilterError::Parenthesis) }
}

fn tokens(text: &str) -> Result<Vec<Token>, FilterError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        match first {
            '(' => {
                tokens.push(Token::Open);
                rest = &rest[1..];
            }
            ')' => {
                tokens.push(Token::Close);
                rest = &rest[1..];
            }
            '!' => {
                tokens.push(Token::Not);
                rest = &rest[1..];
            }
            _ => {
                let (token, after) = word(rest)?;
                tokens.push(token);
                rest = after;
            }
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// Takes a word off the front: up to a space or a parenthesis, but quotations whole.
fn word(text: &str) -> Result<(Token, &str), FilterError> {
    let mut plain = String::new();
    let mut colon = None;
    let (mut is_quoted, mut was_quoted) = (false, false);
    let mut end = text.len();
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => {
                is_quoted = !is_quoted;
                was_quoted = true;
            }
            letter if !is_quoted && (letter.is_whitespace() || matches!(letter, '(' | ')')) => {
                end = at;
                break;
            }
            // A unique name begins with a colon and is no key.
            ':' if !is_quoted && colon.is_none() && !plain.is_empty() => {
                colon = Some(plain.len());
                plain.push(':');
            }
            letter => plain.push(letter),
        }
    }
    if is_quoted {
        return Err(FilterError::Quotation);
    }
    let token = match (&*plain.to_ascii_lowercase(), colon) {
        ("and" | "&&", _) if !was_quoted => Token::And,
        ("or" | "||", _) if !was_quoted => Token::Or,
        ("not", _) if !was_quoted => Token::Not,
        (_, Some(colon)) => {
            Token::Term(plain[..colon].to_ascii_lowercase(), Some(plain[colon + 1..].to_owned()))
        }
        _ => Token::Term(plain, None),
    };
    Ok((token, &text[end..]))
}

struct Reader<'a> {
    tokens: &'a [Token],
    depth: usize,
}

impl Reader<'_> {
    fn next_is(&mut self, wanted: &Token) -> bool {
        match self.tokens.split_first() {
            Some((token, rest)) if token == wanted => {
                self.tokens = rest;
                true
            }
            _ => false,
        }
    }

    fn any(&mut self) -> Result<Node, FilterError> {
        let mut parts = vec![self.all()?];
        while self.next_is(&Token::Or) {
            parts.push(self.all()?);
        }
        Ok(joined(parts, Node::Or))
    }

    fn all(&mut self) -> Result<Node, FilterError> {
        let mut parts = vec![self.one()?];
        loop {
            let is_and = self.next_is(&Token::And);
            // Words side by side must all fit.
            let goes_on =
                matches!(self.tokens.first(), Some(Token::Open | Token::Not | Token::Term(..)));
            if !is_and && !goes_on {
                return Ok(joined(parts, Node::And));
            }
            parts.push(self.one()?);
        }
    }

    fn one(&mut self) -> Result<Node, FilterError> {
        let Some((token, rest)) = self.tokens.split_first() else {
            return Err(FilterError::Unfinished);
        };
        self.tokens = rest;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(FilterError::TooDeep);
        }
        let node = match token {
            Token::Open => {
                let inside = self.any()?;
                if !self.next_is(&Token::Close) {
                    return Err(FilterError::Parenthesis);
                }
                inside
            }
            Token::Not => Node::Not(Box::new(self.one()?)),
            Token::Term(key, Some(value)) => term(key, value)?,
            Token::Term(word, None) => Node::Word(word.to_ascii_lowercase()),
            Token::Close => return Err(FilterError::Parenthesis),
            Token::And | Token::Or => return Err(FilterError::Unfinished),
        };
        self.depth -= 1;
        Ok(node)
    }
}

fn joined(mut parts: Vec<Node>, join: impl FnOnce(Vec<Node>) -> Node) -> Node {
    if parts.len() == 1 { parts.remove(0) } else { join(parts) }
}

fn term(key: &str, value: &str) -> Result<Node, FilterError> {
    let wrong = |key, say| FilterError::Value { key, value: value.to_owned(), say };
    let glob = || Glob::new(value);
    if value.is_empty() && !key.is_empty() {
        return Err(FilterError::Unfinished);
    }
    Ok(match key {
        "from" | "sender" => Node::From(glob()),
        "to" | "destination" => Node::To(glob()),
        "with" | "service" => Node::With(glob()),
        "iface" | "interface" => Node::Interface(glob()),
        "member" => Node::Member(glob()),
        "path" => Node::Path(glob()),
        "app" => Node::App(glob()),
        "bus" => Node::Bus(glob()),
        "error" => Node::Error(glob()),
        "pid" => Node::Pid(value.parse().map_err(|_| wrong("pid", "a number"))?),
        "slower-than" | "slower" => {
            let ns = nanoseconds(value).ok_or(wrong("slower-than", report::duration::EXPECTED))?;
            Node::SlowerThan(ns)
        }
        "type" => match value {
            "call" | "method_call" => Node::Kind(MessageType::Call),
            "return" | "reply" | "method_return" => Node::Kind(MessageType::Return),
            "error" => Node::Kind(MessageType::Error),
            "signal" => Node::Kind(MessageType::Signal),
            "unanswered" => Node::Unanswered,
            _ => return Err(wrong("type", "call, return, error, signal or unanswered")),
        },
        key => return Err(FilterError::Key(key.to_owned())),
    })
}

/// Reads a duration, in nanoseconds.
pub(crate) fn nanoseconds(text: &str) -> Option<u64> {
    u64::try_from(report::duration::parse(text).ok()?.as_nanos()).ok()
}
