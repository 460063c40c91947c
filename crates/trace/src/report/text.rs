//! A report on a terminal: the verdict, the code paths, the recommendations, and the calls.

use std::collections::BTreeMap;

use super::account::{MemoryRow, TimeAccount};
use super::schema::{CallKind, Slow, TargetKind, TraceMethod, TraceReport};
use super::verdict::{frames_of, time};
use report::figure::Quantity;
use report::paint::{Paint, Tone};
use report::paragraph::{capital, wrap};
use report::table::{Align, TableCell, TextTable};

/// How many lines a table has.
const ROWS: usize = 10;
/// How many waits are followed.
const CHAINS: usize = 3;
/// How many files are named.
const FILES: usize = 6;

/// Writes a report for a screen of `width` columns.
#[must_use]
pub fn render(report: &TraceReport, width: usize, paint: Paint) -> String {
    let mut text = paint.set(Tone::Strong, wrap(&report.verdict, width, "").trim_end());
    text.push('\n');
    let mut part = |title: &str, body: String| {
        if !body.is_empty() {
            text.push_str(&format!("\n{}\n{body}", paint.set(Tone::Strong, title)));
        }
    };
    part("What the main thread's time went to", time_parts(report, width, paint));
    part("Where it waited", paths(report, width, paint));
    part(
        "Where it waited in calls too short to be recorded, estimated",
        short_calls(report, width, paint),
    );
    part("What it waited for", chains(report, width, paint));
    part("Operations of io_uring", operations(report, width, paint));
    part("What to do", advice(report, width, paint));
    part("Calls", calls(report, width, paint));
    part("Files and peers", targets(report, width, paint));
    part("Also", notes(report, width));
    text
}

/// Returns how a time in nanoseconds is to be seen: over a frame it matters.
#[must_use]
pub fn tone(report: &TraceReport, ns: u64) -> Tone {
    match ns {
        ns if ns > report.frame_ns => Tone::Bad,
        ns if ns >= report.frame_ns / 2 => Tone::Warn,
        _ => Tone::Plain,
    }
}

/// Returns the parts of the main thread's time, with the function or the file that most of it went to.
pub(crate) fn account_rows(report: &TraceReport, account: &TimeAccount) -> Vec<[String; 3]> {
    let mut parts = account.parts.named().to_vec();
    // What is not explained is said even if it is nothing.
    parts.retain(|(name, ns)| *ns > 0 || *name == "not explained");
    parts.sort_by_cached_key(|(_, ns)| std::cmp::Reverse(*ns));
    let frame = |at: u32| report.frames.get(usize::try_from(at).ok()?).map(|f| f.name.clone());
    let short = |part: &str| {
        let row = report.short_calls_of(part, &account.parts, &account.short_calls)?;
        Some(format!("short calls of {}", report.short_calls_title(row)))
    };
    let mostly = |name: &str| match name {
        "on a processor" => account.functions.first().and_then(|share| frame(share.frame)),
        "waiting for pages from a disk" => account.file_of_most_pages().map(str::to_owned),
        "blocked in calls" | "waiting for locks" => short(name),
        "waiting for io_uring" => {
            let waits = report.slow.iter().filter(|slow| Some(slow.thread) == report.main_thread);
            let waits = waits.filter(|slow| slow.how == TraceMethod::Stall);
            let mut sums: BTreeMap<(&str, Option<u32>), u64> = BTreeMap::new();
            for wait in waits {
                let operation = wait.operation.and_then(|at| usize::try_from(at).ok());
                let Some(operation) = operation.and_then(|at| report.operations.get(at)) else {
                    continue;
                };
                let sum = sums.entry((&operation.name, operation.target)).or_default();
                *sum = sum.saturating_add(wait.wall_ns);
            }
            let longest = sums.into_iter().max_by_key(|(_, sum)| *sum);
            let most = longest.filter(|(_, sum)| sum.saturating_mul(2) >= account.parts.ring_ns);
            most.map(|((name, target), _)| report.operation_title(name, target))
                .or_else(|| short(name))
        }
        "reclaiming memory" => {
            let of_reclaim = account.memory.iter().filter(|row| row.work != "swap-in");
            let row = of_reclaim.max_by_key(|row| row.wall_ns)?;
            frame(row.frame?).map(|frame| format!("in {frame}"))
        }
        "swapping in" => {
            let row = account.memory.iter().find(|row| row.work == "swap-in")?;
            Some(swap_text(row, row.frame.and_then(frame)))
        }
        _ => None,
    };
    let row =
        |(name, ns): (&str, u64)| [name.to_owned(), time(ns), mostly(name).unwrap_or_default()];
    parts.into_iter().map(row).collect()
}

