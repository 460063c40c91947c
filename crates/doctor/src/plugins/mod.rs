//! The plugins probe: the number of plugins and desktop files, the time of a query, and outdated caches.

mod caches;
mod ksycoca;

use report::error::chain;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use catalogue::index::Index;
use catalogue::index::build::{Built, CheckDepth, build};
use catalogue::index::opener::Openers;
use catalogue::index::sources::IndexSources;

use super::finding::{Finding, MeasurementOutcome};
use super::machine::Machine;
use super::{Probe, ProbeStep, StepContext};
use report::figure::duration;
use report::samples::Samples;
use sys::scratch::{self, TempDir};

const NAME: &str = "plugins";
/// How often each is asked, after once that fills its caches.
const ROUNDS: usize = 5;
/// Types of which one has a default on any desktop.
const TYPES: [&str; 4] = ["inode/directory", "text/html", "text/plain", "image/png"];
/// How long all programs together may take.
const BUDGET: Duration = Duration::from_secs(2);

/// Looks at plugins, applications and the caches of them.
#[derive(Debug)]
pub struct Plugins;

impl Probe for Plugins {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "queries for plugins and applications, and outdated caches"
    }

    fn title(&self) -> &'static str {
        "Plugins and applications"
    }

    fn steps<'a>(&self, machine: &'a Machine) -> Vec<ProbeStep<'a>> {
        vec![
            ProbeStep::new("read plugins and desktop files", 100, move |tools| {
                read(machine, tools)
            }),
            ProbeStep::new("look at the caches of plugins", 100, move |_| {
                let mut findings = ksycoca::look(machine);
                findings.extend(caches::openers(machine));
                findings.extend(caches::modules(&machine.catalogue.gio_dirs));
                findings
            }),
            ProbeStep::new("ask for an application", 1000, move |tools| ask(machine, tools)),
        ]
    }
}

/// Reads everything once, as a program does that has no cache, without writing an index.
fn read(machine: &Machine, tools: &StepContext<'_>) -> Vec<Finding> {
    let (took, built) = tools.time(|| build(&machine.catalogue, None, CheckDepth::Files));
    let measured = "every plugin's metadata and every desktop file was read, as an index is made";
    let finding = |outcome| Finding::new(NAME, "plugins and applications", measured, outcome);
    let Built { plugins, applications, faults, image, .. } = match built {
        Ok(built) => built,
        Err(error) => return vec![finding(MeasurementOutcome::Skipped(chain(&error)))],
    };
    let note = format!(
        "{plugins} plugins and {applications} desktop files, read in {}",
        duration(Duration::from_nanos(nanos(took)))
    );
    let mut findings = vec![finding(MeasurementOutcome::Note(note))];
    for (path, reason) in faults.iter().take(5) {
        let outcome = MeasurementOutcome::Note(format!("cannot be used: {reason}"));
        findings.push(Finding::new(NAME, machine.short(path), measured, outcome));
    }
    if let Ok(index) = Index::from_bytes(image) {
        findings.extend(question(machine, &index, tools));
    }
    findings
}

/// Asks an index for a default application.
fn question(machine: &Machine, index: &Index, tools: &StepContext<'_>) -> Option<Finding> {
    let mime_type = asked_type(&machine.catalogue, index)?;
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        let openers = Openers::new(index, &machine.catalogue.places.path);
        let (took, _) = tools.time(|| std::hint::black_box(openers.default_for(mime_type)));
        samples.push(took);
    }
    let name = "ask our index what opens a file";
    let measured = format!("{mime_type} was asked in this process, with an index in memory");
    Some(Finding::new(NAME, name, measured, MeasurementOutcome::Time(samples)).compared())
}

/// Returns a type that an application opens.
fn asked_type(sources: &IndexSources, index: &Index) -> Option<&'static str> {
    let openers = Openers::new(index, &sources.places.path);
    TYPES.into_iter().find(|mime_type| openers.default_for(mime_type).is_some())
}

/// Asks the programs that are installed, ours beside them; their caches are made in a directory of our own.
fn ask(machine: &Machine, tools: &StepContext<'_>) -> Vec<Finding> {
    let skipped = |name: &str, why: String| {
        vec![Finding::new(NAME, name, "", MeasurementOutcome::Skipped(why))]
    };
    let index = build(&machine.catalogue, None, CheckDepth::Files).map(|built| built.image);
    let mime_type = index
        .ok()
        .and_then(|image| Index::from_bytes(image).ok())
        .and_then(|index| asked_type(&machine.catalogue, &index));
    let Some(mime_type) = mime_type else {
        return skipped("ask for an application", "no application opens anything usual".to_owned());
    };
    let scratch = match scratch::within(&machine.temp_dir) {
        Ok(scratch) => scratch,
        Err(error) => return skipped("ask for an application", error.to_string()),
    };
    let ours = machine.program_dir.as_ref().map(|dir| dir.join("unjank"));
    let mut programs = vec![
        (Path::new("/usr/bin/gio").to_owned(), vec!["mime", mime_type]),
        (
            Path::new("/usr/bin/ktraderclient5").to_owned(),
            vec!["--mimetype", mime_type, "--servicetype", "Application"],
        ),
        (Path::new("/usr/bin/xdg-mime").to_owned(), vec!["query", "default", mime_type]),
    ];
    if let Some(ours) = ours {
        programs.insert(0, (ours, vec!["apps", "default", mime_type]));
    }
    let start = tools.clock.monotonic();
    let mut findings = Vec::new();
    for (program, arguments) in programs.iter().filter(|(program, _)| program.exists()) {
        if tools.stopped() || tools.spent(start, BUDGET) {
            break;
        }
        let finding = asked(program, arguments, &scratch, tools);
        // What a desktop itself asks when something is opened is measured by opening it.
        findings.push(finding.compared());
    }
    findings
}

/// Runs a program that answers what opens a file, several times.
fn asked(
    program: &Path,
    arguments: &[&str],
    scratch: &TempDir,
    tools: &StepContext<'_>,
) -> Finding {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let words = [&[&*name], arguments].concat().join(" ");
    let measured =
        format!("{words}, the whole process, {ROUNDS} times after one that fills its caches");
    let mut samples = Samples::default();
    for round in 0..=ROUNDS {
        let mut command = Command::new(program);
        command.args(arguments).env("XDG_CACHE_HOME", scratch.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (took, status) = tools.time(|| command.status());
        match status {
            Ok(status) if status.success() && round > 0 => samples.push(took),
            Ok(status) if status.success() => {}
            Ok(status) => {
                let outcome = MeasurementOutcome::Skipped(format!("it ended with {status}"));
                return Finding::new(NAME, format!("ask {name}"), measured, outcome);
            }
            Err(error) => {
                let outcome = MeasurementOutcome::Skipped(error.to_string());
                return Finding::new(NAME, format!("ask {name}"), measured, outcome);
            }
        }
        if tools.stopped() {
            break;
        }
    }
    Finding::new(
        NAME,
        format!("ask {name} what opens a file"),
        measured,
        MeasurementOutcome::Time(samples),
    )
}

/// Returns a number of nanoseconds without its fraction.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times of a second")]
fn nanos(time: f64) -> u64 {
    time.max(0.0) as u64
}
