//! `unjank bus stats`: the figures of a capture.

use std::io::Write;

use capture::stats::{self, SCHEMA, Stats as Figures};
use clap::Args;
use serde::Serialize;

use super::input::Input;
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// Print counts, latencies, sizes, errors and wake-ups.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bus stats session.pcapng --filter from:org.kde.kded5")]
pub(super) struct Stats {
    /// Print one JSON document (fields: docs/bus.md).
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: Input,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    verdict: String,
    #[serde(flatten)]
    stats: &'a Figures,
}

impl Stats {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let model = self.input.model(|_, _| ())?;
        let stats = stats::collect(&model, self.input.filter());
        let output = if self.json {
            let document =
                Document { schema: SCHEMA, verdict: stats::verdict(&stats), stats: &stats };
            let text = serde_json::to_string_pretty(&document).map_err(|error| {
                Error::new(FailureCategory::Internal, "write the document").because(error)
            })?;
            text + "\n"
        } else {
            stats::render(&stats, screen::width(), screen::paint())
        };
        let mut stdout = if self.json { screen::json() } else { screen::stdout() };
        stdout.write_all(output.as_bytes())?;
        stdout.flush()?;
        Ok(Verdict::Yes)
    }
}
