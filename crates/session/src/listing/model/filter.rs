//! Which names are shown.

/// What a view shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// What happens to names that begin with a dot.
    pub hidden: Hidden,
    /// What names have to match.
    pub pattern: Option<Pattern>,
}

/// What happens to names that begin with a dot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hidden {
    /// They are left out.
    #[default]
    Left,
    /// They are shown.
    Shown,
}

/// Whether capitals are other letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// `a` finds `A`.
    #[default]
    Ignored,
    /// `a` does not find `A`.
    Heeded,
}

/// A pattern for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    case: Case,
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Substring(Vec<u32>),
    Glob(Vec<Part>),
}

/// A part of a glob.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    One(u32),
    Any,
    Many,
    /// One of these ranges, or none of them.
    Class {
        ranges: Vec<(u32, u32)>,
        negated: Negated,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Negated {
    No,
    Yes,
}

impl Filter {
    /// Says whether a name is shown.
    #[must_use]
    pub fn admits(&self, name: &[u8]) -> bool {
        (self.hidden == Hidden::Shown || name.first() != Some(&b'.'))
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}

impl Pattern {
    /// Makes a pattern that matches names with this text anywhere in them; no character is special.
    #[must_use]
    pub fn substring(text: &[u8], case: Case) -> Pattern {
        Pattern { case, form: Form::Substring(characters(text, case).collect()) }
    }

    /// Makes a pattern that matches whole names: `*` is any text, `?` any character, `[a-z]` one of a class and `[!a-z]` none of it;
    /// after `\` a character stands for itself, and so does a `[` that is never closed.
    #[must_use]
    pub fn glob(text: &[u8], case: Case) -> Pattern {
        let text: Vec<u32> = characters(text, case).collect();
        let mut parts = Vec::new();
        let mut rest = &text[..];
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            match char::from_u32(*first) {
                Some('*') if parts.last() == Some(&Part::Many) => {}
                Some('*') => parts.push(Part::Many),
                Some('?') => parts.push(Part::Any),
                Some('\\') if !rest.is_empty() => {
                    parts.push(Part::One(rest[0]));
                    rest = &rest[1..];
                }
                Some('[') => match class(rest) {
                    Some((part, after)) => {
                        parts.push(part);
                        rest = after;
                    }
                    None => parts.push(Part::One(*first)),
                },
                _ => parts.push(Part::One(*first)),
            }
        }
        Pattern { case, form: Form::Glob(parts) }
    }

    /// Says whether a name matches.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        // A byte is a character in most names, and no name is longer than this; more is on the heap.
        let mut buffer = [0; 256];
        let long: Vec<u32>;
        let name = if name.len() <= buffer.len() {
            let mut len = 0;
            for (place, character) in buffer.iter_mut().zip(characters(name, self.case)) {
                *place = character;
                len += 1;
            }
            if name.is_ascii() { &buffer[..name.len()] } else { &buffer[..len] }
        } else {
            long = characters(name, self.case).collect();
            &long[..]
        };
        match &self.form {
            Form::Substring(text) => {
                text.is_empty() || name.windows(text.len()).any(|window| window == &text[..])
            }
            Form::Glob(parts) => matches(parts, name),
        }
    }
}

/// The characters of a name; a byte that is no text is a character that no text has.
fn characters(name: &[u8], case: Case) -> impl Iterator<Item = u32> + '_ {
    name.utf8_chunks().flat_map(move |chunk| {
        let text = chunk.valid().chars().map(move |character| match case {
            Case::Heeded => character,
            Case::Ignored if character.is_ascii() => character.to_ascii_lowercase(),
            // The few letters that become several when made small keep their first: both sides do.
            Case::Ignored => character.to_lowercase().next().unwrap_or(character),
        });
        let other = chunk.invalid().iter().map(|byte| 0x11_0000 + u32::from(*byte));
        text.map(u32::from).chain(other)
    })
}

