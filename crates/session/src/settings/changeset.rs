//! A set of changes that is applied as one: keys set or reset, directories reset.

use std::collections::BTreeMap;

use store::table::ByteOrder;
use store::table::gvariant::{Type, Variant, View};

use super::path;

/// Entries that are no change, behind which a body is not read on.
pub const MOST_MALFORMED: usize = 1024;

/// Changes by path, in the order in which they are applied: a directory's reset before what is set below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changeset(BTreeMap<Box<str>, Option<Variant>>);

impl Changeset {
    /// Reads the body of a `Change` call, an `a{smv}` in native byte order that nobody has checked.
    ///
    /// Never fails: an entry that is no key or directory, or gives a directory a value, is left out.
    /// Of two entries for one path the last counts.
    /// Behind [`MOST_MALFORMED`] entries that are left out nothing is read: no client writes one, and a caller could have
    /// millions of them read at the cost of everybody else's time.
    #[must_use]
    pub fn decode(blob: &[u8]) -> Changeset {
        let mut changes = Changeset::default();
        let Some(ty) = Type::parse("a{smv}") else { return changes };
        let body = View::new(ty, blob, ByteOrder::NATIVE);
        let mut malformed = 0;
        for entry in body.children() {
            if malformed >= MOST_MALFORMED {
                break;
            }
            malformed += 1;
            let mut parts = entry.children();
            let Some(path) = parts.next().and_then(View::as_str) else { continue };
            let value = parts.next().and_then(|maybe| maybe.child(0)).and_then(|v| v.child(0));
            if path::is_key(path) || (path::is_dir(path) && value.is_none()) {
                changes.change(path, value.map(View::to_variant));
                malformed -= 1;
            }
        }
        changes
    }

    /// Writes the body of a `Change` call.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut ends = Vec::with_capacity(self.0.len());
        for (path, value) in &self.0 {
            pad(&mut body);
            let start = body.len();
            body.extend_from_slice(path.as_bytes());
            body.push(0);
            let key_end = body.len() - start;
            pad(&mut body);
            if let Some(value) = value {
                body.extend_from_slice(value.as_bytes());
                body.push(0);
            }
            let width = offset_width(body.len() - start, 1);
            push_offset(&mut body, key_end, width);
            ends.push(body.len());
        }
        let width = offset_width(body.len(), ends.len());
        for end in ends {
            push_offset(&mut body, end, width);
        }
        body
    }

    /// Sets (`Some`) or resets (`None`) a key, or resets a directory; an earlier change of the same path is replaced.
    pub fn change(&mut self, path: &str, value: Option<Variant>) {
        self.0.insert(path.into(), value);
    }

    /// Returns what is done to exactly this path: `None` nothing, `Some(None)` a reset.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Option<&Variant>> {
        self.0.get(path).map(Option::as_ref)
    }

    /// Returns the changes in the order in which they are applied.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&Variant>)> {
        self.0.iter().map(|(path, value)| (&**path, value.as_ref()))
    }

    /// Says whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Pads to the alignment of a dict entry that holds a `v`, and of the `v` in it.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(8), 0);
}

/// Returns the bytes of one framing offset of a container with `body` bytes and `count` offsets.
fn offset_width(body: usize, count: usize) -> usize {
    [1, 2, 4].into_iter().find(|width| (body + count * width) >> (8 * width) == 0).unwrap_or(8)
}

/// Framing offsets are little-endian in every byte order.
fn push_offset(body: &mut Vec<u8>, offset: usize, width: usize) {
    body.extend(offset.to_le_bytes().into_iter().take(width));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    fn one(path: &str, value: Option<&str>) -> Changeset {
        let mut changes = Changeset::default();
        changes.change(path, value.map(|text| Variant::parse(None, text).unwrap()));
        changes
    }

    #[test]
    fn the_bytes_are_those_of_libdconf() {
        for (golden, changes) in [
            ("2f612f6200000000 01000000 0069 00 05 10", one("/a/b", Some("1"))),
            ("2f612f7300000000 686900 0073 00 05 0f", one("/a/s", Some("'hi'"))),
            ("2f612f6200 000000 05 09", one("/a/b", None)),
            ("2f612f00 00000000 04 09", one("/a/", None)),
        ] {
            assert_eq!(changes.encode(), hex(golden));
            assert_eq!(Changeset::decode(&hex(golden)), changes);
        }
    }

    #[test]
    fn behind_many_entries_that_are_no_change_nothing_is_read() {
        // Each entry has an offset at the end; as long as they are short, one of a byte.
        let body = |malformed: usize| {
            let mut entries = vec![0; malformed * 8];
            let mut ends: Vec<usize> = (1..=malformed).map(|count| count * 8).collect();
            entries.extend(one("/a/b", Some("1")).encode().split_last().unwrap().1);
            ends.push(entries.len());
            let width = offset_width(entries.len(), ends.len());
            for end in ends {
                push_offset(&mut entries, end, width);
            }
            Changeset::decode(&entries).len()
        };
        assert_eq!(body(0), 1);
        assert_eq!(body(MOST_MALFORMED - 1), 1);
        assert_eq!(body(MOST_MALFORMED), 0);
    }

    #[test]
    fn what_is_no_path_is_left_out() {
        let mut changes = Changeset::default();
        for path in ["relative", "//a", "/a//b", "", "/dir/"] {
            changes.change(path, Some(Variant::parse(None, "true").unwrap()));
        }
        changes.change("/", None);
        changes.change("/k", None);
        let read = Changeset::decode(&changes.encode());
        assert_eq!(read.iter().collect::<Vec<_>>(), [("/", None), ("/k", None)]);
    }

    #[test]
    fn large_changesets_survive_the_wire() {
        for count in [0_usize, 1, 7, 300, 9000] {
            let mut changes = Changeset::default();
            for key in 0..count {
                let text = format!("'{}'", "x".repeat(key % 400));
                let value = (key % 5 != 0).then(|| Variant::parse(None, &text).unwrap());
                changes.change(&format!("/some/directory/key-{key}"), value);
            }
            assert_eq!(Changeset::decode(&changes.encode()), changes, "{count}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_blob_is_too_broken_to_read(blob in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let changes = Changeset::decode(&blob);
            proptest::prop_assert!(changes.iter().all(|(path, _)| path::is_path(path)));
        }
    }
}
