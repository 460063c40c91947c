//! The recorder by looks from outside: through `/proc`, and by what the kernel lets a user's own programs announce.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use sys::clock::Clock;
use sys::perf::ThreadSampler;
use trace::backend::blocked::BlockedSyscall;

use super::absence::{Absence, Activity, CallTime, ThreadLook};
use super::callers::CallChains;
use super::candidates::Candidates;
use super::disk_use::{DISK_USE_NS, DiskCounters, DiskObserver};
use super::follower::{LookOutcome, ThreadFollower, Wanted};
use super::interactive::{self, InteractiveFinder};
use super::period::{Moment, PeriodTotals, ProcessCount};
use super::places::KnownLoop;
use super::process;
use super::read::{self, ThreadReader};
use super::rest::RestWatch;
use super::sleeping::SleepWatch;
use super::turns::{AskedLook, TurnWatch};
use super::work::{CopiedWait, DescribeWork, HangDraft, PlaceAnswer, RecorderLink};
use super::{
    AWAY, CHECK, FIRST_STORED_NS, KEYS, KernelReports, MOST_ANNOUNCED, PERIOD_NS, REST,
    SAMPLE_AFTER_NS, SAMPLE_PERIOD, SAMPLES, SyncPace, nanoseconds, next_look_ns, next_tick,
    time_until, unix_ns,
};
use crate::kernel::{EventWait, SamplerRights};
use crate::model::{HANG_NS, Hang, UnseenParts};

/// A program that is followed.
struct FollowedProgram {
    process: u32,
    name: String,
    /// When the process began, in nanoseconds since 1970.
    process_began_ns: u64,
    /// Since when the recorder could have watched it, of the monotonic clock in nanoseconds.
    began_ns: u64,
    /// For how long it had run since then when its main loop was known.
    late_ns: Option<u64>,
    /// Where the stack of its first thread begins, once that was read.
    stack_start: Option<u64>,
    follower: ThreadFollower,
    /// Which of its waits are for an answer, by their callers.
    call_chains: CallChains,
    /// Finds a loop that sleeps and looks for events.
    sleeps: SleepWatch,
    rest: RestWatch,
    sampler: Option<ThreadSampler>,
    samples: u32,
    /// What had been read and written when the step that goes on had waited for a while.
    disk: Option<DiskCounters>,
    /// Sees each return of the main loop's wait.
    turns: Option<TurnWatch>,
    due_ns: u64,
    /// The length at which a hang that goes on is stored the next time.
    store_at_ns: u64,
    /// Since when it is followed.
    followed_ns: u64,
}

/// What a look at a process found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ProcessLook {
    /// It is not followed any more.
    Gone,
    /// It has not run since the last look.
    Stayed,
    /// It may have run.
    Ran,
}

/// Looks at the programs.
pub(super) struct SamplingRecorder<'a> {
    clock: &'a dyn Clock,
    link: &'a RecorderLink,
    candidates: Candidates,
    followed: BTreeMap<u32, FollowedProgram>,
    reader: ThreadReader,
    period: PeriodTotals,
    programs: u64,
    /// When it began, of the monotonic clock in nanoseconds.
    began_ns: u64,
    /// Whether the kernel announces when a thread runs.
    may_announce: bool,
    /// Whether the kernel allows samples of what runs.
    may_sample: bool,
    /// Whether the kernel allows breakpoints.
    may_break: bool,
    disks: DiskObserver,
}

