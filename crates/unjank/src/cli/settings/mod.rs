//! `unjank settings`: everything about settings, a file for each kind of command.

mod check;
mod compile;
mod current;
pub(crate) mod dconf;
pub(crate) mod environment;
mod history;
mod read;
mod session;
mod snapshots;
mod undo;
mod watch;
mod write;

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use gvdb::gvariant::Variant;
use settings::client::ValueChoice;
use settings::path::PathKind;

use crate::cli::{document, screen};
use crate::error::{Error, Verdict};
use session::{MessageStyle, Session};
use write::Locked;

/// Read, change, watch and repair settings.
///
/// Reading needs no bus and no service. The commands that `dconf` has, too, take the same arguments, print the same
/// and have the same exit status: 0 for success, 1 for failure, 2 for wrong usage. Under the name `dconf`, the program behaves like that command.
#[derive(Debug, Args)]
#[command(after_help = "Example: unjank settings list /org/gnome/")]
pub(crate) struct Settings {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    /// Print the value of a key.
    ///
    /// Example: unjank settings read /org/gnome/desktop/interface/font-name
    Read {
        /// Print the value that a reset would restore.
        #[arg(short = 'd', long)]
        default: bool,
        /// A key, such as /org/gnome/desktop/interface/font-name.
        #[arg(value_parser = key)]
        key: String,
    },
    /// Set a key.
    ///
    /// Example: unjank settings write /org/gnome/desktop/interface/font-name "'Sans 11'"
    Write {
        /// A key.
        #[arg(value_parser = key)]
        key: String,
        /// The value as GVariant text: 7, true, "'text'", "['a', 'b']".
        #[arg(value_parser = value, allow_hyphen_values = true)]
        value: Variant,
    },
    /// Reset a key or, with -f, a directory.
    ///
    /// Example: unjank settings reset -f /org/example/
    Reset {
        /// Reset everything in a directory.
        #[arg(short, long)]
        force: bool,
        /// A key, or a directory that ends in a slash.
        #[arg(value_parser = path)]
        path: String,
    },
    /// List the keys and directories in a directory.
    ///
    /// Example: unjank settings list /org/gnome/desktop/
    List {
        /// A directory; it ends in a slash.
        #[arg(value_parser = dir)]
        dir: String,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// List the keys below a directory that the administrator locked.
    ///
    /// Example: unjank settings list-locks /
    ListLocks {
        /// A directory.
        #[arg(value_parser = dir)]
        dir: String,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Print everything below a directory as a key file.
    ///
    /// Example: unjank settings dump /org/gnome/terminal/ > terminal.ini
    Dump {
        /// A directory.
        #[arg(value_parser = dir)]
        dir: String,
    },
    /// Set all keys of a key file on stdin, or none on an error.
    ///
    /// Example: unjank settings load /org/gnome/terminal/ < terminal.ini
    Load {
        /// Skip locked keys.
        #[arg(short, long)]
        force: bool,
        /// The directory to which the groups of the file are relative.
        #[arg(value_parser = dir)]
        dir: String,
    },
    /// Print changes when they occur.
    ///
    /// Example: unjank settings watch /
    Watch {
        /// A key or a directory.
        #[arg(value_parser = path)]
        path: String,
    },
    /// Compile a directory of key files into a database.
    ///
    /// Example: unjank settings compile site site.d
    Compile {
        /// The database to write.
        output: PathBuf,
        /// The directory of key files.
        keyfile_dir: PathBuf,
    },
    /// Compile the administrator's databases: every X.d in a directory into X.
    ///
    /// Example: unjank settings update
    Update {
        /// The directory of databases.
        #[arg(default_value = compile::SYSTEM_DATABASES)]
        db_dir: PathBuf,
    },
    /// Print the service's record of callers that changed settings.
    ///
    /// Example: unjank settings blame
    Blame,
    /// List changes of settings: time, program, old and new value.
    ///
    /// Example: unjank settings history --since yesterday --path /org/gnome/
    History(history::History),
    /// Undo changes.
    ///
    /// A key that was changed again since is skipped. Exits with 1 if any was skipped.
    ///
    /// Example: unjank settings undo 17 --dry-run
    Undo(undo::Undo),
    /// List the snapshots of databases that the settings service keeps.
    ///
    /// Example: unjank settings snapshots
    Snapshots(snapshots::Snapshots),
    /// Reset a database to a snapshot.
    ///
    /// Every key that differs is changed; the history records this, so that it can be undone. Keys that the
    /// administrator locked are skipped. Exits with 1 if any was skipped.
    ///
    /// Example: unjank settings restore --latest --dry-run
    Restore(snapshots::Restore),
    /// Check databases for damage: structure, values and checksum.
    ///
    /// Exits with 0 if they are intact, 1 if one is damaged, 2 on an error.
    ///
    /// Example: unjank settings check
    Check(check::Check),
    /// Recover the readable keys of a damaged database.
    ///
    /// Exits with 0 if the file is intact, 1 if it is damaged, 2 on an error.
    ///
    /// Example: unjank settings salvage ~/.config/dconf/user~0 --print
    Salvage(check::Salvage),
    /// Print completions of a path, for shells.
    ///
    /// Example: unjank settings complete '' /org/gn
    Complete {
        /// Print only names with this suffix: '' for all, / for directories.
        suffix: String,
        /// The beginning of a path.
        path: String,
    },
}

impl Settings {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        let mut out = BufWriter::new(self.command.output());
        let verdict = self.command.run(&mut out)?;
        out.flush()?;
        Ok(verdict)
    }
}

impl Command {
    /// Returns where the command writes to: what scripts read comes as it is, as from `dconf`.
    fn output(&self) -> screen::Output {
        match self {
            Command::Read { .. }
            | Command::List { .. }
            | Command::ListLocks { .. }
            | Command::Dump { .. }
            | Command::Watch { .. }
            | Command::Salvage(_)
            | Command::Complete { .. } => screen::data(),
            _ => screen::stdout(),
        }
    }

    fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let open = || Session::open(MessageStyle::Unjank);
        match self {
            Command::Read { default, key } => {
                let which = if default { ValueChoice::Default } else { ValueChoice::InForce };
                read::read(&mut open(), &key, which, out)?;
            }
            Command::Write { key, value } => write::write(&open(), &key, value)?,
            Command::Reset { force, path } => {
                if path.ends_with('/') && !force {
                    return Err(Error::new(
                        crate::error::FailureCategory::User,
                        format!("reset {path}: it is a directory"),
                    )
                    .hint("reset everything in it with -f"));
                }
                write::reset(&open(), &path)?;
            }
            Command::List { dir, json } => {
                show(&read::list(&mut open(), &dir), "unjank.settings.list/1", json, out)?
            }
            Command::ListLocks { dir, json } => {
                let schema = "unjank.settings.list-locks/1";
                show(&read::list_locks(&mut open(), &dir), schema, json, out)?;
            }
            Command::Dump { dir } => read::dump(&mut open(), &dir, out)?,
            Command::Load { force, dir } => {
                let locked = if force { Locked::Skip } else { Locked::Refuse };
                write::load(open, &dir, locked)?;
            }
            Command::Watch { path } => watch::watch(&mut open(), &path, out)?,
            Command::Compile { output, keyfile_dir } => compile::one(&output, &keyfile_dir)?,
            Command::Update { db_dir } => compile::all(&MessageStyle::Unjank, &db_dir)?,
            Command::Blame => watch::blame(&MessageStyle::Unjank, out)?,
            Command::History(command) => return command.run(out),
            Command::Undo(command) => return command.run(out),
            Command::Snapshots(command) => return command.run(out),
            Command::Restore(command) => return command.run(out),
            Command::Check(command) => return command.run(out),
            Command::Salvage(command) => return command.run(out),
            Command::Complete { suffix, path } => read::complete(open, &suffix, &path, out)?,
        }
        Ok(Verdict::Yes)
    }
}

/// What `--json` prints of names.
#[derive(serde::Serialize)]
struct Names<'a> {
    schema: &'static str,
    names: &'a std::collections::BTreeSet<String>,
}

fn show(
    names: &std::collections::BTreeSet<String>,
    schema: &'static str,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Error> {
    if json { print_json(&Names { schema, names }, out) } else { read::lines(names, out) }
}

/// Prints one JSON document behind what was written to `out`.
fn print_json(document: &impl serde::Serialize, out: &mut dyn Write) -> Result<(), Error> {
    out.flush()?;
    document::print_whole(document)
}

fn key(text: &str) -> Result<String, String> {
    checked(PathKind::Key, text)
}

fn dir(text: &str) -> Result<String, String> {
    checked(PathKind::Dir, text)
}

fn path(text: &str) -> Result<String, String> {
    checked(PathKind::Path, text)
}

fn checked(shape: PathKind, text: &str) -> Result<String, String> {
    shape.check(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

fn value(text: &str) -> Result<Variant, String> {
    Variant::parse(None, text).map_err(|error| error.to_string())
}
