//! `unjank generate`: man pages and completions, from the definitions of the commands.

mod completions;
mod man;
mod page;

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;

use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// Write man pages or shell completions.
#[derive(Debug, Args)]
pub(crate) struct Generate {
    #[command(subcommand)]
    what: GenerateCommand,
}

#[derive(Debug, Subcommand)]
enum GenerateCommand {
    /// Write a man page for each command and program into a directory.
    ///
    /// Their date is that of SOURCE_DATE_EPOCH (seconds since 1970), else today.
    ///
    /// Example: unjank generate man ~/.local/share/man/man1
    Man {
        /// The directory, which is created if it is missing.
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
    #[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
    pub(crate) fn run(self, mut root: Command) -> Result<Verdict, Error> {
        match self.what {
            GenerateCommand::Man { dir } => {
                std::fs::create_dir_all(&dir).map_err(|error| cannot("make", &dir, error))?;
                let day = page::day(std::env::var("SOURCE_DATE_EPOCH").ok().as_deref());
                man::write_pages(root, man::daemon(), &dir, &day)
                    .map_err(|error| cannot("write man pages into", &dir, error))?;
            }
            GenerateCommand::Completions { shell } => {
                root.build();
                let script = completions::script(shell, &root);
                io::Write::write_all(&mut screen::stdout(), script.as_bytes())?;
            }
        }
        Ok(Verdict::Yes)
    }
}

fn cannot(verb: &str, path: &Path, error: io::Error) -> Error {
    Error::new(FailureCategory::Config, format!("{verb} {}", path.display())).because(error)
}
