//! `unjank bus live`: traffic on a terminal as it comes.

mod browser;
mod draw;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use probe::bus::filter::Filter;
use probe::bus::introspection::Introspection;
use probe::bus::record::{Options, Recorder};
use session::clock::SystemClock;

use self::browser::Browser;
use super::buses::{Asks, Buses, told};
use super::input::filter;
use super::record::size;
use crate::cli::screen;
use crate::cli::terminal::Screen;
use crate::error::{Error, Kind, Verdict};

/// How many bytes wait while the terminal stands still. Little, since memory that is new has to be made while the bus waits,
/// and whoever comes back wants to see what is new.
const ROOM: u64 = 2 << 20;

/// Watch traffic as it comes: filter, open, count, pause and save it.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank bus live --filter \"to:org.kde.kded5 or slower-than:5ms\""
)]
pub(super) struct Live {
    /// Only messages that this chooses, at first; / changes it.
    #[arg(short, long, value_name = "EXPRESSION", default_value = "", hide_default_value = true)]
    filter: String,
    #[command(flatten)]
    buses: Buses,
    /// Memory for what is not taken in yet; what has no room is dropped and counted.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = ROOM, hide_default_value = true)]
    room: u64,
}

impl Live {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let chosen: Filter = filter(&self.filter)
            .map_err(|error| Error::new(Kind::User, "read the filter").because(error))?;
        if !screen::is_addressable() {
            return Err(Error::new(Kind::User, "watch without a terminal")
                .hint("unjank bus tail --json prints messages, unjank bus record keeps them"));
        }
        let sources = self.buses.watch(Asks::First)?;
        let title = Buses::describe(&sources);
        let addresses = sources.iter().map(|source| source.bus.address.clone()).collect();
        let clock = Arc::new(SystemClock::start());
        let options = Options {
            room: usize::try_from(self.room).unwrap_or(usize::MAX),
            ..Options::default()
        };
        let recorder = Recorder::start_in_child(sources, &options, clock).map_err(told)?;
        let cannot = |error| Error::new(Kind::Config, "use the terminal").because(error);
        let known = Introspection::installed(&data_dirs());
        let mut browser = Browser::new(chosen, &self.filter, title, screen::paint())
            .with(recorder, known, addresses);
        Screen::enter().and_then(|screen| screen.show(&mut browser)).map_err(cannot)?;
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
