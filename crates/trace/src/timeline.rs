//! What main threads did with their time: on a processor, ready for one, waiting for a page, stopped, or in a call.

use super::call::{StackId, TargetId, TracedCall};

/// The most slices of a timeline; more are put together in pairs.
const SLICES: usize = 50_000;
/// The most samples of one kind that are kept of a thread.
const SAMPLES: usize = 50_000;
/// The kernel brings the counters of a running thread up to date this often at least, in nanoseconds.
pub(crate) const TICK_NS: u64 = 10_000_000;
/// Turns of an event loop closer together than this are one, in nanoseconds.
const TURN_NS: u64 = 1_000_000;

/// A piece of a thread's time, by the counters of the kernel at its two ends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TimeSlice {
    /// When it began, in nanoseconds since the recording did.
    pub start_ns: u64,
    /// How long it is.
    pub length_ns: u64,
    /// The part on a processor.
    pub processor_ns: u64,
    /// The part in which the thread could run and had no processor.
    pub ready_ns: u64,
    /// The part in which it waited for a page of memory that is read from a disk.
    pub fault_ns: u64,
    /// The part in which it was stopped by a signal or frozen.
    pub stopped_ns: u64,
    /// The part in which a tracer had stopped it.
    pub tracer_ns: u64,
}

impl TimeSlice {
    /// Returns when it ended.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.length_ns)
    }

    /// Returns which part is nearly all of it, if one is.
    fn kind(&self) -> Option<usize> {
        let waited = self.length_ns.saturating_sub(
            self.processor_ns + self.ready_ns + self.fault_ns + self.stopped_ns + self.tracer_ns,
        );
        let known = [self.processor_ns, self.ready_ns, self.fault_ns, self.stopped_ns];
        let parts = [known[0], known[1], known[2], known[3], self.tracer_ns, waited];
        parts.iter().position(|part| part.saturating_mul(20) >= self.length_ns.saturating_mul(19))
    }

    fn add(&mut self, next: &TimeSlice) {
        self.length_ns = next.end_ns().saturating_sub(self.start_ns);
        self.processor_ns += next.processor_ns;
        self.ready_ns += next.ready_ns;
        self.fault_ns += next.fault_ns;
        self.stopped_ns += next.stopped_ns;
        self.tracer_ns += next.tracer_ns;
    }
}

/// The kernel's counters of a thread at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ThreadCounters {
    /// The moment, in nanoseconds since the recording began.
    pub at_ns: u64,
    /// Its time on a processor.
    pub processor_ns: u64,
    /// Its time without a processor although it could run.
    pub ready_ns: u64,
    /// How often it waited for a page.
    pub faults: u64,
}

/// A page that was read from a disk while the thread waited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MajorFault {
    /// When it was there, in nanoseconds since the recording began.
    pub at_ns: u64,
    /// The code that touched it.
    pub stack: StackId,
    /// The file that it is of.
    pub target: Option<TargetId>,
}

/// A call that was too short to be recorded for itself, and stands for others like it: the kernel tells one each time that they
/// were blocked for about a millisecond together.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortCallSample {
    /// The call.
    pub call: TracedCall,
    /// How long the calls since the sample before were blocked, in nanoseconds.
    pub blocked_ns: u64,
    /// How many of them were blocked.
    pub count: u32,
}

/// What one main thread did with its time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadTimeline {
    /// The slices, in the order of time; where there is none, nothing is known.
    pub slices: Vec<TimeSlice>,
    /// Where the thread was while it ran, once each [`sample_ns`](ThreadTimeline::sample_ns) of its own time.
    pub samples: Vec<(u64, StackId)>,
    /// How much time on a processor a sample stands for; 0 where the kernel allows no samples.
    pub sample_ns: u64,
    /// Pages that were read from a disk, where the kernel tells each.
    pub faults: Vec<MajorFault>,
    /// How many such pages there were.
    pub fault_count: u64,
    /// When its event loop looked for events without having to wait, to within a millisecond.
    pub turns: Vec<u64>,
    /// The same where it looked with `io_uring_enter`, with which programs wait for single operations, too.
    pub ring_turns: Vec<u64>,
    /// When it was stopped by a signal, from and to, where the backend is told.
    pub stops: Vec<(u64, u64)>,
    /// Samples of calls that were blocked and too short to be recorded, where the kernel tells them.
    pub short_calls: Vec<ShortCallSample>,
    /// The counters at the end of the last slice.
    pub last: ThreadCounters,
}

