//! Sees by a breakpoint of the processor when a thread that is away looks for events.
//!
//! Looks that take no time are not seen otherwise, and many short steps would be one long one. A handler that takes long may look
//! for events itself, as one with a bar of progress does: such a look is made from deeper on the stack, and ends a step, too, if it is that
//! of a loop.

use std::io;

use sys::perf::{ThreadSample, ThreadSampler};
use trace::backend::peek::blocked::BlockedSyscall;

use super::describe::StackBytes;
use super::places::PlaceKind;
use crate::kernel::{WaitPlace, is_sleep};

/// The most looks that are kept until it is known what they are.
const OPEN: usize = 4096;
/// Of so many places at once the stacks are wanted of a program that starts: as it draws its first window it waits for the display at many.
const START_PLACES: usize = 4;
/// A stack of fewer bytes was not copied.
const COPIED: usize = 64;

/// Returns the steps that looks for events at these moments, in order, ended.
pub(super) fn steps(began_ns: u64, moments: &[u64]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let begins = std::iter::once(began_ns).chain(moments.iter().copied());
    begins.zip(moments.iter().copied())
}

/// Returns the longest of them: what is known of the time up to the last look is told of that one.
pub(super) fn longest_step(began_ns: u64, moments: &[u64]) -> Option<(u64, u64)> {
    steps(began_ns, moments).max_by_key(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns))
}

/// The looks for events of a thread that is away.
#[derive(Debug)]
pub(super) struct TurnWatch {
    process: u32,
    /// The main loop's wait.
    main: BlockedSyscall,
    /// None while there is no breakpoint for it.
    sampler: Option<ThreadSampler>,
    /// Whether there was none at some time.
    has_missed: bool,
    /// Whether the stack of each look is copied.
    copies: bool,
    /// Of how many places at once the stacks are wanted; with more than one they are always copied.
    places: usize,
    /// Since when looks are seen, of the monotonic clock in nanoseconds.
    pub(super) since_ns: u64,
    /// Looks of loops that were not handled yet.
    turns: Vec<u64>,
    /// Looks of which it is not known what they are.
    open: Vec<(BlockedSyscall, u64)>,
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

    /// Begins to watch a process whose main loop makes this wait.
    ///
    /// # Errors
    ///
    /// As [`ThreadSampler::at_instruction`].
    pub(super) fn begin(process: u32, main: BlockedSyscall, at_ns: u64) -> io::Result<TurnWatch> {
        let sampler = ThreadSampler::at_instruction(process, main.ip)?;
        Ok(TurnWatch::with(process, main, at_ns, sampler, 1))
    }

    /// Begins to watch a process of which it is not known where its main loop waits, but only by which call.
    ///
    /// # Errors
    ///
    /// As [`ThreadSampler::at_instruction`].
    pub(super) fn of_start(
        process: u32,
        main: BlockedSyscall,
        at_ns: u64,
    ) -> io::Result<TurnWatch> {
        let sampler = ThreadSampler::at_instruction_with_stack(process, main.ip)?;
        Ok(TurnWatch::with(process, main, at_ns, sampler, START_PLACES))
    }

