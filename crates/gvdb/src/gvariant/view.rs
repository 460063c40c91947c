//! Reading values in place from bytes that nobody has checked.

use super::super::ByteOrder;
use super::frame::{ArrayFrame, ElementWalk, TupleWalk, just_of};
use super::text_rules;
use super::types::{MAX_DEPTH, MemberTypes, Shape, Type};

/// A value of any type in serialised form, borrowed from bytes that nobody has checked.
///
/// As in GLib every byte sequence decodes: a malformed part reads as the default value of its type
/// (zero, the empty string, `/`, nothing, no elements; `()` inside a `v`).
/// No accessor allocates, and none looks at more bytes than the value has.
#[derive(Clone, Copy, Debug)]
pub struct VariantView<'a> {
    ty: Type<'a>,
    bytes: &'a [u8],
    order: ByteOrder,
    /// How many containers are around this value.
    depth: u8,
}

impl<'a> VariantView<'a> {
    /// Reads `bytes` as a value of type `ty`.
    #[must_use]
    pub fn new(ty: Type<'a>, bytes: &'a [u8], order: ByteOrder) -> VariantView<'a> {
        VariantView { ty, bytes, order, depth: 0 }
    }

    /// Reads `bytes` as a serialised `v` and returns what is inside it.
    #[must_use]
    #[inline]
    pub fn inside(bytes: &'a [u8], order: ByteOrder) -> VariantView<'a> {
        let (ty, bytes) = split_variant(bytes).unwrap_or((Type::UNIT, &[]));
        VariantView { ty, bytes, order, depth: 0 }
    }

    /// Returns the type of the value.
    #[must_use]
    pub fn ty(self) -> Type<'a> {
        self.ty
    }

    /// Returns the serialised bytes as they are; not in normal form, and of any length.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the byte order in which numbers are read.
    #[must_use]
    pub fn order(self) -> ByteOrder {
        self.order
    }

    /// Returns how many containers are around the value.
    pub(super) fn depth(self) -> usize {
        usize::from(self.depth)
    }

    /// Returns the number of children of a container (0 for a basic type).
    #[must_use]
    pub fn len(self) -> usize {
        match self.ty.kind() {
            b'a' | b'm' => self.children().len(),
            b'(' | b'{' => self.ty.members().count(),
            b'v' => 1,
            _ => 0,
        }
    }

    /// Says whether a container has no children.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns child `index`: of an array, tuple, dict entry, maybe or `v`.
    ///
    /// Costs time in proportion to `index` unless it is an array of a fixed-size type;
    /// to see all children use [`VariantView::children`].
    #[must_use]
    pub fn child(self, index: usize) -> Option<VariantView<'a>> {
        self.children().nth(index)
    }

    /// Returns the children of a container in order, each in constant time; nothing for a basic type.
    #[must_use]
    pub fn children(self) -> Children<'a> {
        let state = match self.ty.kind() {
            b'a' => {
                let Some(element) = self.ty.element() else { return Children::none(self) };
                let Shape { mask, fixed } = element.shape();
                if fixed == 0 {
                    let frame = ArrayFrame::of(self.bytes);
                    State::Varying { element, mask, frame, walk: ElementWalk::new() }
                } else if self.bytes.len().is_multiple_of(fixed) {
                    State::Fixed { element, size: fixed, bytes: self.bytes }
                } else {
                    State::Done
                }
            }
            b'm' => match (self.ty.element(), just(self.ty, self.bytes)) {
                (Some(element), Some(bytes)) => State::One(element, bytes),
                _ => State::Done,
            },
            b'(' | b'{' => {
                let members = self.ty.members();
                let shapes = members.clone().map(Type::shape);
                let walk = TupleWalk::new(self.bytes, self.ty.shape(), shapes);
                State::Members { members, walk }
            }
            b'v' => {
                let (ty, bytes) = nested_variant(self.bytes, usize::from(self.depth));
                State::One(ty, bytes)
            }
            _ => State::Done,
        };
        Children { state, order: self.order, depth: self.depth.saturating_add(1) }
    }

    /// Returns what is inside a `v`; `None` for other types.
    #[must_use]
    pub fn as_variant(self) -> Option<VariantView<'a>> {
        if self.ty == Type::VARIANT { self.child(0) } else { None }
    }

    /// Returns the string of an `s`, `o` or `g`; `None` for other types.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        match self.ty.kind() {
            kind @ (b's' | b'o' | b'g') => Some(text_rules::read(kind, self.bytes)),
            _ => None,
        }
    }

    /// Returns the elements of an `ay`; `None` for other types.
    #[must_use]
    pub fn as_byte_array(self) -> Option<&'a [u8]> {
        (self.ty == Type::BYTESTRING).then_some(self.bytes)
    }

    /// Returns the value of a `b`; `None` for other types.
    #[must_use]
    #[inline]
    pub fn as_bool(self) -> Option<bool> {
        self.number::<1>(b'b').map(|[byte]| byte != 0)
    }

    /// Returns the value of a `y`; `None` for other types.
    #[must_use]
    #[inline]
    pub fn as_u8(self) -> Option<u8> {
        self.number::<1>(b'y').map(|[byte]| byte)
    }

    /// Returns the value of an `n`; `None` for other types.
    #[must_use]
    #[inline]
    pub fn as_i16(self) -> Option<i16> {
        self.number(b'n').map(i16::from_ne_bytes)
    }

    /// Returns the value of a `q`; `None` for other types.
    #[must_use]
    #[inline]
    pub fn as_u16(self) -> Option<u16> {
        self.number(b'q').map(u16::from_ne_bytes)
    }

    /// Returns the value of an `i`; `None` for other types.
    #[must_use]
    #[inline]
    pub fn as_i32(self) -> Option<i32> {
        self.number(b'i').map(i32::from_ne_bytes)
    }

    /// Returns the value of a `u`; `None` for other types.
    #[must_use]
    #[inline]
    pub fn as_u32(self) -> Option<u32> {
        self.number(b'u').map(u32::from_ne_bytes)
    }

    /// Returns the value of an `x`; `None` for other types.
    #[must_use]
    #[inline]
    pub fn as_i64(self) -> Option<i64> {
        self.number(b'x').map(i64::from_ne_bytes)
    }

    /// Returns the value of a `t`; `None` for other types.
    #[must_use]
    #[inline]
    pub fn as_u64(self) -> Option<u64> {
        self.number(b't').map(u64::from_ne_bytes)
    }

    /// Returns the value of a `d`; `None` for other types.
    #[must_use]
    #[inline]
    pub fn as_f64(self) -> Option<f64> {
        self.number(b'd').map(f64::from_ne_bytes)
    }

    /// Returns the value of an `h`, an index of a file descriptor; `None` for other types.
    #[must_use]
    #[inline]
    pub fn as_handle(self) -> Option<i32> {
        self.number(b'h').map(i32::from_ne_bytes)
    }

    /// Returns the `N` bytes of a number of type `kind` in native order; zeros if they are not there.
    #[inline]
    fn number<const N: usize>(self, kind: u8) -> Option<[u8; N]> {
        if self.ty.kind() != kind {
            return None;
        }
        Some(fixed_bytes(self.bytes, self.order))
    }
}

