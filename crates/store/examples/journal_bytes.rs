//! Measures what 1000 small durable appends cost: `cargo run --profile dist -p unjank-store --example journal_bytes DIR`.
//!
//! Three rows: the journal in a new file, the journal after a reset, and a plain buffered file with `fdatasync`. For
//! each the time of an append, what this process caused to be written (`/proc/self/io`), and the sectors that the
//! device of the directory wrote meanwhile, which holds the file system's own journal and every other process.
#![expect(clippy::print_stdout, reason = "the figures are what this is for")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use unjank_store::disk;
use unjank_store::journal::Journal;

const APPENDS: u64 = 1000;
const RECORD: [u8; 350] = [0x5a; 350];

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(dir)?;
    let path = dir.path().join("journal");

    let mut journal = None;
    measure("journal, new file", dir.path(), || {
        let mut new = Journal::open(&*disk::real(), &path)?.0;
        for _ in 0..APPENDS {
            new.append(&[&RECORD])?;
        }
        journal = Some(new);
        Ok(())
    })?;
    let mut journal = journal.ok_or("the journal was not opened")?;
    measure("journal, after reset", dir.path(), || {
        journal.reset(1)?;
        for _ in 0..APPENDS {
            journal.append(&[&RECORD])?;
        }
        Ok(())
    })?;
    measure("buffered fdatasync", dir.path(), || {
        let file = File::create_new(dir.path().join("buffered"))?;
        for number in 0..APPENDS {
            file.write_all_at(&RECORD, number * 350)?;
            file.sync_data()?;
        }
        Ok(())
    })
}

fn measure(
    what: &str,
    dir: &Path,
    run: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let before = (Instant::now(), process_bytes()?, device_bytes(dir));
    run()?;
    let us = before.0.elapsed().as_secs_f64() * 1e6 / APPENDS as f64;
    let process = process_bytes()? - before.1;
    let device = match (before.2, device_bytes(dir)) {
        (Some(before), Some(after)) => format!("{} bytes", after - before),
        _ => "no device".to_owned(),
    };
    println!("{what:22} {us:8.1} us an append   process {process:9} bytes   device {device}");
    Ok(())
}

fn process_bytes() -> Result<u64, Box<dyn Error>> {
    let io = fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.ok_or("no write_bytes in /proc/self/io")?.parse()?)
}

/// Returns how many bytes the device under `dir` wrote since it was there.
fn device_bytes(dir: &Path) -> Option<u64> {
    let (device, _) = disk::real().stat(dir).ok()?.identity;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    Some(stat.split_whitespace().nth(6)?.parse::<u64>().ok()? * 512)
}
