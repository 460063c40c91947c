//! Reads of files that a file system may delay without end: a server that does not answer, a disk that fails. A thread does them, and the
//! caller waits for a limited time.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most threads that may be stalled; with more no work begins.
const MOST_STALLED: usize = 16;
/// While other work is stalled, the limit is divided by this: callers that come later do not wait as long again.
const WHILE_STALLED: u32 = 10;

/// The numbers of a device, major and minor.
pub type DeviceNumber = (u32, u32);

type Job = Box<dyn FnOnce() + Send>;

/// Work that did not end in time.
struct StalledWork {
    device: DeviceNumber,
    has_ended: Arc<AtomicBool>,
}

/// A thread that works on files, started when there is something to do.
///
/// A clone has a thread of its own, and knows which devices have stalled another one.
pub struct FileWorker {
    limit: Duration,
    jobs: Option<Sender<Job>>,
    stalled: Arc<Mutex<Vec<StalledWork>>>,
}

impl fmt::Debug for FileWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWorker").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Clone for FileWorker {
    fn clone(&self) -> FileWorker {
        FileWorker { limit: self.limit, jobs: None, stalled: Arc::clone(&self.stalled) }
    }
}

impl FileWorker {
    /// Creates one whose callers wait no longer than `limit`.
    #[must_use]
    pub fn new(limit: Duration) -> FileWorker {
        FileWorker { limit, jobs: None, stalled: Arc::default() }
    }

    /// Returns what `work` on files of a device returns. Returns nothing if the work does not end in time, if earlier work on the same
    /// device is still stalled, or if no thread can be started. Work that has begun goes on, and its result is dropped.
    pub fn run<T: Send + 'static>(
        &mut self,
        device: impl Fn() -> DeviceNumber,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let limit = match self.is_stalled() {
            false => self.limit,
            true if self.may_begin(device()) => self.limit / WHILE_STALLED,
            true => return None,
        };
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let (answer, answered) = sync_channel(1);
        let job = Box::new(move || {
            let done = work();
            // Before the answer: the caller may run other work at once.
            ended.store(true, Ordering::Release);
            // Nobody waits for it after the limit.
            let _ = answer.send(done);
        });
        self.jobs()?.send(job).ok()?;
        let answer = answered.recv_timeout(limit);
        if answer.is_err() {
            // The thread ends with its work, or has ended by a panic.
            self.jobs = None;
        }
        if matches!(answer, Err(RecvTimeoutError::Timeout)) {
            let work = StalledWork { device: device(), has_ended };
            self.stalled.lock().unwrap_or_else(PoisonError::into_inner).push(work);
        }
        answer.ok()
    }

    /// Returns whether any work is stalled, of this worker or of one that it was cloned from.
    fn is_stalled(&self) -> bool {
        let mut stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        stalled.retain(|work| !work.has_ended.load(Ordering::Acquire));
        !stalled.is_empty()
    }

    /// Returns whether no work on a device is stalled, nor too much on others.
    fn may_begin(&self, device: DeviceNumber) -> bool {
        let stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        stalled.len() < MOST_STALLED && stalled.iter().all(|work| work.device != device)
    }

    fn jobs(&mut self) -> Option<&Sender<Job>> {
        if self.jobs.is_none() {
            let (jobs, taken) = channel::<Job>();
            crate::thread::spawn("files", move || taken.into_iter().for_each(|job| job())).ok()?;
            self.jobs = Some(jobs);
        }
        self.jobs.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(50);

    #[test]
    fn stalled_work_delays_no_work_on_other_devices() {
        let mut worker = FileWorker::new(LIMIT);
        let (release, wait) = channel::<()>();
        assert_eq!(worker.run(|| (0, 7), move || wait.recv().is_err()), None);
        assert_eq!(worker.run(|| (0, 7), || 1), None, "the device that stalls is not asked again");
        assert_eq!(worker.clone().run(|| (0, 7), || 1), None, "not by a clone, either");
        // On a busy machine a short limit may pass before the thread runs.
        let asks = || worker.run(|| (8, 1), || 2);
        assert_eq!(std::iter::repeat_with(asks).flatten().next(), Some(2));
        drop(release);
        let asks = || worker.run(|| (0, 7), || 3);
        assert_eq!(std::iter::repeat_with(asks).flatten().next(), Some(3), "it answers again");
    }

    #[test]
    fn all_clones_together_have_a_limited_number_of_stalled_threads() {
        let worker = FileWorker::new(LIMIT);
        let mut releases = Vec::new();
        for minor in 0..40 {
            let (release, wait) = channel::<()>();
            assert_eq!(worker.clone().run(|| (0, minor), move || wait.recv().is_err()), None);
            releases.push(release);
        }
        assert_eq!(worker.stalled.lock().unwrap().len(), MOST_STALLED);
    }

    #[test]
    fn work_that_panics_returns_nothing_and_the_next_work_is_done() {
        let mut worker = FileWorker::new(Duration::from_secs(60));
        let panics = || if LIMIT.is_zero() { 1 } else { panic!("as planned") };
        assert_eq!(worker.run(|| (8, 1), panics), None);
        assert_eq!(worker.run(|| (8, 1), || 2), Some(2));
    }
}
