//! The text form, read as `g_variant_parse` reads it, with the same errors at the same places.
//!
//! A text becomes a tree; the tree says which types it may have; then it is written as one of them.

mod literal;
mod number;
mod pattern;
mod syntax;
mod token;
mod write;

use std::ops::Range;

use super::types::Type;
use super::writer::Writer;
use super::{ParseError, Variant};
use syntax::Tree;
use token::Tokens;

/// Parses `text` as a value of type `ty`, or of the type that it shows.
pub(super) fn parse(ty: Option<Type<'_>>, text: &str) -> Result<Variant, ParseError> {
    let mut tokens = Tokens::new(text.as_bytes());
    let tree = Tree::parse(&mut tokens)?;
    let mut writer = Writer::with_capacity(text.len());
    let variant = match ty {
        Some(ty) => {
            write::value(&tree, ty, &mut writer)?;
            Variant::of_bytes(writer.into_bytes(), ty)
        }
        None => {
            let ty = pattern::resolve(&tree)?;
            // A pattern that was resolved is a type.
            let ty = Type::parse(&ty).ok_or_else(|| tree.error("unable to infer type"))?;
            write::value(&tree, ty, &mut writer)?;
            Variant::of_bytes(writer.into_bytes(), ty)
        }
    };
    tokens.expect_end()?;
    Ok(variant)
}

/// Makes an error about the bytes `at`; an empty range is a point.
fn error(at: &Range<usize>, message: &str) -> ParseError {
    ParseError(format!("{}:{message}", ParsePosition(at)))
}

/// Makes an error about two parts that do not go together.
fn error_between(at: &Range<usize>, other: &Range<usize>, message: &str) -> ParseError {
    ParseError(format!("{},{}-{}:{message}", ParsePosition(at), other.start, other.end))
}

struct ParsePosition<'a>(&'a Range<usize>);

impl std::fmt::Display for ParsePosition<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.start == self.0.end {
            write!(f, "{}", self.0.start)
        } else {
            write!(f, "{}-{}", self.0.start, self.0.end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(ty: Option<&str>, text: &str) -> String {
        let ty = ty.map(|ty| Type::parse(ty).unwrap());
        match Variant::parse(ty, text) {
            Ok(value) => value.print(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn literals_take_the_type_they_show() {
        for (text, printed) in [
            (" true ", "true"),
            ("5", "5"),
            ("-0x10", "-16"),
            ("017", "15"),
            ("1e3", "1000.0"),
            ("inf", "inf"),
            ("'a\\u00e9\\n'", "'aé\\n'"),
            ("\"it's\"", "\"it's\""),
            ("b'a\\101'", "b'aA'"),
            ("[1, 2.0]", "[1.0, 2.0]"),
            ("(1,)", "(1,)"),
            ("()", "()"),
            ("{'a': <1>, 'b': <'x'>}", "{'a': <1>, 'b': <'x'>}"),
            ("{1, 2}", "{1, 2}"),
            ("<<uint16 3>>", "<<uint16 3>>"),
            ("just 5", "@mi 5"),
            ("@mmi just nothing", "@mmi just nothing"),
            ("[just 1, nothing]", "[@mi 1, nothing]"),
            ("@a{sv} {}", "@a{sv} {}"),
            ("handle 3", "handle 3"),
            ("[byte 1, 2]", "[byte 0x01, 0x02]"),
        ] {
            assert_eq!(show(None, text), printed, "{text}");
        }
    }

    #[test]
    fn a_given_type_decides() {
        assert_eq!(show(Some("s"), "'x'"), "'x'");
        assert_eq!(show(Some("o"), "'/x'"), "objectpath '/x'");
        assert_eq!(show(Some("ay"), "[1, 2]"), "[byte 0x01, 0x02]");
        assert_eq!(show(Some("a{sv}"), "{}"), "@a{sv} {}");
        assert_eq!(show(Some("mmu"), "5"), "@mmu 5");
        assert_eq!(show(Some("d"), "5"), "5.0");
    }

    #[test]
    fn errors_say_what_and_where() {
        for (ty, text, message) in [
            (None, "nope", "0-4:unknown keyword"),
            (None, "", "0:expected value"),
            (None, "[]", "0-2:unable to infer type"),
            (None, "[1, 'a']", "1-2,4-7:unable to find a common type"),
            (None, "1 2", "2:expected end of input"),
            (None, "[1 2]", "3:expected ',' or ']' to follow array element"),
            (None, "(1)", "2:expected ',' after first tuple element"),
            (None, "12a", "2-3:invalid character in number"),
            (Some("y"), "256", "0-3:number out of range for type 'y'"),
            (Some("i"), "'a'", "0-3:can not parse as value of type 'i'"),
            (None, "'a", "0-2:unterminated string constant"),
            (None, "'\\u00g0'", "3-5:invalid 4-character unicode escape"),
            (None, "@z 1", "0-2:invalid type declaration"),
            (None, "['a', objectpath '/b']", "1-4:not a valid object path"),
            (None, "objectpath 'x'", "11-14:not a valid object path"),
        ] {
            assert_eq!(show(ty, text), message, "{text}");
        }
    }
}
