//! The programs at work: maps made, programs loaded and attached, results read.
//!
//! All of it hangs on our descriptors. When they are closed, by us or because we were killed, the kernel takes the programs
//! off and forgets the maps; a watched program never notices.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sys::bpf::btf::KernelTypesError;
use sys::bpf::owner::{OwnerPlan, SessionOwner};
use sys::bpf::record::{long, word};
use sys::bpf::{
    AttachedPrograms, Instruction, LoadError, Map, MapKind, ProgramKind, Ring, SharedMap,
};

use crate::fields::KernelOffsets;
use crate::layout::{self, CALLS, filter, record, shared, table, thread};
use crate::programs::{KEPT, KernelStacks, ProgramPlan, SharedMaps, WakeupPolicy, WatchedThreads};
use crate::record::{BpfRecord, ThreadTotals};
use crate::totals::{Total, total};
use sys::syscall::{EVENT_WAITS, SLEEPS, call_number};
use sys::syscall_set::{ArgumentRole, Set, roles, waits_in_memory};

/// The settings of a session.
#[derive(Clone, Copy, Debug)]
pub struct BpfSettings<'a> {
    /// The calls that are counted. With the usual waits among them, and all threads watched, main threads' waits for locks of 4 ms
    /// and more are reported, too, which are not.
    pub calls: &'a Set,
    /// The threshold in nanoseconds from which calls are reported individually.
    pub threshold_ns: u64,
    /// Calls that are reported individually however short they are, the first few of them.
    pub kept: &'a [u32],
    /// Which threads are watched.
    pub threads: WatchedThreads,
    /// Whether slow calls come with a copy of the stack.
    pub stacks: KernelStacks,
    /// Bytes of the ring, a power of two of at least a page.
    pub ring_bytes: u32,
    /// How soon the reader is woken.
    pub wakes: WakeupPolicy,
    /// Whose processes are recorded, and in how much memory of the kernel; `None` for everybody's.
    pub owner: Option<SessionOwner>,
}

/// The most pairs of thread and call that are counted apart; some 45 MB when all are used.
const TOTALS: u32 = 65_536;
/// The most processes that are watched at a time.
const PROCESSES: u32 = 65_536;
/// The most pairs of call and error.
const ERRORS: u32 = 8_192;
/// The most pairs of thread and call of a session that a service has for a user; some 12 MB when all are used.
const TOTALS_OF_USER: u32 = 16_384;
/// The most processes of such a session.
const PROCESSES_OF_USER: u32 = 8_192;

/// The beginning of the observation of a process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchStart {
    /// From now on.
    Now,
    /// From its next `execve` on, that call included.
    Exec,
}

/// The state of an observed thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ThreadState {
    /// In a watched call.
    Inside {
        /// Its number.
        number: u32,
        /// When it began, of the monotonic clock.
        start_ns: u64,
    },
    /// In none.
    Outside,
    /// It has made no watched call since it is watched.
    Unknown,
}

/// Counters of losses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LossCounters {
    /// Slow calls that found no room in the ring: they are in the totals only.
    pub lost_calls: u64,
    /// Forks, execs and exits that found no room.
    pub lost_lives: u64,
    /// Calls that were counted without their thread.
    pub without_thread: u64,
    /// Calls that were not counted, because memory was short or the program already ran.
    pub not_counted: u64,
    /// Calls of 32-bit code, which were not counted.
    pub other_numbers: u64,
    /// Slow calls without their stack, because the ring was too full.
    pub stacks_left_out: u64,
    /// Processes that are not observed, because the filter was full.
    pub processes_left_out: u64,
    /// Calls of D-Bus that found no room: a wait for their answers is told without its request.
    pub lost_messages: u64,
    /// Processes that executed a program which the session's owner may not look into, and were not recorded from then on.
    pub left_with_other_rights: u64,
}

impl LossCounters {
    /// How many counters there are.
    pub(crate) const COUNT: usize = 9;

    /// The counters in the order of their numbers.
    fn each(&mut self) -> [&mut u64; LossCounters::COUNT] {
        [
            &mut self.lost_calls,
            &mut self.lost_lives,
            &mut self.without_thread,
            &mut self.not_counted,
            &mut self.other_numbers,
            &mut self.stacks_left_out,
            &mut self.processes_left_out,
            &mut self.lost_messages,
            &mut self.left_with_other_rights,
        ]
    }

