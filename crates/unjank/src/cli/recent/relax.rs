//! `recent relax`: programs do not wait for the disk because of their lists of recent files.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use store::publish::publish;

use super::preload;
use crate::cli::screen::sayln;
use crate::error::{Error, Kind, Verdict};

/// Tells the library in which directory the lists are that need no sync.
const VARIABLE: &str = "UNJANK_RELAX_DIR";

/// Run a program that does not wait for the disk because of recent files.
///
/// Example: unjank recent relax -- okular report.pdf
///
/// Syncs of recently-used.xbel, of RecentDocuments and of their locks return at once: all of them can be made again.
/// Every other sync is as it was, also of settings such as okularrc and of their locks. With --session this holds for all programs from the next login on.
#[derive(Debug, Args)]
pub(super) struct Relax {
    /// For all programs of coming sessions: on, off, or status.
    #[arg(long, value_name = "STATE", conflicts_with = "command")]
    session: Option<Session>,
    /// The program and its arguments.
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "session")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Session {
    /// From the next login on.
    On,
    /// No more from the next login on.
    Off,
    /// Say whether it is on; the exit status is 1 if it is off.
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
        let file = places.config.join("environment.d/60-unjank-relax.conf");
        match session {
            Session::On => {
                let library = crate::cli::preload::library(preload::LIBRARY)?;
                let text = settings(&library, &dir)?;
                publish(recents.disk(), &file, &text).map_err(|error| {
                    Error::new(Kind::Config, format!("write {}", file.display())).because(error)
                })?;
                writeln!(out, "Recent files are relaxed from the next login on.")?;
                sayln!(out, "{} names {}.", file.display(), library.display())?;
                Ok(Verdict::Yes)
            }
            Session::Off => {
                match recents.disk().remove(&file) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        let what = format!("remove {}", file.display());
                        return Err(Error::new(Kind::Config, what).because(error));
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

/// Returns the text of `environment.d(5)`.
fn settings(library: &Path, dir: &Path) -> Result<Vec<u8>, Error> {
    let quoted = |path: &Path| -> Result<Vec<u8>, Error> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.iter().any(|b| b"\"'\\$`\n".contains(b)) || std::str::from_utf8(bytes).is_err() {
            let what = format!("write {} into environment.d", path.display());
            return Err(
                Error::new(Kind::Config, what).hint("its path must have no quote or dollar")
            );
        }
        Ok(bytes.to_vec())
    };
    let mut text =
        b"# Written by `unjank recent relax --session on`; with `off` it is removed.\n".to_vec();
    text.extend(format!("{}=", preload::VARIABLE).bytes());
    text.extend(quoted(library)?);
    text.extend(b"${LD_PRELOAD:+:$LD_PRELOAD}\n");
    text.extend(format!("{VARIABLE}=\"").bytes());
    text.extend(quoted(dir)?);
    text.extend(b"\"\n");
    Ok(text)
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
