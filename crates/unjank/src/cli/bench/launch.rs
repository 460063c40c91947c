//! `unjank bench launch`: launches under background load, a cell for each combination of scheduler, throttling and manner.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use probe::bench::launch::LaunchError;
use probe::bench::launch::background::{Background, NAMES};
use probe::bench::launch::cell::{Class, Measure, Throttling};
use probe::bench::launch::foreground::Foreground;
use probe::bench::launch::ground::Site;
use probe::bench::launch::matrix::{self, Lab, Others, Plan};
use probe::bench::launch::sample::{Record, Sample};
use probe::bench::launch::summary::Row;
use probe::bench::launch::{guardian, json, page, summary, text};
use probe::model::Profile;
use session::clock::SystemClock;

use super::super::{catalogue, interrupt, screen};
use super::{How, provenance, this_program};
use crate::error::{Error, Kind, Verdict};

/// What the guardian is called by.
pub(super) const GUARDIAN: &str = "launch-guardian";

/// Measure launches while something works in the background.
///
/// Needs root. Each launch is cold; every sample is a line of FILE.jsonl as soon as it is taken, and a run that was cut short goes on.
/// Exits with 0 if what `unjank run` promises is kept, 1 if not, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench launch --disk model:emmc --runs 10 -o launch.html")]
pub(super) struct Launch {
    /// What is launched: libreoffice, python, or a command; by default the first of them that is installed.
    #[arg(long, value_name = "CMD")]
    foreground: Option<String>,
    /// A directory or file that it needs: copied to the disk and mounted in its own place. Repeat for more.
    #[arg(long, value_name = "PATH")]
    bring: Vec<PathBuf>,
    /// What works meanwhile: flatpak, tar, cp, fsync, or a command that is run again and again. Repeat for more.
    #[arg(long, value_name = "CMD", default_values = ["flatpak", "tar"])]
    background: Vec<String>,
    /// The disk: model:emmc, model:hdd, model:sd, model:ssd, or a directory on a real one.
    #[arg(long, value_name = "DISK", default_value = "model:emmc", value_parser = site)]
    disk: Site,
    /// Schedulers, separated by commas; kept is the one that is there.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "none,mq-deadline,bfq",
        value_name = "NAME"
    )]
    schedulers: Vec<String>,
    /// Throttling of write-back, separated by commas: default, off, or a target in microseconds.
    #[arg(long, value_delimiter = ',', default_value = "default,off", value_name = "TARGET")]
    wbt: Vec<Throttling>,
    /// How the background behaves, separated by commas: plain, idle, run.
    #[arg(long, value_delimiter = ',', default_value = "plain,idle,run", value_name = "CLASS")]
    classes: Vec<Class>,
    /// What is measured, separated by commas: launch; whole, one job by itself; alone and shared, what a job writes by itself and beside launches.
    #[arg(long, value_delimiter = ',', default_value = "launch", value_name = "WHAT")]
    measure: Vec<Measure>,
    /// Samples a cell.
    #[arg(long, default_value_t = 10, value_name = "N")]
    runs: usize,
    /// Where samples are kept, and found by the next run.
    #[arg(long, default_value = "unjank-launch.jsonl", value_name = "FILE.jsonl")]
    samples: PathBuf,
    /// Measure nothing: show what was measured.
    #[arg(long)]
    show: bool,
    #[command(flatten)]
    how: How,
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
        Some(name) => Profile::named(name)
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
            Record::read(&self.samples)
                .map_err(|error| refused(error).hint("--samples FILE.jsonl says where they are"))?
        } else {
            may_measure()?;
            Record::open(&self.samples).map_err(refused)?
        };
        if !self.show {
            let stop = interrupt::flag();
            let lab = lab(&stop)?;
            let shown = screen::Progress::start();
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
                    "{} in {}; the same command goes on{shown}",
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
        let rows = summary::rows(&wanted.cloned().collect::<Vec<_>>());
        if rows.is_empty() {
            return Err(Error::new(Kind::User, "show any sample")
                .because(format!("{} has none of these cells", self.samples.display())));
        }
        let notes = self.notes(&plan, &rows, record.samples());
        let provenance = provenance(&clock);
        let written = page.map(|file| file.write(&page::render(&rows, &notes, &provenance)));
        let output = if self.how.json {
            json::render(&rows, &notes, &provenance)
                .map_err(|error| Error::new(Kind::Internal, "write the document").because(error))?
        } else {
            text::render(&rows, &notes, &provenance, screen::width(), screen::paint())
        };
        let mut stdout = if self.how.json { screen::json() } else { screen::stdout() };
        stdout.write_all(output.as_bytes())?;
        stdout.flush()?;
        written.transpose()?;
        let is_kept = rows.iter().all(|row| row.keeps() != Some(false));
        Ok(if is_kept { Verdict::Yes } else { Verdict::No })
    }

    fn plan(&self) -> Result<Plan, Error> {
        let quick = self.how.quick;
        let backgrounds: Vec<Background> =
            self.background.iter().map(|text| Background::from(text.as_str())).collect();
        if backgrounds.contains(&Background::Flatpak) && !self.show {
            installed("flatpak").ok_or_else(|| {
                let others = NAMES.iter().skip(1).copied().collect::<Vec<_>>().join(", ");
                Error::new(Kind::Config, "find flatpak")
                    .hint(format!("--background takes {others} or a command, too"))
            })?;
        }
        Ok(Plan {
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
            others: if quick { Others::LetBe } else { Others::Avoided },
        })
    }

    fn notes(&self, plan: &Plan, rows: &[Row], samples: &[Sample]) -> Vec<String> {
        let mut notes = vec![format!(
            "{} on {}, every sample in {}",
            plan.foreground.name(),
            plan.site.name(),
            self.samples.display()
        )];
        let disturbed: usize = rows.iter().map(|row| row.disturbed).sum();
        if disturbed > 0 {
            notes.push(format!(
                "other programs used more than a tenth of the processors during {}: kept, but in no figure of a cell that has calm ones",
                if disturbed == 1 { "1 launch".to_owned() } else { format!("{disturbed} launches") }
            ));
        }
        if samples.iter().any(|sample| sample.context.idle_bytes.is_none()) {
            notes.push("in which class bytes went out is told by the kernel's traces, which were not there for some samples: mount -t tracefs tracefs /sys/kernel/tracing".to_owned());
        }
        if self.how.quick {
            notes.push("a quick run: too few and too small for figures to be shown".to_owned());
        }
        notes
    }
}