/// Returns `N` bytes in native order; zeros if there are not exactly `N`.
#[inline]
pub(super) fn fixed_bytes<const N: usize>(bytes: &[u8], order: ByteOrder) -> [u8; N] {
    let mut bytes = <[u8; N]>::try_from(bytes).unwrap_or([0; N]);
    if order != ByteOrder::NATIVE {
        bytes.reverse();
    }
    bytes
}

/// Splits a serialised `v` in type and child; `None` if it holds no value.
#[inline]
fn split_variant(bytes: &[u8]) -> Option<(Type<'_>, &[u8])> {
    // Most settings are of a type of one letter.
    if let [child @ .., 0, letter] = bytes
        && let Some(ty) = Type::of_letter(*letter)
    {
        let fixed = Shape::of_letter(*letter).fixed;
        // Both at once: which of them holds cannot be predicted.
        return ((fixed == 0) | (fixed == child.len())).then_some((ty, child));
    }
    let zero = bytes.iter().rposition(|&byte| byte == 0)?;
    let (child, ty) = (&bytes[..zero], Type::from_bytes(&bytes[zero + 1..])?);
    let fixed = ty.shape().fixed;
    (fixed == 0 || fixed == child.len()).then_some((ty, child))
}

/// Opens a `v` that has `depth` containers around it; one that nests too deep holds `()`, as a malformed one does.
pub(super) fn nested_variant(bytes: &[u8], depth: usize) -> (Type<'_>, &[u8]) {
    split_variant(bytes)
        .filter(|(ty, _)| depth + ty.depth() < MAX_DEPTH)
        .unwrap_or((Type::UNIT, &[]))
}

/// Returns the bytes of the child of a maybe; `None` for nothing.
fn just<'a>(ty: Type<'_>, bytes: &'a [u8]) -> Option<&'a [u8]> {
    just_of(ty.element()?.shape().fixed, bytes)
}

/// The children of a container, in order.
#[derive(Clone, Debug)]
pub struct Children<'a> {
    state: State<'a>,
    order: ByteOrder,
    depth: u8,
}

#[derive(Clone, Debug)]
enum State<'a> {
    Fixed { element: Type<'a>, size: usize, bytes: &'a [u8] },
    Varying { element: Type<'a>, mask: usize, frame: ArrayFrame<'a>, walk: ElementWalk },
    Members { members: MemberTypes<'a>, walk: TupleWalk<'a> },
    One(Type<'a>, &'a [u8]),
    Done,
}

impl<'a> Children<'a> {
    fn none(of: VariantView<'a>) -> Children<'a> {
        Children { state: State::Done, order: of.order, depth: of.depth }
    }
}

impl<'a> Iterator for Children<'a> {
    type Item = VariantView<'a>;

    fn next(&mut self) -> Option<VariantView<'a>> {
        let (ty, bytes) = match &mut self.state {
            State::Fixed { element, size, bytes } => {
                let (child, rest) = bytes.split_at_checked(*size).filter(|_| *size > 0)?;
                *bytes = rest;
                (*element, child)
            }
            State::Varying { element, mask, frame, walk } => (*element, walk.next(frame, *mask)?),
            State::Members { members, walk } => {
                let ty = members.next()?;
                (ty, walk.next(ty.shape(), members.is_empty()))
            }
            State::One(ty, bytes) => {
                let child = (*ty, *bytes);
                self.state = State::Done;
                child
            }
            State::Done => return None,
        };
        Some(VariantView { ty, bytes, order: self.order, depth: self.depth })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.state {
            State::Fixed { size, bytes, .. } => bytes.len() / size,
            State::Varying { frame, walk, .. } => walk.left(frame),
            State::Members { members, .. } => members.clone().count(),
            State::One(..) => 1,
            State::Done => 0,
        };
        (left, Some(left))
    }

    fn nth(&mut self, n: usize) -> Option<VariantView<'a>> {
        if let State::Fixed { size, bytes, .. } = &mut self.state {
            *bytes = size.checked_mul(n).and_then(|skip| bytes.get(skip..)).unwrap_or(&[]);
            return self.next();
        }
        for _ in 0..n {
            self.next()?;
        }
        self.next()
    }
}

impl ExactSizeIterator for Children<'_> {}
