//! `bench trace`: what a program takes while it is traced, beside what it takes by itself; ours and the tracers that a user would run instead.

pub mod exercise;
mod unexplained;
mod workload;

use report::error::chain;
use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::exercise::now_ns;
use self::workload::{Tracer, Workload};
use super::lab::{BenchError, Effort};
use super::names::TRACE;
use super::row::{FigureRow, FigureTarget};
use super::run::{BenchProgress, BenchSetting, Run};
use report::figure::Quantity;
use report::provenance::Provenance;
use report::samples::Samples;
use sys::process::MeasuredProcess;
use sys::scratch;

/// The tree that `find` walks: so many directories of so many files.
const DIRECTORIES: usize = 250;
const FILES: usize = 100;
/// How long ours may take until the traced program begins, in nanoseconds.
const START_UP: f64 = 60e6;
/// How often a wait looks whether the user wants to end.
const LOOK: Duration = Duration::from_millis(200);
/// A run that takes longer is given up.
const LONGEST: Duration = Duration::from_secs(120);

/// What the benchmark works with.
#[derive(Clone, Debug)]
pub struct Bench<'a> {
    /// `unjank`, which traces.
    pub unjank: PathBuf,
    /// The program that has `exercise`: `unjank` itself, or unjank-bench.
    pub exercise: PathBuf,
    /// The directory below which it writes.
    pub dir: PathBuf,
    /// How much is measured.
    pub effort: Effort,
    /// Set when the user wants to end.
    pub stop: &'a AtomicBool,
}

/// The names by which `--only` chooses, and what they are.
#[must_use]
pub fn workloads() -> Vec<(&'static str, &'static str)> {
    let workloads = Workload::ALL.iter().map(|workload| (workload.name(), workload.about()));
    workloads.chain([unexplained::ABOUT]).collect()
}

/// Measures the workloads in `only`, all of them if it is empty; `progress` hears of each before it begins.
pub fn measure(
    only: &[String],
    bench: &Bench<'_>,
    mut setting: BenchSetting,
    provenance: Provenance,
    progress: BenchProgress<'_>,
) -> Run {
    let chosen: Vec<Workload> = Workload::ALL
        .into_iter()
        .filter(|workload| only.is_empty() || only.iter().any(|name| name == workload.name()))
        .collect();
    let mut found = TraceFigures::default();
    let mut interrupted = false;
    // Each is a second to the one who counts: they take about as long as one another.
    let wants_unexplained = only.is_empty() || only.iter().any(|name| name == unexplained::ABOUT.0);
    let whole = chosen.len() + usize::from(wants_unexplained);
    let whole = u32::try_from(whole).unwrap_or(u32::MAX);
    for (done, workload) in (0..).zip(&chosen) {
        progress(workload.about(), done, whole);
        match bench.workload(*workload, &mut found) {
            Ok(()) => (),
            Err(_) if bench.stop.load(Ordering::Relaxed) => {
                interrupted = true;
                break;
            }
            Err(error) => found.missing.push((workload.name(), chain(&error))),
        }
    }
    if wants_unexplained && !interrupted {
        progress(unexplained::ABOUT.1, whole - 1, whole);
        match unexplained::measure(bench) {
            Ok(rows) => found.rows.extend(rows),
            Err(BenchError::Interrupted) => interrupted = true,
            Err(error) => found.missing.push((unexplained::ABOUT.0, chain(&error))),
        }
    }
    if !found.start_up.is_empty() {
        found.rows.push(FigureRow {
            id: "start-up",
            title: "unjank trace until the program begins; at most 60 ms".to_owned(),
            quantity: Quantity::Time,
            ours: found.start_up,
            peer: [START_UP].into_iter().collect(),
            target: Some(FigureTarget::AtMost(1.0)),
            note: "what the program and its wrapper take to begin is subtracted".to_owned(),
        });
    }
    setting.places.extend(found.absent);
    Run { rows: found.rows, missing: found.missing, interrupted, setting, provenance, terms: TRACE }
}

