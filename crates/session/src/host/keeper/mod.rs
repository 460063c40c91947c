//! The keeper of a command: a process of its own that holds everything the command starts, and its terminal.
//!
//! It is the parent of the command and adopts whatever detaches from it. When it is told to, when the service that
//! started it is gone, or when the time is over, it ends all of that. Where the command's descriptors are a terminal that
//! belongs to another session, it gives the command one of its own and copies both ways. It is a process because it
//! outlives the service, and because only a parent is told of orphans.

mod group;
mod message;
mod run;
mod terminal;
pub mod tree;

use std::ffi::{CString, OsString};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use sys::launch::{self, Child, Launch, Others, Place, above, launch};

use super::command::{AfterCaller, Scheduling};
use super::start::{Executable, Prepared};

pub use message::{Order, Report, reports};
pub use run::run;

/// The argument by which the daemon's program becomes a keeper.
pub const NAME: &str = "host-keeper";

/// The program that is a keeper when it is called with [`NAME`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(pub PathBuf);

/// How a command is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The process that asked for it, whose terminal its descriptors may be; 0 if it is not known.
    pub client: u32,
    /// What becomes of it when the service or its caller is gone.
    pub after: AfterCaller,
    /// The time after which it is ended.
    pub timeout: Option<Duration>,
    /// How much is added to its nice value.
    pub nice: i32,
    /// How it is scheduled.
    pub scheduling: Scheduling,
}

/// Starts the keeper of a command and returns it with the socket that [`reports`] come from and [`Order`]s go to.
///
/// The first report is that the command began, or why not.
///
/// # Errors
///
/// As `fork(2)` and `execve(2)` for the keeper; no descriptors or memory.
pub fn start(
    program: &Program,
    prepared: &Prepared,
    terms: &Terms,
) -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = sys::socket::pair()?;
    let environment = block(&prepared.environment)?;
    let highest = prepared.highest();
    let (control, variables, file) = (highest + 1, highest + 2, highest + 3);
    let mut made = vec![
        (above(theirs.as_fd(), file + 1)?, control),
        (above(environment.as_fd(), file + 1)?, variables),
    ];
    for (descriptor, target) in &prepared.descriptors {
        made.push((above(descriptor.as_fd(), file + 1)?, *target));
    }
    let path = match &prepared.executable {
        Executable::Path(path) => path.clone(),
        Executable::File(judged) => {
            made.push((above(judged.as_fd(), file + 1)?, file));
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
        program: launch::Program::Path(&c_string(program.0.as_os_str().as_bytes().to_vec())),
        arguments: &arguments,
        environment: &[],
        directory: prepared.directory.as_ref().map(AsFd::as_fd),
        descriptors: &descriptors,
        others: Others::Closed,
        place: Place::OwnSession,
        open_files: prepared.open_files,
    })?;
    Ok((child, ours))
}

/// Writes variables one behind the other into memory that is passed on.
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

impl Terms {
    /// Says whether a command needs a keeper for them.
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

    fn from_text(text: &str) -> Option<Terms> {
        let mut parts = text.split(',');
        let terms = Terms {
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

/// What a keeper was started with.
#[derive(Debug)]
struct Start {
    control: OwnedFd,
    environment: Vec<CString>,
    terms: Terms,
    /// The highest number of a descriptor that the command gets.
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
        let terms = words.next().and_then(|text| Terms::from_text(text.to_str()?));
        let path = words.next().ok_or_else(wrong)?;
        // A path is empty only where the file itself was passed on.
        let executable = match path.is_empty() {
            true => Executable::File(sys::launch::inherited(file)?),
            false => Executable::Path(c_string(path.into_vec())),
        };
        let arguments: Vec<CString> = words.map(|word| c_string(word.into_vec())).collect();
        // As the service numbers them.
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
        let plain = Terms {
            client: 12,
            after: AfterCaller::GoesOn,
            timeout: None,
            nice: 0,
            scheduling: Scheduling::Inherited,
        };
        let all = Terms {
            after: AfterCaller::Ends,
            timeout: Some(Duration::from_millis(1500)),
            nice: -3,
            scheduling: Scheduling::Idle,
            ..plain
        };
        for terms in [plain, all] {
            assert_eq!(Terms::from_text(&terms.to_text()), Some(terms));
        }
        for wrong in ["", "1", "1,ends,x,0,idle", "1,ends,-,0,idle,more", "-1,ends,-,0,idle"] {
            assert_eq!(Terms::from_text(wrong), None, "{wrong}");
        }
    }
}
