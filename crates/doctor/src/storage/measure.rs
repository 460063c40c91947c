//! The steps that programs make a user wait for: a sync, and the replacing of a small file.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, fdatasync, fsync, openat, renameat};

use crate::StepContext;
use report::samples::Samples;
use sys::scratch;

/// The size of a small file that a program saves.
const SMALL: [u8; 4096] = [b'u'; 4096];
/// A round beyond this number teaches nothing more.
const MOST_ROUNDS: usize = 200;
/// The stretch of file that the copy beside a sync writes over and over.
const COPY_BYTES: u64 = 64 << 20;
/// The most that the copy writes: little enough for any disk's life, enough to fill its queue.
const COPY_MOST_BYTES: u64 = 256 << 20;
const CHUNK_BYTES: usize = 1 << 20;
/// The copy asks for its data to be written out this often, as an installer does.
const CHUNKS_A_SYNC: u64 = 16;

/// Tries to save a small file in `dir`, without waiting for the disk.
///
/// # Errors
///
/// As `open(2)` and `write(2)`; nothing is left behind.
pub(super) fn save(dir: &Path) -> io::Result<()> {
    tempfile::tempfile_in(dir)?.write_all_at(&SMALL, 0)
}

/// Measures `write 4 KiB, fsync` on one file in `dir`.
///
/// # Errors
///
/// As `open(2)`, `write(2)` and `fsync(2)`; nothing is left behind.
pub(super) fn sync(dir: &Path, tools: &StepContext<'_>, budget: Duration) -> io::Result<Samples> {
    let file = tempfile::tempfile_in(dir)?;
    let round = || write_and_sync(&file);
    round()?;
    rounds(tools, budget, round)
}

/// Measures `create, write 4 KiB, fsync, rename over the old one, fsync the directory` in `dir`.
///
/// # Errors
///
/// As the calls; nothing is left behind.
pub(super) fn replace(
    dir: &Path,
    tools: &StepContext<'_>,
    budget: Duration,
) -> io::Result<Samples> {
    let scratch = scratch::within(dir)?;
    let directory = File::open(scratch.path())?;
    let round = || {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let new = File::from(openat(&directory, "new", flags, Mode::from_raw_mode(0o600))?);
        write_and_sync(&new)?;
        renameat(&directory, "new", &directory, "file")?;
        fsync(&directory)?;
        Ok(())
    };
    round()?;
    rounds(tools, budget, round)
}

/// Measures [`sync`] while another thread writes a large file in the same directory.
///
/// # Errors
///
/// As [`sync`]; an error of the copy ends it and is the result, since the times would be no answer.
pub(super) fn sync_beside_copy(
    dir: &Path,
    tools: &StepContext<'_>,
    budget: Duration,
) -> io::Result<Samples> {
    let small = tempfile::tempfile_in(dir)?;
    let large = tempfile::tempfile_in(dir)?;
    write_and_sync(&small)?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let copy = sys::thread::spawn_scoped(scope, "copy", || {
            let result = copy(&large, &ended);
            ended.store(true, Ordering::Relaxed);
            result
        })?;
        let mut samples = Samples::default();
        let start = tools.clock.monotonic();
        let outcome = loop {
            let (time, result) = tools.time(|| write_and_sync(&small));
            // A round that the copy did not last through is not one beside a copy.
            if ended.load(Ordering::Relaxed) {
                break result;
            }
            samples.push(time);
            let enough = samples.len() >= MOST_ROUNDS || tools.spent(start, budget);
            if result.is_err() || enough || tools.stopped() {
                break result;
            }
        };
        ended.store(true, Ordering::Relaxed);
        let copied = copy.join().unwrap_or_else(|_| Err(io::Error::other("the copy ended")));
        outcome.and(copied).map(|()| samples)
    })
}

fn copy(file: &File, ended: &AtomicBool) -> io::Result<()> {
    let chunk = vec![b'c'; CHUNK_BYTES];
    let chunks = COPY_MOST_BYTES / CHUNK_BYTES as u64;
    for number in 0..chunks {
        if ended.load(Ordering::Relaxed) {
            break;
        }
        file.write_all_at(&chunk, number * CHUNK_BYTES as u64 % COPY_BYTES)?;
        if number % CHUNKS_A_SYNC == CHUNKS_A_SYNC - 1 {
            fdatasync(file)?;
        }
    }
    Ok(())
}

fn write_and_sync(file: &File) -> io::Result<()> {
    file.write_all_at(&SMALL, 0)?;
    Ok(fsync(file.as_fd())?)
}

/// Repeats `round` until the time is up: at least once, and not for ever on a fast disk.
fn rounds(
    tools: &StepContext<'_>,
    budget: Duration,
    round: impl Fn() -> io::Result<()>,
) -> io::Result<Samples> {
    let start = tools.clock.monotonic();
    let mut samples = Samples::default();
    while samples.len() < MOST_ROUNDS && !tools.stopped() {
        let (time, result) = tools.time(&round);
        result?;
        samples.push(time);
        if tools.spent(start, budget) {
            break;
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use sys::clock::SystemClock;

    use super::*;

    #[test]
    fn every_measurement_ends_in_its_budget_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::start();
        let stop = AtomicBool::new(false);
        let tools = StepContext { clock: &clock, frame: report::grade::FRAME, stop: &stop };
        let budget = Duration::from_millis(20);
        for measure in [sync, replace, sync_beside_copy] {
            let samples = measure(dir.path(), &tools, budget).unwrap();
            assert!(samples.len() <= MOST_ROUNDS);
        }
        assert!(!sync(dir.path(), &tools, budget).unwrap().is_empty());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_run_that_is_stopped_returns_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::start();
        let stop = AtomicBool::new(true);
        let tools = StepContext { clock: &clock, frame: report::grade::FRAME, stop: &stop };
        assert!(sync(dir.path(), &tools, Duration::from_secs(60)).unwrap().is_empty());
    }
}
