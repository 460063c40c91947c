//! The command in place, where there is no bus to ask.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use host::client::EnvironmentInheritance;
use host::client::order::HostOrder;

use super::{DENIED, MISSING, TROUBLE};
use crate::error::{Error, FailureCategory};

/// Becomes the command; returns the status only if that fails.
pub(super) fn run(order: &HostOrder) -> ExitCode {
    // What is unset is not in its environment, so that no program needs to take it away.
    let mut words = order.wrapped(&[]);
    if let Some(time) = order.timeout {
        let time = format!("{}s", time.as_secs_f64());
        // In a group of its own it would be in the background of the terminal, and could not read there.
        let is_at_terminal = rustix::termios::isatty(rustix::stdio::stdin());
        let place = is_at_terminal.then_some("--foreground");
        let limit = ["timeout", "--kill-after=2"].into_iter().chain(place).chain([&*time]);
        words.splice(0..0, limit.map(|word| word.as_bytes().to_vec()));
    }
    let mut words = words.iter().map(|word| OsStr::from_bytes(word));
    let Some(program) = words.next() else { return ExitCode::from(TROUBLE) };
    let directory = Path::new(OsStr::from_bytes(&order.directory));
    if let Err(error) = std::env::set_current_dir(directory) {
        let what = format!("start in {}", directory.display());
        return failed(&Error::new(FailureCategory::User, what).because(error), TROUBLE);
    }
    // Descriptors that are to go with it have come to us from outside, and stay open.
    let mut command = Command::new(program);
    command.args(words);
    if order.inherits == EnvironmentInheritance::Nothing {
        command.env_clear();
    }
    command.envs(order.environment.iter().map(|(name, value)| (name, value)));
    for name in &order.unset {
        command.env_remove(name);
    }
    let error = command.exec();
    let status = match error.kind() {
        io::ErrorKind::NotFound => MISSING,
        io::ErrorKind::PermissionDenied => DENIED,
        _ => TROUBLE,
    };
    failed(
        &Error::new(FailureCategory::User, format!("run {}", order.name())).because(error),
        status,
    )
}

fn failed(error: &Error, status: u8) -> ExitCode {
    error.report();
    ExitCode::from(status)
}
