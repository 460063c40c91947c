//! `unjank bench host`: commands on the host through our service and client, beside those that come with Flatpak.

use std::io;
use std::path::PathBuf;

use bench::host::{Bare, FIGURES, HostServiceFixture, Lab};
use bench::run::{BenchSetting, versioned};
use clap::Args;
use sys::clock::SystemClock;

use super::super::interrupt;
use super::{BenchOptions, beside_us, runnable, this_program};
use crate::error::{Error, FailureCategory, Verdict};

/// Measure host commands, on private buses.
///
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench host --peer /usr/libexec/flatpak-session-helper")]
pub(super) struct Host {
    /// The service to compare with.
    #[arg(long, value_name = "PROGRAM", default_value = "/usr/libexec/flatpak-session-helper")]
    peer: PathBuf,
    /// The client program that calls both services.
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "/usr/libexec/flatpak-xdg-utils/flatpak-spawn"
    )]
    client: PathBuf,
    /// The unjankd to measure; by default the one beside this program.
    #[arg(long, value_name = "PROGRAM")]
    ours: Option<PathBuf>,
    /// Measure only these figures, separated by commas.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', value_parser = super::names!(FIGURES), hide_possible_values = true)]
    only: Vec<String>,
    /// List the figures.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    how: BenchOptions,
}

impl Host {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return super::list(FIGURES);
        }
        let unjankd = match &self.ours {
            Some(path) => path.clone(),
            None => beside_us("unjankd")?,
        };
        [&unjankd, &self.peer, &self.client].into_iter().try_for_each(|path| runnable(path))?;
        let program = this_program()?;
        let parent = std::env::temp_dir();
        let start = |command: &[String]| {
            HostServiceFixture::start(command, &parent).map_err(|error: io::Error| {
                let what = format!("start {}", command.first().map_or("", String::as_str));
                Error::new(FailureCategory::Config, what).because(error)
            })
        };
        let ours = [
            unjankd.display().to_string(),
            "--names".to_owned(),
            "flatpak".to_owned(),
            "--idle-exit".to_owned(),
            "0".to_owned(),
        ];
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let lab = Lab {
            ours: start(&ours)?,
            peer: start(&[self.peer.display().to_string()])?,
            program,
            small: beside_us("unjank-host")?,
            bare: Bare::start(&parent).map_err(|error| {
                Error::new(FailureCategory::Config, "start the minimal client and service")
                    .because(error)
            })?,
            spawn: self.client.clone(),
            effort: self.how.effort(),
            clock: &clock,
            stop: &stop,
        };
        let setting = BenchSetting {
            ours: unjankd.display().to_string(),
            peer: versioned(&self.peer),
            places: vec![format!("client {}", versioned(&self.client))],
            quick: self.how.quick,
        };
        self.how.measure(FIGURES, &self.only, |figure| (figure.run)(&lab), &lab, setting)
    }
}
