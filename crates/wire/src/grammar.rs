//! What names may look like (D-Bus specification, "Valid Names" and "Valid Object Paths").

/// The longest name, in bytes; object paths have no limit of their own.
const LONGEST: usize = 255;

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Says whether these are two elements or more with dots between them, none of which begins with a digit.
fn has_elements(text: &str, is_one: impl Fn(u8) -> bool) -> bool {
    let (mut dots, mut begins) = (0, true);
    for byte in text.bytes() {
        if byte == b'.' {
            if begins {
                return false;
            }
            (dots, begins) = (dots + 1, true);
        } else if !is_one(byte) || begins && byte.is_ascii_digit() {
            return false;
        } else {
            begins = false;
        }
    }
    dots > 0 && !begins
}

/// Says whether this is an object path: `/`, or elements each after a `/`.
pub(super) fn is_path(text: &str) -> bool {
    let Some(elements) = text.strip_prefix('/') else { return false };
    let mut before = b'/';
    for byte in elements.bytes() {
        if !is_word(byte) && (byte != b'/' || before == b'/') {
            return false;
        }
        before = byte;
    }
    elements.is_empty() || before != b'/'
}

/// Says whether this is the name of an interface or an error: two elements or more.
pub(super) fn is_interface(text: &str) -> bool {
    text.len() <= LONGEST && has_elements(text, is_word)
}

/// Says whether this is the name of a member: one element.
pub(super) fn is_member(text: &str) -> bool {
    let starts = text.as_bytes().first().is_some_and(|first| !first.is_ascii_digit());
    text.len() <= LONGEST && starts && text.bytes().all(is_word)
}

/// Says whether this is a unique name or a well-known name.
pub(super) fn is_bus_name(text: &str) -> bool {
    let is_element_byte = |byte: u8| is_word(byte) || byte == b'-';
    if text.len() > LONGEST {
        return false;
    }
    if let Some(unique) = text.strip_prefix(':') {
        // The specification wants two elements, the reference implementation only that none of those after a dot is empty.
        return !unique.ends_with('.')
            && !unique.contains("..")
            && unique.bytes().all(|byte| byte == b'.' || is_element_byte(byte));
    }
    has_elements(text, is_element_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_grammar() {
        assert!(["/", "/a", "/a_1/B"].into_iter().all(is_path));
        assert!(!["", "a", "/a/", "//", "/a-b", "/a//b"].into_iter().any(is_path));
        assert!(["a.b", "_a._1"].into_iter().all(is_interface));
        assert!(!["a", "", ".a", "a.", "a..b", "a.1", "a.b-c"].into_iter().any(is_interface));
        assert!(is_member("Get2") && !is_member("2Get") && !is_member("") && !is_member("a.b"));
        assert!([":1.2", ":a-b.1", ":1", "org.a-b.c"].into_iter().all(is_bus_name));
        assert!(!["", ":1.", ":1..2", ":a b", "org", "org.1a"].into_iter().any(is_bus_name));
    }

    #[test]
    fn names_have_a_longest() {
        let long = format!("a.{}", "b".repeat(254));
        assert!(!is_interface(&long) && is_interface(&long[..255]));
        assert!(!is_bus_name(&long) && is_bus_name(&long[..255]));
        assert!(!is_member(&"b".repeat(256)) && is_member(&"b".repeat(255)));
    }
}
