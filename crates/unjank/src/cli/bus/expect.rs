//! `unjank bus expect`: whether traffic is as rules want it, as an exit status for a test run.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use probe::bus::expect::{Outcome, Rules, SCHEMA, check};
use probe::bus::model::{Ending, Model, read};
use probe::bus::record::{Next, Options, Recorder};
use probe::report::paint::Tone;
use serde::Serialize;
use session::clock::SystemClock;

use super::buses::{Asks, Buses, told};
use super::input::open;
use crate::cli::{interrupt, screen};
use crate::error::{Error, Kind, Verdict};

/// How often it is looked whether the command has ended.
const PACE: Duration = Duration::from_millis(20);
/// A bus that is quiet for so long has told everything; it is not waited for longer than the second.
const QUIET: Duration = Duration::from_millis(150);
const PATIENCE: u32 = 30;

/// Check a command's traffic, or a record, against rules.
///
/// Exits with 0 if all are kept, 1 if one is broken, 2 on an error or if the command fails.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank bus expect -f rules.txt -- ./tests/start",
    override_usage = "unjank bus expect -f RULES [OPTIONS] -- CMD…\n       unjank bus expect -f RULES FILE"
)]
pub(super) struct Expect {
    /// The rules, a line each (docs/bus-expect.md): "called org.a.B.C within 200ms", "no errors".
    #[arg(short = 'f', long = "rules", value_name = "RULES")]
    rule_file: PathBuf,
    /// Print one JSON document (docs/bus-expect.md has its fields).
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    buses: Buses,
    /// A command after --, or a record.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD|FILE")]
    target: Vec<OsString>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    kept: bool,
    messages: usize,
    outcomes: &'a [Outcome],
}

impl Expect {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let cannot = || Error::new(Kind::User, format!("read {}", self.rule_file.display()));
        let text =
            std::fs::read_to_string(&self.rule_file).map_err(|error| cannot().because(error))?;
        let rules: Rules = text.parse().map_err(|error| cannot().because(error))?;
        let model = match &self.target[..] {
            [file] if !is_after_dashes() => {
                let capture = open(Path::new(file))?;
                read(capture.events(), |_, _, _| Ending::Continue)
            }
            _ => self.watched()?,
        };
        let outcomes = check(&rules, &model);
        let kept = outcomes.iter().all(|outcome| outcome.kept);
        let mut stdout = io::stdout().lock();
        if self.json {
            let document =
                Document { schema: SCHEMA, kept, messages: model.len(), outcomes: &outcomes };
            let text = serde_json::to_string_pretty(&document)
                .map_err(|error| Error::new(Kind::Internal, "write the document").because(error))?;
            writeln!(stdout, "{text}")?;
        } else {
            let paint = screen::paint();
            for outcome in &outcomes {
                let (word, tone) = if outcome.kept {
                    ("● kept  ", Tone::Good)
                } else {
                    ("▲ broken", Tone::Bad)
                };
                let said = format!("{}: {}", outcome.rule, outcome.found);
                writeln!(stdout, "{}  {said}", paint.set(tone, word))?;
                for example in &outcome.examples {
                    writeln!(stdout, "            {example}")?;
                }
            }
        }
        stdout.flush()?;
        Ok(if kept { Verdict::Yes } else { Verdict::No })
    }

    /// Runs the command and takes in what happens on the bus meanwhile.
    fn watched(&self) -> Result<Model, Error> {
        let sources = self.buses.watch(Asks::First)?;
        let mut command = Command::new(&self.target[0]);
        command.args(&self.target[1..]);
        // Who watches one bus by its address wants the command to be on it.
        if let [source] = &sources[..]
            && source.bus.name.is_empty()
        {
            command.env("DBUS_SESSION_BUS_ADDRESS", &source.bus.address);
        }
        let clock = Arc::new(SystemClock::start());
        let recorder = Recorder::start(sources, &Options::default(), clock).map_err(told)?;
        let stop = interrupt::flag();
        let name = self.target[0].display();
        let mut child = command
            .spawn()
            .map_err(|error| Error::new(Kind::User, format!("run {name}")).because(error))?;
        let mut model = Model::default();
        let take = |model: &mut Model, patience| match recorder.next(patience) {
            Next::Batch(batch) => {
                for event in batch.events() {
                    model.take(&event);
                }
                Some(true)
            }
            Next::Quiet => Some(false),
            Next::Over => None,
        };
        let status = loop {
            if let Some(status) =
                child.try_wait().map_err(|error| cannot_check(&name).because(error))?
            {
                break status;
            }
            if take(&mut model, PACE).is_none() {
                // The bus has ended, perhaps because the command ends it; the command may go on.
                break child.wait().map_err(|error| cannot_check(&name).because(error))?;
            }
        };
        let mut rounds = 0;
        while rounds < PATIENCE && take(&mut model, QUIET) == Some(true) {
            rounds += 1;
        }
        recorder.stop();
        while take(&mut model, QUIET) == Some(true) {}
        if stop.load(Ordering::Relaxed) {
            return Err(cannot_check(&name).because("interrupted"));
        }
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(model),
            (Some(code), _) => {
                Err(cannot_check(&name).because(format!("it failed with status {code}")))
            }
            (None, signal) => Err(cannot_check(&name)
                .because(format!("it was ended by signal {}", signal.unwrap_or_default()))),
        }
    }
}

fn cannot_check(name: &impl std::fmt::Display) -> Error {
    Error::new(Kind::User, format!("check {name}"))
}

/// Says whether what was typed has `--` in it: what follows is a command then, whatever it is called.
fn is_after_dashes() -> bool {
    std::env::args_os().any(|argument| argument == OsStr::new("--"))
}
