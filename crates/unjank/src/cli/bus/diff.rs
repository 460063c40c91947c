//! `unjank bus diff`: what differs between two captures.

use std::path::{Path, PathBuf};

use capture::diff::{self, Diff as Differences, SCHEMA};
use capture::filter::Filter;
use capture::model::{Ending, read};
use capture::stats::{self, Stats};
use clap::Args;
use serde::Serialize;

use super::input::{filter, open};
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// Compare two captures: members that are new, gone or slower.
///
/// A member counts as slower if the difference is not chance (see docs/bus.md).
/// Exits with 0 if nothing is new, gone, slower or louder, 1 if something is, 2 on an error, or if nothing differs in recordings
/// that are incomplete.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bus diff before.pcapng after.pcapng")]
pub(super) struct Diff {
    /// Select only matching messages.
    #[arg(short, long, value_name = "EXPRESSION", value_parser = filter, default_value = "", hide_default_value = true)]
    filter: Filter,
    /// Print one JSON document (fields: docs/bus.md).
    #[arg(long)]
    json: bool,
    /// The recording from before.
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The recording from after.
    #[arg(value_name = "B")]
    after: PathBuf,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    diff: &'a Differences,
}

impl Diff {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let (before, after) = (self.stats(&self.before)?, self.stats(&self.after)?);
        let found = diff::diff(&before, &after);
        let output = if self.json {
            let document = Document { schema: SCHEMA, diff: &found };
            let text = serde_json::to_string_pretty(&document).map_err(|error| {
                Error::new(FailureCategory::Internal, "write the document").because(error)
            })?;
            text + "\n"
        } else {
            diff::render(&found, &before, &after, screen::width(), screen::paint())
        };
        screen::tell(if self.json { screen::json() } else { screen::stdout() }, &output)?;
        if !found.is_same() {
            return Ok(Verdict::No);
        }
        let Some(doubt) = found.doubt() else { return Ok(Verdict::Yes) };
        let files = format!("{} and {}", self.before.display(), self.after.display());
        Err(Error::new(FailureCategory::User, format!("compare {files}")).because(doubt))
    }

    fn stats(&self, path: &Path) -> Result<Stats, Error> {
        let capture = open(path)?;
        let model = read(capture.events(), |_, _, _| Ending::Continue);
        Ok(stats::collect(&model, &self.filter))
    }
}
