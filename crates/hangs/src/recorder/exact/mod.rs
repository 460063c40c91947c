//! The recorder by the reports of programs in the kernel: begin and end of each absence are exact, and a thread is looked at
//! only while it is away for long.

mod account;
mod asks;
mod chain;
mod counts;
mod depth;
mod faults;
mod looks;
mod operations;
mod program;
mod start_looks;
mod starting;
mod wait_calls;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use sys::clock::Clock;
use trace::backend::blocked::BlockedSyscall;

use self::account::{
    AbsenceTime, WaitFact, add_missing, add_share, divide, merge, part_of, uncertain_ns,
};
use self::chain::ChainFollower;
use self::counts::ProgramCounts;
use self::depth::ThreadedDepth;
use self::operations::{AwaitedOperation, OperationFollower, is_ring_wait};
use self::program::{MarkedProgram, StartWatch, WaitState, WatchedAbsence};
use self::wait_calls::WaitCalls;
use super::absence::Activity;
use super::callers::CallChains;
use super::candidates::Candidates;
use super::disk_use::{DiskCounters, DiskObserver};
use super::interactive::InteractiveFinder;
use super::period::{Moment, PeriodTotals};
use super::places::{KnownLoop, is_event_wait};
use super::process;
use super::read::{self, ThreadReader};
use super::sleeping::SleepWatch;
use super::work::{DescribeWork, HangDraft, RecorderLink};
use super::{
    FIRST_STORED_NS, KEYS, KernelReports, PERIOD_NS, SyncPace, next_look_ns, time_until, unix_ns,
};
use crate::kernel::{
    AbsenceAccount, EventWait, MarkedAs, MarkedThread, ReportStream, SamplerRights, ThreadBlock,
    ThreadEvent, ThreadMarker,
};
use crate::model::{HANG_NS, Hang, HangCause, UnseenParts};

/// A main loop does not look for events without waiting in the first moments of a step, in nanoseconds.
const LOOK_NS: u64 = 5_000_000;
/// Shorter waits are not followed to other programs, in nanoseconds.
const FOLLOWED_NS: u64 = 20_000_000;
/// How often it is looked whether a place is classified, in nanoseconds: nothing is recorded of a new program until then.
const ANSWER_NS: u64 = 20_000_000;
/// The most waits of one absence that are kept.
const BLOCKS: usize = 4096;
/// So many waits back it is looked whether one of them was for an operation of `io_uring`.
const LATEST: usize = 64;
/// Observes programs by the reports of programs in the kernel.
pub(super) struct ExactRecorder<'a> {
    clock: &'a dyn Clock,
    link: &'a RecorderLink,
    candidates: Candidates,
    reports: ReportStream,
    /// Follows waits to operations of `io_uring`, where programs can be loaded for that. It goes first: it uses a map of the marker.
    operations: Option<OperationFollower>,
    marker: Box<dyn ThreadMarker>,
    /// Who opens the events of samplers.
    samplers: SamplerRights,
    marked: BTreeMap<u32, MarkedProgram>,
    reader: ThreadReader,
    period: PeriodTotals,
    programs: u64,
    /// When it began, of the monotonic clock in nanoseconds.
    began_ns: u64,
    /// Places that are being classified.
    asked: usize,
    /// Where events are waited for.
    wait_calls: WaitCalls,
    /// Reports that were lost, as far as that was counted.
    lost: u64,
    /// Follows waits to other programs, where the kernel records wake-ups for us.
    chains: Option<ChainFollower>,
    /// Whether the kernel allows samples of what runs.
    may_sample: bool,
    /// Whether the kernel allows breakpoints.
    may_break: bool,
    disks: DiskObserver,
}

/// How an exact recorder ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ExactEnd {
    /// It was stopped.
    Stopped,
    /// The session in the recorder service is over, which knew these main loops.
    Lost(Vec<KnownLoop>),
}

/// Returns whether a process has other threads than its first one.
fn has_others(process: u32) -> bool {
    process::thread_state(process).is_some_and(|state| state.has_others)
}

