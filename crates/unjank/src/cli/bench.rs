//! `unjank bench`: our parts beside the programs that would run instead.

mod bus;
mod host;
mod impact;
mod launch;
mod listing;
mod plugins;
mod recents;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use probe::bench::lab::{Effort, Lab};
use probe::bench::run::{Progress, Run, Setting, versioned};
use probe::bench::session::Program;
use probe::bench::settings::{self, FIGURES};
use probe::bench::{json, page, text, trace};
use probe::place::Place;
use probe::report::provenance::Provenance;
use session::clock::{Clock, SystemClock};
use sys::mounts::Mounts;

use super::new_file::NewFile;
use super::{interrupt, screen};
use crate::error::{Error, Kind, Verdict};

/// Measure our parts beside the programs that would run instead.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench settings --peer /usr/libexec/dconf-service --dir ~")]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum What {
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
}

/// Measure the settings service, on private buses and in directories of its own.
///
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench settings --peer /usr/libexec/dconf-service --dir ~")]
struct Settings {
    /// The service to compare with.
    #[arg(long, value_name = "PROGRAM", default_value = "/usr/libexec/dconf-service")]
    peer: PathBuf,
    /// Our own service; by default the unjankd beside this program.
    #[arg(long, value_name = "PROGRAM")]
    ours: Option<PathBuf>,
    /// A directory on a disk; without it only figures in memory are measured.
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

impl Bench {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        match self.what {
            What::Settings(settings) => settings.run(),
            What::Trace(trace) => trace.run(),
            What::Listing(listing) => listing.run(),
            What::Bus(bus) => bus.run(),
            What::Recents(recents) => recents.run(),
            What::Host(host) => host.run(),
            What::Launch(launch) => launch.run(),
            What::LaunchGuardian(watch) => watch.run(),
            What::Impact(impact) => impact.run(),
            What::ListingClient(client) => client.run(),
            What::Plugins(plugins) => plugins.run(),
        }
    }
}

impl Settings {
    fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return list(FIGURES.iter().map(|figure| (figure.id, figure.about)));
        }
        let mounts = Mounts::read()
            .map_err(|error| Error::new(Kind::Config, "read the mounts").because(error))?;
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
        let setting = Setting {
            ours: ours.display().to_string(),
            peer: versioned(&self.peer),
            places,
            quick: self.how.quick,
        };
        let lab = Lab {
            ours: Program::unjankd(&ours),
            peer: Program::plain(&self.peer),
            memory,
            disk,
            effort: self.how.effort(),
            clock: &clock,
            stop: &stop,
        };
        let chosen = settings::chosen(&self.only);
        self.how.show(|progress| {
            Ok(settings::measure(&chosen, &lab, setting, provenance(&clock), progress))
        })
    }
}

/// Measure what programs take while they are traced, beside strace and perf.
///
/// Ratios are of a program's own time, traced to untraced; how long ours takes to begin is a row of its own.
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench trace --only python,threads")]
struct Trace {
    /// The directory below which files are made; without it, the temporary directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure only these programs, separated by commas.
    #[arg(long, value_name = "PROGRAM", value_delimiter = ',', value_parser = workloads())]
    only: Vec<String>,
    #[command(flatten)]
    how: How,
}

fn workloads() -> clap::builder::PossibleValuesParser {
    let named = |(name, about)| clap::builder::PossibleValue::new(name).help(about);
    trace::workloads().into_iter().map(named).collect::<Vec<_>>().into()
}

impl Trace {
    fn run(self) -> Result<Verdict, Error> {
        let mounts = Mounts::read()
            .map_err(|error| Error::new(Kind::Config, "read the mounts").because(error))?;
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let place = place(&dir, &mounts)?;
        let unjank = this_program()?;
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let setting = Setting {
            ours: format!("by {}", unjank.display()),
            peer: "the same program by itself".to_owned(),
            places: vec![format!("files: {}", place.describe())],
            quick: self.how.quick,
        };
        let effort = self.how.effort();
        let bench = trace::Bench { unjank, dir: place.dir, effort, stop: &stop };
        self.how.show(|progress| {
            Ok(trace::measure(&self.only, &bench, setting, provenance(&clock), progress))
        })
    }
}

