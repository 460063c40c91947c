//! `recent sync`: what other programs read is written now.

use std::io::Write;

use clap::Args;
use recents::projection::{Projected, XbelOutcome};
use recents::writer;
use report::paragraph::counted;

use crate::cli::screen::sayln;
use crate::error::{Error, FailureCategory, Verdict};

/// Write the lists for GTK and KDE programs now.
///
/// This happens automatically within a second after an addition. Changes by other programs are merged, too.
#[derive(Debug, Args)]
pub(super) struct Sync {
    /// Say nothing.
    #[arg(long, short)]
    quiet: bool,
}

impl Sync {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let mut recents = super::recents()?;
        let written = writer::write_for_user(&mut recents).map_err(|error| {
            Error::new(FailureCategory::Config, "write the lists that other programs read")
                .because(error)
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

fn say(done: &Projected, path: &str, count: usize, out: &mut dyn Write) -> Result<(), Error> {
    let documents = counted(count, "document");
    match done.xbel {
        XbelOutcome::Unchanged => sayln!(out, "{path} shows {documents} already.")?,
        XbelOutcome::Written => sayln!(out, "{path} now shows {documents}.")?,
        XbelOutcome::Blocked => {
            sayln!(
                out,
                "{path} is not a regular file and was not changed: {documents} are in unjank's own list."
            )?;
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
        sayln!(out, "It was damaged; the damaged file is kept in {}.", kept.display())?;
    }
    Ok(())
}
