//! `unjank recent`: recent documents, remembered at once and seen by every desktop.

mod add;
mod forget;
mod list;
mod policy;
mod preload;
mod private;
mod relax;
mod rules;
mod service;
mod sync;
mod volatile;
pub(super) mod writer;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use daemon::recents::places;
use recents::{Recents, Uri};
use sys::clock::SystemClock;

use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// Record, list and forget recent documents.
#[derive(Debug, Args)]
#[command(after_help = "Example: unjank recent list --since yesterday")]
pub(crate) struct Recent {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    Add(add::Add),
    List(list::List),
    Private(private::Private),
    Policy(policy::Policy),
    Forget(forget::Forget),
    Relax(relax::Relax),
    Sync(sync::Sync),
    Volatile(volatile::Volatile),
}

impl Recent {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        let mut out = BufWriter::new(screen::stdout());
        let verdict = match self.command {
            Command::Add(command) => command.run(&mut out)?,
            Command::List(command) => command.run(&mut out)?,
            Command::Private(command) => command.run(&mut out)?,
            Command::Policy(command) => command.run(&mut out)?,
            Command::Forget(command) => command.run(&mut out)?,
            Command::Relax(command) => command.run(&mut out)?,
            Command::Sync(command) => command.run(&mut out)?,
            Command::Volatile(command) => command.run(&mut out)?,
        };
        out.flush()?;
        Ok(verdict)
    }
}

/// Returns this user's recent documents.
fn recents() -> Result<Recents, Error> {
    let surroundings = places::read().map_err(no_home)?;
    let (disk, clock) = (store::disk::real(), Arc::new(SystemClock::start()));
    Ok(Recents::new(surroundings.places, surroundings.program, disk, clock))
}

/// Says whether the lists are in memory.
pub(super) fn is_volatile() -> Result<bool, Error> {
    Ok(recents()?.limits().keeping == recents::policy::Keeping::Volatile)
}

/// Moves the lists to memory; `daemon` is started with every login.
pub(super) fn switch_volatile_on(daemon: &Path) -> Result<(), Error> {
    volatile::on(&mut recents()?, daemon)
}

/// Moves the lists back to the disk.
pub(super) fn switch_volatile_off() -> Result<(), Error> {
    volatile::off(&mut recents()?)
}

fn no_home(error: places::NoHome) -> Error {
    Error::new(FailureCategory::Config, "find the list of recent documents").because(error)
}

/// Takes what a person typed for a document: a URI, or a path from where we are.
fn uri(text: &OsString) -> Result<Uri, Error> {
    let bytes = text.as_bytes();
    let fail = |error| {
        Error::new(FailureCategory::User, format!("name the document {}", text.to_string_lossy()))
            .because(error)
    };
    // A file whose name looks like a URI is the file, if it is there.
    let is_uri = bytes.iter().position(|&b| b == b':').is_some_and(|colon| {
        // Some have one slash, as mtp:/ and trash:/ of KDE do.
        let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let is_rooted = bytes[colon..].starts_with(b":/") && bytes[..colon].iter().all(is_scheme);
        colon > 1 && (is_rooted || bytes.starts_with(b"file:"))
    });
    if is_uri && !Path::new(text).exists() {
        return Uri::parse(bytes).map_err(|error| fail(io::Error::other(error)));
    }
    let path = absolute(Path::new(text)).map_err(fail)?;
    Uri::of_path(&path).map_err(|error| fail(io::Error::other(error)))
}

/// Returns a path from the root; links stay as they were typed.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(if path.is_absolute() { path.to_owned() } else { std::env::current_dir()?.join(path) })
}

/// Returns a document as a person wants to see it: a file below home with `~`, others whole.
fn shown(uri: &Uri, home: &Path) -> String {
    match uri.to_path() {
        Some(path) => shown_path(&path, home),
        None => screen::shown(uri.as_str()).into_owned(),
    }
}

/// Returns a path as a person wants to see it, below home with `~`.
fn shown_path(path: &Path, home: &Path) -> String {
    match path.strip_prefix(home) {
        Ok(rest) => screen::shown(&format!("~/{}", rest.to_string_lossy())).into_owned(),
        Err(_) => screen::shown(&path.to_string_lossy()).into_owned(),
    }
}

/// For how long it is told that a damaged journal is kept.
const TOLD_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Says on stderr that the journal is damaged, or was lately, and where it is kept.
fn tell_damage(recents: &mut Recents) {
    let home = recents.places().home.clone();
    let mut err = screen::stderr();
    if let Some(damage) = recents.damage().filter(|damage| damage.kept.is_none()) {
        let journal = shown_path(&damage.journal, &home);
        // Whoever reads no stderr is told by the daemon's log.
        let _ = writeln!(
            err,
            "unjank: {journal} is damaged: only its readable part is used\n\
             hint: 'unjank recent sync' keeps it aside and takes in the shared list again"
        );
    }
    let since = recents.now().before(TOLD_FOR);
    for kept in recents.kept_journals() {
        let changed = recents.disk().stat(&kept).map_or(0, |stat| stat.ctime_ns / 1000);
        if changed >= i128::from(since.0) {
            let kept = shown_path(&kept, &home);
            let _ =
                writeln!(err, "unjank: a damaged journal of recent documents is kept in {kept}");
        }
    }
}
