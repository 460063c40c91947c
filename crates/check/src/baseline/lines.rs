//! The lines of a baseline by their keys: which of them allows a wait.

use std::collections::BTreeMap;

use super::file::AllowedWait;
use super::places::{UserPlaces, glob};
use super::waits::{FoundWait, WaitKey};

/// Lines that are found by their keys, however many there are.
pub(super) struct LineIndex<'a> {
    lines: &'a [AllowedWait],
    by_key: BTreeMap<WaitKey, usize>,
}

impl<'a> LineIndex<'a> {
    pub(super) fn new(lines: &'a [AllowedWait]) -> LineIndex<'a> {
        let mut by_key = BTreeMap::new();
        for (at, line) in lines.iter().enumerate() {
            by_key.entry(line.key()).or_insert(at);
        }
        LineIndex { lines, by_key }
    }

    /// Returns the line that has this key.
    pub(super) fn get(&self, key: &WaitKey) -> Option<&'a AllowedWait> {
        self.by_key.get(key).map(|at| &self.lines[*at])
    }

    /// Returns the place of the line that allows a wait: the one that says the same, else the longest pattern.
    pub(super) fn find(&self, wait: &FoundWait, places: &UserPlaces) -> Option<usize> {
        // No pattern weighs more; the patterns of all other lines need not be compared.
        self.by_key.get(&wait.key).copied().or_else(|| matching(self.lines, wait, places))
    }
}

fn matching(lines: &[AllowedWait], wait: &FoundWait, places: &UserPlaces) -> Option<usize> {
    let key = &wait.key;
    let fits = |line: &AllowedWait| {
        line.phase == key.phase
            && line.call == key.call
            // What was not seen of a wait cannot speak against a line.
            && (line.path == key.path
                || key.path.is_empty()
                || places.matches(&line.path, &wait.target))
            && (line.function == key.function
                || key.function.is_empty()
                || glob(&line.function, &key.function))
    };
    let fitting = lines.iter().enumerate().filter(|(_, line)| fits(line));
    let weight = |line: &AllowedWait| {
        let same = (line.path == key.path, line.function == key.function);
        let literal = |pattern: &str| pattern.chars().filter(|letter| *letter != '*').count();
        (same, literal(&line.path) + literal(&line.function))
    };
    // Of equal ones the first.
    fitting.rev().max_by_key(|(_, line)| weight(line)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = WaitKey> {
        let call = prop_oneof![Just("fsync"), Just("read")];
        let path = prop_oneof![Just(""), Just("~/a"), Just("~/*"), Just("~/a*"), Just("/*")];
        let function = prop_oneof![Just(""), Just("save"), Just("s*"), Just("*")];
        (call, path, function).prop_map(|(call, path, function)| WaitKey {
            phase: "start".to_owned(),
            call: call.to_owned(),
            path: path.to_owned(),
            function: function.to_owned(),
        })
    }

    fn line(key: WaitKey) -> AllowedWait {
        AllowedWait {
            phase: key.phase,
            call: key.call,
            path: key.path,
            function: key.function,
            count: 1,
            least: 0,
            time: 0,
            reason: String::new(),
            line: 0,
        }
    }

    proptest! {
        #[test]
        fn a_line_that_is_found_by_its_key_is_the_one_that_a_comparison_with_all_lines_finds(
            keys in prop::collection::vec(key(), 0..12),
            wait in key(),
        ) {
            let places = UserPlaces::new(Some(b"/home/ana"), |_| None);
            let lines: Vec<AllowedWait> = keys.into_iter().map(line).collect();
            let target = wait.path.replace('~', "/home/ana");
            let wait = FoundWait {
                key: wait,
                target,
                is_sync: true,
                count: 1,
                blocked_ns: 1,
                source: None,
                stack: Vec::new(),
            };
            let found = LineIndex::new(&lines).find(&wait, &places);
            prop_assert_eq!(found, matching(&lines, &wait, &places));
        }
    }
}
