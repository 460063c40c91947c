//! `unjank doctor`: measures this machine's interactive paths.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use doctor::gains::{KeptFigures, in_effect};
use doctor::machine::Machine;
use doctor::{Diagnosis, PROBES, Probe, StepContext, diagnose, json, page, text};
use report::paint::Tone;
use report::paragraph::wrap;
use report::provenance::Provenance;
use setup::SetupPart;
use sys::clock::{Clock, SystemClock};

use super::new_file::NewFile;
use super::{interrupt, screen};
use crate::cli::progress::Progress;
use crate::error::{Error, FailureCategory, Verdict};

/// Measure what makes this desktop wait, and recommend remedies.
///
/// Changes nothing: its files are removed again, and settings are measured on a copy. The figures of a whole run are kept, for `unjank setup`.
/// Exits with 0 if everything fits, 1 if something misses its frame or is broken, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank doctor --only storage")]
pub(crate) struct Doctor {
    /// Run only these probes, separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// The time that one step may take, for example 8.3ms.
    #[arg(long, value_name = "TIME", value_parser = report::grade::parse_frame, default_value = "16.667ms")]
    frame: Duration,
    /// Also write a page with the picture into this file; it must not exist.
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Print one JSON document (fields: docs/doctor.md).
    #[arg(long)]
    json: bool,
}

fn names() -> clap::builder::PossibleValuesParser {
    PROBES
        .iter()
        .map(|probe| clap::builder::PossibleValue::new(probe.name()).help(probe.about()))
        .into()
}

impl Doctor {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        let page = self.output.as_deref().map(NewFile::make).transpose()?;
        let machine = machine();
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let probes: Vec<&dyn Probe> = PROBES
            .iter()
            .copied()
            .filter(|probe| {
                self.only.is_empty() || self.only.iter().any(|name| name == probe.name())
            })
            .collect();
        let progress = Progress::start();
        let tools = StepContext { clock: &clock, frame: self.frame, stop: &stop };
        let mut diagnosis = diagnose(&probes, &machine, &tools, &mut |now| {
            progress.step(&format!("{}: {}", now.probe, now.text), now.done, now.whole);
        });
        progress.end();
        let provenance = Provenance::of_this_machine(super::command_line(), clock.now());
        diagnosis.hangs = self.only.is_empty().then(super::hangs::yesterday).flatten();
        keep_figures(&mut diagnosis, &machine, &provenance.date, self.only.is_empty());
        let written = page.map(|file| file.write(&page::render(&diagnosis, &provenance)));
        self.print(&diagnosis, &provenance)?;
        written.transpose()?;
        if diagnosis.interrupted {
            return Err(Error::new(FailureCategory::User, "finish").because("interrupted"));
        }
        Ok(if diagnosis.is_bad() { Verdict::No } else { Verdict::Yes })
    }

    fn print(&self, diagnosis: &Diagnosis, provenance: &Provenance) -> Result<(), Error> {
        let output = if self.json {
            json::render(diagnosis, provenance).map_err(|error| {
                Error::new(FailureCategory::Internal, "write the document").because(error)
            })?
        } else {
            let (width, paint) = (screen::width(), screen::paint());
            let mut output = text::render(diagnosis, width, paint);
            output.push('\n');
            for line in provenance.lines() {
                output.push_str(&paint.set(Tone::Dim, wrap(&line, width, "").trim_end()));
                output.push('\n');
            }
            output
        };
        screen::tell(if self.json { screen::json() } else { screen::stdout() }, &output)
    }
}

/// Keeps the figures of this run for `unjank setup`, and says what the parts have brought that were switched on since an earlier one.
fn keep_figures(diagnosis: &mut Diagnosis, machine: &Machine, date: &str, is_whole: bool) {
    let Some(path) = super::setup::kept_path() else { return };
    let disk = store::disk::real();
    let mut kept = KeptFigures::read(&*disk, Some(&path));
    let states = super::setup::state::of_session().all().into_iter();
    let on: Vec<SetupPart> =
        states.filter(|(_, state)| state.is_on()).map(|(part, _)| part).collect();
    let on = in_effect(on, diagnosis, machine);
    kept.take(diagnosis, &on, date);
    diagnosis.gains = on.iter().flat_map(|part| kept.gains(*part)).collect();
    if is_whole && !diagnosis.interrupted {
        // A home that is full or read-only has no memory of this run, and a diagnosis is wanted there all the more.
        let _ = kept.write(&*disk, &path);
    }
}

/// Reads the session's directories and addresses from the environment.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn machine() -> Machine {
    Machine {
        program_dir: std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned())),
        catalogue: daemon::index::places::sources(None),
        uid: rustix::process::geteuid().as_raw(),
        ..Machine::of_variables(&|name| std::env::var_os(name))
    }
}
