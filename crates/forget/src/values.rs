//! GVariant values without what names a document: lists in dconf, sessions of editors.

use gvdb::gvariant::{Type, Variant, VariantView};

/// What is left of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pruned {
    /// It names no document that goes.
    Same,
    /// It is this without them.
    Changed(Variant),
    /// It is about such a document as a whole.
    Gone,
}

/// Takes out of a value what `is_chosen` says of a text: elements of lists, entries of maps, and records, which are
/// tuples and dictionaries of mixed values with such a text in them.
pub(super) fn prune(value: VariantView<'_>, is_chosen: &dyn Fn(&[u8]) -> bool) -> Pruned {
    prune_at(value, is_chosen, true)
}

/// Calls `take` with every text of a value.
pub(super) fn each_text(value: VariantView<'_>, take: &mut dyn FnMut(&[u8])) {
    if let Some(text) = text_of(value) {
        take(text);
    } else {
        value.children().for_each(|child| each_text(child, take));
    }
}

fn text_of<'a>(value: VariantView<'a>) -> Option<&'a [u8]> {
    let bytes = value.as_byte_array().map(|bytes| bytes.strip_suffix(b"\0").unwrap_or(bytes));
    bytes.or_else(|| value.as_str().map(str::as_bytes))
}

fn prune_at(
    value: VariantView<'_>,
    is_chosen: &dyn Fn(&[u8]) -> bool,
    is_outermost: bool,
) -> Pruned {
    if let Some(text) = text_of(value) {
        return if is_chosen(text) { Pruned::Gone } else { Pruned::Same };
    }
    let ty = value.ty();
    // A dictionary of mixed values tells of one thing; the outermost one tells of the program.
    let is_record = match ty.kind() {
        b'(' => true,
        b'a' => !is_outermost && ty.as_str() == "a{sv}",
        _ => false,
    };
    let mut children = Vec::new();
    let (mut is_changed, mut gone) = (false, 0);
    for child in value.children() {
        match prune_at(child, is_chosen, false) {
            Pruned::Same => children.push(child.to_variant()),
            Pruned::Changed(child) => {
                is_changed = true;
                children.push(child);
            }
            Pruned::Gone => gone += 1,
        }
    }
    if gone == 0 && !is_changed {
        return Pruned::Same;
    }
    let rebuilt = match ty.kind() {
        _ if gone > 0 && is_record => None,
        b'a' => ty.element().and_then(|element| Variant::array(element, &children).ok()),
        b'(' => Variant::tuple(&children).ok(),
        b'm' if gone > 0 => ty.element().and_then(|element| Variant::nothing(element).ok()),
        b'm' => children.first().and_then(|child| Variant::just(child).ok()),
        b'v' => children.first().map(Variant::boxed),
        b'{' => match children.as_slice() {
            [key, value] => Variant::entry(key, value).ok(),
            _ => None,
        },
        _ => None,
    };
    rebuilt.map_or(Pruned::Gone, Pruned::Changed)
}

/// Reads a dictionary of mixed values that a program wrote without its type.
pub(super) fn dictionary(bytes: &[u8]) -> Option<VariantView<'_>> {
    let view = VariantView::new(Type::parse("a{sv}")?, bytes, gvdb::ByteOrder::NATIVE);
    (!bytes.is_empty() && view.is_normal()).then_some(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pruned(text: &str) -> Option<String> {
        let value = Variant::parse(None, text).unwrap();
        match prune(value.view(), &|text| text.ends_with(b"zebra")) {
            Pruned::Same => Some(text.to_owned()),
            Pruned::Changed(value) => Some(value.print()),
            Pruned::Gone => None,
        }
    }

    #[test]
    fn what_names_a_document_goes_and_the_rest_stays() {
        for (before, after) in [
            ("['file:///a', ';;+file:///zebra']", Some("['file:///a']")),
            ("['/zebra']", Some("@as []")),
            ("'/zebra'", None),
            ("'/other'", Some("'/other'")),
            ("[('/zebra', 1), ('/a', 2)]", Some("[('/a', 2)]")),
            ("{'/zebra': 'x', 'k': '/zebra', 'y': 'z'}", Some("{'y': 'z'}")),
            ("@ms '/zebra'", Some("@ms nothing")),
            ("[b'/zebra', b'/a']", Some("[b'/a']")),
            ("<'/zebra'>", None),
            (
                "{'windows': <[{'pages': <[{'uri': <'/zebra'>, 'line': <1>}, {'uri': <'/a'>}]>}]>, 'n': <1>}",
                Some("{'windows': <[{'pages': <[{'uri': <'/a'>}]>}]>, 'n': <1>}"),
            ),
        ] {
            assert_eq!(pruned(before).as_deref(), after, "{before}");
        }
    }

    #[test]
    fn any_bytes_are_pruned_without_a_panic() {
        for len in 0..64 {
            let bytes: Vec<u8> = (0..len).map(|at: u8| at.wrapping_mul(37)).collect();
            for ty in ["a{sv}", "as", "(sas)", "aa{sv}", "v", "mas", "aay"] {
                let view =
                    VariantView::new(Type::parse(ty).unwrap(), &bytes, gvdb::ByteOrder::NATIVE);
                prune(view, &|text| text.len() > 2);
            }
        }
    }
}
