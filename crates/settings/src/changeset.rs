//! A set of changes that is applied as one: keys set or reset, directories reset.

use std::collections::BTreeMap;

use gvdb::ByteOrder;
use gvdb::gvariant::{Type, Variant, VariantView};

use super::database::key_weight;
use super::path;

/// Entries that are no change, behind which a body is not read on.
pub(crate) const MOST_MALFORMED: usize = 1024;
/// Paths that one `Change` may set or reset: twenty times what a whole desktop has.
pub const MOST_CHANGES: usize = 1 << 16;
/// The longest body of a `Change` that is read, in bytes: more than a database may hold.
pub const LONGEST_BODY: usize = 40 << 20;

/// Why the body of a `Change` is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangesetError {
    /// It has more bytes than [`LONGEST_BODY`].
    #[error("the change has {0} bytes; at most {LONGEST_BODY} are read")]
    TooLong(usize),
    /// It has more changes than [`MOST_CHANGES`].
    #[error("the change names more than {MOST_CHANGES} paths")]
    TooMany,
    /// A path is not UTF-8, or holds a zero byte.
    #[error("a path is no text: {}", .0.escape_ascii())]
    PathNotText(Vec<u8>),
    /// A value is not in the one serialised form that GVariant has for it: text that is not UTF-8, a truth value that is
    /// neither 0 nor 1, framing that contradicts itself.
    #[error("the value of {0:?} is not in normal form")]
    ValueNotNormal(String),
}

/// The longest part of what was sent that an error shows.
const MOST_SHOWN: usize = 200;

/// Changes by path, in the order in which they are applied: a directory's reset before what is set below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changeset(BTreeMap<Box<str>, Option<Variant>>);

impl Changeset {
    /// Reads the body of a `Change` call, an `a{smv}` in native byte order that nobody has checked.
    ///
    /// Never fails: an entry that is no key or directory, or gives a directory a value, is left out.
    /// Of two entries for one path the last counts.
    /// After many entries that are left out the rest is not read: no client writes one, and a caller could have millions of
    /// them read at the cost of everybody else's time.
    #[must_use]
    pub fn decode(blob: &[u8]) -> Changeset {
        Changeset::walk(blob, |_, _, _| Ok(())).unwrap_or_default()
    }

    /// Reads the body of a `Change` call of another program, as [`Changeset::decode`] does.
    ///
    /// # Errors
    ///
    /// What is too much for one call, and text or values that readers would see as something else than what was sent.
    pub fn read(blob: &[u8]) -> Result<Changeset, ChangesetError> {
        Changeset::walk(blob, |count, path, value| {
            if blob.len() > LONGEST_BODY {
                return Err(ChangesetError::TooLong(blob.len()));
            }
            if count >= MOST_CHANGES {
                return Err(ChangesetError::TooMany);
            }
            // An entry without any bytes has no path, which is no change.
            if !path.bytes().is_empty() && !path.is_normal() {
                let shown = path.bytes().iter().take(MOST_SHOWN).copied();
                return Err(ChangesetError::PathNotText(shown.collect()));
            }
            if !value.is_normal() {
                let shown = path.as_str().unwrap_or_default().chars().take(MOST_SHOWN);
                return Err(ChangesetError::ValueNotNormal(shown.collect()));
            }
            Ok(())
        })
    }

    /// Reads a body. Each entry with a path is first shown to `check`, with the number of changes before it.
    fn walk(
        blob: &[u8],
        check: impl Fn(usize, VariantView<'_>, VariantView<'_>) -> Result<(), ChangesetError>,
    ) -> Result<Changeset, ChangesetError> {
        let mut changes = Changeset::default();
        let Some(ty) = Type::parse("a{smv}") else { return Ok(changes) };
        let body = VariantView::new(ty, blob, ByteOrder::NATIVE);
        let mut malformed = 0;
        for entry in body.children() {
            if malformed >= MOST_MALFORMED {
                break;
            }
            malformed += 1;
            let mut parts = entry.children();
            let (Some(key), Some(maybe)) = (parts.next(), parts.next()) else { continue };
            if !entry.bytes().is_empty() {
                check(changes.len(), key, maybe)?;
            }
            let Some(path) = key.as_str() else { continue };
            let value = maybe.child(0).and_then(|v| v.child(0));
            if path::is_key(path) || (path::is_dir(path) && value.is_none()) {
                changes.change(path, value.map(VariantView::to_variant));
                malformed -= 1;
            }
        }
        Ok(changes)
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

    /// Returns about how much memory the keys that are set take, in bytes. Costs O(n).
    #[must_use]
    pub(crate) fn weight(&self) -> usize {
        let set = self.0.iter().filter_map(|(path, value)| Some((path, value.as_ref()?)));
        set.map(|(path, value)| key_weight(path, value)).sum()
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

    /// Returns whether there is nothing to do.
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
    fn a_value_or_a_path_that_readers_would_see_as_something_else_is_refused() {
        let read = |bytes: &[u8]| Changeset::read(bytes);
        let text = hex("2f612f7300000000 686900 0073 00 05 0f");
        assert_eq!(read(&text), Ok(one("/a/s", Some("'hi'"))));
        let not_normal = Err(ChangesetError::ValueNotNormal("/a/s".to_owned()));
        // Text that is not UTF-8: a byte on its own, `/` in two bytes, a surrogate, what lies beyond Unicode, a zero within.
        for bad in [&b"\xff!"[..], b"\xc0\xaf", b"\xed\xa0", b"\xf4\x90", b"h\0"] {
            let mut bytes = text.clone();
            bytes[8..10].copy_from_slice(bad);
            assert_eq!(read(&bytes), not_normal, "{bad:?}");
        }
        // A truth value that is neither, and a number with a byte too few.
        assert_eq!(read(&hex("2f612f7300000000 02 0062 00 05 0d")), not_normal);
        assert_eq!(read(&hex("2f612f7300000000 010000 0069 00 05 0f")), not_normal);
        assert_eq!(read(&hex("2f612f73ff000000 01 0062 00 05 0d")), Err(not_normal_path()));
    }

    fn not_normal_path() -> ChangesetError {
        ChangesetError::PathNotText(b"/a/s\xff".to_vec())
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
