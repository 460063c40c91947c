//! The log of host commands: who asked for what, whether it ran, how it ended and what it used.
//!
//! One journal, `commands.journal` in the state directory, oldest first, in a bounded number of bytes. A command that
//! began has one record for that and one for its end; the two have the same number. Each application has a share of the
//! limit, and its refusals one of their own, so that no application displaces the records of others.

pub mod json;
mod record;
mod share;
pub mod text;
mod writer;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use store::disk::Disk;
use store::journal::{Journal, JournalError};

use super::command::CommandRequest;
use super::process::ProcessStat;

pub use writer::Writer;

/// The longest directory name that is kept.
const MOST_DIRECTORY: usize = 4096;
/// The approximate limit of the log, in bytes.
pub const MOST_BYTES: u64 = 1 << 20;

/// One requested command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its number; later commands have larger ones.
    pub id: u64,
    /// When it was requested, to the millisecond.
    pub time: SystemTime,
    /// The section of the policy for the caller: `host`, the name of an application, `snap.NAME`, `other`,
    /// or empty if the caller is not known.
    pub application: String,
    /// The calling process; 0 if it was not known.
    pub caller: u32,
    /// The executable of that process.
    pub exe: Option<PathBuf>,
    /// The name of the command and its arguments; what is not UTF-8 is replaced. A long list ends with `…`.
    pub command: Vec<String>,
    /// Its working directory, if the request had one.
    pub directory: Option<PathBuf>,
    /// Its outcome.
    pub outcome: CommandOutcome,
    /// How many earlier refusals of the same application were not recorded, because there were too many.
    pub unrecorded: u64,
}

impl LogEntry {
    /// Begins an entry for a request, whose caller and outcome are not known yet. A long command is cut.
    #[must_use]
    pub fn asked(time: SystemTime, request: &CommandRequest) -> LogEntry {
        let directory = &request.directory;
        let directory = OsStr::from_bytes(directory.get(..MOST_DIRECTORY).unwrap_or(directory));
        LogEntry {
            id: 0,
            time,
            application: String::new(),
            caller: 0,
            exe: None,
            command: record::cut(&request.arguments),
            directory: (!directory.is_empty()).then(|| directory.into()),
            outcome: CommandOutcome::Refused(String::new()),
            unrecorded: 0,
        }
    }
}

impl LogEntry {
    /// Returns whether the command exited with 0, or still runs.
    #[must_use]
    pub fn is_success(&self) -> bool {
        match &self.outcome {
            CommandOutcome::Ended(_, end) => end.wait_status == 0,
            CommandOutcome::Began(process) => process.is_alive(),
            _ => false,
        }
    }
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// It was not started, because the policy or something about the caller forbids it.
    Refused(String),
    /// It could not be started.
    NotStarted(String),
    /// It began, and its end is not recorded: it runs, or its keeper was killed.
    Began(LoggedProcess),
    /// It ended.
    Ended(LoggedProcess, End),
}

/// A process, identified by its number and its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedProcess {
    /// Its number.
    pub pid: u32,
    /// When it began, in ticks since boot, as in `/proc/PID/stat`; 0 if it had ended by then.
    pub began: u64,
}

impl LoggedProcess {
    /// Reads when the process with this number began.
    #[must_use]
    pub fn of(pid: u32) -> LoggedProcess {
        LoggedProcess { pid, began: ProcessStat::of(pid).map_or(0, |stat| stat.began) }
    }

    /// Returns whether it still runs; a zombie does not.
    #[must_use]
    pub fn is_alive(self) -> bool {
        self.began != 0 && ProcessStat::of(self.pid).is_some_and(|stat| stat.began == self.began)
    }
}

/// How a command ended, and the resources that it and its reaped children used.
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
    /// The peak memory of one of them.
    pub memory_bytes: u64,
    /// What ended it.
    pub by: EndedBy,
}

/// What ended a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndedBy {
    /// It ended by itself, or by a signal of its caller or another program.
    #[default]
    Itself,
    /// Its caller was gone, and had requested that the command ends then.
    CallerGone,
    /// Its time limit was over.
    Timeout,
}

/// Returns where the log is in the state directory of the user.
#[must_use]
pub fn file(state: &Path) -> PathBuf {
    state.join("unjank/host/commands.journal")
}

/// A log that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogContents {
    /// The commands, oldest first.
    pub entries: Vec<LogEntry>,
    /// The approximate number of unreadable bytes, if the file is damaged. Their records are lost.
    pub damaged_bytes: Option<u64>,
}

/// Reads the whole log, oldest first, including records behind damage; it is empty if there is no file.
///
/// Invalid records, for example of a later version, are left out.
///
/// # Errors
///
/// The file cannot be read or is no journal.
pub fn read(disk: &dyn Disk, path: &Path) -> Result<LogContents, JournalError> {
    match Journal::read(disk, path) {
        Ok(replay) => {
            let damaged_bytes = replay.is_damaged().then_some(replay.damaged_bytes);
            let entries = record::entries(replay.into_all_records().into_iter());
            Ok(LogContents { entries, damaged_bytes })
        }
        Err(JournalError::NotOpened { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(LogContents::default())
        }
        Err(error) => Err(error),
    }
}

/// Returns the files of damaged logs that were set aside, the oldest first.
#[must_use]
pub fn set_aside(disk: &dyn Disk, path: &Path) -> Vec<PathBuf> {
    let named = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("~{number}"));
        PathBuf::from(name)
    };
    (0..).map(named).take_while(|path| disk.stat(path).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let own = LoggedProcess::of(std::process::id());
        assert!(own.is_alive());
        assert!(!LoggedProcess { began: own.began + 1, ..own }.is_alive());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = LoggedProcess::of(child.id());
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
