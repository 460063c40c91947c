//! `unjank bench impact`: how much a command delays launches beside it, on three kinds of disks.

use report::quoting::quoted;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use bench::launch::cell::LoadClass;
use bench::launch::impact::{self, DISKS};
use bench::launch::matrix::OtherPrograms;
use bench::launch::sample::SampleFile;
use clap::Args;
use sys::clock::SystemClock;

use super::super::{interrupt, screen};
use super::launch::{SIZE, foreground, lab, may_measure, on_its_own, refused};
use super::provenance;
use crate::cli::progress::Progress;
use crate::error::{Error, FailureCategory, Verdict};

/// Score a command by how much it slows down launches, on three model disks.
///
/// Needs root. The command runs repeatedly in an empty directory on the disk, which is below its $HOME. The score is the p95 of cold launches beside it to their median without it, on the worst disk.
/// Exits with 0 if the score is within the limit, 1 if not, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bench impact --limit 2 -- tar xf ~/app.tar")]
pub(super) struct Impact {
    /// The highest score that is accepted.
    #[arg(long, default_value_t = 1.5, value_name = "RATIO")]
    limit: f64,
    /// Launches on each disk, with and without the command.
    #[arg(long, default_value_t = 10, value_name = "N")]
    runs: usize,
    /// The class of the command: plain, idle, run.
    #[arg(long, default_value = "plain", value_name = "CLASS")]
    class: LoadClass,
    /// The program to launch: libreoffice, python, or a command.
    #[arg(long, value_name = "CMD")]
    foreground: Option<String>,
    /// Copy this directory or file to the disk and mount the copy over the original. May be repeated.
    #[arg(long, value_name = "PATH")]
    bring: Vec<PathBuf>,
    /// Append samples to this file, and reuse those in it.
    #[arg(long, value_name = "FILE.jsonl")]
    samples: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// The command.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

impl Impact {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let clock = SystemClock::start();
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        let command = match &self.command[..] {
            // One word may be a line for a shell.
            [line] => line.clone(),
            _ => words.join(" "),
        };
        may_measure()?;
        let mut record = match &self.samples {
            Some(path) => SampleFile::open(path).map_err(refused)?,
            None => SampleFile::forgotten(),
        };
        let wanted = impact::Impact {
            command: command.clone(),
            class: self.class,
            foreground: foreground(self.foreground.as_deref())?,
            bring: self.bring,
            runs: self.runs.max(1),
            size: SIZE,
            // Of one or two launches nobody asks how far they spread.
            others: if self.runs < 3 { OtherPrograms::LetBe } else { OtherPrograms::Avoided },
        };
        let stop = interrupt::flag();
        let lab = lab(&stop)?;
        let shown = Progress::start();
        let seconds = |number: u32| Duration::from_secs(number.into());
        let scores = on_its_own(|| {
            let mut say = |what: &str, done, whole| shown.step(what, seconds(done), seconds(whole));
            wanted.measure(&mut record, &lab, &mut say)
        });
        shown.end();
        let scores = scores?.map_err(refused)?;
        if scores.len() < DISKS.len() {
            return Err(Error::new(FailureCategory::Internal, "measure on all disks"));
        }
        let score = impact::score(&scores);
        let output = if self.json {
            let text = impact::json(&command, &scores, self.limit, &provenance(&clock));
            text.map_err(|error| {
                Error::new(FailureCategory::Internal, "write the document").because(error)
            })?
        } else {
            let (width, paint) = (screen::width(), screen::paint());
            impact::render(&command, &scores, self.limit, &provenance(&clock), width, paint)
        };
        let mut stdout = if self.json { screen::json() } else { screen::stdout() };
        stdout.write_all(output.as_bytes())?;
        stdout.flush()?;
        Ok(if score <= self.limit { Verdict::Yes } else { Verdict::No })
    }
}
