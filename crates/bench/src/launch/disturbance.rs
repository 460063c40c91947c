//! What disturbs a measurement and is no part of it: other programs on the processors and the host of a virtual machine, files that a launched program maps from other disks, memory that has to be found.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jobs::cgroup::Cgroup;

/// The share of the processors that others may use before a launch counts as disturbed.
pub(super) const MOST: f64 = 0.10;

/// What takes less processor time, idle time counted, is too short for the kernel's counters, in seconds.
const SHORTEST: f64 = 0.2;

/// The flag of a kernel thread in `/proc/PID/stat` (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// As much memory as a launch needs for itself and for the pages of what it reads, and some more.
const MEMORY: usize = 256 << 20;

/// Tells how much of the processors others use than the measurement.
#[derive(Debug)]
pub(super) struct Meter {
    cgroup: PathBuf,
}

/// What the processors have done so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    whole: Duration,
    others: Duration,
}

impl Meter {
    /// Creates one for a measurement all of whose programs are in the cgroup at `cgroup`.
    pub(super) fn new(cgroup: &Path) -> Meter {
        Meter { cgroup: cgroup.to_owned() }
    }

    /// Reads the counters; `None` where the kernel has not got them.
    pub(super) fn read(&self) -> Option<Reading> {
        let [whole, busy] = processors(&fs::read_to_string("/proc/stat").ok()?)?;
        let inside = fs::read_to_string(self.cgroup.join("cpu.stat")).ok()?;
        let ours = sys::usage::cpu(std::process::id()).ok()?;
        let own = usage(&inside)? + ours + kernel_threads();
        Some(Reading { whole, others: busy.saturating_sub(own) })
    }
}

impl Reading {
    /// Returns which share of the processors others have used since `earlier`, or the host has taken away.
    pub(super) fn share_since(self, earlier: Reading) -> f64 {
        let whole = self.whole.saturating_sub(earlier.whole).as_secs_f64();
        let others = self.others.saturating_sub(earlier.others).as_secs_f64();
        if whole >= SHORTEST { others / whole } else { 0.0 }
    }
}

/// Returns the time of all processors together, and for how much of it they worked, from the first line of `/proc/stat` (proc_stat(5)).
fn processors(text: &str) -> Option<[Duration; 2]> {
    let mut fields = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let mut next = || fields.next()?.parse::<u64>().ok();
    let (user, nice, system) = (next()?, next()?, next()?);
    let (idle, waits, hard, soft, stolen) = (next()?, next()?, next()?, next()?, next()?);
    // Interrupts belong to whoever has asked the disk, which is us.
    let busy = user + nice + system + stolen;
    Some([busy + idle + waits + hard + soft, busy].map(of_ticks))
}

/// Returns the processor time of a cgroup from its `cpu.stat`.
fn usage(text: &str) -> Option<Duration> {
    let micros = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    micros.trim().parse().ok().map(Duration::from_micros)
}

/// Returns the processor time of all threads of the kernel: they work for the disk.
fn kernel_threads() -> Duration {
    let Ok(entries) = fs::read_dir("/proc") else { return Duration::ZERO };
    let ticks = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        kernel_ticks(&fs::read_to_string(entry.path().join("stat")).ok()?)
    });
    of_ticks(ticks.sum())
}

/// Returns the processor time in ticks from a `stat` file, if it is a kernel thread's.
fn kernel_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().take(13).collect();
    let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // Fields 9, 14 and 15, of which the third is the first behind the name.
    (field(6)? & KERNEL_THREAD != 0).then_some(())?;
    field(11)?.checked_add(field(12)?)
}

fn of_ticks(ticks: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / per_second))
}

/// The longest list of what a process has mapped that is read.
const MOST_MAPS: u64 = 32 << 20;

/// Files that a launched program maps but that do not lie on the disk of the measurement: libraries of the system, which on a desktop others have in memory already.
#[derive(Debug, Default)]
pub(super) struct Elsewhere(BTreeSet<PathBuf>);

