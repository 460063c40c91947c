//! The system service that loads programs into the kernel for users who may not: small, because it has rights that they have not.

use std::process::ExitCode;

fn main() -> ExitCode {
    recorder::program::run(std::env::args_os().skip(1).collect())
}
