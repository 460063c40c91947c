//! From a recording to a report: sums by call, target, thread and code path, with names.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, UNIX_EPOCH};

use super::answers::with_answers;
use super::names::Names;
use super::paths;
use super::schema::{
    CallKind, ErrnoCount, MarkRow, Module, MountRow, ProcessRow, RecordingMethod, SCHEMA, Slow,
    Stack, Sums, Target, TargetCall, TargetKind, Thread, TraceMethod, TraceReport,
};
use super::spelling::{command_line, harmless, spell};
use super::stalls::stalls;
use super::symbolized::{SymbolizedRecording, add, index, item, kind_of};
use super::{advice, arguments, followed, ring_waits, short_calls, timing, verdict};
use crate::call::{CallEnd, StackId, TargetId, TracedCall};
use crate::mark::RecordedMark;
use crate::recording::{self, Exit, Recording, StackEnd, Total};
use crate::syscall::{self, SyscallClass};
use report::figure::duration;
use report::provenance::Provenance;

/// The options of a report.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// The budget of one step, in nanoseconds.
    pub frame_ns: u64,
    /// The most slow calls to keep one by one: three quarters of them the slowest, the others spread over the rest.
    pub slow_calls: usize,
    /// The most targets to keep, beside those of the slow calls that are kept.
    pub targets: usize,
    /// The user's home directory.
    pub home: Option<Vec<u8>>,
}

impl Default for ReportOptions {
    fn default() -> ReportOptions {
        ReportOptions { frame_ns: 16_667_000, slow_calls: 2000, targets: 400, home: None }
    }
}

