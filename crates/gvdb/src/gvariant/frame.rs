//! Framing offsets: where the children of an array or a tuple lie in bytes that nobody has checked.

use super::types::{Shape, align};

/// Returns how many bytes each framing offset of a container of `size` bytes takes.
pub(super) fn offset_width(size: usize) -> usize {
    match size {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// Returns the size of a container of `body` bytes with the smallest offsets that can hold it.
pub(super) fn total_size(body: usize, offsets: usize) -> usize {
    if body + offsets <= 0xff {
        body + offsets
    } else if body + 2 * offsets <= 0xffff {
        body + 2 * offsets
    } else if body + 4 * offsets <= 0xffff_ffff {
        body + 4 * offsets
    } else {
        body + 8 * offsets
    }
}

/// Reads a little-endian offset of up to 8 bytes.
fn read_offset(bytes: &[u8]) -> usize {
    match *bytes {
        [a] => usize::from(a),
        [a, b] => usize::from(u16::from_le_bytes([a, b])),
        _ => {
            let value = bytes.iter().rev().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
            usize::try_from(value).unwrap_or(usize::MAX)
        }
    }
}

/// The framing of an array whose elements vary in size.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayFrame<'a> {
    /// The elements, without the offsets.
    pub(super) data: &'a [u8],
    table: &'a [u8],
    width: usize,
    /// The offsets are as narrow as they can be and end where they must.
    pub(super) normal: bool,
}

impl<'a> ArrayFrame<'a> {
    /// Reads the framing of `bytes`, the whole array; a broken one has no elements.
    pub(super) fn of(bytes: &'a [u8]) -> ArrayFrame<'a> {
        let width = offset_width(bytes.len());
        let broken = ArrayFrame { data: &[], table: &[], width, normal: bytes.is_empty() };
        let Some((_, last)) = bytes.split_at_checked(bytes.len() - width) else { return broken };
        let Some((data, table)) = bytes.split_at_checked(read_offset(last)) else { return broken };
        if bytes.is_empty() || !table.len().is_multiple_of(width) {
            return broken;
        }
        let count = table.len() / width;
        let normal = count > 0 && total_size(data.len(), count) == bytes.len();
        ArrayFrame { data, table, width, normal }
    }

    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        self.table.len().checked_div(self.width).unwrap_or(0)
    }

    /// Returns the offset behind element `index`.
    pub(super) fn end(&self, index: usize) -> usize {
        self.table.get(index * self.width..(index + 1) * self.width).map_or(usize::MAX, read_offset)
    }
}

/// Goes through an array's elements in order.
///
/// The first offset that is smaller than the one before it ends all trust: that element and all behind it are empty,
/// so no two elements overlap.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElementWalk {
    index: usize,
    previous: usize,
    ordered: bool,
}

impl ElementWalk {
    pub(super) fn new() -> ElementWalk {
        ElementWalk { index: 0, previous: 0, ordered: true }
    }

    /// Returns the bytes of the next element, empty if they are malformed; `None` behind the last.
    pub(super) fn next<'a>(&mut self, frame: &ArrayFrame<'a>, mask: usize) -> Option<&'a [u8]> {
        if self.index >= frame.len() {
            return None;
        }
        let end = frame.end(self.index);
        let start = if self.index == 0 { 0 } else { align(self.previous, mask) };
        self.ordered &= end >= self.previous;
        self.previous = end;
        self.index += 1;
        Some(if self.ordered && start < end {
            frame.data.get(start..end).unwrap_or(&[])
        } else {
            &[]
        })
    }

    /// Returns how many elements are left.
    pub(super) fn left(&self, frame: &ArrayFrame<'_>) -> usize {
        frame.len() - self.index
    }
}

