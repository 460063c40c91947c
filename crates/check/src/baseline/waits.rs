//! The waits of a main thread in a report, put together by what they have in common.

use std::collections::BTreeMap;

use serde::Serialize;
use trace::report::TraceReport;
use trace::report::names::{Confidence, Frame};
use trace::report::schema::{Slow, Target, TargetKind, TraceMethod};
use trace::syscall::SyscallClass;

use super::phases::ProgramPhases;
use super::places::UserPlaces;

/// What waits of one line of a baseline have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct WaitKey {
    /// The phase of the program.
    pub phase: String,
    /// The name of the call.
    pub call: String,
    /// The pattern of the path, or of what else the call worked on; empty if that is not known.
    pub path: String,
    /// The function to blame; empty if that is not known.
    pub function: String,
}

impl WaitKey {
    /// Returns whether both may be of one wait: what was not seen of it cannot speak against that.
    pub(super) fn fits(&self, other: &WaitKey) -> bool {
        let agree = |one: &str, other: &str| one == other || one.is_empty() || other.is_empty();
        (&self.phase, &self.call) == (&other.phase, &other.call)
            && agree(&self.path, &other.path)
            && agree(&self.function, &other.function)
    }
}

/// A place in source code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourcePlace {
    /// The file, as the compiler was told it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// The waits of one kind in a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundWait {
    /// What they have in common.
    #[serde(flatten)]
    pub key: WaitKey,
    /// What the first of them worked on, spelt as in the report.
    pub target: String,
    /// Whether each of them counts, however short: a sync.
    pub is_sync: bool,
    /// How many.
    pub count: u64,
    /// How long the thread was blocked in all of them, in nanoseconds.
    pub blocked_ns: u64,
    /// Where the function to blame made the first of them, where debug information has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourcePlace>,
    /// The callers of the first of them, the innermost first.
    pub stack: Vec<String>,
}

/// All waits of a main thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MainThreadWaits {
    /// Those that count by themselves, in the order of their keys.
    pub(super) found: Vec<FoundWait>,
    /// The sums of all others, in nanoseconds, by phase.
    pub(super) short_ns: BTreeMap<String, u64>,
}

/// The most callers that are kept of a wait.
const CALLERS: usize = 24;

impl MainThreadWaits {
    /// Finds the waits of the main thread of a report; those that are together below `floor_ns` count with all others.
    pub(super) fn find(
        report: &TraceReport,
        phases: &ProgramPhases,
        places: &UserPlaces,
        floor_ns: u64,
    ) -> MainThreadWaits {
        let mut by_key: BTreeMap<WaitKey, FoundWait> = BTreeMap::new();
        let of_main = |slow: &&Slow| {
            Some(slow.thread) == report.main_thread && slow.how == TraceMethod::Stall
        };
        for slow in report.slow.iter().filter(of_main) {
            let target = slow.target.and_then(|at| item(&report.targets, at));
            let target = target.map(target_text).unwrap_or_default();
            let blamed = blamed(report, slow);
            let key = WaitKey {
                phase: phases.at(slow.at_ns).to_owned(),
                call: report.call_name(slow.call).to_owned(),
                path: places.pattern_of(&target),
                function: blamed.map(function).unwrap_or_default(),
            };
            let wait = by_key.entry(key).or_insert_with_key(|key| FoundWait {
                key: key.clone(),
                target,
                is_sync: SyscallClass::of(&key.call) == SyscallClass::Sync,
                count: 0,
                blocked_ns: 0,
                source: blamed.and_then(|frame| place(frame.line.as_deref()?)),
                stack: callers(report, slow),
            });
            wait.count += 1;
            wait.blocked_ns = wait.blocked_ns.saturating_add(blocked_ns(slow));
        }
        let mut waits = MainThreadWaits::default();
        for wait in by_key.into_values() {
            if wait.is_sync || wait.blocked_ns >= floor_ns {
                waits.found.push(wait);
            } else {
                let sum = waits.short_ns.entry(wait.key.phase).or_default();
                *sum = sum.saturating_add(wait.blocked_ns);
            }
        }
        waits
    }
}

fn item<T>(all: &[T], at: u32) -> Option<&T> {
    all.get(usize::try_from(at).ok()?)
}

/// Returns how long a call was blocked: without the time on a processor and in its queue, where that was measured.
fn blocked_ns(slow: &Slow) -> u64 {
    let others = slow.cpu_ns.unwrap_or(0).saturating_add(slow.queued_ns.unwrap_or(0));
    slow.wall_ns.saturating_sub(others)
}

/// Writes what a call worked on, so that it is not taken for a path if it is none.
fn target_text(target: &Target) -> String {
    let name = target.to.as_ref().unwrap_or(&target.name);
    match target.kind {
        TargetKind::File => name.clone(),
        TargetKind::Socket => {
            // `Xvfb (4711) at /tmp/.X11-unix/X7`: the number and the address are others in the next run.
            let peer = name.split(" at ").next().unwrap_or(name);
            let peer = peer.split(" (").next().unwrap_or(peer);
            match &target.request {
                Some(request) => format!("socket {peer}: {request}"),
                None => format!("socket {peer}"),
            }
        }
        TargetKind::Lock => "lock".to_owned(),
        TargetKind::Child => format!("child {name}"),
        TargetKind::Other => format!("other {name}"),
    }
}

fn blamed<'a>(report: &'a TraceReport, slow: &Slow) -> Option<&'a Frame> {
    let stack = item(&report.stacks, slow.stack?)?;
    item(&report.frames, *item(&stack.frames, stack.blamed?)?)
}

/// Writes a function so that the next build has the same one: addresses are left out.
fn function(frame: &Frame) -> String {
    match (frame.confidence, &frame.module) {
        (Confidence::Start | Confidence::Address, Some(module)) => {
            format!("{}!?", UserPlaces::name_of(module))
        }
        _ => frame.name.clone(),
    }
}

/// Reads `file.c:31`.
fn place(line: &str) -> Option<SourcePlace> {
    let (file, line) = line.rsplit_once(':')?;
    Some(SourcePlace { file: file.to_owned(), line: line.parse().ok().filter(|line| *line > 0)? })
}

fn callers(report: &TraceReport, slow: &Slow) -> Vec<String> {
    let stack = slow.stack.and_then(|at| item(&report.stacks, at));
    let frames = stack.map(|stack| stack.frames.as_slice()).unwrap_or_default();
    let named = frames.iter().filter_map(|at| item(&report.frames, *at));
    let text = |frame: &Frame| match (&frame.line, &frame.module) {
        (Some(line), _) => format!("{} ({line})", frame.name),
        (None, Some(module)) => format!("{} ({module})", frame.name),
        (None, None) => frame.name.clone(),
    };
    named.take(CALLERS).map(text).collect()
}
