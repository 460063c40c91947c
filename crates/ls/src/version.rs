//! The order of version numbers in names, as GNU `ls -v`: `a2` before `a10`, `x~` before `x`.

use std::cmp::Ordering;

/// Compares two names.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    // The empty name, then "." and "..", then what begins with a dot.
    let rank = |name: &[u8]| match name {
        b"" => 0,
        b"." => 1,
        b".." => 2,
        [b'.', ..] => 3,
        _ => 4,
    };
    let by_rank = rank(a).cmp(&rank(b));
    if by_rank.is_ne() || rank(a) < 3 {
        return by_rank;
    }
    let (stem_a, stem_b) = (stem(a), stem(b));
    // Where the stems are alike, what follows them decides.
    let by_stem = if stem_a == stem_b { Ordering::Equal } else { verrevcmp(stem_a, stem_b) };
    by_stem.then_with(|| verrevcmp(a, b))
}

/// Returns `name` without its suffixes: `(\.[A-Za-z~][A-Za-z0-9~]*)*$`.
fn stem(name: &[u8]) -> &[u8] {
    let mut start = None;
    let mut at = 0;
    while at < name.len() {
        let is_suffix_start = name[at] == b'.'
            && name.get(at + 1).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'~');
        if is_suffix_start {
            start = start.or(Some(at));
            at += 2;
        } else if start.is_some() && (name[at].is_ascii_alphanumeric() || name[at] == b'~') {
            at += 1;
        } else {
            start = None;
            at += 1;
        }
    }
    &name[..start.unwrap_or(name.len())]
}

/// Compares runs of other characters and runs of digits in turn, as Debian compares versions.
fn verrevcmp(a: &[u8], b: &[u8]) -> Ordering {
    let (mut i, mut j) = (0, 0);
    let digit = |name: &[u8], at: usize| name.get(at).is_some_and(u8::is_ascii_digit);
    while i < a.len() || j < b.len() {
        while (i < a.len() && !digit(a, i)) || (j < b.len() && !digit(b, j)) {
            let by_order = order(a.get(i)).cmp(&order(b.get(j)));
            if by_order.is_ne() {
                return by_order;
            }
            i += 1;
            j += 1;
        }
        while a.get(i) == Some(&b'0') {
            i += 1;
        }
        while b.get(j) == Some(&b'0') {
            j += 1;
        }
        let mut first = Ordering::Equal;
        while digit(a, i) && digit(b, j) {
            first = first.then(a[i].cmp(&b[j]));
            i += 1;
            j += 1;
        }
        if digit(a, i) {
            return Ordering::Greater;
        }
        if digit(b, j) {
            return Ordering::Less;
        }
        if first.is_ne() {
            return first;
        }
    }
    Ordering::Equal
}

/// Ranks a byte: a tilde before the end, the end before digits, letters, the rest.
fn order(byte: Option<&u8>) -> u16 {
    match byte {
        Some(b'~') => 0,
        None => 1,
        Some(byte) if byte.is_ascii_digit() => 2,
        Some(byte) if byte.is_ascii_alphabetic() => u16::from(*byte) + 2,
        Some(byte) => u16::from(*byte) + 2 + 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_their_order() {
        let names = [
            ".",
            "..",
            ".a",
            "a",
            "a~",
            "a1",
            "a2",
            "a2.5",
            "a10",
            "a10.tar.gz",
            "a010",
            "b-1.2",
            "b-1.10",
            "b_",
        ];
        let mut sorted = names.to_vec();
        sorted.reverse();
        sorted.sort_by(|a, b| compare(a.as_bytes(), b.as_bytes()));
        assert_eq!(sorted[..3], [".", "..", ".a"]);
        let at = |name: &str| sorted.iter().position(|known| *known == name).unwrap();
        assert!(at("a1") < at("a2") && at("a2") < at("a10") && at("b-1.2") < at("b-1.10"));
        assert!(at("a~") < at("a1"));
    }
}
