//! A program whose first thread the kernel reports, and the absence that goes on in it.

use std::collections::HashMap;
use trace::backend::blocked::BlockedSyscall;

use sys::perf::ThreadSampler;

use super::account::{BlockDescription, SeenWait};
use super::counts::ProgramCounts;
use super::depth::ThreadedDepth;
use super::faults::FaultFiles;
use super::start_looks::StartLooks;
use crate::kernel::{AbsenceAccount, EventWait, EventWaitKind, ThreadBlock, WaitPlace};
use crate::model::UnseenParts;
use crate::recorder::callers::CallChains;
use crate::recorder::disk_use::DiskCounters;
use crate::recorder::places::{KnownLoop, PlaceKind, kind_among};
use crate::recorder::sleeping::SleepWatch;
use crate::recorder::turns::TurnWatch;

/// What is known of a wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WaitState {
    /// The stack is being read.
    Asked {
        /// Since when, of the monotonic clock in nanoseconds, if the thread counted as at rest in it.
        rests_since_ns: Option<u64>,
    },
    /// It is classified.
    Classified(EventWaitKind),
}

/// What is known of the start of a program.
#[derive(Debug, Default)]
pub(super) enum StartWatch {
    /// Its main loop is not known to the programs in the kernel.
    #[default]
    Unseen,
    /// A breakpoint sees its looks for events.
    Seen(Box<StartLooks>),
    /// Nothing is looked for any more.
    Over,
}

/// An absence that was reported and goes on.
#[derive(Debug)]
pub(super) struct WatchedAbsence {
    pub(super) key: u64,
    pub(super) started_ns: u64,
    pub(super) described: Vec<BlockDescription>,
    /// When the last description was made.
    pub(super) described_at_ns: u64,
    /// Beginnings of waits in which the thread was seen stopped or frozen.
    pub(super) stops: Vec<u64>,
    pub(super) sampler: Option<ThreadSampler>,
    pub(super) samples: u32,
    /// Page faults that were sampled.
    pub(super) faults: u32,
    /// The files behind its page faults, where the kernel tells the addresses.
    pub(super) fault_files: Option<FaultFiles>,
    /// Whether it has ended.
    pub(super) is_over: bool,
    /// Whether it is certainly one step: all looks for events from its beginning on were seen.
    pub(super) is_one_step: bool,
    pub(super) unseen: UnseenParts,
    /// A wait inside of it that is not classified yet, and the account when it began.
    pub(super) asked: Option<(EventWait, AbsenceAccount)>,
    /// The first wait that may be that of a loop, with what had been counted when it began.
    pub(super) open_wait: Option<(EventWait, AbsenceAccount)>,
    pub(super) due_ns: u64,
    /// The length at which it is stored the next time.
    pub(super) store_at_ns: u64,
    pub(super) is_computing: bool,
    /// Sees its looks for events.
    pub(super) turns: Option<TurnWatch>,
    /// The wait that it was last seen in.
    pub(super) seen_wait: Option<SeenWait>,
    /// The last look of the main loop for events that took no time; the absence that is recorded began then.
    pub(super) turned_ns: Option<u64>,
    /// What had been read and written when the step that goes on had waited for a while.
    pub(super) disk: Option<DiskCounters>,
    /// When its first step began, if that was before the programs in the kernel knew the main loop, and what it had gone to by then.
    pub(super) before: Option<(u64, AbsenceAccount)>,
    /// Finds out whether the loop sleeps at another place now, in a program whose main loop sleeps and looks for events.
    pub(super) sleeps: SleepWatch,
    /// The account when the first look found the thread in such a sleep.
    pub(super) before_sleep: Option<AbsenceAccount>,
}

impl WatchedAbsence {
    /// Returns when the step began that goes on.
    pub(super) fn began_ns(&self) -> u64 {
        self.turned_ns.unwrap_or(self.started_ns)
    }
}

