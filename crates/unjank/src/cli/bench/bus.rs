//! `unjank bench bus`: what calls lose while their bus is recorded, beside other programs that record.

use std::path::PathBuf;

use clap::Args;
use probe::bench::bus::{self, FIGURES, Lab, Peer, Reader};
use probe::bench::run::{Setting, versioned};
use session::clock::SystemClock;
use sys::mounts::Mounts;

use super::super::interrupt;
use super::{How, place, provenance, this_program};
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
    /// A program that reads a record, to compare its time with that of our figures; {file} is the record. Repeat for more.
    #[arg(long, value_name = "COMMAND", value_parser = Reader::parse, default_value = "tshark -r {file}")]
    reader: Vec<Reader>,
    /// Where records are written, in a directory of their own; by default the temporary directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure only these figures, separated by commas.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', value_parser = figures(), hide_possible_values = true)]
    only: Vec<String>,
    /// List the figures.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    how: How,
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
        let unjank = this_program()?;
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let peers = self.peer.iter().map(Peer::name).collect::<Vec<_>>().join(", ");
        let daemon = versioned("/usr/bin/dbus-daemon".as_ref());
        let setting = Setting {
            ours: unjank.display().to_string(),
            peer: if peers.is_empty() { "none".to_owned() } else { peers },
            places: vec![format!("records: {}", place.describe()), format!("bus: {daemon}")],
            quick: self.how.quick,
        };
        let effort = self.how.effort();
        let lab = Lab {
            unjank,
            peers: self.peer,
            readers: self.reader,
            dir: place.dir,
            effort,
            stop: &stop,
            clock: &clock,
        };
        let chosen = bus::chosen(&self.only);
        self.how
            .show(|progress| Ok(bus::measure(&chosen, &lab, setting, provenance(&clock), progress)))
    }
}
