//! Notifies the writer of the lists for other programs of a new entry: the daemon, or a program that is started for this.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use store::disk::{Disk, FileLock};

use super::RecentsFiles;

/// The program that writes once and ends: `unjank recent-writer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterProgram {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<std::ffi::OsString>,
}

/// Starts the writer if no process watches the journal.
#[derive(Debug)]
pub struct WriterNotifier {
    program: WriterProgram,
    lock: PathBuf,
    /// One message for each start that is over.
    started: (Sender<io::Result<()>>, Receiver<io::Result<()>>),
    under_way: usize,
}

/// The lock of the process that watches the journal and writes every addition to the lists.
#[derive(Debug)]
pub struct Watcher(#[expect(dead_code, reason = "held, never read")] Box<dyn FileLock>);

impl Watcher {
    /// Becomes the watching process; `None` if another process still is after `patience`.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `flock(2)`.
    pub fn of(
        disk: &dyn Disk,
        places: &RecentsFiles,
        patience: Duration,
    ) -> io::Result<Option<Watcher>> {
        Ok(disk.own(&lock_of(places), patience)?.map(Watcher))
    }

    /// Says whether a process watches, without being in the way of one that is about to.
    #[must_use]
    pub fn is_there(disk: &dyn Disk, places: &RecentsFiles) -> bool {
        disk.lock_holder(&lock_of(places)).is_some()
    }
}

impl WriterNotifier {
    /// Returns an alarm that starts `program`.
    #[must_use]
    pub fn new(program: WriterProgram, places: &RecentsFiles) -> WriterNotifier {
        WriterNotifier { program, lock: lock_of(places), started: channel(), under_way: 0 }
    }

    /// Starts the writer unless a process watches. The caller waits for three system calls, and for the creation of a thread
    /// if there is something to start.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `flock(2)`, or there is no thread: what others read stays as old as it is until the next time.
    pub fn raise(&mut self, disk: &dyn Disk) -> io::Result<()> {
        // Whoever gets the lock, if only for this moment, has to see to it.
        let Some(lock) = disk.own(&self.lock, Duration::ZERO)? else { return Ok(()) };
        drop(lock);
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.arguments).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let done = self.started.0.clone();
        std::thread::Builder::new().name("recents".to_owned()).spawn(move || {
            let child = command.spawn();
            // Nobody waits any more.
            let _ = done.send(child.as_ref().map(|_| ()).map_err(|e| e.kind().into()));
            // Nobody else takes notice of its end.
            let _ = child.map(|mut child| child.wait());
        })?;
        self.under_way += 1;
        Ok(())
    }

    /// Waits until every writer that was to be started is.
    ///
    /// # Errors
    ///
    /// The first that could not be started.
    pub fn settle(&mut self) -> io::Result<()> {
        while self.under_way > 0 {
            self.under_way -= 1;
            // The thread always says something, and we hold a sender ourselves.
            self.started.1.recv().unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}

impl Drop for WriterNotifier {
    fn drop(&mut self) {
        // A program that ends at once would take the start along.
        let _ = self.settle();
    }
}

fn lock_of(places: &RecentsFiles) -> PathBuf {
    let dir: &Path = &places.state;
    dir.join("watcher.lock")
}
