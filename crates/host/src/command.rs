//! A requested command, and its preparation before the start.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, open};
use rustix::process::Rlimit;

use sys::deferred_close::PassedDescriptor;

use super::environment::SessionEnvironment;
use super::identity::TerminalFile;
use super::program::{self, FoundProgram};
use super::start::{Executable, Prepared};

/// The most bytes of a caller's text in an error.
const MOST_SAID: usize = 4096;
/// The most bytes of a caller's environment that are read.
const MOST_ENVIRONMENT: u64 = 256 << 10;

/// A requested command; nothing of it is checked yet.
#[derive(Debug, Default)]
pub struct CommandRequest {
    /// Its working directory; empty for that of the service.
    pub directory: Vec<u8>,
    /// Its name and its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// Its descriptors with their numbers in the command; the service's numbers are higher than all of these.
    pub descriptors: Vec<(u32, PassedDescriptor)>,
    /// Additional variables.
    pub variables: Vec<(String, String)>,
    /// The environment that it inherits.
    pub inherits: InheritedVariables,
    /// What happens when its caller leaves the bus.
    pub after: AfterCaller,
    /// Options that only unjank's clients request.
    pub options: CommandOptions,
}

/// The environment that a command inherits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InheritedVariables {
    /// The variables of the session.
    #[default]
    Session,
    /// None.
    Nothing,
}

/// What happens to a command when its caller leaves the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterCaller {
    /// It continues.
    #[default]
    GoesOn,
    /// It is ended, with all that it started.
    Ends,
}

/// Options that flatpak-session-helper does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOptions {
    /// Variables that are removed.
    pub unset: Vec<String>,
    /// The increment of its nice value.
    pub nice: Option<i32>,
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// The time after which it is ended, with all that it started.
    pub timeout: Option<Duration>,
}

/// The scheduling policy of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// That of the service.
    #[default]
    Inherited,
    /// The idle class.
    Idle,
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The request names no command.
    #[error("No command given")]
    NoCommand,
    /// The request is invalid.
    #[error("cannot run a command with {0}")]
    Invalid(String),
    /// The caller may not run it. The reply is the same whatever the reason is, so that nothing about rules, files and other
    /// programs can be learnt from a refusal.
    #[error("cannot run {command:?} for {application}: this is not allowed")]
    Refused {
        /// The name of the command.
        command: String,
        /// The application of the caller.
        application: String,
        /// The reason, for the log.
        why: String,
    },
    /// The caller has too many commands that run or wait.
    #[error("cannot run {command:?}: {why}")]
    TooMany {
        /// The name of the command.
        command: String,
        /// The limit that was reached.
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
    /// The command may have begun, and what is left of it is ended.
    #[error("Failed to start command: Failed to execute child process \u{201c}{command}\u{201d} ({})", reason(.source))]
    MayHaveBegun {
        /// The name of the command.
        command: String,
        /// Why nobody knows.
        source: io::Error,
    },
}

/// Returns a caller's text, or the beginning of a long one.
fn beginning(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..MOST_SAID).unwrap_or(bytes)).into_owned()
}

