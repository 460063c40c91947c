//! `unjank bus why`: what a program waited for.

use std::io::Write;

use capture::model::Ending;
use capture::why::{self, SCHEMA, WaitReport};
use clap::Args;
use serde::Serialize;

use super::input::open;
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// List what a program waited for: unanswered calls, services that did not start, silence, late replies.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bus why org.gnome.Nautilus session.pcapng")]
pub(super) struct Why {
    /// Print one JSON document (fields: docs/bus.md).
    #[arg(long)]
    json: bool,
    /// The program: a name on the bus, an application or a program, with * and ?.
    #[arg(value_name = "APP")]
    app: String,
    /// A recording of unjank, dbus-monitor or busctl; - for stdin.
    #[arg(value_name = "FILE")]
    file: std::path::PathBuf,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    app: &'a str,
    #[serde(flatten)]
    findings: &'a WaitReport,
}

impl Why {
    /// Exits with 0 if the program is in the record, with 1 if it is not.
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let capture = open(&self.file)?;
        let model = capture::model::read(capture.events(), |_, _, _| Ending::Continue);
        let findings = why::explain(&model, &self.app);
        if self.json {
            let document = Document { schema: SCHEMA, app: &self.app, findings: &findings };
            let text = serde_json::to_string_pretty(&document).map_err(|error| {
                Error::new(FailureCategory::Internal, "write the document").because(error)
            })?;
            let mut stdout = screen::json();
            stdout.write_all((text + "\n").as_bytes())?;
            stdout.flush()?;
        } else {
            let mut stdout = screen::stdout();
            stdout.write_all(why::render(&findings, &self.app).as_bytes())?;
            stdout.flush()?;
        }
        Ok(if findings.callers.is_empty() { Verdict::No } else { Verdict::Yes })
    }
}