/// Makes a report of a recording.
#[must_use]
pub fn build(
    recording: &Recording,
    names: &dyn Names,
    provenance: Provenance,
    options: &ReportOptions,
) -> TraceReport {
    let recording = &*with_answers(recording, names);
    let builder = SymbolizedRecording::new(recording, names);
    let calls = call_kinds(&builder);
    let call_index: HashMap<u32, u32> =
        calls.iter().enumerate().map(|(at, kind)| (kind.number, index(at))).collect();
    let mut threads = threads(&builder, options.frame_ns);
    let thread_index: HashMap<u32, u32> =
        threads.iter().enumerate().map(|(at, thread)| (thread.id, index(at))).collect();

    let kept = kept(&recording.slow, options.slow_calls);
    let mut paths = paths::paths(&builder, &call_index);
    let named: Vec<u32> = paths
        .iter()
        .flat_map(|path| path.targets.iter().map(|share| share.index))
        .chain(short_calls::targets(&threads))
        .collect();
    let (targets, target_index) = targets(&builder, &call_index, named, &kept, options.targets);
    short_calls::renumber(&mut threads, &call_index, &target_index);
    let operations = ring_waits::operations(&builder, &target_index);
    let mut stack_index: HashMap<StackId, u32> = HashMap::new();
    let mut stacks = Vec::new();
    let mut stack_of = |id: StackId| -> Option<u32> {
        let named = builder.stacks.get(&id)?;
        Some(*stack_index.entry(id).or_insert_with(|| {
            stacks.push(Stack {
                frames: named.frames.clone(),
                blamed: named.blamed.map(index),
                end: match named.end {
                    StackEnd::Whole => "whole",
                    StackEnd::Cut => "cut",
                    StackEnd::Lost => "lost",
                }
                .to_owned(),
            });
            index(stacks.len() - 1)
        }))
    };
    // Until here the shares of a path had the recording's own indexes.
    for path in &mut paths {
        path.targets.retain_mut(|share| {
            target_index.get(&TargetId(share.index)).map(|at| share.index = *at).is_some()
        });
        path.stacks.retain_mut(|share| {
            stack_of(StackId(share.index)).map(|at| share.index = at).is_some()
        });
    }
    let mut targets = targets;
    for target in &mut targets {
        target.mount = target.mount.filter(|at| item(&recording.mounts, *at).is_some());
        target.owner_stack = target.owner_stack.and_then(|id| stack_of(StackId(id)));
    }
    let slow: Vec<Slow> = kept
        .iter()
        .filter_map(|at| {
            let (call, how) = (&recording.slow[*at], builder.how[*at]);
            let target = call.target.and_then(|target| item(&recording.targets, target.0));
            Some(Slow {
                call: *call_index.get(&call.number)?,
                thread: *thread_index.get(&call.thread)?,
                at_ns: call.start_ns,
                wall_ns: call.wall_ns,
                cpu_ns: call.cpu_ns,
                queued_ns: builder.queued_ns(call),
                stopped_ns: builder.stopped_ns(call).filter(|stopped| *stopped > 0),
                result: match call.outcome {
                    CallEnd::Returned(value) => Some(value),
                    _ => None,
                },
                error: match call.outcome {
                    CallEnd::Failed(errno) => Some(syscall::error_name(errno)),
                    _ => None,
                },
                running: call.outcome == CallEnd::Running,
                how,
                arguments: names.arguments(call).map_or_else(
                    || arguments::text(builder.call_name(call.number), call, target),
                    |text| harmless(&text).unwrap_or(text),
                ),
                target: call.target.and_then(|target| target_index.get(&target).copied()),
                stack: call.stack.and_then(&mut stack_of),
                operation: operations.that_ended(call.thread, call.start_ns),
            })
        })
        .collect();

    let (chains, wakeups) = (followed::chains(&builder), followed::wakeups(&builder));
    let main_thread = main_thread(&threads, recording);
    let sum = |sum: &dyn Fn(&CallKind) -> u64| calls.iter().map(sum).fold(0, u64::saturating_add);
    let timed = |how: TraceMethod| {
        let calls = builder.slow().filter(|(_, other)| *other == how);
        calls.map(|(call, _)| call.wall_ns).fold(0, u64::saturating_add)
    };
    let mut report = TraceReport {
        schema: SCHEMA.to_owned(),
        verdict: String::new(),
        command: recording.command.iter().map(|word| spell(word)).collect(),
        home: options.home.as_deref().map(spell),
        began_ms: recording
            .began
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        began_monotonic_ns: recording.began_monotonic_ns,
        length_ns: recording.length_ns,
        frame_ns: options.frame_ns.max(1),
        watch: watch(recording, builder.unnamed_rests_ns()),
        sums: Sums {
            count: sum(&|kind| kind.count),
            errors: sum(&|kind| kind.errors),
            slow: sum(&|kind| kind.slow),
            wall_ns: sum(&|kind| kind.wall_ns),
            idle_ns: timed(TraceMethod::Idle),
            child_ns: timed(TraceMethod::Child),
        },
        main_thread,
        processes: recording.processes.values().map(process).collect(),
        threads,
        calls,
        targets_left_out: (recording.targets.len() - targets.len()) as u64,
        targets,
        mounts: recording.mounts.iter().map(mount).collect(),
        paths,
        stacks,
        frames: builder.frames,
        modules: recording.modules.iter().map(module).collect(),
        slow_left_out: (recording.slow.len() - slow.len()) as u64 + recording.slow_dropped,
        slow,
        marks: marks(recording),
        chains,
        wakeups,
        operations: operations.rows,
        operations_left_out: operations.left_out,
        operation_sums: operations.sums,
        advice: Vec::new(),
        provenance,
    };
    report.verdict = verdict::verdict(&report);
    report.advice = advice::patterns(&report, names);
    report
}

fn marks(recording: &Recording) -> Vec<MarkRow> {
    let row = |mark: &RecordedMark| MarkRow {
        name: mark.name.clone(),
        process: mark.process,
        at_ns: mark.at_ns,
    };
    let mut marks: Vec<MarkRow> = recording.marks.iter().map(row).collect();
    marks.sort_by_cached_key(|mark| mark.at_ns);
    marks
}

fn watch(recording: &Recording, unnamed_rests_ns: u64) -> RecordingMethod {
    let mut notes: Vec<String> =
        recording.notes.iter().map(|note| spell(note.as_bytes())).collect();
    if unnamed_rests_ns > 0 {
        notes.push(format!(
            "{} of waits for the display server count as rest although no function in them has a name: waits for its answers may be among them.",
            duration(Duration::from_nanos(unnamed_rests_ns))
        ));
    }
    RecordingMethod {
        backend: recording.backend.name().to_owned(),
        calls: recording.watched.clone(),
        threshold_ns: recording.threshold_ns,
        bias_ns: recording.bias.subtracted_ns,
        bias_spread_ns: recording.bias.spread_ns,
        notes,
        lost: recording.lost,
        not_counted: recording.not_counted,
        foreign_calls: recording.foreign_calls,
        leaves_out_stacks: recording.leaves_out_stacks,
        stacks_left_out: recording.stacks_left_out,
        stolen_ns: recording.stolen_ns,
    }
}

