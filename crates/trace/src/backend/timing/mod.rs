//! Accounts for the time of main threads beside any backend: a thread reads the kernel's counters and samples what is blocked.
//!
//! It stops nothing, and needs only the permission to read the state of the process. Waits in calls that the backend does
//! not record, such as those for locks, are recorded as calls whose length is known to about the interval.

mod sampled;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use self::sampled::{SampledThread, SamplingTools};
use super::TraceOptions;
use crate::recorder::{ProcessAnnouncer, TraceRecorder};
use crate::recording::{Backend, Recording};

/// The interval between samples.
const PERIOD: Duration = Duration::from_millis(2);
/// The longest interval, if a round is expensive.
const LONGEST: Duration = Duration::from_millis(16);
/// A rest is at least so many times as long as the round before it.
const SHARE: u32 = 60;
/// The longest rest while there is no process.
const IDLE: Duration = Duration::from_millis(20);
/// The most processes that are sampled at a time.
const PROCESSES: usize = 64;

/// Accounts for the time of main threads until the recording ends.
#[derive(Debug)]
pub(super) struct TimeAccountant {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Recording>>,
}

impl TimeAccountant {
    /// Begins with the processes of `recorder`, whose times count from `began_ns` of the monotonic clock.
    pub(super) fn start(
        recorder: &mut TraceRecorder,
        options: &TraceOptions,
        began_ns: u64,
    ) -> TimeAccountant {
        recorder.recording().began_monotonic_ns = Some(began_ns);
        let (announce, processes) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let tools =
            SamplingTools::new(side_recorder(), options, recorder.recording().backend, began_ns);
        let is_over = Arc::clone(&stop);
        let thread = sys::thread::spawn("time", move || account(tools, &processes, &is_over));
        match &thread {
            Ok(thread) => {
                let receiver = thread.thread().clone();
                recorder.announce_processes(ProcessAnnouncer { processes: announce, receiver });
            }
            Err(error) => recorder
                .recording()
                .unseen
                .push(format!("how the main threads spent their time: {error}")),
        }
        TimeAccountant { stop, thread: thread.ok() }
    }

    /// Ends the recording of `recorder`, `length_ns` nanoseconds after it began, with the account of the time in it.
    pub(super) fn finish(mut self, mut recorder: TraceRecorder, length_ns: u64) -> Recording {
        self.stop();
        if let Some(recording) = self.thread.take().and_then(|thread| thread.join().ok()) {
            recorder.absorb(recording);
        }
        recorder.finish(length_ns)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for TimeAccountant {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns a recorder for what is sampled; it is absorbed by the backend's.
fn side_recorder() -> TraceRecorder {
    TraceRecorder::new(Backend::Peek, Vec::new(), SystemTime::UNIX_EPOCH)
}

/// Samples until `is_over`.
fn account(
    mut tools: SamplingTools,
    processes: &Receiver<(u32, u64)>,
    is_over: &AtomicBool,
) -> Recording {
    let mut threads: Vec<SampledThread> = Vec::new();
    let mut left_out = 0_u64;
    loop {
        let ends = is_over.load(Ordering::Relaxed);
        let began_ns = sys::bpf::clock_ns();
        for (process, found_ns) in processes.try_iter() {
            if threads.len() < PROCESSES {
                threads.extend(SampledThread::new(process, found_ns, &mut tools));
            } else {
                left_out += 1;
            }
        }
        let mut at = 0;
        while let Some(thread) = threads.get_mut(at) {
            if thread.sample(&mut tools) {
                at += 1;
            } else {
                threads.swap_remove(at).finish(&mut tools);
            }
        }
        if ends {
            break;
        }
        let took = Duration::from_nanos(sys::bpf::clock_ns().saturating_sub(began_ns));
        let rest = if threads.is_empty() { IDLE } else { (took * SHARE).clamp(PERIOD, LONGEST) };
        std::thread::park_timeout(rest);
    }
    for thread in threads {
        thread.finish(&mut tools);
    }
    tools.finish(left_out)
}
