//! The keeper of a command: a process that supervises everything that the command starts, and its terminal.
//!
//! It is the parent of the command and adopts processes that detach from it. On request, when the service that
//! started it has ended, or after a time limit, it ends all of them. If the command's descriptors are a terminal that
//! belongs to another session, it creates a terminal for the command and copies in both directions. It is a process because it
//! outlives the service, and because only a process can adopt orphans.

mod group;
mod message;
mod reading;
mod requester;
mod run;
mod terminal;
pub mod tree;

use std::ffi::{CString, OsString};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use sys::deferred_close::PassedDescriptor;
use sys::launch::{self, Child, Launch, OtherDescriptors, ProcessGroup, above, launch};

use super::command::{AfterCaller, CommandRequest, Scheduling};
use super::start::{Executable, Prepared};

pub use message::{KeeperReport, KeeperRequest, reports};
pub use run::run;

/// The argument that makes the daemon's program a keeper.
pub const NAME: &str = "host-keeper";

/// The program that becomes a keeper when it is called with [`NAME`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeeperProgram(pub PathBuf);

/// The terms on which a command is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperTerms {
    /// The calling process, whose terminal its descriptors may be; 0 if it is not known.
    pub client: u32,
    /// What happens when the service or the caller ends.
    pub after: AfterCaller,
    /// The time after which it is ended.
    pub timeout: Option<Duration>,
    /// The increment of its nice value.
    pub nice: i32,
    /// How it is scheduled.
    pub scheduling: Scheduling,
}

/// Starts the keeper of a command, and returns it with the socket for [`reports`] and [`KeeperRequest`]s.
///
/// The first report says that the command began, or why not.
///
/// # Errors
///
/// As `fork(2)` and `execve(2)` for the keeper; no descriptors or memory.
pub fn start(
    program: &KeeperProgram,
    prepared: &Prepared,
    terms: &KeeperTerms,
) -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = sys::socket::pair()?;
    let environment = block(&prepared.environment)?;
    let highest = prepared.highest();
    let (control, variables, file) = (highest + 1, highest + 2, highest + 3);
    let given = |ours: BorrowedFd<'_>| above(ours, file + 1).map(PassedDescriptor::from);
    let mut made =
        vec![(given(theirs.as_fd())?, control), (given(environment.as_fd())?, variables)];
    for (descriptor, target) in &prepared.descriptors {
        made.push((given(descriptor.as_fd())?, *target));
    }
    let path = match &prepared.executable {
        Executable::Path(path) => path.clone(),
        Executable::File(judged) => {
            made.push((given(judged.as_fd())?, file));
            CString::default()
        }
    };
    let descriptors: Vec<_> = made.iter().map(|(ours, target)| (ours.as_fd(), *target)).collect();
    let words = [
        "unjankd".to_owned(),
        NAME.to_owned(),
        control.to_string(),
        variables.to_string(),
        file.to_string(),
        terms.to_text(),
    ];
    let mut arguments = words.map(|word| c_string(word.into_bytes())).to_vec();
    arguments.push(path);
    arguments.extend(prepared.arguments.iter().cloned());
    let child = launch(&Launch {
        program: launch::LaunchedFile::Path(&c_string(program.0.as_os_str().as_bytes().to_vec())),
        arguments: &arguments,
        environment: &[],
        directory: prepared.directory.as_ref().map(AsFd::as_fd),
        descriptors: &descriptors,
        others: OtherDescriptors::Closed,
        place: ProcessGroup::OwnSession,
        open_files: prepared.open_files,
    })?;
    Ok((child, ours))
}

