//! `unjank trace show`, `import` and `compare`: reports that exist already.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use check::compare;
use clap::Args;
use trace::report::{self, data, text};
use views::{ReportBrowser, Screen};

use super::options::{Output, provenance, read, report_options};
use crate::cli::new_file::NewFile;
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// Browse a report on a terminal, or print it on a pipe.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank trace show report.html")]
pub(super) struct Show {
    /// Print the summary on a terminal, too.
    #[arg(long, conflicts_with = "json")]
    text: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// The report; - for stdin.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Show {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let report = read(&self.file)?;
        if !self.text && !self.json && screen::is_addressable() {
            // A terminal that cannot be set up, for example because nobody can type, still takes text.
            if let Ok(terminal) = Screen::enter(screen::charset()) {
                return terminal
                    .show_report(&mut ReportBrowser::new(&report, screen::paint()))
                    .map(|()| Verdict::Yes)
                    .map_err(|error| {
                        Error::new(FailureCategory::Config, "use the terminal").because(error)
                    });
            }
        }
        let output = if self.json {
            data::to_json(&report).map_err(|error| {
                Error::new(FailureCategory::Internal, "write the report").because(error)
            })?
        } else {
            text::render(&report, screen::width(), screen::paint())
        };
        let mut stdout = if self.json { screen::json() } else { screen::stdout() };
        stdout.write_all(output.as_bytes())?;
        stdout.flush()?;
        Ok(Verdict::Yes)
    }
}

/// Compare two reports, by call and by code path.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank trace compare before.html after.html")]
pub(super) struct Compare {
    /// Also write a page with pictures into this file; it must not exist.
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Print one JSON document (fields: docs/trace.md).
    #[arg(long)]
    json: bool,
    /// The report from before.
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The report from after.
    #[arg(value_name = "B")]
    after: PathBuf,
}

impl Compare {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let page = self.output.as_deref().map(NewFile::make).transpose()?;
        let comparison = compare::compare(&read(&self.before)?, &read(&self.after)?);
        if let Some(file) = page {
            file.write(&compare::page(&comparison, &provenance()))?;
        }
        let output = if self.json {
            serde_json::to_string_pretty(&comparison).map(|text| text + "\n").map_err(|error| {
                Error::new(FailureCategory::Internal, "write the document").because(error)
            })?
        } else {
            compare::text(&comparison, screen::width(), screen::paint())
        };
        let mut stdout = if self.json { screen::json() } else { screen::stdout() };
        stdout.write_all(output.as_bytes())?;
        stdout.flush()?;
        Ok(Verdict::Yes)
    }
}

/// Convert a log of strace -f -T -tt -k -o LOG into a report.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank trace import -o report.html strace.log")]
pub(super) struct Import {
    /// Keep calls of at least this length individually.
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = ::report::duration::parse)]
    threshold: Duration,
    #[command(flatten)]
    output: Output,
    /// The log; - for stdin.
    #[arg(value_name = "LOG")]
    file: PathBuf,
}

impl Import {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let cannot =
            || Error::new(FailureCategory::User, format!("import {}", self.file.display()));
        let log = if self.file.as_os_str() == "-" {
            let mut log = Vec::new();
            io::Read::read_to_end(&mut io::stdin().lock(), &mut log).map(|_| log)
        } else {
            std::fs::read(&self.file)
        };
        let log = log.map_err(|error| cannot().because(error))?;
        let opened = self.output.open()?;
        let threshold = u64::try_from(self.threshold.as_nanos()).unwrap_or(u64::MAX);
        let log = strace::read(&log, threshold).map_err(|error| {
            cannot().because(error).hint("write a log with: strace -f -T -tt -k -o LOG CMD")
        })?;
        opened.write(&report::build(
            &log.recording,
            &log.names,
            provenance(),
            &report_options(),
        ))?;
        Ok(Verdict::Yes)
    }
}
