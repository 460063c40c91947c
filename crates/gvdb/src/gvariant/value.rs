//! A value somewhere inside a type that has been taken apart: the same rules as for a [`super::VariantView`], for walks over whole values.

use super::frame::{ArrayFrame, ElementWalk, TupleWalk, just_of};
use super::layout::{Layout, Node};

/// Bytes that nobody has checked, read as one node of a layout.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    pub(super) layout: &'a Layout<'a>,
    pub(super) node: usize,
    pub(super) bytes: &'a [u8],
    /// How many containers are around the value.
    pub(super) depth: usize,
}

impl<'a> Value<'a> {
    pub(super) fn info(self) -> Node {
        self.layout.node(self.node)
    }

    /// Returns the children of an array, maybe, tuple or dict entry; nothing for other types.
    ///
    /// What is inside a `v` has another layout, which the caller makes.
    pub(super) fn children(self) -> Children<'a> {
        let info = self.info();
        let state = match info.kind {
            b'a' => match self.layout.node(self.node + 1).shape.fixed {
                0 => State::Varying(ArrayFrame::of(self.bytes), ElementWalk::new()),
                fixed if self.bytes.len().is_multiple_of(fixed) => State::Fixed(self.bytes, fixed),
                _ => State::Done,
            },
            b'm' => {
                let fixed = self.layout.node(self.node + 1).shape.fixed;
                just_of(fixed, self.bytes).map_or(State::Done, State::One)
            }
            b'(' | b'{' => {
                let shapes = self.layout.children(self.node).map(|n| self.layout.node(n).shape);
                State::Members(TupleWalk::new(self.bytes, info.shape, shapes), self.node + 1)
            }
            _ => State::Done,
        };
        Children { parent: self, state }
    }
}

/// The children of a value, in order, each in constant time.
pub(super) struct Children<'a> {
    parent: Value<'a>,
    state: State<'a>,
}

enum State<'a> {
    Fixed(&'a [u8], usize),
    Varying(ArrayFrame<'a>, ElementWalk),
    /// The walk and the node of the next member.
    Members(TupleWalk<'a>, usize),
    One(&'a [u8]),
    Done,
}

impl<'a> Iterator for Children<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let Value { layout, node, depth, .. } = self.parent;
        let first = node + 1;
        let (node, bytes) = match &mut self.state {
            State::Fixed(bytes, size) => {
                let (child, rest) = bytes.split_at_checked(*size)?;
                *bytes = rest;
                (first, child)
            }
            State::Varying(frame, walk) => {
                (first, walk.next(frame, layout.node(first).shape.mask)?)
            }
            State::Members(walk, next) => {
                let end = layout.node(node).members_end();
                let child = *next;
                if child >= end {
                    return None;
                }
                let member = layout.node(child);
                *next = member.after;
                (child, walk.next(member.shape, member.after == end))
            }
            State::One(bytes) => {
                let bytes = *bytes;
                self.state = State::Done;
                (first, bytes)
            }
            State::Done => return None,
        };
        Some(Value { layout, node, bytes, depth: depth + 1 })
    }
}
