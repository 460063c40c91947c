//! Signatures: the types of a body, and the complete types that they are made of.

/// The longest signature, in bytes.
const LONGEST: usize = 255;
/// How deeply arrays, and how deeply structures, may be nested in one signature.
const DEEPEST: u8 = 32;

/// Why a text is no signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no signature")]
pub struct NoSignature;

/// Checks that this is a signature: any number of complete types.
///
/// # Errors
///
/// It is none.
pub(crate) fn check(text: &str) -> Result<(), NoSignature> {
    if text.len() > LONGEST {
        return Err(NoSignature);
    }
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        rest = after(rest, Nesting::default())?;
    }
    Ok(())
}

/// Says whether this is one complete type, as a variant has it.
#[must_use]
pub(crate) fn is_single(text: &str) -> bool {
    text.len() <= LONGEST
        && !text.is_empty()
        && after(text.as_bytes(), Nesting::default()) == Ok(b"")
}

/// Splits the first complete type off a signature that was checked; none if nothing is left.
#[must_use]
pub fn first(text: &str) -> Option<(&str, &str)> {
    let rest = after(text.as_bytes(), Nesting::default()).ok()?;
    text.split_at_checked(text.len() - rest.len())
}

/// Says whether values of this type have a length of their own that never changes, and how long that is in bytes.
pub(super) fn fixed(code: u8) -> Option<usize> {
    Some(match code {
        b'y' => 1,
        b'n' | b'q' => 2,
        b'b' | b'i' | b'u' | b'h' => 4,
        b'x' | b't' | b'd' => 8,
        _ => return None,
    })
}

/// Returns the alignment of values whose type begins with this code.
pub(super) fn alignment(code: u8) -> usize {
    match code {
        b'y' | b'g' | b'v' => 1,
        b'n' | b'q' => 2,
        b'x' | b't' | b'd' | b'(' | b'{' => 8,
        _ => 4,
    }
}

fn is_basic(code: u8) -> bool {
    fixed(code).is_some() || matches!(code, b's' | b'o' | b'g')
}

#[derive(Clone, Copy, Default)]
struct Nesting {
    arrays: u8,
    structures: u8,
}

/// Returns what follows the first complete type.
fn after(text: &[u8], nesting: Nesting) -> Result<&[u8], NoSignature> {
    let (code, rest) = text.split_first().ok_or(NoSignature)?;
    match code {
        b'a' => {
            let inside = Nesting { arrays: nesting.arrays + 1, ..nesting };
            if inside.arrays > DEEPEST {
                return Err(NoSignature);
            }
            if rest.first() == Some(&b'{') {
                entry(&rest[1..], inside)
            } else {
                after(rest, inside)
            }
        }
        b'(' => {
            let inside = Nesting { structures: nesting.structures + 1, ..nesting };
            if inside.structures > DEEPEST {
                return Err(NoSignature);
            }
            let mut rest = after(rest, inside)?;
            while rest.first() != Some(&b')') {
                rest = after(rest, inside)?;
            }
            Ok(&rest[1..])
        }
        b'v' => Ok(rest),
        code if is_basic(*code) => Ok(rest),
        _ => Err(NoSignature),
    }
}

/// Returns what follows an entry of a dictionary, whose `{` was taken.
fn entry(text: &[u8], nesting: Nesting) -> Result<&[u8], NoSignature> {
    let inside = Nesting { structures: nesting.structures + 1, ..nesting };
    let (key, rest) = text.split_first().ok_or(NoSignature)?;
    if inside.structures > DEEPEST || !is_basic(*key) {
        return Err(NoSignature);
    }
    after(rest, inside)?.strip_prefix(b"}").ok_or(NoSignature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_follow_their_grammar() {
        for good in ["", "y", "a{sv}", "aai(ss(v))a{oa{s(ii)}}", "h", "ayv", &"y".repeat(255)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in
            ["a", "()", "(", ")", "(i", "{sv}", "a{vs}", "a{s}", "a{sss}", "e", "r", "m", "a{(i)s}"]
        {
            assert_eq!(check(bad), Err(NoSignature), "{bad}");
        }
        assert_eq!(check(&"y".repeat(256)), Err(NoSignature));
    }

    #[test]
    fn nesting_has_a_deepest() {
        let arrays = |depth: usize| "a".repeat(depth) + "y";
        assert!(is_single(&arrays(32)) && !is_single(&arrays(33)));
        let structures = |depth: usize| "(".repeat(depth) + "y" + &")".repeat(depth);
        assert!(is_single(&structures(32)) && !is_single(&structures(33)));
    }

    #[test]
    fn complete_types_are_split_off() {
        assert_eq!(first("a{s(ii)}uv"), Some(("a{s(ii)}", "uv")));
        assert_eq!(first("(a(ii))"), Some(("(a(ii))", "")));
        assert_eq!(first(""), None);
        assert!(!is_single("ii") && !is_single("") && is_single("a{sv}"));
    }
}