impl ThreadTimeline {
    /// Adds the next slice.
    pub fn push(&mut self, slice: TimeSlice) {
        if slice.length_ns == 0 {
            return;
        }
        if let Some(last) = self.slices.last_mut()
            && last.kind().is_some()
            && last.kind() == slice.kind()
        {
            last.add(&slice);
            return;
        }
        if self.slices.len() >= SLICES {
            let pairs = self.slices.chunks(2).map(|pair| {
                let mut sum = pair[0];
                pair.iter().skip(1).for_each(|next| sum.add(next));
                sum
            });
            self.slices = pairs.collect();
        }
        self.slices.push(slice);
    }

    /// Takes back time on a processor of the latest slices, in which the thread was taken to run and turned out to have waited.
    pub fn take_back(&mut self, processor_ns: u64) {
        self.correct(processor_ns, |_, _| {});
    }

    /// Turns time on a processor of the latest slices, in which the thread was taken to run, into time in which it had none.
    pub fn turn_into_ready(&mut self, processor_ns: u64) {
        self.correct(processor_ns, |slice, ns| slice.ready_ns += ns);
    }

    fn correct(&mut self, mut processor_ns: u64, put: impl Fn(&mut TimeSlice, u64)) {
        for slice in self.slices.iter_mut().rev() {
            if processor_ns == 0 {
                break;
            }
            let taken = processor_ns.min(slice.processor_ns);
            slice.processor_ns -= taken;
            put(slice, taken);
            processor_ns -= taken;
        }
    }

    /// Adds the time up to the thread's end, at which it ran and had these counters.
    pub fn end(&mut self, end: ThreadCounters) {
        let last = self.last;
        let length_ns = end.at_ns.saturating_sub(last.at_ns);
        // More than it had run may have been borrowed for it.
        let owed = last.processor_ns.saturating_sub(end.processor_ns);
        let queued = end.ready_ns.saturating_sub(last.ready_ns);
        let misjudged = owed.min(queued);
        self.turn_into_ready(misjudged);
        self.take_back(owed - misjudged);
        let used = end.processor_ns.saturating_sub(last.processor_ns).min(length_ns);
        let ready_ns = (queued - misjudged).min(length_ns - used);
        let rest = length_ns - used - ready_ns;
        // The counters of a running thread are as old as the last tick.
        let faults = end.faults.saturating_sub(last.faults);
        let borrowed = if faults > 0 { 0 } else { rest.min(TICK_NS) };
        self.fault_count += faults;
        self.push(TimeSlice {
            start_ns: last.at_ns,
            length_ns,
            processor_ns: used + borrowed,
            ready_ns,
            fault_ns: if faults > 0 { rest } else { 0 },
            ..TimeSlice::default()
        });
        self.last = end;
    }

    /// Adds a sample of the processor.
    pub fn sampled(&mut self, at_ns: u64, stack: StackId) {
        if self.samples.len() < SAMPLES {
            self.samples.push((at_ns, stack));
        }
    }

    /// Adds a page fault.
    pub fn faulted(&mut self, fault: MajorFault) {
        if self.faults.len() < SAMPLES {
            self.faults.push(fault);
        }
    }

    /// Adds a sample of short calls.
    pub fn waited_shortly(&mut self, sample: ShortCallSample) {
        if self.short_calls.len() < SAMPLES {
            self.short_calls.push(sample);
        }
    }