/// Runs `measure` on a thread whose mounts are its own.
pub(super) fn on_its_own<T: Send>(measure: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let refused = |error| Error::new(Kind::Busy, "measure").because(error);
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
    Err(Error::new(Kind::User, "drop the kernel's caches and make a disk")
        .because("it needs root")
        .hint("run it as root, for example with sudo"))
}

/// Returns what a measurement needs.
pub(super) fn lab(stop: &AtomicBool) -> Result<Lab<'_>, Error> {
    let unjank = this_program()?.display().to_string();
    let words = |words: &[&str]| {
        std::iter::once(unjank.clone()).chain(words.iter().map(|word| (*word).to_owned())).collect()
    };
    Ok(Lab {
        guardian: words(&["bench", GUARDIAN]),
        run: words(&["run", "--"]),
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
    let cannot = |name: &str| Error::new(Kind::Config, format!("find {name}"));
    let office = || installed("soffice").map(Foreground::LibreOffice);
    let python = || installed("python3").map(Foreground::Python);
    match text {
        Some("libreoffice") => office().ok_or_else(|| cannot("soffice")),
        Some("python") => python().ok_or_else(|| cannot("python3")),
        Some(command) => Ok(Foreground::Command(command.to_owned())),
        None => office().or_else(python).ok_or_else(|| {
            cannot("soffice or python3").hint("--foreground takes any command; --bring its files")
        }),
    }
}

/// Says why nothing more was measured.
pub(super) fn refused(error: LaunchError) -> Error {
    match error {
        LaunchError::Stopped => Error::new(Kind::User, "finish").because("interrupted"),
        LaunchError::Step { step, source } => Error::new(Kind::Config, step).because(source),
        error @ LaunchError::Line { .. } => Error::new(Kind::User, "go on with these samples")
            .because(error)
            .hint("--samples takes another file; this one is left as it is"),
        error => Error::new(Kind::Config, "measure launches").because(error),
    }
}
