//! Work on files that a file system may hold up for as long as it likes: a server that does not answer, a disk that fails. A thread does
//! it, and whoever wants it waits only so long.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::time::Duration;

/// The most threads of a worker that are held up; with more nothing is begun.
const MOST_HELD: usize = 16;
/// How long is waited while other work is held up, in parts of the limit: who is not the first must not wait as long again.
const PART: u32 = 10;

/// The numbers of a device, major and minor.
pub type DeviceNumber = (u32, u32);

type Job = Box<dyn FnOnce() + Send>;

/// A thread that works on files, started when there is something to do.
pub struct FileWorker {
    limit: Duration,
    jobs: Option<Sender<Job>>,
    /// The devices of work that was not over in time, and whether it is by now.
    held: Vec<(DeviceNumber, Arc<AtomicBool>)>,
}

impl fmt::Debug for FileWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWorker").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl FileWorker {
    /// Creates one for work that is waited for no longer than `limit`.
    #[must_use]
    pub fn new(limit: Duration) -> FileWorker {
        FileWorker { limit, jobs: None, held: Vec::new() }
    }

    /// Returns what `work` on files of a device returns. Nothing, if it is not over in time, if earlier work on the same device still is
    /// not, or if no thread can be started; what was begun goes on then, and what it returns is dropped.
    pub fn run<T: Send + 'static>(
        &mut self,
        device: impl Fn() -> DeviceNumber,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.held.retain(|(_, is_over)| !is_over.load(Ordering::Acquire));
        let mut limit = self.limit;
        if !self.held.is_empty() {
            let number = device();
            let is_held = self.held.iter().any(|(held, _)| *held == number);
            if is_held || self.held.len() >= MOST_HELD {
                return None;
            }
            limit /= PART;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let (answer, answered) = sync_channel(1);
        let job = Box::new(move || {
            let done = work();
            // Said first: who reads the answer may ask again at once.
            over.store(true, Ordering::Release);
            // Nobody may wait for it any more.
            let _ = answer.send(done);
        });
        self.jobs()?.send(job).ok()?;
        match answered.recv_timeout(limit) {
            Ok(done) => Some(done),
            Err(RecvTimeoutError::Timeout) => {
                // The thread ends with its work.
                self.jobs = None;
                self.held.push((device(), is_over));
                None
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.jobs = None;
                None
            }
        }
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
    fn work_that_is_held_up_holds_up_no_work_on_other_devices() {
        let mut worker = FileWorker::new(LIMIT);
        let (release, wait) = channel::<()>();
        assert_eq!(worker.run(|| (0, 7), move || wait.recv().is_err()), None);
        assert_eq!(worker.run(|| (0, 7), || 1), None, "what holds it up is not asked again");
        // On a busy machine a short limit may pass before the thread runs.
        let asks = || worker.run(|| (8, 1), || 2);
        assert_eq!(std::iter::repeat_with(asks).flatten().next(), Some(2));
        drop(release);
        let asks = || worker.run(|| (0, 7), || 3);
        assert_eq!(std::iter::repeat_with(asks).flatten().next(), Some(3), "it answers again");
    }

    #[test]
    fn no_further_thread_begins_while_many_are_held_up() {
        let mut worker = FileWorker::new(LIMIT);
        let mut releases = Vec::new();
        for minor in 0..40 {
            let (release, wait) = channel::<()>();
            assert_eq!(worker.run(|| (0, minor), move || wait.recv().is_err()), None);
            releases.push(release);
        }
        assert_eq!(worker.held.len(), MOST_HELD);
    }

    #[test]
    fn work_that_panics_returns_nothing_and_the_next_is_done() {
        let mut worker = FileWorker::new(Duration::from_secs(60));
        assert_eq!(
            worker.run(|| (8, 1), || if LIMIT.is_zero() { 1 } else { panic!("as planned") }),
            None
        );
        assert_eq!(worker.run(|| (8, 1), || 2), Some(2));
    }
}
