//! Looks at threads that are away for long: their stacks and files, their functions, and their main loop's looks for events.

use std::io;
use std::time::Duration;

use sys::perf::ThreadSampler;
use trace::backend::blocked::BlockedSyscall;
use trace::syscall::{SyscallClass, call_name, call_number};

use super::ExactRecorder;
use super::account::{BlockDescription, BlockKey, SeenWait};
use super::faults::FaultFiles;
use super::program::{MarkedProgram, WaitState, WatchedAbsence, kind_of_look};
use super::starting::is_new;
use crate::kernel::{AbsenceAccount, EventWait, MarkedThread, ThreadBlock, WaitPlace};
use crate::model::{CallObject, HANG_NS, UnseenParts};
use crate::recorder::absence::Activity;
use crate::recorder::disk_use::DISK_USE_NS;
use crate::recorder::places::{is_event_wait, is_lock_wait};
use crate::recorder::read;
use crate::recorder::turns::{AskedLook, TurnWatch, longest_step, steps};
use crate::recorder::work::{CopiedWait, DescribeWork, StackBytes};
use crate::recorder::{
    AWAY, FIRST_STORED_NS, SAMPLE_AFTER_NS, SAMPLE_PERIOD, SAMPLES, nanoseconds,
};

/// A call of a thread that is away is described after this time, in nanoseconds.
const DESCRIBE_NS: u64 = 20_000_000;
/// The first description of a thread that is away is made after this time, in nanoseconds, also of a short call.
const FIRST_DESCRIPTION_NS: u64 = 50_000_000;
/// A wait that is not classified is asked about after this time, in nanoseconds.
const ASK_NS: u64 = 50_000_000;
/// A wait that has lasted for so long is looked at less often, in nanoseconds.
const SETTLED_NS: u64 = 2_000_000_000;
/// The interval of looks at a thread in such a wait.
const SETTLED: Duration = Duration::from_millis(500);
/// The most page faults of one hang whose stacks are read.
const FAULTS: u32 = 8;
/// The most descriptions of one hang.
const DESCRIPTIONS: usize = 16;

