//! The change of the compared runs: skipped calls, delayed calls, variables.

use std::ffi::OsString;
use std::time::Duration;

use wildmatch::WildMatch;

use super::AbError;
use trace::syscall::{SyscallClass, call_name, call_number};

/// Calls for which 0 is a true enough answer that a program goes on as if they had been made.
///
/// Of others, 0 would be a lie about data: a `write` that wrote nothing, an `openat` that opened stdin.
const SKIPPABLE: [&str; 13] = [
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
    "sync_file_range",
    "msync",
    "nanosleep",
    "clock_nanosleep",
    "sched_yield",
    "flock",
    "fadvise64",
    "readahead",
    "fallocate",
];

/// Skippable calls whose omission leaves no trace anywhere.
const HARMLESS: [&str; 5] =
    ["nanosleep", "clock_nanosleep", "sched_yield", "fadvise64", "readahead"];

/// Calls whose first argument is a descriptor of a file, so that a path can be found for them.
const ON_A_DESCRIPTOR: [&str; 17] = [
    "fsync",
    "fdatasync",
    "syncfs",
    "sync_file_range",
    "flock",
    "fallocate",
    "fadvise64",
    "readahead",
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "ftruncate",
    "getdents64",
    "close",
];

/// A kind of call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CallClass {
    /// Its number on this architecture.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
}

impl CallClass {
    /// Returns the call of this name.
    ///
    /// # Errors
    ///
    /// The kernel of this architecture has none.
    pub fn named(name: &str) -> Result<CallClass, AbError> {
        let number = call_number(name);
        number
            .and_then(|number| Some(CallClass { number, name: call_name(number)? }))
            .ok_or_else(|| AbError::NoCall(name.to_owned()))
    }

    /// Returns whether the call affects what survives a power cut, or what other programs see.
    fn is_harmless(self) -> bool {
        HARMLESS.contains(&self.name)
    }
}

/// The difference between the two kinds of runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallDifference {
    /// Calls that succeed without being made.
    skipped: Vec<CallClass>,
    /// Calls that begin later by a time.
    delayed: Vec<(CallClass, Duration)>,
    /// Only calls on files whose path matches this are skipped or delayed; `*` and `?` as in a shell, both also for `/`.
    under: Option<Vec<u8>>,
    /// Variables that are set.
    environment: Vec<(OsString, OsString)>,
}

impl CallDifference {
    /// Adds calls that succeed without being made.
    ///
    /// # Errors
    ///
    /// A name that is no call's, or a call without which a program cannot go on.
    pub fn skip(mut self, names: &[String]) -> Result<CallDifference, AbError> {
        for name in names {
            let kind = CallClass::named(name)?;
            if !SKIPPABLE.contains(&kind.name) {
                return Err(AbError::NotSkippable { name: kind.name });
            }
            self.skipped.push(kind);
        }
        Ok(self)
    }

    /// Adds a call that begins later.
    ///
    /// # Errors
    ///
    /// A name that is no call's.
    pub fn delay(mut self, name: &str, by: Duration) -> Result<CallDifference, AbError> {
        self.delayed.push((CallClass::named(name)?, by));
        Ok(self)
    }

    /// Sets a variable.
    #[must_use]
    pub fn set(mut self, variable: OsString, value: OsString) -> CallDifference {
        self.environment.push((variable, value));
        self
    }

    /// Narrows skipping and delaying down to files whose path matches `pattern`.
    ///
    /// # Errors
    ///
    /// A skipped or delayed call is not made on a descriptor, or there is none.
    pub fn under(mut self, pattern: Vec<u8>) -> Result<CallDifference, AbError> {
        let elsewhere = self.kinds().find(|kind| !ON_A_DESCRIPTOR.contains(&kind.name));
        if let Some(kind) = elsewhere {
            return Err(AbError::NoPath { name: kind.name });
        }
        if self.kinds().next().is_none() {
            return Err(AbError::NothingUnder);
        }
        self.under = Some(pattern);
        Ok(self)
    }

