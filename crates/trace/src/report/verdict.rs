//! The finding in a sentence or two.

use std::collections::BTreeMap;

use super::account::{ShortCallRow, TimeAccount, TimeBlock, TimeParts};
use super::schema::{CodePath, Slow, TargetKind, Thread, TraceMethod, TraceReport};
use super::spelling::tilde;
use report::figure::{Quantity, frame_count};
use report::grade::feeling;
use report::paragraph::counted;

/// Writes a time of the report.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub fn time(ns: u64) -> String {
    Quantity::Time.show(ns as f64)
}

/// Writes a time in the report's frames, without the word.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub fn frames_of(ns: u64, report: &TraceReport) -> String {
    frame_count(ns as f64, std::time::Duration::from_nanos(report.frame_ns))
}

impl TraceReport {
    /// Writes when the recording began, in UTC.
    #[must_use]
    pub fn began(&self) -> String {
        let ms = i64::try_from(self.began_ms).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(ms).map_or_else(
            |_| "an unknown time".to_owned(),
            |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        )
    }

    /// Returns the name of a call by its index; none is called `?`.
    #[must_use]
    pub fn call_name(&self, at: u32) -> &str {
        item(&self.calls, at).map_or("?", |call| &call.name)
    }

    /// Returns the thread whose waits the user feels.
    #[must_use]
    pub fn main(&self) -> Option<&Thread> {
        item(&self.threads, self.main_thread?)
    }

    /// Returns the name of the program that a process ran: the last component of its path.
    #[must_use]
    pub fn program(&self, process: u32) -> &str {
        let found = self.processes.iter().find(|known| known.id == process);
        let path = found.map_or("", |process| &process.executable);
        let name = path.rsplit('/').next().unwrap_or_default();
        let command = || self.command.first().and_then(|word| word.rsplit('/').next());
        if name.is_empty() { command().unwrap_or("the program") } else { name }
    }

    /// Writes what a target is called on a screen.
    #[must_use]
    pub fn target_name(&self, at: u32) -> Option<String> {
        let target = item(&self.targets, at)?;
        let home = self.home.as_deref();
        let mut name = tilde(&target.name, home);
        if let Some(to) = &target.to {
            name.push_str(" -> ");
            name.push_str(&tilde(to, home));
        }
        if let Some(request) = &target.request {
            name = format!("{request} of {name}");
        }
        Some(name)
    }

    /// Writes the frame to blame of a path, or that there is none.
    #[must_use]
    pub fn blamed(&self, path: &CodePath) -> Option<&str> {
        Some(&item(&self.frames, path.frame?)?.name)
    }

    /// Writes a path without what it worked on: `fdatasync by KConfig::sync()`.
    #[must_use]
    pub fn path_title(&self, path: &CodePath) -> String {
        let call = self.call_name(path.call);
        self.blamed(path).map_or_else(|| call.to_owned(), |frame| format!("{call} by {frame}"))
    }

    /// Says of a path whose calls are not to blame for most of its time that they are not; of others nothing.
    #[must_use]
    pub fn path_remark(&self, path: &CodePath) -> &'static str {
        let is_elsewhere = path.elsewhere_ns > path.wall_ns / 2;
        if is_elsewhere { ", ready or stopped" } else { "" }
    }

    /// Writes what a path is: `fdatasync of ~/x by KConfig::sync`, with so many targets as there are.
    #[must_use]
    pub fn path_name(&self, path: &CodePath) -> String {
        let mut name = self.call_name(path.call).to_owned();
        let first = path.targets.first().and_then(|share| self.target_name(share.index));
        match (first, path.targets.len()) {
            (Some(target), 1) => name.push_str(&format!(" of {target}")),
            (Some(target), more) => name.push_str(&format!(" of {target} and {} more", more - 1)),
            (None, _) => (),
        }
        if let Some(frame) = self.blamed(path) {
            name.push_str(&format!(" by {frame}"));
        }
        name
    }
}

