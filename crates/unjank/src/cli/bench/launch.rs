//! `unjank bench launch`: launches under background load, a cell for each combination of scheduler, throttling and manner.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::launch::LaunchError;
use bench::launch::background::{BackgroundLoad, NAMES};
use bench::launch::cell::{LoadClass, Measure, Throttling};
use bench::launch::foreground::Foreground;
use bench::launch::ground::Site;
use bench::launch::matrix::{self, Lab, MatrixPlan, OtherPrograms};
use bench::launch::sample::SampleFile;
use bench::launch::{guardian, json, page, summary, text};
use bench::row::Reached;
use clap::Args;
use slowdisk::DiskProfile;
use sys::clock::SystemClock;

use super::super::{catalogue, interrupt, screen};
use super::{BenchOptions, itself, provenance, this_program};
use crate::cli::progress::Progress;
use crate::error::{Error, FailureCategory, Verdict};

/// What the guardian is called by.
pub(super) const GUARDIAN: &str = "launch-guardian";

/// Measure program launches while another program works in the background.
///
/// Needs root. Each launch is cold. Every sample is written to FILE.jsonl at once, so an interrupted run can be resumed.
/// Exits with 0 if the targets of `unjank run` are reached, 1 if not, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench launch --disk model:emmc --runs 10 -o launch.html")]
pub(super) struct Launch {
    /// The program to launch: libreoffice, python, or a command; by default the first that is installed.
    #[arg(long, value_name = "CMD")]
    foreground: Option<String>,
    /// Copy this directory or file to the disk and mount the copy over the original. May be repeated.
    #[arg(long, value_name = "PATH")]
    bring: Vec<PathBuf>,
    /// The background: flatpak, tar, cp, fsync, or a command to repeat. May be repeated.
    #[arg(long, value_name = "CMD", default_values = ["flatpak", "tar"])]
    background: Vec<String>,
    /// The disk: model:emmc, model:hdd, model:sd, model:ssd, or a directory on a real one.
    #[arg(long, value_name = "DISK", default_value = "model:emmc", value_parser = site)]
    disk: Site,
    /// Schedulers, separated by commas; kept leaves the scheduler unchanged.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "none,mq-deadline,bfq",
        value_name = "NAME"
    )]
    schedulers: Vec<String>,
    /// Write-back throttling, separated by commas: default, off, or a target in microseconds.
    #[arg(long, value_delimiter = ',', default_value = "default,off", value_name = "TARGET")]
    wbt: Vec<Throttling>,
    /// Classes of the background, separated by commas: plain, idle, run.
    #[arg(long, value_delimiter = ',', default_value = "plain,idle,run", value_name = "CLASS")]
    classes: Vec<LoadClass>,
    /// Measurements, separated by commas: launch; whole, the time of one job alone; alone and shared, its write rate alone and beside launches.
    #[arg(long, value_delimiter = ',', default_value = "launch", value_name = "WHAT")]
    measure: Vec<Measure>,
    /// Samples a cell.
    #[arg(long, default_value_t = 10, value_name = "N")]
    runs: usize,
    /// The file of the samples, which the next run reuses.
    #[arg(long, default_value = "unjank-launch.jsonl", value_name = "FILE.jsonl")]
    samples: PathBuf,
    /// Show the results so far without measuring.
    #[arg(long)]
    show: bool,
    #[command(flatten)]
    how: BenchOptions,
}

/// Be the guardian of a measurement.
#[derive(Debug, Args)]
pub(super) struct Watch {}

impl Watch {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        guardian::guard(io::stdin().lock());
        Ok(Verdict::Yes)
    }
}

/// Reads the name of a disk.
fn site(text: &str) -> Result<Site, String> {
    match text.strip_prefix("model:") {
        Some(name) => DiskProfile::named(name)
            .map(|profile| Site::Model(profile, SIZE))
            .ok_or_else(|| "the models are emmc, hdd, sd and ssd".to_owned()),
        None => {
            let path = Path::new(text).canonicalize().map_err(|error| error.to_string())?;
            Ok(Site::Directory(path))
        }
    }
}

/// The size of a model disk; only what is written takes memory.
pub(super) const SIZE: u64 = 4 << 30;
/// What the built-in backgrounds install, unpack and copy.
const JOB: usize = 190_000_000;

