//! Normal form: the check, and the copy that brings any bytes into it.

use super::super::ByteOrder;
use super::Variant;
use super::frame::{ArrayFrame, TupleWalk, just_of, total_size};
use super::layout::Layout;
use super::text_rules;
use super::types::{MAX_DEPTH, Type, align};
use super::value::Value;
use super::view::{VariantView, fixed_bytes, nested_variant};
use super::writer::Writer;

impl VariantView<'_> {
    /// Says whether the bytes are the one normal form of their value.
    #[must_use]
    pub fn is_normal(self) -> bool {
        is_normal(self)
    }

    /// Copies the value in normal form and native byte order.
    ///
    /// Hostile bytes can name defaults far larger than themselves.
    /// A value whose normal form is over 1 KiB and over eight times the size of bytes and type reads as the default
    /// of its type instead, so memory and time are bounded by the size of the input.
    #[must_use]
    pub fn to_variant(self) -> Variant {
        Variant(to_variant(self).into_boxed_slice())
    }
}

/// Says whether the bytes of `view` are the one normal form of their value, in whatever byte order.
fn is_normal(view: VariantView<'_>) -> bool {
    let layout = Layout::of(view.ty());
    check(Value { layout: &layout, node: 0, bytes: view.bytes(), depth: view.depth() })
}

/// Returns the bytes of a `v` that holds the value of `view` in normal form and native byte order.
fn to_variant(view: VariantView<'_>) -> Vec<u8> {
    let layout = Layout::of(view.ty());
    let value = Value { layout: &layout, node: 0, bytes: view.bytes(), depth: view.depth() };
    let any_order = view.order() == ByteOrder::NATIVE || layout.node(0).shape.mask == 0;
    let body = if any_order && check(value) {
        let mut body = Vec::with_capacity(view.bytes().len() + 1 + view.ty().as_str().len());
        body.extend_from_slice(view.bytes());
        body
    } else {
        let size = view.bytes().len() + view.ty().as_str().len();
        let mut rewrite = Rewrite {
            writer: Writer::with_capacity(size + 1),
            order: view.order(),
            max_len: 1024 + 8 * size,
            work_left: 0x1_0000 + 256 * size,
        };
        if rewrite.value(value).is_err() {
            rewrite.writer = Writer::default();
            (rewrite.max_len, rewrite.work_left) = (usize::MAX, usize::MAX);
            // The default of a type is at most eight times as long as its type string.
            let _ = rewrite.value(Value { bytes: &[], ..value });
        }
        rewrite.writer.into_bytes()
    };
    close_variant(body, view.ty())
}

/// Makes the bytes of a `v` out of the bytes of its child.
pub(super) fn close_variant(mut child: Vec<u8>, ty: Type<'_>) -> Vec<u8> {
    child.push(0);
    child.extend_from_slice(ty.as_str().as_bytes());
    child
}

fn check(value: Value<'_>) -> bool {
    let Value { layout, node, bytes, depth } = value;
    let info = layout.node(node);
    if info.shape.fixed > 0 && bytes.len() != info.shape.fixed {
        return false;
    }
    if info.plain {
        return true;
    }
    match info.kind {
        b'b' => matches!(bytes, [0 | 1]),
        b's' => text_rules::string(bytes).is_some(),
        b'o' => text_rules::string(bytes).is_some_and(|s| text_rules::is_object_path(s.as_bytes())),
        b'g' => text_rules::string(bytes).is_some_and(|s| text_rules::is_signature(s.as_bytes())),
        b'a' => check_array(value),
        b'm' => {
            let element = layout.node(node + 1);
            let child = just_of(element.shape.fixed, bytes);
            let ends_well = element.shape.fixed > 0 || matches!(bytes, [] | [.., 0]);
            let Some(child) = child else { return bytes.is_empty() };
            ends_well && check(Value { node: node + 1, bytes: child, depth: depth + 1, layout })
        }
        b'(' | b'{' => check_tuple(value),
        b'v' => {
            let (ty, child) = nested_variant(bytes, depth);
            // What a malformed `v` holds by default has no bytes, which `()` must have.
            let layout = Layout::of(ty);
            check(Value { layout: &layout, node: 0, bytes: child, depth: depth + 1 })
        }
        _ => true,
    }
}

fn check_array(value: Value<'_>) -> bool {
    let Value { layout, node, bytes, depth } = value;
    let element = layout.node(node + 1);
    let child = |bytes| Value { layout, node: node + 1, bytes, depth: depth + 1 };
    if element.shape.fixed > 0 {
        let mut chunks = bytes.chunks_exact(element.shape.fixed);
        let whole = chunks.remainder().is_empty();
        return whole && (element.plain || chunks.all(|bytes| check(child(bytes))));
    }
    let frame = ArrayFrame::of(bytes);
    if !frame.normal {
        return false;
    }
    let mut at = 0;
    for index in 0..frame.len() {
        let end = frame.end(index);
        let start = align(at, element.shape.mask);
        let (Some(padding), Some(bytes)) = (frame.data.get(at..start), frame.data.get(start..end))
        else {
            return false;
        };
        if padding.iter().any(|&byte| byte != 0) || !check(child(bytes)) {
            return false;
        }
        at = end;
    }
    at == frame.data.len()
}