    /// Returns the skipped and the delayed calls.
    pub(super) fn kinds(&self) -> impl Iterator<Item = CallClass> + '_ {
        let delayed = self.delayed.iter().map(|(kind, _)| *kind);
        self.skipped.iter().copied().chain(delayed)
    }

    /// Returns the skipped calls.
    #[must_use]
    pub fn skipped(&self) -> &[CallClass] {
        &self.skipped
    }

    /// Returns the delayed calls and by how much.
    #[must_use]
    pub fn delayed(&self) -> &[(CallClass, Duration)] {
        &self.delayed
    }

    /// Returns the pattern of the files.
    #[must_use]
    pub fn pattern(&self) -> Option<&[u8]> {
        self.under.as_deref()
    }

    /// Returns the variables.
    #[must_use]
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    /// Returns whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds().next().is_none() && self.environment.is_empty()
    }

    /// Returns whether files may lose data that the program takes to be durable.
    #[must_use]
    pub fn loses(&self) -> bool {
        self.skipped.iter().any(|kind| !kind.is_harmless())
    }

    /// Returns whether a skipped call is about durability.
    #[must_use]
    pub(crate) fn skips_syncs(&self) -> bool {
        self.skipped.iter().any(|kind| SyscallClass::of(kind.name) == SyscallClass::Sync)
    }

    /// Returns whether each call has to be intercepted; otherwise the kernel skips calls by itself.
    pub(super) fn asks(&self) -> bool {
        self.under.is_some() || !self.delayed.is_empty()
    }

    /// Returns the number of a skipped call that is on a descriptor, whose file can be named.
    pub(super) fn names_a_file(kind: CallClass) -> bool {
        ON_A_DESCRIPTOR.contains(&kind.name)
    }
}

/// Returns whether `text` matches `pattern`: `*` stands for any bytes, `?` for one.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // A character for each byte, whatever that is.
    let latin = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
    WildMatch::new(&latin(pattern)).matches(&latin(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_calls_of_which_nought_is_a_true_answer_are_skipped() {
        for name in SKIPPABLE.iter().chain(&HARMLESS).chain(&ON_A_DESCRIPTOR) {
            assert!(CallClass::named(name).is_ok(), "{name}");
        }
        let skip = |name: &str| CallDifference::default().skip(&names(&[name]));
        assert!(matches!(skip("write"), Err(AbError::NotSkippable { name: "write" })));
        assert!(matches!(skip("fsink"), Err(AbError::NoCall(_))));
        assert!(skip("fsync").unwrap().loses() && skip("fsync").unwrap().skips_syncs());
        assert!(!skip("nanosleep").unwrap().loses());
        assert!(skip("flock").unwrap().loses() && !skip("flock").unwrap().skips_syncs());
    }

    #[test]
    fn a_pattern_needs_calls_on_descriptors() {
        let change = CallDifference::default().skip(&names(&["sync"])).unwrap();
        assert!(matches!(change.under(b"/*".to_vec()), Err(AbError::NoPath { name: "sync" })));
        assert!(matches!(
            CallDifference::default().set("A".into(), "b".into()).under(b"/*".to_vec()),
            Err(AbError::NothingUnder)
        ));
        let change = CallDifference::default().skip(&names(&["fsync"])).unwrap();
        assert!(!change.asks() && change.under(b"/*".to_vec()).unwrap().asks());
    }

    #[test]
    fn a_star_stands_for_any_bytes() {
        for (pattern, text, wanted) in [
            ("/home/*", "/home/a/b", true),
            ("/home/*", "/etc/x", false),
            ("*.db", "/x/y.db", true),
            ("*.db", "/x/y.db-wal", false),
            ("*/c?che/*", "/a/cache/b", true),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), wanted, "{pattern} {text}");
        }
        // What makes a backtracking matcher take for ever.
        assert!(!matches(&b"*a".repeat(500), &b"a".repeat(400)));
    }
}
