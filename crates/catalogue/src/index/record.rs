//! One plugin or application in an index: members by name, read in place.
//!
//! A member is a byte of kind, the length of its name (u16) and of its value (u32), name and value; numbers are little-endian.
//! A checksum stands behind the last member. The file's path and identity come first, because every check asks for them. Names that begin with a dot are ours, all others the author's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::checksum;
use super::identity::{Identity, NUMBERS};

/// The path of the file.
pub const FILE: &str = ".file";
/// The identity of the file.
pub(crate) const IDENTITY: &str = ".identity";

const HEAD: usize = 7;

/// What the sum of a record begins with.
pub(super) const RECORD_SEED: u64 = 0;

/// The most members: a name is looked for among all of them. Real ones have some twenty.
const MEMBERS_MAX: usize = 2000;

/// A member's value, borrowed from the index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemberValue<'a> {
    /// A text.
    Text(&'a str),
    /// A list of texts.
    List(TextList<'a>),
    /// True or false.
    Truth(bool),
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Fraction(f64),
    /// Bytes: a path, an identity.
    Bytes(&'a [u8]),
}

/// A list of texts: each with its length (u32) before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextList<'a>(&'a [u8]);

impl<'a> TextList<'a> {
    /// Reads a list; it ends where the bytes stop making sense.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> TextList<'a> {
        TextList(bytes)
    }
}

impl<'a> Iterator for TextList<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let (len, rest) = self.0.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        self.0 = rest;
        str::from_utf8(text).ok()
    }
}

/// A record in the making.
#[derive(Debug, Default)]
pub struct RecordBuilder {
    bytes: Vec<u8>,
    members: usize,
}

impl RecordBuilder {
    /// Begins the record of a file.
    #[must_use]
    pub fn new(path: &Path, identity: Identity) -> RecordBuilder {
        let mut record = RecordBuilder { bytes: Vec::with_capacity(1024), members: 0 };
        record.member(b'y', FILE, path.as_os_str().as_bytes());
        record.member(b'y', IDENTITY, &identity.to_bytes());
        record
    }

    fn member(&mut self, kind: u8, name: &str, value: &[u8]) {
        // What is too long for the format, or too much, is left out; no real member is.
        let (Ok(name_len), Ok(value_len)) = (u16::try_from(name.len()), u32::try_from(value.len()))
        else {
            return;
        };
        if self.members < MEMBERS_MAX && !self.has(name) {
            self.members += 1;
            self.bytes.push(kind);
            self.bytes.extend(name_len.to_le_bytes());
            self.bytes.extend(value_len.to_le_bytes());
            self.bytes.extend(name.as_bytes());
            self.bytes.extend(value);
        }
    }

    /// Adds a text. A name that comes twice has its first value.
    pub fn text(&mut self, name: &str, value: &str) {
        self.member(b's', name, value.as_bytes());
    }

    /// Adds a text, unless there is none.
    pub(crate) fn some_text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// Adds a list of texts, unless it is empty.
    pub fn list<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a str>) {
        let mut values = values.peekable();
        if values.peek().is_some() {
            self.whole_list(name, values);
        }
    }

    /// Adds a list of texts; an empty one says something else than none.
    pub(crate) fn whole_list<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a str>) {
        let mut bytes = Vec::new();
        for value in values {
            if let Ok(len) = u32::try_from(value.len()) {
                bytes.extend(len.to_le_bytes());
                bytes.extend(value.as_bytes());
            }
        }
        self.member(b'l', name, &bytes);
    }

    /// Adds a truth.
    pub fn truth(&mut self, name: &str, value: bool) {
        self.member(b'b', name, &[u8::from(value)]);
    }

    /// Adds a whole number.
    pub fn whole(&mut self, name: &str, value: i64) {
        self.member(b'x', name, &value.to_le_bytes());
    }

    /// Adds any other number.
    pub fn fraction(&mut self, name: &str, value: f64) {
        self.member(b'd', name, &value.to_le_bytes());
    }

    /// Adds bytes.
    pub fn bytes(&mut self, name: &str, value: &[u8]) {
        self.member(b'y', name, value);
    }

    /// Returns whether there is a member of that name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        members(&self.bytes).any(|(_, known, _)| known == name.as_bytes())
    }

    /// Returns the bytes of the record.
    #[must_use]
    pub fn build(mut self) -> Vec<u8> {
        // Hundreds of these are kept for a while: what is left of each is the next one's.
        self.bytes.shrink_to(self.bytes.len() + checksum::LEN);
        checksum::seal(RECORD_SEED, &mut self.bytes);
        self.bytes
    }
}

/// A record with its sum, borrowed from the index. Whatever the bytes are, nothing panics; a record ends where they stop making sense.
#[derive(Clone, Copy, Debug)]
pub struct IndexRecord<'a>(pub(super) &'a [u8]);

impl<'a> IndexRecord<'a> {
    fn raw(self) -> impl Iterator<Item = (u8, &'a [u8], &'a [u8])> {
        members(&self.0[..self.0.len().saturating_sub(checksum::LEN)])
    }

