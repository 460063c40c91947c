//! The text form, as `g_variant_print` writes it.

use std::fmt::Write;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

use super::super::ByteOrder;
use super::layout::Layout;
use super::value::Value;
use super::view::{VariantView, fixed_bytes, nested_variant};
use super::{double, text_rules};

/// Whether a value says its type where the text alone would not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Annotations {
    /// `uint32 5`, `@as []`
    Shown,
    /// `5`, `[]`
    Hidden,
}

/// Prints the value of `view`.
pub(super) fn print(view: VariantView<'_>, annotations: Annotations) -> String {
    let layout = Layout::of(view.ty());
    let mut printer = Printer { out: String::new(), order: view.order() };
    let value = Value { layout: &layout, node: 0, bytes: view.bytes(), depth: view.depth() };
    printer.value(value, annotations);
    printer.out
}

struct Printer {
    out: String,
    order: ByteOrder,
}

impl Printer {
    fn value(&mut self, value: Value<'_>, annotations: Annotations) {
        let bytes = value.bytes;
        match value.info().kind {
            b'b' => {
                let text = if self.number(bytes) == [0_u8] { "false" } else { "true" };
                self.out.push_str(text);
            }
            b'y' => {
                let [byte] = self.number(bytes);
                self.annotate("byte ", annotations);
                self.display(format_args!("0x{byte:02x}"));
            }
            b'n' => self.integer("int16 ", i16::from_ne_bytes(self.number(bytes)), annotations),
            b'q' => self.integer("uint16 ", u16::from_ne_bytes(self.number(bytes)), annotations),
            // The type that a number without a type has.
            b'i' => self.integer("", i32::from_ne_bytes(self.number(bytes)), annotations),
            b'h' => self.integer("handle ", i32::from_ne_bytes(self.number(bytes)), annotations),
            b'u' => self.integer("uint32 ", u32::from_ne_bytes(self.number(bytes)), annotations),
            b'x' => self.integer("int64 ", i64::from_ne_bytes(self.number(bytes)), annotations),
            b't' => self.integer("uint64 ", u64::from_ne_bytes(self.number(bytes)), annotations),
            b'd' => double::print(f64::from_ne_bytes(self.number(bytes)), &mut self.out),
            b's' => self.string(text_rules::read(b's', bytes)),
            b'o' => {
                self.annotate("objectpath ", annotations);
                self.display(format_args!("'{}'", text_rules::read(b'o', bytes)));
            }
            b'g' => {
                self.annotate("signature ", annotations);
                self.display(format_args!("'{}'", text_rules::read(b'g', bytes)));
            }
            b'm' => self.maybe(value, annotations),
            b'a' => self.array(value, annotations),
            b'v' => {
                let (ty, child) = nested_variant(bytes, value.depth);
                let layout = Layout::of(ty);
                let depth = value.depth + 1;
                self.out.push('<');
                let child = Value { layout: &layout, node: 0, bytes: child, depth };
                self.value(child, Annotations::Shown);
                self.out.push('>');
            }
            b'{' => {
                self.out.push('{');
                self.separated(value, annotations, ", ");
                self.out.push('}');
            }
            _ => {
                self.out.push('(');
                let count = self.separated(value, annotations, ", ");
                self.out.push_str(if count == 1 { ",)" } else { ")" });
            }
        }
    }

    fn number<const N: usize>(&self, bytes: &[u8]) -> [u8; N] {
        fixed_bytes(bytes, self.order)
    }

    fn integer(&mut self, name: &str, number: impl std::fmt::Display, annotations: Annotations) {
        self.annotate(name, annotations);
        self.display(format_args!("{number}"));
    }

    fn annotate(&mut self, annotation: &str, annotations: Annotations) {
        if annotations == Annotations::Shown {
            self.out.push_str(annotation);
        }
    }

    fn annotate_type(&mut self, value: Value<'_>, annotations: Annotations) {
        if annotations == Annotations::Shown {
            self.display(format_args!("@{} ", value.layout.part(value.node)));
        }
    }

    fn display(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.out.write_fmt(text);
    }