/// The kernel's message, without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// Duplicates descriptors of the caller to numbers above all those that they are to have in the command.
///
/// # Errors
///
/// A number is used twice, or none is free above it.
pub fn adopt(
    descriptors: &[(u32, BorrowedFd<'_>)],
) -> Result<Vec<(u32, PassedDescriptor)>, StartError> {
    let mut targets = HashSet::new();
    if let Some((twice, _)) = descriptors.iter().find(|(target, _)| !targets.insert(*target)) {
        return Err(StartError::Invalid(format!("descriptor {twice} given twice")));
    }
    let highest = targets.iter().max().copied().unwrap_or(0).max(2);
    let too_high = || StartError::Invalid(format!("a descriptor {highest}"));
    let least = i32::try_from(highest).ok().and_then(|highest| highest.checked_add(1));
    let least = least.ok_or_else(too_high)?;
    let above = |fd: &BorrowedFd<'_>| sys::launch::above(*fd, least).map_err(|_| too_high());
    descriptors.iter().map(|(target, fd)| Ok((*target, above(fd)?.into()))).collect()
}

impl CommandRequest {
    /// Returns the name of the command as text, or the beginning of one that is too long for a path.
    #[must_use]
    pub fn name(&self) -> String {
        self.arguments.first().map(|name| beginning(name)).unwrap_or_default()
    }

    /// Returns the approximate memory of the request.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let own = size_of::<CommandRequest>() + self.directory.len();
        let words = self.arguments.iter().map(|word| size_of::<Vec<u8>>() + word.len());
        let text = |text: &String| size_of::<String>() + text.len();
        let variables = self.variables.iter().map(|(name, value)| text(name) + text(value));
        let unset = self.options.unset.iter().map(text);
        own + words.chain(variables).chain(unset).sum::<usize>()
    }

    /// Returns the terminal of the standard descriptors; that of standard output if there are several.
    #[must_use]
    pub fn terminal(&self) -> Option<TerminalFile> {
        let of = |number| {
            let mut given = self.descriptors.iter();
            TerminalFile::of(&given.find(|(target, _)| *target == number)?.1)
        };
        [1, 0, 2].into_iter().find_map(of)
    }

    /// Sets the command's `TERM` to that of the caller, unless the request has one: the session does
    /// not know in which terminal a caller runs.
    pub fn add_terminal_type(&mut self, caller: u32) {
        let said = |(name, _): &(String, String)| name == "TERM";
        let unset = self.options.unset.iter().any(|name| name == "TERM");
        if unset || self.inherits == InheritedVariables::Nothing || self.variables.iter().any(said)
        {
            return;
        }
        // A caller whose environment is not readable has no terminal type.
        let block = sys::process_file::read(caller, "environ", MOST_ENVIRONMENT);
        let Ok(block) = block else { return };
        let kind = block.split(|&byte| byte == 0).find_map(|pair| pair.strip_prefix(b"TERM="));
        let kind = kind.and_then(|kind| String::from_utf8(kind.to_vec()).ok());
        self.variables.extend(kind.map(|kind| ("TERM".to_owned(), kind)));
    }

    /// Checks everything that needs no look at a file.
    ///
    /// # Errors
    ///
    /// There is no command, or a text has a zero byte.
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
                let name = beginning(name.as_bytes());
                return Err(StartError::Invalid(format!("a variable {name:?}")));
            }
        }
        Ok(())
    }

    /// Looks the program up; it blocks as long as the file systems of the path do.
    ///
    /// # Errors
    ///
    /// There is no such program.
    pub fn find(&self, session: &SessionEnvironment) -> Result<FoundProgram, StartError> {
        let environment = self.environment(session);
        let search = environment.get(b"PATH".as_slice()).cloned();
        let search = search.unwrap_or_else(|| program::DEFAULT_SEARCH.into());
        let here = Path::new(OsStr::from_bytes(&self.directory));
        let name = self.arguments.first().map(Vec::as_slice).unwrap_or_default();
        let found = program::find(OsStr::from_bytes(name), OsStr::from_bytes(&search), here);
        found.map_err(|source| StartError::Program { command: self.name(), source })
    }

    /// Opens the directory and prepares the start; standard input is empty if the caller passed none.
    ///
    /// # Errors
    ///
    /// The directory cannot be entered, there is no `/dev/null`, or there are no descriptors left.
    pub fn prepare(
        self,
        session: &SessionEnvironment,
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
            // The directory that was opened, wherever its path leads by now.
            let own = format!("/proc/self/fd/{}", directory.as_raw_fd());
            accessat(CWD, own, Access::EXEC_OK, AtFlags::EACCESS)?;
            Ok(directory)
        });
        opened.map(Some).map_err(|error| StartError::Directory {
            directory: beginning(&self.directory),
            source: error.into(),
        })
    }

    fn environment(&self, session: &SessionEnvironment) -> HashMap<Vec<u8>, Vec<u8>> {
        let mut environment = match self.inherits {
            InheritedVariables::Session => session.variables().clone(),
            InheritedVariables::Nothing => HashMap::new(),
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

/// Adds an empty standard input to a command without one.
fn with_input(given: Vec<(u32, PassedDescriptor)>) -> io::Result<Vec<(PassedDescriptor, i32)>> {
    let mut descriptors: Vec<(PassedDescriptor, i32)> = Vec::with_capacity(given.len() + 1);
    for (target, ours) in given {
        let target = i32::try_from(target).map_err(|_| io::ErrorKind::InvalidInput)?;
        descriptors.push((ours, target));
    }
    if descriptors.iter().all(|(_, target)| *target != 0) {
        let highest = descriptors.iter().map(|(_, target)| *target).max().unwrap_or(0).max(2);
        let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        descriptors.push((sys::launch::above(null.as_fd(), highest + 1)?.into(), 0));
    }
    Ok(descriptors)
}

/// Makes a C string of bytes that were checked for zero bytes.
fn c_string(bytes: Vec<u8>) -> CString {
    CString::new(bytes).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests are other programs")]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    fn request(words: &[&str]) -> CommandRequest {
        let arguments = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        CommandRequest { arguments, ..CommandRequest::default() }
    }

    fn session() -> SessionEnvironment {
        SessionEnvironment::of([(b"PATH".to_vec(), b"/usr/bin:/bin".to_vec())])
    }

    fn prepare(request: CommandRequest) -> Result<Prepared, StartError> {
        request.check()?;
        let executable = Executable::by_path(&request.find(&session())?);
        request.prepare(&session(), executable, None)
    }

    /// Runs a request and returns its output.
    fn run(mut request: CommandRequest) -> (i32, String) {
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

    fn error(request: CommandRequest) -> String {
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
        bare.inherits = InheritedVariables::Nothing;
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
