//! GVariant: what bytes and texts of any kind must keep to.

use gvdb::ByteOrder;
use gvdb::gvariant::{Type, Variant, VariantView, decode_changes, encode_changes};

/// A type string, a zero, and bytes that are read as that type, or as `v` if it is no type.
pub fn bytes(data: &[u8]) {
    let (ty, bytes) = match data.iter().position(|&byte| byte == 0) {
        Some(zero) => (&data[..zero], &data[zero + 1..]),
        None => (&b"v"[..], data),
    };
    let ty = std::str::from_utf8(ty).ok().and_then(Type::parse).unwrap_or(Type::VARIANT);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let view = VariantView::new(ty, bytes, order);
        let value = view.to_variant();
        let size = bytes.len() + ty.as_str().len();
        assert!(value.as_bytes().len() <= 1025 + 9 * size, "the normal form is too large");
        assert!(value.view().is_normal(), "the normal form is not normal");
        assert_eq!(value.view().to_variant(), value, "the normal form has a normal form");
        if view.is_normal() && order == ByteOrder::NATIVE {
            assert_eq!(value.view().bytes(), bytes, "what was normal was changed");
        }
        check_text(&value);
    }
}

/// A text with or without a type in front, which a zero ends.
pub fn text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (ty, text) = text.split_once('\0').unwrap_or(("", &text));
    let Ok(value) = Variant::parse(Type::parse(ty), text) else { return };
    assert!(value.view().is_normal(), "a parsed value is not normal");
    check_text(&value);
}

/// The body of a `Change` call.
pub fn changes(data: &[u8]) {
    let changes = decode_changes(data);
    let again = |changes: &[(Box<str>, Option<Variant>)]| {
        encode_changes(changes.iter().map(|(path, value)| (&**path, value.as_ref())))
    };
    let blob = again(&changes);
    assert_eq!(decode_changes(&blob), changes, "changes do not survive the way there and back");
    assert!(VariantView::new(Type::CHANGES, &blob, ByteOrder::NATIVE).is_normal());
}

/// Checks that a value is what its text says it is.
fn check_text(value: &Variant) {
    let text = value.print();
    if has_lost_digits(value.view()) || value.as_bytes().len() > 100_000 {
        return;
    }
    match Variant::parse(None, &text) {
        Ok(parsed) => {
            assert_eq!(parsed.print(), text, "a text prints as another");
            assert_eq!(parsed.view().ty(), value.view().ty(), "a text has another type");
        }
        // Type annotations add levels of their own.
        Err(error) => assert!(error.0.contains("too deeply"), "{text}: {error}"),
    }
    let bare = value.print_without_types();
    match Variant::parse(Some(value.view().ty()), &bare) {
        Ok(parsed) => assert_eq!(parsed.print(), text, "{bare}: another value"),
        Err(error) => assert!(error.0.contains("too deeply"), "{bare}: {error}"),
    }
}

/// Says whether a value holds a number so small that no text of 17 digits is exactly it, which GLib refuses to read.
fn has_lost_digits(view: VariantView<'_>) -> bool {
    view.as_f64().is_some_and(f64::is_subnormal) || view.children().any(has_lost_digits)
}