/// A program whose first thread is marked.
#[derive(Debug)]
pub(super) struct MarkedProgram {
    pub(super) process: u32,
    pub(super) name: String,
    /// When it began, in nanoseconds since 1970.
    pub(super) process_began_ns: u64,
    pub(super) waits: HashMap<EventWait, WaitState>,
    /// Which calls make the waits that were asked about, by the instruction.
    pub(super) calls: Vec<(u64, u32)>,
    /// What its waits are, by their callers.
    pub(super) call_chains: CallChains,
    /// How often it was looked whether its main loop is one that waits for a lock, or sleeps.
    pub(super) loop_looks: u32,
    /// Finds the main loop of a program that does not wait in it yet.
    pub(super) start: StartWatch,
    /// Whether a wait is certainly that of its main loop, and not by its depth on the stack alone.
    pub(super) is_loop_certain: bool,
    /// How often it was looked for its main loop.
    pub(super) start_looks: u64,
    /// Finds a loop that sleeps and looks for events.
    pub(super) sleeps: SleepWatch,
    pub(super) depth: ThreadedDepth,
    /// The stack pointer of the shallowest loop that waits for the display.
    pub(super) display_loop: u64,
    pub(super) away: Option<WatchedAbsence>,
    /// The absence that is known to have ended although the kernel may report it later.
    pub(super) closed_ns: u64,
    /// The waits of the absence that began at this moment.
    pub(super) blocks: (u64, Vec<ThreadBlock>),
    pub(super) next_key: u64,
    pub(super) counts: ProgramCounts,
}

/// Returns what a look for events is, by its call or by its callers, if that is known or asked.
pub(super) fn kind_of_look(
    waits: &HashMap<EventWait, WaitState>,
    chains: &CallChains,
    call: &BlockedSyscall,
    stack: &[u8],
) -> Option<PlaceKind> {
    known_kind(waits, EventWait::of(call)).or_else(|| chains.kind(call, stack))
}

/// Returns what a wait is, if that is known or asked.
pub(super) fn known_kind(
    waits: &HashMap<EventWait, WaitState>,
    wait: EventWait,
) -> Option<PlaceKind> {
    let kind_of = |state: &WaitState| match state {
        WaitState::Asked { .. } => PlaceKind::Asked,
        WaitState::Classified(EventWaitKind::Loop) => PlaceKind::Loop,
        WaitState::Classified(EventWaitKind::Nested) => PlaceKind::Nested,
    };
    let others = || {
        let at_place = waits.iter().filter(|(of, _)| of.place == wait.place);
        kind_among(at_place.map(|(_, state)| kind_of(state)))
    };
    waits.get(&wait).map(kind_of).or_else(others)
}

impl MarkedProgram {
    /// Returns the main loop, if it is known.
    pub(super) fn known_loop(&self, is_hang_stored: bool) -> Option<KnownLoop> {
        let is_loop = |state: &WaitState| *state == WaitState::Classified(EventWaitKind::Loop);
        let waits = self.waits.iter().filter(|(_, state)| is_loop(state));
        let waits: Vec<EventWait> = waits.map(|(wait, _)| *wait).collect();
        let (process, display_loop) = (self.process, self.display_loop);
        let is_known = !waits.is_empty();
        is_known.then_some(KnownLoop { process, waits, display_loop, is_hang_stored })
    }

    /// Returns the wait at a place whose stack is being read.
    pub(super) fn asked_at(&self, place: WaitPlace) -> Option<EventWait> {
        let is_asked = |wait: &EventWait, state: &WaitState| {
            wait.place == place && matches!(state, WaitState::Asked { .. })
        };
        self.waits.iter().find(|(wait, state)| is_asked(wait, state)).map(|(wait, _)| *wait)
    }

    /// Returns whether its main loop waits for a lock, as that of Tk does.
    pub(super) fn rests_in_lock(&self) -> bool {
        let is_loop = |state: &WaitState| *state == WaitState::Classified(EventWaitKind::Loop);
        self.waits.iter().any(|(wait, state)| wait.is_of_lock() && is_loop(state))
    }

    /// Returns whether its main loop sleeps and looks for events in turns.
    pub(super) fn rests_in_sleep(&self) -> bool {
        let is_loop = |state: &WaitState| *state == WaitState::Classified(EventWaitKind::Loop);
        self.waits.iter().any(|(wait, state)| wait.is_sleep() && is_loop(state))
    }

    /// Returns whether a wait is known to be one inside of a step.
    pub(super) fn is_nested(&self, wait: EventWait) -> bool {
        self.waits.get(&wait) == Some(&WaitState::Classified(EventWaitKind::Nested))
    }

    /// Returns the key of the next absence.
    pub(super) fn take_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    /// Returns the waits of an absence.
    pub(super) fn blocks_of(&self, started_ns: u64) -> &[ThreadBlock] {
        if self.blocks.0 == started_ns { &self.blocks.1 } else { &[] }
    }
}
