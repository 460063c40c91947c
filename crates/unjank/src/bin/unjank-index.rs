//! Makes the index of plugins and applications current: small, because logins, packages and programs that ask start it and wait.

use std::process::ExitCode;

fn main() -> ExitCode {
    daemon::index::program::run(std::env::args_os().skip(1).collect())
}
