//! Makes of a stay what is told of it: names, the frame to blame, and whether it is a stay at all.

use std::time::{Duration, SystemTime};

use super::{Block, Event, Kind, Summary};
use crate::trace::call::{Call, Outcome, StackId, TargetId};
use crate::trace::kernel::{Class, call_name};
use crate::trace::place::Places;
use crate::trace::recorder::Recorder;
use crate::trace::recording::{Backend, Mount, Target};
use crate::trace::stack::Unwinder;
use crate::trace::stack::blame::{blame, is_idle};
use crate::trace::stack::names::{Names, Sources};

/// After so many different stacks all that is remembered is dropped, names too: a watch may go on for days.
pub(super) const STACKS: usize = 2000;

/// Remembers what it takes to tell.
#[derive(Debug)]
pub(super) struct Teller {
    backend: Backend,
    sources: Sources,
    pub(super) recorder: Recorder,
    pub(super) unwinder: Unwinder,
    pub(super) places: Places,
    names: Names,
    began: SystemTime,
    pub(super) summary: Summary,
}

impl Teller {
    /// Makes one whose stays begin in nanoseconds after `began`.
    pub(super) fn new(backend: Backend, sources: &Sources, began: SystemTime) -> Teller {
        Teller {
            backend,
            sources: sources.clone(),
            recorder: Recorder::new(backend, Vec::new(), began),
            unwinder: Unwinder::new(),
            places: Places::new(),
            names: Names::new(sources.clone()),
            began,
            summary: Summary::default(),
        }
    }

    /// Forgets what is known of a process.
    pub(super) fn forget(&mut self, process: u32) {
        self.unwinder.forget(process);
        self.places.forget(process);
    }

    /// Drops what is remembered when it is much. Stacks and targets that are known by number are not valid afterwards.
    pub(super) fn tidy(&mut self) {
        let recording = self.recorder.recording();
        if recording.stacks.len() > STACKS || recording.targets.len() > STACKS {
            let summary = self.summary;
            *self = Teller::new(self.backend, &self.sources, self.began);
            self.summary = summary;
        }
    }

    /// Finds the names of a stack before they are wanted: files are read for the first one of each, which may take a second.
    pub(super) fn prepare(&mut self, process: u32, stack: StackId) {
        let recording = self.recorder.recording();
        if let Some(stack) = recording.stacks.get(at(stack.0)) {
            self.names.frames(recording, process, stack);
        }
    }

    /// Returns what is to be told of a stay; nothing of an event loop that waits for something to do.
    pub(super) fn tell(&mut self, call: Call) -> Option<Event> {
        let goal = call.target.and_then(|target| Goal::of(target, &mut self.recorder));
        self.tell_of(call, goal)
    }

    /// As [`tell`](Teller::tell), of a call whose target is not among ours.
    pub(super) fn tell_of(&mut self, call: Call, goal: Option<Goal>) -> Option<Event> {
        let name = call_name(call.number).unwrap_or("?");
        let recording = self.recorder.recording();
        let stack = call.stack.and_then(|id| recording.stacks.get(at(id.0)));
        let frames = stack
            .map(|stack| self.names.frames(recording, call.process, stack))
            .unwrap_or_default();
        let length = Duration::from_nanos(call.wall_ns);
        if is_idle(name, &frames) {
            self.summary.idle_waits += 1;
            self.summary.idle += length;
            return None;
        }
        self.summary.told += 1;
        let (target, mount) = goal.map_or((None, None), |goal| (Some(goal.target), goal.mount));
        let is_wait = Class::of(name) == Class::Wait;
        Some(Event::Block(Box::new(Block {
            at: self.began + Duration::from_nanos(call.start_ns),
            kind: if is_wait { Kind::Wait } else { Kind::Stall },
            target,
            mount,
            end: stack.map(|stack| stack.end),
            blamed: blame(&frames, None),
            frames,
            call,
        })))
    }
}

/// What a call worked on or waited for, with its file system.
#[derive(Clone, Debug)]
pub(super) struct Goal {
    target: Target,
    mount: Option<Mount>,
}

impl Goal {
    /// Returns the target with this number.
    pub(super) fn of(target: TargetId, recorder: &mut Recorder) -> Option<Goal> {
        let recording = recorder.recording();
        let target = recording.targets.get(at(target.0))?.clone();
        let mount = match target {
            Target::File { mount, .. } | Target::Files { mount, .. } => mount,
            _ => None,
        };
        let mount = mount.and_then(|index| recording.mounts.get(at(index)).cloned());
        Some(Goal { target, mount })
    }
}

fn at(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// Says how a call ended that returned `result`.
pub(super) fn outcome(result: i64) -> Outcome {
    match i32::try_from(result) {
        Ok(error @ -4095..=-1) => Outcome::Failed(-error),
        _ => Outcome::Returned(result),
    }
}
