//! The command line: one file or folder a command. A new command is a line in [`Command`] and one in [`Command::run`].

mod generate;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::error::{Error, Verdict};

/// Keeps the disk off a Linux desktop's critical path.
#[derive(Debug, Parser)]
#[command(name = "unjank", version, max_term_width = 80, disable_help_subcommand = false)]
#[command(after_help = "Start with: unjank doctor")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Generate(generate::Generate),
}

impl Command {
    fn run(self) -> Result<Verdict, Error> {
        match self {
            Command::Generate(command) => command.run(Cli::command()),
        }
    }
}

/// Runs the command line `arguments`, the first of which is the name that we were called by.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => cli.command.run().map_or_else(|error| error.report(), ExitCode::from),
        Err(error) => {
            // Help goes to stdout with 0, a mistake to stderr with 2; a closed pipe is no error.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { 2 } else { 0 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_sound() {
        Cli::command().debug_assert();
    }
}