/// What every benchmark is asked.
#[derive(Debug, Args)]
struct How {
    /// Make few rounds: to see that it works, not for figures to be shown.
    #[arg(long)]
    quick: bool,
    /// Also write a page with pictures into this file; it must not exist.
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Print one JSON document (docs/benchmarks.md has its fields).
    #[arg(long)]
    json: bool,
}

impl How {
    fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Full }
    }

    /// Makes the file of the page, before anything is measured.
    fn page(&self) -> Result<Option<NewFile>, Error> {
        self.output.as_deref().map(NewFile::make).transpose()
    }

    /// Has `measure` make a run, shows how far it is, and then what came of it.
    fn show(
        &self,
        measure: impl FnOnce(Progress<'_>) -> Result<Run, Error>,
    ) -> Result<Verdict, Error> {
        let page = self.page()?;
        let shown = screen::Progress::start();
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

/// Returns this program, which stands for ours in most benchmarks.
fn this_program() -> Result<PathBuf, Error> {
    std::env::current_exe()
        .map_err(|error| Error::new(Kind::Config, "find this program").because(error))
}

fn provenance(clock: &SystemClock) -> Provenance {
    Provenance::of_this_machine(super::command_line(), clock.now())
}

fn print(run: &Run, json: bool) -> Result<(), Error> {
    let output = if json {
        json::render(run)
            .map_err(|error| Error::new(Kind::Internal, "write the document").because(error))?
    } else {
        text::render(run, screen::width(), screen::paint())
    };
    let mut stdout = if json { screen::json() } else { screen::stdout() };
    stdout.write_all(output.as_bytes())?;
    Ok(stdout.flush()?)
}

fn judged(run: &Run) -> Result<Verdict, Error> {
    if run.interrupted {
        return Err(Error::new(Kind::User, "finish").because("interrupted"));
    }
    if run.rows.is_empty() {
        return Err(Error::new(Kind::Config, "measure any figure"));
    }
    Ok(if run.passes() { Verdict::Yes } else { Verdict::No })
}

fn list<'a>(figures: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Verdict, Error> {
    let mut stdout = screen::stdout();
    for (id, about) in figures {
        writeln!(stdout, "{id:12}  {about}")?;
    }
    Ok(Verdict::Yes)
}

fn place(dir: &Path, mounts: &Mounts) -> Result<Place, Error> {
    let looked_up = dir.canonicalize().map(|dir| Place::of(&dir, mounts));
    match looked_up {
        Ok(Some(place)) => Ok(place),
        Ok(None) => Err(Error::new(Kind::Config, format!("find the mount of {}", dir.display()))),
        Err(error) => {
            Err(Error::new(Kind::User, format!("measure in {}", dir.display())).because(error))
        }
    }
}

/// Finds a directory in memory in which we may write.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn memory(mounts: &Mounts) -> Result<Place, Error> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [Some(PathBuf::from("/dev/shm")), runtime]
        .into_iter()
        .flatten()
        .filter(|dir| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok())
        .filter_map(|dir| Place::of(&dir, mounts))
        .find(|place| place.mount.is_memory())
        .ok_or_else(|| {
            Error::new(Kind::Config, "find a directory in memory")
                .hint("set XDG_RUNTIME_DIR to one on a tmpfs")
        })
}

/// Finds a program in the directory of this one.
pub(super) fn beside_us(name: &str) -> Result<PathBuf, Error> {
    let cannot = || Error::new(Kind::Config, format!("find {name} beside this program"));
    let path = std::env::current_exe()
        .ok()
        .and_then(|path| Some(path.parent()?.join(name)))
        .ok_or_else(cannot)?;
    if path.exists() {
        Ok(path)
    } else {
        Err(cannot().hint(format!("build it: cargo build --release --bin {name}")))
    }
}

fn runnable(program: &Path) -> Result<(), Error> {
    rustix::fs::access(program, rustix::fs::Access::EXEC_OK).map_err(|error| {
        Error::new(Kind::User, format!("run {}", program.display())).because(io::Error::from(error))
    })
}