    fn with(
        process: u32,
        main: BlockedSyscall,
        since_ns: u64,
        sampler: ThreadSampler,
        places: usize,
    ) -> TurnWatch {
        TurnWatch {
            process,
            main,
            sampler: Some(sampler),
            has_missed: false,
            copies: places > 1,
            places,
            since_ns,
            turns: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Returns whether looks may be missing that were made before the last time they were taken.
    pub(super) fn has_gap(&self) -> bool {
        self.open.len() >= OPEN || self.sampler.as_ref().is_none_or(ThreadSampler::has_lost)
    }

    /// Returns whether the time between two moments may be several steps, each shorter than half of it: looks were not seen, or it is not
    /// known whether those that were seen are those of a loop.
    pub(super) fn may_be_several(&self, from_ns: u64, to_ns: u64) -> bool {
        self.has_missed || self.is_divided(from_ns, to_ns)
    }

    /// Returns whether looks of which it is not known what they are divide the time between two moments, so that no part is half of it.
    pub(super) fn is_divided(&self, from_ns: u64, to_ns: u64) -> bool {
        let looks = self.open.iter().map(|(_, at_ns)| (*at_ns).clamp(from_ns, to_ns));
        let (_, longest) = looks.chain([to_ns]).fold((from_ns, 0), |(last, longest), at_ns| {
            (at_ns, longest.max(at_ns.saturating_sub(last)))
        });
        longest.saturating_mul(2) < to_ns.saturating_sub(from_ns)
    }

    /// Takes the looks that were made after a moment. Returns those with their stacks of which it is not known what they are: the one that is
    /// least deep on the stack, and of a program that starts some more. At the main loop's place
    /// that is asked only if `tells_apart`: some wait there is known.
    pub(super) fn take(
        &mut self,
        after_ns: u64,
        tells_apart: bool,
        kind_of: impl Fn(&BlockedSyscall) -> Option<PlaceKind>,
    ) -> Vec<(BlockedSyscall, StackBytes)> {
        let before = std::mem::take(&mut self.open);
        let (main, turns, open) = (self.main, &mut self.turns, &mut self.open);
        let places = self.places;
        let (mut asked, mut is_unknown): (Vec<(BlockedSyscall, StackBytes)>, _) =
            (Vec::new(), false);
        // Most looks are like the one before.
        let mut last: Option<(BlockedSyscall, Option<PlaceKind>)> = None;
        let mut kind_like = |call: &BlockedSyscall| match last {
            Some((of, kind)) if of == *call => kind,
            _ => {
                let kind = kind_of(call);
                last = Some((*call, kind));
                kind
            }
        };
        let mut handle = |call: BlockedSyscall, at_ns: u64, stack: &[u8]| match kind_like(&call) {
            Some(PlaceKind::Loop | PlaceKind::LoopByDepth) => turns.push(at_ns),
            Some(PlaceKind::Nested) => {}
            None if call.sp == main.sp && !tells_apart => turns.push(at_ns),
            // Other sleeps by the same function of the C library are none of the main loop's.
            None if is_sleep(&main) => {}
            kind => {
                is_unknown |= kind.is_none();
                // A loop is less deep on the stack than what waits inside of its steps.
                let at = asked.partition_point(|(of, _)| of.sp > call.sp);
                let is_new = asked.get(at).is_none_or(|(of, _)| of.sp != call.sp);
                if kind.is_none() && stack.len() >= COPIED && is_new && at < places {
                    let copy = StackBytes { ip: call.ip, sp: call.sp, bytes: stack.to_vec() };
                    asked.insert(at, (call, copy));
                    asked.truncate(places);
                }
                if open.len() < OPEN {
                    open.push((call, at_ns));
                }
            }
        };
        let is_after = |at_ns: u64| at_ns > after_ns;
        for (call, at_ns) in before {
            if is_after(at_ns) {
                handle(call, at_ns, &[]);
            }
        }
        let mut handle_sample = |sample: &ThreadSample<'_>| {
            if is_after(sample.at_ns) {
                let [first, second] = sample.arguments;
                let arguments = [first, second, 0, 0, 0, 0];
                let call = BlockedSyscall { arguments, sp: sample.sp, ip: main.ip, ..main };
                handle(call, sample.at_ns, sample.stack);
            }
        };
        if let Some(sampler) = &mut self.sampler {
            sampler.take(&mut handle_sample);
            self.has_missed |= sampler.has_lost();
        }
        let wants_copies = places > 1 || is_unknown && asked.is_empty();
        if wants_copies != self.copies || self.sampler.is_none() {
            self.set_copies(wants_copies);
        }
        asked
    }

    /// Returns the looks of loops until a moment, in their order; later ones stay for the next time.
    pub(super) fn until(&mut self, until_ns: u64) -> Vec<u64> {
        self.turns.sort_unstable();
        let count = self.turns.partition_point(|at_ns| *at_ns < until_ns);
        self.turns.drain(..count).collect()
    }

    /// Has the stack of each look copied from now on, or not any more. A processor has few breakpoints: one is given back before another one
    /// is asked for.
    fn set_copies(&mut self, copies: bool) {
        let (thread, address) = (self.process, self.main.ip);
        self.sampler = None;
        let sampler = match copies {
            true => ThreadSampler::at_instruction_with_stack(thread, address),
            false => ThreadSampler::at_instruction(thread, address),
        };
        (self.sampler, self.copies) = (sampler.ok(), copies);
        self.has_missed |= self.sampler.is_none();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_divide_the_time_into_steps() {
        assert_eq!(steps(10, &[30, 90, 100]).collect::<Vec<_>>(), [(10, 30), (30, 90), (90, 100)]);
        assert_eq!(longest_step(10, &[30, 90, 100]), Some((30, 90)));
        assert_eq!(longest_step(10, &[]), None);
    }
}
