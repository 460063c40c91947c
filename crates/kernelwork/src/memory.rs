//! What a thread lost to a shortage of memory: reclaim and swap-ins, each moment once.

use std::collections::VecDeque;

/// The most pieces of a timeline; more are put together in pairs.
const PIECES: usize = 50_000;
/// The most pieces that are looked at for being inside of a wait.
const INNER: usize = 64;
/// Waits of one kind closer together than this are one piece, in nanoseconds.
const GAP_NS: u64 = 20_000;
/// A piece of several waits is no longer than this, in nanoseconds.
const LONGEST_NS: u64 = 2_000_000;

/// Why a thread waits for memory.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum MemoryWork {
    /// It takes memory back from others, or from itself, before it gets some.
    Reclaim,
    /// It moves memory together before it gets a large piece.
    Compaction,
    /// It reads its own memory back from swap.
    SwapIn,
}

/// A time in which the kernel worked for memory in a thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MemoryWait {
    /// What for.
    pub work: MemoryWork,
    /// When it began, in nanoseconds of any one clock.
    pub start_ns: u64,
    /// How long it took.
    pub wall_ns: u64,
    /// The part on a processor.
    pub processor_ns: u64,
    /// The part in which the thread could run and had no processor.
    pub ready_ns: u64,
}

/// Sums of what a thread lost, without the time in which it had no processor.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MemorySums {
    /// Reclaim and compaction, on a processor.
    pub reclaim_processor_ns: u64,
    /// Reclaim and compaction, blocked.
    pub reclaim_blocked_ns: u64,
    /// Swap-ins, on a processor.
    pub swap_processor_ns: u64,
    /// Swap-ins, blocked.
    pub swap_blocked_ns: u64,
}

impl MemorySums {
    fn of(values: [u64; 4]) -> MemorySums {
        let [reclaim_processor_ns, reclaim_blocked_ns, swap_processor_ns, swap_blocked_ns] = values;
        MemorySums { reclaim_processor_ns, reclaim_blocked_ns, swap_processor_ns, swap_blocked_ns }
    }

    /// Returns the time on a processor.
    #[must_use]
    pub fn processor_ns(self) -> u64 {
        self.reclaim_processor_ns.saturating_add(self.swap_processor_ns)
    }

    /// Returns the time blocked.
    #[must_use]
    pub fn blocked_ns(self) -> u64 {
        self.reclaim_blocked_ns.saturating_add(self.swap_blocked_ns)
    }
}

/// A piece of a timeline: what was lost from one moment to another; never more than that.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    start_ns: u64,
    end_ns: u64,
    sums: [u64; 4],
}

impl Piece {
    fn add(&mut self, next: &Piece) {
        self.end_ns = self.end_ns.max(next.end_ns);
        for (sum, more) in self.sums.iter_mut().zip(next.sums) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Returns which kinds of work are in it.
    fn kinds(&self) -> [bool; 2] {
        [self.sums[0] + self.sums[1] > 0, self.sums[2] + self.sums[3] > 0]
    }

    /// Cuts it so that it begins at `start_ns`.
    fn cut(mut self, start_ns: u64) -> Option<Piece> {
        if start_ns > self.start_ns {
            let length = self.end_ns - self.start_ns;
            let kept = self.end_ns.saturating_sub(start_ns);
            self.sums = self.sums.map(|sum| share(sum, kept, length));
            self.start_ns = start_ns;
        }
        (self.end_ns > self.start_ns).then_some(self)
    }
}

/// What one thread lost, in the order of time; no moment is in it twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryTimeline {
    pieces: Vec<Piece>,
    /// The last pieces, which may be inside of a wait that has not ended.
    last: VecDeque<Piece>,
    /// How often each kind of work was done, in the order of [`MemoryWork`].
    counts: [u64; 3],
}

