//! The search that says whether anything is left: through the bytes of files, whatever they are, however a name is escaped.

use std::collections::BTreeSet;

use super::name::{DocumentName, Names, byte_of, unescaped};

/// What is looked for, and what may stay although it looks like it.
#[derive(Debug)]
pub struct Search {
    names: Names,
    wanted: BTreeSet<Vec<u8>>,
    home: Vec<u8>,
}

impl Search {
    /// Looks for `wanted`. Where a longer name of `staying` begins with one of them, that is no find.
    pub fn new<'a>(
        wanted: impl IntoIterator<Item = &'a DocumentName> + Clone,
        staying: impl IntoIterator<Item = &'a DocumentName>,
        home: &[u8],
    ) -> Search {
        let names = Names::of(wanted.clone().into_iter().chain(staying));
        let wanted = wanted.into_iter().map(|name| name.written().to_vec()).collect();
        Search { names, wanted, home: home.to_vec() }
    }

    /// Returns the names that are found in these bytes.
    #[must_use]
    pub fn found(&self, bytes: &[u8]) -> BTreeSet<Vec<u8>> {
        let mut found = BTreeSet::new();
        self.find(bytes, &mut found);
        let plain = decoded(bytes, &self.home);
        self.find(&plain, &mut found);
        // Text in UTF-16 is plain text between zeros.
        let narrow: Vec<u8> = plain.iter().copied().filter(|b| *b != 0).collect();
        if narrow.len() < plain.len() {
            self.find(&narrow, &mut found);
        }
        found
    }

    fn find(&self, bytes: &[u8], found: &mut BTreeSet<Vec<u8>>) {
        let mut at = 0;
        while let Some(slash) = bytes[at..].iter().position(|b| *b == b'/') {
            let start = at + slash;
            at = start + 1;
            let Some(name) = self.names.beginning(&bytes[start..]) else { continue };
            if self.wanted.contains(name) {
                found.insert(name.to_vec());
            } else {
                // What stays is passed as a whole: what begins inside of it belongs to it.
                at = start + name.len();
            }
        }
    }
}

/// Undoes the ways in which stores write bytes that are special to them: `%41`, `&amp;`, `&#65;`, `\x41`, `\\`, `$HOME`.
fn decoded(bytes: &[u8], home: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (taken, byte) = match rest[0] {
            b'&' => entity(rest),
            b'\\' => backslash(rest),
            b'$' if rest.starts_with(b"$HOME/") => {
                out.extend_from_slice(home);
                at += 5;
                continue;
            }
            byte => (1, Some(byte)),
        };
        out.extend(byte);
        at += taken;
    }
    // An address inside of XML is escaped twice.
    unescaped(&out)
}

/// Undoes what settings do to a text, and the quotes around it; names of documents are read of the result.
pub(super) fn plain(text: &[u8]) -> Vec<u8> {
    let quoted = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    let (text, mut at) = (quoted.unwrap_or(text), 0);
    let mut out = Vec::with_capacity(text.len());
    while at < text.len() {
        let (taken, byte) =
            if text[at] == b'\\' { backslash(&text[at..]) } else { (1, Some(text[at])) };
        out.extend(byte);
        at += taken;
    }
    out
}

/// Reads `&amp;` and the like: how long it is and the byte.
fn entity(rest: &[u8]) -> (usize, Option<u8>) {
    const NAMED: [(&[u8], u8); 5] =
        [(b"&amp;", b'&'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&quot;", b'"'), (b"&apos;", b'\'')];
    if let Some((name, byte)) = NAMED.iter().find(|(name, _)| rest.starts_with(name)) {
        return (name.len(), Some(*byte));
    }
    let end = rest.iter().take(8).position(|b| *b == b';');
    let number = end.and_then(|end| {
        let text = std::str::from_utf8(rest.get(2..end)?).ok().filter(|_| rest[1] == b'#')?;
        let number = match text.strip_prefix(['x', 'X']) {
            Some(digits) => u8::from_str_radix(digits, 16),
            None => text.parse(),
        };
        Some((end + 1, Some(number.ok()?)))
    });
    number.unwrap_or((1, Some(b'&')))
}

/// Reads `\x41`, `\s`, `\\` and `\/`, as KConfig, Qt and JSON have them: how long it is and the byte.
fn backslash(rest: &[u8]) -> (usize, Option<u8>) {
    match rest.get(1) {
        Some(b'x') => {
            // Qt writes as many digits as the number has.
            let digits = rest[2..].iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count();
            match rest.get(2..2 + digits).filter(|digits| !digits.is_empty()).and_then(byte_of) {
                Some(byte) => (2 + digits, Some(byte)),
                None => (1, Some(b'\\')),
            }
        }
        Some(b's') => (2, Some(b' ')),
        Some(byte @ (b'\\' | b'/' | b'"' | b'\'' | b',' | b';' | b' ')) => (2, Some(*byte)),
        _ => (1, Some(b'\\')),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn name(text: &str) -> DocumentName {
        DocumentName::of_path(Path::new(text))
    }

    fn finds(text: &[u8]) -> bool {
        let (wanted, staying) =
            ([name("/home/u/Käse & 'x'.txt")], [name("/home/u/Käse & 'x'.txt.bak")]);
        !Search::new(&wanted, &staying, b"/home/u").found(text).is_empty()
    }

    #[test]
    fn a_name_is_found_however_it_is_escaped() {
        let utf16: Vec<u8> = "zz/home/u/b.txt".encode_utf16().flat_map(u16::to_be_bytes).collect();
        let wanted = [name("/home/u/b.txt")];
        assert_eq!(Search::new(&wanted, [], b"/home/u").found(&utf16).len(), 1);
        for text in [
            "xx/home/u/Käse & 'x'.txtyy",
            "file:///home/u/K%C3%A4se%20&%20'x'.txt",
            "file:///home/u/K%c3%a4se%20%26%20%27x%27.txt",
            "<bookmark href=\"file:///home/u/K%C3%A4se%20&amp;%20&apos;x&#39;.txt\"",
            "URL[$e]=file:$HOME/Käse\\s&\\s'x'.txt",
            "\"/home/u/K\\xc3\\xa4se & 'x'.txt\"",
            "\\/home\\/u\\/Käse & 'x'.txt",
        ] {
            assert!(finds(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_stays_is_no_find() {
        for text in [
            "/home/u/Käse",
            "/home/u/Käse & 'x'.txt.bak",
            "/home/u/other.txt",
            "&",
            "\\x",
            "%",
            "&#999;",
        ] {
            assert!(!finds(text.as_bytes()), "{text}");
        }
    }
}
