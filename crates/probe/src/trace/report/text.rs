//! A report on a terminal: the verdict, where it waited, what to do, and the calls.

use super::schema::{CallKind, How, Report};
use super::verdict::{frames_of, time};
use crate::report::paint::{Paint, Tone};
use crate::report::paragraph::{capital, wrap};
use crate::report::table::{Align, Cell, Table};

/// How many lines a table has.
const ROWS: usize = 10;
/// How many files are named.
const FILES: usize = 6;

/// Writes a report for a screen of `width` columns.
#[must_use]
pub fn render(report: &Report, width: usize, paint: Paint) -> String {
    let mut text = paint.set(Tone::Strong, wrap(&report.verdict, width, "").trim_end());
    text.push('\n');
    let mut part = |title: &str, body: String| {
        if !body.is_empty() {
            text.push_str(&format!("\n{}\n{body}", paint.set(Tone::Strong, title)));
        }
    };
    part("Where it waited", paths(report, width, paint));
    part("What to do", advice(report, width, paint));
    part("Calls", calls(report, width, paint));
    part("Files and peers", targets(report, width, paint));
    part("Also", notes(report, width));
    text
}

/// Returns how a time in nanoseconds is to be seen: over a frame it matters.
#[must_use]
pub fn tone(report: &Report, ns: u64) -> Tone {
    match ns {
        ns if ns > report.frame_ns => Tone::Bad,
        ns if ns >= report.frame_ns / 2 => Tone::Warn,
        _ => Tone::Plain,
    }
}

fn paths(report: &Report, width: usize, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("code path", Align::Text),
        ("wall", Align::Point),
        ("frames", Align::Point),
        ("count", Align::Point),
        ("longest", Align::Point),
        ("blocked", Align::Point),
    ]);
    let stalls = || report.paths.iter().filter(|path| path.how == How::Stall);
    for path in stalls().take(ROWS) {
        table.row(vec![
            report.path_title(path).into(),
            Cell::toned(Tone::Strong, time(path.wall_ns)),
            frames_of(path.wall_ns, report).into(),
            path.count.to_string().into(),
            Cell::toned(tone(report, path.longest_ns), time(path.longest_ns)),
            path.blocked_ns.map_or(String::new(), time).into(),
        ]);
    }
    if stalls().next().is_none() {
        return String::new();
    }
    let mut text = table.render(width, paint);
    text.push_str(&more(stalls().count(), "code path", paint));
    text
}

/// Says how many rows are not shown.
fn more(all: usize, noun: &str, paint: Paint) -> String {
    match all.saturating_sub(ROWS) {
        0 => String::new(),
        1 => format!("{}\n", paint.set(Tone::Dim, &format!("and 1 {noun} more"))),
        rest => format!("{}\n", paint.set(Tone::Dim, &format!("and {rest} {noun}s more"))),
    }
}

fn advice(report: &Report, width: usize, paint: Paint) -> String {
    let mut text = String::new();
    for (number, pattern) in (1..).zip(&report.advice) {
        text.push_str(&wrap(&pattern.reason, width, &format!("{number:>3}. ")));
        for advice in &pattern.advice {
            let end = if advice.command.is_some() { ":" } else { "" };
            text.push_str(&wrap(&format!("{}{end}", capital(&advice.text)), width, "     "));
            if let Some(command) = &advice.command {
                text.push_str(&format!("       {}\n", paint.set(Tone::Strong, command)));
            }
        }
    }
    text
}

fn calls(report: &Report, width: usize, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("call", Align::Text),
        ("count", Align::Point),
        ("errors", Align::Point),
        ("wall", Align::Point),
        ("p50", Align::Point),
        ("p99", Align::Point),
        ("longest", Align::Point),
        ("idle", Align::Point),
        ("cpu", Align::Point),
    ]);
    for kind in report.calls.iter().take(ROWS) {
        table.row(vec![
            kind.name.clone().into(),
            kind.count.to_string().into(),
            Cell::toned(Tone::Dim, errors(kind)),
            Cell::toned(Tone::Strong, busy(kind)),
            time(kind.p50_ns).into(),
            time(kind.p99_ns).into(),
            time(kind.longest_ns).into(),
            if kind.idle == 0 { Cell::default() } else { time(kind.idle_ns).into() },
            kind.cpu_ns.map_or(String::new(), time).into(),
        ]);
    }
    if report.calls.is_empty() {
        return String::new();
    }
    let mut text = table.render(width, paint);
    text.push_str(&more(report.calls.len(), "call", paint));
    text
}

