//! `unjank daemon`: serves as unjankd does.

use std::process::ExitCode;

use ::daemon::program::Arguments;

/// Serves in this process: where nobody built unjankd, as after `cargo run`, the doctor measures this.
#[cfg(not(without_daemon))]
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    ::daemon::program::run(arguments)
}

/// Becomes the unjankd beside this program, which was built along: with a second daemon in it this program would be a tenth larger.
#[cfg(without_daemon)]
pub(super) fn run(_: &Arguments) -> ExitCode {
    use std::os::unix::process::CommandExt;

    use crate::error::{Error, FailureCategory};

    let beside = std::env::current_exe().map(|program| program.with_file_name("unjankd"));
    let program = beside.unwrap_or_else(|_| "unjankd".into());
    let cause = std::process::Command::new(&program).args(std::env::args_os().skip(2)).exec();
    Error::new(FailureCategory::Config, format!("start {}", program.display()))
        .because(cause)
        .hint("install the package unjank-session, which has unjankd")
        .report()
}
