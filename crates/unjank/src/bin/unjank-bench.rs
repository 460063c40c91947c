//! `unjank bench` as a program of its own: our parts beside the programs that would run instead.

use std::process::ExitCode;

fn main() -> ExitCode {
    unjank_command::cli::run_bench(std::env::args_os().collect())
}
