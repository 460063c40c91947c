//! Writes values in normal form and native byte order, child by child.

use super::frame::{offset_width, total_size};
use super::types::Shape;

/// Bytes of a value that grows; alignment counts from the first byte.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    /// Ends of children of all containers that are open, each relative to its container.
    ends: Vec<usize>,
}

/// A container that is being written.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Open {
    start: usize,
    first_end: usize,
}

impl Writer {
    pub(super) fn with_capacity(capacity: usize) -> Writer {
        Writer { bytes: Vec::with_capacity(capacity), ends: Vec::new() }
    }

    /// Returns the bytes written, and those that open containers will need at least.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.ends.len()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds zeros up to the alignment of what comes next.
    pub(super) fn align(&mut self, mask: usize) {
        let len = super::types::align(self.bytes.len(), mask);
        self.bytes.resize(len, 0);
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds `count` zeros.
    pub(super) fn zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    /// Adds a string and the zero that ends it.
    pub(super) fn string(&mut self, text: &str) {
        self.push(text.as_bytes());
        self.bytes.push(0);
    }

    /// Begins a container; the caller has aligned for it.
    pub(super) fn open(&self) -> Open {
        Open { start: self.bytes.len(), first_end: self.ends.len() }
    }

    /// Says that a child that needs a framing offset ends here.
    pub(super) fn end_child(&mut self, open: Open) {
        self.ends.push(self.bytes.len() - open.start);
    }

    /// Ends an array.
    pub(super) fn close_array(&mut self, open: Open) {
        self.write_ends(open, false);
    }

    /// Ends a tuple or dict entry of the given shape with `members` members.
    pub(super) fn close_tuple(&mut self, open: Open, shape: Shape, members: usize) {
        if members == 0 {
            self.bytes.push(0);
        } else if shape.fixed > 0 {
            self.align(shape.mask);
        }
        // Tuples keep their offsets last member first.
        self.write_ends(open, true);
    }

    fn write_ends(&mut self, open: Open, reverse: bool) {
        let Writer { bytes, ends } = self;
        let list = ends.get(open.first_end..).unwrap_or(&[]);
        let width = offset_width(total_size(bytes.len() - open.start, list.len()));
        bytes.reserve(width * list.len());
        let mut write = |end: &usize| bytes.extend_from_slice(&end.to_le_bytes()[..width]);
        if reverse {
            list.iter().rev().for_each(&mut write);
        } else {
            list.iter().for_each(&mut write);
        }
        ends.truncate(open.first_end);
    }
}