/// What has been measured so far.
#[derive(Debug, Default)]
struct TraceFigures {
    rows: Vec<FigureRow>,
    missing: Vec<(&'static str, String)>,
    /// Peers that could not be measured, and why.
    absent: Vec<String>,
    /// How long ours took to begin.
    start_up: Samples,
}

/// One run of a program.
#[derive(Clone, Copy, Debug)]
struct Timed {
    /// From the start of the tracer to the start of the program.
    before_ns: f64,
    /// From the start of the program to its end.
    own_ns: f64,
}

impl Bench<'_> {
    /// Measures a workload by itself and under each tracer, in turn.
    fn workload(&self, workload: Workload, found: &mut TraceFigures) -> Result<(), BenchError> {
        let scratch = scratch::within(&self.dir).map_err(|source| self.unprepared(source))?;
        let work = scratch.path().join("work");
        DirBuilder::new().create(&work).map_err(|source| self.unprepared(source))?;
        let tree = scratch.path().join("tree");
        if workload == Workload::Find {
            plant(&tree).map_err(|source| self.unprepared(source))?;
        }
        let command = workload.command(&self.exercise, &tree, &work);
        let once = |tracer: Option<&Tracer>| self.once(tracer, &command, scratch.path());
        // Once for the caches; a program that is not there is said now.
        once(None)?;
        let rounds = self.effort.of(11, 2);
        let mut by_itself = Vec::new();
        let tracers = workload.tracers();
        let mut traced: Vec<Result<Vec<Timed>, BenchError>> =
            tracers.iter().map(|_| Ok(Vec::new())).collect();
        for round in 0..rounds {
            by_itself.push(once(None)?);
            // Who comes first alternates, so that nobody always has the warmer caches.
            let mut order: Vec<usize> = (0..tracers.len()).collect();
            order.rotate_left(round % tracers.len().max(1));
            for at in order.into_iter().filter(|at| round.is_multiple_of(tracers[*at].slow)) {
                let Ok(times) = &mut traced[at] else { continue };
                match once(Some(&tracers[at])) {
                    Ok(timed) => times.push(timed),
                    Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                    Err(error) => traced[at] = Err(error),
                }
            }
        }
        let own = |times: &[Timed]| times.iter().map(|timed| timed.own_ns).collect::<Samples>();
        let untraced = own(&by_itself);
        let begin: Samples = by_itself.iter().map(|timed| timed.before_ns).collect();
        for (tracer, times) in tracers.iter().zip(traced) {
            let ours = tracer.most.is_some();
            match times {
                Ok(times) => {
                    if ours {
                        let before = times.iter().map(|timed| timed.before_ns - begin.median());
                        found.start_up.extend(&before.collect());
                    }
                    found.rows.push(FigureRow {
                        id: tracer.id,
                        title: format!("{}: {}", workload.name(), spoken(tracer)),
                        quantity: Quantity::Time,
                        ours: own(&times),
                        peer: untraced.clone(),
                        target: tracer.most.map(FigureTarget::AtMost),
                        note: String::new(),
                    });
                }
                Err(error) if ours => found.missing.push((tracer.id, chain(&error))),
                Err(error) => found.absent.push(format!("{}: {}", tracer.id, chain(&error))),
            }
        }
        Ok(())
    }

