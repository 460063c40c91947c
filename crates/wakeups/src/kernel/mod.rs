//! Records wake-ups by programs in the kernel, for root or with the capabilities `bpf` and `perfmon`.
//!
//! The programs see every wake-up of the machine. Of each thread they keep who woke it last; waits from a length on come as records.

mod decode;
mod layout;
mod offsets;
mod programs;

use std::io;
use std::time::Duration;

use sys::bpf::owner::{OwnerFields, OwnerPlan, SessionOwner};
use sys::bpf::{AttachedPrograms, LoadError, Map, MapKind, ProgramKind, Ring};

pub use self::decode::read as read_wait;
use self::layout::{processor, shared, thread};
use self::offsets::SchedulerOffsets;
use self::programs::WakeupPlan;
use super::event::ThreadWait;
use super::history::WakeupHistory;

/// Bytes of the ring: room for twelve thousand waits.
const RING: u32 = 4 << 20;
/// The same for one user, and for who follows long waits only, of which there are few: room for eight hundred. All of a ring is in the memory of
/// the process, twice.
const SMALL_RING: u32 = 256 << 10;
/// Waits of this length and longer are few.
const LONG: Duration = Duration::from_millis(1);

/// Waits shorter than this are not recorded each by [`WakeupTracer::load`].
const SHORTEST: Duration = Duration::from_micros(300);

/// Programs in the kernel that record who wakes whom.
#[derive(Debug)]
pub struct WakeupTracer {
    // They go first: what the others hold is in use as long as they are there.
    programs: AttachedPrograms,
    words: Map,
    ring: Ring,
    _threads: Map,
    _processors: Map,
}

impl WakeupTracer {
    /// Begins to record waits of 0.3 ms and longer.
    ///
    /// # Errors
    ///
    /// [`LoadError`]: nothing is recorded.
    pub fn load() -> Result<WakeupTracer, LoadError> {
        WakeupTracer::load_for(SHORTEST)
    }

    /// Begins to record waits of at least this length (at most two seconds). Who looks at long waits only spares the machine the
    /// reports of the short ones.
    ///
    /// # Errors
    ///
    /// [`LoadError`]: nothing is recorded.
    pub fn load_for(shortest: Duration) -> Result<WakeupTracer, LoadError> {
        WakeupTracer::load_with(shortest, None)
    }

    /// As [`WakeupTracer::load_for`] for a user who may not load programs: waits of threads that he could not trace are not recorded,
    /// and of who woke one of his is told no more than that it was somebody else's ([`WakeupSource::is_hidden`]).
    ///
    /// # Errors
    ///
    /// [`LoadError`]: nothing is recorded.
    ///
    /// [`WakeupSource::is_hidden`]: crate::WakeupSource::is_hidden
    pub fn load_of(owner: SessionOwner, shortest: Duration) -> Result<WakeupTracer, LoadError> {
        let fields = OwnerFields::of_this_kernel()?;
        WakeupTracer::load_with(shortest, Some(OwnerPlan { owner, fields }))
    }

    fn load_with(shortest: Duration, owner: Option<OwnerPlan>) -> Result<WakeupTracer, LoadError> {
        let bytes = if owner.is_none() && shortest < LONG { RING } else { SMALL_RING };
        let ring = Ring::for_programs("unjank_wakeups", bytes)?;
        let offsets = SchedulerOffsets::of_this_kernel()?;
        let map = |kind, name, value, entries| Map::for_programs(kind, name, 4, value, entries);
        let threads = map(MapKind::TaskStorage, "unjank_woken", thread::SIZE, 0)?;
        let words = map(MapKind::Array, "unjank_wwords", shared::SIZE, 1)?;
        let mut first = sys::bpf::clock_ns().to_ne_bytes().to_vec();
        first.resize(usize::try_from(shared::SIZE).unwrap_or(0), 0);
        let set = words.set(&0_u32.to_ne_bytes(), &first);
        set.map_err(|source| LoadError::of_map("unjank_wwords", source))?;
        let processors = map(MapKind::PerCpuArray, "unjank_wcpus", processor::SIZE, 1)?;
        let plan = WakeupPlan {
            offsets,
            threads: (&threads).into(),
            words: (&words).into(),
            processors: (&processors).into(),
            ring: ring.map().into(),
            shortest_ns: i32::try_from(shortest.as_nanos()).unwrap_or(i32::MAX),
            owner,
        };
        let mut tracer = WakeupTracer {
            programs: AttachedPrograms::default(),
            words,
            ring,
            _threads: threads,
            _processors: processors,
        };
        let mut programs = Vec::new();
        for (points, both) in offsets.interrupts.into_iter().zip(plan.interrupts()?) {
            // The end first: no beginning is left behind.
            for (point, instructions) in points.into_iter().zip(both).rev() {
                programs.push(("unjank_irq", point, instructions));
            }
        }
        // Waits are noted last: their ends are recorded then.
        programs.push(("unjank_made", offsets.wakeup_new, plan.wakeup_new()?));
        programs.push(("unjank_woken", offsets.waking, plan.waking()?));
        programs.push(("unjank_switch", offsets.switch, plan.switch()?));
        for (name, point, instructions) in programs {
            let kind = ProgramKind::TypedTracepoint(point);
            tracer.programs.attach(kind, name, &instructions)?;
        }
        Ok(tracer)
    }

    /// Stops to record, so that nothing costs anything until [`resume`](WakeupTracer::resume).
    pub fn pause(&mut self) {
        self.programs.detach();
    }

    /// Records again. Waits that go on are recorded from now on.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`: nothing is recorded.
    pub fn resume(&mut self) -> io::Result<()> {
        let first = 0_u32.to_ne_bytes();
        let mut words = self.words.get(&first)?.unwrap_or_default();
        let at = usize::try_from(shared::SINCE).unwrap_or(usize::MAX);
        if let Some(since) = words.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>()) {
            *since = sys::bpf::clock_ns().to_ne_bytes();
        }
        self.words.set(&first, &words)?;
        self.programs.attach_again()
    }

    /// Adds the waits that have ended since the last call to a history; returns how many there were.
    pub fn take(&mut self, history: &mut WakeupHistory) -> usize {
        self.take_each(usize::MAX, |wait| history.add(wait))
    }

    /// Gives each wait that was recorded to `each`, at most `most` of them; returns how many records there were.
    pub fn take_each(&mut self, most: usize, mut each: impl FnMut(ThreadWait)) -> usize {
        self.ring.take(most, |bytes| {
            // The kernel's programs write nothing else; what is not understood is as good as nothing.
            if let Some(wait) = decode::read(bytes) {
                each(wait);
            }
        })
    }

    /// Gives the bytes of each record that is there to `each`, at most `most` of them, until `each` refuses one, which stays. Returns
    /// how many went. [`read_wait`] reads them.
    pub fn offer(&mut self, most: usize, each: impl FnMut(&[u8]) -> bool) -> usize {
        self.ring.offer(most, each)
    }

    /// Returns how many waits were lost: in a full ring, for want of memory, or because a program already ran.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn lost(&self) -> io::Result<u64> {
        let words = self.words.get(&0_u32.to_ne_bytes())?.unwrap_or_default();
        let word = |offset: i16| {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            let eight = words.get(at..).and_then(|rest| rest.first_chunk::<8>());
            eight.map_or(0, |eight| u64::from_ne_bytes(*eight))
        };
        Ok(word(shared::LOST) + word(shared::NOT_KEPT) + self.programs.missed()?)
    }

    /// Detaches the programs: nothing is recorded any more. What was recorded can still be taken.
    pub fn detach(&mut self) {
        self.programs.detach();
    }
}