/// Writes the variables one after the other into memory that is passed to the keeper.
fn block(environment: &[CString]) -> io::Result<std::fs::File> {
    let mut file = sys::memfd::create("environment")?;
    let bytes: Vec<u8> =
        environment.iter().flat_map(|variable| variable.to_bytes_with_nul()).copied().collect();
    file.write_all(&bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Makes a string of bytes that hold no zero.
fn c_string(bytes: Vec<u8>) -> CString {
    CString::new(bytes).unwrap_or_default()
}

impl CommandRequest {
    /// Returns the terms of the command for the calling process.
    #[must_use]
    pub fn terms(&self, client: u32) -> KeeperTerms {
        KeeperTerms {
            client,
            after: self.after,
            timeout: self.options.timeout,
            nice: self.options.nice.unwrap_or(0),
            scheduling: self.options.scheduling,
        }
    }
}

impl KeeperTerms {
    /// Returns whether a command with these terms needs a keeper.
    #[must_use]
    pub fn are_any(&self) -> bool {
        self.after == AfterCaller::Ends
            || self.timeout.is_some()
            || self.nice != 0
            || self.scheduling == Scheduling::Idle
    }

    fn to_text(self) -> String {
        let after = match self.after {
            AfterCaller::GoesOn => "goes-on",
            AfterCaller::Ends => "ends",
        };
        let scheduling = match self.scheduling {
            Scheduling::Inherited => "inherited",
            Scheduling::Idle => "idle",
        };
        let timeout = self.timeout.map_or("-".to_owned(), |time| time.as_millis().to_string());
        format!("{},{after},{timeout},{},{scheduling}", self.client, self.nice)
    }

    fn from_text(text: &str) -> Option<KeeperTerms> {
        let mut parts = text.split(',');
        let terms = KeeperTerms {
            client: parts.next()?.parse().ok()?,
            after: match parts.next()? {
                "goes-on" => AfterCaller::GoesOn,
                "ends" => AfterCaller::Ends,
                _ => return None,
            },
            timeout: match parts.next()? {
                "-" => None,
                millis => Some(Duration::from_millis(millis.parse().ok()?)),
            },
            nice: parts.next()?.parse().ok()?,
            scheduling: match parts.next()? {
                "inherited" => Scheduling::Inherited,
                "idle" => Scheduling::Idle,
                _ => return None,
            },
        };
        parts.next().is_none().then_some(terms)
    }
}

/// The arguments of a keeper.
#[derive(Debug)]
struct Start {
    control: OwnedFd,
    environment: Vec<CString>,
    terms: KeeperTerms,
    /// The highest descriptor number of the command.
    highest: RawFd,
    executable: Executable,
    arguments: Vec<CString>,
}

impl Start {
    /// Reads the arguments behind [`NAME`].
    fn read(arguments: Vec<OsString>) -> io::Result<Start> {
        let wrong =
            || io::Error::new(io::ErrorKind::InvalidInput, "these are no keeper's arguments");
        let mut words = arguments.into_iter();
        let mut number = || words.next()?.to_str()?.parse().ok();
        let (control, variables, file): (i32, i32, i32) =
            (number().ok_or_else(wrong)?, number().ok_or_else(wrong)?, number().ok_or_else(wrong)?);
        let terms = words.next().and_then(|text| KeeperTerms::from_text(text.to_str()?));
        let path = words.next().ok_or_else(wrong)?;
        // The path is empty if the file was passed as a descriptor.
        let executable = match path.is_empty() {
            true => Executable::File(sys::launch::inherited(file)?),
            false => Executable::Path(c_string(path.into_vec())),
        };
        let arguments: Vec<CString> = words.map(|word| c_string(word.into_vec())).collect();
        // The numbers are those of the service.
        let highest = control - 1;
        let control = sys::launch::inherited(control)?;
        let mut environment = Vec::new();
        let mut block = std::fs::File::from(sys::launch::inherited(variables)?);
        io::Read::read_to_end(&mut block, &mut environment)?;
        let environment = environment.split(|&byte| byte == 0).filter(|part| !part.is_empty());
        Ok(Start {
            control,
            environment: environment.map(|part| c_string(part.to_vec())).collect(),
            terms: terms.ok_or_else(wrong)?,
            highest,
            executable,
            arguments,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_as_they_were_written() {
        let plain = KeeperTerms {
            client: 12,
            after: AfterCaller::GoesOn,
            timeout: None,
            nice: 0,
            scheduling: Scheduling::Inherited,
        };
        let all = KeeperTerms {
            after: AfterCaller::Ends,
            timeout: Some(Duration::from_millis(1500)),
            nice: -3,
            scheduling: Scheduling::Idle,
            ..plain
        };
        for terms in [plain, all] {
            assert_eq!(KeeperTerms::from_text(&terms.to_text()), Some(terms));
        }
        for wrong in ["", "1", "1,ends,x,0,idle", "1,ends,-,0,idle,more", "-1,ends,-,0,idle"] {
            assert_eq!(KeeperTerms::from_text(wrong), None, "{wrong}");
        }
    }
}
