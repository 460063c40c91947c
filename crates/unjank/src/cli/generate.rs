//! `unjank generate`: man pages and completions, from the definitions of the commands.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use clap_complete::Shell;

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
    pub(crate) fn run(self, mut root: clap::Command) -> Result<Verdict, Error> {
        match self.what {
            What::Man { dir } => {
                std::fs::create_dir_all(&dir).map_err(|error| cannot("make", &dir, error))?;
                clap_mangen::generate_to(root, &dir)
                    .map_err(|error| cannot("write man pages into", &dir, error))?;
            }
            What::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut root, "unjank", &mut script);
                io::Write::write_all(&mut io::stdout().lock(), &script)?;
            }
        }
        Ok(Verdict::Yes)
    }
}

fn cannot(verb: &str, path: &Path, error: io::Error) -> Error {
    Error::new(Kind::Config, format!("{verb} {}", path.display())).because(error)
}
