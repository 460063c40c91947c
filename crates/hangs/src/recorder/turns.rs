//! Sees by a breakpoint of the processor when a thread that is away looks for events.
//!
//! Looks that take no time are not seen otherwise, and many short steps would be one long one. A handler that takes long may look
//! for events itself, as one with a bar of progress does: such a look is made from deeper on the stack, and ends a step, too, if it is that
//! of a loop.

use std::collections::{HashMap, HashSet};
use std::io;

use sys::perf::{CALLERS_STACK, CopiedStack, ThreadSample, ThreadSampler};
use trace::backend::peek::blocked::BlockedSyscall;

use super::places::PlaceKind;
use super::work::StackBytes;
use crate::kernel::{EventWait, SamplerRights, WaitPlace, is_sleep};

/// The most looks that are kept until it is known what they are.
const OPEN: usize = 4096;
/// Of so many places at once the stacks are wanted: as a program draws its first window it waits for the display at many.
const PLACES: usize = 4;
/// Of so many different waits the callers are kept.
const WAITS: usize = 256;
/// So many times are kept in which looks may have been missed.
const GAPS: usize = 256;
/// Fewer bytes than this show no callers.
const COPIED: usize = 64;
/// Two samplers, of which one follows the other, see a look at moments that differ by less than this, in nanoseconds.
const SAME_NS: u64 = 20_000;

/// Returns the steps that looks for events at these moments, in order, ended.
pub(super) fn steps(began_ns: u64, moments: &[u64]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let begins = std::iter::once(began_ns).chain(moments.iter().copied());
    begins.zip(moments.iter().copied())
}

/// Returns the longest of them: what is known of the time up to the last look is told of that one.
pub(super) fn longest_step(began_ns: u64, moments: &[u64]) -> Option<(u64, u64)> {
    steps(began_ns, moments).max_by_key(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns))
}

/// Returns the length of the longest time between two moments that has no part of these times, which are in order.
fn longest_between(gaps: &[(u64, u64)], from_ns: u64, to_ns: u64) -> u64 {
    let mut last_ns = from_ns;
    let mut longest_ns = 0;
    for (begin_ns, end_ns) in gaps.iter().chain([&(to_ns, to_ns)]) {
        longest_ns = longest_ns.max((*begin_ns).min(to_ns).saturating_sub(last_ns));
        last_ns = last_ns.max(*end_ns);
    }
    longest_ns
}

/// The looks for events of a thread that is away.
#[derive(Debug)]
pub(super) struct TurnWatch {
    process: u32,
    /// The main loop's wait.
    main: BlockedSyscall,
    /// Who opens breakpoints.
    rights: SamplerRights,
    /// None while there is no breakpoint for it. The last one may be that of before, which has looks until the other one began.
    samplers: Vec<(CopiedStack, ThreadSampler)>,
    copied: CopiedStack,
    /// When looks were last taken, of the monotonic clock in nanoseconds.
    taken_ns: u64,
    /// Times in which looks may have been missed, in order.
    gaps: Vec<(u64, u64)>,
    /// The callers of looks of which it is not known what they are, those of the first one of each wait.
    callers: HashMap<EventWait, (BlockedSyscall, Vec<u8>)>,
    /// Since when looks are seen, of the monotonic clock in nanoseconds.
    pub(super) since_ns: u64,
    /// Waits that were for an answer, some.
    answer_waits: HashSet<EventWait>,
    /// Waits that were asked about by a part of the stack.
    partly_asked: HashSet<EventWait>,
    /// Looks of loops that were not handled yet.
    turns: Vec<u64>,
    /// Looks of which it is not known what they are.
    open: Vec<(BlockedSyscall, u64)>,
}

/// A look for events that a sampler has seen.
#[derive(Debug)]
struct SampledLook<'a> {
    call: BlockedSyscall,
    at_ns: u64,
    copied: CopiedStack,
    stack: &'a [u8],
}