/// Chooses the slow calls that are kept: the slowest, and some of the others; in the order of time.
fn kept(slow: &[TracedCall], most: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..slow.len()).collect();
    if order.len() > most {
        order.sort_by_cached_key(|at| std::cmp::Reverse(slow[*at].wall_ns));
        let rest = order.split_off(most - most / 4);
        order.extend(rest.iter().step_by(rest.len().div_ceil((most / 4).max(1))).copied());
    }
    order.sort_by_cached_key(|at| slow[*at].start_ns);
    order
}

fn call_kinds(builder: &SymbolizedRecording<'_>) -> Vec<CallKind> {
    let recording = builder.recording;
    let mut totals: BTreeMap<u32, Total> = BTreeMap::new();
    for ((_, number), total) in &recording.totals {
        totals.entry(*number).or_default().merge(total);
    }
    // A backend may keep a call whose sums it did not tell.
    let short = recording.timelines.values().flat_map(|timeline| &timeline.short_calls);
    for call in recording.slow.iter().chain(short.map(|sample| &sample.call)) {
        totals.entry(call.number).or_default();
    }
    let mut errors: BTreeMap<u32, Vec<ErrnoCount>> = BTreeMap::new();
    for ((number, errno), count) in &recording.errors {
        let errno = ErrnoCount { name: syscall::error_name(*errno), count: *count };
        errors.entry(*number).or_default().push(errno);
    }
    let mut kinds: Vec<CallKind> = totals
        .into_iter()
        .map(|(number, total)| {
            let name = builder.call_name(number).to_owned();
            let at = |share| total.histogram.percentile(share).unwrap_or(0).min(total.longest_ns);
            let mut errnos = errors.remove(&number).unwrap_or_default();
            errnos.sort_by_cached_key(|errno| std::cmp::Reverse(errno.count));
            let mut kind = CallKind {
                class: SyscallClass::of(&name),
                name,
                number,
                count: total.count,
                errors: total.errors,
                errnos,
                wall_ns: total.wall_ns,
                cpu_ns: total.cpu_ns,
                p50_ns: at(0.5),
                p95_ns: at(0.95),
                p99_ns: at(0.99),
                longest_ns: total.longest_ns,
                slow: 0,
                queued_ns: None,
                blocked_ns: None,
                idle: 0,
                idle_ns: 0,
            };
            for (call, how) in builder.slow().filter(|(call, _)| call.number == number) {
                kind.slow += 1;
                add(&mut kind.queued_ns, call.queued_ns);
                add(&mut kind.blocked_ns, builder.blocked_ns(call));
                if how != TraceMethod::Stall {
                    kind.idle += 1;
                    kind.idle_ns = kind.idle_ns.saturating_add(call.wall_ns);
                }
            }
            kind
        })
        .collect();
    kinds.sort_by_key(|kind| {
        std::cmp::Reverse((kind.wall_ns.saturating_sub(kind.idle_ns), kind.wall_ns, kind.count))
    });
    kinds
}

