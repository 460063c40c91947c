//! Threads that read callers' files and start commands: a file system that hangs blocks one of them only.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sys::clock::Clock;
use sys::processor::{ProcessorWait, RunDelay, wait_with_newest_child};

use super::limit::{LONGEST, TimeLimit};

/// The most threads.
const MOST_THREADS: usize = 64;
/// The most threads that work for one application; its other work waits.
const MOST_FOR_ONE: usize = 8;
/// The most idle threads.
const MOST_IDLE: usize = 2;
/// The time limit of work, and of its wait in the queue where nothing that it waits for is within its own.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The work of a thread.
type Work = Box<dyn FnOnce() + Send>;

/// A job and its application.
struct Job {
    number: u64,
    whose: Arc<str>,
    work: Work,
}

/// A thread that does a job.
struct BusyThread {
    thread: u32,
    whose: Arc<str>,
    /// When the job began.
    began: Duration,
    /// How long it had waited for a processor when the job began.
    waited: Duration,
}

impl BusyThread {
    fn this(whose: Arc<str>, began: Duration) -> BusyThread {
        let delay = RunDelay::of_this_thread().and_then(|delay| delay.nanoseconds());
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        BusyThread { thread, whose, began, waited: Duration::from_nanos(delay.unwrap_or(0)) }
    }

    /// Returns how the job, or the process that it starts, waits for a processor.
    fn wait(&self) -> ProcessorWait {
        let wait = wait_with_newest_child(std::process::id(), self.thread);
        ProcessorWait { so_far: wait.so_far.saturating_sub(self.waited), ..wait }
    }
}

/// What the threads share.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// How many threads work for each application.
    busy: HashMap<Arc<str>, usize>,
    /// The threads of the jobs that have begun.
    begun: HashMap<u64, BusyThread>,
    threads: usize,
    idle: usize,
    over: bool,
}

impl Queue {
    /// Returns whether an application may use another thread.
    fn may_begin(&self, whose: &Arc<str>) -> bool {
        self.busy.get(whose).is_none_or(|count| *count < MOST_FOR_ONE)
    }

    /// Removes the first job whose application may use another thread.
    fn take(&mut self) -> Option<Job> {
        let at = self.jobs.iter().position(|job| self.may_begin(&job.whose))?;
        let job = self.jobs.remove(at)?;
        *self.busy.entry(Arc::clone(&job.whose)).or_default() += 1;
        Some(job)
    }

    fn done(&mut self, whose: &Arc<str>) {
        if let Some(count) = self.busy.get_mut(whose) {
            *count -= 1;
            if *count == 0 {
                self.busy.remove(whose);
            }
        }
    }
}

struct Shared {
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code that panics runs under this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads, and their pending jobs.
pub(super) struct Starters {
    shared: Arc<Shared>,
    next: u64,
    pending: HashMap<u64, Pending>,
    /// The deadlines of the jobs, the next one first.
    due: BTreeSet<(Duration, u64)>,
}

/// A pending job.
#[derive(Debug)]
struct Pending {
    whose: Arc<str>,
    /// When it came into the queue.
    queued: Duration,
    until: Duration,
    /// Its time limit since it began, once that was looked at.
    limit: Option<TimeLimit>,
}

impl std::fmt::Debug for Starters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Starters").field("pending", &self.pending).finish_non_exhaustive()
    }
}

impl Starters {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Starters {
        let (queue, wake) = (Mutex::default(), Condvar::new());
        Starters {
            shared: Arc::new(Shared { clock, queue, wake }),
            next: 0,
            pending: HashMap::new(),
            due: BTreeSet::new(),
        }
    }

