//! `unjank trace`: from "it is slow" to the call, the file and the code path to blame; a file for each command.

mod ab;
mod check;
mod options;
mod run;
mod show;
mod signals;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use self::options::{How, Output};

/// Run a command and say which system calls made it wait, and whose code made them.
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
    how: How,
    #[command(flatten)]
    output: Output,
    /// The command; after -- if it has the name of one of those above.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Attach(run::Attach),
    Watch(watch::Watch),
    Ab(ab::Ab),
    Check(check::Check),
    Compare(show::Compare),
    Show(show::Show),
    Import(show::Import),
}

impl Trace {
    pub(crate) fn run(self) -> ExitCode {
        let done = match self.other {
            None => return run::run(&self.how, &self.output, self.command),
            Some(Command::Attach(command)) => command.run(),
            Some(Command::Watch(command)) => command.run(),
            Some(Command::Ab(command)) => command.run(),
            Some(Command::Check(command)) => command.run(),
            Some(Command::Compare(command)) => command.run(),
            Some(Command::Show(command)) => command.run(),
            Some(Command::Import(command)) => command.run(),
        };
        done.map_or_else(|error| error.report(), ExitCode::from)
    }
}

/// Reads a time with its unit: `50ms`, `100 us`, `2s`, `1m`, `3h`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split =
        text.find(|letter: char| letter.is_alphabetic() || letter == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "h" => 3600.0,
        "m" | "min" => 60.0,
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return Err("say a number and s, ms or us, for example 100us".to_owned()),
    };
    let seconds: f64 = number.trim().parse().map_err(|_| format!("{number:?} is no number"))?;
    Duration::try_from_secs_f64(seconds * scale).map_err(|_| format!("{text} is no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(time("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(time("0.5 ms"), Ok(Duration::from_micros(500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("0s"), Ok(Duration::ZERO));
        for wrong in ["100", "soon", "-1ms", "1e400s", "NaNs"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
