//! The threads that read and write files for the settings service: no other thread of it waits for storage.
//!
//! One handles databases. The other writes the history and prepares writes in memory, so that no change waits for that.
//! Only a small image in memory is written by the thread that answers, because that takes less time than a hand-over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, mem};

use bus::request::ReplyTo;
use settings::engine::{DatabaseSearch, Job, JobDone};
use store::disk::PinnedFile;
use tokio::sync::mpsc as wake;

use super::handover::{Handover, Lock};

/// The work of the thread.
#[derive(Debug)]
enum Work {
    Job(Job),
    Names(DatabaseSearch, ReplyTo),
}

/// The work of the thread beside it.
#[derive(Debug)]
enum WorkBeside {
    /// A job for the history.
    History(Job),
    /// A job that prepares the next write, and the files that the last one replaced.
    Prepare(Job, Vec<PinnedFile>),
}

/// How long the way of an answer through the bus to its caller takes. Who prepares the next write meanwhile is in the way of those who are
/// woken for it where there are few processors.
const ANSWERING: Duration = Duration::from_micros(100);

/// The result of the work.
#[derive(Debug)]
pub(super) enum DiskOutcome {
    /// A job of the engine.
    Job(JobDone),
    /// A listing of names, and its caller.
    Names(Vec<String>, ReplyTo),
}

/// The running threads.
#[derive(Debug)]
pub(super) struct DiskThread {
    work: mpsc::Sender<Work>,
    beside: mpsc::Sender<WorkBeside>,
    done: wake::UnboundedReceiver<Option<DiskOutcome>>,
    threads: [JoinHandle<()>; 2],
    /// Whether it is certain that no predecessor can change a database any more; the first job waits for that.
    is_alone: Arc<AtomicBool>,
    /// The results of jobs that were done at once.
    done_at_once: Option<JobDone>,
    /// Files that were replaced at once. They are closed after the callers are answered, because freeing their blocks takes the file system
    /// some time: by the thread that prepares the next write, if it does.
    replaced: Vec<PinnedFile>,
    /// The number of unfinished jobs on databases.
    databases_under_way: usize,
    /// The number of unfinished jobs on the history.
    history_under_way: usize,
}

/// Reports the end of a thread, however it ended.
#[derive(Debug)]
struct EndNotifier(wake::UnboundedSender<Option<DiskOutcome>>);

impl Drop for EndNotifier {
    fn drop(&mut self) {
        // The receiver is gone when the daemon ends.
        let _ = self.0.send(None);
    }
}

impl DiskThread {
    /// Starts the threads. They open no database before one of them holds `lock`.
    pub(super) fn start(lock: Lock) -> io::Result<DiskThread> {
        let (work, todo) = mpsc::channel();
        let (beside, todo_beside) = mpsc::channel();
        let (results, done) = wake::unbounded_channel();
        let results = EndNotifier(results);
        let written = EndNotifier(results.0.clone());
        let is_alone = Arc::new(AtomicBool::new(false));
        let alone = is_alone.clone();
        let databases = std::thread::Builder::new()
            .name("disk".to_owned())
            .spawn(move || work_off(lock, &todo, &results, &alone))?;
        let history_thread = std::thread::Builder::new()
            .name("settings-history".to_owned())
            .spawn(move || work_off_beside(&todo_beside, &written))?;
        Ok(DiskThread {
            work,
            beside,
            done,
            threads: [history_thread, databases],
            is_alone,
            done_at_once: None,
            replaced: Vec::new(),
            databases_under_way: 0,
            history_under_way: 0,
        })
    }

    pub(super) fn run(&mut self, job: Job) {
        if job.is_preparation() {
            // If the thread has ended, `next` says so.
            let _ = self.beside.send(WorkBeside::Prepare(job, mem::take(&mut self.replaced)));
        } else if job.is_for_history() {
            // If the thread has ended, `next` says so.
            let _ = self.beside.send(WorkBeside::History(job));
            self.history_under_way += 1;
        } else if job.is_quick()
            && self.leaves_databases_alone()
            && self.is_alone.load(Ordering::Acquire)
        {
            let mut done = job.run();
            self.replaced.extend(done.take_replaced());
            self.done_at_once = Some(done);
            self.databases_under_way += 1;
        } else {
            self.send(Work::Job(job));
        }
    }

