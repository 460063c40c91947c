//! `generate`: manual pages and completions for packages, from the definitions of the commands.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;

use super::Failure;

/// How a page is made of a command's definition: as those of `unjank` are.
#[path = "../../../crates/unjank/src/cli/generate/page.rs"]
mod page;

/// What pages refer to besides the commands above and below them.
const RELATED: page::Related = &[
    ("unjank-export", &["unjank-hangs(1)", "systemd-escape(1)", "systemd.timer(5)"]),
    ("unjank-export-parquet", &["unjank-hangs(1)"]),
    ("unjank-export-otlp", &["unjank-hangs(1)"]),
    ("unjank-export-openmetrics", &["unjank-hangs(1)"]),
    ("unjank-export-pprof", &["unjank-hangs(1)"]),
    ("unjank-export-perfetto", &["unjank-hangs(1)"]),
];

/// Write manual pages or shell completions
#[derive(Debug, Args)]
pub(super) struct Generate {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a manual page for each command into a directory; their date is that of SOURCE_DATE_EPOCH, else today.
    Man {
        /// The directory, which is made if it is missing.
        dir: PathBuf,
    },
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

impl Generate {
    #[expect(clippy::disallowed_methods, reason = "this program reads its environment here, too")]
    pub(super) fn run(self, root: Command) -> Result<(), Failure> {
        match self.what {
            What::Man { dir } => {
                let cannot = |error: io::Error| {
                    let cause = report::error::chain(&error);
                    Failure::new(format!("cannot write manual pages into {dir:?}: {cause}"))
                };
                std::fs::create_dir_all(&dir).map_err(cannot)?;
                let date = page::day(std::env::var("SOURCE_DATE_EPOCH").ok().as_deref());
                let mut root = root.disable_help_subcommand(true);
                root.build();
                page::write_tree(&root, None, RELATED, &dir, &date).map_err(cannot)
            }
            What::Completions { shell } => print_completions(shell, &root),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the program prints")]
fn print_completions(shell: Shell, root: &Command) -> Result<(), Failure> {
    // What only packages call is not completed.
    let commands = root.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut shown = Command::new("unjank-export").args(root.get_arguments().cloned());
    shown = shown.version(env!("CARGO_PKG_VERSION")).subcommands(commands);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown, "unjank-export", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Bash {
        // The generator takes the hyphen of a program's name for a boundary between commands in one half of its script.
        script = script.replace("unjank__subcmd__export", "unjank__export");
    }
    Ok(io::stdout().write_all(script.as_bytes())?)
}
