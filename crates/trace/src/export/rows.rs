//! Lines for programs: folded stacks, JSON lines, CSV.

use serde::Serialize;

use super::{SHORT_CALLS, frame_text, outermost_first, short_calls};
use crate::report::TraceReport;
use crate::report::schema::{Thread, TraceMethod};

/// Writes stalls as folded stacks, `program;thread;main;KConfig::sync;fdatasync 134000`, in microseconds, for flame graphs.
///
/// Stalls without a stack stand directly below their thread. Of calls that were each too short to be recorded only the function to
/// blame is known; they end with `short calls`.
#[must_use]
pub fn folded(report: &TraceReport) -> String {
    let clean = |text: &str| text.replace([';', '\n'], ":");
    let of_thread = |thread: &Thread| {
        let name = format!("{} {}", thread.name, thread.id);
        vec![clean(report.program(thread.process)), clean(&name)]
    };
    let mut sums = std::collections::BTreeMap::<String, u64>::new();
    for slow in report.slow.iter().filter(|slow| slow.how == TraceMethod::Stall) {
        let Some(thread) = report.threads.get(slow.thread as usize) else { continue };
        let mut words = of_thread(thread);
        words.extend(outermost_first(report, slow).map(|frame| clean(&frame_text(frame))));
        words.push(clean(report.call_name(slow.call)));
        if slow.is_mostly_elsewhere() {
            words.push("without a processor or stopped".to_owned());
        }
        *sums.entry(words.join(";")).or_default() += slow.wall_ns / 1000;
    }
    for (thread, row, wall_ns) in short_calls(report) {
        let mut words = of_thread(thread);
        let frame = row.and_then(|row| report.frames.get(row.frame? as usize));
        words.extend(frame.map(|frame| clean(&frame_text(frame))));
        words.extend(row.map(|row| clean(report.call_name(row.call))));
        words.push(SHORT_CALLS.to_owned());
        *sums.entry(words.join(";")).or_default() += wall_ns / 1000;
    }
    sums.iter().filter(|(_, us)| **us > 0).map(|(stack, us)| format!("{stack} {us}\n")).collect()
}

#[derive(Serialize)]
struct Event<'a> {
    at_ns: u64,
    wall_ns: u64,
    cpu_ns: Option<u64>,
    queued_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_ns: Option<u64>,
    process: u32,
    program: &'a str,
    thread: u32,
    thread_name: &'a str,
    main: bool,
    call: &'a str,
    arguments: &'a str,
    result: Option<i64>,
    error: Option<&'a str>,
    running: bool,
    how: TraceMethod,
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    blamed: Option<&'a str>,
    stack: Vec<String>,
}

/// Writes each slow call as a JSON object on a line of its own, the innermost frame first.
///
/// # Errors
///
/// Whatever `serde_json` reports; the types here give it no reason.
pub fn json_lines(report: &TraceReport) -> serde_json::Result<String> {
    let mut text = String::new();
    for slow in &report.slow {
        let Some(thread) = report.threads.get(slow.thread as usize) else { continue };
        let stack = slow.stack.and_then(|at| report.stacks.get(at as usize));
        let blamed = stack.and_then(|stack| stack.frames.get(stack.blamed? as usize));
        let target = slow.target.and_then(|at| report.targets.get(at as usize));
        let mut frames: Vec<String> = outermost_first(report, slow).map(frame_text).collect();
        frames.reverse();
        let event = Event {
            at_ns: slow.at_ns,
            wall_ns: slow.wall_ns,
            cpu_ns: slow.cpu_ns,
            queued_ns: slow.queued_ns,
            stopped_ns: slow.stopped_ns,
            process: thread.process,
            program: report.program(thread.process),
            thread: thread.id,
            thread_name: &thread.name,
            main: thread.main,
            call: report.call_name(slow.call),
            arguments: &slow.arguments,
            result: slow.result,
            error: slow.error.as_deref(),
            running: slow.running,
            how: slow.how,
            target: target.map(|target| target.to.as_ref().unwrap_or(&target.name).clone()),
            operation: report.operation_text(slow),
            blamed: blamed.and_then(|at| report.frames.get(*at as usize)).map(|frame| &*frame.name),
            stack: frames,
        };
        text.push_str(&serde_json::to_string(&event)?);
        text.push('\n');
    }
    Ok(text)
}

/// Writes each kind of call as a line of CSV, in nanoseconds.
#[must_use]
pub fn csv(report: &TraceReport) -> String {
    let mut text = "call,class,count,errors,wall_ns,cpu_ns,p50_ns,p95_ns,p99_ns,longest_ns,slow,blocked_ns,queued_ns,idle,idle_ns\n".to_owned();
    let maybe = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    for kind in &report.calls {
        let figures = [
            kind.count.to_string(),
            kind.errors.to_string(),
            kind.wall_ns.to_string(),
            maybe(kind.cpu_ns),
            kind.p50_ns.to_string(),
            kind.p95_ns.to_string(),
            kind.p99_ns.to_string(),
            kind.longest_ns.to_string(),
            kind.slow.to_string(),
            maybe(kind.blocked_ns),
            maybe(kind.queued_ns),
            kind.idle.to_string(),
            kind.idle_ns.to_string(),
        ];
        text.push_str(&format!(
            "{},{},{}\n",
            quoted(&kind.name),
            kind.class.word(),
            figures.join(",")
        ));
    }
    text
}

/// Quotes a field where it needs that; what a spreadsheet would run as a formula becomes text.
fn quoted(field: &str) -> String {
    let field = if field.starts_with(['=', '+', '-', '@']) {
        format!("'{field}")
    } else {
        field.to_owned()
    };
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field
    }
}