impl<'a> ExactRecorder<'a> {
    pub(super) fn new(
        clock: &'a dyn Clock,
        link: &'a RecorderLink,
        finder: InteractiveFinder,
        reports: Box<KernelReports>,
        programs: u64,
    ) -> ExactRecorder<'a> {
        let KernelReports { reports, marker, wakeups } = *reports;
        let of_service = || marker.operations().map(OperationFollower::of_service);
        let operations = marker.marked().map(OperationFollower::new).or_else(of_service);
        let now = Moment { now: clock.now(), at_ns: sys::bpf::clock_ns() };
        ExactRecorder {
            clock,
            link,
            candidates: Candidates::new(finder),
            reports,
            samplers: marker.samplers(),
            marker,
            marked: BTreeMap::new(),
            reader: ThreadReader::new(),
            period: PeriodTotals::begin(now),
            programs,
            began_ns: now.at_ns,
            asked: 0,
            wait_calls: WaitCalls::default(),
            lost: 0,
            chains: wakeups.map(ChainFollower::new),
            operations,
            may_sample: true,
            may_break: true,
            disks: DiskObserver::default(),
        }
    }

    /// Records until `stop` is set, or the session in the service is over; returns how many programs were followed, those before
    /// included.
    pub(super) fn run(mut self, stop: &AtomicBool) -> io::Result<(u64, ExactEnd)> {
        let mut due_ns = sys::bpf::clock_ns();
        let mut sync = SyncPace(due_ns);
        while !stop.load(Ordering::Relaxed) {
            if self.reports.is_lost() {
                let known = self.lose_session();
                return Ok((self.programs, ExactEnd::Lost(known)));
            }
            let now_ns = sys::bpf::clock_ns();
            let now = Moment { now: self.clock.now(), at_ns: now_ns };
            let is_watching = self.marked.values().any(|program| program.counts.is_watched());
            if !self.period.goes_on(now, due_ns, is_watching) {
                self.end_period(now);
            }
            self.take_reports();
            self.search();
            self.look_for_loops(now_ns);
            self.take_answers();
            self.look_at_starts(now_ns);
            self.look(now_ns);
            if self.period.length_ns() >= PERIOD_NS {
                self.end_period(now);
            }
            sync.keep(now_ns, self.link);
            let away = self.marked.values().filter_map(|program| program.away.as_ref());
            let next_ns = away.map(|absence| absence.due_ns).min();
            let answer_ns = (self.asked > 0).then_some(now_ns + ANSWER_NS);
            if let Some(chains) = &mut self.chains {
                chains.set_active(next_ns.is_some());
            }
            self.follow_operations();
            let search_ns = self.candidates.soon_due_ns();
            let start_ns = self.next_start_look_ns(now_ns);
            let looks = [next_ns, answer_ns, search_ns, start_ns, self.next_loop_look_ns(now_ns)];
            due_ns = next_look_ns(looks.into_iter().flatten().min(), now_ns);
            self.wait_until(due_ns)?;
        }
        self.take_reports();
        for process in self.marked.keys().copied().collect::<Vec<_>>() {
            self.unfollow(process, true);
        }
        self.end_period(Moment { now: self.clock.now(), at_ns: sys::bpf::clock_ns() });
        Ok((self.programs, ExactEnd::Stopped))
    }

    /// The session in the service is over: what was not told is lost, which the records say. Returns the main loops that are known:
    /// a hang that has begun is found by them, also one that was too short to be reported.
    fn lose_session(&mut self) -> Vec<KnownLoop> {
        let mut lost = 0;
        let mut known = Vec::new();
        for process in self.marked.keys().copied().collect::<Vec<_>>() {
            // One that was stored while it went on is there, as long as it was then.
            let is_stored = |absence: &WatchedAbsence| absence.store_at_ns > FIRST_STORED_NS;
            let absence = self.absence_mut(process);
            lost += u32::from(absence.as_ref().is_some_and(|absence| !is_stored(absence)));
            let is_hang_stored = absence.is_some_and(|absence| is_stored(absence));
            known.extend(self.marked.get(&process).and_then(|of| of.known_loop(is_hang_stored)));
            self.drop_absence(process);
            self.link.send(DescribeWork::Forget { process });
        }
        self.marked.clear();
        self.link.counters.lost.fetch_add(lost, Ordering::Relaxed);
        self.end_period(Moment { now: self.clock.now(), at_ns: sys::bpf::clock_ns() });
        known
    }

    /// Waits until a moment of the monotonic clock, or until there is a report.
    fn wait_until(&self, at_ns: u64) -> io::Result<()> {
        if self.reports.has_more() {
            return Ok(());
        }
        let time = time_until(at_ns);
        let reports = PollFd::from_borrowed_fd(self.reports.as_fd(), PollFlags::IN);
        match poll(&mut [reports], Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn search(&mut self) {
        for process in self.candidates.search() {
            self.unfollow(process, false);
            self.link.send(DescribeWork::Forget { process });
        }
        while let Some(process) = self.candidates.next(self.marked.len()) {
            self.follow(process);
        }
    }

    /// Marks the first thread of a process.
    fn follow(&mut self, process: u32) {
        self.programs += 1;
        self.reader.open(process);
        let wait = self.event_wait(process);
        let marked = wait.map_or(MarkedAs::Unknown, |call| MarkedAs::Waiting(EventWait::of(&call)));
        let mut result = self.marker.mark(process, marked);
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
            // The mark of another process that had its number.
            let _ = self.marker.unmark(process);
            result = self.marker.mark(process, marked);
        }
        if wait.is_some() && result.is_ok() && self.event_wait(process) != wait {
            // It has left the wait before it was marked.
            let _ = self.marker.unmark(process);
            result = self.marker.mark(process, MarkedAs::Unknown);
        }
        if let Err(error) = result {
            match error.kind() {
                io::ErrorKind::NotFound => {}
                io::ErrorKind::PermissionDenied => self.candidates.refuse(process),
                _ => self.candidates.postpone(process),
            }
            self.reader.close(process);
            return;
        }
        self.candidates.program_followed();
        let now_ns = sys::bpf::clock_ns();
        let began = process::began_ns(process, self.clock.now(), now_ns);
        let began_ns = began.map_or(now_ns, |(_, at_ns)| at_ns).max(self.began_ns);
        let followed = |of: u32| self.marked.get(&of).map(|program| &*program.name);
        let program = MarkedProgram {
            process,
            name: process::name_beside(process, followed),
            process_began_ns: began.map_or(0, |(unix_ns, _)| unix_ns),
            waits: HashMap::new(),
            calls: Vec::new(),
            loop_looks: 0,
            start: StartWatch::default(),
            call_chains: CallChains::default(),
            is_loop_certain: false,
            start_looks: 0,
            sleeps: SleepWatch::default(),
            depth: ThreadedDepth::begin(has_others(process)),
            display_loop: 0,
            away: None,
            closed_ns: 0,
            blocks: (0, Vec::new()),
            next_key: self.programs * KEYS,
            counts: ProgramCounts::begin(now_ns, began_ns),
        };
        self.marked.insert(process, program);
        if let Some(call) = wait {
            self.ask(process, call, true);
        }
    }

    /// Returns what is kept of a marked process; `None` if it is not marked.
    ///
    /// A wait that counted as rest until its stack was read counts as an absence from then on. The programs in the kernel find out when
    /// it is over.
    fn thread_state(&mut self, process: u32) -> io::Result<Option<MarkedThread>> {
        let mut state = self.marker.state(process)?;
        let program = self.marked.get(&process);
        if let Some(state) = &mut state
            && state.is_waiting
            && state.known_since_ns.is_some()
            && let Some((wait, AbsenceAccount { at_ns, ready_ns, .. })) = state.wait
            && program.is_some_and(|program| program.is_nested(wait))
        {
            state.away_since_ns = Some(at_ns);
            state.off_since_ns = Some((at_ns, false));
            state.ready_before_ns += ready_ns;
            state.account = AbsenceAccount::default();
        }
        Ok(state)
    }

    /// Returns the wait for events that the first thread of a process is in.
    fn event_wait(&mut self, process: u32) -> Option<BlockedSyscall> {
        match self.activity(process)? {
            Activity::InCall(call) if is_event_wait(&call) => Some(call),
            _ => None,
        }
    }

    /// Returns what the first thread of a process does; `None` if that cannot be seen.
    fn activity(&mut self, process: u32) -> Option<Activity> {
        let state = process::thread_state(process)?;
        match self.reader.activity(process, state) {
            Ok(activity) => Some(activity),
            Err(error) => {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    self.candidates.refuse(process);
                }
                None
            }
        }
    }

    /// Takes the reports of the programs in the kernel.
    pub(super) fn take_reports(&mut self) {
        let mut reports = Vec::new();
        // A session that is over is noticed before the next look.
        let _ = self.reports.take(|bytes| reports.extend(ThreadEvent::read(bytes)));
        // An operation is told before the wait that it ends.
        if let Some(operations) = &mut self.operations {
            operations.take(&mut self.reader);
        }
        for (process, event) in reports {
            self.take_report(process, event);
        }
        if let Some(chains) = &mut self.chains {
            chains.take();
        }
    }

    fn take_report(&mut self, process: u32, event: ThreadEvent) {
        match event {
            ThreadEvent::Started => return self.candidates.program_started(),
            ThreadEvent::Connected => return self.candidates.program_connected(process),
            _ => {}
        }
        let Some(program) = self.marked.get_mut(&process) else { return };
        match event {
            // It is of no marked program, and was noted before one was looked for.
            ThreadEvent::Started | ThreadEvent::Connected => {}
            ThreadEvent::Late { started_ns } => self.begin_absence(process, started_ns),
            ThreadEvent::Waited { started_ns, block } => {
                if program.blocks.0 != started_ns {
                    program.blocks = (started_ns, Vec::new());
                }
                if program.blocks.1.len() >= BLOCKS {
                    merge(&mut program.blocks.1);
                }
                if program.blocks.1.len() < BLOCKS {
                    program.blocks.1.push(block);
                }
            }
            ThreadEvent::Ended { started_ns, account } => {
                if started_ns != program.closed_ns {
                    self.begin_absence(process, started_ns);
                    self.ended(process, &account, false);
                }
            }
            ThreadEvent::Asks { wait } => {
                if let Some(WaitState::Classified(kind)) = program.waits.get(&wait) {
                    // It was asked before the answer, or the kernel has forgotten that for others. If it fails it asks again.
                    let _ = self.marker.classify(process, wait, *kind);
                } else if let Some(call) = self.event_wait(process)
                    && EventWait::of(&call) == wait
                {
                    self.ask(process, call, true);
                }
            }
            ThreadEvent::Gone { absence } => {
                if let Some((started_ns, account)) = absence
                    && started_ns != program.closed_ns
                {
                    self.begin_absence(process, started_ns);
                    self.ended(process, &account, false);
                }
                self.follow_again(process);
            }
        }
    }

    /// Begins anew with a process that has executed a program, perhaps the same, unless it has ended: nothing that was learned of
    /// it is true any more.
    fn follow_again(&mut self, process: u32) {
        self.unfollow(process, false);
        self.link.send(DescribeWork::Forget { process });
        if process::identity(process).is_some() {
            self.follow(process);
        }
    }

    /// Watches an absence, unless it is watched already.
    fn begin_absence(&mut self, process: u32, started_ns: u64) {
        let Some(program) = self.marked.get_mut(&process) else { return };
        if program.closed_ns == started_ns {
            return;
        }
        match &program.away {
            Some(absence) if absence.started_ns == started_ns => return,
            Some(absence) => self.link.send(DescribeWork::Dropped { key: absence.key }),
            None => {}
        }
        program.away = Some(WatchedAbsence {
            key: program.take_key(),
            started_ns,
            described: Vec::new(),
            described_at_ns: 0,
            stops: Vec::new(),
            sampler: None,
            samples: 0,
            faults: 0,
            fault_files: None,
            is_over: false,
            is_one_step: false,
            unseen: UnseenParts::default(),
            asked: None,
            open_wait: None,
            due_ns: 0,
            store_at_ns: FIRST_STORED_NS,
            is_computing: false,
            turns: None,
            seen_wait: None,
            turned_ns: None,
            disk: None,
            before: None,
            sleeps: SleepWatch::default(),
            before_sleep: None,
        });
    }

    /// Handles the end of an absence: stores it if it was a hang.
    fn ended(&mut self, process: u32, account: &AbsenceAccount, goes_on: bool) {
        if let Some(absence) = self.absence_mut(process) {
            absence.is_over = true;
        }
        let moments = self.turns_until(process, account.at_ns);
        self.sample(process, account.at_ns, &moments);
        self.take_faults(process);
        let Some(program) = self.marked.get_mut(&process) else { return };
        let Some(absence) = &program.away else { return };
        let (mut account, mut blocks) = (*account, program.blocks_of(absence.started_ns).to_vec());
        if let Some(seen) = &absence.seen_wait {
            add_missing(&mut account, &mut blocks, seen);
        }
        let account = &account;
        program.closed_ns = absence.started_ns;
        self.split(process, &moments, account, &blocks);
        let Some(program) = self.marked.get_mut(&process) else { return };
        let Some(absence) = &program.away else { return };
        if let Some(turned_ns) = absence.turned_ns {
            // The programs in the kernel have counted one step.
            program.counts.not_one.add(account.at_ns.saturating_sub(absence.started_ns));
            program.counts.turned.add(account.at_ns.saturating_sub(turned_ns));
        }
        self.finish(process, account, &blocks, account.at_ns, goes_on);
        if let Some(program) = self.marked.get_mut(&process) {
            program.away = None;
            program.blocks.1 = Vec::new();
        }
    }

    /// Stores the absence up to a moment if it was a hang. The account and the waits may be those of a later moment.
    fn finish(
        &mut self,
        process: u32,
        account: &AbsenceAccount,
        blocks: &[ThreadBlock],
        to_ns: u64,
        goes_on: bool,
    ) {
        let Some(absence) = self.absence_mut(process) else { return };
        let key = absence.key;
        if to_ns.saturating_sub(absence.began_ns()) >= HANG_NS {
            self.send_hang(process, account, blocks, to_ns, goes_on);
        } else {
            self.link.send(DescribeWork::Dropped { key });
        }
    }

    fn send_hang(
        &mut self,
        process: u32,
        account: &AbsenceAccount,
        blocks: &[ThreadBlock],
        to_ns: u64,
        goes_on: bool,
    ) {
        let Some(program) = self.marked.get(&process) else { return };
        let Some(absence) = &program.away else { return };
        let started_ns = absence.began_ns();
        // What was before that the programs in the kernel have not seen.
        let known_ns = started_ns.max(absence.started_ns);
        let turned_ns = absence.turned_ns.filter(|_| started_ns == known_ns);
        let (account, blocks) = part_of(account, blocks, turned_ns, to_ns);
        let facts = self.facts(process, &blocks);
        let AbsenceTime { mut parts, calls, descriptions, has_unknown_object, longest } =
            divide(known_ns, &account, &blocks, &absence.described, &absence.stops, &facts);
        if let Some((from_ns, before)) = &absence.before {
            let unseen_ns = to_ns.min(known_ns).saturating_sub(started_ns);
            add_share(&mut parts, before, unseen_ns, known_ns.saturating_sub(*from_ns));
        }
        let mut unseen = absence.unseen;
        let length_ns = account.at_ns.saturating_sub(started_ns);
        let longest_ns = longest.map_or(0, |block| block.to_ns.saturating_sub(block.from_ns));
        // Before the breakpoint was there the main loop may have looked for events without waiting. One that sleeps does not.
        let sleeps = program.rests_in_sleep();
        // A loop that waits for a lock may get it without a call: the breakpoint does not see such a look.
        let turns = absence.turns.as_ref().filter(|_| !program.rests_in_lock());
        let unseen_to_ns = match turns {
            Some(watch) => watch.since_ns,
            None if sleeps || absence.is_one_step => started_ns,
            None => account.at_ns,
        };
        let uncertain_ns =
            uncertain_ns(&blocks, [started_ns, account.at_ns], unseen_to_ns.min(account.at_ns));
        match turns {
            // The breakpoint may have come late, too.
            Some(watch)
                if watch.may_be_several(started_ns, account.at_ns)
                    || uncertain_ns.saturating_mul(2) > length_ns =>
            {
                unseen.add(UnseenParts::LOOKS);
            }
            None if longest_ns.saturating_mul(2) < length_ns && !sleeps && !absence.is_one_step => {
                // Others may use all breakpoints of a processor.
                unseen.add(if self.may_break { UnseenParts::LOOKS } else { UnseenParts::STEPS });
            }
            _ => {}
        }
        if has_unknown_object {
            unseen.add(UnseenParts::OBJECTS);
        }
        if account.dropped > 0 {
            unseen.add(UnseenParts::WAITS);
        }
        // A wait that takes the most of it is followed once it has ended.
        let followed = longest.filter(|block| {
            !goes_on && !block.is_stopped && longest_ns >= FOLLOWED_NS && block.call.is_some()
        });
        let chain = followed.and_then(|block| self.chains.as_mut()?.follow(process, &block));
        let is_in = |counters: &&DiskCounters| (started_ns..to_ns).contains(&counters.at_ns);
        let disk_use =
            absence.disk.as_ref().filter(is_in).and_then(|counters| counters.until(to_ns));
        let since = sys::bpf::clock_ns().saturating_sub(started_ns);
        let hang = Hang {
            number: 0,
            started_ns: unix_ns(self.clock.now()).saturating_sub(since),
            length_ns,
            uncertain_ns: if uncertain_ns >= LOOK_NS { uncertain_ns } else { 0 },
            goes_on,
            process,
            process_began_ns: program.process_began_ns,
            program: program.name.clone(),
            unit: process::unit_name(process),
            cause: HangCause::Unknown,
            parts,
            calls,
            frames: Vec::new(),
            blamed: None,
            pressure: read::pressure(),
            unseen,
            chain,
            disk_use,
            kernel_functions: Vec::new(),
        };
        let draft = HangDraft { key: absence.key, began_ns: started_ns, hang, descriptions };
        self.link.send(DescribeWork::Hang(Box::new(draft)));
    }

    /// Returns what each wait of a process that is away is known to have been for.
    fn facts(&self, process: u32, waits: &[ThreadBlock]) -> Vec<WaitFact> {
        let mut facts = vec![WaitFact::default(); waits.len()];
        let absence = self.marked.get(&process).and_then(|program| program.away.as_ref());
        if let Some(files) = absence.and_then(|absence| absence.fault_files.as_ref()) {
            for (fact, file) in facts.iter_mut().zip(files.of_waits(waits)) {
                fact.object = file.cloned();
            }
        }
        let operations = self.operations.as_ref();
        let awaited = operations.map(|operations| operations.of_waits(process, waits));
        for (fact, operation) in facts.iter_mut().zip(awaited.into_iter().flatten()) {
            if let Some(AwaitedOperation { name, object }) = operation {
                *fact = WaitFact { operation: name, object };
            }
        }
        facts
    }

    /// Records operations of `io_uring` while a thread that is away waits for them.
    fn follow_operations(&mut self) {
        let Some(operations) = &mut self.operations else { return };
        operations.take(&mut self.reader);
        let waits = self.marked.values().any(|program| {
            let absence = program.away.as_ref();
            let blocks = absence.map_or(&[][..], |absence| program.blocks_of(absence.started_ns));
            blocks.iter().rev().take(LATEST).any(is_ring_wait)
        });
        operations.set_active(waits);
    }

    /// Stops following a process; `goes_on` says that it has not ended.
    fn unfollow(&mut self, process: u32, goes_on: bool) {
        let state = self.thread_state(process).ok().flatten();
        if let Some(state) = state {
            let now_ns = sys::bpf::clock_ns();
            // Before the main loop is known nobody knows whether it was away from it.
            if let Some(started_ns) = state.away_since_ns
                && state.known_since_ns.is_some()
                && now_ns.saturating_sub(started_ns) >= HANG_NS
            {
                self.begin_absence(process, started_ns);
                let (account, blocks) = self.account_now(process, &state, now_ns);
                if let Some(program) = self.marked.get_mut(&process) {
                    program.blocks = (started_ns, blocks);
                }
                self.ended(process, &account, goes_on);
            }
            self.add_steps(process, &state);
        }
        self.drop_absence(process);
        // Of a process that has ended the mark is all that is left.
        let _ = self.marker.unmark(process);
        self.reader.close(process);
        self.marked.remove(&process);
    }

    /// Adds what was counted of a program since the last time to the period.
    fn add_steps(&mut self, process: u32, state: &MarkedThread) {
        let Some(program) = self.marked.get_mut(&process) else { return };
        let of = (process, &*program.name);
        program.counts.add_to(&mut self.period, of, state, sys::bpf::clock_ns());
    }

    /// Stores the period up to its last look, and begins another one.
    fn end_period(&mut self, now: Moment) {
        for process in self.marked.keys().copied().collect::<Vec<_>>() {
            if let Ok(Some(state)) = self.marker.state(process) {
                self.add_steps(process, &state);
                if state.is_gone {
                    // The report of it was lost.
                    self.follow_again(process);
                }
            }
        }
        let period = std::mem::replace(&mut self.period, PeriodTotals::begin(now));
        let lost_before = self.lost;
        self.lost = self.marker.lost().unwrap_or(self.lost);
        let unread = u32::try_from(self.lost.saturating_sub(lost_before)).unwrap_or(u32::MAX);
        let lost = self.link.counters.lost.swap(0, Ordering::Relaxed).saturating_add(unread);
        if !period.is_empty() || lost > 0 {
            let unwatched = self.candidates.unwatched(lost);
            self.link.send(DescribeWork::Watched(period.finish(unwatched, 0)));
        }
    }
}