impl ExactRecorder<'_> {
    /// Looks at the threads that are away for long.
    pub(super) fn look(&mut self, now_ns: u64) {
        let due: Vec<u32> = self
            .marked
            .values()
            .filter(|program| program.away.as_ref().is_some_and(|away| away.due_ns <= now_ns))
            .map(|program| program.process)
            .collect();
        for process in due {
            self.look_at(process);
        }
    }

    pub(super) fn look_at(&mut self, process: u32) {
        let asked_ns = sys::bpf::clock_ns();
        let state = self.thread_state(process);
        let now_ns = sys::bpf::clock_ns();
        // The waits that have ended until then are in the ring by now.
        self.take_reports();
        let Some(program) = self.marked.get_mut(&process) else { return };
        let Some(absence) = &mut program.away else { return };
        let Ok(state) = state else {
            absence.due_ns = now_ns + nanoseconds(AWAY);
            return;
        };
        let Some(state) = state else { return self.drop_absence(process) };
        if state.away_since_ns != Some(absence.started_ns) {
            // Its end is in the ring, unless it ended while it was reported to be long, or the ring was full, which is counted.
            absence.due_ns = now_ns + nanoseconds(AWAY);
            if absence.started_ns < asked_ns && self.reports.is_empty() {
                self.drop_absence(process);
            }
            return;
        }
        let blocked_ns = match state.off_since_ns {
            Some((off_ns, false)) => now_ns.saturating_sub(off_ns),
            _ => 0,
        };
        let interval = if blocked_ns > SETTLED_NS { SETTLED } else { AWAY };
        absence.due_ns = now_ns + nanoseconds(interval);
        let away_ns = now_ns.saturating_sub(absence.started_ns);
        let counters = self.reader.counters(process);
        let queued_ns = counters.map_or(0, |counters| counters.queued_ns);
        let ready_ns = queued_ns.saturating_sub(state.ready_before_ns);
        let blocked_ns = state.account.off_ns.saturating_sub(ready_ns) + blocked_ns;
        absence.is_computing = blocked_ns.saturating_mul(2) <= away_ns;
        let step_ns = now_ns.saturating_sub(absence.began_ns());
        if !absence.is_computing && absence.disk.is_none() && step_ns >= DISK_USE_NS {
            absence.disk = self.disks.begin();
        }
        if let Some((off_ns, false)) = state.off_since_ns {
            self.look_at_blocked(process, &state, off_ns, now_ns);
            self.note_wait(process, off_ns, asked_ns);
        }
        let turns = counters.map_or(0, |counters| counters.turns);
        if self.look_for_sleep(process, &state, now_ns, turns) {
            return;
        }
        self.look_at_file(process, now_ns);
        self.watch_turns(process, state.main_place, now_ns);
        let moments = self.turns_until(process, asked_ns);
        self.sample(process, now_ns, &moments);
        self.take_faults(process);
        if !moments.is_empty() {
            let (account, blocks) = self.account_now(process, &state, now_ns);
            self.split(process, &moments, &account, &blocks);
        }
        self.store_running(process, &state, now_ns);
    }

    /// Reads the stack of a thread that is blocked, and what its call works on.
    fn look_at_blocked(&mut self, process: u32, state: &MarkedThread, off_ns: u64, now_ns: u64) {
        let Some(program) = self.marked.get_mut(&process) else { return };
        let loop_is_lock = program.rests_in_lock();
        let Some(absence) = &mut program.away else { return };
        // It is asked about also when it is described already, which is done earlier.
        let is_described = absence.described.iter().any(|made| made.from_ns == off_ns)
            || absence.stops.last() == Some(&off_ns)
            || absence.described.len() >= DESCRIPTIONS;
        let began_ns = absence.began_ns();
        let is_of_loop = |wait: &EventWait| loop_is_lock || !wait.is_of_lock();
        if let Some((wait, account)) = state.wait.filter(|(wait, _)| is_of_loop(wait))
            && !program.waits.contains_key(&wait)
        {
            let (of, first) = *absence.open_wait.get_or_insert((wait, account));
            let first = if of.place == wait.place { first } else { account };
            // It may be that of a loop, such as a dialog's. If that has an animation, each of its waits is short.
            if now_ns.saturating_sub(account.at_ns.min(began_ns)) >= ASK_NS
                && let Some(Activity::InCall(call)) = self.activity(process)
                && (is_event_wait(&call) || loop_is_lock && is_lock_wait(call.number))
                && EventWait::of(&call) == wait
                && self.ask(process, call, false)
                && let Some(absence) = self.absence_mut(process)
            {
                absence.asked = Some((wait, first));
                return;
            }
        }
        if is_described {
            return;
        }
        let Some(absence) = self.marked.get(&process).and_then(|program| program.away.as_ref())
        else {
            return;
        };
        let away_ns = now_ns.saturating_sub(absence.started_ns);
        let since_ns = now_ns.saturating_sub(absence.described_at_ns);
        let is_due = now_ns.saturating_sub(off_ns) >= DESCRIBE_NS
            || (away_ns >= FIRST_DESCRIPTION_NS && since_ns >= FIRST_DESCRIPTION_NS);
        if !is_due || !self.link.has_room() {
            return;
        }
        let key = absence.key;
        match self.activity(process) {
            Some(Activity::Stopped) => {
                if let Some(absence) = self.absence_mut(process) {
                    absence.stops.push(off_ns);
                }
            }
            Some(Activity::InCall(call)) => {
                let Some((number, copy, object)) = self.reader.describe(process, &call) else {
                    return;
                };
                self.link.count_copy();
                self.link.send(DescribeWork::Stack { key, process, number, copy });
                let key = Some((call.number, call.arguments[0]));
                self.add_description(process, now_ns, (number, off_ns, key), object);
            }
            Some(Activity::Fault) => {
                if let Some(absence) = self.absence_mut(process)
                    && let Some(files) = &mut absence.fault_files
                {
                    files.read_mapped(process);
                }
                let Some((number, copy)) = self.reader.describe_fault(process) else { return };
                self.link.count_copy();
                self.link.send(DescribeWork::Stack { key, process, number, copy });
                self.add_description(process, now_ns, (number, off_ns, None), None);
            }
            Some(Activity::Running) | None => {}
        }
    }

    /// Looks whether the loop of a program that sleeps and looks for events sleeps at another place now; returns whether it does, and ends
    /// the absence then.
    fn look_for_sleep(
        &mut self,
        process: u32,
        state: &MarkedThread,
        now_ns: u64,
        turns: u64,
    ) -> bool {
        if !self.marked.get(&process).is_some_and(|program| program.rests_in_sleep()) {
            return false;
        }
        let Some(Activity::InCall(call)) = self.activity(process) else { return false };
        let Some(absence) = self.absence_mut(process) else { return false };
        let is_loop = absence.sleeps.note(&call, now_ns, turns);
        if absence.sleeps.since_ns() == Some(now_ns) {
            let (account, _) = self.account_now(process, state, now_ns);
            let Some(absence) = self.absence_mut(process) else { return false };
            absence.before_sleep = Some(account);
        }
        if !is_loop {
            return false;
        }
        let Some(absence) = self.absence_mut(process) else { return false };
        let Some(account) = absence.before_sleep.take() else { return false };
        absence.seen_wait = None;
        let started_ns = absence.started_ns;
        self.know_sleep(process, &call);
        if let Some(program) = self.marked.get_mut(&process) {
            // The programs in the kernel count one step until the next sleep.
            program.counts.not_one.add(now_ns.saturating_sub(started_ns));
            program.counts.turned.add(account.at_ns.saturating_sub(started_ns));
        }
        self.ended(process, &account, false);
        true
    }

    /// Notes the wait that a thread is in, with what it was described as.
    fn note_wait(&mut self, process: u32, from_ns: u64, until_ns: u64) {
        let Some(absence) = self.absence_mut(process) else { return };
        let described = absence.described.iter().find(|made| made.from_ns == from_ns);
        let is_stopped = absence.stops.contains(&from_ns);
        // Without either nothing is known of it but its length.
        if described.is_some() || is_stopped {
            let key = described.and_then(|made| made.key);
            absence.seen_wait = Some(SeenWait { from_ns, until_ns, key });
        }
    }

    /// Reads the file of a short call that was over before it could be looked at. It counts only if the same descriptor is used
    /// in the same call once more.
    fn look_at_file(&mut self, process: u32, now_ns: u64) {
        let Some(program) = self.marked.get(&process) else { return };
        let Some(absence) = &program.away else { return };
        let Some(block) = program.blocks_of(absence.started_ns).last() else { return };
        let Some(number) = block.call else { return };
        let key = Some((number, block.arguments[0]));
        let is_of_file = call_name(number).is_some_and(|name| {
            matches!(SyscallClass::of(name), SyscallClass::Data | SyscallClass::Sync)
        });
        let is_recent = now_ns.saturating_sub(block.to_ns) < 2 * nanoseconds(AWAY);
        if !is_of_file
            || block.could_run
            || !is_recent
            || absence.described.iter().any(|made| made.key == key && made.object.is_some())
            || absence.described.len() >= DESCRIPTIONS / 2
        {
            return;
        }
        let (sp, ip) = block.place;
        let call = BlockedSyscall { number, arguments: block.arguments, sp, ip };
        let object = self.reader.object_of(process, &call);
        let from_ns = sys::bpf::clock_ns();
        let Some(absence) = self.absence_mut(process) else { return };
        if object.is_some() {
            let number = BlockDescription::WITHOUT_STACK;
            absence.described.push(BlockDescription { number, from_ns, key, object });
        }
    }

    fn add_description(
        &mut self,
        process: u32,
        now_ns: u64,
        (number, from_ns, key): (u32, u64, BlockKey),
        object: Option<CallObject>,
    ) {
        let Some(absence) = self.absence_mut(process) else { return };
        absence.described.push(BlockDescription { number, from_ns, key, object });
        absence.described_at_ns = now_ns;
    }

    /// Puts a breakpoint at the wait of the main loop of a thread that is away: looks for events that take no time are not seen
    /// otherwise, and many short steps would be one long one.
    fn watch_turns(&mut self, process: u32, (sp, ip): WaitPlace, now_ns: u64) {
        let may_break = self.may_break;
        let Some(program) = self.marked.get_mut(&process) else { return };
        if program.rests_in_sleep() {
            // Each of its sleeps is seen.
            return;
        }
        let number = program.calls.iter().find(|(of, _)| *of == ip).map(|(_, number)| *number);
        let is_new = is_new(program, now_ns);
        let Some(absence) = &mut program.away else { return };
        if absence.turns.is_some() || !may_break || ip == 0 {
            return;
        }
        // Until it was asked about it is not known which call the wait is.
        let number = number.or_else(|| call_number("poll")).unwrap_or_default();
        let main = BlockedSyscall { number, arguments: [0; 6], sp, ip };
        let begin = if is_new { TurnWatch::of_start } else { TurnWatch::begin };
        match begin(process, main, now_ns, &self.samplers) {
            Ok(watch) => absence.turns = Some(watch),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.may_break = false,
            // Others use all breakpoints of the processor.
            Err(_) => {}
        }
    }

    /// Takes the returns of the main loop's wait that a breakpoint has seen until a moment; later ones stay for the next time.
    pub(super) fn turns_until(&mut self, process: u32, until_ns: u64) -> Vec<u64> {
        let program = self.marked.get_mut(&process);
        let Some(MarkedProgram { away: Some(absence), waits, call_chains: chains, .. }) = program
        else {
            return Vec::new();
        };
        let from_ns = absence.began_ns();
        let Some(watch) = &mut absence.turns else { return Vec::new() };
        let kind_of =
            |call: &BlockedSyscall, stack: &[u8]| kind_of_look(waits, chains, call, stack);
        let main_place = watch.main_place();
        let tells_apart = waits.iter().any(|(wait, state)| {
            wait.place == main_place && matches!(state, WaitState::Classified(_))
        });
        let asked = watch.take(from_ns, tells_apart, kind_of);
        let moments = watch.until(until_ns);
        self.ask_looks(process, asked);
        moments
    }

    /// Has looks classified by their stacks.
    pub(super) fn ask_looks(&mut self, process: u32, asked: Vec<AskedLook>) {
        for AskedLook { call, copy, is_part } in asked {
            if self.may_ask(process, &call) {
                let polled = read::looked_for(process, &call, &copy);
                self.ask_with(process, &call, false, CopiedWait { copy, polled, is_part });
            }
        }
    }

    /// Ends an absence at each of these moments, and begins one at the last. The account and the waits are those of a later moment.
    pub(super) fn split(
        &mut self,
        process: u32,
        moments: &[u64],
        account: &AbsenceAccount,
        blocks: &[ThreadBlock],
    ) {
        let Some(absence) = self.absence_mut(process) else { return };
        let (began_ns, turned_ns, own_key) = (absence.began_ns(), absence.turned_ns, absence.key);
        let Some(longest) = longest_step(began_ns, moments) else { return };
        // Samples after the last moment were sent under it.
        let Some(program) = self.marked.get_mut(&process) else { return };
        let later_key = program.take_key();
        for (from_ns, to_ns) in steps(began_ns, moments) {
            let Some(program) = self.marked.get_mut(&process) else { return };
            let length_ns = to_ns.saturating_sub(from_ns);
            program.counts.turned.add(length_ns);
            let is_longest = (from_ns, to_ns) == longest;
            if is_longest || length_ns >= HANG_NS {
                let key = if is_longest { own_key } else { program.take_key() };
                let Some(absence) = &mut program.away else { return };
                absence.key = key;
                if from_ns == began_ns {
                    absence.turned_ns = turned_ns;
                } else {
                    absence.turned_ns = Some(from_ns);
                    absence.unseen = absence.unseen.of_later_step();
                }
                self.finish(process, account, blocks, to_ns, false);
            }
        }
        let Some(absence) = self.absence_mut(process) else { return };
        absence.key = later_key;
        absence.disk = None;
        absence.unseen = absence.unseen.of_later_step();
        absence.turned_ns = moments.last().copied();
        absence.described.clear();
        absence.stops.clear();
        (absence.described_at_ns, absence.samples, absence.faults) = (0, 0, 0);
        absence.store_at_ns = FIRST_STORED_NS;
    }

    pub(super) fn absence_mut(&mut self, process: u32) -> Option<&mut WatchedAbsence> {
        self.marked.get_mut(&process)?.away.as_mut()
    }

    pub(super) fn drop_absence(&mut self, process: u32) {
        let absence = self.marked.get_mut(&process).and_then(|program| program.away.take());
        if let Some(absence) = absence {
            self.link.send(DescribeWork::Dropped { key: absence.key });
        }
    }

    /// Samples the functions of a thread that is away for long, also those in which it waits for pages. At `turns`
    /// its main loop looked for events: what was after them belongs to the next absence, and of what was before that of the longest step is
    /// told.
    pub(super) fn sample(&mut self, process: u32, now_ns: u64, turns: &[u64]) {
        let (link, may_sample, reader) = (self.link, &mut self.may_sample, &mut self.reader);
        let rights = &self.samplers;
        let Some(program) = self.marked.get_mut(&process) else { return };
        let later_key = program.next_key + 1;
        let Some(absence) = &mut program.away else { return };
        let away_ns = now_ns.saturating_sub(absence.started_ns);
        if absence.sampler.is_none() && away_ns >= SAMPLE_AFTER_NS && !absence.is_over {
            if *may_sample {
                let opened = ThreadSampler::with_kernel(process, SAMPLE_PERIOD)
                    .or_else(|_| ThreadSampler::open_by(rights, process, SAMPLE_PERIOD));
                match opened {
                    Ok(opened) => absence.sampler = Some(opened),
                    Err(error) => {
                        // The limit of locked memory passes; a prohibition stays.
                        *may_sample = error.kind() != io::ErrorKind::PermissionDenied;
                    }
                }
            }
            if absence.sampler.is_none() && absence.is_computing {
                absence.unseen.add(UnseenParts::FUNCTIONS);
            }
        }
        let WatchedAbsence { key, sampler, samples, faults, described, turned_ns, .. } = absence;
        let Some(sampler) = sampler else { return };
        let began_ns = turned_ns.unwrap_or(0);
        let told = longest_step(began_ns, turns).unwrap_or((began_ns, u64::MAX));
        let last_ns = turns.last().copied().unwrap_or(u64::MAX);
        sampler.take(|sample| {
            let is_later = sample.at_ns >= last_ns;
            let is_told = (told.0..=told.1).contains(&sample.at_ns);
            if !(is_told || is_later) || !link.has_room() {
                return;
            }
            if sample.fault.is_some() {
                if *faults < FAULTS && described.len() < DESCRIPTIONS && !is_later {
                    *faults += 1;
                    let number = reader.take_number();
                    let (ip, sp, bytes) = (sample.ip, sample.sp, sample.stack.to_vec());
                    let copy = StackBytes::new(ip, sp, bytes);
                    link.count_copy();
                    link.send(DescribeWork::Stack { key: *key, process, number, copy });
                    let from_ns = sample.at_ns;
                    described.push(BlockDescription { number, from_ns, key: None, object: None });
                }
                return;
            }
            if *samples >= SAMPLES {
                return;
            }
            *samples += 1;
            link.count_copy();
            let registers = trace::stack::KnownRegisters::new(sample.ip, sample.sp)
                .bp(sample.bp)
                .kept(sample.kept);
            link.send(DescribeWork::Sample {
                key: if is_later { later_key } else { *key },
                process,
                registers,
                bytes: sample.stack.to_vec(),
                stands_for_ns: nanoseconds(SAMPLE_PERIOD),
            });
        });
        if *faults >= FAULTS {
            sampler.end_faults();
        }
    }

    /// Finds the files of the page faults of a thread that is away for long.
    pub(super) fn take_faults(&mut self, process: u32) {
        let may_sample = self.may_sample;
        let Some(program) = self.marked.get_mut(&process) else { return };
        let Some(absence) = &program.away else { return };
        let waits = program.blocks_of(absence.started_ns);
        let has_faults = waits.iter().any(|wait| wait.call.is_none() && !wait.could_run);
        let Some(absence) = &mut program.away else { return };
        if absence.fault_files.is_none() && may_sample && !absence.is_over {
            absence.fault_files = FaultFiles::begin(process, &self.samplers);
        }
        if has_faults && let Some(files) = &mut absence.fault_files {
            files.read_mapped(process);
        }
        if let Some(files) = &mut absence.fault_files {
            files.take(process);
        }
    }

    /// Stores a hang that goes on, so that it is known even if this process is killed.
    fn store_running(&mut self, process: u32, state: &MarkedThread, now_ns: u64) {
        let Some(absence) = self.absence_mut(process) else { return };
        let is_open = absence.asked.is_some() || absence.sleeps.may_be_loop();
        if is_open || now_ns.saturating_sub(absence.began_ns()) < absence.store_at_ns {
            return;
        }
        absence.store_at_ns = absence.store_at_ns.saturating_mul(2);
        let (account, blocks) = self.account_now(process, state, now_ns);
        self.send_hang(process, &account, &blocks, now_ns, true);
    }

    /// Returns what the absence that goes on went to until now, with the wait in which the thread is.
    pub(super) fn account_now(
        &mut self,
        process: u32,
        state: &MarkedThread,
        now_ns: u64,
    ) -> (AbsenceAccount, Vec<ThreadBlock>) {
        let counters = self.reader.counters(process);
        let ready_ns = counters.map_or(0, |counters| counters.queued_ns);
        let ready_ns = ready_ns.saturating_sub(state.ready_before_ns);
        let mut account = AbsenceAccount { at_ns: now_ns, ready_ns, ..state.account };
        let program = self.marked.get(&process);
        let started_ns = state.away_since_ns.unwrap_or(now_ns);
        let mut blocks: Vec<ThreadBlock> =
            program.map(|program| program.blocks_of(started_ns).to_vec()).unwrap_or_default();
        // Those that ended since the state was read are still to come in it.
        let off_from_ns = state.off_since_ns.map_or(now_ns, |(from_ns, _)| from_ns);
        blocks.retain(|block| block.to_ns <= now_ns && block.from_ns < off_from_ns);
        if let Some((from_ns, could_run)) = state.off_since_ns {
            let off_ns = now_ns.saturating_sub(from_ns);
            let call = match (could_run, self.activity(process)) {
                (false, Some(Activity::InCall(call))) => Some(call),
                _ => None,
            };
            blocks.push(ThreadBlock {
                from_ns,
                to_ns: now_ns,
                ready_ns,
                blocked_ns: if could_run { 0 } else { off_ns },
                off_before_ns: account.off_ns,
                could_run,
                is_stopped: false,
                call: call.map(|call| call.number),
                arguments: call.map_or([0; 6], |call| call.arguments),
                place: call.map_or((0, 0), |call| (call.sp, call.ip)),
            });
            account.off_ns += off_ns;
            if could_run {
                account.ready_ns += off_ns;
            }
        }
        (account, blocks)
    }
}
