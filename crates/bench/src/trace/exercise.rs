//! The programs that a benchmark of tracers traces, where no installed one does the same everywhere.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread;

use rustix::fs::{Access, CWD, access, fdatasync, renameat, stat};
use rustix::time::{ClockId, clock_gettime};
use sys::thread::spawn_scoped;

/// How many files the desktop program saves.
const SAVES: usize = 20;
/// How many writes it makes of each.
const WRITES: usize = 20;
/// How many look-ups of files that are not there it makes.
const LOOKUPS: usize = 8000;
/// How many steps of arithmetic it makes.
const STEPS: u64 = 150_000_000;

/// Returns the time of `CLOCK_MONOTONIC`, which all processes share, in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// Does in `dir` what desktop programs do: one thread saves small files and syncs them, one looks for what is not there, one computes.
///
/// # Errors
///
/// As `open(2)`, `write(2)`, `fdatasync(2)` and `rename(2)`.
pub fn desktop(dir: &Path) -> io::Result<()> {
    thread::scope(|scope| {
        spawn_scoped(scope, "lookups", || lookups(dir))?;
        spawn_scoped(scope, "compute", compute)?;
        (0..SAVES).try_for_each(|number| save(dir, number))
    })
}

/// Writes a file in small pieces, syncs it, and puts it in the place of the old one.
fn save(dir: &Path, number: usize) -> io::Result<()> {
    let new = dir.join(format!("state-{number}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
    for line in 0..WRITES {
        file.write_all(format!("[group-{line}]\nkey-{line}=value-{number}\n").as_bytes())?;
    }
    fdatasync(&file)?;
    renameat(CWD, &new, CWD, dir.join(format!("state-{number}")))?;
    Ok(())
}

/// Looks for icons in themes that do not have them.
fn lookups(dir: &Path) {
    for number in 0..LOOKUPS {
        let path = dir.join(format!("icons/theme-{}/48x48/icon-{number}.png", number % 7));
        // That there is none is the point.
        let missing = if number.is_multiple_of(2) {
            stat(&path).is_err()
        } else {
            access(&path, Access::READ_OK).is_err()
        };
        black_box(missing);
    }
}

fn compute() {
    let mut sum = 1_u64;
    for step in 0..STEPS {
        sum = black_box(sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step));
    }
}

/// Runs a command and writes into the new file `times` when it was started and when it had ended, in nanoseconds of [`now_ns`].
///
/// A tracer that traces us traces the command: what it takes to start and to end itself is not in the time between.
///
/// # Errors
///
/// The command could not be run, or the file is there.
pub fn timed(times: &Path, command: &[OsString]) -> io::Result<ExitStatus> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let start = now_ns();
    let status = Command::new(program).args(arguments).status()?;
    let end = now_ns();
    let mut file = OpenOptions::new().write(true).create_new(true).open(times)?;
    writeln!(file, "{start} {end}")?;
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_desktop_program_leaves_the_files_that_it_saved() {
        let dir = tempfile::tempdir().unwrap();
        desktop(dir.path()).unwrap();
        desktop(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), SAVES);
        assert!(desktop(&dir.path().join("missing")).is_err());
    }

    #[test]
    fn the_times_of_a_command_lie_within_those_of_its_caller() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("times");
        let before = now_ns();
        assert!(timed(&file, &["true".into()]).unwrap().success());
        let text = std::fs::read_to_string(&file).unwrap();
        let times: Vec<u64> = text.split_whitespace().map(|time| time.parse().unwrap()).collect();
        let [start, end] = times[..] else { panic!("{text}") };
        assert!(before <= start && start < end && end <= now_ns());
        assert!(timed(&file, &["true".into()]).is_err(), "the file is there");
    }
}
