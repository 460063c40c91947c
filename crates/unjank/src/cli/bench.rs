//! `unjank bench`: our parts beside the programs that would run instead.

/// Makes the parser of `--only`, which takes the names of these figures.
macro_rules! names {
    ($figures:expr) => {
        clap::builder::PossibleValuesParser::new(
            const { ::bench::run::ids::<_, { $figures.len() }>($figures) },
        )
    };
}
use names;

mod bus;
mod hangs;
mod host;
mod impact;
mod launch;
mod listing;
mod plugins;
mod recents;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::lab::{BenchError, Effort, Lab, Measuring};
use bench::row::FigureRow;
use bench::run::{self, BenchProgress, BenchSetting, Figure, Run, versioned};
use bench::settings::FIGURES;
use bench::{json, page, text, trace};
use clap::{Args, Parser, Subcommand};
use lab::place::MeasuredDirectory;
use lab::session::ServiceProgram;
use report::provenance::Provenance;
use sys::clock::{Clock, SystemClock};
use sys::mounts::Mounts;

use super::exercise::Exercise;
use super::new_file::NewFile;
use super::{interrupt, screen};
use crate::cli::progress::Progress;
use crate::error::{Error, FailureCategory, Verdict};

/// Measure parts of unjank beside the programs that they replace.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench settings --peer /usr/libexec/dconf-service --dir ~")]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: BenchCommand,
}

/// The file name of the program that has these commands alone: who does not measure need not install them.
pub(super) const PROGRAM: &str = "unjank-bench";

/// Measures parts of unjank beside the programs that they replace: `unjank bench` becomes this program where it is packaged.
#[derive(Debug, Parser)]
#[command(name = "unjank", version, max_term_width = 80)]
pub(super) enum BenchCli {
    Bench(Bench),
    /// Be a program that a benchmark traces
    #[command(hide = true)]
    Exercise(Exercise),
}

impl BenchCli {
    pub(super) fn run(self) -> ExitCode {
        match self {
            BenchCli::Bench(bench) => {
                bench.run().map_or_else(|error| error.report(), ExitCode::from)
            }
            BenchCli::Exercise(exercise) => exercise.run(),
        }
    }
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum BenchCommand {
    Settings(Settings),
    Trace(Trace),
    Listing(listing::Listing),
    Bus(bus::Bus),
    Recents(recents::Recents),
    Host(host::Host),
    Launch(Box<launch::Launch>),
    #[command(hide = true)]
    LaunchGuardian(launch::Watch),
    Impact(impact::Impact),
    #[command(hide = true)]
    ListingClient(listing::Client),
    Plugins(plugins::Plugins),
    Hangs(hangs::Hangs),
}

/// Measure the settings service, on private buses and in temporary directories.
///
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench settings --peer /usr/libexec/dconf-service --dir ~")]
struct Settings {
    /// The service to compare with.
    #[arg(long, value_name = "PROGRAM", default_value = "/usr/libexec/dconf-service")]
    peer: PathBuf,
    /// The unjankd to measure; by default the one beside this program.
    #[arg(long, value_name = "PROGRAM")]
    ours: Option<PathBuf>,
    /// A directory on a disk; without it only figures in memory are measured.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure only these figures, separated by commas.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', value_parser = names!(FIGURES), hide_possible_values = true)]
    only: Vec<String>,
    /// List the figures.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    how: BenchOptions,
}

/// Reads what is mounted.
fn mounts() -> Result<Mounts, Error> {
    Mounts::read()
        .map_err(|error| Error::new(FailureCategory::Config, "read the mounts").because(error))
}

impl Bench {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        match self.what {
            BenchCommand::Settings(settings) => settings.run(),
            BenchCommand::Trace(trace) => trace.run(),
            BenchCommand::Listing(listing) => listing.run(),
            BenchCommand::Bus(bus) => bus.run(),
            BenchCommand::Recents(recents) => recents.run(),
            BenchCommand::Host(host) => host.run(),
            BenchCommand::Launch(launch) => launch.run(),
            BenchCommand::LaunchGuardian(watch) => watch.run(),
            BenchCommand::Impact(impact) => impact.run(),
            BenchCommand::ListingClient(client) => client.run(),
            BenchCommand::Plugins(plugins) => plugins.run(),
            BenchCommand::Hangs(hangs) => hangs.run(),
        }
    }
}

