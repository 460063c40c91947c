//! Empties the ring into a recording: names processes, follows stacks, and reads the totals at the end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::clock::{Clock, SystemClock};

use super::super::peek::{BlockedSyscall, blocked_syscall};
use super::super::timing::TimeAccountant;
use super::super::{BackendChoice, RecordingLimit, Stacks, TraceOptions, child, procfs};
use super::chains::{ChainLoader, ChainRecorder, MainWait};
use super::kernel_session::KernelSession;
use super::record::{BpfRecord, CallRecord, ShortCalls, ThreadTotals};
use super::session::ThreadState;
use super::work::{WorkContext, WorkLoader, WorkRecorder};
use crate::call::{CallEnd, StackId, TracedCall};
use crate::mark::{self, NOT_FOUND};
use crate::place::{ContextLookup, SyscallContext};
use crate::recorder::TraceRecorder;
use crate::recording::{Backend, Exit, Recording};
use crate::stack::{KnownRegisters, Unwinder};
use crate::syscall::{call_name, runs_program};
use crate::syscall_set::Set;
use crate::timeline::{ShortCallSample, ThreadCounters};

/// The longest time between two reads of the ring without a wake-up.
const REST: Duration = Duration::from_millis(20);

/// How often the observed processes are checked, in case the record of their end was lost.
const CHECK: Duration = Duration::from_millis(500);

/// The age at which a program's mappings are read first, and up to which they are read again, in nanoseconds.
const YOUNG_NS: u64 = 1_000_000;
/// See `YOUNG_NS`.
const GROWN_NS: u64 = 2_000_000_000;

/// The most young processes whose mappings are read.
const YOUNG: usize = 16;

/// The most records that are read before time and `stop` are looked at again.
const AT_ONCE: usize = 4096;

/// The ended threads whose totals stay in the kernel: reading them one by one costs more than all at the end.
const ENDED: usize = 512;

/// The most processes that are waited for although they are not watched any more: each takes a descriptor.
const LEFT: usize = 256;

/// Reads the records of the programs until the end.
#[derive(Debug)]
pub(super) struct Watcher<'a> {
    session: KernelSession,
    options: &'a TraceOptions,
    root: u32,
    /// Readable when the first process has ended: the record of its end may be missing. None if it was gone already.
    root_end: Option<OwnedFd>,
    clock: SystemClock,
    /// The monotonic clock, in nanoseconds, when the recording began.
    began_ns: u64,
    /// The same, since when what the first process does is its own.
    own_since_ns: u64,
    model: ProcessModel,
    time: TimeAccountant,
    /// Threads that ended, with the calls that they have totals of.
    ended: Vec<(u32, ThreadTotals)>,
    has_ended: bool,
    /// Whether the kernel's programs told the end of the first process.
    was_end_recorded: bool,
    /// Processes that are alive and not watched any more, because they run programs with other rights; readable when they end.
    left: HashMap<u32, OwnedFd>,
    /// Follows long waits of main threads.
    chains: ChainRecorder,
    /// Records what the kernel does outside of calls.
    work: WorkRecorder,
}

/// What puts other programs into the kernel meanwhile.
#[derive(Debug)]
pub(super) struct KernelLoaders {
    pub(super) chains: ChainLoader,
    pub(super) work: WorkLoader,
}

/// The model of the observed processes.
#[derive(Debug)]
struct ProcessModel {
    recorder: TraceRecorder,
    unwinder: Unwinder,
    places: ContextLookup,
    /// Live processes, and whether their mappings were read since their last `execve`.
    alive: HashMap<u32, MappingsRead>,
    /// When to read the mappings of a young process: a program that ends soon takes them with it.
    young: BTreeMap<u32, (u64, u64)>,
    stacks: Stacks,
    /// The calls that are counted: of others the kernel's programs report long waits of main threads for locks.
    counted: Set,
    /// Long waits of main threads that are not followed yet.
    waits: Vec<MainWait>,
    /// By thread and beginning, the calls that were recorded as unfinished: they may end while the kernel's programs are taken out.
    unfinished: HashSet<(u32, u64)>,
}

/// Whether a process's mappings are known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum MappingsRead {
    Yes,
    No,
}

