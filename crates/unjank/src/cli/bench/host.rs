//! `unjank bench host`: commands on the host through our service and client, beside those that come with Flatpak.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use probe::bench::host::{self, FIGURES, Lab, Service};
use probe::bench::lab::Effort;
use probe::bench::page;
use probe::bench::run::{Setting, versioned};
use probe::report::provenance::Provenance;
use session::clock::{Clock, SystemClock};

use super::super::{interrupt, screen, write_page};
use super::{beside_us, judged, print, runnable};
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
        let program = std::env::current_exe()
            .map_err(|error| Error::new(Kind::Config, "find this program").because(error))?;
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
            effort: if self.quick { Effort::Quick } else { Effort::Full },
            clock: &clock,
            stop: &stop,
        };
        let setting = Setting {
            ours: unjankd.display().to_string(),
            peer: versioned(&self.peer),
            places: vec![format!("client {}", versioned(&self.client))],
            quick: self.quick,
        };
        let provenance = Provenance::of_this_machine(super::super::command_line(), clock.now());
        let progress = screen::Progress::start();
        let seconds = |number: u32| Duration::from_secs(number.into());
        let chosen = host::chosen(&self.only);
        let run = host::measure(&chosen, &lab, setting, provenance, &mut |what, done, whole| {
            progress.step(what, seconds(done), seconds(whole));
        });
        progress.end();
        drop(lab);
        if let Some(path) = &self.output {
            write_page(path, &page::render(&run))?;
        }
        print(&run, self.json)?;
        judged(&run)
    }
}
