//! Times the sorted model of a directory beside reading it raw: `listing_model DIR [ROUNDS] [WORKER ARGUMENT…]`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for the one who tunes")]

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sys::clock::{Clock, SystemClock};
use sys::dir::{OpenDirectory, StatxFlags};
use unjank_listing::collation::{Collation, Digits};
use unjank_listing::model::{
    By, DirectoryPlacement, Hidden, Model, RowOrder, SortDirection, ViewFilter,
};
use unjank_listing::{Listing, ListingRequest, Update, WorkerProgram};

/// Names and attributes by one thread, as plainly as can be.
fn raw(path: &Path) -> usize {
    let directory = OpenDirectory::open(path).unwrap();
    let mut buffer = vec![MaybeUninit::uninit(); 1 << 20];
    let mut names = Vec::new();
    while directory.read(&mut buffer, |name| names.push(name.name.to_owned())).unwrap() {}
    for name in &names {
        directory.status(name, StatxFlags::BASIC_STATS | StatxFlags::BTIME).unwrap();
    }
    names.len()
}

/// What one round took.
#[derive(Default)]
struct Round {
    first_row: Duration,
    names_sorted: Duration,
    complete: Duration,
    in_model: Duration,
    bytes: usize,
}

fn listed(
    path: &Path,
    collation: &Arc<Collation>,
    order: RowOrder,
    worker: Option<&WorkerProgram>,
) -> (Round, Listing, Model) {
    let clock = SystemClock::start();
    let request = ListingRequest::of(path);
    let mut listing = match worker {
        Some(program) => Listing::in_worker(program, &request).unwrap(),
        None => Listing::in_process(&request).unwrap(),
    };
    let filter = ViewFilter { hidden: Hidden::Shown, pattern: None };
    let mut model = Model::new(Arc::clone(collation), order, filter);
    let mut round = Round::default();
    while !listing.is_done() {
        let Some(update) = listing.next(None).unwrap() else { continue };
        let began = clock.monotonic();
        match &update {
            Update::Names(range) => {
                model.arrived(listing.entries(), range.end);
                round.names_sorted = clock.monotonic();
                if round.first_row.is_zero() {
                    round.first_row = round.names_sorted;
                }
            }
            Update::Attributes(ids) => {
                model.attributes_changed(listing.entries(), ids.iter());
            }
            _ => {}
        }
        round.in_model += clock.monotonic() - began;
    }
    round.complete = clock.monotonic();
    round.bytes = model.bytes();
    (round, listing, model)
}

fn resident_kib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().to_owned()
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().expect("a directory");
    let rounds: u32 = arguments.next().map_or(5, |text| text.to_str().unwrap().parse().unwrap());
    let worker = arguments
        .next()
        .map(|program| WorkerProgram { path: program.into(), arguments: arguments.collect() });
    let path = Path::new(&path);
    let clock = SystemClock::start();
    let collation = Arc::new(Collation::new("en", Digits::ByValue));
    println!("collation made in {:?}", clock.monotonic());
    let mut least = [Duration::MAX; 5];
    for _ in 0..rounds {
        let began = clock.monotonic();
        let count = raw(path);
        least[0] = least[0].min(clock.monotonic() - began);
        for (at, by) in [(1, By::Name), (3, By::Size)] {
            let order = RowOrder { by, ..RowOrder::default() };
            let (round, listing, model) = listed(path, &collation, order, worker.as_ref());
            assert_eq!((listing.len() as usize, model.len()), (count, count));
            println!(
                "{by:?}: first {:?}, names {:?}, complete {:?}, in the model {:?}, {:.1} bytes each",
                round.first_row,
                round.names_sorted,
                round.complete,
                round.in_model,
                round.bytes as f64 / count as f64,
            );
            least[at] = least[at].min(round.complete);
            least[at + 1] = least[at + 1].min(round.in_model);
        }
    }
    println!(
        "raw {:?}; by name {:?} (in the model {:?}); by size {:?} ({:?})",
        least[0], least[1], least[2], least[3], least[4]
    );
    println!("by name: x {:.2} of raw", least[1].as_secs_f64() / least[0].as_secs_f64());
    let (_, listing, mut model) = listed(path, &collation, RowOrder::default(), worker.as_ref());
    println!("peak {}", resident_kib());
    for by in [By::Size, By::Modified, By::Extension, By::Name] {
        let order = RowOrder {
            by,
            direction: SortDirection::Descending,
            directories: DirectoryPlacement::First,
        };
        let began = clock.monotonic();
        model.set_order(listing.entries(), order);
        println!("order by {by:?} in {:?}", clock.monotonic() - began);
    }
    let began = clock.monotonic();
    let pattern =
        unjank_listing::model::NamePattern::substring(b"99", unjank_listing::model::Case::Ignored);
    model.set_filter(
        listing.entries(),
        ViewFilter { hidden: Hidden::Shown, pattern: Some(pattern) },
    );
    println!("filter to {} in {:?}", model.len(), clock.monotonic() - began);
    let began = clock.monotonic();
    model.set_filter(listing.entries(), ViewFilter { hidden: Hidden::Shown, pattern: None });
    println!("filter back in {:?}", clock.monotonic() - began);
}