    /// Prints the children of a tuple or dict entry; returns how many there are.
    fn separated(&mut self, value: Value<'_>, annotations: Annotations, by: &str) -> usize {
        let mut count = 0;
        for child in value.children() {
            if count > 0 {
                self.out.push_str(by);
            }
            self.value(child, annotations);
            count += 1;
        }
        count
    }

    /// Prints a maybe with as few `just` as tell it apart: only a nothing inside needs them.
    fn maybe(&mut self, value: Value<'_>, annotations: Annotations) {
        self.annotate_type(value, annotations);
        let (mut inner, mut levels) = (value, 0);
        while inner.info().kind == b'm' {
            match inner.children().next() {
                Some(child) => (inner, levels) = (child, levels + 1),
                None => {
                    self.out.extend(std::iter::repeat_n("just ", levels));
                    return self.out.push_str("nothing");
                }
            }
        }
        self.value(inner, Annotations::Hidden);
    }

    fn array(&mut self, value: Value<'_>, annotations: Annotations) {
        let element = value.layout.node(value.node + 1);
        if element.kind == b'y' && self.bytestring(value.bytes) {
            return;
        }
        let (open, close) = if element.kind == b'{' { ('{', '}') } else { ('[', ']') };
        let mut annotations = annotations;
        let mut is_first = true;
        for child in value.children() {
            if is_first {
                self.out.push(open);
            } else {
                self.out.push_str(", ");
            }
            is_first = false;
            if element.kind == b'{' {
                let mut parts = child.children();
                if let (Some(key), Some(item)) = (parts.next(), parts.next()) {
                    self.value(key, annotations);
                    self.out.push_str(": ");
                    self.value(item, annotations);
                }
            } else {
                self.value(child, annotations);
            }
            // The others have the type of the first.
            annotations = Annotations::Hidden;
        }
        if is_first {
            self.annotate_type(value, annotations);
            self.out.push(open);
        }
        self.out.push(close);
    }

    /// Prints an `ay` that ends in its only zero as a bytestring; says whether it is one.
    fn bytestring(&mut self, bytes: &[u8]) -> bool {
        let Some((&0, text)) = bytes.split_last() else { return false };
        if text.contains(&0) {
            return false;
        }
        let quote = if text.contains(&b'\'') { '"' } else { '\'' };
        self.out.push('b');
        self.out.push(quote);
        for &byte in text {
            match byte {
                0x08 => self.out.push_str("\\b"),
                0x0c => self.out.push_str("\\f"),
                b'\n' => self.out.push_str("\\n"),
                b'\r' => self.out.push_str("\\r"),
                b'\t' => self.out.push_str("\\t"),
                0x0b => self.out.push_str("\\v"),
                b'\\' => self.out.push_str("\\\\"),
                // Escaped whichever quotes are around it.
                b'"' => self.out.push_str("\\\""),
                b' '..=b'~' => self.out.push(char::from(byte)),
                _ => self.display(format_args!("\\{byte:03o}")),
            }
        }
        self.out.push(quote);
        true
    }

    fn string(&mut self, text: &str) {
        let quote = if text.contains('\'') { '"' } else { '\'' };
        self.out.push(quote);
        // Most text needs no escape and is copied in runs.
        let mut copied = 0;
        for (at, c) in text.char_indices() {
            if c != quote && c != '\\' && is_printable(c) {
                continue;
            }
            self.out.push_str(&text[copied..at]);
            copied = at + c.len_utf8();
            self.escape(c);
        }
        self.out.push_str(&text[copied..]);
        self.out.push(quote);
    }

    fn escape(&mut self, c: char) {
        self.out.push('\\');
        match c {
            '\x07' => self.out.push('a'),
            '\x08' => self.out.push('b'),
            '\x0c' => self.out.push('f'),
            '\n' => self.out.push('n'),
            '\r' => self.out.push('r'),
            '\t' => self.out.push('t'),
            '\x0b' => self.out.push('v'),
            ' '..='~' => self.out.push(c),
            c if u32::from(c) < 0x1_0000 => self.display(format_args!("u{:04x}", u32::from(c))),
            c => self.display(format_args!("U{:08x}", u32::from(c))),
        }
    }
}

/// Says whether a character stands for itself in a string: it is neither a control or format character nor unassigned.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    !matches!(
        c.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::Unassigned
            | GeneralCategory::Surrogate
    )
}
