//! The client of host commands, `unjank host`, as a small program that runs in every sandbox: under its own name, as `flatpak-spawn`, and as a shim.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    unjank_command::cli::host::program(&arguments)
}
