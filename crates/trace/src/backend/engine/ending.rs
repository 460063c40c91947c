//! The end of a recording: what is unfinished then, and what is said of the whole.

use sys::ptrace::{self, Patience, TraceStop, Waited};

use super::super::placement::Placement;
use super::super::thread::EnteredCall;
use super::super::{KERNEL_WORK_UNSEEN, Stacks, caller, procfs};
use super::{Engine, OverheadEstimates};
use crate::call::{CallEnd, TracedCall};
use crate::recording::{Exit, Recording};

impl Engine<'_> {
    /// Completes the recording; the placement restores the CPUs of threads that are still traced.
    pub(in super::super) fn finish(mut self) -> (Recording, Placement) {
        let now = self.now();
        self.placement.unbind(now);
        self.keep_running_calls(now);
        for (tid, thread) in &self.threads {
            if *tid == thread.process {
                self.filtered += u64::from(self.has_filters_of_its_own(*tid));
            }
            let name = procfs::thread_name(thread.process, *tid);
            self.recorder.thread(*tid, thread.process, now).name = name;
        }
        self.note(now);
        (self.time.finish(self.recorder, now), self.placement)
    }

    fn note(&mut self, now: u64) {
        let OverheadEstimates { beside, free } = self.biases;
        let bound = self.placement.bound_ns();
        let mut notes = Vec::new();
        if bound > 0 {
            let share = bound.saturating_mul(100) / now.max(1);
            notes.push(format!(
                "For {share} % of the time the tracer and the busiest thread were bound to one CPU, where a stop costs least; the program's own CPUs were restored before each query for them."
            ));
        }
        notes.push(format!(
            "Subtracted from each call: {} ns where tracer and thread shared a CPU, else {} ns (quartiles {} ns apart).",
            beside.subtracted_ns, free.subtracted_ns, free.spread_ns
        ));
        notes.push("Not seen: calls answered without the kernel (vDSO).".to_owned());
        notes.push(KERNEL_WORK_UNSEEN.to_owned());
        if self.filtered > 0 {
            notes.push(format!(
                "{} of the processes deny themselves calls by filters of their own: denied calls are not recorded; the backends bpf and ptrace count them.",
                self.filtered
            ));
        }
        if self.foreign_programs > 0 {
            notes.push(format!(
                "{} programs made 32-bit calls, which are not watched.",
                self.foreign_programs
            ));
        }
        if self.foreign_calls > 0 {
            notes.push(format!("{} 32-bit calls were not recorded.", self.foreign_calls));
        }
        let recording = self.recorder.recording();
        recording.foreign_calls += self.foreign_programs + self.foreign_calls;
        recording.notes.append(&mut notes);
    }

    /// Records the unfinished calls that are already slow, with their stacks.
    fn keep_running_calls(&mut self, now: u64) {
        let mut running: Vec<(u32, u32, EnteredCall)> = self
            .threads
            .iter()
            .filter_map(|(tid, thread)| Some((*tid, thread.process, thread.call?)))
            .filter(|(.., call)| self.options.calls.contains(call.number))
            .collect();
        running.sort_unstable_by_key(|(tid, ..)| *tid);
        for (tid, process, entered) in running {
            let wall_ns = now.saturating_sub(entered.start_ns);
            let hangs = procfs::hangs(process);
            let wants =
                self.options.stacks != Stacks::None && self.recorder.is_slow(wall_ns) && !hangs;
            let (unwinder, recorder) = (&mut self.unwinder, &mut self.recorder);
            let stack = if self.executes.contains(&Some(entered.number)) {
                // The new program may be there already.
                entered.stack.filter(|_| wants)
            } else {
                wants.then(|| {
                    caller::of_blocked(unwinder, recorder, process, entered.ip, entered.sp)
                })
            };
            let target = (!hangs).then(|| self.target(tid, process, &entered, None)).flatten();
            self.recorder.call(TracedCall {
                process,
                thread: tid,
                number: entered.number,
                arguments: entered.arguments,
                outcome: CallEnd::Running,
                start_ns: entered.start_ns,
                wall_ns,
                cpu_ns: None,
                queued_ns: None,
                stack,
                target,
            });
        }
    }
}

/// Resumes every stop until no thread is traced any more; returns how `root` ended.
pub(in super::super) fn pass_through(root: u32, placement: &Placement) -> Option<Exit> {
    let mut exit = None;
    loop {
        let (tid, status) = match ptrace::wait(Patience::Blocks) {
            Ok(Waited::Thread(tid, status)) => (tid, status),
            Ok(Waited::Nothing) => continue,
            Ok(Waited::Nobody) | Err(_) => return exit,
        };
        // As in the loop above, requests to a killed thread fail.
        let _ = match status {
            TraceStop::Exited(code) if tid == root => {
                exit = Some(Exit::Code(code));
                continue;
            }
            TraceStop::Killed(signal) if tid == root => {
                exit = Some(Exit::Signal(signal));
                continue;
            }
            TraceStop::Exited(_) | TraceStop::Killed(_) => continue,
            TraceStop::Group(_) => ptrace::listen(tid),
            TraceStop::Signal(signal) => ptrace::cont(tid, signal),
            TraceStop::Stopped => {
                placement.born(tid);
                ptrace::cont(tid, 0)
            }
            _ => ptrace::cont(tid, 0),
        };
    }
}
