//! `simulate-fleet`: the exports of a fleet that is made up, through the same writer, for tests and measurements.
//!
//! What is planted: Files (nautilus) hangs four times as often after its update to 44.0, the model "SLOWDISK 500" takes three
//! times as long, and `libplanted.so` holds the functions of one cause.

mod plan;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Parser;
use hangs::model::HangRecord;
use hangs::store::{DEFAULT_LIMIT, HangStore, StoredHistory};
use plan::{FleetPlan, MachinePlan};
use rustix::event::{PollFd, Timespec, poll};
use sys::clock::{Clock, SystemClock};
use unjank_export::identity::RecordSource;
use unjank_export::lake::{ExportTurn, export};

#[derive(Debug, Parser)]
struct Arguments {
    /// The directory.
    #[arg(long)]
    to: PathBuf,
    /// How many machines.
    #[arg(long, default_value_t = 1000)]
    machines: u32,
    /// Only the machines from this number on; the others are the same in each run.
    #[arg(long, default_value_t = 0)]
    first: u32,
    /// Only the machines below this number.
    #[arg(long)]
    last: Option<u32>,
    /// How many days.
    #[arg(long, default_value_t = 30)]
    days: u32,
    /// How many hangs a machine has each day, on average.
    #[arg(long, default_value_t = 303)]
    hangs: u32,
    /// Record into the store in the directory for so many seconds instead, as a recorder does, a hang each 50 ms.
    #[arg(long, value_name = "SECONDS")]
    record_for: Option<u32>,
    /// Another fleet for each number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Records hangs that begin now, one after the other, and at their end for how long their programs were followed.
fn record(arguments: &Arguments, seconds: u32) -> Result<u64, Box<dyn std::error::Error>> {
    let fleet = FleetPlan::of(arguments.seed, 3, 100);
    let mut store = HangStore::open(store::disk::real(), &arguments.to, DEFAULT_LIMIT)?;
    let mut stored = StoredHistory::default();
    let mut machine = MachinePlan::of(&fleet, 0);
    (0..3).for_each(|day| machine.live(&fleet, day, &mut stored));
    let clock = SystemClock::start();
    let now_ns = || -> Result<u64, Box<dyn std::error::Error>> {
        let now = clock.now().duration_since(SystemTime::UNIX_EPOCH)?;
        Ok(u64::try_from(now.as_nanos())?)
    };
    let from_ns = now_ns()?;
    let total = u64::from(seconds) * 20;
    for at in 0..total {
        let mut hang = stored.hangs[&(1 + at % stored.hangs.len() as u64)].clone();
        hang.number = store.take_number();
        hang.started_ns = now_ns()?;
        store.append(&[HangRecord::Hang(Box::new(hang))])?;
        let nothing: &mut [PollFd<'_>] = &mut [];
        poll(nothing, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }))?;
    }
    let mut period = stored.periods[0].clone();
    (period.from_ns, period.to_ns) = (from_ns, now_ns()?);
    let length_ns = period.to_ns.saturating_sub(from_ns);
    (period.recorder_ns, period.watched_ns) = (length_ns, length_ns);
    for program in &mut period.programs {
        (program.watched_ns, program.present_ns) = (length_ns, length_ns);
    }
    store.append(&[HangRecord::Watched(period)])?;
    Ok(total)
}

fn run(arguments: &Arguments) -> Result<u64, Box<dyn std::error::Error>> {
    if let Some(seconds) = arguments.record_for {
        return record(arguments, seconds);
    }
    let disk = store::disk::real();
    let fleet = FleetPlan::of(arguments.seed, arguments.days, arguments.hangs);
    let mut total = 0;
    for number in arguments.first..arguments.last.unwrap_or(arguments.machines) {
        let name = format!("machine-{number:04}");
        let source = RecordSource::find(&*disk, &arguments.to, Some(&name), 1000)?;
        let mut machine = MachinePlan::of(&fleet, number);
        // The recorder's machines export each day; a fact is of the day on which it was seen.
        let mut stored = StoredHistory::default();
        for day in 0..arguments.days {
            machine.live(&fleet, day, &mut stored);
        }
        let facts = machine.facts(&fleet);
        let turn = ExportTurn::take(&*disk, &arguments.to, &source)?;
        total += export(&turn, &stored, &facts)?.new_hangs as u64;
    }
    Ok(total)
}

#[expect(clippy::disallowed_methods, reason = "this is where the program prints")]
fn main() -> ExitCode {
    use std::io::Write;
    match run(&Arguments::parse()) {
        Ok(total) => {
            let _ = writeln!(std::io::stdout(), "{total} hangs");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "simulate-fleet: {error}");
            ExitCode::from(2)
        }
    }
}