impl<'a> SamplingRecorder<'a> {
    pub(super) fn new(
        clock: &'a dyn Clock,
        link: &'a RecorderLink,
        finder: InteractiveFinder,
        programs: u64,
    ) -> SamplingRecorder<'a> {
        SamplingRecorder {
            clock,
            link,
            candidates: Candidates::new(finder),
            followed: BTreeMap::new(),
            reader: ThreadReader::new(),
            period: PeriodTotals::begin(Moment { now: clock.now(), at_ns: sys::bpf::clock_ns() }),
            programs,
            began_ns: sys::bpf::clock_ns(),
            may_announce: true,
            may_sample: true,
            may_break: true,
            disks: DiskObserver::default(),
        }
    }

    /// Follows programs whose main loops another recorder knew, without searching for them.
    pub(super) fn take_over(&mut self, known: &[KnownLoop]) {
        for known in known {
            self.follow(known.process);
            if let Some(program) = self.followed.get_mut(&known.process) {
                program.follower.take_over(known);
                program.late_ns = program.follower.has_loop().then_some(0);
            }
        }
    }

    /// Records until `stop` is set or `upgrade`, which is asked at each look, returns reports of programs in the kernel; returns
    /// these, and how many programs were followed, those before included.
    pub(super) fn run(
        mut self,
        stop: &AtomicBool,
        upgrade: &mut dyn FnMut() -> Option<Box<KernelReports>>,
    ) -> io::Result<(u64, Option<Box<KernelReports>>)> {
        let mut due_ns = sys::bpf::clock_ns();
        let mut sync = SyncPace(due_ns);
        let mut reports = None;
        while !stop.load(Ordering::Relaxed) {
            reports = upgrade();
            if reports.is_some() {
                break;
            }
            let now_ns = sys::bpf::clock_ns();
            let now = Moment { now: self.clock.now(), at_ns: now_ns };
            let is_watching = self.followed.values().any(|program| program.follower.has_loop());
            if !self.period.goes_on(now, due_ns, is_watching) {
                self.end_period(now);
            }
            self.search();
            self.take_answers();
            self.look(now_ns);
            if self.period.length_ns() >= PERIOD_NS {
                self.end_period(now);
            }
            sync.keep(now_ns, self.link);
            let next_ns = self.followed.values().map(|program| program.due_ns).min();
            // Threads at rest are looked at together: one wake-up serves all.
            due_ns = next_look_ns(next_ns, now_ns);
            self.wait_until(due_ns)?;
        }
        for process in self.followed.keys().copied().collect::<Vec<_>>() {
            self.unfollow(process, true);
        }
        self.end_period(Moment { now: self.clock.now(), at_ns: sys::bpf::clock_ns() });
        Ok((self.programs, reports))
    }

    fn search(&mut self) {
        for process in self.candidates.search() {
            self.unfollow(process, false);
            self.link.send(DescribeWork::Forget { process });
        }
        while let Some(process) = self.candidates.next(self.followed.len()) {
            // It was taken over, or is there already.
            if !self.followed.contains_key(&process) {
                self.follow(process);
            }
        }
    }

    fn follow(&mut self, process: u32) {
        self.programs += 1;
        let now_ns = sys::bpf::clock_ns();
        let began = process::began_ns(process, self.clock.now(), now_ns);
        let followed = |of: u32| self.followed.get(&of).map(|program| &*program.name);
        let program = FollowedProgram {
            process,
            name: process::name_beside(process, followed),
            process_began_ns: began.map_or(0, |(unix_ns, _)| unix_ns),
            began_ns: began.map_or(now_ns, |(_, at_ns)| at_ns).max(self.began_ns),
            late_ns: None,
            stack_start: None,
            follower: ThreadFollower::new(self.programs * KEYS),
            call_chains: CallChains::default(),
            sleeps: SleepWatch::default(),
            rest: RestWatch::default(),
            sampler: None,
            disk: None,
            samples: 0,
            turns: None,
            due_ns: 0,
            store_at_ns: FIRST_STORED_NS,
            followed_ns: now_ns,
        };
        self.reader.open(process);
        self.followed.insert(process, program);
    }

    /// Stops following a process; `goes_on` says that it has not ended.
    fn unfollow(&mut self, process: u32, goes_on: bool) {
        self.reader.close(process);
        let Some(mut program) = self.followed.remove(&process) else { return };
        if let Some(absence) = program.follower.abandon() {
            match program.follower.may_have_loop() {
                true => self.finish(&program, &absence, goes_on),
                false => self.link.send(DescribeWork::Dropped { key: absence.key }),
            }
        }
        add_steps(&mut self.period, &mut program);
    }

    fn take_answers(&mut self) {
        while let Ok(answer) = self.link.answers.try_recv() {
            let PlaceAnswer { process, wait, evidence, chain } = answer;
            let Some(program) = self.followed.get_mut(&process) else { continue };
            chain.iter().for_each(|callers| program.call_chains.learn_answer(callers));
            let Some(evidence) = evidence else {
                program.follower.forget_asked(wait.place);
                continue;
            };
            let ended = program.follower.classify(wait.place, evidence);
            if evidence.is_loop_anyway() && !evidence.lacks_display {
                chain.iter().for_each(|callers| program.call_chains.learn_loop(callers, wait));
            }
            if program.follower.has_loop() && program.late_ns.is_none() {
                let now_ns = sys::bpf::clock_ns();
                program.late_ns = Some(now_ns.saturating_sub(program.began_ns));
            }
            if let Some(absence) = ended {
                self.ended(process, &absence);
            }
        }
    }

    fn look(&mut self, now_ns: u64) {
        let due: Vec<u32> = self
            .followed
            .values()
            .filter(|program| program.due_ns <= now_ns)
            .map(|program| program.process)
            .collect();
        for process in due {
            let found = self.look_at(process);
            if found == ProcessLook::Gone {
                continue;
            }
            let is_announced = self.announce(process, found == ProcessLook::Stayed);
            let Some(program) = self.followed.get_mut(&process) else { continue };
            let now_ns = sys::bpf::clock_ns();
            let is_near =
                program.follower.absence().is_some_and(|absence| !absence.is_settled(now_ns));
            program.due_ns = if is_near {
                now_ns + nanoseconds(AWAY)
            } else {
                next_tick(now_ns, if is_announced { CHECK } else { REST })
            };
        }
    }

    /// Has the end of a thread's rest announced, if it rests and is likely to go on; returns whether it will be.
    /// An animation rests between any two frames: its announcements would cost more than looks.
    fn announce(&mut self, process: u32, has_stayed: bool) -> bool {
        let open = self.followed.values().filter(|program| program.rest.is_open()).count();
        let Some(program) = self.followed.get_mut(&process) else { return false };
        let FollowedProgram { follower, rest, .. } = program;
        if rest.is_armed() {
            return true;
        }
        let is_likely = follower.is_at_rest() && (has_stayed || rest.was_quiet());
        if !is_likely || !self.may_announce || (open >= MOST_ANNOUNCED && !rest.is_open()) {
            return false;
        }
        let now_ns = sys::bpf::clock_ns();
        if let Err(error) = rest.arm(process, now_ns) {
            self.may_announce = error.kind() != io::ErrorKind::PermissionDenied;
            return false;
        }
        // What it did before the kernel began to record is seen by its counters.
        let counters = self.reader.counters(process);
        let still_rests = counters.is_some_and(|counters| follower.stayed(now_ns, counters));
        if !still_rests {
            rest.disarm();
        }
        still_rests
    }

    /// Waits until a moment of the monotonic clock, or until a thread that rested runs. That one is looked at a little later:
    /// most are back by then.
    fn wait_until(&mut self, at_ns: u64) -> io::Result<()> {
        let time = time_until(at_ns);
        let resting = self.followed.values().filter_map(|program| {
            let announcement = program.rest.announcement()?;
            Some((program.process, PollFd::from_borrowed_fd(announcement, PollFlags::IN)))
        });
        let (processes, mut polled): (Vec<u32>, Vec<PollFd<'_>>) = resting.unzip();
        match poll(&mut polled, Some(&time)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let said: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        for (process, said) in processes.into_iter().zip(said) {
            let Some(program) = self.followed.get_mut(&process) else { continue };
            if said.is_empty() {
                continue;
            }
            program.due_ns = sys::bpf::clock_ns();
            if let Some(left_ns) = program.rest.disarm() {
                program.follower.left(left_ns);
                program.due_ns = program.due_ns.max(left_ns.saturating_add(nanoseconds(AWAY)));
            }
        }
        Ok(())
    }

    /// Looks at a process once.
    fn look_at(&mut self, process: u32) -> ProcessLook {
        let Some(program) = self.followed.get_mut(&process) else { return ProcessLook::Gone };
        let at_ns = sys::bpf::clock_ns();
        let Some(counters) = self.reader.counters(process) else {
            self.unfollow(process, false);
            return ProcessLook::Gone;
        };
        if program.rest.is_armed() {
            if program.follower.has_turns(counters.turns) {
                program.follower.rested(at_ns);
            } else {
                match program.rest.disarm() {
                    Some(left_ns) => program.follower.left(left_ns),
                    None => program.rest.missed(),
                }
            }
        }
        if program.follower.stayed(at_ns, counters) {
            return ProcessLook::Stayed;
        }
        let Some(state) = process::thread_state(process) else {
            self.unfollow(process, false);
            return ProcessLook::Gone;
        };
        if program.stack_start.replace(state.stack_start).is_some_and(|at| at != state.stack_start)
        {
            // It has executed a program, perhaps the same: nothing that was learned of it is true any more.
            self.unfollow(process, false);
            self.link.send(DescribeWork::Forget { process });
            self.follow(process);
            return ProcessLook::Ran;
        }
        let activity = match self.reader.activity(process, state) {
            Ok(activity) => activity,
            Err(error) => {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    self.candidates.refuse(process);
                }
                // One that does not let itself be read any more goes on with what it does.
                self.unfollow(process, process::identity(process).is_some());
                return ProcessLook::Gone;
            }
        };
        let look = ThreadLook { at_ns, counters, activity };
        program.follower.note_others(state.has_others);
        self.take_turns(process);
        let Some(program) = self.followed.get_mut(&process) else { return ProcessLook::Gone };
        let look = program.follower.with_restarted_call(look);
        if let LookOutcome::Returned(absence) = program.follower.look(&look) {
            self.ended(process, &absence);
            return ProcessLook::Ran;
        }
        self.watch_turns(process, at_ns);
        let Some(program) = self.followed.get_mut(&process) else { return ProcessLook::Gone };
        if let Activity::InCall(call) = look.activity
            && !program.follower.has_loop()
            && program.sleeps.note(&call, at_ns, counters.turns)
        {
            program.follower.know_sleep(&call);
            program.late_ns = Some(sys::bpf::clock_ns().saturating_sub(program.began_ns));
        }
        if let Some(absence) = program.follower.note_sleep(&look) {
            self.ended(process, &absence);
            return ProcessLook::Ran;
        }
        let Some(program) = self.followed.get_mut(&process) else { return ProcessLook::Gone };
        let wanted = program.follower.wanted(&look);
        self.read_wanted(process, wanted);
        self.sample(process, at_ns, activity == Activity::Running);
        self.count_disk_use(process, at_ns);
        self.store_running(process);
        ProcessLook::Ran
    }

    fn read_wanted(&mut self, process: u32, wanted: Wanted) {
        let Some(program) = self.followed.get_mut(&process) else { return };
        if wanted == Wanted::Nothing || !self.link.has_room() {
            return;
        }
        match wanted {
            Wanted::Nothing => {}
            Wanted::Place(call) => {
                let Some(copied) = self.reader.copy_wait(process, &call) else { return };
                program.follower.asked(&call);
                self.send_place(process, &call, copied);
            }
            Wanted::Description(call) => {
                let Some(key) = program.follower.absence().map(|absence| absence.key) else {
                    return;
                };
                let Some((number, copy, object)) = self.reader.describe(process, &call) else {
                    return;
                };
                self.link.count_copy();
                program.follower.described(number, object, sys::bpf::clock_ns());
                self.link.send(DescribeWork::Stack { key, process, number, copy });
            }
        }
    }

    /// Has a wait classified by its stack and its descriptors.
    fn send_place(
        &self,
        process: u32,
        call: &BlockedSyscall,
        CopiedWait { copy, polled, is_part }: CopiedWait,
    ) {
        self.link.count_copy();
        let display = interactive::is_display_among(process, polled.as_deref());
        let (wait, call) = (EventWait::of(call), call.number);
        self.link.send(DescribeWork::Place { process, call, wait, display, copy, is_part });
    }

    /// Puts a breakpoint at the wait of the main loop once a thread is away: looks for events that take no time are not
    /// seen otherwise, and many short steps would be one long one.
    fn watch_turns(&mut self, process: u32, at_ns: u64) {
        let Some(program) = self.followed.get_mut(&process) else { return };
        let Some(absence) = program.follower.absence() else { return };
        let away_ns = at_ns.saturating_sub(absence.started_ns);
        if program.turns.is_some() || !self.may_break || away_ns < SAMPLE_AFTER_NS {
            return;
        }
        let Some(main) = program.follower.main_wait() else { return };
        match TurnWatch::begin(process, main, at_ns, &SamplerRights::default()) {
            Ok(watch) => program.turns = Some(watch),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.may_break = false,
            // Others use all breakpoints of the processor.
            Err(_) => {}
        }
    }

    /// Takes the returns of the main loop's wait into account that a breakpoint has seen.
    fn take_turns(&mut self, process: u32) {
        let Some(program) = self.followed.get_mut(&process) else { return };
        let FollowedProgram { turns: Some(watch), follower, call_chains: chains, .. } = program
        else {
            return;
        };
        let Some(absence) = follower.absence() else { return };
        let tells_apart = follower.knows_place(watch.main_place());
        let kind_of = |call: &BlockedSyscall, stack: &[u8]| {
            follower.wait_kind(call).or_else(|| chains.kind(call, stack))
        };
        let asked = watch.take(absence.started_ns, tells_apart, kind_of);
        let moments = watch.until(u64::MAX);
        let asked = asked.into_iter().next().filter(|_| self.link.has_room());
        if let Some(AskedLook { call, copy, is_part }) = asked {
            follower.asked(&call);
            let polled = read::looked_for(process, &call, &copy);
            self.send_place(process, &call, CopiedWait { copy, polled, is_part });
        }
        let Some(program) = self.followed.get_mut(&process) else { return };
        let ended = program.follower.turned(&moments);
        if ended.is_empty() {
            return;
        }
        if let Some(program) = self.followed.get(&process) {
            ended.iter().for_each(|absence| self.finish(program, absence, false));
        }
        if let Some(program) = self.followed.get_mut(&process) {
            program.sampler = None;
            program.disk = None;
            program.samples = 0;
            program.store_at_ns = FIRST_STORED_NS;
        }
    }

    /// Counts what disks do from when a thread that is away has waited for a while.
    fn count_disk_use(&mut self, process: u32, at_ns: u64) {
        let Some(program) = self.followed.get_mut(&process) else { return };
        let Some(absence) = program.follower.absence() else { return };
        let away_ns = at_ns.saturating_sub(absence.started_ns);
        if program.disk.is_none() && away_ns >= DISK_USE_NS && !absence.is_computing() {
            program.disk = self.disks.begin();
        }
    }

    /// Samples the functions of a thread that computes.
    fn sample(&mut self, process: u32, at_ns: u64, is_running: bool) {
        let Some(program) = self.followed.get_mut(&process) else { return };
        let FollowedProgram { follower, sampler, samples, .. } = program;
        let Some(absence) = follower.absence_mut() else { return };
        let away_ns = at_ns.saturating_sub(absence.started_ns);
        if sampler.is_none() && is_running && away_ns >= SAMPLE_AFTER_NS && absence.is_computing() {
            if self.may_sample {
                match ThreadSampler::open(process, SAMPLE_PERIOD) {
                    Ok(opened) => *sampler = Some(opened),
                    Err(error) => {
                        // The limit of locked memory passes; a prohibition stays.
                        self.may_sample = error.kind() != io::ErrorKind::PermissionDenied;
                    }
                }
            }
            if sampler.is_none() {
                absence.unseen.add(UnseenParts::FUNCTIONS);
            }
        }
        let Some(sampler) = sampler else { return };
        let (key, link) = (absence.key, self.link);
        sampler.take(|sample| {
            if sample.fault.is_some() || *samples >= SAMPLES || !link.has_room() {
                return;
            }
            *samples += 1;
            link.count_copy();
            let registers = trace::stack::KnownRegisters::new(sample.ip, sample.sp)
                .bp(sample.bp)
                .kept(sample.kept);
            let bytes = sample.stack.to_vec();
            let stands_for_ns = nanoseconds(SAMPLE_PERIOD);
            link.send(DescribeWork::Sample { key, process, registers, bytes, stands_for_ns });
        });
    }

    /// Stores a hang that goes on, so that it is known even if this process is killed.
    fn store_running(&mut self, process: u32) {
        let Some(program) = self.followed.get_mut(&process) else { return };
        let Some(absence) = program.follower.absence() else { return };
        if absence.certain_ns() < program.store_at_ns
            || !program.follower.may_have_loop()
            || absence.sleeps.may_be_loop()
        {
            return;
        }
        program.store_at_ns = program.store_at_ns.saturating_mul(2);
        let absence = Box::new(absence.clone());
        if let Some(program) = self.followed.get(&process) {
            self.send_hang(program, &absence, true);
        }
    }

    /// Handles the end of an absence of a process that goes on.
    fn ended(&mut self, process: u32, absence: &Absence) {
        if let Some(program) = self.followed.get(&process) {
            self.finish(program, absence, false);
        }
        if let Some(program) = self.followed.get_mut(&process) {
            program.sampler = None;
            program.disk = None;
            program.samples = 0;
            program.turns = None;
            program.store_at_ns = FIRST_STORED_NS;
        }
    }

    /// Stores an absence that has ended if it was a hang.
    fn finish(&self, program: &FollowedProgram, absence: &Absence, goes_on: bool) {
        if absence.length_ns() >= HANG_NS {
            self.send_hang(program, absence, goes_on);
        } else {
            self.link.send(DescribeWork::Dropped { key: absence.key });
        }
    }

    fn send_hang(&self, program: &FollowedProgram, absence: &Absence, goes_on: bool) {
        let now_ns = sys::bpf::clock_ns();
        let since = now_ns.saturating_sub(absence.started_ns);
        let mut trimmed = absence.clone();
        trimmed.trim_parts();
        let mut parts = trimmed.parts;
        let known = parts.named().iter().fold(0_u64, |sum, (_, part)| sum.saturating_add(*part));
        parts.unknown_ns += absence.length_ns().saturating_sub(known);
        let mut unseen = absence.unseen;
        let ended_ns = absence.started_ns.saturating_add(absence.length_ns());
        match &program.turns {
            Some(watch) if watch.may_be_several(absence.started_ns, ended_ns) => {
                unseen.add(UnseenParts::LOOKS);
            }
            None if absence.may_be_several() => {
                // Others may use all breakpoints of a processor.
                unseen.add(if self.may_break { UnseenParts::LOOKS } else { UnseenParts::STEPS });
            }
            _ => {}
        }
        let is_in =
            |counters: &&DiskCounters| (absence.started_ns..ended_ns).contains(&counters.at_ns);
        let disk_use =
            program.disk.as_ref().filter(is_in).and_then(|counters| counters.until(ended_ns));
        let calls = absence.calls.iter().map(CallTime::share).collect();
        if absence.calls.iter().any(|call| {
            !call.is_described && call.blocked_ns.saturating_mul(2) > absence.length_ns()
        }) {
            unseen.add(UnseenParts::OBJECTS);
        }
        let hang = Hang {
            number: 0,
            started_ns: unix_ns(self.clock.now()).saturating_sub(since),
            length_ns: absence.length_ns(),
            uncertain_ns: absence.uncertain_ns,
            goes_on,
            process: program.process,
            process_began_ns: program.process_began_ns,
            program: program.name.clone(),
            unit: process::unit_name(program.process),
            cause: crate::model::HangCause::Unknown,
            parts,
            calls,
            frames: Vec::new(),
            blamed: None,
            pressure: read::pressure(),
            unseen,
            chain: None,
            disk_use,
            kernel_functions: Vec::new(),
        };
        let described = absence.descriptions.iter();
        let descriptions = described.filter_map(|made| made.wait(&absence.calls)).collect();
        self.link.send(DescribeWork::Hang(Box::new(HangDraft {
            key: absence.key,
            began_ns: absence.started_ns,
            hang,
            descriptions,
        })));
    }

    /// Stores the period up to its last look, and begins another one.
    fn end_period(&mut self, now: Moment) {
        for program in self.followed.values_mut() {
            add_steps(&mut self.period, program);
        }
        let period = std::mem::replace(&mut self.period, PeriodTotals::begin(now));
        let lost = self.link.counters.lost.swap(0, Ordering::Relaxed);
        if !period.is_empty() || lost > 0 {
            let unwatched = self.candidates.unwatched(lost);
            self.link.send(DescribeWork::Watched(period.finish(unwatched, nanoseconds(REST))));
        }
    }
}

/// Adds what was counted of a program to a period.
fn add_steps(period: &mut PeriodTotals, program: &mut FollowedProgram) {
    let steps = std::mem::take(&mut program.follower.steps);
    let watched_ns = std::mem::take(&mut program.follower.watched_ns);
    let at_ns = sys::bpf::clock_ns();
    let followed = Duration::from_nanos(at_ns.saturating_sub(program.followed_ns));
    let late_ns = program.late_ns;
    let process = program.process;
    let count = ProcessCount { process, steps, watched_ns, at_ns, followed, late_ns };
    period.add(&program.name, &count);
}
