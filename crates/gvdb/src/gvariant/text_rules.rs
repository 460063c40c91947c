//! What a serialised string, object path or signature must look like.

use super::types::{Letters, MAX_DEPTH, scan};

/// Returns the text of a serialised string: valid UTF-8, one zero, at the end.
pub(super) fn string(bytes: &[u8]) -> Option<&str> {
    let (&0, text) = bytes.split_last()? else { return None };
    let text = std::str::from_utf8(text).ok()?;
    (!text.as_bytes().contains(&0)).then_some(text)
}

/// Reads a serialised `s`, `o` or `g`, or the default of that type if the bytes are none.
pub(super) fn read(kind: u8, bytes: &[u8]) -> &str {
    let text = string(bytes);
    match kind {
        b'o' => text.filter(|path| is_object_path(path.as_bytes())).unwrap_or("/"),
        b'g' => text.filter(|signature| is_signature(signature.as_bytes())).unwrap_or(""),
        _ => text.unwrap_or(""),
    }
}

/// Says whether `text` is a D-Bus object path.
pub(super) fn is_object_path(text: &[u8]) -> bool {
    let Some((b'/', elements)) = text.split_first() else { return false };
    elements.is_empty()
        || elements.split(|&c| c == b'/').all(|element| {
            !element.is_empty() && element.iter().all(|&c| c.is_ascii_alphanumeric() || c == b'_')
        })
}

/// Says whether `text` is a D-Bus signature: any number of complete types, no maybe among them.
pub(super) fn is_signature(text: &[u8]) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        match scan(rest, MAX_DEPTH, Letters::Definite) {
            Some(end) => rest = &rest[end..],
            None => return false,
        }
    }
    !text.contains(&b'm')
}

/// Returns `text` up to its first zero, which is all that a string can hold.
pub(super) fn before_zero(text: &str) -> &str {
    text.split('\0').next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_ends_at_its_only_zero() {
        assert_eq!(string(b"hi\0"), Some("hi"));
        assert_eq!(string(b"\0"), Some(""));
        for bad in [&b""[..], b"hi", b"h\0i\0", b"\xff\0", b"\xed\xa0\x80\0"] {
            assert_eq!(string(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn object_paths_have_no_empty_elements() {
        for good in ["/", "/a", "/a/b_1/C"] {
            assert!(is_object_path(good.as_bytes()), "{good}");
        }
        for bad in ["", "a", "//", "/a/", "/a//b", "/a-b", "/é"] {
            assert!(!is_object_path(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn signatures_are_lists_of_types_without_maybe() {
        for good in ["", "a{sv}", "iisv(yy)", "{sv}"] {
            assert!(is_signature(good.as_bytes()), "{good}");
        }
        for bad in ["a", "mi", "z", "(", "a{vs}", "*"] {
            assert!(!is_signature(bad.as_bytes()), "{bad}");
        }
    }
}