fn threads(builder: &SymbolizedRecording<'_>, frame_ns: u64) -> Vec<Thread> {
    let recording = builder.recording;
    let mut slow: HashMap<u32, Vec<(&TracedCall, TraceMethod)>> = HashMap::new();
    for (call, how) in builder.slow() {
        slow.entry(call.thread).or_default().push((call, how));
    }
    let mut sums: HashMap<u32, (u64, u64)> = HashMap::new();
    for ((thread, _), total) in &recording.totals {
        let sum = sums.entry(*thread).or_default();
        *sum = (sum.0 + total.count, sum.1.saturating_add(total.wall_ns));
    }
    // A thread may be known by its calls alone.
    let mut seen: BTreeMap<u32, recording::Thread> = recording.threads.clone();
    for call in &recording.slow {
        seen.entry(call.thread).or_insert_with(|| recording::Thread {
            id: call.thread,
            process: call.process,
            start_ns: call.start_ns,
            ..recording::Thread::default()
        });
    }
    let mut threads: Vec<Thread> = seen
        .into_values()
        .map(|thread| {
            let mut calls = slow.remove(&thread.id).unwrap_or_default();
            calls.sort_by_cached_key(|(call, _)| call.start_ns);
            let (count, wall_ns) = sums.get(&thread.id).copied().unwrap_or_default();
            let is_main = thread.id == thread.process;
            let account = is_main
                .then(|| timing::account(builder, &thread, &calls, count, frame_ns))
                .flatten();
            Thread {
                id: thread.id,
                process: thread.process,
                name: spell(&thread.name),
                main: is_main,
                start_ns: thread.start_ns,
                end_ns: thread.end_ns,
                count,
                wall_ns,
                stalls: stalls(&calls, frame_ns),
                account,
            }
        })
        .collect();
    threads.sort_by_key(|thread| {
        (!thread.main, std::cmp::Reverse((thread.stalls.wall_ns, thread.wall_ns)))
    });
    threads
}

/// Chooses the thread whose waits the user feels: the main thread of the command, or of what the command mostly waited for.
///
/// A shell that waits for a program stands for that program. A process that the command started and did not wait for is
/// another program, unless the command has ended long before and the process has a window.
fn main_thread(threads: &[Thread], recording: &Recording) -> Option<u32> {
    let main_of =
        |process: u32| threads.iter().position(|thread| thread.main && thread.process == process);
    let is_known = |parent: u32| recording.processes.contains_key(&parent);
    let life = |process: &recording::RecordedProcess| {
        process.end_ns.unwrap_or(recording.length_ns).saturating_sub(process.start_ns)
    };
    let mut process = recording
        .processes
        .values()
        .filter(|process| !process.parent.is_some_and(is_known))
        .min_by_key(|process| process.start_ns)?;
    let windowed = recording.processes.values().filter(|other| other.has_window);
    if let Some(other) = windowed.max_by_key(|other| life(other))
        && !process.has_window
        && life(process) < life(other) / 2
    {
        process = other;
    }
    // Each step goes to a child, so that it ends.
    for _ in 0..recording.processes.len() {
        let Some(thread) = main_of(process.id).map(|at| &threads[at]) else { break };
        let waits = thread.stalls.child_ns;
        let children = recording
            .processes
            .values()
            .filter(|child| child.parent == Some(process.id) && main_of(child.id).is_some())
            // Who is waited for ends first.
            .filter(|child| match (child.end_ns, process.end_ns) {
                (Some(end), Some(of_process)) => end <= of_process,
                (None, Some(_)) => false,
                (_, None) => true,
            });
        match children.max_by_key(|child| life(child)) {
            Some(child) if waits > life(process) / 2 && life(child) > life(process) / 2 => {
                process = child;
            }
            _ => break,
        }
    }
    main_of(process.id).or_else(|| threads.iter().position(|thread| thread.main)).map(index)
}

