//! Records operations of `io_uring` and work for memory by programs in the kernel, for root or with the capabilities `bpf` and `perfmon`.
//!
//! The programs watch the processes of a filter that the caller keeps: a map from the numbers of processes to anything.

mod decode;
mod layout;
mod memory_programs;
mod names;
mod offsets;
mod programs;

use std::collections::HashMap;
use std::io;

use sys::bpf::assembler::AssembleError;
use sys::bpf::owner::{OwnerFields, OwnerPlan, SessionOwner};
use sys::bpf::{
    AttachError, AttachedPrograms, Instruction, LoadError, Map, MapKind, ProgramKind, Ring,
    SharedMap,
};

use self::layout::{began, flight, key, record, room, shared, total};
use self::memory_programs::work;
use self::offsets::{RingOffsets, WorkOffsets, WorkPoint};
use self::programs::WorkPlan;
use crate::memory::MemoryWait;
use crate::operation::{OperationTotal, RingOperation};

/// How much there is room for.
#[derive(Clone, Copy, Debug)]
struct WorkRoom {
    /// Bytes of the ring.
    ring: u32,
    /// The most operations in flight at a time.
    flights: u32,
    /// The most sums: pairs of an operation and a file.
    totals: u32,
    /// The most threads that work for memory at a time.
    workers: u32,
}

/// For who follows a program from its beginning to its end.
const WHOLE: WorkRoom = WorkRoom { ring: 2 << 20, flights: 65_536, totals: 16_384, workers: 8_192 };
/// For who looks at the operations of a few processes for a moment.
const SMALL: WorkRoom = WorkRoom { ring: 256 << 10, flights: 1_024, totals: 1_024, workers: 1 };

/// A ring that was made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NewRing {
    /// The process.
    pub process: u32,
    /// The kernel's address of it.
    pub ring: u64,
    /// Its descriptor.
    pub descriptor: i32,
    /// The flags that it was made with: `IORING_SETUP_…`.
    pub flags: u32,
    /// When, of the monotonic clock in nanoseconds.
    pub at_ns: u64,
}

/// An operation that has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OperationRecord {
    /// The operation.
    pub operation: RingOperation,
    /// Whether it took as long as the threshold; others are told for their file alone.
    pub is_slow: bool,
    /// Of a file that was not told before, what `readlink /proc/PID/fd/N` said of it then.
    pub link: Option<Vec<u8>>,
    /// The number of its mount, with `link`.
    pub mount: u32,
}

/// A time in which the kernel worked for memory in a main thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MemoryRecord<'a> {
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// What it was and how long it took, of the monotonic clock.
    pub wait: MemoryWait,
    /// Of reclaim, how many pages were taken back.
    pub pages: u64,
    /// Of a fault, the address that was touched. It is a swap-in only if no file is mapped there.
    pub address: Option<u64>,
    /// Instruction and stack pointer, frame pointer and the other kept registers, where the stack was copied.
    pub registers: Option<[u64; 8]>,
    /// The stack.
    pub stack: &'a [u8],
    /// How many works of about this length the stack stands for: of the short ones only some are copied.
    pub stands_for: u64,
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkRecord<'a> {
    /// An operation has ended.
    Operation(OperationRecord),
    /// A ring was made.
    Created(NewRing),
    /// A ring tells of completions by an event counter from now on.
    Counter {
        /// The process.
        process: u32,
        /// The ring.
        ring: u64,
    },
    /// Work for memory has ended.
    Memory(MemoryRecord<'a>),
}

impl<'a> WorkRecord<'a> {
    /// Reads a record of [`WorkTracer::offer_numbered`]; none for bytes that are none.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<WorkRecord<'a>> {
        decode::read(bytes)
    }
}

/// Counters of losses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WorkLosses {
    /// Records that found no room in the ring.
    pub records: u64,
    /// Operations that were not followed, because there were too many at a time, or because a program already ran.
    pub not_followed: u64,
    /// Operations that are in no sum, because there were too many files.
    pub not_summed: u64,
}