/// Goes through the members of a tuple or dict entry in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct TupleWalk<'a> {
    bytes: &'a [u8],
    width: usize,
    /// How many members that vary in size have been passed.
    varying: usize,
    /// Where the layout goes on: behind the previous member as its offset says, whatever that is.
    position: usize,
    order: Ordering,
    index: usize,
    last_end: usize,
}

/// What is known about the members passed so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ordering {
    /// None overlaps the one before it, which ends here.
    Ordered(usize),
    /// The first member itself was out of bounds. GLib does not look at order after that.
    Unknown,
    /// A member was out of order: it and the rest are empty.
    Broken,
}

impl<'a> TupleWalk<'a> {
    /// Starts at the first of `members` of a tuple of `shape` in `bytes`.
    pub(super) fn new(
        bytes: &'a [u8],
        shape: Shape,
        members: impl Iterator<Item = Shape>,
    ) -> TupleWalk<'a> {
        // A value of a fixed size that has another size is not there at all; neither are its members.
        let bytes = if shape.fixed > 0 && bytes.len() != shape.fixed { &[] } else { bytes };
        let width = offset_width(bytes.len());
        let start = TupleWalk {
            bytes,
            width,
            varying: 0,
            position: 0,
            order: Ordering::Ordered(0),
            index: 0,
            last_end: 0,
        };
        let mut probe = start;
        let mut members = members.peekable();
        while let Some(member) = members.next() {
            probe.last_end = probe.bounds(member, members.peek().is_none()).1;
        }
        TupleWalk { last_end: probe.last_end, ..start }
    }

    /// Returns the bytes of the next member, empty if they are malformed.
    pub(super) fn next(&mut self, member: Shape, is_last: bool) -> &'a [u8] {
        let offsets = self.varying + usize::from(member.fixed == 0 && !is_last);
        let (start, end) = self.bounds(member, is_last);
        if let Ordering::Ordered(previous_end) = self.order {
            let ordered = start <= end && start >= previous_end && end <= self.bytes.len();
            self.order = match (ordered, self.index) {
                (true, _) => Ordering::Ordered(end),
                (false, 0) => Ordering::Unknown,
                (false, _) => Ordering::Broken,
            };
        }
        self.index += 1;
        let table_fits = self.width * offsets <= self.bytes.len();
        if self.order == Ordering::Broken || !table_fits || start >= end || end > self.last_end {
            return &[];
        }
        self.bytes.get(start..end).unwrap_or(&[])
    }

    /// Returns start and end of the next member as the bytes have it, and moves behind it.
    fn bounds(&mut self, member: Shape, is_last: bool) -> (usize, usize) {
        let start = align(self.position, member.mask);
        if member.fixed > 0 {
            let end = start.wrapping_add(member.fixed);
            self.position = end;
            return (start, end);
        }
        if is_last {
            let end = self.bytes.len().checked_sub(self.width * self.varying);
            return (start, end.unwrap_or(usize::MAX));
        }
        self.varying += 1;
        let end = self
            .bytes
            .len()
            .checked_sub(self.width * self.varying)
            .map(|at| self.bytes.get(at..at + self.width).map_or(usize::MAX, read_offset));
        self.position = end.unwrap_or(0);
        (start, end.unwrap_or(usize::MAX))
    }
}

impl TupleWalk<'_> {
    /// Returns start and end of the next member as the bytes have it, whatever came before; `None` if the offset
    /// that says it lies outside.
    pub(super) fn normal_bounds(&mut self, member: Shape, is_last: bool) -> Option<(usize, usize)> {
        let (start, end) = self.bounds(member, is_last);
        (end != usize::MAX && start <= end).then_some((start, end))
    }
}

/// Returns the bytes of the child of a maybe whose element has the fixed size `fixed`, or 0.
pub(super) fn just_of(fixed: usize, bytes: &[u8]) -> Option<&[u8]> {
    match fixed {
        0 => bytes.split_last().map(|(_, child)| child),
        fixed => (bytes.len() == fixed).then_some(bytes),
    }
}
