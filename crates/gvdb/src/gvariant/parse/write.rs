//! Writes a tree as a value of a type.

use super::super::ParseError;
use super::super::layout::Layout;
use super::super::text_rules;
use super::super::types::Type;
use super::super::writer::Writer;
use super::number::{self, Integer};
use super::pattern;
use super::syntax::{SyntaxKind, Tree};

/// Writes `tree` as a value of type `ty`.
pub(super) fn value(tree: &Tree<'_>, ty: Type<'_>, writer: &mut Writer) -> Result<(), ParseError> {
    Target { layout: &Layout::of(ty), node: 0 }.write(tree, writer)
}

/// The type that a part of the tree shall have.
#[derive(Clone, Copy)]
struct Target<'a> {
    layout: &'a Layout<'a>,
    node: usize,
}

impl Target<'_> {
    fn kind(self) -> u8 {
        self.layout.node(self.node).kind
    }

    fn mismatch(self, tree: &Tree<'_>) -> ParseError {
        let ty = self.layout.part(self.node);
        tree.error(&format!("can not parse as value of type '{ty}'"))
    }

    fn write(self, tree: &Tree<'_>, writer: &mut Writer) -> Result<(), ParseError> {
        match &tree.kind {
            SyntaxKind::Declared(_, child) => self.write(child, writer),
            SyntaxKind::Maybe(child) => {
                if self.kind() != b'm' {
                    return Err(self.mismatch(tree));
                }
                let Some(child) = child else { return Ok(()) };
                let element = Target { node: self.node + 1, ..self };
                element.write(child, writer)?;
                if self.layout.node(element.node).shape.fixed == 0 {
                    writer.zeros(1);
                }
                Ok(())
            }
            // Anything else stands for a value in as many maybes as the type asks for.
            _ => {
                let mut base = self;
                while base.kind() == b'm' {
                    base.node += 1;
                }
                base.write_base(tree, writer)?;
                let maybes = base.node - self.node;
                let fixed = self.layout.node(base.node).shape.fixed > 0;
                writer.zeros(if fixed { maybes.saturating_sub(1) } else { maybes });
                Ok(())
            }
        }
    }

    fn write_base(self, tree: &Tree<'_>, writer: &mut Writer) -> Result<(), ParseError> {
        match (&tree.kind, self.kind()) {
            (SyntaxKind::Boolean(value), b'b') => writer.push(&[u8::from(*value)]),
            (SyntaxKind::Number(token), _) => self.write_number(tree, token, writer)?,
            (SyntaxKind::String(text), kind @ (b's' | b'o' | b'g')) => {
                let valid = match kind {
                    b'o' => text_rules::is_object_path(text),
                    b'g' => text_rules::is_signature(text),
                    _ => std::str::from_utf8(text).is_ok(),
                };
                if !valid {
                    return Err(tree.error(match kind {
                        b'o' => "not a valid object path",
                        b'g' => "not a valid signature",
                        _ => "not a valid string",
                    }));
                }
                writer.push(text);
                writer.zeros(1);
            }
            (SyntaxKind::Bytestring(bytes), b'a')
                if self.layout.part(self.node) == Type::BYTESTRING =>
            {
                // As everywhere in GLib, a zero ends it.
                let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
                writer.push(&bytes[..len]);
                writer.zeros(1);
            }
            (SyntaxKind::Array(items), b'a') => {
                let element = Target { node: self.node + 1, ..self };
                write_array(element, items, writer, |item, writer| element.write(item, writer))?;
            }
            (SyntaxKind::Dictionary(keys, values), b'a') => {
                let entry = Target { node: self.node + 1, ..self };
                if entry.kind() != b'{' {
                    return Err(self.mismatch(tree));
                }
                let pairs: Vec<[&Tree<'_>; 2]> =
                    keys.iter().zip(values).map(|(key, value)| [key, value]).collect();
                write_array(entry, &pairs, writer, |pair, writer| {
                    entry.write_members(pair, writer)
                })?;
            }
            (SyntaxKind::Entry(entry), b'{') => self.write_members(&entry.each_ref(), writer)?,
            (SyntaxKind::Tuple(members), b'(') => {
                let types = self.layout.node(self.node).children;
                let members: Vec<&Tree<'_>> = members.iter().collect();
                // What is wrong with a member comes before how many there are.
                self.write_members(&members[..members.len().min(types)], writer)?;
                if members.len() != types {
                    return Err(self.mismatch(tree));
                }
            }
            (SyntaxKind::Variant(child), b'v') => {
                let ty = pattern::resolve(child)?;
                let ty = Type::parse(&ty).ok_or_else(|| child.error("unable to infer type"))?;
                value(child, ty, writer)?;
                writer.zeros(1);
                writer.push(ty.as_str().as_bytes());
            }
            _ => return Err(self.mismatch(tree)),
        }
        Ok(())
    }

    /// Writes the members of a tuple or dict entry.
    fn write_members(self, members: &[&Tree<'_>], writer: &mut Writer) -> Result<(), ParseError> {
        let info = self.layout.node(self.node);
        let open = writer.open();
        for (&member, node) in members.iter().zip(self.layout.children(self.node)) {
            let shape = self.layout.node(node).shape;
            writer.align(shape.mask);
            Target { node, ..self }.write(member, writer)?;
            if shape.fixed == 0 && self.layout.node(node).after < info.members_end() {
                writer.end_child(open);
            }
        }
        writer.close_tuple(open, info.shape, info.children);
        Ok(())
    }

    fn write_number(
        self,
        tree: &Tree<'_>,
        token: &[u8],
        writer: &mut Writer,
    ) -> Result<(), ParseError> {
        let kind = self.kind();
        if kind == b'd' {
            writer.push(&number::double(tree, token)?.to_ne_bytes());
            return Ok(());
        }
        let integer = Integer::read(tree, token)?;
        let signed = |max| integer.signed(max).map(i64::to_le_bytes);
        let unsigned = |max| integer.unsigned(max).map(u64::to_le_bytes);
        let bytes = match kind {
            b'y' => unsigned(u8::MAX.into()),
            b'n' => signed(i16::MAX.into()),
            b'q' => unsigned(u16::MAX.into()),
            b'i' | b'h' => signed(i32::MAX.into()),
            b'u' => unsigned(u32::MAX.into()),
            b'x' => signed(i64::MAX),
            b't' => unsigned(u64::MAX),
            _ => return Err(self.mismatch(tree)),
        };
        let Some(bytes) = bytes else {
            let message = format!("number out of range for type '{}'", char::from(kind));
            return Err(tree.error(&message));
        };
        // Of a number that fits, the low bytes are the number in the smaller type.
        let mut bytes = bytes[..self.layout.node(self.node).shape.fixed].to_vec();
        if cfg!(target_endian = "big") {
            bytes.reverse();
        }
        writer.push(&bytes);
        Ok(())
    }
}

/// Writes an array of elements of the type of `element`.
fn write_array<T>(
    element: Target<'_>,
    items: &[T],
    writer: &mut Writer,
    write: impl Fn(&T, &mut Writer) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    let shape = element.layout.node(element.node).shape;
    let open = writer.open();
    for item in items {
        writer.align(shape.mask);
        write(item, writer)?;
        if shape.fixed == 0 {
            writer.end_child(open);
        }
    }
    writer.close_array(open);
    Ok(())
}