    pub(super) fn list(&mut self, listing: DatabaseSearch, reply_to: ReplyTo) {
        self.send(Work::Names(listing, reply_to));
    }

    /// Returns whether no work is pending.
    pub(super) fn is_idle(&self) -> bool {
        self.databases_under_way + self.history_under_way == 0
    }

    /// Says whether no database is being read or written.
    pub(super) fn leaves_databases_alone(&self) -> bool {
        self.databases_under_way == 0
    }

    /// Waits for the next result; `None` if a thread has ended. Dropping the future loses no result.
    pub(super) async fn next(&mut self) -> Option<DiskOutcome> {
        if let Some(done) = self.done_at_once.take() {
            self.databases_under_way -= 1;
            return Some(DiskOutcome::Job(done));
        }
        self.replaced.clear();
        let done = self.done.recv().await??;
        match &done {
            DiskOutcome::Job(job) if job.is_for_history() => self.history_under_way -= 1,
            _ => self.databases_under_way -= 1,
        }
        Some(done)
    }

    /// Ends the threads after their pending jobs, which releases the lock.
    pub(super) fn stop(self) {
        drop(self.beside);
        let [history, databases] = self.threads;
        // A panic of a thread has been printed, and `next` has reported its end.
        let _ = history.join();
        drop(self.work);
        let _ = databases.join();
    }

    fn send(&mut self, work: Work) {
        // If the thread has ended, `next` says so.
        let _ = self.work.send(work);
        self.databases_under_way += 1;
    }
}

fn work_off_beside(todo: &mpsc::Receiver<WorkBeside>, results: &EndNotifier) {
    // The owner need not know of a preparation, and is not woken.
    let prepare = |(job, replaced): (Job, Vec<PinnedFile>)| {
        let _ = job.run();
        drop(replaced);
    };
    let mut to_prepare = None;
    loop {
        let work = match to_prepare {
            Some(_) => todo.recv_timeout(ANSWERING),
            None => todo.recv().map_err(RecvTimeoutError::from),
        };
        match work {
            Ok(WorkBeside::History(job)) => {
                if results.0.send(Some(DiskOutcome::Job(job.run()))).is_err() {
                    break;
                }
            }
            Ok(WorkBeside::Prepare(job, replaced)) => {
                to_prepare.replace((job, replaced)).into_iter().for_each(prepare);
            }
            Err(RecvTimeoutError::Timeout) => to_prepare.take().into_iter().for_each(prepare),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
}

fn work_off(lock: Lock, todo: &mpsc::Receiver<Work>, results: &EndNotifier, is_alone: &AtomicBool) {
    let mut predecessor = Some(lock);
    let mut held = None;
    for work in todo {
        // They are closed after the owner has the result, because freeing their blocks takes the file system some time.
        let mut replaced = Vec::new();
        let done = match work {
            Work::Job(job) => {
                let mut stuck = None;
                if let Some(lock) = &mut predecessor {
                    match lock.wait() {
                        Handover::Done(lock) => held = Some(lock),
                        Handover::Unknown => {}
                        Handover::Stuck(error) => stuck = Some(error),
                    }
                }
                if stuck.is_none() {
                    predecessor = None;
                    is_alone.store(true, Ordering::Release);
                }
                let mut done = match stuck {
                    None => job.run(),
                    Some(error) => job.refuse(&error),
                };
                replaced = done.take_replaced();
                DiskOutcome::Job(done)
            }
            // Names are read from a directory in which a predecessor leaves no incomplete files, so no lock is needed.
            Work::Names(listing, reply_to) => DiskOutcome::Names(listing.run(), reply_to),
        };
        if results.0.send(Some(done)).is_err() {
            break;
        }
        drop(replaced);
    }
    drop(held);
}
