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

use ::session::settings::client::Which;
use ::session::settings::path::Shape;
use clap::{Args, Subcommand};
use store::table::gvariant::Variant;

use crate::cli::{document, screen};
use crate::error::{Error, Verdict};
use session::{Session, Voice};
use write::Locked;

/// Read, change, watch and repair settings.
///
/// Reading needs no bus and no service. The commands that `dconf` has too take the same arguments, print the same and
/// exit as it does: 0 done, 1 not done, 2 wrong usage. Called by the name `dconf` the program is that command.
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
        /// Print the value that a reset would bring back.
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
    /// Set everything that a key file on stdin says, all of it or nothing.
    ///
    /// Example: unjank settings load /org/gnome/terminal/ < terminal.ini
    Load {
        /// Leave out keys that are locked.
        #[arg(short, long)]
        force: bool,
        /// The directory that the groups of the file are in.
        #[arg(value_parser = dir)]
        dir: String,
    },
    /// Print changes as they happen.
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
    /// Print what the service recorded of those who changed settings.
    ///
    /// Example: unjank settings blame
    Blame,
    /// List who changed what, and when.
    ///
    /// Example: unjank settings history --since yesterday --path /org/gnome/
    History(history::History),
    /// Take changes back.
    ///
    /// A key that was changed again since is left as it is. Exits with 1 if any is left.
    ///
    /// Example: unjank settings undo 17 --dry-run
    Undo(undo::Undo),
    /// List the earlier states of databases that the settings service keeps.
    ///
    /// Example: unjank settings snapshots
    Snapshots(snapshots::Snapshots),
    /// Bring a database back to an earlier state.
    ///
    /// Every key that is different now is changed; the history has what it was, so that it can be taken back.
    /// Keys that the administrator locked are left. Exits with 1 if any is left.
    ///
    /// Example: unjank settings restore --latest --dry-run
    Restore(snapshots::Restore),
    /// Look whether databases are whole: the structure, the values, the checksum.
    ///
    /// Exits with 0 if they are, 1 if one is damaged, 2 on an error.
    ///
    /// Example: unjank settings check
    Check(check::Check),
    /// Read what can be read of a damaged database.
    ///
    /// Exits with 0 if the file is whole, 1 if it is damaged, 2 on an error.
    ///
    /// Example: unjank settings salvage ~/.config/dconf/user~0 --print
    Salvage(check::Salvage),
    /// Print how a path can go on, for shells.
    ///
    /// Example: unjank settings complete '' /org/gn
    Complete {
        /// Only names that end so: '' for all, / for directories.
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
        let open = || Session::open(Voice::Unjank);
        match self {
            Command::Read { default, key } => {
                let which = if default { Which::Default } else { Which::InForce };
                read::read(&mut open(), &key, which, out)?;
            }
            Command::Write { key, value } => write::write(&open(), &key, value)?,
            Command::Reset { force, path } => {
                if path.ends_with('/') && !force {
                    return Err(Error::new(
                        crate::error::Kind::User,
                        format!("reset {path}: it is a directory"),
                    )
                    .hint("-f resets everything in it"));
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
            Command::Update { db_dir } => compile::all(&Voice::Unjank, &db_dir)?,
            Command::Blame => watch::blame(&Voice::Unjank, out)?,
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
    checked(Shape::Key, text)
}

fn dir(text: &str) -> Result<String, String> {
    checked(Shape::Dir, text)
}

fn path(text: &str) -> Result<String, String> {
    checked(Shape::Path, text)
}

fn checked(shape: Shape, text: &str) -> Result<String, String> {
    shape.check(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

fn value(text: &str) -> Result<Variant, String> {
    Variant::parse(None, text).map_err(|error| error.to_string())
}
