//! Turns a long call of a main thread into a stall: resolves symbols, chooses the frame to blame, and recognises idle waits.

use std::time::{Duration, SystemTime};

use super::{Stall, StallKind, WatchEvent, WatchSummary};
use crate::call::{CallEnd, StackId, TargetId, TracedCall};
use crate::place::ContextLookup;
use crate::recorder::TraceRecorder;
use crate::recording::{Backend, RecordedMount, Target};
use crate::stack::Unwinder;
use crate::stack::blame::{blame, name_builtin};
use crate::stack::names::{Frame, Names, SymbolSources};
use crate::stack::waits::{is_idle, waits_for_answer};
use crate::syscall::{SyscallClass, call_name};

/// After this many different stacks or targets, all caches are cleared, symbols included: a watch may run for days.
pub(super) const CACHED_STACKS: usize = 2000;

/// Analyses calls, and holds the caches for it.
#[derive(Debug)]
pub(super) struct StallAnalyzer {
    backend: Backend,
    sources: SymbolSources,
    pub(super) recorder: TraceRecorder,
    pub(super) unwinder: Unwinder,
    pub(super) places: ContextLookup,
    names: Names,
    began: SystemTime,
    pub(super) summary: WatchSummary,
}

impl StallAnalyzer {
    /// Creates an analyzer of calls whose times are nanoseconds since `began`.
    pub(super) fn new(
        backend: Backend,
        sources: &SymbolSources,
        began: SystemTime,
    ) -> StallAnalyzer {
        StallAnalyzer {
            backend,
            sources: sources.clone(),
            recorder: TraceRecorder::new(backend, Vec::new(), began),
            unwinder: Unwinder::new(),
            places: ContextLookup::new(),
            names: Names::new(sources.clone()),
            began,
            summary: WatchSummary::default(),
        }
    }

    /// Removes the cached data of a process.
    pub(super) fn forget(&mut self, process: u32) {
        self.unwinder.forget(process);
        self.places.forget(process);
    }

    /// Returns the frames of a stack.
    pub(super) fn frames(&mut self, process: u32, stack: StackId) -> Vec<Frame> {
        let recording = self.recorder.recording();
        let stack = recording.stacks.get(index(stack.0));
        stack.map(|stack| self.names.frames(recording, process, stack)).unwrap_or_default()
    }

    /// Returns the time of day so many nanoseconds after the watch began.
    pub(super) fn time(&self, since_ns: u64) -> SystemTime {
        self.began + Duration::from_nanos(since_ns)
    }

    /// Clears the caches if they have grown too large, and returns whether it did: ids of stacks and targets are invalid then.
    pub(super) fn limit_memory(&mut self) -> bool {
        let recording = self.recorder.recording();
        if recording.stacks.len() > CACHED_STACKS || recording.targets.len() > CACHED_STACKS {
            let summary = self.summary;
            *self = StallAnalyzer::new(self.backend, &self.sources, self.began);
            self.summary = summary;
            return true;
        }
        false
    }

    /// Resolves the symbols of a stack in advance: for its first occurrence files are read, which may take a second.
    pub(super) fn resolve_symbols(&mut self, process: u32, stack: StackId) {
        let recording = self.recorder.recording();
        if let Some(stack) = recording.stacks.get(index(stack.0)) {
            self.names.frames(recording, process, stack);
        }
    }

    /// Returns the stall to report, or `None` for an event loop that waits for work.
    pub(super) fn analyze(&mut self, call: TracedCall) -> Option<WatchEvent> {
        let target = call
            .target
            .and_then(|target| ResolvedTarget::from_recorder(target, &mut self.recorder));
        self.analyze_with_target(call, target)
    }

    /// Does the same as [`analyze`](StallAnalyzer::analyze) for a call whose target is not in this recorder.
    pub(super) fn analyze_with_target(
        &mut self,
        call: TracedCall,
        target: Option<ResolvedTarget>,
    ) -> Option<WatchEvent> {
        let name = call_name(call.number).unwrap_or("?");
        let recording = self.recorder.recording();
        let stack = call.stack.and_then(|id| recording.stacks.get(index(id.0)));
        let mut frames = stack
            .map(|stack| self.names.frames(recording, call.process, stack))
            .unwrap_or_default();
        let length = Duration::from_nanos(call.wall_ns);
        // Whoever waits to read from the display waits for the person at it, whatever its loop is called.
        let is_display =
            matches!(target, Some(ResolvedTarget { target: Target::Display { .. }, .. }));
        let is_own_loop = is_display && !frames.is_empty() && !frames.iter().any(waits_for_answer);
        if is_own_loop || is_idle(name, &frames) {
            self.summary.idle_waits += 1;
            self.summary.idle += length;
            return None;
        }
        let blamed = blame(&frames, None);
        name_builtin(&mut frames, blamed);
        self.summary.reported += 1;
        let (target, mount) =
            target.map_or((None, None), |resolved| (Some(resolved.target), resolved.mount));
        let is_wait = SyscallClass::of(name) == SyscallClass::Wait;
        Some(WatchEvent::Stall(Box::new(Stall {
            at: self.began + Duration::from_nanos(call.start_ns),
            kind: if is_wait { StallKind::Wait } else { StallKind::Stall },
            target,
            mount,
            end: stack.map(|stack| stack.end),
            blamed,
            frames,
            call,
        })))
    }
}

/// The object that a call worked on or waited for, with its file system.
#[derive(Clone, Debug)]
pub(super) struct ResolvedTarget {
    target: Target,
    mount: Option<RecordedMount>,
}

impl ResolvedTarget {
    /// Returns the target with this id.
    pub(super) fn from_recorder(
        target: TargetId,
        recorder: &mut TraceRecorder,
    ) -> Option<ResolvedTarget> {
        let recording = recorder.recording();
        let target = recording.targets.get(index(target.0))?.clone();
        let mount = match target {
            Target::File { mount, .. } | Target::Files { mount, .. } => mount,
            _ => None,
        };
        let mount = mount.and_then(|at| recording.mounts.get(index(at)).cloned());
        Some(ResolvedTarget { target, mount })
    }
}

fn index(id: u32) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}

/// Returns how a call with this result ended.
pub(super) fn outcome(result: i64) -> CallEnd {
    match i32::try_from(result) {
        Ok(error @ -4095..=-1) => CallEnd::Failed(-error),
        _ => CallEnd::Returned(result),
    }
}
