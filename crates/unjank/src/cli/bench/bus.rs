//! `unjank bench bus`: what calls lose while their bus is recorded, beside other programs that record.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use probe::bench::bus::{self, FIGURES, Lab, Peer};
use probe::bench::lab::Effort;
use probe::bench::page;
use probe::bench::run::{Setting, versioned};
use probe::report::provenance::Provenance;
use session::clock::{Clock, SystemClock};
use sys::mounts::Mounts;

use super::super::{interrupt, screen, write_page};
use super::{judged, place, print};
use crate::error::{Error, Kind, Verdict};

/// Measure recording a bus, on a private bus with calls of our own.
///
/// Each round measures calls without anybody watching, with us, and with each peer, in turn.
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank bench bus --peer 'dbus-monitor --pcap' --peer 'busctl capture'"
)]
pub(super) struct Bus {
    /// A program to compare with, which writes a record to its output; {address} is the bus. Repeat for more.
    #[arg(long, value_name = "COMMAND", value_parser = Peer::parse)]
    peer: Vec<Peer>,
    /// Where records are written, in a directory of their own; by default the temporary directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure only these figures, separated by commas.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', value_parser = figures(), hide_possible_values = true)]
    only: Vec<String>,
    /// Make few rounds: to see that it works, not for figures to be shown.
    #[arg(long)]
    quick: bool,
    /// List the figures.
    #[arg(long)]
    list: bool,
    /// Also write a page with pictures into this file; it must not exist.
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Print one JSON document (docs/benchmarks.md has its fields).
    #[arg(long)]
    json: bool,
}

fn figures() -> clap::builder::PossibleValuesParser {
    FIGURES.iter().map(|figure| figure.id).collect::<Vec<_>>().into()
}

impl Bus {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return super::list(FIGURES.iter().map(|figure| (figure.id, figure.about)));
        }
        let mounts = Mounts::read()
            .map_err(|error| Error::new(Kind::Config, "read the mounts").because(error))?;
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let place = place(&dir, &mounts)?;
        let unjank = std::env::current_exe()
            .map_err(|error| Error::new(Kind::Config, "find this program").because(error))?;
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let peers = self.peer.iter().map(Peer::name).collect::<Vec<_>>().join(", ");
        let daemon = versioned("/usr/bin/dbus-daemon".as_ref());
        let setting = Setting {
            ours: unjank.display().to_string(),
            peer: if peers.is_empty() { "none".to_owned() } else { peers },
            places: vec![format!("records: {}", place.describe()), format!("bus: {daemon}")],
            quick: self.quick,
        };
        let effort = if self.quick { Effort::Quick } else { Effort::Full };
        let lab = Lab { unjank, peers: self.peer, dir: place.dir, effort, stop: &stop };
        let provenance = Provenance::of_this_machine(super::super::command_line(), clock.now());
        let progress = screen::Progress::start();
        let count = |number: usize| Duration::from_secs(u64::try_from(number).unwrap_or(0));
        let chosen = bus::chosen(&self.only);
        let run = bus::measure(&chosen, &lab, setting, provenance, &mut |what, done, whole| {
            progress.step(what, count(done), count(whole));
        });
        progress.end();
        if let Some(path) = &self.output {
            write_page(path, &page::render(&run))?;
        }
        print(&run, self.json)?;
        judged(&run)
    }
}
