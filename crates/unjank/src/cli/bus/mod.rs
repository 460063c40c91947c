//! `unjank bus`: traffic of D-Bus recorded, converted and understood; a file for each command.

mod buses;
mod convert;
mod diagram;
mod diff;
mod expect;
mod input;
mod live;
mod merge;
mod output;
mod record;
mod stats;
mod tail;
mod traffic;
mod until;
mod why;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub(super) use record::size;

/// Record, analyse and check D-Bus traffic, without slowing down the bus.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank bus record -o session.pcapng --for 10s",
    disable_help_subcommand = true
)]
pub(crate) struct Bus {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    Record(record::Record),
    Live(live::Live),
    Stats(stats::Stats),
    Why(why::Why),
    Diagram(diagram::Diagram),
    Diff(diff::Diff),
    Expect(expect::Expect),
    Tail(tail::Tail),
    Convert(convert::Convert),
    Merge(merge::Merge),
    #[command(hide = true)]
    HandMonitor(buses::HandMonitor),
    #[command(hide = true)]
    Traffic(traffic::Traffic),
}

impl Bus {
    pub(crate) fn run(self) -> ExitCode {
        let done = match self.command {
            Command::Record(command) => command.run(),
            Command::Live(command) => command.run(),
            Command::Stats(command) => command.run(),
            Command::Why(command) => command.run(),
            Command::Diagram(command) => command.run(),
            Command::Diff(command) => command.run(),
            Command::Expect(command) => command.run(),
            Command::Tail(command) => command.run(),
            Command::Convert(command) => command.run(),
            Command::Merge(command) => command.run(),
            Command::HandMonitor(command) => command.run(),
            Command::Traffic(command) => command.run(),
        };
        done.map_or_else(|error| error.report(), ExitCode::from)
    }
}
