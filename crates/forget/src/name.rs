//! What a document is called when every way of writing its name is undone.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use recents::Uri;

/// A document, however a store writes it: of a local file the bytes of its path, else its URI without escapes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentName(Vec<u8>);

impl DocumentName {
    /// Names a file by its absolute path; slashes at the end are left out.
    #[must_use]
    pub fn of_path(path: &Path) -> DocumentName {
        DocumentName::of_bytes(path.as_os_str().as_bytes())
    }

    /// Names a document by its URI.
    #[must_use]
    pub fn of_uri(uri: &Uri) -> DocumentName {
        match uri.to_path() {
            Some(path) => DocumentName::of_path(&path),
            None => DocumentName::of_bytes(&unescaped(uri.as_str().as_bytes())),
        }
    }

    /// Reads a name as programs write it into their settings: a path, one below `~` or `$HOME`, or a URI; `None` if it is none of these.
    #[must_use]
    pub fn read(text: &[u8], home: &Path) -> Option<DocumentName> {
        let home = home.as_os_str().as_bytes();
        let rest = text.strip_prefix(b"file://").map(host_left_out);
        let rest = rest.or_else(|| text.strip_prefix(b"file:"));
        let is_uri = rest.is_some_and(|rest| rest.starts_with(b"/"));
        let text = rest.unwrap_or(text);
        let below = text.strip_prefix(b"$HOME").or_else(|| text.strip_prefix(b"~"));
        if let Some(below) = below.filter(|below| below.is_empty() || below.starts_with(b"/")) {
            return Some(DocumentName::of_bytes(&[home, below].concat()));
        }
        if is_uri {
            return Some(DocumentName::of_bytes(&unescaped(text)));
        }
        if text.starts_with(b"/") {
            return Some(DocumentName::of_bytes(text));
        }
        let scheme = text.windows(3).position(|three| three == b"://")?;
        let is_scheme = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
        (scheme > 0 && text[..scheme].iter().all(is_scheme))
            .then(|| DocumentName::of_bytes(&unescaped(text)))
    }

    /// Reads the names in one element of a list: the whole of it is one, or it has one behind other fields, as in
    /// Mousepad's `;;+file:///a` and Geany's `22;None;0;%2Fa;0`.
    pub(super) fn in_element(text: &[u8], home: &Path) -> Vec<DocumentName> {
        if let Some(name) = DocumentName::read(text, home) {
            return vec![name];
        }
        let mut names = Vec::new();
        if let Some(start) = text.windows(6).position(|part| part == b"file:/") {
            names.extend(DocumentName::read(&text[start..], home));
        }
        let fields = text.split(|b| *b == b';').filter(|field| field.starts_with(b"%2"));
        names.extend(fields.filter_map(|field| DocumentName::read(&unescaped(field), home)));
        names
    }

    /// Returns the URI that GLib and Qt write for it; `None` if there is none.
    #[must_use]
    pub fn to_uri(&self) -> Option<Uri> {
        if self.0.starts_with(b"/") {
            Uri::of_path(Path::new(OsStr::from_bytes(&self.0))).ok()
        } else {
            Uri::parse(&self.0).ok()
        }
    }

    fn of_bytes(bytes: &[u8]) -> DocumentName {
        let end = bytes.iter().rposition(|b| *b != b'/').map_or(1, |last| last + 1);
        DocumentName(bytes[..end.min(bytes.len())].to_vec())
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is `other` or lies below it.
    #[must_use]
    pub(crate) fn is_at_or_below(&self, other: &DocumentName) -> bool {
        let rest = self.0.strip_prefix(&*other.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || other.0 == b"/")
    }

    /// Returns the part that every store writes alike but for escapes: all from the first slash on.
    pub(super) fn written(&self) -> &[u8] {
        let slash = self.0.iter().position(|b| *b == b'/').unwrap_or(0);
        &self.0[slash..]
    }
}

impl std::fmt::Display for DocumentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// Leaves out `localhost`, which some write.
fn host_left_out(rest: &[u8]) -> &[u8] {
    rest.strip_prefix(b"localhost").filter(|rest| rest.starts_with(b"/")).unwrap_or(rest)
}

/// Replaces `%41` by `A`.
pub(super) fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], text.get(at + 1..at + 3).and_then(byte_of)) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