/// Says from where a thread read its memory back, and in which function.
fn swap_text(row: &MemoryRow, function: Option<String>) -> String {
    let from = row.swap.as_ref().map(|swap| format!("from {swap}"));
    let by = function.map(|function| format!("in {function}"));
    from.into_iter().chain(by).collect::<Vec<String>>().join(" ")
}

/// Writes the account of the main thread's time, the largest part first, and the functions that ran.
fn time_parts(report: &TraceReport, width: usize, paint: Paint) -> String {
    let Some(account) = report.main().and_then(|main| main.account.as_ref()) else {
        return String::new();
    };
    let mut table =
        TextTable::new(&[("part", Align::Text), ("wall", Align::Point), ("mostly", Align::Text)]);
    for [name, wall, mostly] in account_rows(report, account) {
        table.row(vec![name.into(), TableCell::toned(Tone::Strong, wall), mostly.into()]);
    }
    table.render(width, paint)
}

fn paths(report: &TraceReport, width: usize, paint: Paint) -> String {
    let mut table = TextTable::new(&[
        ("code path", Align::Text),
        ("wall", Align::Point),
        ("frames", Align::Point),
        ("count", Align::Point),
        ("longest", Align::Point),
        ("blocked", Align::Point),
    ]);
    let stalls = || report.paths.iter().filter(|path| path.how == TraceMethod::Stall);
    for path in stalls().take(ROWS) {
        table.row(vec![
            format!("{}{}", report.path_title(path), report.path_remark(path)).into(),
            TableCell::toned(Tone::Strong, time(path.wall_ns)),
            frames_of(path.wall_ns, report).into(),
            path.count.to_string().into(),
            TableCell::toned(tone(report, path.longest_ns), time(path.longest_ns)),
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

/// Writes what the main thread's short calls were blocked in, as far as it is half a frame or more.
fn short_calls(report: &TraceReport, width: usize, paint: Paint) -> String {
    let account = report.main().and_then(|main| main.account.as_ref());
    let rows = account.map_or(&[][..], |account| &account.short_calls);
    let mut table = TextTable::new(&[
        ("code path", Align::Text),
        ("blocked", Align::Point),
        ("frames", Align::Point),
        ("count", Align::Point),
    ]);
    let mut long = rows.iter().filter(|row| row.wall_ns >= report.frame_ns / 2).peekable();
    if long.peek().is_none() {
        return String::new();
    }
    for row in long {
        table.row(vec![
            report.short_calls_title(row).into(),
            TableCell::toned(tone(report, row.wall_ns), time(row.wall_ns)),
            frames_of(row.wall_ns, report).into(),
            row.count.to_string().into(),
        ]);
    }
    table.render(width, paint)
}

/// Says how many rows are not shown.
fn more(all: usize, noun: &str, paint: Paint) -> String {
    more_than(ROWS, all, noun, paint)
}

fn more_than(shown: usize, all: usize, noun: &str, paint: Paint) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        1 => format!("{}\n", paint.set(Tone::Dim, &format!("and 1 {noun} more"))),
        rest => format!("{}\n", paint.set(Tone::Dim, &format!("and {rest} {noun}s more"))),
    }
}

/// Writes the longest waits that were followed to other threads, a sentence a hop.
fn chains(report: &TraceReport, width: usize, paint: Paint) -> String {
    let mut text = String::new();
    for (number, chain) in (1..).zip(report.chains.iter().take(CHAINS)) {
        for (hop, sentence) in chain.sentences.iter().enumerate() {
            let mark = if hop == 0 { format!("{number:>3}. ") } else { "     -> ".to_owned() };
            text.push_str(&wrap(&capital_of_first(hop, sentence), width, &mark));
        }
        if chain.has_losses {
            text.push_str(&wrap("some wake-ups of that time were lost", width, "     "));
        }
    }
    if text.is_empty() {
        return peer_waited_for(report).map_or(text, |found| wrap(&found, width, "  · "));
    }
    text + &more_than(CHAINS, report.chains.len(), "wait", paint)
}

/// Says who the main thread waited for longest, where waits were not followed to other programs: what `/proc` told of the call.
fn peer_waited_for(report: &TraceReport) -> Option<String> {
    if !matches!(&*report.watch.backend, "seccomp" | "ptrace" | "peek") {
        return None;
    }
    let main = report.main_thread?;
    let of_others = [TargetKind::Socket, TargetKind::Child, TargetKind::Lock];
    let (slow, target) = report
        .slow
        .iter()
        .filter(|slow| slow.thread == main && slow.how != TraceMethod::Idle)
        .filter(|slow| slow.wall_ns > report.frame_ns)
        .filter_map(|slow| Some((slow, slow.target?)))
        .filter(|(_, target)| {
            let known = report.targets.get(*target as usize);
            known.is_some_and(|known| of_others.contains(&known.kind))
        })
        .max_by_key(|(slow, _)| slow.wall_ns)?;
    Some(format!(
        "The main thread waited {} in {} for {}; as root, with --backend bpf, that is followed to what it waited for itself",
        time(slow.wall_ns),
        report.call_name(slow.call),
        report.target_name(target)?
    ))
}

/// Begins the first sentence of a chain with a capital letter; names keep theirs.
fn capital_of_first(hop: usize, sentence: &str) -> String {
    if hop == 0 { capital(sentence) } else { sentence.to_owned() }
}

/// Writes the waits of the main thread that operations of `io_uring` ended, and the operations by kind and file.
fn operations(report: &TraceReport, width: usize, paint: Paint) -> String {
    if report.operation_sums.is_empty() {
        return String::new();
    }
    let of_main = report.slow.iter().filter(|slow| Some(slow.thread) == report.main_thread);
    let mut waits: Vec<&Slow> =
        of_main.filter(|slow| slow.how == TraceMethod::Stall && slow.operation.is_some()).collect();
    waits.sort_by_cached_key(|slow| std::cmp::Reverse(slow.wall_ns));
    let mut text = String::new();
    for slow in waits.iter().take(CHAINS) {
        let Some(operation) = report.operation_text(slow) else { continue };
        let call = report.call_name(slow.call);
        let waited = time(slow.wall_ns);
        let sentence = format!("The main thread waited {waited} in {call} for {operation}");
        text.push_str(&wrap(&sentence, width, "  · "));
    }
    text.push_str(&more_than(CHAINS, waits.len(), "wait", paint));
    let mut table = TextTable::new(&[
        ("operation", Align::Text),
        ("wall", Align::Point),
        ("count", Align::Point),
        ("errors", Align::Point),
        ("longest", Align::Point),
        ("bytes", Align::Point),
        ("of", Align::Text),
    ]);
    for sum in report.operation_sums.iter().take(FILES) {
        let errors = if sum.errors == 0 { String::new() } else { sum.errors.to_string() };
        table.row(vec![
            sum.name.clone().into(),
            TableCell::toned(Tone::Strong, time(sum.wall_ns)),
            sum.count.to_string().into(),
            TableCell::toned(Tone::Dim, errors),
            time(sum.longest_ns).into(),
            sum.bytes.map_or(String::new(), bytes).into(),
            sum.target.and_then(|at| report.target_name(at)).unwrap_or_default().into(),
        ]);
    }
    text.push_str(&table.render(width, paint));
    text + &more_than(FILES, report.operation_sums.len(), "kind of operation", paint)
}

/// Writes a number of bytes.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(super) fn bytes(count: u64) -> String {
    Quantity::Size.show(count as f64)
}

fn advice(report: &TraceReport, width: usize, paint: Paint) -> String {
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

fn calls(report: &TraceReport, width: usize, paint: Paint) -> String {
    let mut table = TextTable::new(&[
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
            TableCell::toned(Tone::Dim, errors(kind)),
            TableCell::toned(Tone::Strong, busy(kind)),
            time(kind.p50_ns).into(),
            time(kind.p99_ns).into(),
            time(kind.longest_ns).into(),
            if kind.idle == 0 { TableCell::default() } else { time(kind.idle_ns).into() },
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

fn targets(report: &TraceReport, width: usize, paint: Paint) -> String {
    let mut table = TextTable::new(&[
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
            TableCell::toned(Tone::Strong, time(waited(at))),
            target.count.to_string().into(),
            TableCell::toned(Tone::Dim, report.place(target).unwrap_or_default()),
        ]);
    }
    if shown.iter().all(|at| waited(at) == 0) { String::new() } else { table.render(width, paint) }
}

fn notes(report: &TraceReport, width: usize) -> String {
    report.notes().iter().map(|note| wrap(note, width, "  · ")).collect()
}

impl TraceReport {
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
        if watch.stolen_ns > 0 {
            notes.push(format!(
                "the host of this virtual machine kept processors for itself for {} in all: what a thread lost by that is not explained",
                time(watch.stolen_ns)
            ));
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
        if let Some(account) = self.main().and_then(|main| main.account.as_ref()) {
            notes.extend(account.unseen.iter().map(|unseen| format!("not seen: {unseen}")));
        }
        notes
    }
}
