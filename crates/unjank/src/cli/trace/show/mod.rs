//! `unjank trace show`, `import` and `compare`: reports that exist already.

mod browser;
mod draw;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use probe::trace::report::{self, data, text};
use probe::trace::{compare, import};

use self::browser::Browser;
use super::options::{Output, provenance, read, report_options};
use crate::cli::moment::duration;
use crate::cli::new_file::NewFile;
use crate::cli::screen;
use crate::cli::terminal::Screen;
use crate::error::{Error, Kind, Verdict};

/// Show a report: browse it on a terminal, print it elsewhere.
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
            if let Ok(terminal) = Screen::enter() {
                return terminal
                    .show(&mut Browser::new(&report, screen::paint()))
                    .map(|()| Verdict::Yes)
                    .map_err(|error| Error::new(Kind::Config, "use the terminal").because(error));
            }
        }
        let output = if self.json {
            data::to_json(&report)
                .map_err(|error| Error::new(Kind::Internal, "write the report").because(error))?
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
    /// Print one JSON document (docs/trace.md has its fields).
    #[arg(long)]
    json: bool,
    /// The report of before.
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The report of after.
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
            serde_json::to_string_pretty(&comparison)
                .map(|text| text + "\n")
                .map_err(|error| Error::new(Kind::Internal, "write the document").because(error))?
        } else {
            compare::text(&comparison, screen::width(), screen::paint())
        };
        let mut stdout = if self.json { screen::json() } else { screen::stdout() };
        stdout.write_all(output.as_bytes())?;
        stdout.flush()?;
        Ok(Verdict::Yes)
    }
}

/// Make a report of a log of strace -f -T -tt -k -o LOG.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank trace import -o report.html strace.log")]
pub(super) struct Import {
    /// Calls at least this long are kept one by one.
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = duration)]
    threshold: Duration,
    #[command(flatten)]
    output: Output,
    /// The log; - for stdin.
    #[arg(value_name = "LOG")]
    file: PathBuf,
}

impl Import {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let cannot = || Error::new(Kind::User, format!("import {}", self.file.display()));
        let log = if self.file.as_os_str() == "-" {
            let mut log = Vec::new();
            io::Read::read_to_end(&mut io::stdin().lock(), &mut log).map(|_| log)
        } else {
            std::fs::read(&self.file)
        };
        let log = log.map_err(|error| cannot().because(error))?;
        let opened = self.output.open()?;
        let threshold = u64::try_from(self.threshold.as_nanos()).unwrap_or(u64::MAX);
        let log = import::strace(&log, threshold).map_err(|error| {
            cannot().because(error).hint("strace -f -T -tt -k -o LOG CMD writes one")
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
