//! Threads that look at callers' files and start commands: a file system that hangs holds up one of them, and nobody else.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads at a time.
const MOST_THREADS: usize = 64;
/// Threads that work for one application at a time; its other work waits.
const MOST_FOR_ONE: usize = 8;
/// Threads that wait for work when there is none.
const MOST_IDLE: usize = 2;
/// How long work may take, and how long it is queued while no other work of its application gets done.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What a thread does.
type Work = Box<dyn FnOnce() + Send>;

/// Work, and whose it is.
struct Job {
    number: u64,
    whose: Arc<str>,
    work: Work,
}

/// What the threads share.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// How many threads work for each application.
    busy: HashMap<Arc<str>, usize>,
    threads: usize,
    idle: usize,
    over: bool,
}

impl Queue {
    /// Says whether an application has a thread left.
    fn may_begin(&self, whose: &Arc<str>) -> bool {
        self.busy.get(whose).is_none_or(|count| *count < MOST_FOR_ONE)
    }

    /// Takes the first job whose application has a thread left.
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

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that panics runs under it.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads, and what they have been given and nobody has heard of since.
pub(super) struct Starters {
    shared: Arc<Shared>,
    next: u64,
    pending: HashMap<u64, Pending>,
    /// When each of them is looked at, the next one first.
    due: BTreeSet<(Duration, u64)>,
    /// Jobs that run and are not waited for any more, and whose they are.
    given_up: HashMap<u64, Arc<str>>,
    /// When work of an application that has some was last done.
    progress: HashMap<Arc<str>, (usize, Duration)>,
}

/// A job that is waited for.
#[derive(Debug)]
struct Pending {
    whose: Arc<str>,
    until: Duration,
    /// It was seen to run.
    runs: bool,
}

impl std::fmt::Debug for Starters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Starters").field("pending", &self.pending).finish_non_exhaustive()
    }
}

impl Starters {
    pub(super) fn new() -> Starters {
        Starters {
            shared: Arc::default(),
            next: 0,
            pending: HashMap::new(),
            due: BTreeSet::new(),
            given_up: HashMap::new(),
            progress: HashMap::new(),
        }
    }

    /// Has something done for `whose` and returns its number. What becomes of it is the work's own to tell; when it has, or
    /// nobody waits any longer, [`Starters::finish`] is to be called.
    ///
    /// # Errors
    ///
    /// There is no thread; nothing is done.
    pub(super) fn begin(
        &mut self,
        whose: Arc<str>,
        now: Duration,
        work: impl FnOnce(u64) + Send + 'static,
    ) -> io::Result<u64> {
        let number = self.next;
        let owner = Arc::clone(&whose);
        let job = Job { number, whose, work: Box::new(move || work(number)) };
        let mut queue = self.shared.lock();
        let may = queue.may_begin(&job.whose);
        queue.jobs.push_back(job);
        // Those that are idle may have been woken for others already.
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
                    // Nobody else is there to take it.
                    queue.jobs.retain(|job| job.number != number);
                    return Err(error);
                }
            }
        } else {
            self.shared.wake.notify_one();
        }
        self.next += 1;
        let until = now + PATIENCE;
        self.progress.entry(Arc::clone(&owner)).or_insert((0, Duration::ZERO)).0 += 1;
        self.pending.insert(number, Pending { whose: owner, until, runs: false });
        self.due.insert((until, number));
        Ok(number)
    }

    /// Takes it that a job was heard of; says whether it was waited for.
    pub(super) fn finish(&mut self, number: u64, now: Duration) -> bool {
        let job = self.forget(number).map(|job| job.whose);
        let waited = job.is_some();
        let whose = job.or_else(|| self.given_up.remove(&number));
        if let Some((_, progress)) = whose.and_then(|whose| self.progress.get_mut(&whose)) {
            *progress = now;
        }
        waited
    }

    fn forget(&mut self, number: u64) -> Option<Pending> {
        let job = self.pending.remove(&number)?;
        self.due.remove(&(job.until, number));
        if let Some((count, _)) = self.progress.get_mut(&job.whose) {
            *count -= 1;
            if *count == 0 {
                self.progress.remove(&job.whose);
            }
        }
        Some(job)
    }

    /// Returns when the next job may have taken too long.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.due.first().map(|(until, _)| *until)
    }

    /// Returns the jobs that take too long. They are not waited for any more; one that has not begun never will.
    ///
    /// A job waits in the queue for as long as others of its application get done: many at once are no reason to refuse one.
    pub(super) fn late(&mut self, now: Duration) -> Vec<u64> {
        let due: Vec<u64> =
            self.due.iter().take_while(|(until, _)| *until <= now).map(|(_, job)| *job).collect();
        if due.is_empty() {
            return due;
        }
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.lock();
        let queued: HashSet<u64> = queue.jobs.iter().map(|job| job.number).collect();
        let mut late = Vec::new();
        for number in due {
            let Some(job) = self.pending.get_mut(&number) else { continue };
            let progress = self.progress.get(&job.whose).map_or(Duration::ZERO, |(_, at)| *at);
            let begun = !queued.contains(&number);
            // Nobody knows when one began that runs; it has its time from now on, once.
            let until = match begun {
                true if job.runs || progress + PATIENCE < job.until => None,
                true => Some(now + PATIENCE),
                false => Some(progress + PATIENCE).filter(|until| *until > now),
            };
            match until {
                Some(until) => {
                    self.due.remove(&(job.until, number));
                    self.due.insert((until, number));
                    (job.until, job.runs) = (until, begun);
                }
                None => late.push(number),
            }
        }
        for number in &late {
            let job = self.forget(*number);
            if let Some(job) = job.filter(|_| !queued.contains(number)) {
                self.given_up.insert(*number, job.whose);
            }
        }
        queue.jobs.retain(|job| !late.contains(&job.number));
        late
    }
}

