//! `unjank bench bus`: what calls lose while their bus is recorded, beside other programs that record.

use std::path::PathBuf;

use bench::bus::{self, FIGURES, Lab, RecordReader, WatcherPeer};
use bench::run::{BenchSetting, versioned};
use clap::Args;
use sys::clock::SystemClock;

use super::super::interrupt;
use super::{BenchOptions, place, this_program};
use crate::error::{Error, Verdict};

/// Measure recording a bus, on a private bus with generated calls.
///
/// Each round measures calls without a recorder, with unjank, and with each peer.
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank bench bus --peer 'dbus-monitor --pcap' --peer 'busctl capture'"
)]
pub(super) struct Bus {
    /// A program to compare with, which writes a recording to its output; {address} is the bus. May be repeated.
    #[arg(long, value_name = "COMMAND", value_parser = WatcherPeer::parse)]
    peer: Vec<WatcherPeer>,
    /// A program that analyses a recording, to compare with `bus stats`; {file} is the recording. May be repeated.
    #[arg(long, value_name = "COMMAND", value_parser = RecordReader::parse, default_value = "tshark -r {file}")]
    reader: Vec<RecordReader>,
    /// Create recordings in a new directory below this one; by default the temporary directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure only these figures, separated by commas.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', value_parser = super::names!(FIGURES), hide_possible_values = true)]
    only: Vec<String>,
    /// List the figures.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    how: BenchOptions,
}

impl Bus {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return super::list(FIGURES);
        }
        let mounts = super::mounts()?;
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let place = place(&dir, &mounts)?;
        let unjank = this_program()?;
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let peers = self.peer.iter().map(WatcherPeer::name).collect::<Vec<_>>().join(", ");
        let daemon = versioned("/usr/bin/dbus-daemon".as_ref());
        let setting = BenchSetting {
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
        self.how.measure(FIGURES, &self.only, |figure| bus::rows(&lab, figure), &lab, setting)
    }
}