impl Settings {
    fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return list(FIGURES);
        }
        let mounts = mounts()?;
        let memory = memory(&mounts)?;
        let disk = self.dir.as_deref().map(|dir| place(dir, &mounts)).transpose()?;
        let ours = match &self.ours {
            Some(path) => path.clone(),
            None => beside_us("unjankd")?,
        };
        runnable(&ours)?;
        runnable(&self.peer)?;
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let mut places = vec![format!("memory: {}", memory.describe())];
        places.extend(disk.iter().map(|disk| format!("disk: {}", disk.describe())));
        let setting = BenchSetting {
            ours: ours.display().to_string(),
            peer: versioned(&self.peer),
            places,
            quick: self.how.quick,
        };
        let lab = Lab {
            ours: ServiceProgram::unjankd(&ours),
            peer: ServiceProgram::plain(&self.peer),
            memory,
            disk,
            effort: self.how.effort(),
            clock: &clock,
            stop: &stop,
        };
        self.how.measure(FIGURES, &self.only, |figure| (figure.run)(&lab), &lab, setting)
    }
}

/// Measure the overhead of tracing, beside strace and perf.
///
/// Ratios are those of a program's time, traced to untraced; the start of unjank trace is a separate row.
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench trace --only python,threads")]
struct Trace {
    /// Create files below this directory; by default the temporary directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure only these programs, separated by commas.
    #[arg(long, value_name = "PROGRAM", value_delimiter = ',', value_parser = workloads())]
    only: Vec<String>,
    #[command(flatten)]
    how: BenchOptions,
}

fn workloads() -> clap::builder::PossibleValuesParser {
    let named = |(name, about)| clap::builder::PossibleValue::new(name).help(about);
    trace::workloads().into_iter().map(named).collect::<Vec<_>>().into()
}

impl Trace {
    fn run(self) -> Result<Verdict, Error> {
        let mounts = mounts()?;
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let place = place(&dir, &mounts)?;
        let unjank = this_program()?;
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let setting = BenchSetting {
            ours: format!("by {}", unjank.display()),
            peer: "the same program by itself".to_owned(),
            places: vec![format!("files: {}", place.describe())],
            quick: self.how.quick,
        };
        let effort = self.how.effort();
        let bench =
            trace::Bench { unjank, exercise: itself()?, dir: place.dir, effort, stop: &stop };
        self.how.show(|progress| {
            Ok(trace::measure(&self.only, &bench, setting, provenance(&clock), progress))
        })
    }
}

/// What every benchmark is asked.
#[derive(Debug, Args)]
struct BenchOptions {
    /// Make few rounds, to test the benchmark itself.
    #[arg(long)]
    quick: bool,
    /// Also write a page with pictures into this file; it must not exist.
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Print one JSON document (fields: docs/benchmarks.md).
    #[arg(long)]
    json: bool,
}

impl BenchOptions {
    fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Full }
    }

    /// Makes the file of the page, before anything is measured.
    fn page(&self) -> Result<Option<NewFile>, Error> {
        self.output.as_deref().map(NewFile::make).transpose()
    }

    /// Measures figures and shows them.
    fn measure<F>(
        &self,
        figures: &'static [Figure<F>],
        only: &[String],
        rows: impl FnMut(&Figure<F>) -> Result<Vec<FigureRow>, BenchError>,
        lab: &impl Measuring,
        setting: BenchSetting,
    ) -> Result<Verdict, Error> {
        self.show(|progress| Ok(measured(figures, only, rows, lab, setting, progress)))
    }

    /// Has `measure` make a run, shows how far it is, and then what came of it.
    fn show(
        &self,
        measure: impl FnOnce(BenchProgress<'_>) -> Result<Run, Error>,
    ) -> Result<Verdict, Error> {
        let page = self.page()?;
        let shown = Progress::start();
        let seconds = |number: u32| Duration::from_secs(number.into());
        let run = measure(&mut |what, done, whole| shown.step(what, seconds(done), seconds(whole)));
        shown.end();
        let run = run?;
        // What was measured for minutes is not lost with one of the two ways to keep it.
        let written = page.map(|file| file.write(&page::render(&run)));
        print(&run, self.json)?;
        written.transpose()?;
        judged(&run)
    }
}