    /// Says whether the user wants to end.
    fn go_on(&self) -> Result<(), BenchError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(BenchError::Interrupted),
            false => Ok(()),
        }
    }

    fn unprepared(&self, source: io::Error) -> BenchError {
        BenchError::Peer {
            program: format!("anything in {}", self.dir.display()),
            cause: source.to_string(),
        }
    }

    /// Runs `command` once, under `tracer` if there is one.
    fn once(
        &self,
        tracer: Option<&Tracer>,
        command: &[OsString],
        scratch: &Path,
    ) -> Result<Timed, BenchError> {
        let times = scratch.join("times");
        // A run that failed may have left it.
        let _ = std::fs::remove_file(&times);
        let mut words: Vec<OsString> = Vec::new();
        if let Some(tracer) = tracer {
            if tracer.most.is_some() {
                words.push(self.unjank.clone().into());
            }
            words.extend(tracer.words.iter().map(OsString::from));
            words.push("--".into());
        }
        words.extend([self.exercise.clone().into(), "exercise".into(), "timed".into()]);
        words.extend([times.clone().into(), "--".into()]);
        words.extend_from_slice(command);
        let failed = |cause: String| BenchError::Peer {
            program: words[0].to_string_lossy().into_owned(),
            cause,
        };
        let complaints = scratch.join("complaints");
        let log = OpenOptions::new().write(true).create(true).truncate(true).open(&complaints);
        let log = log.map_err(|error| failed(error.to_string()))?;
        let start = now_ns();
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let ended = self.wait(child.id());
        if !matches!(ended, Ok(true)) {
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| failed(error.to_string()))?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        match ended {
            Ok(true) => (),
            Ok(false) => return Err(failed(format!("it took over {} s", LONGEST.as_secs()))),
            Err(error) => return Err(failed(error.to_string())),
        }
        let said = || {
            let text = std::fs::read(&complaints).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            text.lines().find(|line| !line.trim().is_empty()).unwrap_or("nothing").to_owned()
        };
        if !status.success() {
            return Err(failed(format!("it ended with {status} and said: {}", said())));
        }
        let text = std::fs::read_to_string(&times).map_err(|error| failed(error.to_string()))?;
        read(&text, start).ok_or_else(|| failed(format!("its times are {text:?}")))
    }

    /// Waits for a child's end; returns whether it came.
    fn wait(&self, pid: u32) -> io::Result<bool> {
        let process = MeasuredProcess::open(pid)?;
        let end = now_ns() + u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        while !process.wait(LOOK)? {
            if self.stop.load(Ordering::Relaxed) || now_ns() > end {
                // The tracer's program goes with it, or ends by itself soon.
                let _ = process.terminate();
                let _ = process.wait(LOOK * 10)?;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Reads what the wrapper wrote of a run that was started at `start`.
#[expect(clippy::cast_precision_loss, reason = "differences are far below 2^53 ns")]
fn read(text: &str, start: u64) -> Option<Timed> {
    let (begin, end) = text.trim().split_once(' ')?;
    let (begin, end): (u64, u64) = (begin.parse().ok()?, end.parse().ok()?);
    Some(Timed {
        before_ns: begin.checked_sub(start)? as f64,
        own_ns: end.checked_sub(begin)? as f64,
    })
}

/// Writes a tracer's command line shortly.
fn spoken(tracer: &Tracer) -> String {
    let mut words: Vec<&str> = if tracer.most.is_some() { vec!["unjank"] } else { Vec::new() };
    words.extend(tracer.words);
    words
        .join(" ")
        .replace(" -o /dev/null", "")
        .replace("trace=fsync,fdatasync,sync,syncfs,sync_file_range,msync", "trace=fsync…")
}

/// Makes the files that `find` finds.
fn plant(tree: &Path) -> io::Result<()> {
    DirBuilder::new().create(tree)?;
    for directory in 0..DIRECTORIES {
        let directory = tree.join(format!("directory-{directory:03}"));
        DirBuilder::new().create(&directory)?;
        for file in 0..FILES {
            let path = directory.join(format!("file-{file:03}"));
            OpenOptions::new().write(true).create_new(true).open(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_run_begin_with_its_tracer() {
        let timed = read("1500 4000\n", 1000).unwrap();
        assert_eq!((timed.before_ns, timed.own_ns), (500.0, 2500.0));
        for wrong in ["", "1500", "900 4000", "1500 1400", "a b"] {
            assert!(read(wrong, 1000).is_none(), "{wrong}");
        }
    }

    #[test]
    fn command_lines_are_shown_without_what_says_nothing() {
        let tracers = Workload::Find.tracers();
        let all: Vec<String> = tracers.iter().map(spoken).collect();
        assert_eq!(all[1], "unjank trace --backend seccomp --calls sync");
        assert_eq!(all[3], "strace -f --seccomp-bpf -T -e trace=fsync…");
    }
}
