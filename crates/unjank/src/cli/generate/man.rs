//! Manual pages from the definitions of the commands: one for each command and each program, with a date and with what to read next.

use std::io;
use std::path::Path;

use clap::{Args, Command};

use super::page::{Related, write_page, write_tree};

/// What a page refers to besides the commands above and below it: other programs' pages, and those of our file formats.
const RELATED: Related = &[
    ("unjank", &["unjankd(1)", "unjank-index(1)"]),
    ("unjank-settings", &["unjankd(1)", "dconf(1)", "unjank-gvdb(5)", "unjank-journal(5)"]),
    ("unjank-bus", &["unjank-bus-files(5)", "busctl(1)", "dbus-monitor(1)"]),
    ("unjank-bus-expect", &["unjank-bus-rules(5)"]),
    ("unjank-host", &["unjankd(1)", "flatpak-spawn(1)"]),
    ("unjank-recent", &["unjankd(1)", "unjank-recents-files(5)"]),
    ("unjank-ls", &["ls(1)", "unjank-stream(5)"]),
    ("unjank-plugins", &["unjank-index(1)", "unjank-gvdb(5)"]),
    ("unjank-trace", &["strace(1)", "unjank-json(5)"]),
];

/// What the daemon is, for its page.
const DAEMON: &str = "Serves settings to every program that uses dconf or GSettings, recent documents, listings and host commands.\n\n\
    D-Bus starts it when a program calls one of its names. It ends by itself when nothing has happened for a while; \
    SIGTERM, SIGINT and SIGHUP end it at once, after everything that it accepted is stored.";

/// What the small program of the index does, for its page.
const INDEX: &str = "Makes the index of plugins and applications current.\n\n\
    It does what 'unjank plugins index' does and prints nothing; a login, a package or a program that asks starts it. \
    Exits with 0 if the index is current, 2 if it cannot be.";

/// Writes the pages of `root`, of its commands and of the other programs into `dir`.
///
/// # Errors
///
/// A page cannot be written; those before it are there.
pub(super) fn write_pages(
    root: Command,
    daemon: Command,
    dir: &Path,
    date: &str,
) -> io::Result<()> {
    let mut root = root.disable_help_subcommand(true);
    root.build();
    write_tree(&root, None, RELATED, dir, date)?;
    let index = Command::new("unjank-index").version(env!("CARGO_PKG_VERSION"));
    for (program, about, related) in [
        (daemon, DAEMON, ["unjank(1)", "unjank-settings(1)", "dbus-daemon(1)", "systemd.unit(5)"]),
        (index, INDEX, ["unjank(1)", "unjank-plugins(1)", "unjank-apps(1)", "unjank-gvdb(5)"]),
    ] {
        let mut program = program.about(about.split('.').next()).long_about(about);
        program.build();
        write_page(&program, related.map(str::to_owned).to_vec(), dir, date)?;
    }
    Ok(())
}

/// Returns the command of the daemon, which has its own program.
pub(super) fn daemon() -> Command {
    daemon::program::Arguments::augment_args(
        Command::new("unjankd").version(env!("CARGO_PKG_VERSION")),
    )
}
