//! The per-user daemon.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::Parser;
use daemon::{host, listing, program};
use report::text::{Charset, visible_bytes};

/// Serves settings to every program that uses dconf or GSettings, and listings of directories.
///
/// Example: unjankd --names dconf,session --idle-exit 30
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
    // Somebody waits for the first screenful: it does not wait for arguments to be understood.
    if std::env::args_os().skip(1).eq([listing::WORKER]) {
        return listing::work();
    }
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == host::KEEPER) {
        return host::keep(arguments.collect());
    }
    // The message of an error quotes what was typed.
    let shown = || {
        std::env::args_os()
            .map(|word| visible_bytes(word.as_bytes(), Charset::Unicode).into_owned())
    };
    let read = Unjankd::try_parse().unwrap_or_else(|_| Unjankd::parse_from(shown()));
    program::run(&read.arguments)
}