impl MemoryTimeline {
    /// Adds a wait.
    ///
    /// Waits come in the order of their ends. One inside of this one came before (a swap-in reclaims memory first), and its time
    /// is not counted again. Of waits that overlap in any other way, which the kernel never tells, the first keeps its time.
    pub fn add(&mut self, wait: &MemoryWait) {
        self.counts[wait.work as usize] += 1;
        let end_ns = wait.start_ns.saturating_add(wait.wall_ns);
        // Time that the host of a virtual machine took counts as run in the processor's clock, and as ready in the other.
        let ready_ns = wait.ready_ns.min(wait.wall_ns);
        let processor_ns = wait.processor_ns.min(wait.wall_ns - ready_ns);
        let blocked_ns = wait.wall_ns - processor_ns - ready_ns;
        let mut inner = Piece { start_ns: wait.start_ns, end_ns, sums: [0; 4] };
        while let Some(last) = self.last.back().filter(|last| last.start_ns >= wait.start_ns) {
            inner.add(last);
            self.last.pop_back();
        }
        let [reclaim_processor, reclaim_blocked, swap_processor, swap_blocked] = inner.sums;
        let room = (inner.end_ns - inner.start_ns).saturating_sub(inner.sums.iter().sum());
        let processor_ns =
            processor_ns.saturating_sub(reclaim_processor + swap_processor).min(room);
        let blocked_ns = blocked_ns.saturating_sub(reclaim_blocked + swap_blocked);
        let blocked_ns = blocked_ns.min(room - processor_ns);
        let own = match wait.work {
            MemoryWork::Reclaim | MemoryWork::Compaction => [processor_ns, blocked_ns, 0, 0],
            MemoryWork::SwapIn => [0, 0, processor_ns, blocked_ns],
        };
        inner.sums.iter_mut().zip(own).for_each(|(sum, more)| *sum += more);
        let before = self.last.back().or_else(|| self.pieces.last());
        let Some(piece) = inner.cut(before.map_or(0, |before| before.end_ns)) else { return };
        self.last.push_back(piece);
        if self.last.len() > INNER
            && let Some(first) = self.last.pop_front()
        {
            self.keep(first);
        }
    }

    fn keep(&mut self, piece: Piece) {
        if let Some(last) = self.pieces.last_mut()
            && last.kinds() == piece.kinds()
            && piece.start_ns.saturating_sub(last.end_ns) < GAP_NS
            && piece.end_ns - last.start_ns < LONGEST_NS
        {
            last.add(&piece);
            return;
        }
        if self.pieces.len() >= PIECES {
            let pairs = self.pieces.chunks(2).map(|pair| {
                let mut sum = pair[0];
                pair.iter().skip(1).for_each(|next| sum.add(next));
                sum
            });
            self.pieces = pairs.collect();
        }
        self.pieces.push(piece);
    }

    /// Returns how often a kind of work was done.
    #[must_use]
    pub fn count(&self, work: MemoryWork) -> u64 {
        self.counts[work as usize]
    }

    /// Returns whether nothing was lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.last.is_empty()
    }

    /// Returns what was lost from one moment to another; of a piece that reaches beyond, its share.
    #[must_use]
    pub fn between(&self, from_ns: u64, to_ns: u64) -> MemorySums {
        let first = self.pieces.partition_point(|piece| piece.end_ns <= from_ns);
        let mut sums = [0_u64; 4];
        let pieces = self.pieces[first..].iter().chain(&self.last);
        for piece in pieces.take_while(|piece| piece.start_ns < to_ns) {
            let length = piece.end_ns - piece.start_ns;
            // The difference of two sums: those of neighbouring times are as much as that of both together.
            let until = |at_ns: u64| at_ns.clamp(piece.start_ns, piece.end_ns) - piece.start_ns;
            for (sum, part) in sums.iter_mut().zip(piece.sums) {
                let more = share(part, until(to_ns), length) - share(part, until(from_ns), length);
                *sum = sum.saturating_add(more);
            }
        }
        MemorySums::of(sums)
    }
}

fn share(part: u64, common: u64, length: u64) -> u64 {
    let share = u128::from(part) * u128::from(common.min(length)) / u128::from(length.max(1));
    u64::try_from(share).unwrap_or(part)
}