/// A look of which it is not known what it is.
#[derive(Debug)]
pub(super) struct AskedLook {
    pub(super) call: BlockedSyscall,
    pub(super) copy: StackBytes,
    /// Whether of its stack there is the innermost part alone.
    pub(super) is_part: bool,
}

/// Looks whose stacks are wanted, the least deep one first.
#[derive(Debug, Default)]
struct WantedStacks(Vec<AskedLook>);

impl WantedStacks {
    /// Adds a look if there is none of its depth and less than the most that are wanted are less deep.
    fn add(&mut self, look: &SampledLook<'_>) {
        // A loop is less deep on the stack than what waits inside of its steps.
        let call = look.call;
        let at = self.0.partition_point(|of| of.call.sp > call.sp);
        let is_new = self.0.get(at).is_none_or(|of| of.call.sp != call.sp);
        if is_new && at < PLACES {
            let copy = StackBytes::new(call.ip, call.sp, look.stack.to_vec());
            let is_part = look.copied != CopiedStack::Whole;
            self.0.insert(at, AskedLook { call, copy, is_part });
            self.0.truncate(PLACES);
        }
    }
}

impl TurnWatch {
    /// Returns where the main loop waits.
    pub(super) fn main_place(&self) -> WaitPlace {
        (self.main.sp, self.main.ip)
    }

    /// Returns the number of the call.
    pub(super) fn call(&self) -> u32 {
        self.main.number
    }

    /// Returns this as the watch of a process whose main loop is known to wait at a place; none if that is another call.
    pub(super) fn of_loop(self, (sp, ip): WaitPlace) -> Option<TurnWatch> {
        let main = BlockedSyscall { sp, ..self.main };
        (ip == main.ip).then_some(TurnWatch { main, ..self })
    }

    /// Begins to watch a process whose main loop makes this wait.
    ///
    /// # Errors
    ///
    /// As [`ThreadSampler::at_instruction_by`].
    pub(super) fn begin(
        process: u32,
        main: BlockedSyscall,
        at_ns: u64,
        rights: &SamplerRights,
    ) -> io::Result<TurnWatch> {
        TurnWatch::with(process, main, at_ns, rights, CopiedStack::Nothing)
    }

    /// Begins to watch a process that has just been started: it is not known which of its looks for events are those of its main loop.
    ///
    /// # Errors
    ///
    /// As [`ThreadSampler::at_instruction_by`].
    pub(super) fn of_start(
        process: u32,
        main: BlockedSyscall,
        at_ns: u64,
        rights: &SamplerRights,
    ) -> io::Result<TurnWatch> {
        TurnWatch::with(process, main, at_ns, rights, CopiedStack::Whole)
    }

    fn with(
        process: u32,
        main: BlockedSyscall,
        since_ns: u64,
        rights: &SamplerRights,
        copied: CopiedStack,
    ) -> io::Result<TurnWatch> {
        let sampler = ThreadSampler::at_instruction_by(rights, process, main.ip, copied)?;
        Ok(TurnWatch {
            process,
            main,
            rights: rights.clone(),
            samplers: vec![(copied, sampler)],
            copied,
            taken_ns: since_ns,
            gaps: Vec::new(),
            callers: HashMap::new(),
            since_ns,
            answer_waits: HashSet::new(),
            partly_asked: HashSet::new(),
            turns: Vec::new(),
            open: Vec::new(),
        })
    }

    /// Returns whether looks at a place like this one were waits for an answer.
    pub(super) fn is_for_answer(&self, wait: EventWait) -> bool {
        self.answer_waits.contains(&wait)
    }

    /// Returns whether looks may be missing that were made between two moments.
    pub(super) fn has_gap(&self, from_ns: u64, to_ns: u64) -> bool {
        self.gaps.iter().any(|(begin_ns, end_ns)| *begin_ns < to_ns && *end_ns > from_ns)
    }

