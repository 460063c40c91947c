//! Replays the bodies of the fuzz targets for traces over the committed corpus, and over small changes to it.

#[path = "../../../fuzz/src/trace.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod bodies;

use crate::replay::replay;

/// What texts are made of.
const MARKS: &[u8] = b"<>\"\\)(=\n 0{}";

#[test]
fn any_log_is_read_or_refused() {
    assert!(replay("trace_log", 120, MARKS, bodies::log).unwrap() > 0);
}

#[test]
fn any_report_is_read_or_refused() {
    assert!(replay("trace_report", 200, MARKS, bodies::report).unwrap() > 0);
}
