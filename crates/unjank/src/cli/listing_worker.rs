//! `unjank listing-worker`: lists a directory for the program that started it, at the other end of standard input.

use std::os::fd::AsFd;

use clap::Args;
use listing::{Connection, serve_until_hung_up};

use crate::error::{Error, FailureCategory, Verdict};

/// The name of the command, for those who start it.
pub(crate) const NAME: &str = "listing-worker";

/// List a directory for another process
#[derive(Debug, Args)]
pub(crate) struct ListingWorker {}

impl ListingWorker {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        run()
    }
}

/// Lists until the other end is gone; whatever still hangs in the kernel then ends with this process.
pub(crate) fn run() -> Result<Verdict, Error> {
    let failed = |error| {
        Error::new(
            FailureCategory::User,
            "serve a listing: standard input is not the socket of a client",
        )
        .because(error)
    };
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    serve_until_hung_up(Connection::new(socket)).map_err(failed)?;
    Ok(Verdict::Yes)
}