fn check_tuple(value: Value<'_>) -> bool {
    let Value { layout, node, bytes, depth } = value;
    let info = layout.node(node);
    if info.children == 0 {
        return bytes == [0];
    }
    let varying = |child: &usize| {
        layout.node(*child).shape.fixed == 0 && layout.node(*child).after < info.members_end()
    };
    let offsets = layout.children(node).filter(varying).count();
    let shapes = layout.children(node).map(|child| layout.node(child).shape);
    let mut walk = TupleWalk::new(bytes, info.shape, shapes);
    let mut at = 0;
    for child in layout.children(node) {
        let member = layout.node(child);
        let start = align(at, member.shape.mask);
        let Some((from, to)) = walk.normal_bounds(member.shape, member.after == info.members_end())
        else {
            return false;
        };
        let (Some(padding), Some(child_bytes)) = (bytes.get(at..start), bytes.get(from..to)) else {
            return false;
        };
        let child = Value { layout, node: child, bytes: child_bytes, depth: depth + 1 };
        if from != start || padding.iter().any(|&byte| byte != 0) || !check(child) {
            return false;
        }
        at = to;
    }
    if info.shape.fixed > 0 {
        return bytes[at..].iter().all(|&byte| byte == 0);
    }
    total_size(at, offsets) == bytes.len()
}

/// The normal form grew past what its input may cost.
struct TooLarge;

/// A copy into normal form under way.
struct Rewrite {
    writer: Writer,
    order: ByteOrder,
    /// How long the result may get.
    max_len: usize,
    /// How many more values may be visited and bytes searched.
    work_left: usize,
}

impl Rewrite {
    fn value(&mut self, value: Value<'_>) -> Result<(), TooLarge> {
        let Value { bytes, depth, .. } = value;
        let info = value.info();
        let work = 1 + if info.shape.fixed > 0 { 0 } else { bytes.len() / 64 };
        self.work_left = self.work_left.checked_sub(work).ok_or(TooLarge)?;
        match info.kind {
            b'b' => self.writer.push(&[u8::from(fixed_bytes::<1>(bytes, self.order) != [0])]),
            b'y' => self.number::<1>(bytes),
            b'n' | b'q' => self.number::<2>(bytes),
            b'i' | b'u' | b'h' => self.number::<4>(bytes),
            b'x' | b't' | b'd' => self.number::<8>(bytes),
            b's' | b'o' | b'g' => self.text(info.kind, bytes)?,
            b'a' => self.array(value)?,
            b'm' => {
                for child in value.children() {
                    self.value(child)?;
                    if child.info().shape.fixed == 0 {
                        self.writer.zeros(1);
                    }
                }
            }
            b'v' => self.variant(bytes, depth)?,
            _ => self.tuple(value)?,
        }
        if self.writer.len() > self.max_len { Err(TooLarge) } else { Ok(()) }
    }

    fn number<const N: usize>(&mut self, bytes: &[u8]) {
        let bytes: [u8; N] = fixed_bytes(bytes, self.order);
        self.writer.push(&bytes);
    }

    fn text(&mut self, kind: u8, bytes: &[u8]) -> Result<(), TooLarge> {
        self.work_left = self.work_left.checked_sub(bytes.len()).ok_or(TooLarge)?;
        self.writer.string(text_rules::read(kind, bytes));
        Ok(())
    }

    fn array(&mut self, value: Value<'_>) -> Result<(), TooLarge> {
        let element = value.layout.node(value.node + 1);
        let any_order = self.order == ByteOrder::NATIVE || element.shape.mask == 0;
        if element.plain && any_order && value.bytes.len().is_multiple_of(element.shape.fixed) {
            self.writer.push(value.bytes);
            return Ok(());
        }
        let open = self.writer.open();
        for child in value.children() {
            self.writer.align(element.shape.mask);
            self.value(child)?;
            if element.shape.fixed == 0 {
                self.writer.end_child(open);
            }
        }
        self.writer.close_array(open);
        Ok(())
    }

    fn tuple(&mut self, value: Value<'_>) -> Result<(), TooLarge> {
        let info = value.info();
        let open = self.writer.open();
        for child in value.children() {
            let member = child.info();
            self.writer.align(member.shape.mask);
            self.value(child)?;
            if member.shape.fixed == 0 && member.after < info.members_end() {
                self.writer.end_child(open);
            }
        }
        self.writer.close_tuple(open, info.shape, info.children);
        Ok(())
    }

    fn variant(&mut self, bytes: &[u8], depth: usize) -> Result<(), TooLarge> {
        // Finding the type and taking it apart looks at up to all bytes, and again at the type for each level of it.
        let (ty, child) = nested_variant(bytes, depth);
        let searched = bytes.len() - child.len() + ty.as_str().len();
        self.work_left = self.work_left.checked_sub(searched).ok_or(TooLarge)?;
        let layout = Layout::of(ty);
        debug_assert!(depth <= 2 * MAX_DEPTH, "a nested value is bounded by nested_variant");
        self.value(Value { layout: &layout, node: 0, bytes: child, depth: depth + 1 })?;
        self.writer.zeros(1);
        self.writer.push(ty.as_str().as_bytes());
        Ok(())
    }
}