/// Reads a class up to its `]` and returns it and what follows.
fn class(text: &[u32]) -> Option<(Part, &[u32])> {
    let is = |place: usize, wanted: char| text.get(place) == Some(&u32::from(wanted));
    let negated = if is(0, '!') || is(0, '^') { Negated::Yes } else { Negated::No };
    let first = usize::from(negated == Negated::Yes);
    let mut at = first;
    let mut ranges = Vec::new();
    loop {
        if is(at, ']') && at > first {
            return Some((Part::Class { ranges, negated }, &text[at + 1..]));
        }
        if is(at, '\\') {
            at += 1;
        }
        let low = *text.get(at)?;
        if is(at + 1, '-') && !is(at + 2, ']') {
            let high = *text.get(at + 2)?;
            ranges.push((low, high));
            at += 3;
        } else {
            ranges.push((low, low));
            at += 1;
        }
    }
}

impl Part {
    fn takes(&self, character: u32) -> bool {
        match self {
            Part::One(one) => *one == character,
            Part::Any | Part::Many => true,
            Part::Class { ranges, negated } => {
                let within = ranges.iter().any(|(low, high)| (*low..=*high).contains(&character));
                within != (*negated == Negated::Yes)
            }
        }
    }
}

/// Matches with one step back for the last `*`: never more than the product of both lengths.
fn matches(parts: &[Part], name: &[u32]) -> bool {
    let (mut part, mut at) = (0, 0);
    let mut last: Option<(usize, usize)> = None;
    while at < name.len() {
        match parts.get(part) {
            Some(Part::Many) => {
                last = Some((part, at));
                part += 1;
                continue;
            }
            Some(one) if one.takes(name[at]) => {
                part += 1;
                at += 1;
                continue;
            }
            _ => {}
        }
        let Some((star, taken)) = last else { return false };
        last = Some((star, taken + 1));
        part = star + 1;
        at = taken + 1;
    }
    parts[part..].iter().all(|part| *part == Part::Many)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(pattern: &str, name: &str) -> bool {
        Pattern::glob(pattern.as_bytes(), Case::Heeded).matches(name.as_bytes())
    }

    #[test]
    fn globs_match_whole_names() {
        assert!(glob("*.txt", "a.txt") && !glob("*.txt", "a.txt~") && !glob("*.txt", "a.TXT"));
        assert!(glob("a?c", "abc") && glob("a?c", "aéc") && !glob("a?c", "ac"));
        assert!(glob("*a*b*", "xxaxxbxx") && !glob("*a*b*", "xxbxxaxx"));
        assert!(glob("", "") && !glob("", "a") && glob("**", "") && glob("*", "anything"));
        assert!(glob("[a-c]x", "bx") && !glob("[a-c]x", "dx") && glob("[!a-c]x", "dx"));
        assert!(glob("[]a]", "]") && glob("[a-]", "-") && glob(r"[\]]", "]"));
        assert!(glob(r"\*", "*") && !glob(r"\*", "a") && glob("[ab", "[ab"));
    }

    #[test]
    fn case_is_folded_beyond_ascii() {
        let any = |text: &str, name: &str| {
            Pattern::substring(text.as_bytes(), Case::Ignored).matches(name.as_bytes())
        };
        assert!(
            any("ÄRGER", "der ärger")
                && any("readme", "README.md")
                && !any("x", "abc")
                && any("", "abc")
        );
        assert!(Pattern::glob(b"[A-C]*", Case::Ignored).matches(b"beta"));
        assert!(any("*", "a*b") && !any("*", "ab"), "nothing is special in a text");
    }

    #[test]
    fn bytes_that_are_no_text_match_themselves() {
        let pattern = Pattern::substring(b"\xff", Case::Ignored);
        assert!(
            pattern.matches(b"a\xffb")
                && !pattern.matches(b"a\xfeb")
                && !pattern.matches("\u{fffd}".as_bytes())
        );
        assert!(Pattern::glob(b"a?b", Case::Heeded).matches(b"a\xffb"));
    }

    #[test]
    fn hidden_names_begin_with_a_dot() {
        assert!(!Filter::default().admits(b".profile") && Filter::default().admits(b"a.b"));
        assert!(Filter { hidden: Hidden::Shown, pattern: None }.admits(b".profile"));
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = Pattern::glob("*a".repeat(100).as_bytes(), Case::Heeded);
        assert!(
            !pattern.matches("a".repeat(99).as_bytes())
                && pattern.matches("a".repeat(100).as_bytes())
        );
    }
}
