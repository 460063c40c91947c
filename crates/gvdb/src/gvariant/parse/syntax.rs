//! The tree of a text, before it has a type.

use std::borrow::Cow;
use std::ops::Range;

use super::super::ParseError;
use super::super::types::{Letters, MAX_DEPTH, Type, depth_at, scan};
use super::token::Tokens;
use super::{error, literal};

/// A value in a text, and where it stands.
#[derive(Debug)]
pub(super) struct Tree<'t> {
    pub(super) at: Range<usize>,
    pub(super) kind: SyntaxKind<'t>,
}

/// What a value looks like.
#[derive(Debug)]
pub(super) enum SyntaxKind<'t> {
    Boolean(bool),
    /// The token as it stands.
    Number(&'t [u8]),
    /// The text with its escapes undone; it may not be valid UTF-8.
    String(Vec<u8>),
    Bytestring(Vec<u8>),
    Maybe(Option<Box<Tree<'t>>>),
    Array(Vec<Tree<'t>>),
    Tuple(Vec<Tree<'t>>),
    Variant(Box<Tree<'t>>),
    /// Keys and values, as many of each.
    Dictionary(Vec<Tree<'t>>, Vec<Tree<'t>>),
    Entry(Box<[Tree<'t>; 2]>),
    /// A type string and the value that it stands before.
    Declared(Cow<'static, str>, Box<Tree<'t>>),
}

impl<'t> Tree<'t> {
    /// Parses one value.
    pub(super) fn parse(tokens: &mut Tokens<'t>) -> Result<Tree<'t>, ParseError> {
        parse(tokens, MAX_DEPTH)
    }

    /// Makes an error about the whole value.
    pub(super) fn error(&self, message: &str) -> ParseError {
        error(&self.at, message)
    }
}

/// The words that declare a type.
const DECLARATIONS: [(&str, &str); 13] = [
    ("boolean", "b"),
    ("byte", "y"),
    ("int16", "n"),
    ("uint16", "q"),
    ("int32", "i"),
    ("handle", "h"),
    ("uint32", "u"),
    ("int64", "x"),
    ("uint64", "t"),
    ("double", "d"),
    ("string", "s"),
    ("objectpath", "o"),
    ("signature", "g"),
];

fn parse<'t>(tokens: &mut Tokens<'t>, depth: usize) -> Result<Tree<'t>, ParseError> {
    let Some(below) = depth.checked_sub(1) else {
        return Err(tokens.error_here("variant nested too deeply"));
    };
    let start = tokens.range().start;
    let kind = match tokens.peek() {
        [b'[', ..] => array(tokens, below)?,
        [b'(', ..] => tuple(tokens, below)?,
        [b'<', ..] => {
            tokens.take();
            let value = parse(tokens, below)?;
            tokens.require(">", " to follow variant value")?;
            SyntaxKind::Variant(Box::new(value))
        }
        [b'{', ..] => dictionary(tokens, below)?,
        word @ (b"true" | b"false") => {
            tokens.take();
            SyntaxKind::Boolean(word == b"true")
        }
        [b'0'..=b'9' | b'-' | b'+' | b'.', ..] | b"inf" | b"nan" => {
            SyntaxKind::Number(tokens.take())
        }
        [b'n' | b'j', ..] => {
            if tokens.consume("just") {
                SyntaxKind::Maybe(Some(Box::new(parse(tokens, below)?)))
            } else if tokens.consume("nothing") {
                SyntaxKind::Maybe(None)
            } else {
                return Err(tokens.error_token("unknown keyword"));
            }
        }
        [b'@', ..] => {
            let ty = declared_type(tokens, depth)?;
            SyntaxKind::Declared(ty.into(), Box::new(parse(tokens, below)?))
        }
        [a, b, ..] if a.is_ascii_alphabetic() && b.is_ascii_alphabetic() => {
            let word = tokens.peek();
            let found = DECLARATIONS.iter().find(|(name, _)| name.as_bytes() == word);
            let Some((_, ty)) = found else { return Err(tokens.error_token("unknown keyword")) };
            tokens.take();
            SyntaxKind::Declared((*ty).into(), Box::new(parse(tokens, below)?))
        }
        [b'\'' | b'"', ..] => {
            let at = tokens.range();
            SyntaxKind::String(literal::string(tokens.take(), &at)?)
        }
        [b'b', b'\'' | b'"', ..] => {
            let at = tokens.range();
            SyntaxKind::Bytestring(literal::bytestring(tokens.take(), &at)?)
        }
        _ => return Err(tokens.error_here("expected value")),
    };
    Ok(Tree { at: start..tokens.taken_to(), kind })
}

/// Takes an `@` and a type that does not nest deeper than `depth`.
fn declared_type(tokens: &mut Tokens<'_>, depth: usize) -> Result<String, ParseError> {
    let text = &tokens.peek()[1..];
    if scan(text, MAX_DEPTH, Letters::Any) != Some(text.len()) {
        return Err(tokens.error_token("invalid type declaration"));
    }
    if depth_at(text).1 > depth {
        return Err(tokens.error_token("type declaration recurses too deeply"));
    }
    let Some(ty) = Type::from_bytes(text) else {
        return Err(tokens.error_token("type declarations must be definite"));
    };
    let ty = ty.as_str().to_owned();
    tokens.take();
    Ok(ty)
}

fn array<'t>(tokens: &mut Tokens<'t>, below: usize) -> Result<SyntaxKind<'t>, ParseError> {
    tokens.take();
    let mut items = Vec::new();
    while !tokens.consume("]") {
        if !items.is_empty() {
            tokens.require(",", " or ']' to follow array element")?;
        }
        items.push(parse(tokens, below)?);
    }
    Ok(SyntaxKind::Array(items))
}

fn tuple<'t>(tokens: &mut Tokens<'t>, below: usize) -> Result<SyntaxKind<'t>, ParseError> {
    tokens.take();
    let mut members = Vec::new();
    while !tokens.consume(")") {
        if members.len() > 1 {
            tokens.require(",", " or ')' to follow tuple element")?;
        }
        members.push(parse(tokens, below)?);
        // A tuple of one member has a comma too, which tells it from brackets.
        if members.len() == 1 {
            tokens.require(",", " after first tuple element")?;
        }
    }
    Ok(SyntaxKind::Tuple(members))
}

fn dictionary<'t>(tokens: &mut Tokens<'t>, below: usize) -> Result<SyntaxKind<'t>, ParseError> {
    tokens.take();
    if tokens.consume("}") {
        return Ok(SyntaxKind::Dictionary(Vec::new(), Vec::new()));
    }
    let key = parse(tokens, below)?;
    if tokens.consume(",") {
        let value = parse(tokens, below)?;
        tokens.require("}", " at end of dictionary entry")?;
        return Ok(SyntaxKind::Entry(Box::new([key, value])));
    }
    tokens.require(":", " or ',' to follow dictionary entry key")?;
    let (mut keys, mut values) = (vec![key], vec![parse(tokens, below)?]);
    while !tokens.consume("}") {
        tokens.require(",", " or '}' to follow dictionary entry")?;
        keys.push(parse(tokens, below)?);
        tokens.require(":", " to follow dictionary entry key")?;
        values.push(parse(tokens, below)?);
    }
    Ok(SyntaxKind::Dictionary(keys, values))
}
