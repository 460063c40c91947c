//! `unjank generate`: man pages and completions, from the definitions of the commands.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;

use crate::cli::screen;
use crate::error::{Error, Kind, Verdict};

/// Write man pages or shell completions.
#[derive(Debug, Args)]
pub(crate) struct Generate {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a man page for each command into a directory.
    ///
    /// Example: unjank generate man ~/.local/share/man/man1
    Man {
        /// The directory; it is made if it is missing.
        dir: PathBuf,
    },
    /// Print completions for a shell.
    ///
    /// Example: unjank generate completions bash > ~/.local/share/bash-completion/completions/unjank
    Completions {
        /// The shell.
        shell: Shell,
    },
}

impl Generate {
    pub(crate) fn run(self, mut root: Command) -> Result<Verdict, Error> {
        match self.what {
            What::Man { dir } => {
                std::fs::create_dir_all(&dir).map_err(|error| cannot("make", &dir, error))?;
                clap_mangen::generate_to(root, &dir)
                    .map_err(|error| cannot("write man pages into", &dir, error))?;
            }
            What::Completions { shell } => {
                root.build();
                let mut root = completed(&root);
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut root, "unjank", &mut script);
                io::Write::write_all(&mut screen::stdout(), &script)?;
            }
        }
        Ok(Verdict::Yes)
    }
}

/// Returns the tree of commands as a person may type it, made anew from one that is built.
///
/// The built tree also has the commands that only our own programs call, and its `help` knows no deeper level of those whose tables are deferred.
fn completed(built: &Command) -> Command {
    let shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    let mut whole = named(built.get_name())
        .args(built.get_arguments().filter(|argument| !argument.is_hide_set()).cloned())
        .subcommands(built.get_subcommands().filter(shown).map(completed));
    if let Some(about) = built.get_about() {
        whole = whole.about(about.clone());
    }
    if let Some(help) = built.find_subcommand("help").filter(|help| !help.is_hide_set()) {
        let about = help.get_about().cloned().unwrap_or_default();
        whole = whole.subcommand(names("help", built).about(about));
    }
    whole
}

/// Returns the commands below `built` without their options: what can follow `help`.
fn names(name: &str, built: &Command) -> Command {
    let shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    let below = built.get_subcommands().filter(shown).map(|command| {
        let about = command.get_about().cloned().unwrap_or_default();
        names(command.get_name(), command).about(about)
    });
    named(name).subcommands(below)
}

/// Starts a command to which nothing is added by itself.
fn named(name: &str) -> Command {
    // clap keeps names that live for ever; this program ends when the script is written.
    Command::new(&*name.to_owned().leak())
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
}

fn cannot(verb: &str, path: &Path, error: io::Error) -> Error {
    Error::new(Kind::Config, format!("{verb} {}", path.display())).because(error)
}
