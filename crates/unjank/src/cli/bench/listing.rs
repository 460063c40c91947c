//! `unjank bench listing`: a large directory into another process, beside what a user would run instead.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use probe::bench::lab::{BenchError, Effort};
use probe::bench::listing::{self, Cold, ENTRIES, FIGURES, Keeps, Lab, Peer};
use probe::bench::page;
use probe::bench::run::{Setting, versioned};
use probe::report::provenance::Provenance;
use session::clock::{Clock, SystemClock};
use session::listing::{Fields, WorkerProgram};
use sys::memory::Memory;
use sys::mounts::Mounts;

use super::super::{interrupt, listing_worker, screen, write_page};
use super::{judged, place, print};
use crate::error::{Error, Kind, Verdict};

/// Measure listing a large directory, in a directory of its own that is removed again.
///
/// As root, also without the kernel's caches, which are dropped for that; --warm leaves them.
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench listing --dir ~ --peer 'eza=eza -l {dir}'")]
pub(super) struct Listing {
    /// How many entries the directory has.
    #[arg(long, value_name = "N", default_value_t = ENTRIES, value_parser = clap::value_parser!(u32).range(10..=5_000_000))]
    entries: u32,
    /// Where the directory is made; by default here.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// A program to compare with: its name, and its command with {dir} for the directory. Repeat for more.
    #[arg(long, value_name = "NAME=COMMAND", value_parser = Peer::parse)]
    peer: Vec<Peer>,
    /// Leave the kernel's caches alone.
    #[arg(long)]
    warm: bool,
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

impl Listing {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return super::list(FIGURES.iter().map(|figure| (figure.id, figure.about)));
        }
        let mounts = Mounts::read()
            .map_err(|error| Error::new(Kind::Config, "read the mounts").because(error))?;
        let place = place(&self.dir, &mounts)?;
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let progress = screen::Progress::start();
        let seconds = |number: u32| Duration::from_secs(number.into());
        progress.step(&format!("making {} files", self.entries), Duration::ZERO, seconds(60));
        let made = listing::corpora(&place.dir, self.entries, &stop);
        let [large, small] = made.map_err(|error| {
            progress.end();
            match error {
                BenchError::Interrupted => Error::new(Kind::User, "finish").because("interrupted"),
                error => Error::new(Kind::User, "make the files").because(error),
            }
        })?;
        let program = std::env::current_exe()
            .map_err(|error| Error::new(Kind::Config, "find this program").because(error))?;
        let is_root = rustix::process::geteuid().is_root();
        let drops = is_root && !self.warm && !place.mount.is_memory();
        let peers =
            self.peer.iter().map(|peer| format!("{} ({})", peer.name, peer.command.join(" ")));
        let setting = Setting {
            ours: program.display().to_string(),
            peer: std::iter::once("the bare system calls".to_owned())
                .chain([versioned("/bin/ls".as_ref()), versioned("/usr/bin/find".as_ref())])
                .chain(peers)
                .collect::<Vec<_>>()
                .join(", "),
            places: vec![
                format!("{} entries in {}", self.entries, place.describe()),
                if drops { "warm, and cold as said; caches were dropped" } else { "warm" }
                    .to_owned(),
            ],
            quick: self.quick,
        };
        let lab = Lab {
            large,
            small,
            worker: worker(program.clone()),
            client: vec![
                program.display().to_string(),
                "bench".to_owned(),
                "listing-client".to_owned(),
            ],
            program,
            peers: self.peer.clone(),
            cold: if drops { Cold::Measured } else { Cold::LeftOut },
            effort: if self.quick { Effort::Quick } else { Effort::Full },
            clock: &clock,
            stop: &stop,
        };
        let provenance = Provenance::of_this_machine(super::super::command_line(), clock.now());
        // What cannot be measured here was not asked for, unless it was named.
        let mut chosen = listing::chosen(&self.only);
        if self.only.is_empty() {
            chosen.retain(|figure| figure.id != "cold" || drops);
            chosen.retain(|figure| figure.id != "peers" || !self.peer.is_empty());
        }
        let run = listing::measure(&chosen, &lab, setting, provenance, &mut |what, done, whole| {
            progress.step(what, seconds(done), seconds(whole));
        });
        progress.step("removing the files", seconds(1), seconds(1));
        drop(lab);
        progress.end();
        if let Some(path) = &self.output {
            write_page(path, &page::render(&run))?;
        }
        print(&run, self.json)?;
        judged(&run)
    }
}

/// List a directory as a client does, and print the memory that this took
#[derive(Debug, Args)]
pub(super) struct Client {
    dir: PathBuf,
}

impl Client {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let cannot = || Error::new(Kind::Internal, format!("list {}", self.dir.display()));
        let program = std::env::current_exe().map_err(|error| cannot().because(error))?;
        let clock = SystemClock::start();
        let listed =
            listing::client(&self.dir, &worker(program), Fields::DEFAULT, Keeps::Rows, &clock);
        let held = listed.map_err(|error| cannot().because(error))?;
        let memory = Memory::of(std::process::id()).map_err(|error| cannot().because(error))?;
        std::io::Write::write_all(
            &mut std::io::stdout(),
            format!("{}\n", memory.resident_bytes).as_bytes(),
        )?;
        drop(held);
        Ok(Verdict::Yes)
    }
}

fn worker(program: PathBuf) -> WorkerProgram {
    WorkerProgram { path: program, arguments: vec![listing_worker::NAME.into()] }
}
