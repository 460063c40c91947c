//! `recent sync`: what other programs read is written now.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use probe::report::paragraph::counted;
use session::clock::{Clock, SystemClock};
use session::recents::Recents;
use session::recents::projection::{Projected, ProjectionError, XbelOutcome};
use session::recents::writer::{self, WriterError, Written};

use crate::cli::screen::sayln;
use crate::error::{Error, Kind, Verdict};

/// How long others that write are waited for; each attempt waits a while by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// Write the files that GTK's and KDE's programs read, now.
///
/// It happens by itself within a second after something was added; what other programs did is taken in on the way.
#[derive(Debug, Args)]
pub(super) struct Sync {
    /// Say nothing.
    #[arg(long, short)]
    quiet: bool,
}

impl Sync {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let mut recents = super::recents()?;
        let written = write(&mut recents).map_err(|error| {
            Error::new(Kind::Config, "write the lists that other programs read").because(error)
        })?;
        super::tell_damage(&mut recents);
        if !self.quiet {
            let home = recents.places().home.clone();
            let path = super::shown_path(&recents.places().xbel, &home);
            let count = recents.list().map_or(0, |list| list.len());
            say(&written.projected, &path, count, out)?;
        }
        Ok(Verdict::Yes)
    }
}

/// Writes, when those who hold a lock at the moment have let go: a writer of ours, or a program of KDE's.
fn write(recents: &mut Recents) -> Result<Written, WriterError> {
    let clock = SystemClock::start();
    let deadline = clock.monotonic() + PATIENCE;
    loop {
        match writer::write(recents) {
            Err(
                WriterError::NotLocked { .. } | WriterError::NotProjected(ProjectionError::Lock(_)),
            ) if clock.monotonic() < deadline => {}
            done => return done,
        }
    }
}

fn say(done: &Projected, path: &str, count: usize, out: &mut dyn Write) -> Result<(), Error> {
    let documents = counted(count, "document");
    match done.xbel {
        XbelOutcome::Unchanged => sayln!(out, "{path} shows {documents} already.")?,
        XbelOutcome::Written => sayln!(out, "{path} now shows {documents}.")?,
        XbelOutcome::Blocked => {
            sayln!(out, "{path} is no file, and is left alone: {documents} are in our own list.")?;
        }
    }
    for (number, what) in [
        (done.taken_in, "was taken in from other programs"),
        (done.deleted, "was deleted by another program"),
        (done.restored, "was lost by another program and is back"),
    ] {
        if number > 0 {
            let what = if number == 1 {
                what.to_owned()
            } else {
                what.replace("was", "were").replace("and is", "and are")
            };
            sayln!(out, "{} {what}.", counted(number, "document"))?;
        }
    }
    if let Some(kept) = &done.kept_aside {
        sayln!(out, "It was damaged; what it was is kept in {}.", kept.display())?;
    }
    Ok(())
}
