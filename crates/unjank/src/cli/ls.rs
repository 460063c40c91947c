//! `unjank ls`: what it says and how it ends.

use std::io::Write;
use std::process::ExitCode;

use super::screen::{self, sayln};
use crate::error::{Error, FailureCategory as ErrorKind};
use ls::{Ls, LsError, TroubleLevel};

/// Lists, and returns the exit code of ls: 0, 1 for minor trouble, 2 for serious trouble.
pub(super) fn run(ls: &Ls) -> ExitCode {
    // Nobody is left to be told when stderr is gone.
    let ended = ls.run(|warning| drop(sayln!(screen::stderr(), "unjank: {warning}")));
    match ended {
        Ok(TroubleLevel::None) => ExitCode::SUCCESS,
        Ok(TroubleLevel::Minor) => ExitCode::from(1),
        Ok(TroubleLevel::Serious) => ExitCode::from(2),
        Err(LsError::Output(error)) => Error::from(error).report(),
        Err(error) => Error::new(ErrorKind::User, "list").because(error).report(),
    }
}