    /// Starts work for `whose` and returns its number. The work reports its result itself; then, or when
    /// its caller does not wait any longer, [`Starters::finish`] must be called.
    ///
    /// # Errors
    ///
    /// No thread can be started; the work is dropped.
    pub(super) fn begin(
        &mut self,
        whose: Arc<str>,
        work: impl FnOnce(u64) + Send + 'static,
    ) -> io::Result<u64> {
        let number = self.next;
        let owner = Arc::clone(&whose);
        let job = Job { number, whose, work: Box::new(move || work(number)) };
        let mut queue = self.shared.lock();
        let may = queue.may_begin(&job.whose);
        queue.jobs.push_back(job);
        // Idle threads may have been woken for other jobs already.
        let is_needed = may && queue.jobs.len() > queue.idle && queue.threads < MOST_THREADS;
        if is_needed {
            queue.threads += 1;
        }
        drop(queue);
        if is_needed {
            let shared = Arc::clone(&self.shared);
            if let Err(error) = sys::thread::spawn("host-start", move || serve(&shared)) {
                let mut queue = self.shared.lock();
                queue.threads -= 1;
                if queue.threads == 0 {
                    // No other thread can take it.
                    queue.jobs.retain(|job| job.number != number);
                    return Err(error);
                }
            }
        } else {
            self.shared.wake.notify_one();
        }
        self.next += 1;
        let queued = self.shared.clock.monotonic();
        let until = queued + PATIENCE;
        self.pending.insert(number, Pending { whose: owner, queued, until, limit: None });
        self.due.insert((until, number));
        Ok(number)
    }

    /// Records the result of a job; returns whether it was pending.
    pub(super) fn finish(&mut self, number: u64) -> bool {
        let job = self.pending.remove(&number);
        job.is_some_and(|job| self.due.remove(&(job.until, number)))
    }

    /// Returns the next deadline.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.due.first().map(|(until, _)| *until)
    }

    /// Returns the jobs whose deadline has passed. They are abandoned; a job that has not begun is dropped.
    ///
    /// A job waits in the queue as long as work whose thread it can have is within its time, and what waits for a processor gets more of it: a burst is no reason to refuse one.
    pub(super) fn late(&mut self) -> Vec<u64> {
        let now = self.shared.clock.monotonic();
        let due: Vec<u64> =
            self.due.iter().take_while(|(until, _)| *until <= now).map(|(_, job)| *job).collect();
        if due.is_empty() {
            return due;
        }
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.lock();
        // What has begun comes first: what waits in the queue depends on it.
        let (queued, begun): (Vec<u64>, Vec<u64>) =
            due.into_iter().partition(|number| queue.jobs.iter().any(|job| job.number == *number));
        let mut late = Vec::new();
        for number in begun {
            let until = self.end_of_begun(number, queue.begun.get(&number), now);
            self.put_off(number, until, now, &mut late);
        }
        for number in queued {
            let until = self.end_of_queued(number, &queue, now);
            self.put_off(number, until, now, &mut late);
        }
        queue.jobs.retain(|job| !late.contains(&job.number));
        late
    }

    /// Returns when the time of a job that has begun ends.
    fn end_of_begun(
        &mut self,
        number: u64,
        thread: Option<&BusyThread>,
        now: Duration,
    ) -> Option<Duration> {
        // A job that no thread does any more has a result, which is on its way.
        let began = thread.map_or(now, |thread| thread.began);
        let job = self.pending.get_mut(&number)?;
        let limit = job.limit.get_or_insert(TimeLimit::new(began, PATIENCE));
        limit.has_passed(now, || thread.map(BusyThread::wait).unwrap_or_default());
        Some(limit.until())
    }

    /// Returns when the last of the jobs ends whose thread a job in the queue can have.
    fn end_of_queued(&self, number: u64, queue: &Queue, now: Duration) -> Option<Duration> {
        let job = self.pending.get(&number)?;
        // Where the application may use another thread, all threads are taken.
        let any = queue.may_begin(&job.whose);
        if any && queue.begun.len() < queue.threads {
            // Or a thread has none and waits for the processor with which it takes this one.
            return Some((now + PATIENCE).min(job.queued + LONGEST));
        }
        let threads = queue.begun.iter().filter(|(_, thread)| any || thread.whose == job.whose);
        threads.filter_map(|(number, _)| self.pending.get(number)).map(|job| job.until).max()
    }

    /// Gives a job more time, or counts it as late.
    fn put_off(
        &mut self,
        number: u64,
        until: Option<Duration>,
        now: Duration,
        late: &mut Vec<u64>,
    ) {
        let Some(job) = self.pending.get_mut(&number) else { return };
        self.due.remove(&(job.until, number));
        if let Some(until) = until.filter(|until| *until > now) {
            job.until = until;
            self.due.insert((until, number));
        } else {
            self.pending.remove(&number);
            late.push(number);
        }
    }
}

