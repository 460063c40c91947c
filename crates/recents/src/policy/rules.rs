//! The user's own rules: a text with one rule on each line, whose comments and order stay when it is changed.
//!
//! ```text
//! # what a line may say
//! off
//! volatile
//! keep entries 1000
//! keep days 30
//! deny path ~/Secret/**
//! allow path ~/Secret/harmless
//! deny mount /media/*
//! deny hidden
//! deny type video/*
//! deny application vlc
//! ```

use std::path::Path;

/// The longest text that is read.
pub(super) const MAX_BYTES: u64 = 1 << 20;

/// The rule of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetentionRule {
    /// Nothing is remembered.
    Off,
    /// The journal is kept in memory, with a copy on the disk now and then.
    Volatile,
    /// At most so many entries are kept.
    Entries(usize),
    /// Entries are kept for so many days.
    Days(u32),
    /// What matches is not remembered, or in spite of an earlier rule it is.
    Condition(RetentionEffect, Condition),
}

/// The effect on a matching document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionEffect {
    /// It is not remembered.
    Deny,
    /// It is, whatever earlier lines say.
    Allow,
}

/// The condition of a rule. Patterns are those of `glob`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Its path, or a folder above it.
    Path(String),
    /// Where the file system is mounted that it is on.
    Mount(String),
    /// Whether a part of its path starts with a dot.
    Hidden,
    /// Its MIME type.
    Type(String),
    /// The program that opens it.
    Application(String),
}

/// A line that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot parse the rule {line:?}")]
pub struct RetentionRuleError {
    /// The line.
    pub line: String,
}

/// The lines of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionRules {
    lines: Vec<String>,
}

impl RetentionRule {
    /// Reads a line; `None` for a blank one or a comment.
    ///
    /// # Errors
    ///
    /// The line is not a valid rule.
    pub fn parse(line: &str) -> Result<Option<RetentionRule>, RetentionRuleError> {
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let wrong = || RetentionRuleError { line: text.to_owned() };
        let (verb, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let (what, value) =
            rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
        let value = value.trim();
        let rule = match (verb, what, value) {
            ("off", "", "") => RetentionRule::Off,
            ("volatile", "", "") => RetentionRule::Volatile,
            ("keep", "entries", count) => {
                RetentionRule::Entries(count.parse().map_err(|_| wrong())?)
            }
            ("keep", "days", count) => RetentionRule::Days(count.parse().map_err(|_| wrong())?),
            ("deny" | "allow", what, value) => {
                let condition = match (what, value.is_empty()) {
                    ("path", false) => Condition::Path(value.to_owned()),
                    ("mount", false) => Condition::Mount(value.to_owned()),
                    ("hidden", true) => Condition::Hidden,
                    ("type", false) => Condition::Type(value.to_owned()),
                    ("application", false) => Condition::Application(value.to_owned()),
                    _ => return Err(wrong()),
                };
                RetentionRule::Condition(
                    if verb == "deny" { RetentionEffect::Deny } else { RetentionEffect::Allow },
                    condition,
                )
            }
            _ => return Err(wrong()),
        };
        Ok(Some(rule))
    }
}

impl RetentionRules {
    /// Reads a text. Lines that cannot be understood stay, and count for nothing.
    #[must_use]
    pub fn parse(text: &[u8]) -> RetentionRules {
        RetentionRules { lines: String::from_utf8_lossy(text).lines().map(str::to_owned).collect() }
    }

    /// Returns the rules with the numbers of their lines, from 1.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, RetentionRule)> {
        let lines = (1..).zip(&self.lines);
        let rules: Vec<_> = lines
            .filter_map(|(number, line)| Some((number, RetentionRule::parse(line).ok()??)))
            .collect();
        rules.into_iter()
    }

    /// Returns the lines that cannot be understood, with their numbers.
    pub fn faults(&self) -> impl Iterator<Item = (usize, RetentionRuleError)> {
        (1..)
            .zip(&self.lines)
            .filter_map(|(number, line)| Some((number, RetentionRule::parse(line).err()?)))
    }

