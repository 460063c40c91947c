//! A report in the formats of other tools.

mod firefox;
mod perfetto;
mod pprof;
mod protobuf;
mod rows;
mod sysprof;

use super::report::TraceReport;
use super::report::account::ShortCallRow;
use super::report::schema::{Slow, Stack, Thread};
use crate::report::names::Frame;

pub use self::firefox::render as firefox;
pub use self::perfetto::render as perfetto;
pub use self::pprof::render as pprof;
pub use self::rows::{csv, folded, json_lines};
pub use self::sysprof::render as sysprof;

/// Returns the frames of a slow call, the outermost first.
fn outermost_first<'a>(report: &'a TraceReport, slow: &Slow) -> impl Iterator<Item = &'a Frame> {
    let stack: Option<&Stack> = slow.stack.and_then(|at| report.stacks.get(at as usize));
    let frames = stack.into_iter().flat_map(|stack| stack.frames.iter().rev());
    frames.filter_map(|at| report.frames.get(*at as usize))
}

/// What stands for the name of a call where the calls were each too short to be recorded.
const SHORT_CALLS: &str = "short calls";

/// Returns which short calls main threads waited in; without a row the rest, of which the report says only how long they took.
fn short_calls(report: &TraceReport) -> Vec<(&Thread, Option<&ShortCallRow>, u64)> {
    let mut all = Vec::new();
    for thread in &report.threads {
        let Some(account) = &thread.account else { continue };
        let mut rest_ns = account.short_calls_ns;
        for row in &account.short_calls {
            all.push((thread, Some(row), row.wall_ns));
            rest_ns = rest_ns.saturating_sub(row.wall_ns);
        }
        if rest_ns > 0 {
            all.push((thread, None, rest_ns));
        }
    }
    all
}

/// Writes a frame with its module, as a line of a flame graph.
fn frame_text(frame: &Frame) -> String {
    match &frame.module {
        Some(module) if !frame.name.starts_with(&**module) => format!("{} ({module})", frame.name),
        _ => frame.name.clone(),
    }
}

#[cfg(test)]
mod tests;