    /// Returns them as numbers.
    pub(crate) fn numbers(mut self) -> [u64; LossCounters::COUNT] {
        self.each().map(|counter| *counter)
    }

    /// Returns the counters with these numbers.
    pub(crate) fn from_numbers(numbers: [u64; LossCounters::COUNT]) -> LossCounters {
        let mut counters = LossCounters::default();
        for (counter, number) in counters.each().into_iter().zip(numbers) {
            *counter = number;
        }
        counters
    }
}

/// Programs in the kernel that watch processes.
#[derive(Debug)]
pub struct BpfSession {
    // They go first: what the others hold is in use as long as they are there.
    programs: AttachedPrograms,
    filter: Map,
    threads: Map,
    totals: Map,
    overflow: Map,
    errors: Map,
    words: Map,
    ring: Ring,
    _zero: Map,
    _table: Map,
    _scratch: Map,
}

/// Returns the table of calls: which are watched, and which arguments are paths and descriptors.
fn call_table(calls: &Set, threads: WatchedThreads) -> Vec<u8> {
    let tells_locks = threads == WatchedThreads::All && calls.has_waits();
    let mut bytes = Vec::new();
    for number in 0..CALLS {
        let mut entry = [table::UNWATCHED, 0, 0, 0];
        if calls.contains(number) {
            let column = |nth: usize, wanted: &[ArgumentRole]| {
                let mut found =
                    (1_u8..).zip(roles(number)).filter(|(_, role)| wanted.contains(role));
                found.nth(nth).map_or(0, |(position, _)| position)
            };
            let descriptors = [ArgumentRole::Descriptor, ArgumentRole::Directory];
            let polled = column(0, &[ArgumentRole::PollList]) > 0;
            entry = [
                table::WATCHED,
                column(0, &[ArgumentRole::Path]),
                column(1, &[ArgumentRole::Path]),
                if polled { table::POLLED } else { column(0, &descriptors) },
            ];
        } else if tells_locks && waits_in_memory(number) {
            entry = [table::LONG_ONLY, 0, 0, 0];
        }
        bytes.extend(entry);
    }
    // These end an interrupted call, whatever is watched.
    for name in ["rt_sigreturn", "restart_syscall"] {
        let at = call_number(name).and_then(|number| usize::try_from(number * table::ENTRY).ok());
        if let Some(watch) = at.and_then(|at| bytes.get_mut(at))
            && (*watch == table::UNWATCHED || name == "restart_syscall")
        {
            *watch = table::CONTROL;
        }
    }
    bytes
}

/// Returns the first few of these numbers.
fn kept(numbers: &[u32]) -> [i32; KEPT] {
    let mut numbers = numbers.iter().filter_map(|number| i32::try_from(*number).ok());
    std::array::from_fn(|_| numbers.next().unwrap_or(-1))
}

fn number_of(name: &str) -> i32 {
    // A number that no call has stands for a call that this architecture has not.
    call_number(name).and_then(|number| i32::try_from(number).ok()).unwrap_or(i32::MAX)
}

/// Returns whether a map can be made, which takes the same rights as a program but for `CAP_PERFMON`.
pub fn is_allowed() -> bool {
    cfg!(target_arch = "x86_64")
        && sys::bpf::is_in_first_namespace()
        && std::fs::exists(sys::bpf::btf::PATH).unwrap_or(false)
        && Map::new(MapKind::TaskStorage, "unjank_test", 4, 8, 0).is_ok()
}

impl BpfSession {
    /// Puts the programs into the kernel. They watch nothing yet.
    ///
    /// # Errors
    ///
    /// [`LoadError`]: nothing is left in the kernel.
    pub fn load(settings: &BpfSettings<'_>) -> Result<BpfSession, LoadError> {
        let ring = Ring::for_programs("unjank_ring", settings.ring_bytes)?;
        let fields = KernelOffsets::of_this_kernel()?;
        BpfSession::load_for(settings, fields, ring)
    }

