//! A report against itself, and against one in which something was mended.

use super::*;
use crate::example::{mended, provenance, report};
use ::report::paint::Paint;

#[test]
fn what_changed_most_is_named_first() {
    let comparison = compare(&report(), &mended());
    assert_eq!(
        comparison.verdict,
        "The main thread waits less: 12 frames missed before, 4 frames after; 224 ms and 90.5 ms in slow calls. fdatasync by KRecentDocument::add(QUrl const&) is gone: it took 134 ms."
    );
    let first = &comparison.calls[0];
    assert_eq!((&*first.name, first.before.count, first.after.count), ("fdatasync", 2, 1));
    let screen = text(&comparison, 80, Paint::Off);
    assert!(screen.contains("↓ gone") && screen.contains("↓ 1/4.3"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    let html = page(&comparison, &provenance());
    assert!(html.contains("arrow-head") && !html.contains("<script"));
}

#[test]
fn a_report_equals_itself() {
    let same = compare(&report(), &report());
    assert!(same.verdict.starts_with("The main thread waits as long as before: 12 frames"));
    let differs = |change: &&PathDifference| {
        direction(change.before.wall_ns, change.after.wall_ns) != Trend::Same
    };
    assert_eq!(same.calls.iter().chain(&same.paths).filter(differs).count(), 0);
    assert_eq!(same.doubts.len(), 1);
}

#[test]
fn what_makes_two_hard_to_compare_is_said() {
    let mut other = report();
    other.watch.backend = "bpf".to_owned();
    other.command = vec!["other".to_owned()];
    let doubts = compare(&report(), &other).doubts.join("\n");
    assert!(doubts.contains("seccomp and bpf") && doubts.contains("and other"), "{doubts}");
}

#[test]
fn a_fifth_is_chance_and_so_is_a_tenth_of_a_millisecond() {
    let ms = 1_000_000;
    assert_eq!(direction(10 * ms, 9 * ms), Trend::Same);
    assert_eq!(direction(10 * ms, 7 * ms), Trend::Faster);
    assert_eq!(direction(10 * ms, 14 * ms), Trend::Slower);
    assert_eq!(direction(0, 50_000), Trend::Same);
    assert_eq!(direction(0, ms), Trend::Slower);
}
