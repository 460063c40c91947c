//! The `unjank` command: finds what keeps a desktop waiting for the disk, fixes it, and proves it.

use std::process::ExitCode;

fn main() -> ExitCode {
    unjank_command::cli::run(std::env::args_os().collect())
}