    fn load_for(
        settings: &BpfSettings<'_>,
        fields: KernelOffsets,
        ring: Ring,
    ) -> Result<BpfSession, LoadError> {
        let (processes, pairs) = match settings.owner {
            None => (PROCESSES, TOTALS),
            Some(_) => (PROCESSES_OF_USER, TOTALS_OF_USER),
        };
        let calls = Map::for_programs(MapKind::Array, "unjank_calls", 4, CALLS * table::ENTRY, 1)?;
        let zero = Map::for_programs(MapKind::Array, "unjank_zero", 4, layout::total::SIZE, 1)?;
        let scratch =
            Map::for_programs(MapKind::PerCpuArray, "unjank_room", 4, layout::scratch::SIZE, 1)?;
        let mut session = BpfSession {
            programs: AttachedPrograms::default(),
            filter: Map::for_programs(MapKind::Hash, "unjank_filter", 4, 4, processes)?,
            threads: Map::for_programs(MapKind::TaskStorage, "unjank_threads", 4, thread::SIZE, 0)?,
            totals: Map::for_programs(
                MapKind::Hash,
                "unjank_totals",
                8,
                layout::total::SIZE,
                pairs,
            )?,
            overflow: Map::for_programs(
                MapKind::PerCpuArray,
                "unjank_more",
                4,
                layout::total::SIZE,
                CALLS,
            )?,
            errors: Map::for_programs(MapKind::Hash, "unjank_errors", 8, 8, ERRORS)?,
            words: Map::for_programs(MapKind::Array, "unjank_words", 4, shared::SIZE, 1)?,
            ring,
            _zero: zero,
            _table: calls,
            _scratch: scratch,
        };
        let first = 0_u32.to_ne_bytes();
        let table = call_table(settings.calls, settings.threads);
        session
            ._table
            .set(&first, &table)
            .map_err(|source| LoadError::of_map("unjank_calls", source))?;
        let plan = session.plan(fields, settings)?;
        session.attach_all(&plan, settings.calls)?;
        Ok(session)
    }

    fn plan(
        &self,
        fields: KernelOffsets,
        settings: &BpfSettings<'_>,
    ) -> Result<ProgramPlan, LoadError> {
        let owner = settings.owner.map(|owner| match fields.owner {
            Some(fields) => Ok(OwnerPlan { owner, fields }),
            None => Err(KernelTypesError::Missing("cred")),
        });
        Ok(ProgramPlan {
            fields,
            maps: SharedMaps {
                table: (&self._table).into(),
                filter: (&self.filter).into(),
                threads: (&self.threads).into(),
                totals: (&self.totals).into(),
                overflow: (&self.overflow).into(),
                zero: (&self._zero).into(),
                errors: (&self.errors).into(),
                scratch: (&self._scratch).into(),
                words: (&self.words).into(),
                ring: self.ring.map().into(),
            },
            threshold_ns: settings.threshold_ns,
            kept: kept(settings.kept),
            ring_bytes: settings.ring_bytes,
            threads: settings.threads,
            stacks: settings.stacks,
            wakes: settings.wakes,
            owner: owner.transpose()?,
            execs: [number_of("execve"), number_of("execveat")],
            restart: number_of("restart_syscall"),
            futex: number_of("futex"),
            senders: ["sendmsg", "sendto"].map(number_of),
            opens: ["open", "openat", "openat2", "creat"].map(number_of),
            selects: ["select", "pselect6"].map(number_of),
            connect: number_of("connect"),
            event_waits: EVENT_WAITS.map(number_of),
            sleeps: SLEEPS.map(|call| number_of(call.name)),
        })
    }

    fn attach_all(&mut self, plan: &ProgramPlan, calls: &Set) -> Result<(), LoadError> {
        let points = plan.fields.tracepoints;
        let mut programs = vec![
            ("unjank_fork", points.sched_process_fork, plan.process_fork()?),
            ("unjank_exec", points.sched_process_exec, plan.process_exec()?),
            ("unjank_end", points.sched_process_exit, plan.process_exit()?),
            ("unjank_exit", points.sys_exit, plan.exit()?),
            ("unjank_enter", points.sys_enter, plan.enter()?),
        ];
        if u32::try_from(plan.futex).is_ok_and(|futex| calls.contains(futex)) {
            programs.push(("unjank_waking", points.sched_waking, plan.waking()?));
        }
        for (name, point, instructions) in programs {
            self.attach(name, point, &instructions)?;
        }
        Ok(())
    }