impl<'a> Watcher<'a> {
    /// Begins a recording of `root` by `session`, which watches it already.
    pub(super) fn new(
        session: KernelSession,
        loaders: KernelLoaders,
        options: &'a TraceOptions,
        choice: &BackendChoice,
        command: Vec<Vec<u8>>,
        root: u32,
    ) -> Watcher<'a> {
        let chains = ChainRecorder::new(loaders.chains);
        let work = WorkRecorder::new(loaders.work);
        let clock = SystemClock::start();
        let mut recorder = TraceRecorder::new(Backend::Bpf, command, clock.now());
        let began_ns = sys::bpf::clock_ns();
        let time = TimeAccountant::start(&mut recorder, options, began_ns);
        let recording = recorder.recording();
        recording.watched = options.calls.to_string();
        recording.leaves_out_stacks = options.stacks == Stacks::None;
        recording.threshold_ns = u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX);
        recording.notes.push(choice.reason.clone());
        recorder.keep_always(options.kept.clone());
        let process = recorder.process(root);
        process.executable = procfs::executable(root);
        process.command = procfs::command_line(root);
        recorder.thread(root, root, 0);
        let model = ProcessModel {
            recorder,
            unwinder: Unwinder::new(),
            places: ContextLookup::new(),
            alive: HashMap::from([(root, MappingsRead::No)]),
            young: BTreeMap::new(),
            stacks: options.stacks,
            counted: options.calls.clone(),
            waits: Vec::new(),
            unfinished: HashSet::new(),
        };
        Watcher {
            session,
            options,
            root,
            root_end: sys::pidfd::open(root).ok(),
            clock,
            began_ns,
            own_since_ns: began_ns,
            model,
            time,
            ended: Vec::new(),
            has_ended: false,
            was_end_recorded: false,
            left: HashMap::new(),
            chains,
            work,
        }
    }

    /// Notes the threads that the program has already, and the calls that they are in.
    pub(super) fn know_threads(&mut self) {
        let mut adopted = 0_u64;
        // Those that are executed from now on the kernel's programs count.
        let foreign = u64::from(procfs::is_surely_foreign(self.root));
        self.model.recorder.recording().foreign_calls += foreign;
        for thread in procfs::threads(self.root).unwrap_or_default() {
            let name = procfs::thread_name(self.root, thread);
            self.model.recorder.thread(thread, self.root, 0).name = name;
            adopted += u64::from(self.adopt(thread));
        }
        if adopted > 0 {
            let note = procfs::note_of_adopted(adopted);
            self.model.recorder.recording().notes.push(note);
        }
        self.model.read_mappings(self.root);
    }

    /// Enters the call that a thread is in, so that its end is told; since when it is in it is not known.
    fn adopt(&mut self, thread: u32) -> bool {
        let seen = blocked_syscall(self.root, thread);
        let seen = seen.filter(|seen| self.options.calls.contains(seen.number));
        let Some(seen) = seen else { return false };
        let used = procfs::SchedstatFile::open(self.root, thread);
        let queued_ns = used.and_then(|used| used.read()).map_or(0, |used| used.queued_ns);
        let times = [sys::bpf::clock_ns(), queued_ns];
        self.model.places.selects(&SyscallContext {
            process: self.root,
            thread,
            number: seen.number,
            arguments: seen.arguments,
            returned: None,
        });
        // On an error the thread has ended, or has made another call since, which the kernel's programs see.
        self.session.adopt([thread, self.root], seen.number, times).is_ok()
    }

    /// Reads until the observed processes have ended, or `stop` is set; returns whether the first process has ended.
    ///
    /// # Errors
    ///
    /// As `poll(2)` and `bpf(2)`.
    pub(super) fn watch(&mut self, stop: &AtomicBool) -> io::Result<bool> {
        let rest = Timespec { tv_sec: 0, tv_nsec: i64::from(REST.subsec_nanos()) };
        let mut checked = self.clock.monotonic();
        let mut root_is_over = false;
        loop {
            let taken = self.take()?;
            // What was recorded of it before its end has been read now.
            if root_is_over && !self.has_ended && taken < AT_ONCE {
                self.end_root();
            }
            if self.is_over() || stop.load(Ordering::Relaxed) {
                return Ok(self.has_ended);
            }
            let now = self.clock.monotonic();
            if now.saturating_sub(checked) >= CHECK {
                checked = now;
                self.forget_the_dead()?;
            }
            let rest = Timespec {
                tv_nsec: self
                    .model
                    .read_young()
                    .map_or(rest.tv_nsec, |next| next.min(rest.tv_nsec)),
                ..rest
            };
            if taken < AT_ONCE {
                let records = PollFd::from_borrowed_fd(self.session.as_fd(), PollFlags::IN);
                // It stays readable: with what its children do alone the records are waited for.
                let end = self.root_end.as_ref().filter(|_| !self.has_ended);
                let end = end.map(|end| PollFd::new(end, PollFlags::IN));
                let mut wanted: Vec<PollFd<'_>> =
                    [Some(records), end].into_iter().flatten().collect();
                match poll(&mut wanted, Some(&rest)) {
                    Ok(_) => {
                        root_is_over = wanted.get(1).is_some_and(|end| !end.revents().is_empty());
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        match self.options.until {
            RecordingLimit::ProgramEnded => self.has_ended,
            RecordingLimit::AllEnded => self.model.alive.is_empty() && self.left.is_empty(),
        }
    }

    /// Reads the records that are there; returns how many, or [`AT_ONCE`] if there may be more.
    fn take(&mut self) -> io::Result<usize> {
        // First: the callers of a program that has ended are not known any more.
        self.work.take(&mut self.model.work_context(self.began_ns));
        let Watcher { session, model, ended, root, has_ended, began_ns, was_end_recorded, .. } =
            self;
        let taken = session.take(AT_ONCE, |record| match record {
            BpfRecord::Call(call) => model.call(&call, *began_ns),
            BpfRecord::Fork { thread, process, parent, at_ns } => {
                model.born(thread, process, parent, at_ns.saturating_sub(*began_ns));
            }
            BpfRecord::Turn { thread, number, at_ns, .. } => {
                model.recorder.turned(thread, number, at_ns.saturating_sub(*began_ns));
            }
            BpfRecord::Sent { process, at_ns, descriptor, message } => {
                let (places, recorder) = (&mut model.places, &mut model.recorder);
                let at_ns = at_ns.saturating_sub(*began_ns);
                places.sent_message(process, descriptor, message, at_ns, recorder);
            }
            BpfRecord::Exec { process, path, command, .. } => model.exec(process, path, command),
            BpfRecord::Exit {
                thread,
                process,
                at_ns,
                status,
                is_last,
                inside,
                counters: [processor_ns, ready_ns, faults],
                seen,
                name,
            } => {
                let at_ns = at_ns.saturating_sub(*began_ns);
                if thread == process {
                    let counters = ThreadCounters { at_ns, processor_ns, ready_ns, faults };
                    model.recorder.ended_with(thread, counters);
                }
                ended.push((thread, seen));
                model.ended_inside(thread, process, inside, at_ns, *began_ns);
                model.recorder.thread(thread, process, at_ns).name = name.to_vec();
                model.recorder.thread_ended(thread, at_ns);
                if is_last {
                    model.died(process, exit(status), at_ns);
                    *has_ended |= process == *root;
                    *was_end_recorded |= process == *root;
                }
            }
        })?;
        let Watcher { chains, model, options, began_ns, .. } = self;
        let ProcessModel { waits, recorder, .. } = model;
        // Also one that has ended meanwhile.
        let processes = &recorder.recording().processes;
        let is_recorded = |process: u32| processes.contains_key(&process);
        let has_more = chains.follow(waits, &options.calls, *began_ns, is_recorded);
        if self.ended.len() > ENDED {
            self.read_totals_of_ended()?;
        }
        // The mappings of a program that has just begun are read in between.
        Ok(if has_more { AT_ONCE } else { taken })
    }

    /// Takes the totals of ended threads out of the kernel, so that there is always room for new ones.
    fn read_totals_of_ended(&mut self) -> io::Result<()> {
        for (thread, seen) in self.ended.drain(..) {
            for (number, total) in self.session.take_totals(thread, &seen)? {
                self.model.recorder.total(thread, number, &total);
            }
        }
        Ok(())
    }

    /// Drops processes that the filter does not hold any more: the record of their end was lost, or they go on with other rights.
    fn forget_the_dead(&mut self) -> io::Result<()> {
        self.left.retain(|_, end| !has_ended(end.as_fd()));
        let watched = self.session.watched()?;
        let alive = self.model.alive.keys().copied();
        let gone: Vec<u32> = alive.filter(|process| !watched.contains(process)).collect();
        if gone.is_empty() {
            return Ok(());
        }
        // Their records may have come since.
        self.take()?;
        for process in gone {
            if self.model.alive.remove(&process).is_none() {
                continue;
            }
            let has_room = process == self.root || self.left.len() < LEFT;
            match sys::pidfd::open(process) {
                Ok(end) if has_room && !has_ended(end.as_fd()) => {
                    self.left.insert(process, end);
                }
                _ if process == self.root => self.end_root(),
                _ => {}
            }
        }
        Ok(())
    }

    /// The first process has ended. If no record told how, its parent is told, which we may be.
    fn end_root(&mut self) {
        self.has_ended = true;
        self.left.remove(&self.root);
        self.model.alive.remove(&self.root);
        let root = self.model.recorder.process(self.root);
        if root.end_ns.is_none() {
            let at_ns = sys::bpf::clock_ns().saturating_sub(self.began_ns);
            self.model.recorder.process_ended(self.root, child::end(self.root), at_ns);
        }
    }

    /// Says that the process which was held is released now: what it waited for before was us.
    pub(super) fn releases(&mut self) {
        self.own_since_ns = sys::bpf::clock_ns();
    }

    /// Ends the recording: detaches the programs, and reads their totals.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub(super) fn finish(mut self) -> io::Result<Recording> {
        // It is over now: to take the programs out of the kernel takes a while, in which a thread that waits would be in no call.
        let now = sys::bpf::clock_ns();
        self.keep_running_calls(now)?;
        self.session.detach()?;
        self.chains.detach();
        while self.take()? > 0 {}
        let length_ns = now.saturating_sub(self.began_ns);
        for (thread, number, total) in self.session.totals()? {
            self.model.recorder.total(thread, number, &total);
        }
        self.work.finish(&mut self.model.work_context(self.began_ns));
        let began = (self.began_ns, self.own_since_ns);
        self.chains.finish(&mut self.model.recorder, &self.options.calls, began);
        let errors = self.session.errors()?;
        let faults = self.session.faults()?;
        let recording = self.model.recorder.recording();
        for (number, error, count) in errors {
            *recording.errors.entry((number, error)).or_default() += count;
        }
        // Its end is not told either if the record of it found no room.
        let has_root_left = self.left.contains_key(&self.root)
            || (self.has_ended && !self.was_end_recorded && faults.lost_lives == 0);
        super::notes::tell_losses(recording, &faults, has_root_left);
        Ok(self.time.finish(self.model.recorder, length_ns))
    }

    /// Records the calls that are unfinished `now`, with their state as sampled from outside.
    fn keep_running_calls(&mut self, now: u64) -> io::Result<()> {
        let processes: Vec<u32> = self.model.alive.keys().copied().collect();
        for process in processes {
            for thread in procfs::threads(process).unwrap_or_default() {
                let name = procfs::thread_name(process, thread);
                self.model.recorder.thread(thread, process, 0).name = name;
                let seen = blocked_syscall(process, thread);
                let (number, start_ns) = match self.session.thread_state(thread)? {
                    ThreadState::Inside { number, start_ns }
                        if self.options.calls.contains(number) =>
                    {
                        (number, start_ns)
                    }
                    // Looks from outside tell the wait of another call.
                    ThreadState::Inside { .. } | ThreadState::Outside => continue,
                    // It has been in its call since before it was watched.
                    ThreadState::Unknown => match seen {
                        Some(seen) if self.options.calls.contains(seen.number) => {
                            (seen.number, self.began_ns)
                        }
                        _ => continue,
                    },
                };
                let seen = seen.filter(|seen| seen.number == number);
                let start = start_ns.saturating_sub(self.began_ns);
                self.model.unfinished.insert((thread, start));
                let wall_ns = now.saturating_sub(start_ns);
                self.model.running(
                    UnfinishedCall { process, thread, number, seen },
                    start,
                    wall_ns,
                );
            }
        }
        Ok(())
    }
}

/// Returns whether the process of a descriptor has ended.
fn has_ended(end: BorrowedFd<'_>) -> bool {
    let mut wanted = [PollFd::from_borrowed_fd(end, PollFlags::IN)];
    poll(&mut wanted, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
}

/// A call that has not ended.
#[derive(Clone, Copy, Debug)]
struct UnfinishedCall {
    process: u32,
    thread: u32,
    number: u32,
    /// The call as sampled from outside, if the thread is blocked.
    seen: Option<BlockedSyscall>,
}

/// Reads a status as of `wait(2)`.
fn exit(status: u32) -> Exit {
    let (signal, code) = (status & 0x7f, status >> 8 & 0xff);
    if signal == 0 { Exit::Code(code.cast_signed()) } else { Exit::Signal(signal.cast_signed()) }
}

impl ProcessModel {
    fn work_context(&mut self, began_ns: u64) -> WorkContext<'_> {
        WorkContext {
            recorder: &mut self.recorder,
            places: &mut self.places,
            unwinder: &mut self.unwinder,
            began_ns,
        }
    }

    fn read_mappings(&mut self, process: u32) {
        if self.stacks != Stacks::None {
            self.unwinder.read_mappings(process);
            self.alive.insert(process, MappingsRead::Yes);
        }
    }

    /// Reads the mappings of young processes that are due, and returns the nanoseconds to the next one.
    fn read_young(&mut self) -> Option<i64> {
        let now = sys::bpf::clock_ns();
        let due = self.young.iter().filter(|(_, (at, _))| *at <= now).map(|(process, _)| *process);
        for process in due.take(YOUNG).collect::<Vec<u32>>() {
            self.unwinder.refresh_mappings(process);
            self.alive.entry(process).and_modify(|read| *read = MappingsRead::Yes);
            // Twice as old the next time: soon all libraries are there.
            match self.young.get(&process).map(|(_, age)| 2 * age) {
                Some(age) if age <= GROWN_NS => {
                    self.young.insert(process, (now + age / 2, age));
                }
                _ => {
                    self.young.remove(&process);
                }
            }
        }
        let next = self.young.values().map(|(at, _)| at.saturating_sub(now)).min()?;
        i64::try_from(next).ok()
    }

    fn born(&mut self, thread: u32, process: u32, parent: u32, at_ns: u64) {
        if process != parent {
            let of_parent = self.recorder.process(parent);
            let (executable, command) = (of_parent.executable.clone(), of_parent.command.clone());
            let born = self.recorder.process(process);
            born.parent = Some(parent);
            born.start_ns = at_ns;
            born.executable = executable;
            born.command = command;
            // It may be gone, or run another program, before we could ask what it has mapped.
            self.unwinder.inherit(parent, process);
            self.alive.insert(process, MappingsRead::No);
        }
        self.recorder.thread(thread, process, at_ns);
    }

    fn exec(&mut self, process: u32, path: &[u8], command: &[u8]) {
        self.unwinder.forget(process);
        self.places.forget(process);
        self.alive.insert(process, MappingsRead::No);
        if self.stacks != Stacks::None && self.young.len() < YOUNG {
            self.young.insert(process, (sys::bpf::clock_ns() + YOUNG_NS, YOUNG_NS));
        }
        let known = self.recorder.process(process);
        known.executable = path.to_vec();
        let command = command.strip_suffix(&[0]).unwrap_or(command);
        known.command = command.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        // The kernel keeps fifteen bytes of it.
        let name = name.get(..15).unwrap_or(name).to_vec();
        self.recorder.thread(process, process, 0).name = name;
    }

    fn died(&mut self, process: u32, exit: Exit, at_ns: u64) {
        self.alive.remove(&process);
        self.young.remove(&process);
        self.recorder.process_ended(process, Some(exit), at_ns);
        self.unwinder.forget(process);
        self.places.forget(process);
    }

    /// A thread ended in a call: it has no result.
    fn ended_inside(
        &mut self,
        thread: u32,
        process: u32,
        inside: Option<(u32, u64)>,
        at_ns: u64,
        began_ns: u64,
    ) {
        let Some((number, start)) = inside else { return };
        let start_ns = start.saturating_sub(began_ns);
        if !self.counted.contains(number) || self.unfinished.contains(&(thread, start_ns)) {
            // What it waited for, looks from outside tell.
            return;
        }
        let wall_ns = at_ns.saturating_sub(start_ns);
        if self.recorder.is_slow(wall_ns)
            && !matches!(call_name(number), Some("exit" | "exit_group"))
        {
            self.recorder.keep(TracedCall {
                process,
                thread,
                number,
                arguments: [0; 6],
                outcome: CallEnd::Unknown,
                start_ns,
                wall_ns,
                cpu_ns: None,
                queued_ns: None,
                stack: None,
                target: None,
            });
        }
    }

    fn call(&mut self, call: &CallRecord<'_>, began_ns: u64) {
        if outcome(call.result) == CallEnd::Failed(NOT_FOUND)
            && let Some(name) = call.first_path.and_then(mark::name_of)
        {
            let end_ns = call.start_ns.saturating_add(call.wall_ns).saturating_sub(began_ns);
            self.recorder.mark(name, call.process, end_ns);
        }
        // Of a call that is not counted the wake-ups themselves tell the wait.
        if self.counted.contains(call.number) {
            self.waits.extend(MainWait::of(call, began_ns));
        }
        if self.unfinished.contains(&(call.thread, call.start_ns.saturating_sub(began_ns))) {
            return;
        }
        let is_slow = self.recorder.is_kept(call.number, call.wall_ns);
        if !is_slow && call.short.is_none() && self.stacks != Stacks::All {
            return;
        }
        let stack = self.stack(call);
        let target = super::target::recorded(call, &mut self.places, &mut self.recorder);
        self.recorder.thread(call.thread, call.process, 0);
        let traced = TracedCall {
            process: call.process,
            thread: call.thread,
            number: call.number,
            arguments: call.arguments,
            outcome: outcome(call.result),
            start_ns: call.start_ns.saturating_sub(began_ns),
            wall_ns: call.wall_ns,
            cpu_ns: Some(call.cpu_ns),
            queued_ns: Some(call.queued_ns),
            stack,
            target,
        };
        match call.short {
            Some(ShortCalls { blocked_ns, count }) => {
                self.recorder.waited_shortly(ShortCallSample { call: traced, blocked_ns, count });
            }
            None => self.recorder.keep(traced),
        }
    }

    fn stack(&mut self, call: &CallRecord<'_>) -> Option<StackId> {
        let [ip, sp, bp, kept @ ..] = call.registers?;
        let registers = KnownRegisters::new(ip, sp).bp(bp).kept(kept);
        let (unwinder, recorder) = (&mut self.unwinder, &mut self.recorder);
        let stack = unwinder.offline(call.process, &registers, call.stack, recorder);
        self.alive.entry(call.process).and_modify(|looked| *looked = MappingsRead::Yes);
        Some(stack)
    }

    fn running(&mut self, running: UnfinishedCall, start_ns: u64, wall_ns: u64) {
        let UnfinishedCall { process, thread, number, seen } = running;
        let wants =
            self.stacks != Stacks::None && self.recorder.is_slow(wall_ns) && !runs_program(number);
        let (unwinder, recorder) = (&mut self.unwinder, &mut self.recorder);
        let readable = seen.filter(|_| !procfs::hangs(process));
        let stack = readable.filter(|_| wants).map(|seen| {
            unwinder.capture(process, &KnownRegisters::new(seen.ip, seen.sp), recorder)
        });
        let arguments = seen.map_or([0; 6], |seen| seen.arguments);
        let made = SyscallContext { process, thread, number, arguments, returned: None };
        let target = readable.and_then(|_| self.places.target(&made, &mut self.recorder));
        self.recorder.keep(TracedCall {
            process,
            thread,
            number,
            arguments,
            outcome: CallEnd::Running,
            start_ns,
            wall_ns,
            cpu_ns: None,
            queued_ns: None,
            stack,
            target,
        });
    }
}

fn outcome(result: i64) -> CallEnd {
    match i32::try_from(result) {
        Ok(error @ -4095..=-1) => CallEnd::Failed(-error),
        _ => CallEnd::Returned(result),
    }
}
