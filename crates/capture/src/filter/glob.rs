//! Names with `*` for any letters and `?` for one.

use wildmatch::WildMatch;

/// A pattern of names.
#[derive(Clone, Debug)]
pub(crate) struct Glob {
    pattern: String,
    /// The pattern if it is more than one name.
    wild: Option<WildMatch>,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Glob {
        let wild = pattern.contains(['*', '?']).then(|| WildMatch::new(pattern));
        Glob { pattern: pattern.to_owned(), wild }
    }

    pub(super) fn has_dot(&self) -> bool {
        self.pattern.contains('.')
    }

    /// Returns whether a name fits, as a whole.
    pub(crate) fn fits(&self, name: &str) -> bool {
        self.wild.as_ref().map_or_else(|| self.pattern == name, |wild| wild.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_letters_and_a_question_mark_one() {
        for (pattern, name) in [
            ("org.a.B", "org.a.B"),
            ("*", ""),
            ("*", "x"),
            ("org.*", "org.a.B"),
            ("*.B", "org.a.B"),
            ("o*a*B", "org.a.B"),
            (":1.?", ":1.7"),
            ("**b*", "aab"),
        ] {
            assert!(Glob::new(pattern).fits(name), "{pattern} {name}");
        }
        for (pattern, name) in [("org", "org.a"), ("*.C", "org.a.B"), (":1.?", ":1.77"), ("?", "")]
        {
            assert!(!Glob::new(pattern).fits(name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_long_time() {
        let name = "a".repeat(2000);
        assert!(!Glob::new(&"*a".repeat(200)).fits(&format!("{name}b")));
    }
}
