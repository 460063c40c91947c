//! `unjank bench recents`: remembering a document, beside what KDE's and GTK's programs do for it.

use std::path::PathBuf;

use bench::recents::{Display, FIGURES, Lab, Programs, RecentsPeer};
use bench::run::{BenchSetting, versioned};
use clap::Args;
use sys::clock::SystemClock;
use sys::scratch;

use super::super::{catalogue, interrupt};
use super::{BenchOptions, place, this_program};
use crate::error::{Error, FailureCategory, Verdict};

/// Measure recording recent documents, in temporary home directories.
///
/// The peers are KRecentDocument and GtkRecentManager: two small programs are compiled for them.
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench recents --dir ~ --only add-1000,bytes")]
pub(super) struct Recents {
    /// Create the home directories below this one, which must not be below a hidden or temporary directory.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// A program to compare with: its name, and its command with {dir} and {count} for its additions. May be repeated.
    #[arg(long, value_name = "NAME=COMMAND", value_parser = RecentsPeer::parse)]
    peer: Vec<RecentsPeer>,
    /// Measure only these figures, separated by commas.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', value_parser = super::names!(FIGURES), hide_possible_values = true)]
    only: Vec<String>,
    /// List the figures.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    how: BenchOptions,
}

impl Recents {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return super::list(FIGURES);
        }
        let mounts = super::mounts()?;
        let place = place(&self.dir, &mounts)?;
        let program = this_program()?;
        let tools = scratch::within(&place.dir).map_err(|error| {
            Error::new(FailureCategory::User, format!("measure in {}", place.dir.display()))
                .because(error)
        })?;
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        self.how.show(|progress| {
            progress("compiling the peers", 0, 90);
            let programs = Programs::compile(tools.path());
            let named = |name: &str, program: &Result<PathBuf, String>, library: &str| match program
            {
                Ok(_) => format!("{name} ({})", versioned(library.as_ref())),
                Err(why) => format!("{name} (not measured: {why})"),
            };
            let libraries = "/usr/lib/x86_64-linux-gnu";
            let own = [
                named("KRecentDocument", &programs.kde, &format!("{libraries}/libKF5KIOCore.so.5")),
                named("GtkRecentManager", &programs.gtk, &format!("{libraries}/libgtk-3.so.0")),
            ];
            let peers =
                self.peer.iter().map(|peer| format!("{} ({})", peer.name, peer.command.join(" ")));
            let setting = BenchSetting {
                ours: program.display().to_string(),
                peer: own.into_iter().chain(peers).collect::<Vec<_>>().join(", "),
                places: vec![format!("homes in {}", place.describe())],
                quick: self.how.quick,
            };
            let lab = Lab {
                dir: place.dir.clone(),
                program_path: catalogue::program_path(),
                program,
                programs,
                display: Display::start(),
                peers: self.peer,
                effort: self.how.effort(),
                clock: &clock,
                stop: &stop,
            };
            Ok(super::measured(
                FIGURES,
                &self.only,
                |figure| (figure.run)(&lab),
                &lab,
                setting,
                progress,
            ))
        })
    }
}
