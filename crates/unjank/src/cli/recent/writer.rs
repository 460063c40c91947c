//! `unjank recent-writer`: writes what other programs read, for a program that added a document, and ends.

use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use recents::{Recents, Watcher, writer};
use sys::clock::{Clock, SystemClock};

use crate::error::{Error, FailureCategory, Verdict};

/// How much less than others this counts where processors are short; it is still done within a second.
const NICE: i32 = 10;
/// How often a round is tried again after a failure, such as a lock of KDE that is held.
const ATTEMPTS: u32 = 5;

/// Write what other programs read of recent documents
#[derive(Debug, Args)]
pub(crate) struct RecentWriter {}

impl RecentWriter {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        run()
    }
}

/// Writes until nothing is new.
pub(crate) fn run() -> Result<Verdict, Error> {
    // We outlive whoever started us, and its terminal.
    let _ = rustix::process::setsid();
    let _ = rustix::process::nice(NICE);
    let _ = sys::sched::IoClass::Idle.set(0);
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::new(FailureCategory::Config, "write the lists that other programs read")
            .because(error)
    };
    let mut recents = super::recents()?;
    let clock = SystemClock::start();
    let mut seen = None;
    loop {
        let watcher = Watcher::of(recents.disk(), recents.places(), Duration::ZERO);
        let Some(watcher) = watcher.map_err(|error| failed(error.into()))? else { break };
        while recents.stamp() != seen {
            pause(writer::GATHER);
            seen = recents.stamp();
            let start = clock.monotonic();
            write(&mut recents).map_err(|error| failed(error.into()))?;
            pause(writer::APART.saturating_sub(clock.monotonic() - start + writer::GATHER));
        }
        drop(watcher);
        // Whoever added something before we let go believes that we see it.
        if recents.stamp() == seen {
            break;
        }
    }
    Ok(Verdict::Yes)
}

fn write(recents: &mut Recents) -> Result<(), writer::WriterError> {
    let mut attempt = 1;
    loop {
        match writer::write(recents) {
            Ok(_) => return Ok(()),
            Err(error) if attempt >= ATTEMPTS => return Err(error),
            Err(_) => pause(writer::APART * attempt),
        }
        attempt += 1;
    }
}

/// Lets time pass: there is nothing to wait for but the additions that are to be written together.
fn pause(time: Duration) {
    let (_nobody, silence) = mpsc::channel::<()>();
    let _ = silence.recv_timeout(time);
}