/// Programs in the kernel that record its work for processes.
#[derive(Debug)]
pub struct WorkTracer {
    // They go first: what the others hold is in use as long as they are there.
    programs: AttachedPrograms,
    flights: Map,
    totals: Map,
    words: Map,
    ring: Ring,
    _began: Map,
    _room: Map,
    /// The numbers of rings in place of their addresses.
    rings: RingNumbers,
    /// What this kernel does not tell.
    unseen: Vec<String>,
}

/// The most rings that are told apart at a time.
const RINGS: usize = 4096;

/// Numbers of rings, which stand for their addresses: no two rings have had the same one.
#[derive(Debug, Default)]
struct RingNumbers {
    numbers: HashMap<u64, u64>,
    next: u64,
}

impl RingNumbers {
    /// Returns the number of the ring at an address.
    fn of(&mut self, address: u64) -> u64 {
        if let Some(number) = self.numbers.get(&address) {
            return *number;
        }
        if self.numbers.len() >= RINGS {
            self.numbers.clear();
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.numbers.insert(address, number);
        number
    }

    /// Puts the number of a ring in place of its address.
    fn hide(&mut self, record: &mut [u8]) {
        let at = usize::from(record::RING.unsigned_abs());
        if let Some(address) = record.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>()) {
            *address = self.of(u64::from_ne_bytes(*address)).to_ne_bytes();
        }
    }
}

/// Returns whether the machine has a swap.
#[must_use]
pub fn has_swap() -> bool {
    // The first line is a heading.
    std::fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().nth(1).is_some())
}

impl WorkTracer {
    /// Begins to record the processes in `filter`, a hash of numbers of processes that stays open as long as this.
    ///
    /// Operations from `threshold_ns` on are told each; all are in the sums. What an older kernel does not tell is in
    /// [`unseen`](WorkTracer::unseen), and the rest is recorded.
    ///
    /// # Errors
    ///
    /// [`LoadError`]: nothing is recorded.
    pub fn load(filter: SharedMap, threshold_ns: u64) -> Result<WorkTracer, LoadError> {
        let (mut tracer, plan, offsets) = WorkTracer::prepare(filter, threshold_ns, WHOLE)?;
        tracer.attach_operations(&plan, &offsets)?;
        match &offsets.reclaim {
            Ok(points) => tracer.load_reclaim(&plan, points)?,
            Err(what) => tracer.is_unseen("the reclaim of memory", what),
        }
        match offsets.faults {
            // Without a swap nothing is read from it, and each fault of the machine would cost a little more.
            Ok(_) if !has_swap() => (),
            Ok(points) => tracer.load_faults(&plan, points)?,
            Err(what) => tracer.is_unseen("reads from swap", what),
        }
        Ok(tracer)
    }

    /// Begins to record operations of `io_uring` alone, with room for those of a few processes at a time.
    ///
    /// # Errors
    ///
    /// As [`WorkTracer::load`].
    pub fn load_operations(filter: SharedMap, threshold_ns: u64) -> Result<WorkTracer, LoadError> {
        let (mut tracer, plan, offsets) = WorkTracer::prepare(filter, threshold_ns, SMALL)?;
        tracer.attach_operations(&plan, &offsets)?;
        Ok(tracer)
    }

    /// As [`WorkTracer::load_operations`], of processes that a user could trace alone: the programs ask that when an operation is
    /// submitted and when it is completed. Operations that another process completes are not told.
    ///
    /// # Errors
    ///
    /// As [`WorkTracer::load`].
    pub fn load_operations_of(
        owner: SessionOwner,
        filter: SharedMap,
        threshold_ns: u64,
    ) -> Result<WorkTracer, LoadError> {
        let fields = OwnerFields::of_this_kernel()?;
        let (mut tracer, plan, offsets) = WorkTracer::prepare(filter, threshold_ns, SMALL)?;
        let plan = WorkPlan { owner: Some(OwnerPlan { owner, fields }), ..plan };
        tracer.attach_operations(&plan, &offsets)?;
        Ok(tracer)
    }

