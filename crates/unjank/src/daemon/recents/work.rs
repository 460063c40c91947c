//! The thread that waits for disks: it writes what others read, and forgets.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;

use bus::request::ReplyTo;
use session::recents::forget::{self, Name, Selection};
use session::recents::{Recents, Uri, volatile, writer};
use store::disk::Stat;
use tokio::sync::mpsc as wake;

use super::settings::BusSettings;

/// What is to be done.
#[derive(Debug)]
pub(super) enum Job {
    /// A round of writing, and who waits for it.
    Write(Vec<ReplyTo>),
    /// Forgetting, and who waits for it.
    Forget(Vec<Uri>, ReplyTo),
    /// The copy on the disk of a list in memory: the session ends.
    Snapshot,
}

/// What was done.
#[derive(Debug)]
pub(super) enum Done {
    /// A round, with what the files were before it, or why it failed.
    Written(Vec<ReplyTo>, Result<Seen, String>),
    /// So many documents were forgotten, or why not all.
    Forgot(ReplyTo, Result<usize, String>),
    /// The copy was made or could not be.
    Snapshot,
}

/// What the files are, to tell whether somebody else changed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) journal: Option<((u64, u64), u64)>,
    pub(super) xbel: Option<((u64, u64), u64, i128)>,
}

/// The running thread.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: mpsc::Sender<Job>,
    done: wake::UnboundedReceiver<Done>,
    thread: JoinHandle<()>,
    under_way: usize,
}

impl Worker {
    /// Starts it; lists in dconf are changed by the service on the bus at `address`.
    pub(super) fn start(mut recents: Recents, address: Option<String>) -> std::io::Result<Worker> {
        let (jobs, todo) = mpsc::channel();
        let (results, done) = wake::unbounded_channel();
        let work = move || {
            let mut settings = BusSettings::new(address);
            for job in todo {
                if results.send(work_off(&mut recents, &mut settings, job)).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("recents-disk".to_owned()).spawn(work)?;
        Ok(Worker { jobs, done, thread, under_way: 0 })
    }

    pub(super) fn run(&mut self, job: Job) {
        // If the thread has ended, `next` says so.
        let _ = self.jobs.send(job);
        self.under_way += 1;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Waits for the next result; `None` when the thread has ended. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Option<Done> {
        let done = self.done.recv().await?;
        self.under_way -= 1;
        Some(done)
    }

    /// Ends the thread when its work is done.
    pub(super) fn stop(self) {
        drop(self.jobs);
        // A panic of the thread has been printed.
        let _ = self.thread.join();
    }
}

impl Seen {
    /// Looks at the files.
    pub(super) fn now(recents: &mut Recents) -> Seen {
        let journal = recents.stamp();
        let stat: Option<Stat> = recents.disk().stat(&recents.places().xbel).ok();
        Seen { journal, xbel: stat.map(|stat| (stat.identity, stat.len, stat.mtime_ns)) }
    }
}

fn work_off(recents: &mut Recents, settings: &mut BusSettings, job: Job) -> Done {
    match job {
        Job::Write(waiting) => {
            let before = Seen::now(recents);
            let result = match writer::write(recents) {
                Ok(_) => Ok(before),
                Err(error) => Err(text(&error)),
            };
            Done::Written(waiting, result)
        }
        Job::Forget(uris, reply_to) => Done::Forgot(reply_to, forget_all(recents, settings, &uris)),
        Job::Snapshot => {
            if let Err(error) = recents.snapshot() {
                tracing::warn!(error = text(&error), "cannot copy recent documents to the disk");
            }
            if let Err(error) = volatile::save_if_moved(recents) {
                tracing::warn!(error = text(&error), "cannot copy recent documents to the disk");
            }
            Done::Snapshot
        }
    }
}

/// Forgets documents, and folders with what is below them, in every store.
fn forget_all(
    recents: &mut Recents,
    settings: &mut BusSettings,
    uris: &[Uri],
) -> Result<usize, String> {
    // A selection of no names is one of all.
    if uris.is_empty() {
        return Ok(0);
    }
    let names = uris.iter().map(Name::of_uri).collect();
    let survey = forget::survey(recents);
    let selection = Selection { names, ..Selection::default() };
    let chosen = survey.choose(&selection);
    let known = |name: &&Name| survey.items.iter().any(|item| item.name == **name);
    let count = chosen.iter().filter(known).count();
    let troubles = forget::remove(recents, settings, &survey, &selection, &chosen);
    match troubles.first() {
        None => Ok(count),
        Some(trouble) => Err(text(trouble)),
    }
}

/// Returns an error with its causes.
pub(super) fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Returns where the watched files are: the journal, the one that programs share, and where that is in memory.
pub(super) fn watched(recents: &mut Recents) -> [PathBuf; 3] {
    [recents.journal_path(), recents.places().xbel.clone(), volatile::list_file(recents)]
}
