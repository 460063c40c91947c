//! The thread that waits for disks: it writes the lists of other programs and forgets documents.

use report::error::chain;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;

use bus::request::ReplyTo;
use forget::{self, DocumentName, Selection};
use recents::{Recents, Uri, volatile, writer};
use store::disk::FileStat;
use tokio::sync::mpsc as wake;

use super::settings::BusSettings;

/// A job of the worker thread.
#[derive(Debug)]
pub(super) enum Job {
    /// A round of writing, with the callers that wait for it.
    Write(Vec<ReplyTo>),
    /// Forgetting these documents, with the caller that waits for it.
    Forget(Vec<Uri>, ReplyTo),
    /// Copying the lists in memory to the disk, because the session ends.
    Snapshot,
}

/// The result of a job.
#[derive(Debug)]
pub(super) enum RoundResult {
    /// A round of writing, with the versions of the files before it, or why it failed.
    Written(Vec<ReplyTo>, Result<FileVersions, String>),
    /// The number of documents that were forgotten, or why some were not.
    Forgot(ReplyTo, Result<usize, String>),
    /// The copy was tried; failures are in the log.
    Snapshot,
}

/// The versions of the watched files, which show whether another program changed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileVersions {
    /// Where the journal is, as the rules say.
    journal_path: PathBuf,
    pub(super) journal: Option<((u64, u64), u64)>,
    pub(super) xbel: Option<((u64, u64), u64, i128)>,
}

/// The running worker thread.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: mpsc::Sender<Job>,
    done: wake::UnboundedReceiver<RoundResult>,
    thread: JoinHandle<()>,
    under_way: usize,
}

impl Worker {
    /// Starts the thread. Lists in dconf are changed through the service on the bus at `address`.
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
        // If the thread has ended, `next` returns `None`.
        let _ = self.jobs.send(job);
        self.under_way += 1;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Waits for the next result; `None` if the thread has ended. Dropping the future loses no result.
    pub(super) async fn next(&mut self) -> Option<RoundResult> {
        let done = self.done.recv().await?;
        self.under_way -= 1;
        Some(done)
    }

    /// Ends the thread after its pending jobs.
    pub(super) fn stop(self) {
        drop(self.jobs);
        // A panic of the thread has been printed already.
        let _ = self.thread.join();
    }
}

impl FileVersions {
    /// Reads the current versions.
    pub(super) fn now(recents: &mut Recents) -> FileVersions {
        let (journal_path, journal) = (recents.journal_path(), recents.stamp());
        let stat: Option<FileStat> = recents.disk().stat(&recents.places().xbel).ok();
        let xbel = stat.map(|stat| (stat.identity, stat.len, stat.mtime_ns));
        FileVersions { journal_path, journal, xbel }
    }
}

fn work_off(recents: &mut Recents, settings: &mut BusSettings, job: Job) -> RoundResult {
    match job {
        Job::Write(waiting) => {
            let before = FileVersions::now(recents);
            let result = match writer::write(recents) {
                Ok(_) => Ok(before),
                Err(error) => Err(chain(&error)),
            };
            RoundResult::Written(waiting, result)
        }
        Job::Forget(uris, reply_to) => {
            RoundResult::Forgot(reply_to, forget_all(recents, settings, &uris))
        }
        Job::Snapshot => {
            if let Err(error) = recents.snapshot() {
                tracing::warn!(error = chain(&error), "cannot copy recent documents to the disk");
            }
            if let Err(error) = volatile::save_if_moved(recents) {
                tracing::warn!(error = chain(&error), "cannot copy recent documents to the disk");
            }
            RoundResult::Snapshot
        }
    }
}

/// Forgets documents, and folders with everything below them, in every list.
fn forget_all(
    recents: &mut Recents,
    settings: &mut BusSettings,
    uris: &[Uri],
) -> Result<usize, String> {
    // An empty selection would select all documents.
    if uris.is_empty() {
        return Ok(0);
    }
    let names = uris.iter().map(DocumentName::of_uri).collect();
    let survey = forget::survey(recents);
    let selection = Selection { names, ..Selection::default() };
    let chosen = survey.choose(&selection);
    let known = |name: &&DocumentName| survey.items.iter().any(|item| item.name == **name);
    let count = chosen.iter().filter(known).count();
    let troubles = forget::remove(recents, settings, &survey, &selection, &chosen);
    match troubles.first() {
        None => Ok(count),
        Some(trouble) => Err(chain(trouble)),
    }
}

/// Returns the paths of the watched files: the journal, the one on the disk, to which programs add as soon as the lists are not to
/// be in memory any more, the shared list, and the shared list in memory.
pub(super) fn watched(recents: &mut Recents) -> [PathBuf; 4] {
    let (journal, places) = (recents.journal_path(), recents.places());
    [journal, places.journal(), places.xbel.clone(), volatile::list_file(recents)]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use recents::{RecentsFiles, RememberingProgram};
    use sys::clock::SystemClock;

    use super::*;

    #[test]
    fn where_programs_add_when_the_rule_volatile_is_gone_is_watched_before() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Some(dir.path().join("run"));
        let places = RecentsFiles { runtime, ..RecentsFiles::below(dir.path()) };
        let (rules, disk) = (places.rules(), store::disk::real());
        store::publish::make_directory(&*disk, rules.parent().unwrap()).unwrap();
        store::publish::publish(&*disk, &rules, b"volatile\n").unwrap();
        let clock = Arc::new(SystemClock::start());
        let mut recents = Recents::new(places, RememberingProgram::Ordinary, disk.clone(), clock);
        let (before, files) = (FileVersions::now(&mut recents), watched(&mut recents));
        assert!(files.contains(&dir.path().join("run/journal")));
        store::publish::publish(&*disk, &rules, b"").unwrap();
        assert!(files.contains(&recents.journal_path()), "{files:?}");
        // Neither of the two is there yet.
        assert_ne!(FileVersions::now(&mut recents), before);
    }
}
