//! `unjank bus tail`: traffic as it comes, a line for each message.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use capture::lines;
use capture::record::{BusRecorder, NextRecord, ROOM, RecordOptions};
use clap::Args;
use sys::clock::SystemClock;
use tokio::sync::oneshot;

use super::buses::{Asks, Buses, told};
use super::record::size;
use super::until::{First, StopCondition};
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// How long a line may wait for others.
const LINGER: Duration = Duration::from_millis(10);
/// How long the last lines may take to be written.
const PATIENCE: Duration = Duration::from_secs(1);
/// Practically without a limit.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// Print messages as they arrive, one on each line, until Ctrl-C.
///
/// If the output is read too slowly, messages are dropped and their number is printed; the bus never waits.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bus tail --json | jq .member")]
pub(super) struct Tail {
    #[command(flatten)]
    buses: Buses,
    /// Stop after this time, for example 10s.
    #[arg(long = "for", value_name = "TIME", value_parser = ::report::duration::parse)]
    time: Option<Duration>,
    /// Print a JSON object for each message and each new or closed connection (fields: docs/bus-files.md).
    #[arg(long)]
    json: bool,
    /// Include the bytes of each message in its JSON, so that it can be converted.
    #[arg(long, requires = "json")]
    bytes: bool,
    /// Memory for unprinted messages; further ones are dropped and counted.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = u64::try_from(ROOM).unwrap_or(0), hide_default_value = true)]
    room: u64,
}

impl Tail {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let sources = self.buses.watch(Asks::First)?;
        let room = usize::try_from(self.room).unwrap_or(usize::MAX);
        let options = RecordOptions { room, linger: LINGER };
        let clock = Arc::new(SystemClock::start());
        // It forks, so it comes before everything that needs threads or catches signals.
        let recorder = BusRecorder::start_in_child(sources, &options, clock).map_err(told)?;
        let recorder = Arc::new(recorder);
        let mut until = StopCondition::listen()?;
        let (sender, mut done) = oneshot::channel();
        let time = self.time;
        let taken = Arc::clone(&recorder);
        sys::thread::spawn("bus-lines", move || {
            let result = self.print(&taken);
            taken.stop();
            // Nobody waits for it any more if this fails.
            let _ = sender.send(result);
        })
        .map_err(|error| Error::new(FailureCategory::Config, "start monitoring").because(error))?;
        match until.wait(&mut done, time, None, || ()) {
            First::Done(result) => result.unwrap_or(Ok(()))?,
            First::Asked => {
                recorder.stop();
                // What nobody has read by then is not worth waiting for.
                until.finish(done, PATIENCE).unwrap_or(Ok(()))?;
            }
        }
        Ok(Verdict::Yes)
    }

    fn print(&self, recorder: &BusRecorder) -> io::Result<()> {
        let bytes = if self.bytes { lines::Bytes::Included } else { lines::Bytes::LeftOut };
        let mut out = Vec::new();
        loop {
            match recorder.next(FOR_EVER) {
                NextRecord::Batch(batch) => {
                    for event in batch.events() {
                        if self.json {
                            lines::write(&mut out, &event, bytes);
                        } else if let Some(line) = lines::text(&event) {
                            out.extend(line.bytes());
                            out.push(b'\n');
                        }
                    }
                }
                NextRecord::Quiet => {}
                NextRecord::Over => return Ok(()),
            }
            let mut stdout = if self.json { screen::json() } else { screen::stdout() };
            stdout.write_all(&out)?;
            stdout.flush()?;
            out.clear();
        }
    }
}