/// Returns the time of a kind of call that was no idle wait.
pub(super) fn busy_ns(kind: &CallKind) -> u64 {
    kind.wall_ns.saturating_sub(kind.idle_ns)
}

/// Writes the time of a kind of call that was no idle wait, nothing for none.
pub(super) fn busy(kind: &CallKind) -> String {
    if busy_ns(kind) == 0 { String::new() } else { time(busy_ns(kind)) }
}

/// Writes the number of failures, nothing for none.
pub(super) fn errors(kind: &CallKind) -> String {
    if kind.errors == 0 { String::new() } else { kind.errors.to_string() }
}

fn targets(report: &Report, width: usize, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("what", Align::Text),
        ("wall", Align::Point),
        ("count", Align::Point),
        ("on", Align::Text),
    ]);
    let waited = |at: &u32| {
        let target = &report.targets[*at as usize];
        target.wall_ns.saturating_sub(target.idle_ns)
    };
    let shown: Vec<u32> = (0..).take(report.targets.len().min(FILES)).collect();
    for at in shown.iter().filter(|at| waited(at) > 0) {
        let target = &report.targets[*at as usize];
        table.row(vec![
            report.target_name(*at).unwrap_or_default().into(),
            Cell::toned(Tone::Strong, time(waited(at))),
            target.count.to_string().into(),
            Cell::toned(Tone::Dim, report.place(target).unwrap_or_default()),
        ]);
    }
    if shown.iter().all(|at| waited(at) == 0) { String::new() } else { table.render(width, paint) }
}

fn notes(report: &Report, width: usize) -> String {
    report.notes().iter().map(|note| wrap(note, width, "  · ")).collect()
}

impl Report {
    /// Writes what a file is on: `ext4 on /dev/sda2, turning, scheduler bfq`.
    #[must_use]
    pub fn place(&self, target: &super::schema::Target) -> Option<String> {
        let mount = self.mounts.get(usize::try_from(target.mount?).ok()?)?;
        let mut text = mount.kind.clone();
        if mount.source.starts_with('/') {
            text.push_str(&format!(" on {}", mount.source));
        }
        if mount.rotational == Some(true) {
            text.push_str(", turning");
        }
        if let Some(scheduler) = &mount.scheduler {
            text.push_str(&format!(", scheduler {scheduler}"));
        }
        Some(text)
    }

    /// Writes what has to be known beside the figures, a sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let watch = &self.watch;
        let mut notes = Vec::new();
        if self.sums.idle_ns > 0 {
            notes.push(format!(
                "{} were spent waiting for something to do, which counts as no stall",
                time(self.sums.idle_ns)
            ));
        }
        if self.sums.child_ns > 0 {
            notes.push(format!(
                "{} were spent waiting for children that are in this report themselves",
                time(self.sums.child_ns)
            ));
        }
        if self.slow_left_out > 0 {
            notes.push(format!(
                "{} slow calls are in the sums but not kept one by one",
                self.slow_left_out
            ));
        }
        if watch.lost > 0 {
            notes.push(format!("{} events were lost, so sums are too small", watch.lost));
        }
        let mut how = format!("watched by {}: {} calls", watch.backend, watch.calls);
        if watch.threshold_ns > 0 {
            how.push_str(&format!(", slow from {} on", time(watch.threshold_ns)));
        }
        if watch.bias_ns > 0 {
            how.push_str(&format!(
                "; {} (± {}) of each call were the tracer's and are subtracted",
                time(watch.bias_ns),
                time(watch.bias_spread_ns)
            ));
        }
        if watch.backend != "import" {
            notes.push(how);
        }
        notes.extend(watch.notes.iter().cloned());
        notes
    }
}
