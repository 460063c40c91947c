//! `unjank bus diff`: what differs between two captures.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use probe::bus::diff::{self, Diff as Differences, SCHEMA};
use probe::bus::filter::Filter;
use probe::bus::model::{Ending, read};
use probe::bus::stats::{self, Stats};
use serde::Serialize;

use super::input::{filter, open};
use crate::cli::screen;
use crate::error::{Error, Kind, Verdict};

/// Compare two captures: members that are new, gone or slower.
///
/// A member counts as slower if chance is no excuse for it (docs/bus.md has the rule).
/// Exits with 0 if nothing is new, gone, slower or louder, 1 if something is, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bus diff before.pcapng after.pcapng")]
pub(super) struct Diff {
    /// Only messages that this chooses.
    #[arg(short, long, value_name = "EXPRESSION", value_parser = filter, default_value = "", hide_default_value = true)]
    filter: Filter,
    /// Print one JSON document (docs/bus.md has its fields).
    #[arg(long)]
    json: bool,
    /// The record of before.
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The record of after.
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
            let text = serde_json::to_string_pretty(&document)
                .map_err(|error| Error::new(Kind::Internal, "write the document").because(error))?;
            text + "\n"
        } else {
            diff::render(&found, &before, &after, screen::width(), screen::paint())
        };
        let mut stdout = if self.json { screen::json() } else { screen::stdout() };
        stdout.write_all(output.as_bytes())?;
        stdout.flush()?;
        Ok(if found.is_same() { Verdict::Yes } else { Verdict::No })
    }

    fn stats(&self, path: &Path) -> Result<Stats, Error> {
        let capture = open(path)?;
        let model = read(capture.events(), |_, _, _| Ending::Continue);
        Ok(stats::collect(&model, &self.filter))
    }
}
