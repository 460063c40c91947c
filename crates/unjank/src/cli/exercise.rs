//! `unjank exercise`: the programs that `bench trace` traces; not for people.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitCode;

use bench::trace::exercise;
use clap::{Args, Subcommand};

use crate::error::{Error, FailureCategory};

#[derive(Debug, Args)]
pub(crate) struct Exercise {
    #[command(subcommand)]
    what: ExerciseCommand,
}

#[derive(Debug, Subcommand)]
enum ExerciseCommand {
    /// Save, look up and compute in three threads.
    Desktop {
        /// An existing directory.
        dir: PathBuf,
    },
    /// Run a command and write when it was started and when it had ended.
    Timed {
        /// A file that does not exist.
        times: PathBuf,
        /// The command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

impl Exercise {
    /// Does the work, and ends as the command did.
    pub(crate) fn run(self) -> ExitCode {
        let failed = |error: io::Error| {
            Error::new(FailureCategory::Config, "run the traced workload").because(error).report()
        };
        match self.what {
            ExerciseCommand::Desktop { dir } => {
                exercise::desktop(&dir).map_or_else(failed, |()| ExitCode::SUCCESS)
            }
            ExerciseCommand::Timed { times, command } => exercise::timed(&times, &command)
                .map_or_else(failed, |status| {
                    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
                    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
                }),
        }
    }
}
