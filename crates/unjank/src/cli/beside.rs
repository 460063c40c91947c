//! Programs that packages have beside this one, so that their code is not in it, too.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::error::{Error, FailureCategory};

/// Replaces this process by the program `name` of the same directory, without the first `words` words of this command line.
///
/// Returns if that fails, after the error with the `package` that has the program. For `cfg!(packaged)` alone: after `cargo run`
/// nobody built the program, and this one has its code.
pub(super) fn become_program(name: &str, package: &str, words: usize) -> ExitCode {
    let program = beside(name);
    let cause = Command::new(&program).args(std::env::args_os().skip(words)).exec();
    not_started(&program, cause, package).report()
}

/// Replaces this process by the program `name` of the same directory, or of the `PATH`, with these arguments.
///
/// Returns why that failed, with the `package` that has the program.
pub(super) fn run_program(name: &str, package: &str, arguments: &[OsString]) -> Error {
    let start = |program: &Path| Command::new(program).args(arguments).exec();
    match start(&beside(name)) {
        cause if cause.kind() == ErrorKind::NotFound => {
            let cause = start(Path::new(name));
            not_started(Path::new(name), cause, package)
        }
        cause => not_started(&beside(name), cause, package),
    }
}

fn beside(name: &str) -> PathBuf {
    std::env::current_exe().map_or_else(|_| name.into(), |program| program.with_file_name(name))
}

fn not_started(program: &Path, cause: io::Error, package: &str) -> Error {
    let error = Error::new(FailureCategory::Config, format!("start {}", program.display()));
    error.because(cause).hint(format!("install the package {package}"))
}