    /// Returns whether the time between two moments may be several steps, each shorter than half of it: looks that were not seen, or of
    /// which it is not known what they are, may divide it.
    pub(super) fn may_be_several(&self, from_ns: u64, to_ns: u64) -> bool {
        let mut gaps = self.open.iter().map(|(_, at_ns)| (*at_ns, *at_ns)).collect::<Vec<_>>();
        gaps.extend(&self.gaps);
        gaps.sort_unstable();
        longest_between(&gaps, from_ns, to_ns).saturating_mul(2) < to_ns.saturating_sub(from_ns)
    }

    /// Takes the looks that were made after a moment. Returns those with their stacks of which it is not known what they are: some that
    /// are least deep on the stack, and by a part of the stack each wait once. At the main loop's place
    /// that is asked only if `tells_apart`: some wait there is known.
    ///
    /// `kind_of` says what a look is, by its call and, if they were copied, by the bytes of its stack.
    pub(super) fn take(
        &mut self,
        after_ns: u64,
        tells_apart: bool,
        kind_of: impl Fn(&BlockedSyscall, &[u8]) -> Option<PlaceKind>,
    ) -> Vec<AskedLook> {
        let TurnWatch { main, turns, open, callers, answer_waits, partly_asked, .. } = self;
        let main = *main;
        let open_kinds: HashMap<EventWait, Option<PlaceKind>> =
            callers.iter().map(|(wait, (call, stack))| (*wait, kind_of(call, stack))).collect();
        // Most looks are like one before.
        let mut call_kinds: HashMap<EventWait, Option<PlaceKind>> = HashMap::new();
        let mut kind_like = |call: &BlockedSyscall, stack: &[u8]| {
            let known = call_kinds.entry(EventWait::of(call)).or_insert_with(|| kind_of(call, &[]));
            known.or_else(|| kind_of(call, stack).filter(|_| stack.len() >= COPIED))
        };
        let (mut is_unknown, mut is_full) = (false, false);
        let mut wanted = WantedStacks::default();
        let before = std::mem::take(open);
        let mut handle = |look: &SampledLook<'_>, kind: Option<PlaceKind>| match kind {
            Some(PlaceKind::Loop | PlaceKind::LoopByDepth) => turns.push(look.at_ns),
            Some(PlaceKind::Nested) => {
                if answer_waits.len() < OPEN {
                    answer_waits.insert(EventWait::of(&look.call));
                }
            }
            None if look.call.sp == main.sp && !tells_apart => turns.push(look.at_ns),
            // Other sleeps by the same function of the C library are none of the main loop's.
            None if is_sleep(&main) => {}
            kind => {
                is_unknown |= kind.is_none();
                let inner = &look.stack[..look.stack.len().min(CALLERS_STACK.into())];
                if inner.len() >= COPIED && callers.len() < WAITS {
                    let callers = callers.entry(EventWait::of(&look.call));
                    callers.or_insert_with(|| (look.call, inner.to_vec()));
                }
                let is_wanted = match look.copied {
                    CopiedStack::Whole => true,
                    CopiedStack::Callers => !partly_asked.contains(&EventWait::of(&look.call)),
                    CopiedStack::Nothing => false,
                };
                if kind.is_none() && is_wanted && look.stack.len() >= COPIED {
                    wanted.add(look);
                }
                is_full |= open.len() >= OPEN;
                if !is_full {
                    open.push((look.call, look.at_ns));
                }
            }
        };
        let is_after = |at_ns: u64| at_ns > after_ns;
        let call_of = |sample: &ThreadSample<'_>| {
            let [first, second] = sample.arguments;
            let arguments = [first, second, 0, 0, 0, 0];
            BlockedSyscall { arguments, sp: sample.sp, ip: main.ip, ..main }
        };
        for (call, at_ns) in before.into_iter().filter(|(_, at_ns)| is_after(*at_ns)) {
            let kind = open_kinds.get(&EventWait::of(&call)).copied().flatten();
            let look = SampledLook { call, at_ns, copied: CopiedStack::Nothing, stack: &[] };
            handle(&look, kind.or_else(|| kind_like(&call, &[])));
        }
        let mut has_missed = self.samplers.is_empty();
        for (copied, sampler) in &mut self.samplers {
            sampler.take(|sample| {
                if is_after(sample.at_ns) {
                    let ThreadSample { at_ns, stack, .. } = *sample;
                    let look = SampledLook { call: call_of(sample), at_ns, copied: *copied, stack };
                    handle(&look, kind_like(&look.call, stack));
                }
            });
            has_missed |= sampler.has_lost();
        }
        callers.retain(|wait, _| {
            let kind = open_kinds.get(wait).copied().flatten();
            kind.is_none_or(|kind| kind == PlaceKind::Asked)
        });
        let taken_ns = std::mem::replace(&mut self.taken_ns, sys::bpf::clock_ns());
        self.gaps.retain(|(_, end_ns)| is_after(*end_ns));
        if has_missed || is_full {
            self.add_gap(taken_ns);
        }
        self.samplers.truncate(1);
        let wanted_copy = match self.copied {
            _ if is_unknown => CopiedStack::Whole,
            CopiedStack::Whole => CopiedStack::Callers,
            copied => copied,
        };
        if wanted_copy != self.copied || self.samplers.is_empty() {
            self.begin_anew(wanted_copy);
        }
        let parts = wanted.0.iter().filter(|look| look.is_part);
        self.partly_asked.extend(parts.map(|look| EventWait::of(&look.call)));
        wanted.0
    }

    /// Returns the looks of loops until a moment, in their order; later ones stay for the next time.
    pub(super) fn until(&mut self, until_ns: u64) -> Vec<u64> {
        self.turns.sort_unstable();
        self.turns.dedup_by(|later, earlier| later.saturating_sub(*earlier) < SAME_NS);
        let count = self.turns.partition_point(|at_ns| *at_ns < until_ns);
        self.turns.drain(..count).collect()
    }

    /// Notes that looks may have been missed from a moment on until now.
    fn add_gap(&mut self, from_ns: u64) {
        let now_ns = sys::bpf::clock_ns();
        let is_full = self.gaps.len() >= GAPS;
        match self.gaps.last_mut() {
            Some((_, end_ns)) if *end_ns >= from_ns || is_full => *end_ns = now_ns,
            _ => self.gaps.push((from_ns, now_ns)),
        }
    }

    /// Replaces the sampler by one that copies so much of each stack. A processor has few breakpoints: where none is free the old one is closed
    /// first, and looks between the two may be missed.
    fn begin_anew(&mut self, copied: CopiedStack) {
        self.copied = copied;
        let (rights, process, address) = (self.rights.clone(), self.process, self.main.ip);
        let begin = || ThreadSampler::at_instruction_by(&rights, process, address, copied);
        let mut has_missed = self.samplers.is_empty();
        let new = begin().or_else(|_| {
            has_missed = true;
            self.samplers.clear();
            begin()
        });
        self.samplers.splice(..0, new.ok().map(|new| (copied, new)));
        if has_missed {
            self.add_gap(self.taken_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_divide_a_time_leaves_the_longest_part_certain() {
        assert_eq!(longest_between(&[], 10, 100), 90);
        assert_eq!(longest_between(&[(30, 30), (60, 60)], 10, 100), 40);
        assert_eq!(longest_between(&[(0, 20), (50, 90)], 10, 100), 30);
        assert_eq!(longest_between(&[(20, 80), (30, 40), (85, 85)], 10, 100), 15);
        assert_eq!(longest_between(&[(0, 200)], 10, 100), 0);
        assert_eq!(longest_between(&[(1, 5), (100, 120), (200, 300)], 10, 100), 90, "apart");
    }

    #[test]
    fn looks_divide_the_time_into_steps() {
        assert_eq!(steps(10, &[30, 90, 100]).collect::<Vec<_>>(), [(10, 30), (30, 90), (90, 100)]);
        assert_eq!(longest_step(10, &[30, 90, 100]), Some((30, 90)));
        assert_eq!(longest_step(10, &[]), None);
    }
}
