//! A command as its caller asked for it, and what is made of that before it starts.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, open};
use rustix::process::Rlimit;

use super::environment::Environment;
use super::identity::TerminalFile;
use super::keeper::Terms;
use super::program::{self, Program};
use super::start::{Executable, Prepared};

/// How much of a caller's environment is looked at.
const MOST_ENVIRONMENT: u64 = 256 << 10;

/// A command that somebody asked for; nothing of it is checked yet.
#[derive(Debug, Default)]
pub struct Request {
    /// Where it is to run; empty for where the service does.
    pub directory: Vec<u8>,
    /// Its name and its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// Its descriptors with the numbers that they get; ours are above all of those numbers.
    pub descriptors: Vec<(u32, OwnedFd)>,
    /// Variables that it gets.
    pub variables: Vec<(String, String)>,
    /// What the others are.
    pub inherits: Inherits,
    /// What becomes of it when its caller goes.
    pub after: AfterCaller,
    /// What only clients of ours ask for.
    pub options: Options,
}

/// Which variables a command gets apart from its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inherits {
    /// Those of the session.
    #[default]
    Session,
    /// None.
    Nothing,
}

/// What becomes of a command when its caller leaves the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterCaller {
    /// It goes on.
    #[default]
    GoesOn,
    /// It is ended, with all that it started.
    Ends,
}

/// What the original has no words for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Variables that it does not get.
    pub unset: Vec<String>,
    /// How much is added to its nice value.
    pub nice: Option<i32>,
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// The time after which it is ended, with all that it started.
    pub timeout: Option<Duration>,
}

/// How a command gets the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// As the service does.
    #[default]
    Inherited,
    /// When nobody else wants it.
    Idle,
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is none.
    #[error("No command given")]
    NoCommand,
    /// Something about the request makes no sense.
    #[error("cannot run a command with {0}")]
    Invalid(String),
    /// The caller may not. It is told so in the same words whatever the reason is: nothing about rules, files and other
    /// programs can be learnt from being refused.
    #[error("cannot run {command:?} for {application}: this is not allowed")]
    Refused {
        /// The name of the command.
        command: String,
        /// Who asked.
        application: String,
        /// What forbids it, for the log.
        why: String,
    },
    /// The caller has too many commands that run or wait.
    #[error("cannot run {command:?}: {why}")]
    TooMany {
        /// The name of the command.
        command: String,
        /// Which bound was met.
        why: &'static str,
    },
    /// The directory cannot be entered.
    #[error("Failed to start command: Failed to change to directory \u{201c}{directory}\u{201d} ({})", reason(.source))]
    Directory {
        /// The directory.
        directory: String,
        /// Why.
        source: io::Error,
    },
    /// The program cannot be run.
    #[error("Failed to start command: Failed to execute child process \u{201c}{command}\u{201d} ({})", reason(.source))]
    Program {
        /// The name of the command.
        command: String,
        /// Why.
        source: io::Error,
    },
}

