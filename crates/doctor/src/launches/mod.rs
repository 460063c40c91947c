//! The launches probe: the waits of the desktop's launchers when they open a document.

mod stage;

use ::report::error::chain;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use self::stage::Stage;
use super::finding::{Finding, MeasurementOutcome};
use super::machine::Machine;
use super::remedy::Remedy;
use super::{Probe, ProbeStep, StepContext};
use ::report::figure::{Quantity, duration};
use ::report::provenance::Provenance;
use ::report::samples::Samples;
use sys::process::MeasuredProcess;
use trace::backend::{self, TraceOptions, TraceTarget};
use trace::recording::{Exit, Recording};
use trace::report::schema::{CodePath, TraceMethod, TraceReport};
use trace::report::{self, build};
use trace::stack::names::SymbolSources;
use trace::symbolizer::Symbolizer;
use trace::syscall::SyscallClass;
use trace::syscall_set::Set;

const NAME: &str = "launches";
/// Launchers are looked for here; the caller's own path may hold others.
const DIRECTORIES: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// How long a launcher may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a wait looks whether the user wants to end.
const LOOK: Duration = Duration::from_millis(100);
/// How often each is measured, after once that fills its caches.
const ROUNDS: usize = 2;

/// A program that opens documents with other programs, and its arguments before the document.
const LAUNCHERS: [(&str, &[&str]); 7] = [
    ("kde-open5", &[]),
    ("kde-open", &[]),
    ("gio", &["open"]),
    ("gtk-launch", &[stage::VIEWER]),
    ("xdg-open", &[]),
    ("exo-open", &[]),
    ("mate-open", &[]),
];

/// Traces the launchers that are installed, on a home and a bus of their own.
#[derive(Debug)]
pub struct LaunchProbe;

impl Probe for LaunchProbe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "what launchers wait for when they open a document"
    }

    fn title(&self) -> &'static str {
        "Opening documents"
    }

    fn steps<'a>(&self, machine: &'a Machine) -> Vec<ProbeStep<'a>> {
        let mut found: Vec<PathBuf> = Vec::new();
        let mut steps = Vec::new();
        for (name, arguments) in LAUNCHERS {
            let Some(path) = installed(name) else { continue };
            // Two names of one program are one launcher.
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            if found.contains(&real) {
                continue;
            }
            found.push(real);
            steps.push(ProbeStep::new(format!("open a document by {name}"), 800, move |tools| {
                vec![launch(name, &path, arguments, machine, tools)]
            }));
        }
        steps
    }
}

fn installed(name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists())
}

/// Traces one launcher and says what it waited for.
fn launch(
    name: &str,
    path: &Path,
    arguments: &[&str],
    machine: &Machine,
    tools: &StepContext<'_>,
) -> Finding {
    let title = format!("waits of {name}");
    let measured = format!(
        "{} opened a page with a program that ends at once, traced, on an empty home and a private bus, without a display",
        [&[name], arguments].concat().join(" ")
    );
    let finding = |outcome| Finding::new(NAME, title.clone(), measured.clone(), outcome);
    let stage = match Stage::set(machine) {
        Ok(stage) => stage,
        Err(error) => return finding(MeasurementOutcome::Skipped(chain(&error))),
    };
    let mut times = Samples::default();
    let mut last = None;
    for round in 0..=ROUNDS {
        let report = match trace(&stage.command(path, arguments), &stage, tools) {
            Ok(report) => report,
            Err(why) => return finding(MeasurementOutcome::Skipped(why)),
        };
        // The first fills the caches that every login fills once.
        if round > 0 {
            times.push(waited_ns(&report));
        }
        last = Some(report);
        if tools.stopped() {
            break;
        }
    }
    match last {
        Some(report) if !times.is_empty() => {
            let opened = traced(name, arguments, machine);
            explained(finding(MeasurementOutcome::Time(times)), &report, opened)
        }
        _ => finding(MeasurementOutcome::Skipped("interrupted".to_owned())),
    }
}

