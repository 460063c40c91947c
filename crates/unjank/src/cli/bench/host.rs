//! `unjank bench host`: commands on the host through our service and client, beside those that come with Flatpak.

use std::io;
use std::path::PathBuf;

use clap::Args;
use probe::bench::host::{self, FIGURES, Lab, Service};
use probe::bench::run::{Setting, versioned};
use session::clock::SystemClock;

use super::super::interrupt;
use super::{How, beside_us, provenance, runnable, this_program};
use crate::error::{Error, Kind, Verdict};

/// Measure commands on the host, on private buses.
///
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench host --peer /usr/libexec/flatpak-session-helper")]
pub(super) struct Host {
    /// The service to compare with.
    #[arg(long, value_name = "PROGRAM", default_value = "/usr/libexec/flatpak-session-helper")]
    peer: PathBuf,
    /// The client that both services are asked by.
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "/usr/libexec/flatpak-xdg-utils/flatpak-spawn"
    )]
    client: PathBuf,
    /// Our own service; by default the unjankd beside this program.
    #[arg(long, value_name = "PROGRAM")]
    ours: Option<PathBuf>,
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

impl Host {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return super::list(FIGURES.iter().map(|figure| (figure.id, figure.about)));
        }
        let unjankd = match &self.ours {
            Some(path) => path.clone(),
            None => beside_us("unjankd")?,
        };
        [&unjankd, &self.peer, &self.client].into_iter().try_for_each(|path| runnable(path))?;
        let program = this_program()?;
        let parent = std::env::temp_dir();
        let start = |command: &[String]| {
            Service::start(command, &parent).map_err(|error: io::Error| {
                let what = format!("start {}", command.first().map_or("", String::as_str));
                Error::new(Kind::Config, what).because(error)
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
            spawn: self.client.clone(),
            effort: self.how.effort(),
            clock: &clock,
            stop: &stop,
        };
        let setting = Setting {
            ours: unjankd.display().to_string(),
            peer: versioned(&self.peer),
            places: vec![format!("client {}", versioned(&self.client))],
            quick: self.how.quick,
        };
        let chosen = host::chosen(&self.only);
        self.how.show(|progress| {
            Ok(host::measure(&chosen, &lab, setting, provenance(&clock), progress))
        })
    }
}
