//! OpenMetrics: counts of hangs, the steps of main loops, and the pressure on the machine under node_exporter's names.
//!
//! A label has the name of a program or of a cause, never a path.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use hangs::model::{HangCause, STEP_BOUNDS_NS, StepHistogram};
use hangs::store::StoredHistory;
use report::text::{Charset, visible};
use store::disk::Disk;

/// What is served.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The most programs with labels of their own; those that come later are counted as `(other)`.
const MOST_PROGRAMS: usize = 200;

/// Counts that only grow: what the store drops, or a person erases, is not taken from them.
#[derive(Debug, Default)]
pub struct HangCounters {
    /// The cause and the length under which a hang was counted, by its number and the begin of its process.
    counted: BTreeMap<(u64, u64), (HangCause, u64)>,
    periods: BTreeSet<(u64, u64)>,
    programs: BTreeSet<String>,
    hangs: BTreeMap<(String, HangCause), (u64, u64)>,
    watched: BTreeMap<String, (u64, StepHistogram)>,
    lost: u64,
    /// Whether all of the store could be read the last time.
    is_whole: bool,
}

impl HangCounters {
    /// Notes that the store could not be read at all; what was counted stays.
    pub fn note_unread(&mut self) {
        self.is_whole = false;
    }

    /// Counts what a store holds and was not counted yet.
    pub fn add(&mut self, stored: &StoredHistory) {
        self.is_whole = stored.damage().is_none();
        for hang in stored.hangs.values() {
            let key = (hang.number, hang.process_began_ns);
            let known = self.counted.get(&key).copied();
            // A hang that goes on may find another cause; it stays one hang of the first.
            let (cause, known_ns) = known.unwrap_or((hang.cause, 0));
            self.counted.insert(key, (cause, hang.length_ns.max(known_ns)));
            let program = self.label(&hang.program);
            let (count, length_ns) = self.hangs.entry((program, cause)).or_default();
            *count += u64::from(known.is_none());
            *length_ns = length_ns.saturating_add(hang.length_ns.saturating_sub(known_ns));
        }
        let periods: BTreeSet<(u64, u64)> =
            stored.periods.iter().map(|period| (period.from_ns, period.to_ns)).collect();
        for period in &stored.periods {
            if self.periods.contains(&(period.from_ns, period.to_ns)) {
                continue;
            }
            self.lost += u64::from(period.lost);
            for program in &period.programs {
                let name = self.label(&program.program);
                let (watched_ns, steps) = self.watched.entry(name).or_default();
                *watched_ns = watched_ns.saturating_add(program.watched_ns);
                steps.merge(&program.steps);
            }
        }
        if self.is_whole {
            // What cannot be read now may be readable the next time, and is not counted a second time then.
            self.periods = periods;
            let is_stored = |number: &u64, began_ns: &u64| {
                stored.hangs.get(number).is_some_and(|hang| hang.process_began_ns == *began_ns)
            };
            self.counted.retain(|(number, began_ns), _| is_stored(number, began_ns));
        } else {
            self.periods.extend(periods);
        }
    }

    /// Returns the label of a program, in which nothing is left that a terminal obeys.
    fn label(&mut self, program: &str) -> String {
        let program = &*visible(program, Charset::Unicode);
        if self.programs.len() < MOST_PROGRAMS {
            self.programs.insert(program.to_owned());
        }
        if self.programs.contains(program) { program.to_owned() } else { "(other)".to_owned() }
    }

    /// Returns the text that is served, with the pressure below `proc`.
    #[must_use]
    pub fn render(&self, disk: &dyn Disk, proc: &Path) -> String {
        let mut out = String::new();
        write_family(&mut out, "unjank_hangs", "counter", "Hangs of 100 ms and more.");
        for ((program, cause), (count, _)) in &self.hangs {
            let (program, cause) = (escape(program), cause.word());
            let labels = format!("program=\"{program}\",cause=\"{cause}\"");
            write_sample(&mut out, "unjank_hangs_total", &labels, &count.to_string());
        }
        write_family(&mut out, "unjank_hang_seconds", "counter", "For how long programs hung.");
        for ((program, cause), (_, length_ns)) in &self.hangs {
            let (program, cause) = (escape(program), cause.word());
            let labels = format!("program=\"{program}\",cause=\"{cause}\"");
            write_sample(&mut out, "unjank_hang_seconds_total", &labels, &seconds(*length_ns));
        }
        let help = "For how long programs were followed; of several processes added.";
        write_family(&mut out, "unjank_watched_seconds", "counter", help);
        for (program, (watched_ns, _)) in &self.watched {
            let labels = format!("program=\"{}\"", escape(program));
            write_sample(&mut out, "unjank_watched_seconds_total", &labels, &seconds(*watched_ns));
        }
        let help = "Steps of main loops that were longer than a frame of 16.7 ms.";
        write_family(&mut out, "unjank_step_seconds", "histogram", help);
        for (program, (_, steps)) in &self.watched {
            let program = escape(program);
            let mut count = 0_u64;
            for (at, class) in steps.0.iter().enumerate() {
                count = count.saturating_add(*class);
                let bound =
                    STEP_BOUNDS_NS.get(at).map_or("+Inf".to_owned(), |bound| seconds(*bound));
                let labels = format!("program=\"{program}\",le=\"{bound}\"");
                write_sample(&mut out, "unjank_step_seconds_bucket", &labels, &count.to_string());
            }
        }
        let help = "Hangs that were seen and could not be stored.";
        write_family(&mut out, "unjank_hangs_lost", "counter", help);
        write_sample(&mut out, "unjank_hangs_lost_total", "", &self.lost.to_string());
        let help = "1 if all records could be read now; 0 if the counts leave some out.";
        write_family(&mut out, "unjank_store_whole", "gauge", help);
        write_sample(&mut out, "unjank_store_whole", "", if self.is_whole { "1" } else { "0" });
        write_pressure(&mut out, disk, proc);
        out.push_str("# EOF\n");
        out
    }
}

