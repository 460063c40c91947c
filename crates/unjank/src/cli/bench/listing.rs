//! `unjank bench listing`: a large directory into another process, beside what a user would run instead.

use std::path::PathBuf;

use ::listing::{AttributeSet, WorkerProgram};
use bench::lab::BenchError;
use bench::listing::{self, Cold, ENTRIES, FIGURES, Keeps, Lab, ListingPeer};
use bench::run::{BenchSetting, versioned};
use clap::Args;
use sys::clock::SystemClock;
use sys::memory::Memory;

use super::super::{interrupt, listing_worker};
use super::{BenchOptions, itself, place, this_program};
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// Measure listing a large directory, which is created and removed.
///
/// As root, it also measures with empty kernel caches; --warm leaves them unchanged.
/// Exits with 0 if every figure reaches its target, 1 if one falls short, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench listing --dir ~ --peer 'eza=eza -l {dir}'")]
pub(super) struct Listing {
    /// Number of entries in the directory.
    #[arg(long, value_name = "N", default_value_t = ENTRIES, value_parser = clap::value_parser!(u32).range(10..=5_000_000))]
    entries: u32,
    /// Create the directory below this one.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// A program to compare with: its name, and its command with {dir} for the directory. May be repeated.
    #[arg(long, value_name = "NAME=COMMAND", value_parser = ListingPeer::parse)]
    peer: Vec<ListingPeer>,
    /// Do not drop the kernel's caches.
    #[arg(long)]
    warm: bool,
    /// Measure only these figures, separated by commas.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', value_parser = super::names!(FIGURES), hide_possible_values = true)]
    only: Vec<String>,
    /// List the figures.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    how: BenchOptions,
}

impl Listing {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        if self.list {
            return super::list(FIGURES);
        }
        let mounts = super::mounts()?;
        let place = place(&self.dir, &mounts)?;
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        self.how.show(|progress| {
            progress(&format!("making {} files", self.entries), 0, 60);
            let made = listing::corpora(&place.dir, self.entries, &stop);
            let [large, small] = made.map_err(|error| match error {
                BenchError::Interrupted => {
                    Error::new(FailureCategory::User, "finish").because("interrupted")
                }
                error => Error::new(FailureCategory::User, "make the files").because(error),
            })?;
            let program = this_program()?;
            let is_root = rustix::process::geteuid().is_root();
            let drops = is_root && !self.warm && !place.mount.is_memory();
            let peers =
                self.peer.iter().map(|peer| format!("{} ({})", peer.name, peer.command.join(" ")));
            let setting = BenchSetting {
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
                quick: self.how.quick,
            };
            let lab = Lab {
                large,
                small,
                worker: worker(program.clone()),
                client: vec![
                    itself()?.display().to_string(),
                    "bench".to_owned(),
                    "listing-client".to_owned(),
                ],
                program,
                peers: self.peer.clone(),
                cold: if drops { Cold::Measured } else { Cold::LeftOut },
                effort: self.how.effort(),
                clock: &clock,
                stop: &stop,
            };
            let run = super::measured(
                FIGURES,
                &self.only,
                |figure| (figure.run)(&lab),
                &lab,
                setting,
                progress,
            );
            progress("removing the files", 1, 1);
            Ok(run)
        })
    }
}

/// List a directory as a client does, and print the memory that this took
#[derive(Debug, Args)]
pub(super) struct Client {
    dir: PathBuf,
}

impl Client {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let cannot =
            || Error::new(FailureCategory::Internal, format!("list {}", self.dir.display()));
        let program = this_program()?;
        let clock = SystemClock::start();
        let listed = listing::client(
            &self.dir,
            &worker(program),
            AttributeSet::DEFAULT,
            Keeps::Rows,
            &clock,
        );
        let held = listed.map_err(|error| cannot().because(error))?;
        let memory = Memory::of(std::process::id()).map_err(|error| cannot().because(error))?;
        std::io::Write::write_all(
            &mut screen::data(),
            format!("{}\n", memory.resident_bytes).as_bytes(),
        )?;
        drop(held);
        Ok(Verdict::Yes)
    }
}

fn worker(program: PathBuf) -> WorkerProgram {
    WorkerProgram { path: program, arguments: vec![listing_worker::NAME.into()] }
}