impl Elsewhere {
    /// Takes note of what the processes of `cgroup` have mapped now and is not on the file system of `disk`.
    pub(super) fn look(&mut self, cgroup: &Cgroup, disk: &Path) {
        let Ok(device) = fs::metadata(disk).map(|metadata| metadata.dev()) else { return };
        for process in cgroup.processes() {
            // It has ended.
            let Ok(maps) = sys::process_file::read(process, "maps", MOST_MAPS) else { continue };
            let Ok(maps) = String::from_utf8(maps) else { continue };
            for path in mapped(&maps).filter(|path| !self.0.contains(*path)).collect::<Vec<_>>() {
                let metadata = fs::metadata(path);
                if metadata.is_ok_and(|found| found.is_file() && found.dev() != device) {
                    self.0.insert(path.to_owned());
                }
            }
        }
    }

    /// Reads all of them, so that nobody waits for their disk.
    pub(super) fn read(&self) {
        for path in &self.0 {
            // It is gone, and will not be missed.
            let _ = File::open(path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
        }
    }
}

/// Returns the files in the text of a `maps` file.
fn mapped(maps: &str) -> impl Iterator<Item = &Path> {
    maps.lines().filter_map(|line| {
        let at = line.find('/')?;
        line.get(at..).map(Path::new)
    })
}

/// Touches memory and frees it: what is freed last is used first, and the host of a virtual machine gives back at its first touch, slowly, what it has taken.
pub(super) fn touch_memory() {
    let touched = vec![1_u8; MEMORY];
    std::hint::black_box(&touched);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_use_is_neither_ours_nor_the_kernels() {
        let text = "cpu  100 10 50 800 40 3 7 5 0 0\ncpu0 1 2 3 4 5 6 7 8\n";
        let [whole, busy] = processors(text).unwrap();
        assert_eq!(busy * 203, whole * 33);
        for wrong in ["", "cpu 1 2 3", "cpu a b c d e f g h", "intr 1"] {
            assert_eq!(processors(wrong), None);
        }
        assert_eq!(usage("usage_usec 1500\nuser_usec 1000\n"), Some(Duration::from_micros(1500)));
        let stat = |flags: u64| format!("7 (a) b) S 2 0 0 0 -1 {flags} 0 0 0 0 30 12 0 0 20 0 1 0");
        assert_eq!(kernel_ticks(&stat(KERNEL_THREAD | 0x40)), Some(42));
        assert_eq!((kernel_ticks(&stat(0x40)), kernel_ticks("7 (")), (None, None));
    }

    #[test]
    fn a_program_beside_the_measurement_is_seen() {
        // The cgroup of nobody: all that is not this process counts as another's.
        let empty = tempfile::tempdir().unwrap();
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).open(empty.path().join("cpu.stat"));
        io::Write::write_all(&mut file.unwrap(), b"usage_usec 0\n").unwrap();
        let meter = Meter::new(empty.path());
        let before = meter.read().unwrap();
        let mut busy = std::process::Command::new("sh")
            .args(["-c", "while kill -0 $PPID; do :; done"])
            .spawn()
            .unwrap();
        while meter.read().unwrap().others.saturating_sub(before.others) < Duration::from_millis(50)
        {
            std::thread::yield_now();
        }
        while meter.read().unwrap().whole.saturating_sub(before.whole) < Duration::from_millis(200)
        {
            std::thread::yield_now();
        }
        assert!(meter.read().unwrap().share_since(before) > 0.0);
        busy.kill().unwrap();
        busy.wait().unwrap();
    }

    #[test]
    fn files_are_found_in_maps() {
        let maps = "00400000-00401000 r-xp 00000000 08:02 173521 /usr/bin/a program\n\
            7ffd-7ffe rw-p 00000000 00:00 0 [stack]\n7f00-7f01 rw-p 00000000 00:00 0 \n";
        assert_eq!(mapped(maps).collect::<Vec<_>>(), [Path::new("/usr/bin/a program")]);
    }
}
