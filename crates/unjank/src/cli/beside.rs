//! Programs that packages have beside this one, so that their code is not in it, too.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::error::{Error, FailureCategory};

/// Replaces this process by the program `name` of the same directory, without the first `words` words of this command line.
///
/// Returns if that fails, after the error with the `package` that has the program. For `cfg!(packaged)` alone: after `cargo run`
/// nobody built the program, and this one has its code.
pub(super) fn become_program(name: &str, package: &str, words: usize) -> ExitCode {
    let beside = std::env::current_exe().map(|program| program.with_file_name(name));
    let program = beside.unwrap_or_else(|_| name.into());
    let cause = Command::new(&program).args(std::env::args_os().skip(words)).exec();
    let error = Error::new(FailureCategory::Config, format!("start {}", program.display()));
    error.because(cause).hint(format!("install the package {package}")).report()
}
