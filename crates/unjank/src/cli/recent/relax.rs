//! `recent relax`: programs do not wait for the disk because of their lists of recent files.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use setup::plan::{self, RELAX_VARIABLE as VARIABLE};
use store::publish::publish;

use super::preload;
use crate::cli::screen::sayln;
use crate::error::{Error, FailureCategory, Verdict};

/// Run a program without the syncs of its recent-document lists.
///
/// Example: unjank recent relax -- okular report.pdf
///
/// Syncs of recently-used.xbel, of RecentDocuments and of their locks return at once, because these files can be made
/// again. All other syncs are unchanged, including those of settings such as okularrc. With --session, this applies to all programs from the next login on.
#[derive(Debug, Args)]
pub(super) struct Relax {
    /// Apply to all programs of future sessions: on, off, or status.
    #[arg(long, value_name = "STATE", conflicts_with = "command")]
    session: Option<Session>,
    /// The program and its arguments.
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "session")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Session {
    /// Turn it on from the next login on.
    On,
    /// Turn it off from the next login on.
    Off,
    /// Show whether it is on; the exit status is 1 if it is off.
    Status,
}

impl Relax {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let recents = super::recents()?;
        let places = recents.places();
        // The kernel's own name of the directory, which the library compares with.
        let dir = places.data.canonicalize().unwrap_or_else(|_| places.data.clone());
        let Some(session) = self.session else {
            return Err(preload::run(&self.command, VARIABLE, dir.as_os_str()));
        };
        let file = places.config.join("environment.d").join(plan::RELAX_FILE);
        match session {
            Session::On => {
                let library = crate::cli::preload::library(preload::LIBRARY)?;
                let text = plan::relax_environment(&library, &dir.to_string_lossy());
                let text = text.map_err(|error| {
                    let what = format!("write {}", file.display());
                    Error::new(FailureCategory::Config, what)
                        .because(error)
                        .hint("move it to a path without quotes and dollar signs")
                })?;
                publish(recents.disk(), &file, &text).map_err(|error| {
                    Error::new(FailureCategory::Config, format!("write {}", file.display()))
                        .because(error)
                })?;
                writeln!(out, "Recent files are relaxed from the next login on.")?;
                sayln!(out, "{} names {}.", file.display(), library.display())?;
                Ok(Verdict::Yes)
            }
            Session::Off => {
                match recents.disk().remove(&file) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        let what = format!("remove {}", file.display());
                        return Err(Error::new(FailureCategory::Config, what).because(error));
                    }
                    _ => {}
                }
                writeln!(out, "Recent files are not relaxed from the next login on.")?;
                Ok(Verdict::Yes)
            }
            Session::Status => status(&file, out),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn status(file: &Path, out: &mut dyn Write) -> Result<Verdict, Error> {
    let written = std::fs::read(file).ok();
    let named = written.as_deref().and_then(library_of);
    let is_now = std::env::var_os(VARIABLE).is_some();
    sayln!(out, "Now: {}", if is_now { "on" } else { "off" })?;
    match named {
        Some(library) if library.is_file() => writeln!(out, "From the next login on: on")?,
        Some(library) => {
            sayln!(out, "From the next login on: off, {} is gone", library.display())?;
            writeln!(out, "hint: unjank recent relax --session off")?;
            return Ok(Verdict::No);
        }
        None => writeln!(out, "From the next login on: off")?,
    }
    Ok(if written.is_some() { Verdict::Yes } else { Verdict::No })
}

/// Returns the library that the settings name.
fn library_of(text: &[u8]) -> Option<PathBuf> {
    let value = text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"LD_PRELOAD="))?;
    let end = value.iter().position(|b| *b == b'$').unwrap_or(value.len());
    Some(OsStr::from_bytes(&value[..end]).into())
}
