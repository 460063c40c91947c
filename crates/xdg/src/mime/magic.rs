//! Types by contents: rules about bytes at places in a file.

use std::path::Path;

/// The furthest byte of a file that is looked at; real rules end at 37 KiB.
const FURTHEST: usize = 64 << 10;

/// Which contents are which types.
#[derive(Clone, Debug, Default)]
pub struct Magic {
    /// The most important first.
    types: Vec<Type>,
    furthest: usize,
}

#[derive(Clone, Debug)]
struct Type {
    priority: u32,
    name: Box<str>,
    rules: Vec<Rule>,
}

/// One line: these bytes at one of these places, if the rule above with less indent holds.
#[derive(Clone, Debug)]
struct Rule {
    indent: u32,
    start: usize,
    places: usize,
    value: Box<[u8]>,
    mask: Option<Box<[u8]>>,
}

impl Magic {
    /// Reads `magic` of these directories, the most important first; a file that is not there says nothing.
    #[must_use]
    pub fn read<'a>(directories: impl Iterator<Item = &'a Path>) -> Magic {
        let mut magic = Magic::default();
        for directory in directories {
            magic.add(&super::contents(&directory.join("magic")));
        }
        // Of equal ones, the more important directory's stay before the others.
        magic.types.sort_by_key(|kind| std::cmp::Reverse(kind.priority));
        let rules = magic.types.iter().flat_map(|kind| &kind.rules);
        let ends = rules.map(|rule| rule.start + rule.places + rule.value.len());
        magic.furthest = ends.max().unwrap_or(0).clamp(1024, FURTHEST);
        magic
    }

    /// Returns how much of the begin of a file is looked at, in bytes.
    #[must_use]
    pub fn furthest(&self) -> usize {
        self.furthest
    }

    /// Returns the types whose rules hold for a file that begins with these bytes, the most important first.
    #[must_use]
    pub fn types_of(&self, begin: &[u8]) -> Vec<&str> {
        let found = self.types.iter().filter(|kind| holds(&kind.rules, begin));
        found.map(|kind| &*kind.name).collect()
    }

    /// Adds what a file says; what cannot be read ends it.
    fn add(&mut self, file: &[u8]) {
        let Some(mut rest) = file.strip_prefix(b"MIME-Magic\0\n") else { return };
        while let Some((&first, _)) = rest.split_first() {
            if first == b'[' {
                let Some((kind, after)) = section(rest) else { return };
                self.types.push(kind);
                rest = after;
                continue;
            }
            let Some((rule, after)) = rule(rest) else { return };
            rest = after;
            if let (Some(kind), Some(rule)) = (self.types.last_mut(), rule) {
                kind.rules.push(rule);
            }
        }
    }
}

/// `[50:text/x-diff]` and the end of the line.
fn section(bytes: &[u8]) -> Option<(Type, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(bytes[..end].strip_prefix(b"[")?.strip_suffix(b"]")?).ok()?;
    let (priority, name) = line.split_once(':')?;
    let kind = Type { priority: priority.parse().ok()?, name: name.into(), rules: Vec::new() };
    Some((kind, &bytes[end + 1..]))
}

/// `[indent]>start=value[&mask][~word size][+range]` and the end of the line; no rule if it looks too far.
fn rule(bytes: &[u8]) -> Option<(Option<Rule>, &[u8])> {
    let (indent, rest) = number(bytes);
    let (start, rest) = number(rest.strip_prefix(b">")?);
    let (high, rest) = rest.strip_prefix(b"=")?.split_first()?;
    let (low, rest) = rest.split_first()?;
    let length = usize::from(*high) << 8 | usize::from(*low);
    let (value, mut rest) = rest.split_at_checked(length)?;
    let mut mask = None;
    if let Some(after) = rest.strip_prefix(b"&") {
        let (bytes, after) = after.split_at_checked(length)?;
        (mask, rest) = (Some(bytes), after);
    }
    let (mut word, mut places) = (1, 1);
    if let Some(after) = rest.strip_prefix(b"~") {
        let (number, after) = number(after);
        (word, rest) = (number.unwrap_or(1), after);
    }
    if let Some(after) = rest.strip_prefix(b"+") {
        let (number, after) = number(after);
        (places, rest) = (number.unwrap_or(1), after);
    }
    // Later versions may say more here.
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let after = &rest[end + 1..];
    let start = usize::try_from(start?).ok()?;
    let places = usize::try_from(places.max(1)).ok()?;
    let fits = start.checked_add(places).is_some_and(|end| end <= FURTHEST);
    let words = |bytes: &[u8]| in_host_order(bytes, word);
    let rule = Rule {
        indent: u32::try_from(indent.unwrap_or(0)).ok()?,
        start,
        places,
        value: words(value),
        mask: mask.map(words),
    };
    Some(((fits && !value.is_empty()).then_some(rule), after))
}

