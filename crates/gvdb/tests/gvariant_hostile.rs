//! Bytes made to cost much: each is answered in bounded time and room.
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use unjank_gvdb::ByteOrder;
use unjank_gvdb::gvariant::{Type, Variant, VariantView, decode_changes};

/// Returns the normal form and checks that it is no larger than promised, and that it is one.
fn bounded(ty: &str, bytes: &[u8]) -> Variant {
    let ty = Type::parse(ty).unwrap();
    let value = VariantView::new(ty, bytes, ByteOrder::NATIVE).to_variant();
    let len = value.as_bytes().len();
    let input = bytes.len() + ty.as_str().len();
    assert!(len <= 1025 + 9 * input, "{len} bytes from {input}");
    assert!(value.view().is_normal());
    assert_eq!(value.view().to_variant(), value);
    value
}

/// Puts `child` of type `ty` in a `v`.
fn boxed(mut child: Vec<u8>, ty: &str) -> Vec<u8> {
    child.push(0);
    child.extend_from_slice(ty.as_bytes());
    child
}

#[test]
fn many_defaults_of_a_large_type_are_not_made() {
    // 30,000 elements of no bytes, each of which is a tuple of 2000 numbers by default.
    let ty = format!("a(s{})", "t".repeat(2000));
    let value = bounded(&ty, &[0; 60_000]);
    assert!(value.view().is_empty());
    // A few are.
    assert_eq!(bounded("a(sttt)", &[0, 0, 0]).view().len(), 3);
}

#[test]
fn members_that_overlap_do_not_multiply() {
    // GLib looks at no order behind a first member that is out of bounds. Here four members share all bytes with each
    // other, at each of 40 levels.
    let ty = "(svvvvvvvvv)";
    let mut inner = boxed(vec![7], "y");
    for _ in 0..40 {
        let end = u16::try_from(inner.len()).unwrap();
        let mut tuple = inner.clone();
        // Wide enough that every offset takes two bytes.
        tuple.resize(tuple.len().max(300), 0);
        for offset in [end, 0, end, 0, end, 0, end, 0, u16::MAX] {
            tuple.extend_from_slice(&offset.to_le_bytes());
        }
        inner = boxed(tuple, ty);
    }
    let outer = VariantView::inside(&inner, ByteOrder::NATIVE);
    let again = |member: VariantView<'_>| {
        member.as_variant().is_some_and(|inside| inside.ty() == outer.ty())
    };
    assert_eq!(outer.children().filter(|&member| again(member)).count(), 4, "they do overlap");
    bounded("v", &inner);
    assert!(decode_changes(&inner).len() <= inner.len());
}

#[test]
fn a_long_element_type_is_taken_apart_once() {
    // Would be 4 * 10^9 steps if each element looked at the whole type.
    let ty = format!("a(a({}))", "t".repeat(60_000));
    let bytes: Vec<u8> = std::iter::repeat_n(0, 60_000).collect();
    bounded(&ty, &bytes);
}

#[test]
fn nesting_ends_and_the_rest_is_a_unit() {
    let mut bytes = boxed(vec![1], "y");
    for _ in 0..100_000 {
        bytes = {
            bytes.extend_from_slice(b"\0v");
            bytes
        };
    }
    let value = bounded("v", &bytes);
    let mut depth = 0;
    let mut view = value.view();
    while let Some(inside) = view.as_variant() {
        (view, depth) = (inside, depth + 1);
    }
    assert_eq!((view.ty(), depth), (Type::UNIT, 128));
    assert!(value.print().ends_with(&format!("<()>{}", ">".repeat(127))));
}

#[test]
fn values_as_deep_as_can_be_survive_every_walk() {
    let deep = |prefix: &str, levels: usize, end: &str| prefix.repeat(levels) + end;
    for ty in [
        deep("a", 128, "y"),
        deep("m", 128, "y"),
        deep("a", 127, "v"),
        deep("(", 128, "y") + &")".repeat(128),
    ] {
        let value = bounded(&ty, &[0; 200]);
        assert!(!value.print().is_empty());
        bounded(&ty, &[]);
    }
}

#[test]
fn a_text_that_nests_too_deep_is_refused() {
    for (open, close) in [("[", "]"), ("<", ">"), ("(", ",)"), ("just ", "")] {
        let text = open.repeat(100_000) + "1" + &close.repeat(100_000);
        let error = Variant::parse(None, &text).unwrap_err();
        assert!(error.0.ends_with("variant nested too deeply"), "{error}");
        let text = open.repeat(127) + "1" + &close.repeat(127);
        assert!(Variant::parse(None, &text).is_ok());
    }
}

#[test]
fn an_empty_tuple_with_offsets_has_one_normal_form() {
    let value = bounded("(asas)", &[]);
    assert_eq!(value.as_bytes(), b"\0\0(asas)");
    assert_eq!(bounded("(asas)", &[0]), value);
}
