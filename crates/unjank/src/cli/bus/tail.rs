//! `unjank bus tail`: traffic as it comes, a line for each message.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use probe::bus::lines;
use probe::bus::record::{Next, Options, ROOM, Recorder};
use session::clock::SystemClock;
use tokio::sync::oneshot;

use super::buses::{Asks, Buses, told};
use super::record::size;
use super::until::{First, Until};
use crate::cli::moment::duration;
use crate::cli::screen;
use crate::error::{Error, Kind, Verdict};

/// How long a line may wait for others.
const LINGER: Duration = Duration::from_millis(10);
/// How long the last lines may take to be written.
const PATIENCE: Duration = Duration::from_secs(1);
/// Without end, as far as anybody can tell.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// Print messages as they come, a line each, until Ctrl-C.
///
/// A reader that is too slow misses messages, and is told how many; the bus never waits for it.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bus tail --json | jq .member")]
pub(super) struct Tail {
    #[command(flatten)]
    buses: Buses,
    /// End after this time, for example 10s.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Print a line of JSON for each, also for connections that come and go (docs/bus-files.md has the fields).
    #[arg(long)]
    json: bool,
    /// Put the bytes of each message into its JSON, so that it can be converted.
    #[arg(long, requires = "json")]
    bytes: bool,
    /// Memory for what is not printed yet; what has no room is dropped and counted.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = u64::try_from(ROOM).unwrap_or(0), hide_default_value = true)]
    room: u64,
}

impl Tail {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let sources = self.buses.watch(Asks::First)?;
        let room = usize::try_from(self.room).unwrap_or(usize::MAX);
        let options = Options { room, linger: LINGER };
        let clock = Arc::new(SystemClock::start());
        // It forks, so it comes before everything that needs threads or catches signals.
        let recorder = Recorder::start_in_child(sources, &options, clock).map_err(told)?;
        let recorder = Arc::new(recorder);
        let mut until = Until::listen()?;
        let (sender, mut done) = oneshot::channel();
        let time = self.time;
        let taken = Arc::clone(&recorder);
        sys::thread::spawn("bus-lines", move || {
            let result = self.print(&taken);
            taken.stop();
            // Nobody waits for it any more if this fails.
            let _ = sender.send(result);
        })
        .map_err(|error| Error::new(Kind::Config, "begin to watch").because(error))?;
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

    fn print(&self, recorder: &Recorder) -> io::Result<()> {
        let bytes = if self.bytes { lines::Bytes::Included } else { lines::Bytes::LeftOut };
        let mut out = Vec::new();
        loop {
            match recorder.next(FOR_EVER) {
                Next::Batch(batch) => {
                    for event in batch.events() {
                        if self.json {
                            lines::write(&mut out, &event, bytes);
                        } else if let Some(line) = lines::text(&event) {
                            out.extend(line.bytes());
                            out.push(b'\n');
                        }
                    }
                }
                Next::Quiet => {}
                Next::Over => return Ok(()),
            }
            let mut stdout = if self.json { screen::json() } else { screen::stdout() };
            stdout.write_all(&out)?;
            stdout.flush()?;
            out.clear();
        }
    }
}
