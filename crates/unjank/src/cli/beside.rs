//! Programs that packages have beside this one, so that their code is not in it, too.

use std::ffi::OsString;
use std::io;
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

/// Replaces this process by the program `name` of the same directory, or of an absolute directory of the `PATH`, with these arguments.
///
/// Returns why that failed, with the `package` that has the program.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
pub(super) fn run_program(name: &str, package: &str, arguments: &[OsString]) -> Error {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // What lies in the directory that a person happens to be in is not meant.
    let dirs = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
    let places = std::iter::once(beside(name)).chain(dirs.map(|dir| dir.join(name)));
    let Some(program) = places.into_iter().find(|program| program.is_file()) else {
        let error = Error::new(FailureCategory::Config, format!("find the program {name}"));
        return error.hint(format!("install the package {package}"));
    };
    let cause = Command::new(&program).args(arguments).exec();
    Error::new(FailureCategory::Config, format!("start {}", program.display())).because(cause)
}

fn beside(name: &str) -> PathBuf {
    std::env::current_exe().map_or_else(|_| name.into(), |program| program.with_file_name(name))
}

fn not_started(program: &Path, cause: io::Error, package: &str) -> Error {
    let error = Error::new(FailureCategory::Config, format!("start {}", program.display()));
    error.because(cause).hint(format!("install the package {package}"))
}
