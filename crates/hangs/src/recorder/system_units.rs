//! What the units of the system read from disks and wrote to them.
//!
//! The processes of most of them are root's, whose counters nobody else may read. The kernel counts for control groups, too, which everybody
//! may read, as everybody may list the units.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// The slice of the system's units. Those of users, and what they run, are below another one.
const SLICE: &str = "system.slice";
/// The most units that are counted.
const UNITS: usize = 512;
/// Slices are inside one another so often at most.
const DEPTH: usize = 4;
/// The ends of the names of units that have processes of their own.
const ENDINGS: [&str; 5] = [".service", ".scope", ".mount", ".socket", ".swap"];

/// Bytes that were read and written.
pub(super) type Bytes = [u64; 2];

/// Returns what was read and written between two moments.
pub(super) fn difference(later: Bytes, earlier: Bytes) -> Bytes {
    [later[0].saturating_sub(earlier[0]), later[1].saturating_sub(earlier[1])]
}

/// What each unit had read and written at a moment, by its control group.
#[derive(Debug, Default)]
pub(super) struct UnitBytes(HashMap<String, Bytes>);

impl UnitBytes {
    /// Reads them below the root of control groups; of none where the kernel does not count for them. `disks` are the numbers of the disks that
    /// count.
    pub(super) fn read(root: &Path, disks: &BTreeSet<String>) -> UnitBytes {
        let mut units = UnitBytes::default();
        units.add(root, &format!("/{SLICE}"), disks, DEPTH);
        units
    }

    fn add(&mut self, root: &Path, group: &str, disks: &BTreeSet<String>, depth: usize) {
        let dir = root.join(group.trim_start_matches('/'));
        let controllers = fs::read_to_string(dir.join("cgroup.subtree_control"));
        let counts = controllers.is_ok_and(|text| text.split_whitespace().any(|name| name == "io"));
        let entries = counts.then(|| fs::read_dir(&dir)).and_then(Result::ok);
        for entry in entries.into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let below = format!("{group}/{name}");
            if name.ends_with(".slice") && depth > 0 {
                self.add(root, &below, disks, depth - 1);
            } else if ENDINGS.iter().any(|ending| name.ends_with(ending)) && self.0.len() < UNITS {
                let counters = fs::read_to_string(entry.path().join("io.stat"));
                self.0.extend(counters.ok().map(|text| (below, of_group(&text, disks))));
            }
        }
    }

    /// Returns what each unit has read and written until a later moment, if it has, with its name. `left_out` are control groups of others.
    pub(super) fn used_until<'a>(
        &'a self,
        now: &'a UnitBytes,
        left_out: &'a BTreeSet<String>,
    ) -> impl Iterator<Item = (String, Bytes)> + 'a {
        let is_left_out = |unit: &str| {
            left_out.iter().any(|group| {
                group
                    .strip_prefix(unit)
                    .is_some_and(|below| below.is_empty() || below.starts_with('/'))
            })
        };
        let used = move |(unit, later): (&String, &Bytes)| {
            // One that is new has done all of it since then.
            let earlier = self.0.get(unit).copied().unwrap_or_default();
            let [read, written] = difference(*later, earlier);
            let name = unit.rsplit('/').next().unwrap_or_default();
            let is_told = read + written > 0 && !is_left_out(unit);
            is_told.then(|| (name.to_owned(), [read, written]))
        };
        now.0.iter().filter_map(used)
    }
}

/// Returns what a control group has read and written, from the text of its `io.stat`.
fn of_group(text: &str, disks: &BTreeSet<String>) -> Bytes {
    let mut sum = Bytes::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        if !words.next().is_some_and(|number| disks.contains(number)) {
            continue;
        }
        for word in words {
            let (sum, number) = match word.split_once('=') {
                Some(("rbytes", number)) => (&mut sum[0], number),
                Some(("wbytes", number)) => (&mut sum[1], number),
                _ => continue,
            };
            *sum = sum.saturating_add(number.parse().unwrap_or(0));
        }
    }
    sum
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of tests need not be durable")]
mod tests {
    use super::*;

    /// Writes the files of control groups like those of a system.
    fn groups(root: &Path, groups: &[(&str, &str)]) {
        for (group, counters) in groups {
            let dir = root.join(group);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("io.stat"), counters).unwrap();
            for above in dir.ancestors().skip(1).take_while(|above| *above != root) {
                fs::write(above.join("cgroup.subtree_control"), "cpu io memory\n").unwrap();
            }
        }
    }

    #[test]
    fn units_of_the_system_are_told_and_those_of_users_are_not() {
        let root = tempfile::tempdir().unwrap();
        let disks = BTreeSet::from(["8:0".to_owned(), "259:0".to_owned()]);
        let line = |read: u64, written: u64| {
            format!(
                "8:0 rbytes={read} wbytes={written} rios=1 wios=1 dbytes=0 dios=0\n\
                 253:0 rbytes=999 wbytes=999 rios=1 wios=1 dbytes=0 dios=0\n\
                 259:0 rbytes=1 wbytes=2\n7:0 \n"
            )
        };
        let known = |packagekit: u64, others: u64| {
            groups(
                root.path(),
                &[
                    ("system.slice/packagekit.service", &line(packagekit, 5 * packagekit)),
                    ("system.slice/cron.service", &line(7, 7)),
                    ("system.slice/system-getty.slice/getty@tty1.service", &line(others, 0)),
                    ("system.slice/own.service", &line(others, 0)),
                    ("user.slice/user-1000.slice/session-2.scope", &line(others, others)),
                ],
            );
        };
        known(100, 1);
        let before = UnitBytes::read(root.path(), &disks);
        known(400, 50);
        groups(root.path(), &[("system.slice/apt-daily.service", &line(30, 40))]);
        let now = UnitBytes::read(root.path(), &disks);
        let own = BTreeSet::from(["/system.slice/own.service/part".to_owned(), String::new()]);
        let mut used: Vec<(String, Bytes)> = before.used_until(&now, &own).collect();
        used.sort();
        let used: Vec<(&str, Bytes)> = used.iter().map(|(unit, bytes)| (&**unit, *bytes)).collect();
        assert_eq!(
            used,
            [
                ("apt-daily.service", [31, 42]),
                ("getty@tty1.service", [49, 0]),
                ("packagekit.service", [300, 1500]),
            ]
        );
    }

    #[test]
    fn where_the_kernel_counts_for_no_control_groups_nothing_is_told() {
        let root = tempfile::tempdir().unwrap();
        let disks = BTreeSet::from(["8:0".to_owned()]);
        groups(root.path(), &[("system.slice/cron.service", "8:0 rbytes=7 wbytes=7\n")]);
        fs::write(root.path().join("system.slice/cgroup.subtree_control"), "memory pids\n")
            .unwrap();
        assert!(UnitBytes::read(root.path(), &disks).0.is_empty());
        assert!(UnitBytes::read(&root.path().join("none"), &disks).0.is_empty());
    }
}
