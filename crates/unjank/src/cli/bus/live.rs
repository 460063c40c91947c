//! `unjank bus live`: traffic on a terminal as it comes.

use std::path::PathBuf;
use std::sync::Arc;

use capture::filter::Filter;
use capture::introspection::Introspection;
use capture::record::{BusRecorder, RecordOptions};
use clap::Args;
use sys::clock::SystemClock;
use views::{Screen, TrafficBrowser};

use super::buses::{Asks, Buses, told};
use super::input::filter;
use super::record::size;
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// How many bytes wait while the terminal stands still. Little, since memory that is new has to be made while the bus waits,
/// and whoever comes back wants to see what is new.
const ROOM: u64 = 2 << 20;

/// Show traffic live: filter, open, count, pause and save it.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank bus live --filter \"to:org.kde.kded5 or slower-than:5ms\""
)]
pub(super) struct Live {
    /// Show only matching messages; / edits the filter.
    #[arg(short, long, value_name = "EXPRESSION", default_value = "", hide_default_value = true)]
    filter: String,
    #[command(flatten)]
    buses: Buses,
    /// Memory for unprocessed messages; further ones are dropped and counted.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = ROOM, hide_default_value = true)]
    room: u64,
}

impl Live {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let chosen: Filter = filter(&self.filter)
            .map_err(|error| Error::new(FailureCategory::User, "read the filter").because(error))?;
        if !screen::is_addressable() {
            return Err(Error::new(FailureCategory::User, "watch without a terminal")
                .hint("unjank bus tail --json prints messages, unjank bus record keeps them"));
        }
        let sources = self.buses.watch(Asks::First)?;
        let title = Buses::describe(&sources);
        let addresses = sources.iter().map(|source| source.bus.address.clone()).collect();
        let clock = Arc::new(SystemClock::start());
        let options = RecordOptions {
            room: usize::try_from(self.room).unwrap_or(usize::MAX),
            ..RecordOptions::default()
        };
        let recorder = BusRecorder::start_in_child(sources, &options, clock).map_err(told)?;
        let cannot = |error| Error::new(FailureCategory::Config, "use the terminal").because(error);
        let known = Introspection::installed(&data_dirs());
        let mut browser = TrafficBrowser::new(chosen, &self.filter, title, screen::paint())
            .with(recorder, known, addresses);
        Screen::enter(screen::charset())
            .and_then(|screen| screen.show_traffic(&mut browser))
            .map_err(cannot)?;
        Ok(Verdict::Yes)
    }
}

/// Returns the directories in which services install descriptions of their interfaces.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn data_dirs() -> Vec<PathBuf> {
    let dirs = std::env::var_os("XDG_DATA_DIRS").filter(|dirs| !dirs.is_empty());
    let dirs = dirs.unwrap_or_else(|| "/usr/local/share:/usr/share".into());
    std::env::split_paths(&dirs).filter(|path| path.is_absolute()).collect()
}
