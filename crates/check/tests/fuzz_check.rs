//! Replays the bodies of the fuzz targets over the committed corpus, and over small changes to it.

#[path = "../../../fuzz/src/check.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod bodies;

use crate::replay::replay;

/// What texts are made of.
const MARKS: &[u8] = b"<>\"\\)(=\n 0{}";

#[test]
fn any_baseline_is_read_or_refused() {
    assert!(replay("check_baseline", 300, MARKS, bodies::baseline).unwrap() > 0);
}

#[test]
fn any_report_is_judged() {
    assert!(replay("check_report", 100, MARKS, bodies::report).unwrap() > 0);
}

#[test]
fn the_corpus_has_a_report_of_which_a_baseline_is_made() {
    use check::baseline::{BaselineRules, UserPlaces, update};
    let report = std::fs::read(crate::replay::corpus("check_report").join("every_trap.json"));
    let report = trace::report::data::read(&report.unwrap()).unwrap();
    let made = update(&[(None, report)], None, &UserPlaces::default(), BaselineRules::default());
    assert!(!made.unwrap().baseline.waits.is_empty());
}
