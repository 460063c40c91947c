//! The counts as text for Prometheus and what else reads OpenMetrics.

use std::fmt::Write;

use hangs::model::STEP_BOUNDS_NS;

use crate::counters::{MetricFamily, MetricLabels, MetricSeries};

/// What is served.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the text that is served.
#[must_use]
pub fn render(families: &[MetricFamily]) -> String {
    let mut out = String::new();
    for MetricFamily { name, help, series } in families {
        match series {
            MetricSeries::Count(_, values) => {
                write_head(&mut out, name, "counter", help);
                for (labels, count) in values {
                    write_sample(&mut out, &format!("{name}_total"), labels, &count.to_string());
                }
            }
            MetricSeries::Time(_, values) => {
                write_head(&mut out, name, "counter", help);
                for (labels, time) in values {
                    write_sample(&mut out, &format!("{name}_total"), labels, &seconds(*time));
                }
            }
            MetricSeries::Steps(values) => {
                write_head(&mut out, name, "histogram", help);
                for (labels, steps) in values {
                    let mut count = 0_u64;
                    for (at, class) in steps.0.iter().enumerate() {
                        count = count.saturating_add(*class);
                        let bound = STEP_BOUNDS_NS.get(at);
                        let bound = bound.map_or("+Inf".to_owned(), |bound| seconds(*bound));
                        let labels = [&labels[..], &[("le", bound)]].concat();
                        let name = format!("{name}_bucket");
                        write_sample(&mut out, &name, &labels, &count.to_string());
                    }
                }
            }
            MetricSeries::Flag(value) => {
                write_head(&mut out, name, "gauge", help);
                write_sample(&mut out, name, &MetricLabels::new(), if *value { "1" } else { "0" });
            }
        }
    }
    out.push_str("# EOF\n");
    out
}

fn write_head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing into a text does not fail.
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if name.ends_with("_seconds") {
        let _ = writeln!(out, "# UNIT {name} seconds");
    }
    let _ = writeln!(out, "# HELP {name} {help}");
}

fn write_sample(out: &mut String, name: &str, labels: &MetricLabels, value: &str) {
    let labels = labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escape(value)));
    let labels: Vec<String> = labels.collect();
    let _ = match &labels[..] {
        [] => writeln!(out, "{name} {value}"),
        labels => writeln!(out, "{name}{{{}}} {value}", labels.join(",")),
    };
}

fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hangs::model::{Hang, HangCause};
    use hangs::store::StoredHistory;

    use super::*;
    use crate::counters::HangCounters;

    fn text_of(counters: &HangCounters) -> String {
        render(&counters.families(&*store::disk::real(), Path::new("/nonexistent")))
    }

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
        let mut counters = HangCounters::default();
        let labels = "{program=\"a\\\"b\\\\c\",cause=\"sync\"}";
        let mut render = |numbers: &[(u64, u64)]| {
            counters.add(&stored(numbers));
            let text = text_of(&counters);
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
            text_of(&counters)
        };
        let all = [(1, 1_000_000_000), (2, 1_000_000_000)];
        assert!(render(&all, 0).contains("\nunjank_store_whole 1\n"));
        let part = render(&all[1..], 1);
        assert!(part.contains("\nunjank_store_whole 0\n") && part.contains("} 2\n"), "{part}");
        let again = render(&all, 0);
        assert!(again.contains("cause=\"sync\"} 2\n"), "{again}");
        counters.note_unread();
        let text = text_of(&counters);
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
        let text = text_of(&counters);
        assert!(text.contains("cause=\"sync\"} 3.000000000\n"), "{text}");
        assert!(!text.contains("cause=\"lock\""), "{text}");
    }
}