/// Numbers of several bytes are written with the high one first and compared as this machine has them.
fn in_host_order(bytes: &[u8], word: u64) -> Box<[u8]> {
    let mut bytes: Box<[u8]> = bytes.into();
    let word = match word {
        2 => 2,
        4 => 4,
        _ => 1,
    };
    if cfg!(target_endian = "little") {
        bytes.chunks_exact_mut(word).for_each(<[u8]>::reverse);
    }
    bytes
}

fn number(bytes: &[u8]) -> (Option<u64>, &[u8]) {
    let end = bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len());
    let (digits, rest) = bytes.split_at(end);
    (std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()), rest)
}

/// Whether one of the outermost rules holds, and with it one of those below it, if there are any.
fn holds(rules: &[Rule], begin: &[u8]) -> bool {
    // How deep the rules before hold: a rule is looked at if the one above it held.
    let mut deep = 0;
    for (index, rule) in rules.iter().enumerate() {
        if rule.indent > deep {
            continue;
        }
        deep = rule.indent;
        if rule.holds(begin) {
            let has_below = rules.get(index + 1).is_some_and(|next| next.indent > rule.indent);
            if !has_below {
                return true;
            }
            deep = rule.indent + 1;
        }
    }
    false
}

impl Rule {
    fn holds(&self, begin: &[u8]) -> bool {
        let Some(from) = begin.get(self.start..) else { return false };
        from.windows(self.value.len()).take(self.places).any(|window| match &self.mask {
            None => *window == *self.value,
            Some(mask) => {
                let pairs = window.iter().zip(&*self.value).zip(&**mask);
                pairs.into_iter().all(|((byte, value), mask)| byte & mask == value & mask)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn magic(sections: &[u8]) -> Magic {
        let mut magic = Magic::default();
        magic.add(&[b"MIME-Magic\0\n", sections].concat());
        magic
    }

    fn first(magic: &Magic, begin: &[u8]) -> Option<String> {
        magic.types_of(begin).first().map(|&name| name.to_owned())
    }

    #[test]
    fn rules_hold_at_their_places_and_below_others() {
        let magic = magic(
            b"[90:a/nested]\n>0=\0\x02PK\n1>4=\0\x01a\n1>4=\0\x01b\n[50:a/masked]\n>0=\0\x01\x80&\xf0\n\
              [50:a/ranged]\n>2=\0\x01z+3\n[50:a/word]\n>0=\0\x02\x12\x34~2\n[40:a/far]\n>99999999=\0\x01x\n",
        );
        assert_eq!(first(&magic, b"PK..b").as_deref(), Some("a/nested"));
        assert_eq!(first(&magic, b"PK..c"), None);
        assert_eq!(first(&magic, b"\x8f").as_deref(), Some("a/masked"));
        assert_eq!(first(&magic, b"\x90"), None);
        assert_eq!(first(&magic, b"....z").as_deref(), Some("a/ranged"));
        assert_eq!(first(&magic, b".....z"), None);
        let word = 0x1234u16.to_ne_bytes();
        assert_eq!(first(&magic, &word).as_deref(), Some("a/word"));
        assert_eq!(first(&magic, b""), None);
    }

    #[test]
    fn a_file_that_is_cut_off_says_what_came_before() {
        let whole = b"MIME-Magic\0\n[50:a/b]\n>0=\0\x02PK\n[50:c/d]\n>0=\0\x02QK\n";
        for end in 0..whole.len() {
            let mut magic = Magic::default();
            magic.add(&whole[..end]);
            let _ = first(&magic, b"QK");
        }
    }

    #[test]
    fn files_of_this_machine_are_known() {
        let directory = Path::new("/usr/share/mime");
        if !directory.join("magic").exists() {
            return; // Not every machine has the database; the rules are tested above.
        }
        let magic = Magic::read([directory].into_iter());
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        assert_eq!(first(&magic, png).as_deref(), Some("image/png"));
        assert_eq!(first(&magic, b"%PDF-1.7\n").as_deref(), Some("application/pdf"));
        assert!(magic.furthest() <= FURTHEST);
    }
}
