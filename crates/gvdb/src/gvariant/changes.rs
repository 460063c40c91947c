//! The body of dconf's `Change` call, an `a{smv}`: changes by path, with a value to set or nothing to reset.

use super::super::ByteOrder;
use super::Variant;
use super::layout::Layout;
use super::text_rules;
use super::types::{Shape, Type};
use super::value::Value;
use super::view::VariantView;
use super::writer::Writer;

/// Dict entry and maybe of a change are aligned as the `v` in them is, and vary in size.
const ALIGNED: Shape = Shape { mask: 7, fixed: 0 };

/// Writes changes in the order in which they come.
#[must_use]
pub fn encode_changes<'a>(
    changes: impl IntoIterator<Item = (&'a str, Option<&'a Variant>)>,
) -> Vec<u8> {
    let mut writer = Writer::default();
    let all = writer.open();
    for (path, value) in changes {
        writer.align(ALIGNED.mask);
        let entry = writer.open();
        writer.string(text_rules::before_zero(path));
        writer.end_child(entry);
        writer.align(ALIGNED.mask);
        if let Some(value) = value {
            writer.push(value.as_bytes());
            writer.zeros(1);
        }
        writer.close_tuple(entry, ALIGNED, 2);
        writer.end_child(all);
    }
    writer.close_array(all);
    writer.into_bytes()
}

/// Reads changes in the order in which they stand, in native byte order, from bytes that nobody has checked.
///
/// The whole is brought into normal form first, so the result is at most a few times as large as `blob`.
#[must_use]
pub fn decode_changes(blob: &[u8]) -> Vec<(Box<str>, Option<Variant>)> {
    let whole = VariantView::new(Type::CHANGES, blob, ByteOrder::NATIVE);
    // A copy of what is in order already would only cost time.
    let owned = (!whole.is_normal()).then(|| whole.to_variant());
    let bytes = owned.as_ref().map_or(blob, |whole| whole.view().bytes());
    let layout = Layout::of(Type::CHANGES);
    Value { layout: &layout, node: 0, bytes, depth: 0 }.children().map(read_change).collect()
}

/// Reads one entry of an `a{smv}` in normal form.
fn read_change(entry: Value<'_>) -> (Box<str>, Option<Variant>) {
    let mut parts = entry.children();
    let path = parts.next().map_or("", |path| text_rules::read(b's', path.bytes));
    let value = parts.next().and_then(|maybe| maybe.children().next());
    // What is in normal form in there is so on its own, and a variant is just the bytes of a `v`.
    (path.into(), value.map(|value| Variant(value.bytes.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn the_golden_vectors_of_libdconf_read_and_write() {
        let (one, hi) = (Variant::from(1_i32), Variant::from("hi"));
        for (blob, path, value) in [
            ("2f612f6200000000 01000000 0069 00 05 10", "/a/b", Some(&one)),
            ("2f612f7300000000 686900 0073 00 05 0f", "/a/s", Some(&hi)),
            ("2f612f6200 000000 05 09", "/a/b", None),
            ("2f612f00 00000000 04 09", "/a/", None),
        ] {
            let blob = hex(blob);
            if ByteOrder::NATIVE == ByteOrder::Little {
                assert_eq!(encode_changes([(path, value)]), blob, "{path}");
            }
            assert_eq!(decode_changes(&blob), [(Box::from(path), value.cloned())]);
        }
    }

    #[test]
    fn many_changes_survive_the_way_there_and_back() {
        let values: Vec<Variant> = (0..1000_i32).map(Variant::from).collect();
        let paths: Vec<String> = (0..1000).map(|n| format!("/dir/{n}")).collect();
        let changes: Vec<_> = paths
            .iter()
            .zip(&values)
            .enumerate()
            .map(|(n, (path, value))| (path.as_str(), (n % 3 > 0).then_some(value)))
            .collect();
        let read = decode_changes(&encode_changes(changes.iter().copied()));
        assert!(read.iter().map(|(path, value)| (&**path, value.as_ref())).eq(changes));
    }

    #[test]
    fn garbage_reads_as_few_changes() {
        assert_eq!(decode_changes(b""), []);
        assert_eq!(decode_changes(b"garbage"), []);
        assert_eq!(decode_changes(&[0]), [(Box::from(""), None)]);
    }
}
