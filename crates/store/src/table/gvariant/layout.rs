//! A type string taken apart once, so that a walk over many values does not scan it again for each.

use super::types::{Shape, TupleShape, Type};

/// The nodes of a type in the order of its type string.
#[derive(Debug)]
pub(super) struct Layout<'t> {
    ty: Type<'t>,
    nodes: Vec<Node>,
}

/// One type within a type: the first child of node `n` is `n + 1`, its next sibling is `after`.
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
    start: usize,
    end: usize,
}

impl<'t> Layout<'t> {
    pub(super) fn of(ty: Type<'t>) -> Layout<'t> {
        let text = ty.as_str().as_bytes();
        let mut nodes = Vec::with_capacity(text.len());
        push(text, 0, &mut nodes);
        Layout { ty, nodes }
    }

    /// Returns node `index`; 0 is the whole type.
    pub(super) fn node(&self, index: usize) -> Node {
        self.nodes[index]
    }

    /// Returns the type string of node `index`.
    pub(super) fn part(&self, index: usize) -> Type<'t> {
        let node = self.nodes[index];
        Type::part_of_valid(&self.ty.as_str()[node.start..node.end])
    }

    /// Returns the children of node `index`, in order.
    pub(super) fn children(&self, index: usize) -> impl Iterator<Item = usize> + use<'_, 't> {
        let mut next = index + 1;
        (0..self.nodes[index].children).map(move |_| {
            let child = next;
            next = self.nodes[child].after;
            child
        })
    }
}

/// Adds the type at `start` and all inside it; returns its end in the text.
fn push(text: &[u8], start: usize, nodes: &mut Vec<Node>) -> usize {
    let index = nodes.len();
    let kind = text.get(start).copied().unwrap_or(b'(');
    let shape = Shape::of_letter(kind);
    let plain = shape.fixed > 0 && kind != b'b';
    nodes.push(Node { kind, shape, plain, children: 0, after: index + 1, start, end: start + 1 });
    match kind {
        b'a' | b'm' => {
            let end = push(text, start + 1, nodes);
            let mask = nodes[index + 1].shape.mask;
            nodes[index].shape = Shape { mask, fixed: 0 };
            nodes[index].plain = false;
            nodes[index].children = 1;
            nodes[index].end = end;
        }
        b'(' | b'{' => {
            let mut tuple = TupleShape::new();
            let (mut end, mut children, mut plain) = (start + 1, 0, true);
            while !matches!(text.get(end), None | Some(b')' | b'}')) {
                let child = nodes.len();
                end = push(text, end, nodes);
                tuple.add(nodes[child].shape);
                plain &= nodes[child].plain;
                children += 1;
            }
            nodes[index].shape = tuple.finish();
            nodes[index].plain = plain && tuple.dense;
            nodes[index].children = children;
            nodes[index].end = end + 1;
        }
        _ => (),
    }
    nodes[index].after = nodes.len();
    nodes[index].end
}