/// Reads a byte of two digits.
pub(super) fn byte_of(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let number = digits.iter().try_fold(0, |sum, byte| Some(sum * 16 + digit(*byte)?))?;
    u8::try_from(number).ok()
}

/// Documents by name, in which the longest that begins a text is found at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Vec<Vec<u8>>);

impl Names {
    /// Takes what stores write of these names.
    pub(super) fn of<'a>(names: impl IntoIterator<Item = &'a DocumentName>) -> Names {
        let mut names: Vec<_> = names.into_iter().map(|name| name.written().to_vec()).collect();
        names.sort();
        names.dedup();
        Names(names)
    }

    /// Returns the longest of them with which `text` begins.
    pub(super) fn beginning(&self, text: &[u8]) -> Option<&[u8]> {
        let mut limit = text;
        loop {
            // Whatever begins the text is before it in this order, and so is its neighbour, whose common part bounds it.
            let behind = self.0.partition_point(|name| **name <= *limit);
            let before = &self.0[behind.checked_sub(1)?];
            if text.starts_with(before) {
                return Some(before);
            }
            let common = before.iter().zip(limit).take_while(|(a, b)| a == b).count();
            limit = &limit[..common];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_way_of_writing_a_name_leads_to_it() {
        let home = Path::new("/home/u");
        let wanted = DocumentName::of_path(Path::new("/home/u/a b.txt"));
        for text in [
            "/home/u/a b.txt",
            "~/a b.txt",
            "$HOME/a b.txt",
            "file:$HOME/a b.txt",
            "file:///home/u/a%20b.txt",
            "file://localhost/home/u/a%20b.txt",
            "file:/home/u/a%20b.txt",
        ] {
            assert_eq!(DocumentName::read(text.as_bytes(), home), Some(wanted.clone()), "{text}");
        }
        assert_eq!(DocumentName::of_uri(&Uri::parse(b"file:///home/u/a%20b.txt").unwrap()), wanted);
        let remote = DocumentName::read(b"sftp://host/a%20b", home).unwrap();
        assert_eq!(remote.as_bytes(), b"sftp://host/a b");
        assert_eq!(remote.written(), b"//host/a b");
        for none in ["", "true", "10", "a, b", "://x", "~u/x", "$HOMER/x"] {
            assert_eq!(DocumentName::read(none.as_bytes(), home), None, "{none}");
        }
    }

    #[test]
    fn a_name_is_found_among_other_fields() {
        let home = Path::new("/home/u");
        let wanted = DocumentName::of_path(Path::new("/a;b c"));
        for text in ["/a;b c", ";;+file:///a;b%20c", "22;None;0;EUTF-8;0;1;0;%2Fa%3Bb%20c;0;2"] {
            assert_eq!(
                DocumentName::in_element(text.as_bytes(), home),
                std::slice::from_ref(&wanted),
                "{text}"
            );
        }
        for none in ["", ";", "1;2", "%2", "file"] {
            assert_eq!(DocumentName::in_element(none.as_bytes(), home), [], "{none}");
        }
    }

    #[test]
    fn a_folder_holds_what_is_below_it_and_not_its_namesakes() {
        let name = |text: &str| DocumentName::of_path(Path::new(text));
        assert!(name("/a/b").is_at_or_below(&name("/a/")));
        assert!(name("/a").is_at_or_below(&name("/a")));
        assert!(!name("/ab").is_at_or_below(&name("/a")));
        assert!(name("/ab").is_at_or_below(&name("/")));
    }

    proptest! {
        #[test]
        fn the_longest_name_that_begins_a_text_is_found(
            names in proptest::collection::vec("/[ab/]{0,4}", 0..12), text in "/[ab/]{0,8}",
        ) {
            let known: Vec<DocumentName> = names.iter().map(|name| DocumentName(name.clone().into())).collect();
            let wanted = names.iter().filter(|name| text.starts_with(&**name)).max_by_key(|n| n.len());
            let names = Names::of(&known);
            let found = names.beginning(text.as_bytes());
            prop_assert_eq!(found, wanted.map(String::as_bytes));
        }
    }
}
