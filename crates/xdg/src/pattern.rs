//! Shell patterns of names, as `fnmatch` reads them: `*`, `?`, `[a-z]`, `[!a-z]`, `[[:digit:]]`, and `\` before a character
//! that stands for itself.
//!
//! No ready crate matches names that are bytes, characters of a fallback, or in lower case by the rules of their caller.

/// Says whether a pattern matches the whole of a name, both of bytes or both of characters.
///
/// A `[` that is never closed stands for itself. Takes time of at most the product of both lengths.
///
/// ```
/// use unjank_xdg::pattern::matches;
///
/// assert!(matches(b"*.so.[0-9]*", b"libc.so.6"));
/// ```
#[must_use]
pub fn matches<T: Copy + Ord + From<u8> + Into<u32>>(pattern: &[T], name: &[T]) -> bool {
    let (mut at, mut place) = (0, 0);
    // What follows the last `*`, and how far that reaches: only the last one is ever extended.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        if pattern.get(at) == Some(&T::from(b'*')) {
            at += 1;
            star = Some((at, place));
        } else if let Some(length) = step(&pattern[at..], name[place]) {
            (at, place) = (at + length, place + 1);
        } else {
            let Some((after, reach)) = star else { return false };
            star = Some((after, reach + 1));
            (at, place) = (after, reach + 1);
        }
    }
    pattern[at..].iter().all(|item| *item == T::from(b'*'))
}

/// Returns the length of the first item of a pattern if it matches a character; it is not `*`.
fn step<T: Copy + Ord + From<u8> + Into<u32>>(pattern: &[T], character: T) -> Option<usize> {
    let first = *pattern.first()?;
    let is = |byte: u8| first == T::from(byte);
    if is(b'?') {
        return Some(1);
    }
    if is(b'\\') && pattern.len() > 1 {
        return (pattern[1] == character).then_some(2);
    }
    match is(b'[').then(|| class(pattern, character)).flatten() {
        Some((holds, length)) => holds.then_some(length),
        None => (first == character).then_some(1),
    }
}

/// Says whether the class that a pattern begins with holds a character, and how long it is; `None` where it has no end.
fn class<T: Copy + Ord + From<u8> + Into<u32>>(pattern: &[T], wanted: T) -> Option<(bool, usize)> {
    let is = |at: usize, byte: u8| pattern.get(at) == Some(&T::from(byte));
    // A character of the class, which may stand behind a backslash, and what follows it.
    let element = |at: usize| {
        let at = at + usize::from(is(at, b'\\'));
        Some((*pattern.get(at)?, at + 1))
    };
    let negated = is(1, b'!') || is(1, b'^');
    let start = 1 + usize::from(negated);
    let mut at = start;
    let mut holds = false;
    while at == start || !is(at, b']') {
        if is(at, b'[') && is(at + 1, b':') {
            let end = (at + 2..pattern.len()).find(|&end| is(end, b':') && is(end + 1, b']'))?;
            holds |= is_of(&pattern[at + 2..end], wanted.into());
            at = end + 2;
            continue;
        }
        let (low, mut after) = element(at)?;
        let mut high = low;
        if is(after, b'-') && pattern.get(after + 1).is_some() && !is(after + 1, b']') {
            (high, after) = element(after + 1)?;
        }
        holds |= (low..=high).contains(&wanted);
        at = after;
    }
    Some((holds != negated, at + 1))
}

/// Says whether a character is of a class that has a name.
fn is_of<T: Copy + Into<u32>>(class: &[T], character: u32) -> bool {
    let name: String = class.iter().filter_map(|letter| char::from_u32((*letter).into())).collect();
    let Some(letter) = char::from_u32(character) else { return false };
    match &*name {
        "alpha" => letter.is_alphabetic(),
        "digit" => letter.is_ascii_digit(),
        "alnum" => letter.is_alphanumeric(),
        "upper" => letter.is_uppercase(),
        "lower" => letter.is_lowercase(),
        "space" => letter.is_whitespace(),
        "punct" => letter.is_ascii_punctuation(),
        "xdigit" => letter.is_ascii_hexdigit(),
        "cntrl" => letter.is_control(),
        "blank" => matches!(letter, ' ' | '\t'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        for (pattern, name, expected) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "a.rsx", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xaxx", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]?", "dz", true),
            ("[^a-c]?", "bz", false),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            (r"[\]]", "]", true),
            ("[[:digit:]]*", "9a", true),
            ("[[:digit:]]*", "a9", false),
            ("[ab", "[ab", true),
            ("[a", "a", false),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("a\\", "a\\", true),
            ("", "", true),
            ("*", "", true),
            ("a", "", false),
        ] {
            let characters = |text: &str| text.chars().map(u32::from).collect::<Vec<_>>();
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
            assert_eq!(
                matches(&characters(pattern), &characters(name)),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(!matches(&b"*a".repeat(100), &b"a".repeat(99)));
        assert!(!matches(&[&b"*a".repeat(60)[..], b"b"].concat(), &b"a".repeat(5000)));
    }
}
