//! `unjank trace`: from "it is slow" to the call, the file and the code path to blame; a file for each command.

mod ab;
mod check;
mod mark;
mod options;
mod replaced_file;
mod run;
mod show;
mod signals;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::options::{Output, TraceArguments};
pub(super) use self::options::{recorder, sources};

/// Run a command and report which system calls made it wait, and which code made them.
// What else is to be said stands at the end, so that all of it fits a screen.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank trace -o report.html -- kde-open5 ~",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_help_heading = "Other commands",
    after_help = "The summary follows on stderr when the command has ended. Exits as the command does (128 + N if signal N ended it), 2 if it cannot be traced.",
    disable_help_subcommand = true,
    override_usage = "unjank trace [OPTIONS] [--] CMD…\n       unjank trace COMMAND …"
)]
pub(crate) struct Trace {
    #[command(subcommand)]
    other: Option<Command>,
    #[command(flatten)]
    how: TraceArguments,
    #[command(flatten)]
    output: Output,
    /// Record what the command started, too, when it has ended.
    #[arg(long)]
    follow: bool,
    /// The command; after -- if it has the name of a subcommand.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    Attach(run::Attach),
    Watch(watch::Watch),
    Ab(ab::Ab),
    Check(check::Check),
    Compare(show::Compare),
    Show(show::Show),
    Import(show::Import),
    Mark(mark::Mark),
}

impl Trace {
    pub(crate) fn run(self) -> ExitCode {
        let done = match self.other {
            None => {
                let until = run::limit(self.follow);
                return run::run(&self.how, &self.output, self.command, until);
            }
            Some(Command::Attach(command)) => command.run(),
            Some(Command::Watch(command)) => command.run(),
            Some(Command::Ab(command)) => command.run(),
            Some(Command::Check(command)) => command.run(),
            Some(Command::Compare(command)) => command.run(),
            Some(Command::Show(command)) => command.run(),
            Some(Command::Import(command)) => command.run(),
            Some(Command::Mark(command)) => command.run(),
        };
        done.map_or_else(|error| error.report(), ExitCode::from)
    }
}
