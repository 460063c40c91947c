//! The thread that owns the disk: nothing else in the daemon waits for storage.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

use bus::request::ReplyTo;
use session::settings::engine::{Job, JobDone, Listing};
use tokio::sync::mpsc as wake;

use super::handover::{Handover, Lock};

/// What the thread can do.
#[derive(Debug)]
enum Work {
    Job(Job),
    Names(Listing, ReplyTo),
}

/// What the thread did.
#[derive(Debug)]
pub(super) enum Done {
    /// A job of the engine.
    Job(JobDone),
    /// A listing, and who asked for it.
    Names(Vec<String>, ReplyTo),
}

/// The running thread.
#[derive(Debug)]
pub(super) struct DiskThread {
    work: mpsc::Sender<Work>,
    done: wake::UnboundedReceiver<Done>,
    thread: JoinHandle<()>,
    under_way: usize,
}

impl DiskThread {
    /// Starts the thread. It touches no database before it holds `lock`.
    pub(super) fn start(lock: Lock) -> io::Result<DiskThread> {
        let (work, todo) = mpsc::channel();
        let (results, done) = wake::unbounded_channel();
        let thread = std::thread::Builder::new()
            .name("disk".to_owned())
            .spawn(move || work_off(lock, &todo, &results))?;
        Ok(DiskThread { work, done, thread, under_way: 0 })
    }

    pub(super) fn run(&mut self, job: Job) {
        self.send(Work::Job(job));
    }

    pub(super) fn list(&mut self, listing: Listing, reply_to: ReplyTo) {
        self.send(Work::Names(listing, reply_to));
    }

    /// Says whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Waits for the next result; `None` when the thread has ended. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Option<Done> {
        let done = self.done.recv().await?;
        self.under_way -= 1;
        Some(done)
    }

    /// Ends the thread when its work is done, and with it the lock.
    pub(super) fn stop(self) {
        drop(self.work);
        // A panic of the thread has been printed, and its work was noticed as missing.
        let _ = self.thread.join();
    }

    fn send(&mut self, work: Work) {
        // If the thread has ended, `next` says so.
        let _ = self.work.send(work);
        self.under_way += 1;
    }
}

fn work_off(lock: Lock, todo: &mpsc::Receiver<Work>, results: &wake::UnboundedSender<Done>) {
    let mut predecessor = Some(lock);
    let mut held = None;
    for work in todo {
        // Freed when the owner has the result: the file system takes its time over it.
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
                }
                let mut done = match stuck {
                    None => job.run(),
                    Some(error) => job.refuse(&error),
                };
                replaced = done.take_replaced();
                Done::Job(done)
            }
            // Names are read from a directory, in which a predecessor leaves no half things.
            Work::Names(listing, reply_to) => Done::Names(listing.run(), reply_to),
        };
        if results.send(done).is_err() {
            break;
        }
        drop(replaced);
    }
    drop(held);
}