    /// Returns a line by its number.
    #[must_use]
    pub fn line(&self, number: usize) -> &str {
        number.checked_sub(1).and_then(|at| self.lines.get(at)).map_or("", |line| line.trim())
    }

    /// Adds a line at the end; one of `keep` replaces the one that said the same with another number. Returns whether that
    /// changed anything.
    ///
    /// # Errors
    ///
    /// The line cannot be understood, or is a comment.
    pub fn add(&mut self, line: &str) -> Result<bool, RetentionRuleError> {
        let wrong = || RetentionRuleError { line: line.to_owned() };
        let rule =
            RetentionRule::parse(line)?.filter(|_| !line.contains('\n')).ok_or_else(wrong)?;
        if self.iter().next_back().is_some_and(|(_, last)| last == rule) {
            return Ok(false);
        }
        let same_kind = |other: &RetentionRule| match (&rule, other) {
            (RetentionRule::Entries(_), RetentionRule::Entries(_))
            | (RetentionRule::Days(_), RetentionRule::Days(_)) => true,
            (rule, other) => *rule == *other,
        };
        let found = self.iter().find(|(_, known)| same_kind(known));
        if let Some((number, known)) = found {
            // The last line that matches decides, so that one of conditions moves.
            if matches!(rule, RetentionRule::Condition(..)) {
                self.lines.remove(number - 1);
                self.lines.push(line.trim().to_owned());
                return Ok(true);
            }
            line.trim().clone_into(&mut self.lines[number - 1]);
            return Ok(known != rule);
        }
        self.lines.push(line.trim().to_owned());
        Ok(true)
    }

    /// Removes every line that says the same as this one, and returns whether there was one.
    ///
    /// # Errors
    ///
    /// The line cannot be understood.
    pub fn remove(&mut self, line: &str) -> Result<bool, RetentionRuleError> {
        let rule = RetentionRule::parse(line)?;
        let before = self.lines.len();
        self.lines
            .retain(|known| rule.is_none() || RetentionRule::parse(known).ok().flatten() != rule);
        Ok(self.lines.len() < before)
    }

    /// Writes the text.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = self.lines.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        text.into_bytes()
    }
}

/// Returns a pattern with the user's home in place of `~`.
pub(super) fn expanded(pattern: &str, home: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    match pattern.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) {
        Some(rest) => [home.as_os_str().as_bytes(), rest.as_bytes()].concat(),
        None => pattern.as_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# mine\n\nkeep entries 5\nno rule\n  deny path ~/a b/*  \ndeny hidden\n";

    #[test]
    fn a_text_keeps_its_comments_and_its_order() {
        let mut rules = RetentionRules::parse(TEXT.as_bytes());
        assert_eq!(rules.iter().count(), 3);
        assert_eq!(rules.faults().map(|(line, _)| line).collect::<Vec<_>>(), [4]);
        assert_eq!(rules.line(5), "deny path ~/a b/*");
        assert!(rules.add("keep entries 7").unwrap());
        assert!(rules.add("off").unwrap() && !rules.add("off").unwrap());
        assert!(rules.add("deny path ~/a b/*").unwrap(), "it goes to the end");
        assert!(rules.remove("deny hidden").unwrap() && !rules.remove("deny hidden").unwrap());
        let text = String::from_utf8(rules.to_bytes()).unwrap();
        assert_eq!(text, "# mine\n\nkeep entries 7\nno rule\noff\ndeny path ~/a b/*\n");
    }

    #[test]
    fn what_is_no_rule_is_said() {
        for wrong in ["deny", "deny path", "keep entries many", "off now", "allow hidden x", "x"] {
            assert!(RetentionRule::parse(wrong).is_err(), "{wrong}");
        }
        let mut rules = RetentionRules::default();
        rules.add("off\ndeny hidden").unwrap_err();
        rules.add("# no rule").unwrap_err();
        assert!(rules.to_bytes().is_empty());
    }
}
