//! Times a listing beside the bare system calls: `listing DIR [ROUNDS]`; the worker is this program.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program to measure with")]

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::clock::{Clock, SystemClock};
use sys::dir::{OpenDirectory, StatxFlags};
use unjank_listing::{
    AttributeSet, Connection, Listing, ListingRequest, ReadyWorker, Update, WorkerProgram,
    serve_until_hung_up,
};

fn getdents(path: &Path) -> (OpenDirectory, Vec<u8>, Vec<u32>) {
    let directory = OpenDirectory::open(path).unwrap();
    let mut buffer = vec![MaybeUninit::uninit(); 1 << 20];
    let (mut arena, mut ends) = (Vec::new(), Vec::new());
    while directory
        .read(&mut buffer, |name| {
            arena.extend_from_slice(name.name.to_bytes_with_nul());
            ends.push(u32::try_from(arena.len()).unwrap());
        })
        .unwrap()
    {}
    (directory, arena, ends)
}

fn statx(path: &Path) -> u64 {
    let (directory, arena, ends) = getdents(path);
    let mut start = 0;
    let mut sum = 0;
    let mut known = Vec::with_capacity(ends.len());
    for end in ends {
        let name = std::ffi::CStr::from_bytes_with_nul(&arena[start..end as usize]).unwrap();
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let status = directory.status(name, mask).unwrap();
        sum += status.stx_size;
        known.push((status.stx_size, status.stx_mode, status.stx_mtime, status.stx_ino));
        start = end as usize;
    }
    sum
}

/// Lists, and returns the time to the first names and the time to the end.
fn ours(mut listing: Listing, start: Duration, clock: &dyn Clock) -> (f64, f64, f64, u32) {
    let (mut first, mut names) = (None, 0.0);
    loop {
        let update = listing.next(None).unwrap().unwrap();
        let at = ms(clock.monotonic() - start);
        match update {
            Update::Names(_) => {
                first.get_or_insert(at);
                names = at;
            }
            Update::Done(count) => return (first.unwrap_or(at), names, at, count),
            _ => {}
        }
    }
}

/// Milliseconds to the first names, to all names, and to the end.
type Figures = (f64, f64, f64);

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let path = PathBuf::from(arguments.next().unwrap());
    if path == Path::new("listing-worker") {
        let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        return serve_until_hung_up(Connection::new(socket)).unwrap();
    }
    let rounds = arguments.next().map_or(5, |text| text.to_str().unwrap().parse().unwrap());
    let worker = WorkerProgram {
        path: std::env::current_exe().unwrap(),
        arguments: vec!["listing-worker".into()],
    };
    let clock = SystemClock::start();
    let default = ListingRequest::of(&path);
    if rounds == 0 {
        // The memory of a client that listed in another process.
        let mut listing = Listing::in_worker(&worker, &default).unwrap();
        listing.finish().unwrap();
        let memory = sys::memory::Memory::of(std::process::id()).unwrap();
        let (all, own) = (memory.resident_bytes >> 10, memory.anonymous_bytes >> 10);
        println!("{} entries: resident {all} KiB, own {own} KiB", listing.len());
        return;
    }
    let names = default.clone().with_fields(AttributeSet::NONE);
    let mut rows: Vec<(&str, Vec<Figures>)> = Vec::new();
    let mut add =
        |name: &'static str, figures: Figures| match rows.iter_mut().find(|row| row.0 == name) {
            Some(row) => row.1.push(figures),
            None => rows.push((name, vec![figures])),
        };
    for _ in 0..rounds {
        let start = clock.monotonic();
        let _ = std::hint::black_box(getdents(&path));
        let at = ms(clock.monotonic() - start);
        add("getdents", (at, at, at));
        let start = clock.monotonic();
        std::hint::black_box(statx(&path));
        let at = ms(clock.monotonic() - start);
        add("getdents+statx", (at, at, at));
        for (name, request) in [("names", &names), ("default", &default)] {
            let start = clock.monotonic();
            let (a, b, c, _) = ours(Listing::in_process(request).unwrap(), start, &clock);
            add(
                if name == "names" { "in process: names" } else { "in process: default" },
                (a, b, c),
            );
            let start = clock.monotonic();
            let listing = Listing::in_worker(&worker, request).unwrap();
            let (a, b, c, _) = ours(listing, start, &clock);
            add(if name == "names" { "worker: names" } else { "worker: default" }, (a, b, c));
            let ready = ReadyWorker::start(&worker).unwrap();
            // It is ready when it waits for the request; nothing tells that from here, so others run meanwhile.
            std::hint::black_box(getdents(&path));
            let start = clock.monotonic();
            let (a, b, c, _) = ours(ready.list(request).unwrap(), start, &clock);
            add(if name == "names" { "ready: names" } else { "ready: default" }, (a, b, c));
        }
    }
    println!(
        "{:<22} {:>9} {:>9} {:>9} {:>9}",
        "minimum / median", "first", "names", "all", "median"
    );
    for (name, mut figures) in rows {
        let least =
            |pick: fn(&Figures) -> f64| figures.iter().map(pick).fold(f64::INFINITY, f64::min);
        let (first, all_names, all) = (least(|f| f.0), least(|f| f.1), least(|f| f.2));
        figures.sort_by(|a, b| a.2.total_cmp(&b.2));
        let median = figures[figures.len() / 2].2;
        println!("{name:<22} {first:>9.2} {all_names:>9.2} {all:>9.2} {median:>9.2}");
    }
    let memory = sys::memory::Memory::of(std::process::id()).unwrap();
    println!(
        "resident {} KiB, own {} KiB",
        memory.resident_bytes >> 10,
        memory.anonymous_bytes >> 10
    );
}