    /// Returns the stacks of samples of short calls.
    pub(crate) fn short_stacks(&self) -> impl Iterator<Item = StackId> {
        self.short_calls.iter().filter_map(|sample| sample.call.stack)
    }

    /// Adds a turn of the event loop.
    pub fn turned(&mut self, at_ns: u64) {
        add_turn(&mut self.turns, at_ns);
    }

    /// Adds a look at a ring, which is a turn of the event loop if that waits there.
    pub fn ring_turned(&mut self, at_ns: u64) {
        add_turn(&mut self.ring_turns, at_ns);
    }
}

fn add_turn(turns: &mut Vec<u64>, at_ns: u64) {
    if turns.last().is_none_or(|last| at_ns >= last.saturating_add(TURN_NS)) {
        turns.push(at_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_taken_back_is_that_of_the_latest_slices_and_no_more_than_there_is() {
        let mut timeline = ThreadTimeline::default();
        for (at, processor_ns) in [(0, 5), (10, 3), (20, 0)] {
            timeline.push(TimeSlice {
                start_ns: at,
                length_ns: 10,
                processor_ns,
                ..TimeSlice::default()
            });
        }
        let processor = |timeline: &ThreadTimeline| {
            let slices = timeline.slices.iter();
            slices.map(|slice| slice.processor_ns).collect::<Vec<u64>>()
        };
        timeline.take_back(1);
        assert_eq!(processor(&timeline), [5, 2, 0]);
        timeline.turn_into_ready(3);
        assert_eq!(processor(&timeline), [4, 0, 0]);
        let ready: Vec<u64> = timeline.slices.iter().map(|slice| slice.ready_ns).collect();
        assert_eq!(ready, [1, 2, 0]);
        timeline.take_back(9);
        assert_eq!(processor(&timeline), [0, 0, 0]);
        // At its end it had run for 3 of the 9 that were counted, and could run for 4.
        timeline.slices[1].processor_ns = 9;
        timeline.last = ThreadCounters { at_ns: 30, processor_ns: 9, ready_ns: 0, faults: 0 };
        timeline.end(ThreadCounters { at_ns: 40, processor_ns: 3, ready_ns: 4, faults: 0 });
        let sums = timeline
            .slices
            .iter()
            .fold((0, 0), |(ran, ready), slice| (ran + slice.processor_ns, ready + slice.ready_ns));
        // What is behind the last slice ran up to the end.
        assert_eq!(sums, (3 + 10, 3 + 4));
    }

    #[test]
    fn slices_of_one_kind_are_one_and_sums_stay() {
        let mut timeline = ThreadTimeline::default();
        for at in 0..10 {
            let slice = TimeSlice { start_ns: at * MS, length_ns: MS, ..TimeSlice::default() };
            let processor_ns = if at < 5 { MS } else { 0 };
            timeline.push(TimeSlice { processor_ns, ..slice });
        }
        assert_eq!(timeline.slices.len(), 2);
        assert_eq!(timeline.slices[0].processor_ns, 5 * MS);
        assert_eq!(timeline.slices[1].end_ns(), 10 * MS);
        for at in 10..SLICES as u64 * 2 {
            let slice = TimeSlice { start_ns: at * MS, length_ns: MS, ..TimeSlice::default() };
            timeline.push(TimeSlice { processor_ns: at % 2 * MS, ..slice });
        }
        assert!(timeline.slices.len() <= SLICES);
        let sum: u64 = timeline.slices.iter().map(|slice| slice.processor_ns).sum();
        assert_eq!(sum, (5 + (SLICES as u64 * 2 - 10) / 2) * MS, "nothing is lost");
    }

    #[test]
    fn turns_of_a_loop_are_kept_to_a_millisecond() {
        let mut timeline = ThreadTimeline::default();
        (0..100_000).for_each(|at| timeline.turned(at * 1000));
        assert_eq!(timeline.turns.len(), 100);
    }
}
