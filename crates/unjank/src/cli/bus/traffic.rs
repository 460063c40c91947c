//! `unjank bus traffic`: programs that make traffic for benchmarks and tests; not for people.

use std::io::Write;

use clap::{Args, Subcommand};
use probe::bus::traffic::{self, Calls};
use session::clock::SystemClock;

use super::buses::told;
use crate::cli::screen;
use crate::error::{Error, Verdict};

#[derive(Debug, Args)]
pub(super) struct Traffic {
    /// The bus.
    #[arg(long)]
    address: String,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Answer calls until the bus ends.
    Answer,
    /// Call, and print how long all took and then each, in nanoseconds.
    Call { count: u32, window: u32, size: usize },
    /// Send signals.
    Signal { count: u32, size: usize },
}

impl Traffic {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        match self.what {
            What::Answer => traffic::answer(&self.address).map_err(told)?,
            What::Call { count, window, size } => {
                let calls = Calls { count, window, size };
                let clock = SystemClock::start();
                let (all, each) = traffic::call(&self.address, &calls, &clock).map_err(told)?;
                let mut text = format!("{}\n", all.as_nanos());
                each.iter().for_each(|time| text.push_str(&format!("{}\n", time.as_nanos())));
                screen::stdout().write_all(text.as_bytes())?;
            }
            What::Signal { count, size } => {
                traffic::signal(&self.address, count, size).map_err(told)?;
            }
        }
        Ok(Verdict::Yes)
    }
}
