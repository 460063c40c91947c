//! The log of host commands: who asked for what, whether it ran, how it ended and what it used.
//!
//! One journal, `commands.journal` in the state directory, oldest first, in a bounded number of bytes. A command that
//! began has one record for that and one for its end; the two have the same number. Each application has a share of the
//! room, and its refusals one of their own: nobody pushes out what is recorded of others.

mod record;
mod share;
mod writer;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use store::disk::Disk;
use store::journal::{Journal, JournalError};

use super::command::Request;
use super::process::Stat;

pub use writer::Writer;

/// The longest name of a directory that is kept.
const MOST_DIRECTORY: usize = 4096;
/// What a log keeps at the most, about.
pub const MOST_BYTES: u64 = 1 << 20;

/// One command that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number; later commands have larger ones.
    pub id: u64,
    /// When it was asked for, to the millisecond.
    pub time: SystemTime,
    /// The section of the policy that is about who asked: `host`, the name of an application, `snap.NAME`, `other`,
    /// or nothing if that was not to be found out.
    pub application: String,
    /// The process that asked; 0 if it was not known.
    pub caller: u32,
    /// The executable of that process.
    pub exe: Option<PathBuf>,
    /// The name of the command and its arguments; what is not UTF-8 is replaced. A long list ends with `…`.
    pub command: Vec<String>,
    /// Where it was to run, if the caller said.
    pub directory: Option<PathBuf>,
    /// What became of it.
    pub outcome: Outcome,
    /// Refusals of the same application before this one that were not recorded, because there were so many.
    pub unrecorded: u64,
}

impl Entry {
    /// Begins an entry for a request; who asks and what comes of it are not known yet. A long command is cut.
    #[must_use]
    pub fn asked(time: SystemTime, request: &Request) -> Entry {
        let directory = &request.directory;
        let directory = OsStr::from_bytes(directory.get(..MOST_DIRECTORY).unwrap_or(directory));
        Entry {
            id: 0,
            time,
            application: String::new(),
            caller: 0,
            exe: None,
            command: record::cut(&request.arguments),
            directory: (!directory.is_empty()).then(|| directory.into()),
            outcome: Outcome::Refused(String::new()),
            unrecorded: 0,
        }
    }
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not started, because the policy or something about the caller forbids it.
    Refused(String),
    /// It could not be started.
    NotStarted(String),
    /// It began, and nobody has seen its end: it runs, or who watched it was killed.
    Began(Process),
    /// It ended.
    Ended(Process, End),
}

/// A process, told from a later one with the same number by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it began, in ticks since the machine did, as in `/proc/PID/stat`; 0 if it had ended by then.
    pub began: u64,
}

impl Process {
    /// Reads when the process with this number began.
    #[must_use]
    pub fn of(pid: u32) -> Process {
        Process { pid, began: Stat::of(pid).map_or(0, |stat| stat.began) }
    }

    /// Says whether it still runs; one that has ended and waits to be asked for its status does not.
    #[must_use]
    pub fn is_alive(self) -> bool {
        self.began != 0 && Stat::of(self.pid).is_some_and(|stat| stat.began == self.began)
    }
}

/// How a command ended, and what it and the children that it waited for used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The status as `waitpid(2)` returns it.
    pub wait_status: i32,
    /// How long it ran.
    pub after: Duration,
    /// Processor time in programs.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// The most memory that one of them had at a time.
    pub memory_bytes: u64,
    /// Whether it was ended because nobody wanted it any more.
    pub by: EndedBy,
}

/// Who ended a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndedBy {
    /// It ended by itself, or by a signal of its caller or another program.
    #[default]
    Itself,
    /// Its caller was gone, and had said that the command should go too.
    CallerGone,
    /// The time that its caller had given it was over.
    Timeout,
}

/// Returns where the log is in the state directory of the user.
#[must_use]
pub fn file(state: &Path) -> PathBuf {
    state.join("unjank/host/commands.journal")
}

/// Reads the whole log, oldest first; it is empty if there is none.
///
/// Records that cannot be understood, for example of a later version, are left out.
///
/// # Errors
///
/// The file cannot be read or is no journal.
pub fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<Entry>, JournalError> {
    match Journal::read(disk, path) {
        Ok(replay) => {
            let damaged = replay.damage.into_iter().flat_map(|damage| damage.salvaged);
            Ok(record::entries(replay.records.into_iter().chain(damaged)))
        }
        Err(JournalError::NotOpened { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let own = Process::of(std::process::id());
        assert!(own.is_alive());
        assert!(!Process { began: own.began + 1, ..own }.is_alive());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = Process::of(child.id());
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