impl Launch {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let clock = SystemClock::start();
        let page = self.how.page()?;
        let plan = self.plan()?;
        let mut record = if self.show {
            SampleFile::read(&self.samples).map_err(|error| {
                refused(error).hint("give the file of the samples with --samples FILE.jsonl")
            })?
        } else {
            may_measure()?;
            SampleFile::open(&self.samples).map_err(refused)?
        };
        if !self.show {
            let stop = interrupt::flag();
            let lab = lab(&stop)?;
            let shown = Progress::start();
            let seconds = |number: u32| Duration::from_secs(number.into());
            let measured = on_its_own(|| {
                let mut say = |what: &str, done, whole| {
                    shown.step(what, seconds(done), seconds(whole));
                };
                matrix::measure(&plan, &mut record, &lab, &mut say)
            });
            shown.end();
            measured?.map_err(|error| {
                let kept = record.samples().len();
                let shown = if kept > 0 { ", and with --show shows them" } else { "" };
                refused(error).hint(format!(
                    "{} in {}; the same command resumes{shown}",
                    match kept {
                        1 => "1 sample is".to_owned(),
                        kept => format!("{kept} samples are"),
                    },
                    self.samples.display()
                ))
            })?;
        }
        let cells = plan.cells();
        let wanted = record.samples().iter().filter(|sample| cells.contains(&sample.cell));
        let rows = summary::rows(&wanted.cloned().collect::<Vec<_>>(), self.how.effort());
        if rows.is_empty() {
            return Err(Error::new(FailureCategory::User, "show any sample")
                .because(format!("{} contains none of these cells", self.samples.display())));
        }
        let mut notes = vec![format!(
            "{} on {}, every sample in {}",
            plan.foreground.name(),
            plan.site.name(),
            self.samples.display()
        )];
        notes.extend(summary::notes(&rows, record.samples()));
        if self.how.quick {
            notes.push("a quick run: too few and too small for figures to be shown".to_owned());
        }
        let provenance = provenance(&clock);
        let written = page.map(|file| file.write(&page::render(&rows, &notes, &provenance)));
        let output = if self.how.json {
            json::render(&rows, &notes, &provenance).map_err(|error| {
                Error::new(FailureCategory::Internal, "write the document").because(error)
            })?
        } else {
            text::render(&rows, &notes, &provenance, screen::width(), screen::paint())
        };
        let mut stdout = if self.how.json { screen::json() } else { screen::stdout() };
        stdout.write_all(output.as_bytes())?;
        stdout.flush()?;
        written.transpose()?;
        let is_kept = rows.iter().all(|row| row.reached() != Reached::FallsShort);
        Ok(if is_kept { Verdict::Yes } else { Verdict::No })
    }

    fn plan(&self) -> Result<MatrixPlan, Error> {
        let quick = self.how.quick;
        let backgrounds: Vec<BackgroundLoad> =
            self.background.iter().map(|text| BackgroundLoad::from(text.as_str())).collect();
        if backgrounds.contains(&BackgroundLoad::Flatpak) && !self.show {
            installed("flatpak").ok_or_else(|| {
                let others = NAMES.iter().skip(1).copied().collect::<Vec<_>>().join(", ");
                Error::new(FailureCategory::Config, "find flatpak")
                    .hint(format!("use --background with {others} or a command"))
            })?;
        }
        Ok(MatrixPlan {
            site: self.disk.clone(),
            measures: self.measure.clone(),
            schedulers: self.schedulers.clone(),
            throttlings: self.wbt.clone(),
            backgrounds,
            classes: self.classes.clone(),
            foreground: foreground(self.foreground.as_deref())?,
            bring: self.bring.clone(),
            runs: if quick { self.runs.min(2) } else { self.runs },
            burst: 5,
            size: if quick { JOB / 10 } else { JOB },
            window: Duration::from_secs(if quick { 5 } else { 40 }),
            others: if quick { OtherPrograms::LetBe } else { OtherPrograms::Avoided },
        })
    }
}

/// Runs `measure` on a thread whose mounts are its own.
pub(super) fn on_its_own<T: Send>(measure: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let refused = |error| Error::new(FailureCategory::Busy, "measure").because(error);
    std::thread::scope(|scope| {
        let measured = sys::thread::spawn_scoped(scope, "measurement", measure).map_err(refused)?;
        measured.join().map_or_else(|panic| std::panic::resume_unwind(panic), Ok)
    })
}

/// Says what who measures lacks.
pub(super) fn may_measure() -> Result<(), Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::new(FailureCategory::User, "drop the kernel's caches and make a disk")
        .because("it needs root")
        .hint("run this command as root, for example with sudo"))
}

/// Returns what a measurement needs.
pub(super) fn lab(stop: &AtomicBool) -> Result<Lab<'_>, Error> {
    Ok(Lab {
        guardian: vec![itself()?.display().to_string(), "bench".to_owned(), GUARDIAN.to_owned()],
        run: vec![this_program()?.display().to_string(), "run".to_owned(), "--".to_owned()],
        temporary: std::env::temp_dir(),
        tracefs: "/sys/kernel/tracing".into(),
        clock: Arc::new(SystemClock::start()),
        stop,
    })
}

/// Finds a program as a shell does.
fn installed(name: &str) -> Option<PathBuf> {
    let path = catalogue::program_path();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Returns what `text` says is launched.
pub(super) fn foreground(text: Option<&str>) -> Result<Foreground, Error> {
    let cannot = |name: &str| Error::new(FailureCategory::Config, format!("find {name}"));
    let office = || installed("soffice").map(Foreground::LibreOffice);
    let python = || installed("python3").map(Foreground::Python);
    match text {
        Some("libreoffice") => office().ok_or_else(|| cannot("soffice")),
        Some("python") => python().ok_or_else(|| cannot("python3")),
        Some(command) => Ok(Foreground::Command(command.to_owned())),
        None => office().or_else(python).ok_or_else(|| {
            cannot("soffice or python3")
                .hint("give another command with --foreground, and its files with --bring")
        }),
    }
}

/// Says why nothing more was measured.
pub(super) fn refused(error: LaunchError) -> Error {
    match error {
        LaunchError::Stopped => Error::new(FailureCategory::User, "finish").because("interrupted"),
        LaunchError::Step { step, source } => {
            Error::new(FailureCategory::Config, step).because(source)
        }
        error @ LaunchError::Line { .. } => {
            Error::new(FailureCategory::User, "resume with these samples")
                .because(error)
                .hint("give another file with --samples; this one was not changed")
        }
        error => Error::new(FailureCategory::Config, "measure launches").because(error),
    }
}
