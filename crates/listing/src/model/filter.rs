//! Which names are shown.

/// What a view shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewFilter {
    /// What happens to names that begin with a dot.
    pub hidden: Hidden,
    /// What names have to match.
    pub pattern: Option<NamePattern>,
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
pub struct NamePattern {
    case: Case,
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Substring(Vec<u32>),
    Glob(Vec<u32>),
}

impl ViewFilter {
    /// Returns whether a name is shown.
    #[must_use]
    pub(crate) fn admits(&self, name: &[u8]) -> bool {
        (self.hidden == Hidden::Shown || name.first() != Some(&b'.'))
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}

impl NamePattern {
    /// Makes a pattern that matches names with this text anywhere in them; no character is special.
    #[must_use]
    pub fn substring(text: &[u8], case: Case) -> NamePattern {
        NamePattern { case, form: Form::Substring(characters(text, case).collect()) }
    }

    /// Makes a pattern that matches whole names: `*` is any text, `?` any character, `[a-z]` one of a class and `[!a-z]` none of it;
    /// after `\` a character stands for itself, and so does a `[` that is never closed.
    #[must_use]
    pub fn glob(text: &[u8], case: Case) -> NamePattern {
        NamePattern { case, form: Form::Glob(characters(text, case).collect()) }
    }

    /// Returns whether a name matches.
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
            Form::Glob(pattern) => xdg::pattern::matches(pattern, name),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(pattern: &str, name: &str) -> bool {
        NamePattern::glob(pattern.as_bytes(), Case::Heeded).matches(name.as_bytes())
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
            NamePattern::substring(text.as_bytes(), Case::Ignored).matches(name.as_bytes())
        };
        assert!(
            any("ÄRGER", "der ärger")
                && any("readme", "README.md")
                && !any("x", "abc")
                && any("", "abc")
        );
        assert!(NamePattern::glob(b"[A-C]*", Case::Ignored).matches(b"beta"));
        assert!(any("*", "a*b") && !any("*", "ab"), "nothing is special in a text");
    }

    #[test]
    fn bytes_that_are_no_text_match_themselves() {
        let pattern = NamePattern::substring(b"\xff", Case::Ignored);
        assert!(
            pattern.matches(b"a\xffb")
                && !pattern.matches(b"a\xfeb")
                && !pattern.matches("\u{fffd}".as_bytes())
        );
        assert!(NamePattern::glob(b"a?b", Case::Heeded).matches(b"a\xffb"));
    }

    #[test]
    fn hidden_names_begin_with_a_dot() {
        assert!(!ViewFilter::default().admits(b".profile") && ViewFilter::default().admits(b"a.b"));
        assert!(ViewFilter { hidden: Hidden::Shown, pattern: None }.admits(b".profile"));
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = NamePattern::glob("*a".repeat(100).as_bytes(), Case::Heeded);
        assert!(
            !pattern.matches("a".repeat(99).as_bytes())
                && pattern.matches("a".repeat(100).as_bytes())
        );
    }
}