impl Drop for Starters {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.over = true;
        queue.jobs.clear();
        drop(queue);
        // A thread that hangs is abandoned, and ends with the process.
        self.shared.wake.notify_all();
    }
}

/// The main function of a thread.
fn serve(shared: &Shared) {
    let mut queue = shared.lock();
    loop {
        if queue.over {
            break;
        }
        if let Some(Job { number, whose, work }) = queue.take() {
            let began = shared.clock.monotonic();
            queue.begun.insert(number, BusyThread::this(Arc::clone(&whose), began));
            drop(queue);
            work();
            queue = shared.lock();
            queue.begun.remove(&number);
            queue.done(&whose);
            continue;
        }
        if queue.idle >= MOST_IDLE {
            break;
        }
        queue.idle += 1;
        queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        queue.idle -= 1;
    }
    queue.threads -= 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use sys::clock::Clock;

    const NOW: Duration = Duration::from_secs(100);

    /// Work that reports its begin and blocks until the test continues it.
    fn hang(
        tell: &Sender<u64>,
        go: &Arc<Mutex<Receiver<()>>>,
    ) -> impl FnOnce(u64) + Send + 'static {
        let (tell, go) = (tell.clone(), Arc::clone(go));
        move |number| {
            tell.send(number).unwrap();
            let _ = go.lock().unwrap().recv();
        }
    }

    fn soon<T>(told: &Receiver<T>) -> T {
        told.recv_timeout(Duration::from_secs(50)).expect("a job was not done")
    }

    /// Waits until every thread that does a job waits for the test, and not for a processor.
    fn all_hang(starters: &Starters) {
        let clock = sys::clock::SystemClock::start();
        while starters.shared.lock().begun.values().any(|thread| thread.wait().is_ready) {
            assert!(clock.monotonic() < Duration::from_secs(50), "a job did not come to its wait");
            std::thread::yield_now();
        }
    }

    /// A clock that the test sets.
    #[derive(Debug)]
    struct SetClock(Mutex<Duration>);

    impl SetClock {
        fn set(&self, now: Duration) {
            *self.0.lock().unwrap() = now;
        }
    }

    impl Clock for SetClock {
        fn now(&self) -> std::time::SystemTime {
            std::time::UNIX_EPOCH
        }

        fn monotonic(&self) -> Duration {
            *self.0.lock().unwrap()
        }
    }

    fn starters() -> (Starters, Arc<SetClock>) {
        let clock = Arc::new(SetClock(Mutex::new(NOW)));
        (Starters::new(Arc::<SetClock>::clone(&clock)), clock)
    }

    #[test]
    fn work_that_hangs_holds_up_nobody_else() {
        let (mut starters, time) = starters();
        let (tell, told) = channel();
        let (go_on, go) = channel();
        let go = Arc::new(Mutex::new(go));
        for _ in 0..3 * MOST_FOR_ONE {
            starters.begin("hangs".into(), hang(&tell, &go)).unwrap();
        }
        for _ in 0..MOST_FOR_ONE {
            soon(&told);
        }
        for _ in 0..100 {
            let tell = tell.clone();
            let other = starters.begin("other".into(), move |number| tell.send(number).unwrap());
            assert_eq!(soon(&told), other.unwrap());
        }
        // Idle threads may need a moment to end.
        let clock = sys::clock::SystemClock::start();
        while starters.shared.lock().threads > MOST_FOR_ONE + MOST_IDLE + 1 {
            assert!(clock.monotonic() < Duration::from_secs(50), "threads without work stay");
            std::thread::yield_now();
        }
        all_hang(&starters);
        // Jobs that had not begun are dropped.
        assert_eq!(starters.late(), Vec::<u64>::new());
        time.set(NOW + PATIENCE);
        let others: Vec<u64> = (3 * MOST_FOR_ONE as u64..).take(100).collect();
        assert!(others.iter().all(|number| starters.finish(*number)));
        assert_eq!(starters.late().len(), 3 * MOST_FOR_ONE);
        assert_eq!(starters.deadline(), None);
        drop(go_on);
        drop((tell, starters));
        assert!(
            told.recv_timeout(Duration::from_secs(50)).is_err(),
            "a job that was given up began"
        );
    }

    #[test]
    fn a_job_waits_for_as_long_as_others_of_its_application_are_within_their_time() {
        let (mut starters, time) = starters();
        let (tell, told) = channel();
        let (go_on, go) = channel();
        let go = Arc::new(Mutex::new(go));
        for _ in 0..MOST_FOR_ONE + 3 {
            starters.begin("many".into(), hang(&tell, &go)).unwrap();
        }
        let running: Vec<u64> = (0..MOST_FOR_ONE).map(|_| soon(&told)).collect();
        // One of the running jobs finishes after a while; another one begins.
        let later = NOW + PATIENCE - Duration::from_secs(1);
        time.set(later);
        go_on.send(()).unwrap();
        let begun = soon(&told);
        all_hang(&starters);
        // The result of the finished one is on its way: who asked does not know which it was.
        time.set(NOW + PATIENCE);
        let late = starters.late();
        assert_eq!(late.len(), MOST_FOR_ONE - 1);
        assert!(late.iter().all(|job| running.contains(job)), "{late:?} of {running:?}");
        let done = running.iter().find(|job| !late.contains(job)).unwrap();
        assert!(starters.finish(*done));
        // Nothing else finishes: what waits is refused with the one it waited for.
        time.set(later + PATIENCE - Duration::from_millis(1));
        assert_eq!(starters.late(), Vec::<u64>::new());
        time.set(later + PATIENCE);
        let late = starters.late();
        assert_eq!((late.len(), late[0]), (3, begun));
        assert!(starters.pending.is_empty() && starters.due.is_empty());
        drop(go_on);
    }

    #[test]
    fn a_job_whose_thread_waits_for_a_processor_gets_more_time_and_not_for_ever() {
        let (mut starters, time) = starters();
        {
            // A thread that was woken and has not run yet.
            let mut queue = starters.shared.lock();
            (queue.threads, queue.idle) = (1, 1);
        }
        let job = starters.begin("one".into(), |_| ()).unwrap();
        time.set(NOW + PATIENCE);
        assert_eq!(starters.late(), Vec::<u64>::new());
        assert_eq!(starters.deadline(), Some(NOW + 2 * PATIENCE));
        time.set(NOW + LONGEST);
        assert_eq!(starters.late(), [job]);
    }

    #[test]
    fn all_that_fits_is_done_in_its_order_for_each() {
        let (mut starters, _) = starters();
        let (tell, told) = channel();
        let mut numbers = Vec::new();
        for at in 0..1000_u64 {
            let tell = tell.clone();
            let whose: Arc<str> = format!("app {}", at % 7).into();
            numbers.push(starters.begin(whose, move |job| tell.send(job).unwrap()).unwrap());
        }
        let mut done: Vec<u64> = (0..1000).map(|_| soon(&told)).collect();
        done.sort_unstable();
        assert_eq!(done, numbers);
        assert!(numbers.iter().all(|number| starters.finish(*number)));
        assert!(!starters.finish(0));
        assert!(starters.pending.is_empty() && starters.deadline().is_none());
    }
}
