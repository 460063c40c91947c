//! The command line: one file or folder a command. A new command is a line in `Command` and one in `Command::run`.

mod apps;
mod bench;
mod beside;
mod bus;
mod catalogue;
mod doctor;
mod document;
#[cfg(test)]
mod documented;
mod exercise;
mod generate;
mod hangs;
pub mod host;
mod interrupt;
mod jobs;
mod listing_worker;
mod ls;
mod moment;
mod new_file;
mod plugins;
mod preload;
mod progress;
mod recent;
mod refusal;
mod run;
pub(crate) mod screen;
mod service_files;
pub(crate) mod settings;
mod setup;
mod slowdisk;
mod trace;

use report::quoting::quoted;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use ::daemon::{host as served, program};

use self::bench::BenchCli;
use self::refusal::refuse;

/// Keeps the disk off a Linux desktop's critical path.
#[derive(Debug, Parser)]
#[command(name = "unjank", version, max_term_width = 80, disable_help_subcommand = false)]
#[command(after_help = "Start with: unjank doctor")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// Only the command that is called makes its table of options: all of them together take longer than most commands.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    Doctor(doctor::Doctor),
    Setup(setup::Setup),
    Undo(setup::Undo),
    // Boxed: it has many options.
    Trace(Box<trace::Trace>),
    Hangs(Box<hangs::Hangs>),
    Bus(Box<bus::Bus>),
    Run(run::Run),
    Jobs(jobs::Jobs),
    Slowdisk(slowdisk::Slowdisk),
    Settings(settings::Settings),
    Recent(recent::Recent),
    Ls(::ls::Ls),
    Plugins(plugins::Plugins),
    Apps(apps::Apps),
    // Boxed: it has many options.
    Host(Box<host::Host>),
    Bench(bench::Bench),
    Generate(generate::Generate),
    /// Serve as unjankd does
    #[command(hide = true)]
    Daemon(program::Arguments),
    #[command(hide = true)]
    ListingWorker(listing_worker::ListingWorker),
    #[command(hide = true)]
    RecentWriter(recent::writer::RecentWriter),
    /// Be a program that a benchmark traces
    #[cfg(not(packaged))]
    #[command(hide = true)]
    Exercise(exercise::Exercise),
}

impl Command {
    fn run(self) -> ExitCode {
        let done = match self {
            Command::Apps(command) => command.run(),
            Command::Plugins(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Setup(command) => command.run(),
            Command::Undo(command) => command.run(),
            Command::Bench(command) => {
                if cfg!(packaged) {
                    return beside::become_program(bench::PROGRAM, bench::PROGRAM, 1);
                }
                return BenchCli::Bench(command).run();
            }
            Command::Bus(command) => return command.run(),
            Command::Generate(command) => command.run(Cli::command()),
            Command::Hangs(command) => command.run(),
            Command::Host(command) => return command.run(),
            Command::Jobs(command) => command.run(),
            Command::Ls(command) => return ls::run(&command),
            Command::Recent(command) => command.run(),
            Command::Run(command) => return command.run(),
            Command::Settings(command) => command.run(),
            Command::Slowdisk(command) => command.run(),
            Command::Trace(command) => return command.run(),
            #[cfg(not(packaged))]
            Command::Exercise(command) => return command.run(),
            Command::Daemon(arguments) => {
                if cfg!(packaged) {
                    return beside::become_program("unjankd", "unjank-session", 2);
                }
                return program::run(&arguments);
            }
            Command::ListingWorker(command) => command.run(),
            Command::RecentWriter(command) => command.run(),
        };
        done.map_or_else(|error| error.report(), ExitCode::from)
    }
}

/// Runs the command line `arguments`, the first of which is the name that we were called by.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    if arguments.first().is_some_and(|name| settings::dconf::is_name(name)) {
        return settings::dconf::run(&arguments);
    }
    // Somebody waits for the first screenful: it does not wait for the tree of commands.
    if arguments.len() == 2 && arguments[1] == listing_worker::NAME {
        return listing_worker::run().map_or_else(|error| error.report(), ExitCode::from);
    }
    if arguments.get(1).is_some_and(|first| first == served::KEEPER) {
        return served::keep(arguments.into_iter().skip(2).collect());
    }
    if arguments.first().is_some_and(|name| host::is_spawn(name)) {
        return host::run_spawn(&arguments);
    }
    if let Some(code) = host::run_shim(&arguments) {
        return code;
    }
    // Most listings are of a few names, and take less time than the table of options.
    if arguments.get(1).is_some_and(|first| first == "ls")
        && let Some(ls) = ::ls::Ls::plain(&arguments[2..])
    {
        return ls::run(&ls);
    }
    if arguments.get(1).is_some_and(|first| first == "host")
        && let Some(code) = host::run_alone(&arguments[2..])
    {
        return code;
    }
    // Help lists what commands do, so their tables are needed then.
    let read = Cli::try_parse_from(&arguments).or_else(|_| {
        let mut whole = Cli::command();
        whole.build();
        whole.try_get_matches_from(&arguments).and_then(|found| Cli::from_arg_matches(&found))
    });
    match read {
        Ok(cli) => cli.command.run(),
        Err(error) => refuse(Cli::command(), &arguments, error),
    }
}

/// Runs the command line `arguments` of unjank-bench, the commands `bench` and `exercise` of `unjank`.
pub fn run_bench(arguments: Vec<OsString>) -> ExitCode {
    match BenchCli::try_parse_from(&arguments) {
        Ok(cli) => cli.run(),
        Err(error) => refuse(BenchCli::command(), &arguments, error),
    }
}

/// Returns the command line as it was typed, with the program's plain name, for the record beside figures.
fn command_line() -> String {
    let arguments = std::env::args_os().skip(1);
    std::iter::once("unjank".to_owned())
        .chain(arguments.map(|argument| quoted(&argument.to_string_lossy())))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_sound() {
        Cli::command().debug_assert();
    }
}