impl TraceReport {
    /// Returns the short calls to which at least half of a part of a time went, by the part's name.
    #[must_use]
    pub fn short_calls_of<'a>(
        &self,
        part: &str,
        parts: &TimeParts,
        rows: &'a [ShortCallRow],
    ) -> Option<&'a ShortCallRow> {
        let (_, ns) = parts.named().into_iter().find(|(name, _)| *name == part)?;
        let is_socket = |row: &ShortCallRow| {
            let target = row.target.and_then(|at| item(&self.targets, at));
            target.is_some_and(|target| target.kind == TargetKind::Socket)
        };
        let part_of = |row: &ShortCallRow| match self.call_name(row.call) {
            "io_uring_enter" => "waiting for io_uring",
            name if name.starts_with("futex") && !is_socket(row) => "waiting for locks",
            _ => "blocked in calls",
        };
        let row = rows.iter().find(|row| part_of(row) == part)?;
        (row.wall_ns.saturating_mul(2) >= ns).then_some(row)
    }

    /// Writes what short calls were without what they worked on: `pread64 by read_all`.
    #[must_use]
    pub fn short_calls_title(&self, row: &ShortCallRow) -> String {
        let call = self.call_name(row.call);
        let frame = row.frame.and_then(|at| item(&self.frames, at));
        frame.map_or_else(|| call.to_owned(), |frame| format!("{call} by {}", frame.name))
    }

    /// Writes what short calls were: `pread64 of ~/x by read_all`.
    #[must_use]
    pub fn short_calls_path(&self, row: &ShortCallRow) -> String {
        let mut name = self.call_name(row.call).to_owned();
        if let Some(target) = row.target.and_then(|at| self.target_name(at)) {
            name.push_str(&format!(" of {target}"));
            if row.more_targets > 0 {
                name.push_str(&format!(" and {} more", row.more_targets));
            }
        }
        if let Some(frame) = row.frame.and_then(|at| item(&self.frames, at)) {
            name.push_str(&format!(" by {}", frame.name));
        }
        name
    }

    /// Writes how many short calls there were, and what they were: `about 1312 short calls: pread64 of ~/x by read_all`.
    #[must_use]
    pub fn short_calls_name(&self, row: &ShortCallRow) -> String {
        let count = usize::try_from(row.count).unwrap_or(usize::MAX);
        format!("about {}: {}", counted(count, "short call"), self.short_calls_path(row))
    }
}

fn item<T>(all: &[T], at: u32) -> Option<&T> {
    all.get(usize::try_from(at).ok()?)
}

impl Thread {
    /// Returns the frames that the thread missed, whatever its time went to.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.account.as_ref().map_or(0, |account| account.frames).max(self.stalls.frames)
    }

    /// Returns how long the longest time was in which the thread could not go on, or did other work.
    #[must_use]
    pub fn longest_ns(&self) -> u64 {
        let longest = self.account.as_ref().and_then(TimeAccount::longest);
        longest.map_or(0, |block| block.wall_ns).max(self.stalls.longest_ns)
    }
}

/// Writes what a block went to, the parts that matter, the largest first: `0.48 s on a processor, most of it in spin`.
pub fn block_text(report: &TraceReport, block: &TimeBlock) -> String {
    let mut parts: Vec<(&str, u64)> = block.parts.named().to_vec();
    parts.retain(|(_, ns)| *ns > 0 && ns.saturating_mul(12) >= block.wall_ns);
    parts.sort_by_cached_key(|(_, ns)| std::cmp::Reverse(*ns));
    let written = parts.into_iter().map(|(name, ns)| {
        let mut text = format!("{} {name}", time(ns));
        let frame = block.frame.and_then(|at| item(&report.frames, at));
        if let Some(frame) = frame
            && ns == block.parts.processor_ns
            && block.frame_ns.saturating_mul(3) >= ns
        {
            text.push_str(&format!(" (mostly in {})", frame.name));
        }
        if let Some(row) = report.short_calls_of(name, &block.parts, &block.short_calls) {
            text.push_str(&format!(" (mostly {})", report.short_calls_name(row)));
        }
        text
    });
    written.collect::<Vec<String>>().join(", ")
}

/// Says how much of the main thread's time is not explained, and if it is much, why.
fn unexplained(report: &TraceReport, main: &Thread) -> String {
    let Some(account) = &main.account else {
        return " What it did between its calls was not recorded.".to_owned();
    };
    let mut text = format!(
        " Not explained: {} of its {}",
        time(account.parts.unknown_ns),
        time(account.wall_ns)
    );
    let unknown_ns = account.parts.unknown_ns;
    // Of all processors together: less than half of what is not explained is no reason for it.
    let stolen_ns = report.watch.stolen_ns;
    let stolen = (stolen_ns > 0 && stolen_ns >= unknown_ns / 2).then(|| {
        let time = time(stolen_ns);
        format!("{time} for which the host of this virtual machine kept processors for itself")
    });
    let mut reasons = account.unseen.iter().chain(&stolen);
    if let Some(first) = reasons.next()
        && unknown_ns > account.wall_ns / 20
    {
        text.push_str(&format!("; not seen: {first}"));
        match reasons.count() {
            0 => {}
            more => text.push_str(&format!(", and {more} more in the notes")),
        }
    }
    text.push('.');
    if let Some(elsewhere) = account.elsewhere() {
        text.push_str(&format!(" {elsewhere}."));
    }
    text
}

/// Returns whether most of a block is not the doing of the calls that were made in it: a program that is stopped in a call,
/// or waits for a processor in it, does not wait for what the call asks for.
fn is_mostly_outside_calls(block: &TimeBlock) -> bool {
    let parts = &block.parts;
    let in_calls = parts.call_ns.saturating_add(parts.lock_ns).saturating_add(parts.ring_ns);
    in_calls < block.wall_ns / 2
}

