//! Names with `*` for any letters and `?` for one.

/// A pattern of names.
#[derive(Clone, Debug)]
pub(crate) struct Glob {
    pattern: String,
    is_plain: bool,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Glob {
        Glob { pattern: pattern.to_owned(), is_plain: !pattern.contains(['*', '?']) }
    }

    pub(super) fn has_dot(&self) -> bool {
        self.pattern.contains('.')
    }

    /// Returns whether a name fits, as a whole.
    pub(crate) fn fits(&self, name: &str) -> bool {
        if self.is_plain {
            return self.pattern == name;
        }
        let (pattern, name) = (self.pattern.as_bytes(), name.as_bytes());
        let (mut at, mut letter) = (0, 0);
        // Where the last `*` was, and what it has taken up to: only that one is ever tried again.
        let mut star = None;
        while letter < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    star = Some((at, letter));
                    at += 1;
                }
                Some(wanted) if *wanted == b'?' || *wanted == name[letter] => {
                    at += 1;
                    letter += 1;
                }
                _ => {
                    let Some((before, taken)) = star else { return false };
                    star = Some((before, taken + 1));
                    at = before + 1;
                    letter = taken + 1;
                }
            }
        }
        pattern[at..].iter().all(|rest| *rest == b'*')
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
