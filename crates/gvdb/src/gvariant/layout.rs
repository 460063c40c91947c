//! A type string taken apart once, so that a walk over many values does not scan it again for each.

use super::types::{Shape, TupleShape, Type};

/// The types in a type string, each at the place of its first character.
#[derive(Debug)]
pub(super) struct Layout<'t> {
    ty: Type<'t>,
    nodes: Vec<Packed>,
}

/// One type within a type: its first child is the next node, its next sibling is `after`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// The first character of the type.
    pub(super) kind: u8,
    pub(super) shape: Shape,
    /// Every byte sequence of the fixed size is in normal form.
    pub(super) plain: bool,
    /// The number of members of a tuple or dict entry, 1 for an array or a maybe.
    pub(super) children: usize,
    /// The node behind this one and all inside it.
    pub(super) after: usize,
}

/// A node in 16 bytes, for hostile type strings may be as long as a message.
#[derive(Clone, Copy, Debug)]
struct Packed {
    kind: u8,
    mask: u8,
    plain: bool,
    fixed: u32,
    children: u32,
    after: u32,
}

impl<'t> Layout<'t> {
    pub(super) fn of(ty: Type<'t>) -> Layout<'t> {
        let text = ty.as_str().as_bytes();
        let mut nodes = Vec::with_capacity(text.len());
        push(text, &mut nodes);
        Layout { ty, nodes }
    }

    /// Returns node `index`; 0 is the whole type.
    pub(super) fn node(&self, index: usize) -> Node {
        self.nodes[index].unpack()
    }

    /// Returns the type string of node `index`.
    pub(super) fn part(&self, index: usize) -> Type<'t> {
        Type::part_of_valid(&self.ty.as_str()[index..self.node(index).after])
    }

    /// Returns the children of node `index`, in order.
    pub(super) fn children(&self, index: usize) -> impl Iterator<Item = usize> + use<'_, 't> {
        let mut next = index + 1;
        (0..self.node(index).children).map(move |_| {
            let child = next;
            next = self.node(child).after;
            child
        })
    }
}

impl Node {
    /// Returns where the closing bracket of a tuple or dict entry stands: behind the last member.
    pub(super) fn members_end(&self) -> usize {
        self.after - 1
    }

    fn pack(self) -> Packed {
        // A type string has less than 2^28 characters, and a value of a fixed size eight bytes for each at most.
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Packed {
            kind: self.kind,
            mask: u8::try_from(self.shape.mask).unwrap_or(7),
            plain: self.plain,
            fixed: small(self.shape.fixed),
            children: small(self.children),
            after: small(self.after),
        }
    }
}

impl Packed {
    fn unpack(self) -> Node {
        let wide = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Node {
            kind: self.kind,
            shape: Shape { mask: self.mask.into(), fixed: wide(self.fixed) },
            plain: self.plain,
            children: wide(self.children),
            after: wide(self.after),
        }
    }
}

/// Adds the type at the place of the next node and all inside it.
fn push(text: &[u8], nodes: &mut Vec<Packed>) {
    let index = nodes.len();
    let kind = text.get(index).copied().unwrap_or(b')');
    let shape = Shape::of_letter(kind);
    let plain = shape.fixed > 0 && kind != b'b';
    let mut node = Node { kind, shape, plain, children: 0, after: index + 1 };
    nodes.push(node.pack());
    match kind {
        b'a' | b'm' => {
            push(text, nodes);
            node.shape = Shape { mask: nodes[index + 1].unpack().shape.mask, fixed: 0 };
            node.children = 1;
        }
        b'(' | b'{' => {
            let mut tuple = TupleShape::new();
            node.plain = true;
            while !matches!(text.get(nodes.len()), None | Some(b')' | b'}')) {
                let child = nodes.len();
                push(text, nodes);
                let child = nodes[child].unpack();
                tuple.add(child.shape);
                node.plain &= child.plain;
                node.children += 1;
            }
            // The closing bracket takes a place of its own.
            nodes.push(Node { kind: b')', after: nodes.len() + 1, ..node }.pack());
            node.shape = tuple.finish();
            node.plain &= tuple.dense;
        }
        _ => return,
    }
    node.after = nodes.len();
    nodes[index] = node.pack();
}