/// Chooses and sums the targets, and says where each of the recording's went.
fn targets(
    builder: &SymbolizedRecording<'_>,
    call_index: &HashMap<u32, u32>,
    named: Vec<u32>,
    kept: &[usize],
    most: usize,
) -> (Vec<Target>, HashMap<TargetId, u32>) {
    let recording = builder.recording;
    let mut all: Vec<Target> = recording.targets.iter().map(target).collect();
    for ((id, number), total) in &recording.target_totals {
        let Some(target) = usize::try_from(id.0).ok().and_then(|at| all.get_mut(at)) else {
            continue;
        };
        target.count += total.count;
        target.errors += total.errors;
        target.wall_ns = target.wall_ns.saturating_add(total.wall_ns);
        target.longest_ns = target.longest_ns.max(total.longest_ns);
        if let Some(call) = call_index.get(number) {
            target.calls.push(TargetCall {
                call: *call,
                count: total.count,
                errors: total.errors,
                wall_ns: total.wall_ns,
            });
        }
    }
    for (call, _) in builder.slow().filter(|(_, how)| *how != TraceMethod::Stall) {
        let target = call.target.and_then(|id| all.get_mut(usize::try_from(id.0).ok()?));
        if let Some(target) = target {
            target.idle_ns = target.idle_ns.saturating_add(call.wall_ns);
        }
    }
    let time = |at: &usize| all[*at].wall_ns.saturating_sub(all[*at].idle_ns);
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse((time(at), all[*at].count)));
    let mut wanted = vec![false; all.len()];
    let named =
        named.into_iter().chain(ring_waits::targets(builder).into_iter().map(|target| target.0));
    let named = named.chain(kept.iter().filter_map(|at| Some(recording.slow[*at].target?.0)));
    let named: Vec<usize> = named.filter_map(|at| usize::try_from(at).ok()).collect();
    for at in order.iter().take(most).chain(&named) {
        if let Some(wanted) = wanted.get_mut(*at) {
            *wanted = true;
        }
    }
    order.retain(|at| wanted[*at]);
    let places = order.iter().enumerate();
    let index: HashMap<TargetId, u32> =
        places.map(|(place, at)| (TargetId(index(*at)), index(place))).collect();
    let mut slots: Vec<Option<Target>> = all.into_iter().map(Some).collect();
    let mut chosen: Vec<Target> = order.iter().filter_map(|at| slots[*at].take()).collect();
    for target in &mut chosen {
        target.calls.sort_by_cached_key(|call| std::cmp::Reverse(call.wall_ns));
    }
    (chosen, index)
}

fn target(target: &recording::Target) -> Target {
    let mut shown = Target {
        kind: TargetKind::Other,
        name: String::new(),
        to: None,
        request: None,
        mount: None,
        owner: None,
        owner_stack: None,
        count: 0,
        errors: 0,
        wall_ns: 0,
        longest_ns: 0,
        idle_ns: 0,
        calls: Vec::new(),
    };
    shown.kind = kind_of(target);
    match target {
        recording::Target::File { path, mount } => {
            (shown.name, shown.mount) = (spell(path), *mount);
        }
        recording::Target::Files { from, to, mount } => {
            (shown.name, shown.to, shown.mount) = (spell(from), Some(spell(to)), *mount);
        }
        recording::Target::Socket { peer, request } => {
            shown.name = spell(peer.as_bytes());
            shown.request = request.as_ref().map(|request| spell(request.as_bytes()));
        }
        recording::Target::Display { peer, others } => {
            shown.name = spell(peer.as_bytes());
            match others {
                0 => {}
                1 => shown.name.push_str(" and another descriptor"),
                others => shown.name.push_str(&format!(" and {others} other descriptors")),
            }
        }
        recording::Target::Lock { owner, owner_stack } => {
            shown.name = owner
                .map_or("a lock".to_owned(), |owner| format!("a lock that thread {owner} holds"));
            (shown.owner, shown.owner_stack) = (*owner, owner_stack.map(|stack| stack.0));
        }
        recording::Target::Child(id, program) => {
            shown.name = format!("{} [{id}]", spell(program)).trim_start().to_owned();
        }
        recording::Target::Other(what) => shown.name = spell(what.as_bytes()),
    }
    shown
}

fn process(process: &recording::RecordedProcess) -> ProcessRow {
    ProcessRow {
        id: process.id,
        parent: process.parent,
        executable: spell(&process.executable),
        command: command_line(&process.command),
        start_ns: process.start_ns,
        end_ns: process.end_ns,
        exit: process.exit.map(|exit| match exit {
            Exit::Code(code) => format!("exit {code}"),
            Exit::Signal(signal) => format!("signal {signal}"),
        }),
    }
}

fn mount(mount: &recording::RecordedMount) -> MountRow {
    MountRow {
        point: spell(&mount.point),
        kind: spell(mount.kind.as_bytes()),
        options: spell(mount.options.as_bytes()),
        source: spell(&mount.source),
        rotational: mount.rotational,
        scheduler: mount.scheduler.clone(),
    }
}

fn module(module: &recording::Module) -> Module {
    let hex = |id: &Vec<u8>| id.iter().map(|byte| format!("{byte:02x}")).collect();
    Module { path: spell(&module.path), build_id: module.build_id.as_ref().map(hex) }
}