/// Returns `unjank`, which stands for ours in most benchmarks: this program, or the one beside unjank-bench.
fn this_program() -> Result<PathBuf, Error> {
    let itself = itself()?;
    if itself.file_name().is_some_and(|name| name == PROGRAM) {
        return beside_us("unjank");
    }
    Ok(itself)
}

/// Returns the program that measures, which benchmarks start again for some of their work.
fn itself() -> Result<PathBuf, Error> {
    std::env::current_exe()
        .map_err(|error| Error::new(FailureCategory::Config, "find this program").because(error))
}

/// Measures the figures that `only` names; without names, all that can be measured here.
fn measured<F>(
    figures: &'static [Figure<F>],
    only: &[String],
    rows: impl FnMut(&Figure<F>) -> Result<Vec<FigureRow>, BenchError>,
    lab: &impl Measuring,
    setting: BenchSetting,
    progress: BenchProgress<'_>,
) -> Run {
    let chosen = run::chosen(figures, only, lab);
    run::measure(&chosen, rows, lab, setting, provenance(lab.clock()), progress)
}

fn provenance(clock: &dyn Clock) -> Provenance {
    Provenance::of_this_machine(super::command_line(), clock.now())
}

fn print(run: &Run, json: bool) -> Result<(), Error> {
    let output = if json {
        json::render(run).map_err(|error| {
            Error::new(FailureCategory::Internal, "write the document").because(error)
        })?
    } else {
        text::render(run, screen::width(), screen::paint())
    };
    screen::tell(if json { screen::json() } else { screen::stdout() }, &output)
}

fn judged(run: &Run) -> Result<Verdict, Error> {
    if run.interrupted {
        return Err(Error::new(FailureCategory::User, "finish").because("interrupted"));
    }
    if run.rows.is_empty() {
        return Err(Error::new(FailureCategory::Config, "measure any figure"));
    }
    Ok(if run.passes() { Verdict::Yes } else { Verdict::No })
}

fn list<F>(figures: &'static [Figure<F>]) -> Result<Verdict, Error> {
    let mut stdout = screen::stdout();
    for Figure { id, about, .. } in figures {
        writeln!(stdout, "{id:12}  {about}")?;
    }
    Ok(Verdict::Yes)
}

fn place(dir: &Path, mounts: &Mounts) -> Result<MeasuredDirectory, Error> {
    let looked_up = dir.canonicalize().map(|dir| MeasuredDirectory::of(&dir, mounts));
    match looked_up {
        Ok(Some(place)) => Ok(place),
        Ok(None) => {
            Err(Error::new(FailureCategory::Config, format!("find the mount of {}", dir.display())))
        }
        Err(error) => {
            Err(Error::new(FailureCategory::User, format!("measure in {}", dir.display()))
                .because(error))
        }
    }
}

/// Finds a directory in memory in which we may write.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn memory(mounts: &Mounts) -> Result<MeasuredDirectory, Error> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [Some(PathBuf::from("/dev/shm")), runtime]
        .into_iter()
        .flatten()
        .filter(|dir| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok())
        .filter_map(|dir| MeasuredDirectory::of(&dir, mounts))
        .find(|place| place.mount.is_memory())
        .ok_or_else(|| {
            Error::new(FailureCategory::Config, "find a directory in memory")
                .hint("set XDG_RUNTIME_DIR to a directory on a tmpfs")
        })
}

/// Finds a program in the directory of this one.
pub(super) fn beside_us(name: &str) -> Result<PathBuf, Error> {
    let path = itself()?.with_file_name(name);
    if path.exists() {
        return Ok(path);
    }
    Err(Error::new(FailureCategory::Config, format!("find {name} beside this program"))
        .hint(format!("build it: cargo build --release --bin {name}")))
}

fn runnable(program: &Path) -> Result<(), Error> {
    rustix::fs::access(program, rustix::fs::Access::EXEC_OK).map_err(|error| {
        Error::new(FailureCategory::User, format!("run {}", program.display()))
            .because(io::Error::from(error))
    })
}
