//! `pprof -o FILE` and `perfetto -o FILE`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Args;
use hangs::model::Hang;
use report::paragraph::counted;
use unjank_export::viewer::ViewerFileError;

use super::{AS_FAR, Failure, Session, print};

/// Which hangs, and where to.
#[derive(Debug, Args)]
pub(super) struct Profile {
    /// The file; it must not exist.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Only hangs of this program.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
}

impl Profile {
    /// Writes what `render` makes of the hangs.
    pub(super) fn run(
        self,
        session: &Session,
        render: impl FnOnce(&[&Hang]) -> Result<Vec<u8>, ViewerFileError>,
    ) -> Result<(), Failure> {
        let stored = session.stored_records()?;
        let is_meant =
            |hang: &&Hang| self.program.as_ref().is_none_or(|name| hang.program == *name);
        let hangs: Vec<&Hang> = stored.hangs.values().filter(is_meant).collect();
        let bytes = render(&hangs).map_err(|error| {
            let text = format!("cannot write {:?}: {error}", self.output);
            Failure::new(text).hint("write fewer hangs: --program NAME")
        })?;
        let failed = |error: std::io::Error| {
            let text = format!("cannot write {:?}: {}", self.output, report::error::chain(&error));
            let failure = Failure::new(text);
            match error.kind() {
                ErrorKind::AlreadyExists => failure.hint("no file is replaced: name a new one"),
                _ => failure,
            }
        };
        // Paths of this user's files are in it.
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&self.output);
        let mut file = file.map_err(failed)?;
        if let Err(error) = file.write_all(&bytes) {
            // A part of a file is none; the error that brought us here is worth more than another one.
            let _ = session.disk.remove(&self.output);
            return Err(failed(error));
        }
        let limit = if stored.damage().is_some() { AS_FAR } else { "" };
        let written = counted(hangs.len(), "hang");
        print(&format!("{written} written to {}{limit}.", self.output.display()))?;
        Ok(())
    }
}
