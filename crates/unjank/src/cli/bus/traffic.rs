//! `unjank bus traffic`: programs that make traffic for benchmarks and tests; not for people.

use std::io::Write;

use capture::load_generator::{self, CallPattern};
use clap::{Args, Subcommand};
use sys::clock::SystemClock;

use super::buses::told;
use crate::cli::screen;
use crate::error::{Error, Verdict};

#[derive(Debug, Args)]
pub(super) struct Traffic {
    /// The bus.
    #[arg(long)]
    address: String,
    #[command(subcommand)]
    what: TrafficCommand,
}

#[derive(Debug, Subcommand)]
enum TrafficCommand {
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
            TrafficCommand::Answer => load_generator::answer(&self.address).map_err(told)?,
            TrafficCommand::Call { count, window, size } => {
                let calls = CallPattern { count, window, size };
                let clock = SystemClock::start();
                let (all, each) =
                    load_generator::call(&self.address, &calls, &clock).map_err(told)?;
                let mut text = format!("{}\n", all.as_nanos());
                each.iter().for_each(|time| text.push_str(&format!("{}\n", time.as_nanos())));
                screen::stdout().write_all(text.as_bytes())?;
            }
            TrafficCommand::Signal { count, size } => {
                load_generator::signal(&self.address, count, size).map_err(told)?;
            }
        }
        Ok(Verdict::Yes)
    }
}