    fn attach(
        &mut self,
        name: &'static str,
        point: u32,
        instructions: &[Instruction],
    ) -> Result<(), LoadError> {
        let kind = ProgramKind::TypedTracepoint(point);
        Ok(self.programs.attach(kind, name, instructions)?)
    }

    /// Observes a process, and the processes that it starts from now on.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`: too many are watched.
    pub fn watch(&self, process: u32, from: WatchStart) -> io::Result<()> {
        let value = match from {
            WatchStart::Now => filter::ACTIVE,
            WatchStart::Exec => filter::FROM_EXEC,
        };
        self.filter.set(&process.to_ne_bytes(), &value.to_ne_bytes())
    }

    /// Records that a thread is in the call `number` since before it was watched, from `now_ns` of the monotonic clock on, so that its end
    /// is told. `queued_ns` is how long it has waited for CPUs in its life. What the kernel knows of the thread by itself stays.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`: `EEXIST` when the thread has made a call since it is watched.
    pub fn adopt(
        &self,
        thread_descriptor: BorrowedFd<'_>,
        [thread, process]: [u32; 2],
        number: u32,
        [now_ns, queued_ns]: [u64; 2],
    ) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let mut value = vec![0; usize::try_from(thread::SIZE).unwrap_or(0)];
        let mut put = |offset: i16, bytes: &[u8]| {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            if let Some(room) = value.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
                room.copy_from_slice(bytes);
            }
        };
        put(thread::START, &now_ns.to_ne_bytes());
        put(thread::DELAY, &queued_ns.to_ne_bytes());
        put(thread::NUMBER, &number.to_ne_bytes());
        put(thread::STATE, &thread::INSIDE.to_ne_bytes());
        put(thread::THREAD, &thread.to_ne_bytes());
        put(thread::PROCESS, &process.to_ne_bytes());
        self.threads.add(&thread_descriptor.as_raw_fd().to_ne_bytes(), &value)
    }

    /// Stops observing a process; the processes that it started are still observed.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn unwatch(&self, process: u32) -> io::Result<()> {
        self.filter.remove(&process.to_ne_bytes())
    }

    /// Returns the processes that are watched and alive.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn watched(&self) -> io::Result<Vec<u32>> {
        let pairs = self.filter.pairs()?;
        Ok(pairs.iter().filter_map(|(key, _)| word(key, 0)).collect())
    }

    /// Returns the filter of processes, for other programs that watch the same ones.
    pub fn filter(&self) -> SharedMap {
        (&self.filter).into()
    }

    /// Gives the records that are there to `each`, at most `most`; returns how many there were.
    pub fn take(&mut self, most: usize, mut each: impl FnMut(BpfRecord<'_>)) -> usize {
        self.ring.take(most, |bytes| {
            // The kernel's programs write nothing else; what is not understood is as good as nothing.
            if let Some(record) = BpfRecord::read(bytes) {
                each(record);
            }
        })
    }

    /// Gives the bytes of each record that is there to `each`, at most `most` of them, until `each` refuses one, which stays. Returns how
    /// many went. [`BpfRecord::read`] reads them.
    pub fn offer(&mut self, most: usize, each: impl FnMut(&[u8]) -> bool) -> usize {
        self.ring.offer(most, each)
    }

    /// Returns whether all records have been taken, those too that are being written.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.ring.is_empty()
    }

    /// Detaches the programs: nothing is counted any more. The totals can still be read.
    pub fn detach(&mut self) {
        self.programs.detach();
    }

    /// Returns the totals of one thread, by call; thread 0 stands for threads beyond the limit.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn totals(&self) -> io::Result<Vec<(u32, u32, Total)>> {
        let mut totals = Vec::new();
        self.visit_totals(|thread, number, total| {
            totals.push((thread, number, total));
            Ok(())
        })?;
        Ok(totals)
    }

    /// Gives the totals of each thread and call to `each`, as [`totals`](Self::totals) returns them; few are held at a time.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`, and the first error of `each`.
    pub fn visit_totals(
        &self,
        mut each: impl FnMut(u32, u32, Total) -> io::Result<()>,
    ) -> io::Result<()> {
        self.totals.visit(|key, value| match word(key, 0).zip(word(key, 4)) {
            Some((thread, number)) => each(thread, number, total(value)),
            None => Ok(()),
        })?;
        if self.words()?[usize::try_from(shared::WITHOUT_THREAD / 8).unwrap_or(0)] > 0 {
            for number in 0..CALLS {
                let Some(value) = self.overflow.get(&number.to_ne_bytes())? else { continue };
                let mut sum = Total::default();
                let size = usize::try_from(layout::total::SIZE).unwrap_or(usize::MAX);
                for one in value.chunks_exact(size.next_multiple_of(8)) {
                    sum.merge(&total(one));
                }
                if sum.count > 0 {
                    each(0, number, sum)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the totals of a thread that has ended, with the calls that it was seen in, so that there is room for others.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn take_totals(&self, thread: u32, seen: &ThreadTotals) -> io::Result<Vec<(u32, Total)>> {
        let mut totals = Vec::new();
        for number in seen.numbers() {
            let mut key = [0; 8];
            key[..4].copy_from_slice(&thread.to_ne_bytes());
            key[4..].copy_from_slice(&number.to_ne_bytes());
            if let Some(value) = self.totals.take(&key)? {
                totals.push((number, total(&value)));
            }
        }
        Ok(totals)
    }

    /// Returns how often each call failed with each error.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn errors(&self) -> io::Result<Vec<(u32, i32, u64)>> {
        let pairs = self.errors.pairs()?.into_iter().filter_map(|(key, value)| {
            let error = i32::try_from(word(&key, 4)?).ok()?;
            Some((word(&key, 0)?, error, long(&value, 0)?))
        });
        Ok(pairs.collect())
    }

    /// Returns the state of the call in which a thread is.
    #[must_use]
    pub fn thread_state(&self, thread_descriptor: BorrowedFd<'_>) -> ThreadState {
        use std::os::fd::AsRawFd;
        let key = thread_descriptor.as_raw_fd().to_ne_bytes();
        let Ok(Some(value)) = self.threads.get(&key) else { return ThreadState::Unknown };
        let at = |offset: i16| usize::try_from(offset).unwrap_or(0);
        let state = word(&value, at(thread::STATE)).map(u32::cast_signed);
        let number = word(&value, at(thread::NUMBER));
        let start_ns = long(&value, at(thread::START));
        match (state, number, start_ns) {
            (Some(state), Some(number), Some(start_ns)) if state != thread::OUTSIDE => {
                ThreadState::Inside { number, start_ns }
            }
            _ => ThreadState::Outside,
        }
    }

    fn words(&self) -> io::Result<[u64; 10]> {
        let value = self.words.get(&0_u32.to_ne_bytes())?.unwrap_or_default();
        let mut words = [0; 10];
        for (index, each) in words.iter_mut().enumerate() {
            *each = long(&value, index * 8).unwrap_or(0);
        }
        Ok(words)
    }

    /// Returns the loss counters.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn faults(&self) -> io::Result<LossCounters> {
        let words = self.words()?;
        let [_, lost_calls, lost_lives, without_thread, failed, other_numbers, ..] = words;
        let [.., stacks, processes, lost_messages, left_with_other_rights] = words;
        let missed = self.programs.missed()?;
        Ok(LossCounters {
            lost_calls,
            lost_lives,
            without_thread,
            not_counted: failed + missed,
            other_numbers,
            stacks_left_out: stacks,
            processes_left_out: processes,
            lost_messages,
            left_with_other_rights,
        })
    }
}

impl AsFd for BpfSession {
    /// Readable when there are records and the programs have woken the reader.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// Returns a descriptor of a thread, by which the kernel finds its state; `None` if it has ended.
#[must_use]
pub fn descriptor(thread: u32) -> Option<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    /// `PIDFD_THREAD`; kernels before 6.9 know descriptors of processes only.
    const OF_THREAD: u32 = 0o200;
    let pid = i32::try_from(thread).ok().and_then(Pid::from_raw)?;
    let of_thread = pidfd_open(pid, PidfdFlags::from_bits_retain(OF_THREAD));
    of_thread.or_else(|_| pidfd_open(pid, PidfdFlags::empty())).ok()
}

/// A record is never larger than the room for it.
const _: () = assert!(record::DATA as u32 + 3 * 4096 + 16_384 <= layout::scratch::ENTRY as u32);