fn write_family(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing into a text does not fail.
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if name.ends_with("_seconds") {
        let _ = writeln!(out, "# UNIT {name} seconds");
    }
    let _ = writeln!(out, "# HELP {name} {help}");
}

fn write_sample(out: &mut String, name: &str, labels: &str, value: &str) {
    let _ = match labels {
        "" => writeln!(out, "{name} {value}"),
        _ => writeln!(out, "{name}{{{labels}}} {value}"),
    };
}

fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Writes the totals of PSI, as far as the kernel has them.
fn write_pressure(out: &mut String, disk: &dyn Disk, proc: &Path) {
    for (file, name) in [("cpu", "cpu"), ("io", "io"), ("memory", "memory"), ("irq", "irq")] {
        let Ok(bytes) = disk.read(&proc.join("pressure").join(file)) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        for (line, kind, help) in [
            ("some ", "waiting", "For how long some thread waited for it."),
            ("full ", "stalled", "For how long all threads with something to do waited for it."),
        ] {
            // No thread runs while all wait for a processor: the kernel's line is there, and is zero.
            if (file, kind) == ("cpu", "stalled") {
                continue;
            }
            let total = text.lines().find_map(|text| text.strip_prefix(line)?.split_once("total="));
            let Some(total) = total.and_then(|(_, total)| total.trim().parse::<u64>().ok()) else {
                continue;
            };
            let family = format!("node_pressure_{name}_{kind}_seconds");
            write_family(out, &family, "counter", help);
            let value = seconds(total.saturating_mul(1000));
            write_sample(out, &format!("{family}_total"), "", &value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hangs::model::Hang;

    fn stored(numbers: &[(u64, u64)]) -> StoredHistory {
        let mut stored = StoredHistory::default();
        for (number, length_ns) in numbers {
            let hang = Hang {
                number: *number,
                started_ns: *number,
                length_ns: *length_ns,
                uncertain_ns: 0,
                goes_on: false,
                process: 1,
                process_began_ns: 0,
                program: "a\"b\\c".to_owned(),
                unit: String::new(),
                cause: HangCause::Sync,
                parts: trace::report::account::TimeParts::default(),
                calls: Vec::new(),
                frames: Vec::new(),
                blamed: None,
                pressure: None,
                unseen: hangs::model::UnseenParts::default(),
                chain: None,
                disk_use: None,
                kernel_functions: Vec::new(),
            };
            stored.hangs.insert(*number, hang);
        }
        stored
    }

    #[test]
    fn counts_only_grow_and_a_longer_state_of_a_hang_adds_its_difference() {
        let disk = store::disk::real();
        let mut counters = HangCounters::default();
        let labels = "{program=\"a\\\"b\\\\c\",cause=\"sync\"}";
        let mut render = |numbers: &[(u64, u64)]| {
            counters.add(&stored(numbers));
            let text = counters.render(&*disk, Path::new("/nonexistent"));
            let value = |name: &str| {
                let line =
                    text.lines().find_map(|line| line.strip_prefix(&format!("{name}{labels} ")));
                line.unwrap().to_owned()
            };
            (value("unjank_hangs_total"), value("unjank_hang_seconds_total"))
        };
        let second = 1_000_000_000;
        let expect =
            |count: &str, seconds: &str| (count.to_owned(), format!("{seconds}.000000000"));
        assert_eq!(render(&[(1, second), (2, second)]), expect("2", "2"));
        assert_eq!(render(&[(1, second), (2, 4 * second)]), expect("2", "5"));
        assert_eq!(render(&[(2, 4 * second)]), expect("2", "5"), "the oldest was dropped");
        assert_eq!(render(&[(3, second)]), expect("3", "6"));
    }

    #[test]
    fn what_cannot_be_read_for_a_while_is_counted_once_and_said() {
        let mut counters = HangCounters::default();
        let mut render = |numbers: &[(u64, u64)], unreadable_files: u64| {
            counters.add(&StoredHistory { unreadable_files, ..stored(numbers) });
            counters.render(&*store::disk::real(), Path::new("/nonexistent"))
        };
        let all = [(1, 1_000_000_000), (2, 1_000_000_000)];
        assert!(render(&all, 0).contains("\nunjank_store_whole 1\n"));
        let part = render(&all[1..], 1);
        assert!(part.contains("\nunjank_store_whole 0\n") && part.contains("} 2\n"), "{part}");
        let again = render(&all, 0);
        assert!(again.contains("cause=\"sync\"} 2\n"), "{again}");
        counters.note_unread();
        let text = counters.render(&*store::disk::real(), Path::new("/nonexistent"));
        assert!(text.contains("\nunjank_store_whole 0\n"), "{text}");
    }

    #[test]
    fn a_hang_that_finds_another_cause_stays_one_hang_of_the_first() {
        let mut counters = HangCounters::default();
        let mut history = stored(&[(1, 1_000_000_000)]);
        counters.add(&history);
        for hang in history.hangs.values_mut() {
            (hang.cause, hang.length_ns) = (HangCause::Lock, 3_000_000_000);
            // It may be found to have begun later.
            hang.started_ns += 7;
        }
        counters.add(&history);
        let text = counters.render(&*store::disk::real(), Path::new("/nonexistent"));
        assert!(text.contains("cause=\"sync\"} 3.000000000\n"), "{text}");
        assert!(!text.contains("cause=\"lock\""), "{text}");
    }
}
