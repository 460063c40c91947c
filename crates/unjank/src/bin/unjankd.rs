//! The per-user daemon.

use std::process::ExitCode;

use clap::Parser;
use unjank::daemon::program;

/// Serves settings to every program that uses dconf or GSettings.
///
/// Example: unjankd --names dconf --idle-exit 30
///
/// Usually D-Bus starts it when a program writes its first setting. It ends by itself when nothing has happened for a
/// while; SIGTERM, SIGINT and SIGHUP end it at once, after everything that it accepted is stored.
#[derive(Debug, Parser)]
#[command(name = "unjankd", version, max_term_width = 80)]
struct Unjankd {
    #[command(flatten)]
    arguments: program::Arguments,
}

fn main() -> ExitCode {
    program::run(&Unjankd::parse().arguments)
}