    /// Returns a member.
    #[must_use]
    pub fn get(self, name: &str) -> Option<MemberValue<'a>> {
        let (kind, _, value) = self.raw().find(|(_, known, _)| *known == name.as_bytes())?;
        value_of(kind, value)
    }

    /// Returns all members, in the order of the record.
    pub fn members(self) -> impl Iterator<Item = (&'a str, MemberValue<'a>)> {
        self.raw().filter_map(|(kind, name, value)| {
            Some((str::from_utf8(name).ok()?, value_of(kind, value)?))
        })
    }

    /// Returns the members that are chosen by their names; the others are not decoded.
    pub(super) fn chosen<T>(
        self,
        choose: impl Fn(&[u8]) -> Option<T>,
    ) -> impl Iterator<Item = (T, MemberValue<'a>)> {
        self.raw()
            .filter_map(move |(kind, name, value)| Some((choose(name)?, value_of(kind, value)?)))
    }

    /// Returns a text.
    #[must_use]
    pub fn text(self, name: &str) -> Option<&'a str> {
        if let MemberValue::Text(text) = self.get(name)? { Some(text) } else { None }
    }

    /// Returns a list of texts; of anything else none.
    #[must_use]
    pub fn list(self, name: &str) -> TextList<'a> {
        if let Some(MemberValue::List(list)) = self.get(name) { list } else { TextList(&[]) }
    }

    /// Returns whether a member is true.
    #[must_use]
    pub fn is_true(self, name: &str) -> bool {
        self.get(name) == Some(MemberValue::Truth(true))
    }

    /// Returns a whole number.
    #[must_use]
    pub fn whole(self, name: &str) -> Option<i64> {
        if let MemberValue::Whole(number) = self.get(name)? { Some(number) } else { None }
    }

    /// Returns bytes.
    #[must_use]
    pub fn bytes(self, name: &str) -> Option<&'a [u8]> {
        if let MemberValue::Bytes(bytes) = self.get(name)? { Some(bytes) } else { None }
    }

    /// Returns the path of its file.
    #[must_use]
    pub fn path(self) -> Option<&'a Path> {
        self.bytes(FILE)
            .filter(|path| !path.is_empty())
            .map(|path| Path::new(OsStr::from_bytes(path)))
    }

    /// Returns what its file was when it was read.
    #[must_use]
    pub fn identity(self) -> Option<Identity> {
        let bytes: &[u8; NUMBERS * 8] = self.bytes(IDENTITY)?.try_into().ok()?;
        Some(Identity::from_bytes(bytes))
    }

    /// Returns whether its file is still the one that was read: one system call.
    #[must_use]
    pub fn is_current(self) -> bool {
        self.path().is_some_and(|path| Some(Identity::of(path)) == self.identity())
    }

    /// Returns the bytes with their sum, to be taken over into another index.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Returns the kind, the name and the value of each member.
fn members(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8], &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (head, after) = rest.split_first_chunk::<HEAD>()?;
        let [kind, n0, n1, v0, v1, v2, v3] = *head;
        let (name, after) = after.split_at_checked(usize::from(u16::from_le_bytes([n0, n1])))?;
        let value_len = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
        let (value, after) = after.split_at_checked(value_len)?;
        rest = after;
        Some((kind, name, value))
    })
}

fn value_of(kind: u8, value: &[u8]) -> Option<MemberValue<'_>> {
    Some(match kind {
        b's' => MemberValue::Text(str::from_utf8(value).ok()?),
        b'l' => MemberValue::List(TextList(value)),
        b'b' => MemberValue::Truth(value == [1]),
        b'x' => MemberValue::Whole(i64::from_le_bytes(value.try_into().ok()?)),
        b'd' => MemberValue::Fraction(f64::from_le_bytes(value.try_into().ok()?)),
        b'y' => MemberValue::Bytes(value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Vec<u8> {
        let mut record = RecordBuilder::new(Path::new("/a/b.so"), Identity([1, 2, 3, 4, 5]));
        record.text("Name", "x");
        record.text("Name", "y");
        record.list("List", ["a", "", "b"].into_iter());
        record.list("Empty", std::iter::empty());
        record.truth("True", true);
        record.whole("Whole", -7);
        record.fraction("Part", 0.5);
        record.build()
    }

    #[test]
    fn members_come_back_as_they_were_set() {
        let bytes = record();
        let record = IndexRecord(&bytes);
        assert_eq!(record.path(), Some(Path::new("/a/b.so")));
        assert_eq!(record.identity(), Some(Identity([1, 2, 3, 4, 5])));
        assert_eq!(record.text("Name"), Some("x"));
        assert_eq!(record.list("List").collect::<Vec<_>>(), ["a", "", "b"]);
        assert_eq!(record.get("Empty"), None);
        assert!(record.is_true("True"));
        assert_eq!(record.whole("Whole"), Some(-7));
        assert_eq!(record.get("Part"), Some(MemberValue::Fraction(0.5)));
        assert_eq!(record.members().count(), 7);
    }

    #[test]
    fn a_cut_or_changed_record_gives_what_is_left() {
        let whole = record();
        for cut in 0..whole.len() {
            assert!(IndexRecord(&whole[..cut]).members().count() <= 7);
        }
        for at in 0..whole.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                let record = IndexRecord(&bytes);
                record.members().for_each(|(name, _)| assert!(name.len() <= bytes.len()));
                let _ = (record.path(), record.identity(), record.list("List").count());
            }
        }
    }
}