impl Drop for Starters {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.over = true;
        queue.jobs.clear();
        drop(queue);
        // A thread that hangs is left behind, and ends with the process.
        self.shared.wake.notify_all();
    }
}

/// The life of a thread.
fn serve(shared: &Shared) {
    let mut queue = shared.lock();
    loop {
        if queue.over {
            break;
        }
        if let Some(Job { whose, work, .. }) = queue.take() {
            drop(queue);
            work();
            queue = shared.lock();
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

    const NOW: Duration = Duration::from_secs(100);

    /// Work that says that it began and hangs until it is told to go on.
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

    #[test]
    fn work_that_hangs_holds_up_nobody_else() {
        let mut starters = Starters::new();
        let (tell, told) = channel();
        let (go_on, go) = channel();
        let go = Arc::new(Mutex::new(go));
        for _ in 0..3 * MOST_FOR_ONE {
            starters.begin("hangs".into(), NOW, hang(&tell, &go)).unwrap();
        }
        for _ in 0..MOST_FOR_ONE {
            soon(&told);
        }
        for _ in 0..100 {
            let tell = tell.clone();
            let other =
                starters.begin("other".into(), NOW, move |number| tell.send(number).unwrap());
            assert_eq!(soon(&told), other.unwrap());
        }
        assert!(starters.shared.lock().threads <= MOST_FOR_ONE + MOST_IDLE + 1);
        // Those that never began never do.
        assert_eq!(starters.late(NOW), Vec::<u64>::new());
        assert_eq!(starters.late(NOW + PATIENCE).len(), 3 * MOST_FOR_ONE + 100);
        assert_eq!(starters.deadline(), None);
        drop(go_on);
        drop((tell, starters));
        assert!(
            told.recv_timeout(Duration::from_secs(50)).is_err(),
            "a job that was given up began"
        );
    }

    #[test]
    fn a_job_waits_for_as_long_as_others_of_its_application_get_done() {
        let mut starters = Starters::new();
        let (tell, told) = channel();
        let (go_on, go) = channel();
        let go = Arc::new(Mutex::new(go));
        for _ in 0..MOST_FOR_ONE + 3 {
            starters.begin("many".into(), NOW, hang(&tell, &go)).unwrap();
        }
        let running: Vec<u64> = (0..MOST_FOR_ONE).map(|_| soon(&told)).collect();
        // One of those that run is done after a while; another one begins.
        let later = NOW + PATIENCE - Duration::from_secs(1);
        go_on.send(()).unwrap();
        let begun = soon(&told);
        assert!(starters.finish(running[0], later));
        let late = starters.late(NOW + PATIENCE);
        assert!(!late.contains(&begun), "it has only begun");
        assert!(late.iter().all(|job| running.contains(job)), "{late:?} of {running:?}");
        // Nothing more gets done.
        let late = starters.late(later + 2 * PATIENCE);
        assert!(late.contains(&begun));
        assert!(starters.pending.is_empty());
        drop(go_on);
    }

    #[test]
    fn all_that_fits_is_done_in_its_order_for_each() {
        let mut starters = Starters::new();
        let (tell, told) = channel();
        let mut numbers = Vec::new();
        for at in 0..1000_u64 {
            let tell = tell.clone();
            let whose: Arc<str> = format!("app {}", at % 7).into();
            numbers.push(starters.begin(whose, NOW, move |job| tell.send(job).unwrap()).unwrap());
        }
        let mut done: Vec<u64> = (0..1000).map(|_| soon(&told)).collect();
        done.sort_unstable();
        assert_eq!(done, numbers);
        assert!(numbers.iter().all(|number| starters.finish(*number, NOW)));
        assert!(!starters.finish(0, NOW));
        assert!(starters.progress.is_empty() && starters.deadline().is_none());
    }
}