/// Formats the verdict of a report.
pub(super) fn verdict(report: &TraceReport) -> String {
    let Some(main) = report.main() else {
        return "Nothing was seen: no process made a call that was watched.".to_owned();
    };
    let program = report.program(main.process);
    let stalls = &main.stalls;
    let mut sentence = match stalls.missed {
        0 if report.sums.slow == 0 => format!(
            "{program} never waited {} in one call; {} took {} in all.",
            time(report.watch.threshold_ns),
            counted(usize::try_from(report.sums.count).unwrap_or(usize::MAX), "call"),
            time(report.sums.wall_ns)
        ),
        0 => format!(
            "The main thread of {program} never waited a whole frame in a call; its longest stall took {} ({} frames).",
            time(stalls.longest_ns),
            frames_of(stalls.longest_ns, report)
        ),
        missed => {
            let times = match missed {
                1 => "once".to_owned(),
                2 => "twice".to_owned(),
                missed => format!("{missed} times"),
            };
            let frames = usize::try_from(stalls.frames).unwrap_or(usize::MAX);
            #[expect(clippy::cast_precision_loss, reason = "compared with a tenth of a second")]
            let feeling = feeling(stalls.longest_ns as f64);
            let feeling = feeling.map_or(String::new(), |word| format!(", {word}"));
            let mut sentence = format!(
                "The main thread of {program} stood still for more than a frame {times}, {} in all; the longest took {}{feeling}.",
                counted(frames, "frame"),
                time(stalls.longest_ns)
            );
            if let Some((what, count, wall_ns)) = worst(report) {
                let count = if count > 1 { format!("{count} x ") } else { String::new() };
                sentence.push_str(&format!(" Most of it: {count}{what}, {}.", time(wall_ns)));
            }
            sentence
        }
    };
    if let Some(block) = main.account.as_ref().and_then(TimeAccount::longest)
        && block.wall_ns > report.frame_ns
        && (block.wall_ns > stalls.longest_ns.saturating_add(report.frame_ns / 2)
            || is_mostly_outside_calls(block))
    {
        let largest = block.parts.named().into_iter().max_by_key(|(_, ns)| *ns);
        let is_busy = largest.is_some_and(|(_, ns)| ns == block.parts.processor_ns);
        sentence.push_str(&format!(
            " It was {} for {} ({} frames) at one stretch: {}.",
            if is_busy { "busy" } else { "held up" },
            time(block.wall_ns),
            frames_of(block.wall_ns, report),
            block_text(report, block)
        ));
    }
    sentence.push_str(&unexplained(report, main));
    if report.watch.lost > 0 || report.slow_left_out > 0 && report.slow.is_empty() {
        sentence.push_str(&format!(" {} events were lost.", report.watch.lost));
    }
    sentence
}

/// Returns the thread that is known to have held the lock of these waits most often, and how often; `None` if they were for no lock, or no
/// holder is known.
fn most_frequent_holder(report: &TraceReport, targets: &[u32]) -> Option<(u32, u64)> {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for holder in targets.iter().filter_map(|at| item(&report.targets, *at)?.owner) {
        *counts.entry(holder).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count)
}

/// Returns what the main thread waited for longest: the call with the frame to blame, how often, and its time.
fn worst(report: &TraceReport) -> Option<(String, u64, u64)> {
    type Sum = (u64, u64, Vec<u32>);
    let mut sums: BTreeMap<(u32, Option<&str>), Sum> = BTreeMap::new();
    let of_main = report.slow.iter().filter(|slow| Some(slow.thread) == report.main_thread);
    let waits = |slow: &&Slow| slow.how == TraceMethod::Stall && !slow.is_mostly_elsewhere();
    for slow in of_main.filter(waits) {
        let stack = slow.stack.and_then(|at| item(&report.stacks, at));
        let frame = stack.and_then(|stack| item(&stack.frames, stack.blamed?));
        let frame = frame.and_then(|at| Some(&*item(&report.frames, *at)?.name));
        // Where no stacks were recorded the notes say why. One that is known may have nothing to blame.
        let innermost = stack.and_then(|stack| item(&report.frames, *stack.frames.first()?));
        let is_known = innermost.is_some_and(|frame| frame.object.is_some());
        let frame = frame.filter(|_| is_known).or(match is_known || report.stacks.is_empty() {
            true => None,
            false => Some("a function that is not known"),
        });
        let (count, wall_ns, targets) = sums.entry((slow.call, frame)).or_default();
        (*count, *wall_ns) = (*count + 1, wall_ns.saturating_add(slow.wall_ns));
        targets.extend(slow.target);
    }
    let ((call, frame), (count, wall_ns, targets)) =
        sums.into_iter().max_by_key(|(_, sum)| sum.1)?;
    let mut what = report.call_name(call).to_owned();
    if let Some((holder, known)) =
        most_frequent_holder(report, &targets).filter(|(_, known)| *known < count)
    {
        // Who held it at one time did not hold it at all of them.
        what.push_str(&format!(" of a lock ({known} of {count} times held by thread {holder})"));
    } else if let Some(target) = targets.first().and_then(|at| report.target_name(*at)) {
        what.push_str(&format!(" of {target}"));
        let mut targets = targets;
        targets.sort_unstable();
        targets.dedup();
        if targets.len() > 1 {
            what.push_str(&format!(" and {} more", targets.len() - 1));
        }
    }
    if let Some(frame) = frame {
        what.push_str(&format!(" by {frame}"));
    }
    Some((what, count, wall_ns))
}
