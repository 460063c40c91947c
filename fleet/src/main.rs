//! `unjank-export`: writes or sends what `unjank hangs` recorded, when a person says so.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
