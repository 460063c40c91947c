//! The `unjank` command: finds what keeps a desktop waiting for the disk, fixes it, and proves it.

mod cli;
mod error;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os().collect())
}
