//! Beginnings and ends of threads, and other programs that processes execute.

use sys::ptrace;

use super::super::procfs;
use super::super::thread::TracedThread;
use super::{Engine, StopMechanism};
use crate::call::{CallEnd, TracedCall};
use crate::recording::Exit;
use crate::timeline::ThreadCounters;

impl Engine<'_> {
    /// Adds a thread at its first stop, which may come before that of its parent.
    pub(super) fn know(&mut self, tid: u32, now: u64) -> &mut TracedThread {
        if !self.threads.contains_key(&tid) {
            let kin = procfs::kin(tid);
            let process = kin.map_or(tid, |kin| kin.process);
            let parent = kin.map(|kin| kin.parent).filter(|_| process != self.root);
            let is_new = !self.recorder.recording().processes.contains_key(&process);
            if is_new {
                let made = self.recorder.process(process);
                made.parent = parent;
                made.start_ns = now;
                made.executable = procfs::executable(process);
                made.command = procfs::command_line(process);
            }
            self.recorder.thread(tid, process, now);
            self.threads.insert(tid, TracedThread::new(process));
            self.placement.born(tid);
        }
        self.threads.entry(tid).or_insert_with(|| TracedThread::new(tid))
    }

    /// A process runs another program, by the thread `tid`, which may have had another number.
    pub(super) fn runs_another(&mut self, tid: u32, now: u64) {
        self.know(tid, now);
        self.is_before_program = false;
        let former = ptrace::event_message(tid).ok().and_then(|f| u32::try_from(f).ok());
        if let Some(former) = former.filter(|former| *former != tid)
            && let Some(mut caller) = self.threads.remove(&former)
        {
            // The main thread ended without an event; the caller continues under its ID.
            caller.counters = None;
            if let Some(mut leader) = self.threads.insert(tid, caller) {
                self.broken_off(tid, &mut leader, now);
            }
            self.recorder.thread_ended(former, now);
            self.placement.renumbered(former, tid);
        }
        let Some(thread) = self.threads.get(&tid) else { return };
        let process = thread.process;
        self.unwinder.forget(process);
        self.places.forget(process);
        let runs = self.recorder.process(process);
        runs.executable = procfs::executable(process);
        runs.command = procfs::command_line(process);
        self.foreign_programs += u64::from(procfs::is_surely_foreign(process));
    }

    /// Records the calls that a thread has entered and will not complete.
    fn broken_off(&mut self, tid: u32, thread: &mut TracedThread, now: u64) {
        for left in thread.ended() {
            self.keep(tid, thread.process, left, now);
        }
        let Some(call) = thread.call.take() else { return };
        let wall_ns = now.saturating_sub(call.start_ns);
        // These are not in the totals, which contain completed calls only, as with strace.
        if self.options.calls.contains(call.number) && self.recorder.is_slow(wall_ns) {
            self.recorder.keep(TracedCall {
                process: thread.process,
                thread: tid,
                number: call.number,
                arguments: call.arguments,
                outcome: CallEnd::Unknown,
                start_ns: call.start_ns,
                wall_ns,
                cpu_ns: None,
                queued_ns: None,
                stack: None,
                target: None,
            });
        }
    }

    /// A thread is about to end.
    pub(super) fn exiting(&mut self, tid: u32, now: u64) {
        let process = self.know(tid, now).process;
        if tid == process {
            self.filtered += u64::from(self.has_filters_of_its_own(process));
        }
        let name = procfs::thread_name(process, tid);
        self.recorder.thread(tid, process, now).name = name;
        if tid == process
            && let Some(used) = self.used(tid)
        {
            let counters = ThreadCounters {
                at_ns: now,
                processor_ns: used.cpu_ns,
                ready_ns: used.queued_ns,
                faults: procfs::fault_count(process).unwrap_or(0),
            };
            self.recorder.ended_with(tid, counters);
        }
        if let Some(mut thread) = self.threads.remove(&tid) {
            self.broken_off(tid, &mut thread, now);
            self.counters_open =
                self.counters_open.saturating_sub(usize::from(thread.counters.is_some()));
            thread.counters = None;
            self.threads.insert(tid, thread);
        }
        self.placement.ended(tid, now);
    }

    /// A thread has ended, and its process with it if it is the first one.
    pub(super) fn ended(&mut self, tid: u32, exit: Exit, now: u64) {
        if let Some(mut thread) = self.threads.remove(&tid) {
            self.broken_off(tid, &mut thread, now);
        }
        self.placement.ended(tid, now);
        self.recorder.thread_ended(tid, now);
        if self.recorder.recording().processes.contains_key(&tid) {
            self.recorder.process_ended(tid, Some(exit), now);
            self.unwinder.forget(tid);
            self.places.forget(tid);
        }
    }

    /// Returns whether a process denies itself calls, which our filter is not asked about then.
    pub(super) fn has_filters_of_its_own(&self, process: u32) -> bool {
        self.stops == StopMechanism::Filter
            && procfs::filters(process).zip(self.filters).is_some_and(|(has, ours)| has > ours)
    }
}