    fn prepare(
        filter: SharedMap,
        threshold_ns: u64,
        has_room: WorkRoom,
    ) -> Result<(WorkTracer, WorkPlan, WorkOffsets), LoadError> {
        let WorkRoom { ring, flights, totals, workers } = has_room;
        let ring = Ring::for_programs("unjank_kernel", ring)?;
        let offsets = WorkOffsets::of_this_kernel()?;
        let map = Map::for_programs;
        let tracer = WorkTracer {
            programs: AttachedPrograms::default(),
            flights: map(MapKind::Hash, "unjank_flights", 8, flight::SIZE, flights)?,
            totals: map(MapKind::Hash, "unjank_opsums", key::SIZE, total::SIZE, totals)?,
            words: map(MapKind::Array, "unjank_kwords", 4, shared::SIZE, 1)?,
            ring,
            _began: map(MapKind::Hash, "unjank_kbegan", 8, began::SIZE, workers)?,
            _room: map(MapKind::PerCpuArray, "unjank_kroom", 4, room::SIZE, room::COUNT)?,
            rings: RingNumbers::default(),
            unseen: Vec::new(),
        };
        let plan = WorkPlan {
            task: offsets.task,
            threshold_ns,
            filter,
            flights: (&tracer.flights).into(),
            totals: (&tracer.totals).into(),
            began: (&tracer._began).into(),
            room: (&tracer._room).into(),
            words: (&tracer.words).into(),
            ring: tracer.ring.map().into(),
            owner: None,
        };
        Ok((tracer, plan, offsets))
    }

    fn attach_operations(
        &mut self,
        plan: &WorkPlan,
        offsets: &WorkOffsets,
    ) -> Result<(), AssembleError> {
        match &offsets.rings {
            Ok(rings) => self.load_rings(plan, rings),
            Err(what) => {
                self.is_unseen("operations of io_uring", what);
                Ok(())
            }
        }
    }

    /// Stops to record, so that nothing costs anything until [`resume`](WorkTracer::resume).
    pub fn pause(&mut self) {
        self.programs.detach();
    }

    /// Records again: operations that are submitted from now on. Each file is told anew.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`: nothing is recorded.
    pub fn resume(&mut self) -> io::Result<()> {
        // Operations that ended meanwhile would be taken for others at the same address.
        for map in [&self.flights, &self.totals] {
            for (key, _) in map.pairs()? {
                map.remove(&key)?;
            }
        }
        self.programs.attach_again()
    }

    fn is_unseen(&mut self, what: &str, missing: &str) {
        self.unseen.push(format!("{what}: this kernel has no {missing} that is known"));
    }

    /// Attaches programs in this order; if the kernel does not take one, says so once, and leaves the others out.
    fn attach(&mut self, what: &str, programs: Vec<(ProgramKind, &str, Vec<Instruction>)>) {
        for (kind, name, instructions) in programs {
            if let Err(error) = self.programs.attach(kind, name, &instructions) {
                let reason = match error {
                    AttachError::Refused { name, log, source } => {
                        let last = log.lines().rev().find(|line| !line.starts_with("processed "));
                        format!("{source} for {name}: {}", last.unwrap_or_default())
                    }
                    error => error.to_string(),
                };
                self.unseen.push(format!("{what}: the kernel did not take a program ({reason})"));
                return;
            }
        }
    }

    fn load_rings(&mut self, plan: &WorkPlan, rings: &RingOffsets) -> Result<(), AssembleError> {
        let at = ProgramKind::TypedTracepoint;
        // What ends first: no operation is kept whose end is not seen.
        let mut programs = vec![(at(rings.complete), "unjank_opend", plan.completed(rings)?)];
        let notes = [(rings.worker, flight::WORKER), (rings.readiness, flight::READINESS)];
        for (point, bit) in notes {
            if let Some(point) = point {
                programs.push((at(point), "unjank_opnote", plan.noted(bit)?));
            }
        }
        // A user who may not trace all is told of operations alone.
        if let Some(point) = rings.create.filter(|_| plan.owner.is_none()) {
            programs.push((at(point), "unjank_ring", plan.created()?));
        }
        if let Some(point) = rings.register.filter(|_| plan.owner.is_none()) {
            programs.push((at(point), "unjank_counter", plan.registered()?));
        }
        programs.push((at(rings.submit), "unjank_opstart", plan.submitted(rings)?));
        self.attach("operations of io_uring", programs);
        Ok(())
    }

