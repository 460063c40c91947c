//! A prepared and admitted command, and its start.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::Rlimit;
use sys::deferred_close::PassedDescriptor;
use sys::launch::{self, Child, Launch, OtherDescriptors, ProcessGroup};

use super::program::FoundProgram;

/// The file that a command executes.
#[derive(Debug)]
pub enum Executable {
    /// The file at this path at the start; a relative path is below the directory of the command.
    Path(CString),
    /// Exactly this file, about which the policy was decided.
    File(OwnedFd),
}

impl Executable {
    /// Executes a program by its path, because no rule requires a certain file.
    #[must_use]
    pub fn by_path(program: &FoundProgram) -> Executable {
        Executable::Path(c_string(program.path.clone()))
    }

    /// Executes exactly the file that was found.
    #[must_use]
    pub fn exactly(program: FoundProgram) -> Executable {
        match program.fixed_path() {
            Some(path) => Executable::Path(c_string(path)),
            None => Executable::File(program.file),
        }
    }
}

/// Makes a C string of a path, which has no zero byte.
fn c_string(path: PathBuf) -> CString {
    CString::new(path.into_os_string().into_vec()).unwrap_or_default()
}

/// A command that is ready to start.
#[derive(Debug)]
pub struct Prepared {
    /// The file.
    pub executable: Executable,
    /// Its name and its arguments.
    pub arguments: Vec<CString>,
    /// Its whole environment.
    pub environment: Vec<CString>,
    /// Its working directory; that of the service if there is none.
    pub directory: Option<OwnedFd>,
    /// Its descriptors, each with a number above all target numbers, and the target numbers.
    pub descriptors: Vec<(PassedDescriptor, i32)>,
    /// The limit of its descriptors; that of the service if there is none.
    pub open_files: Option<Rlimit>,
}

impl Prepared {
    /// Starts the command in a session of its own. This waits until the kernel has read the program.
    ///
    /// A file that is neither a program nor names its interpreter is executed by the shell, as by `execvp(3)`.
    ///
    /// # Errors
    ///
    /// As `execve(2)` and `fork(2)`.
    pub fn start(&self) -> io::Result<Child> {
        or_shell(&self.executable, &self.arguments, self.highest(), |program, arguments, script| {
            let given = self.descriptors.iter().map(|(ours, target)| (ours.as_fd(), *target));
            let descriptors: Vec<_> = given.chain(script).collect();
            launch::launch(&Launch {
                program,
                arguments,
                environment: &self.environment,
                directory: self.directory.as_ref().map(AsFd::as_fd),
                descriptors: &descriptors,
                others: OtherDescriptors::Closed,
                place: ProcessGroup::OwnSession,
                open_files: self.open_files,
            })
        })
    }

    /// Returns the highest descriptor number of the command.
    pub(super) fn highest(&self) -> RawFd {
        self.descriptors.iter().map(|(_, target)| *target).max().unwrap_or(0).max(2)
    }
}

/// A descriptor, and its number in the started program.
type GivenDescriptor<'a> = (BorrowedFd<'a>, RawFd);

/// Starts a program by `begin`, or the shell with it as a script where it is neither a program nor names its interpreter.
///
/// `begin` gets the program, its arguments, and the script for the shell if that is no path. No number up to `highest` is
/// free.
pub(super) fn or_shell(
    executable: &Executable,
    arguments: &[CString],
    highest: RawFd,
    begin: impl Fn(
        launch::LaunchedFile<'_>,
        &[CString],
        Option<GivenDescriptor<'_>>,
    ) -> io::Result<Child>,
) -> io::Result<Child> {
    let is_script = |error: &io::Error| error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error());
    let shell = launch::LaunchedFile::Path(c"/bin/sh");
    let words = |script: CString| {
        let first = [c"/bin/sh".to_owned(), script];
        [&first, arguments.get(1..).unwrap_or_default()].concat()
    };
    match executable {
        Executable::Path(path) => match begin(launch::LaunchedFile::Path(path), arguments, None) {
            Err(error) if is_script(&error) => begin(shell, &words(path.clone()), None),
            other => other,
        },
        Executable::File(file) => {
            let script = highest + 1;
            let file = launch::above(file.as_fd(), script + 1)?;
            match begin(launch::LaunchedFile::File(file.as_fd()), arguments, None) {
                Err(error) if is_script(&error) => {
                    let path = CString::new(format!("/dev/fd/{script}"))?;
                    begin(shell, &words(path), Some((file.as_fd(), script)))
                }
                other => other,
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests are other programs")]
mod tests {
    use super::*;
    use crate::program;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    /// Runs what `executable` makes of a script with these bytes, and returns what that says.
    fn said(text: &str, executable: impl Fn(FoundProgram) -> Executable) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tool");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let found = program::find("./tool".as_ref(), "".as_ref(), dir.path()).unwrap();
        let (mut read, write) = io::pipe().unwrap();
        let prepared = Prepared {
            executable: executable(found),
            arguments: ["tool", "one"].map(|word| CString::new(word).unwrap()).into(),
            environment: Vec::new(),
            directory: Some(std::fs::File::open(dir.path()).unwrap().into()),
            descriptors: vec![(launch::above(write.as_fd(), 3).unwrap().into(), 1)],
            open_files: None,
        };
        drop(write);
        // Somebody puts another file there in the last moment.
        if matches!(prepared.executable, Executable::File(_)) {
            std::fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("/bin/false", &path).unwrap();
        }
        // A program that another test is starting has the script open for writing until it runs.
        let child = loop {
            match prepared.start() {
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
                other => break other.unwrap(),
            }
        };
        drop(prepared);
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        sys::pidfd::wait_readable(child.pidfd.as_fd()).unwrap();
        sys::pidfd::reap(child.pidfd.as_fd()).unwrap();
        text
    }

    #[test]
    fn a_script_runs_by_its_path_and_as_the_file_that_it_was() {
        for text in ["#!/bin/sh\necho ran $1\n", "echo ran $1\n"] {
            assert_eq!(said(text, |found| Executable::by_path(&found)), "ran one\n", "{text}");
            assert_eq!(said(text, Executable::exactly), "ran one\n", "{text}");
        }
    }

    #[test]
    fn a_program_of_the_system_has_a_path_that_only_root_can_change() {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let found = program::find("sh".as_ref(), "/bin".as_ref(), Path::new("/")).unwrap();
        assert!(matches!(Executable::exactly(found), Executable::Path(_)));
    }
}
