//! `unjank bench hangs`: hangs of known causes in programs of real toolkits, and what the recorder tells of them.

use std::path::PathBuf;

use bench::hangs::{CAUSES, FIGURES, HangScene, Lab, ServedBench, THROUGH_SERVICE, TOOLKITS};
use bench::run::BenchSetting;
use clap::Args;
use clap::builder::PossibleValue;
use report::error::chain;
use sys::clock::SystemClock;

use super::super::interrupt;
use super::{BenchOptions, place, this_program};
use crate::error::{Error, FailureCategory, Verdict};

/// Measure the recorder of hangs beside programs of GTK, Qt and Xlib that hang in known ways.
///
/// Small programs are compiled, and run on a display and a bus of their own; the recorder has a store of its own.
/// Some causes need root or a cgroup of the user: the rest are measured, and the result says what was left out.
/// Exits with 0 if every figure reaches its target, 1 if one falls short or is not resolved, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench hangs --cause sync,lock --toolkit gtk3 --runs 5")]
pub(super) struct Hangs {
    /// Create files below this directory, which must be on a disk.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The unjank whose recorder is measured; by default this program.
    #[arg(long, value_name = "PROGRAM")]
    ours: Option<PathBuf>,
    /// Plant each cause so many times in each program.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Run programs beside the recorder and beside nothing in so many rounds.
    #[arg(long, value_name = "NUMBER", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Watch the recorder beside programs at rest for so many minutes.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1440))]
    minutes: u16,
    /// Plant only these causes, separated by commas.
    #[arg(long, value_name = "CAUSE", value_delimiter = ',', value_parser = causes())]
    cause: Vec<String>,
    /// Plant only in programs of these toolkits, separated by commas.
    #[arg(long, value_name = "TOOLKIT", value_delimiter = ',', value_parser = toolkits())]
    toolkit: Vec<String>,
    /// Measure only these figures, separated by commas.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', value_parser = super::names!(FIGURES), hide_possible_values = true)]
    only: Vec<String>,
    /// Run programs and recorder as an ordinary user, with programs in the kernel by the recorder service. Needs root.
    #[arg(long)]
    through_service: bool,
    /// The user as whom they run.
    #[arg(long, value_name = "NAME", default_value = "nobody", requires = "through_service")]
    user: String,
    /// The program of the recorder service; by default the one beside unjank.
    #[arg(long, value_name = "PROGRAM", requires = "through_service")]
    recorder: Option<PathBuf>,
    /// List the figures.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    how: BenchOptions,
}

fn causes() -> clap::builder::PossibleValuesParser {
    let named = CAUSES.iter().map(|cause| PossibleValue::new(cause.id).help(cause.about));
    named.collect::<Vec<_>>().into()
}

fn toolkits() -> clap::builder::PossibleValuesParser {
    let named = TOOLKITS.iter().map(|toolkit| PossibleValue::new(toolkit.id).help(toolkit.about));
    named.collect::<Vec<_>>().into()
}

impl Hangs {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return super::list(FIGURES);
        }
        let mounts = super::mounts()?;
        let place = place(&self.dir, &mounts)?;
        let program = match &self.ours {
            Some(path) => path.clone(),
            None => this_program()?,
        };
        super::runnable(&program)?;
        let served = match (self.through_service, &self.recorder) {
            (false, _) => None,
            (true, Some(service)) => Some(service.clone()),
            (true, None) => Some(program.with_file_name("unjank-recorder")),
        };
        let served = served.map(|service| ServedBench { user: self.user.clone(), service });
        if let Some(served) = &served {
            super::runnable(&served.service)?;
        }
        let mut only = self.only.clone();
        if served.is_some() && only.is_empty() {
            only = THROUGH_SERVICE.map(str::to_owned).to_vec();
        }
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let runs = if self.how.quick { 1 } else { usize::from(self.runs) };
        self.how.show(|progress| {
            progress("compiling the programs", 0, 60);
            let mut scene = HangScene::make(&place.dir, &program, &self.toolkit, served.as_ref())
                .map_err(|error| {
                Error::new(FailureCategory::Config, "make programs that hang")
                    .because(chain(&error))
            })?;
            let causes = scene.possible(&self.cause);
            let mut places = vec![format!("files in {}", place.describe())];
            places.extend(scene.describe());
            places.push(format!("each cause {runs} times in each program"));
            let through = scene.through().map(|through| format!(" ({through})"));
            let setting = BenchSetting {
                ours: format!("{} hangs record{}", program.display(), through.unwrap_or_default()),
                peer: "nothing, or perf record -a -g -e 'sched:*'".to_owned(),
                places,
                quick: self.how.quick,
            };
            let effort = self.how.effort();
            let (minutes, rounds) = (usize::from(self.minutes), usize::from(self.rounds));
            let (clock, stop) = (&clock, &*stop);
            let lab = Lab { scene, causes, runs, rounds, minutes, effort, clock, stop };
            let rows = |figure: &bench::hangs::Figure| lab.rows(figure);
            Ok(super::measured(FIGURES, &only, rows, &lab, setting, progress))
        })
    }
}