    fn load_reclaim(&mut self, plan: &WorkPlan, points: &[WorkPoint]) -> Result<(), AssembleError> {
        let at = ProgramKind::TypedTracepoint;
        let mut programs = Vec::new();
        for point in points {
            let (kind, amount) = if point.is_compaction {
                (work::COMPACTION, None)
            } else {
                (work::RECLAIM, Some(0))
            };
            programs.push((at(point.end), "unjank_memend", plan.work_ends(kind, amount)?));
            programs.push((at(point.begin), "unjank_membegin", plan.work_begins(kind)?));
        }
        self.attach("the reclaim of memory", programs);
        Ok(())
    }

    fn load_faults(&mut self, plan: &WorkPlan, points: [u32; 2]) -> Result<(), AssembleError> {
        let mut programs = vec![(ProgramKind::MajorFault, "unjank_faultend", plan.fault_ends()?)];
        for point in points {
            let kind = ProgramKind::TypedTracepoint(point);
            programs.push((kind, "unjank_fault", plan.fault_begins()?));
        }
        self.attach("reads from swap", programs);
        Ok(())
    }

    /// Returns what this kernel does not tell, a part of a sentence each.
    #[must_use]
    pub fn unseen(&self) -> &[String] {
        &self.unseen
    }

    /// Gives the records that are there to `each`, and returns how many there were.
    pub fn take(&mut self, mut each: impl FnMut(WorkRecord<'_>)) -> usize {
        self.ring.take(usize::MAX, |bytes| {
            // The kernel's programs write nothing else; what is not understood is as good as nothing.
            if let Some(record) = decode::read(bytes) {
                each(record);
            }
        })
    }

    /// As [`Ring::offer`], for who may not know addresses of the kernel: rings are numbered in their place.
    pub fn offer_numbered(&mut self, most: usize, mut each: impl FnMut(&[u8]) -> bool) -> usize {
        let WorkTracer { ring, rings, .. } = self;
        ring.offer(most, |bytes| {
            let mut record = bytes.to_vec();
            rings.hide(&mut record);
            each(&record)
        })
    }

    /// Returns the sums over all operations.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn totals(&self) -> io::Result<Vec<OperationTotal>> {
        let pairs = self.totals.pairs()?;
        Ok(pairs.iter().filter_map(|(key, value)| decode::sum(key, value)).collect())
    }

    /// Returns the operations that run.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn running(&self) -> io::Result<Vec<RingOperation>> {
        let (pairs, now_ns) = (self.flights.pairs()?, sys::bpf::clock_ns());
        Ok(pairs.iter().filter_map(|(_, value)| decode::flight(value, now_ns)).collect())
    }

    /// Returns what was lost.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn losses(&self) -> io::Result<WorkLosses> {
        let words = self.words.get(&0_u32.to_ne_bytes())?.unwrap_or_default();
        let word = |offset: i16| {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            let eight = words.get(at..).and_then(|rest| rest.first_chunk::<8>());
            eight.map_or(0, |eight| u64::from_ne_bytes(*eight))
        };
        Ok(WorkLosses {
            records: word(shared::LOST),
            not_followed: word(shared::NOT_FOLLOWED) + self.programs.missed()?,
            not_summed: word(shared::NOT_SUMMED),
        })
    }

    /// Detaches the programs: nothing is recorded any more. What was recorded can still be taken.
    pub fn detach(&mut self) {
        self.programs.detach();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_a_number_in_place_of_its_address() {
        let at = usize::from(record::RING.unsigned_abs());
        let mut rings = RingNumbers::default();
        let mut told = |address: u64| {
            let mut bytes = vec![7; usize::from(record::DATA.unsigned_abs())];
            bytes[at..at + 8].copy_from_slice(&address.to_ne_bytes());
            rings.hide(&mut bytes);
            assert!(bytes[..at].iter().chain(&bytes[at + 8..]).all(|byte| *byte == 7));
            u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
        };
        const FIRST: u64 = 0xffff_8880_1234_5000;
        assert_eq!([told(FIRST), told(FIRST + 4096), told(FIRST)], [0, 1, 0]);
        // However many there are, no two have the same number.
        for ring in 2..100_000 {
            assert_eq!(told(FIRST + 4096 * ring), ring);
        }
        // A torn record is left as it is.
        RingNumbers::default().hide(&mut [1; 8]);
    }
}