/// What the kernel says, without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// Makes descriptors of the caller ours, with numbers above all that they are to get.
///
/// # Errors
///
/// A number is used twice, or none is free above it.
pub fn adopt(descriptors: &[(u32, BorrowedFd<'_>)]) -> Result<Vec<(u32, OwnedFd)>, StartError> {
    let mut targets = HashSet::new();
    if let Some((twice, _)) = descriptors.iter().find(|(target, _)| !targets.insert(*target)) {
        return Err(StartError::Invalid(format!("descriptor {twice} given twice")));
    }
    let highest = targets.iter().max().copied().unwrap_or(0).max(2);
    let too_high = || StartError::Invalid(format!("a descriptor {highest}"));
    let least = i32::try_from(highest).ok().and_then(|highest| highest.checked_add(1));
    let least = least.ok_or_else(too_high)?;
    let above = |fd: &BorrowedFd<'_>| sys::launch::above(*fd, least).map_err(|_| too_high());
    descriptors.iter().map(|(target, fd)| Ok((*target, above(fd)?))).collect()
}

impl Request {
    /// Returns the name of the command as text.
    #[must_use]
    pub fn name(&self) -> String {
        self.arguments
            .first()
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .unwrap_or_default()
    }

    /// Returns the terminal that a standard descriptor is; that of standard output if there are several.
    #[must_use]
    pub fn terminal(&self) -> Option<TerminalFile> {
        let of = |number| {
            let mut given = self.descriptors.iter();
            TerminalFile::of(&given.find(|(target, _)| *target == number)?.1)
        };
        [1, 0, 2].into_iter().find_map(of)
    }

    /// Gives the command the type of its caller's terminal, unless the caller said something about it: the session does
    /// not know in which terminal a caller runs.
    pub fn add_terminal_type(&mut self, caller: u32) {
        let said = |(name, _): &(String, String)| name == "TERM";
        let unset = self.options.unset.iter().any(|name| name == "TERM");
        if unset || self.inherits == Inherits::Nothing || self.variables.iter().any(said) {
            return;
        }
        // One that hides its environment has a terminal without a type.
        let Ok(file) = File::open(format!("/proc/{caller}/environ")) else { return };
        let mut block = Vec::new();
        if file.take(MOST_ENVIRONMENT).read_to_end(&mut block).is_err() {
            return;
        }
        let kind = block.split(|&byte| byte == 0).find_map(|pair| pair.strip_prefix(b"TERM="));
        let kind = kind.and_then(|kind| String::from_utf8(kind.to_vec()).ok());
        self.variables.extend(kind.map(|kind| ("TERM".to_owned(), kind)));
    }

    /// Returns how the command is to be kept for the process that asks for it.
    #[must_use]
    pub fn terms(&self, client: u32) -> Terms {
        Terms {
            client,
            after: self.after,
            timeout: self.options.timeout,
            nice: self.options.nice.unwrap_or(0),
            scheduling: self.options.scheduling,
        }
    }

    /// Checks what can be checked without looking at any file.
    ///
    /// # Errors
    ///
    /// There is no command, or a text holds what no program could get.
    pub fn check(&self) -> Result<(), StartError> {
        if self.arguments.first().is_none_or(Vec::is_empty) {
            return Err(StartError::NoCommand);
        }
        let zero = |bytes: &[u8]| bytes.contains(&0);
        if self.arguments.iter().any(|word| zero(word)) || zero(&self.directory) {
            return Err(StartError::Invalid("a zero byte in an argument or its directory".into()));
        }
        for (name, value) in &self.variables {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(StartError::Invalid(format!("a variable {name:?}")));
            }
        }
        Ok(())
    }

    /// Looks the program up, for as long as the file systems on the way take.
    ///
    /// # Errors
    ///
    /// There is no such program.
    pub fn find(&self, session: &Environment) -> Result<Program, StartError> {
        let environment = self.environment(session);
        let search = environment.get(b"PATH".as_slice()).cloned();
        let search = search.unwrap_or_else(|| program::DEFAULT_SEARCH.into());
        let here = Path::new(OsStr::from_bytes(&self.directory));
        let name = self.arguments.first().map(Vec::as_slice).unwrap_or_default();
        let found = program::find(OsStr::from_bytes(name), OsStr::from_bytes(&search), here);
        found.map_err(|source| StartError::Program { command: self.name(), source })
    }

    /// Opens the directory and puts together what starts; standard input is empty if the caller gave none.
    ///
    /// # Errors
    ///
    /// The directory cannot be entered, there is no `/dev/null`, or there are no descriptors left.
    pub fn prepare(
        self,
        session: &Environment,
        executable: Executable,
        open_files: Option<Rlimit>,
    ) -> Result<Prepared, StartError> {
        let directory = self.open_directory()?;
        let command = self.name();
        let environment = self.environment(session).into_iter().map(|(mut variable, value)| {
            variable.push(b'=');
            variable.extend_from_slice(&value);
            c_string(variable)
        });
        let environment = environment.collect();
        let failed = |source| StartError::Program { command: command.clone(), source };
        let descriptors = with_input(self.descriptors).map_err(failed)?;
        let arguments = self.arguments.into_iter().map(c_string).collect();
        Ok(Prepared { executable, arguments, environment, directory, descriptors, open_files })
    }

    fn open_directory(&self) -> Result<Option<OwnedFd>, StartError> {
        if self.directory.is_empty() {
            return Ok(None);
        }
        let path = OsStr::from_bytes(&self.directory);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = open(path, flags, Mode::empty()).and_then(|directory| {
            // Of the directory itself, wherever its path leads by now.
            let own = format!("/proc/self/fd/{}", directory.as_raw_fd());
            accessat(CWD, own, Access::EXEC_OK, AtFlags::EACCESS)?;
            Ok(directory)
        });
        opened.map(Some).map_err(|error| StartError::Directory {
            directory: String::from_utf8_lossy(&self.directory).into_owned(),
            source: error.into(),
        })
    }

    fn environment(&self, session: &Environment) -> HashMap<Vec<u8>, Vec<u8>> {
        let mut environment = match self.inherits {
            Inherits::Session => session.variables().clone(),
            Inherits::Nothing => HashMap::new(),
        };
        for name in &self.options.unset {
            environment.remove(name.as_bytes());
        }
        for (name, value) in &self.variables {
            environment.insert(name.clone().into_bytes(), value.clone().into_bytes());
        }
        environment
    }
}

/// Gives a command that has no standard input an empty one.
fn with_input(given: Vec<(u32, OwnedFd)>) -> io::Result<Vec<(OwnedFd, i32)>> {
    let mut descriptors: Vec<(OwnedFd, i32)> = Vec::with_capacity(given.len() + 1);
    for (target, ours) in given {
        let target = i32::try_from(target).map_err(|_| io::ErrorKind::InvalidInput)?;
        descriptors.push((ours, target));
    }
    if descriptors.iter().all(|(_, target)| *target != 0) {
        let highest = descriptors.iter().map(|(_, target)| *target).max().unwrap_or(0).max(2);
        let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        descriptors.push((sys::launch::above(null.as_fd(), highest + 1)?, 0));
    }
    Ok(descriptors)
}

/// Makes a string of bytes that were found to hold no zero.
fn c_string(bytes: Vec<u8>) -> CString {
    CString::new(bytes).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests are other programs")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn request(words: &[&str]) -> Request {
        let arguments = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        Request { arguments, ..Request::default() }
    }

    fn session() -> Environment {
        Environment::of([(b"PATH".to_vec(), b"/usr/bin:/bin".to_vec())])
    }

    fn prepare(request: Request) -> Result<Prepared, StartError> {
        request.check()?;
        let executable = Executable::by_path(&request.find(&session())?);
        request.prepare(&session(), executable, None)
    }

    /// Runs a request whose output is taken.
    fn run(mut request: Request) -> (i32, String) {
        let (mut read, write) = io::pipe().unwrap();
        request.descriptors = adopt(&[(1, write.as_fd()), (2, write.as_fd())]).unwrap();
        drop(write);
        let prepared = prepare(request).unwrap();
        let child = prepared.start().unwrap();
        drop(prepared);
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        sys::pidfd::wait_readable(child.pidfd.as_fd()).unwrap();
        (sys::pidfd::reap(child.pidfd.as_fd()).unwrap().unwrap().wait_status, text)
    }

    fn error(request: Request) -> String {
        match prepare(request).map(|prepared| prepared.start()) {
            Err(error) => error.to_string(),
            Ok(started) => started.unwrap_err().to_string(),
        }
    }

    #[test]
    fn variables_come_from_the_session_and_from_the_caller() {
        let script = "echo $A-$B-${PATH:+path}; read x || echo empty";
        let mut given = request(&["sh", "-c", script]);
        given.variables = vec![("A".into(), "a".into()), ("B".into(), "=b".into())];
        assert_eq!(run(given).1, "a-=b-path\nempty\n");
        let mut bare = request(&["env"]);
        bare.inherits = Inherits::Nothing;
        bare.variables = vec![("A".into(), "b".into())];
        assert_eq!(run(bare).1, "A=b\n");
        let mut less = request(&["/usr/bin/env"]);
        less.options.unset = vec!["PATH".into()];
        assert_eq!(run(less).1, "");
    }

    #[test]
    fn the_path_of_the_caller_counts_and_is_relative_to_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        for (name, text) in [("tool", "#!/bin/sh\necho $0 $#"), ("bare", "echo bare $1")] {
            let path = dir.path().join("bin").join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let asked = |words: &[&str]| {
            let mut asked = request(words);
            asked.directory = dir.path().as_os_str().as_bytes().to_vec();
            asked.variables = vec![("PATH".into(), "bin".into())];
            asked
        };
        assert_eq!(run(asked(&["tool", "1"])).1, "bin/tool 1\n");
        assert_eq!(run(asked(&["./bin/tool"])).1, "./bin/tool 0\n");
        assert_eq!(run(asked(&["bare", "1"])).1, "bare 1\n");
    }

    #[test]
    fn what_cannot_start_says_why_in_the_words_of_the_original() {
        let dir = tempfile::tempdir().unwrap();
        let bad = dir.path().join("bad");
        std::fs::write(&bad, "#!/nowhere/at/all\n").unwrap();
        std::fs::set_permissions(&bad, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(error(request(&[])), "No command given");
        assert_eq!(error(request(&["", "x"])), "No command given");
        let missing = "Failed to start command: Failed to execute child process \
                       “nothing-here” (No such file or directory)";
        assert_eq!(error(request(&["nothing-here"])), missing);
        assert!(error(request(&["/tmp"])).ends_with("“/tmp” (Permission denied)"));
        assert!(error(request(&[bad.to_str().unwrap()])).contains("No such file"));
        let mut nowhere = request(&["true"]);
        nowhere.directory = b"/nowhere".to_vec();
        let text = "Failed to start command: Failed to change to directory “/nowhere” \
                    (No such file or directory)";
        assert_eq!(error(nowhere), text);
        assert!(error(request(&["true", "a\0b"])).contains("zero byte"));
        let mut variable = request(&["true"]);
        variable.variables = vec![("A=B".into(), String::new())];
        assert!(error(variable).contains("A=B"));
    }

    #[test]
    fn a_number_that_no_descriptor_can_have_is_refused() {
        let input = io::stdin();
        let refused = |given: &[u32]| {
            let given: Vec<_> = given.iter().map(|target| (*target, input.as_fd())).collect();
            matches!(adopt(&given), Err(StartError::Invalid(_)))
        };
        assert!(refused(&[3, 4, 3]));
        assert!(refused(&[u32::MAX]));
        assert!(refused(&[i32::MAX.unsigned_abs()]));
        assert!(!refused(&[3, 5, 4]));
    }
}