/// Returns the code paths in which main threads stood still: neither idle waits, nor waits for children, nor the start of programs,
/// which is what a launcher is for.
fn stalls(report: &TraceReport) -> impl Iterator<Item = &CodePath> {
    let starts =
        |path: &CodePath| SyscallClass::of(report.call_name(path.call)) == SyscallClass::Process;
    let paths = report.paths.iter();
    paths.filter(move |path| path.how == TraceMethod::Stall && path.on_main > 0 && !starts(path))
}

/// Returns the time in all of those, in nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn waited_ns(report: &TraceReport) -> f64 {
    stalls(report).map(|path| path.wall_ns).sum::<u64>() as f64
}

/// Returns how to see the same on the user's own desktop: the launcher opens the home. None where it needs to be told of an application.
fn traced(name: &str, arguments: &[&str], machine: &Machine) -> Option<Remedy> {
    let document = machine.home.clone()?;
    let launcher = [&[name], arguments].concat().iter().map(|word| (*word).to_owned()).collect();
    (!arguments.contains(&stage::VIEWER)).then_some(Remedy::TraceLaunch { launcher, document })
}

/// Adds what it waited for most, and how to see the rest.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn explained(finding: Finding, report: &TraceReport, opened: Option<Remedy>) -> Finding {
    let most: Vec<String> = stalls(report)
        .take(3)
        .map(|path| {
            let time = Quantity::Time.show(path.wall_ns as f64);
            format!(
                "{} x {}{}, {time}",
                path.count,
                report.path_name(path),
                report.path_remark(path)
            )
        })
        .collect();
    if most.is_empty() {
        return finding;
    }
    let finding = finding.because(most.join("; "));
    opened.into_iter().fold(finding, Finding::remedy)
}

/// Runs a command until it ends or takes too long; why it says nothing is the error.
fn trace(
    command: &backend::ProgramToStart,
    stage: &Stage,
    tools: &StepContext<'_>,
) -> Result<TraceReport, String> {
    let calls: Set = "blocking".parse().map_err(|_| "there are no calls to watch".to_owned())?;
    let mut options = TraceOptions::new(TraceTarget::Run(command.clone()), calls);
    options.until = backend::RecordingLimit::ProgramEnded;
    let stop = Arc::new(AtomicBool::new(false));
    let outcome = std::thread::scope(|scope| {
        let (done, wait) = mpsc::channel::<()>();
        let stop = &stop;
        let watched = sys::thread::spawn_scoped(scope, "patience", move || {
            let mut left = PATIENCE;
            // Ends when the sender is dropped, the time is up or the user has had enough.
            while wait.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                left = left.saturating_sub(LOOK);
                if left.is_zero() || tools.stopped() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        });
        watched.map_err(|error| chain(&error))?;
        let outcome = backend::run(&options, stop).map_err(|error| chain(&error));
        drop(done);
        outcome
    })?;
    let timed_out = stop.load(Ordering::Relaxed);
    if timed_out {
        // An error says that it has ended.
        let _ = MeasuredProcess::open(outcome.process).and_then(|process| process.kill());
    }
    if let Some(rest) = outcome.rest {
        stage.end_all();
        let _ = rest.wait();
    }
    if tools.stopped() {
        return Err("interrupted".to_owned());
    }
    if timed_out {
        return Err(format!("it did not end within {}", duration(PATIENCE)));
    }
    let exit = outcome.recording.processes.get(&outcome.process).and_then(|process| process.exit);
    match exit {
        Some(Exit::Code(0)) => Ok(named(&outcome.recording, tools)),
        Some(Exit::Code(code)) => {
            Err(format!("it ended with status {code}, as it may without a display and a desktop"))
        }
        Some(Exit::Signal(signal)) => Err(format!("it was ended by signal {signal}")),
        None => Err("it went away".to_owned()),
    }
}

fn named(recording: &Recording, tools: &StepContext<'_>) -> TraceReport {
    let known = Symbolizer::new(recording, SymbolSources::default(), None);
    let provenance = Provenance::of_this_machine(String::new(), tools.clock.now());
    build(recording, &known, provenance, &report::ReportOptions::default())
}
