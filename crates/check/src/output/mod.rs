//! What a check found, for people and for the programs of code hosts.

mod annotations;
mod json;
mod junit;
mod place;
mod sarif;
mod text;

use std::borrow::Cow;
use std::path::Path;

pub use self::annotations::{github, gitlab};
pub use self::json::render as json;
pub use self::junit::render as junit;
pub use self::sarif::render as sarif;
pub use self::text::{changes, render as text};

use report::text::{Charset, json_escaped, visible};
use serde::Serialize;

use crate::baseline::{BaselineJudgement, CheckFinding, FindingKind};
use crate::limits::CheckOutcome;

/// Everything that a check found.
#[derive(Clone, Copy, Debug)]
pub struct CheckDocument<'a> {
    /// The name of the program.
    pub program: &'a str,
    /// The command, quoted for a shell.
    pub command: &'a str,
    /// The path of the baseline, as the user gave it.
    pub baseline: Option<&'a str>,
    /// The directory of the sources, which paths are told from.
    pub root: &'a Path,
    /// When the run began, in milliseconds since 1970.
    pub began_ms: u64,
    /// How long it lasted, in nanoseconds.
    pub length_ns: u64,
    /// The report's finding in a sentence or two.
    pub verdict: &'a str,
    /// Our version.
    pub version: &'a str,
    /// What the baseline says; without one, nothing was found and nothing is allowed.
    pub judgement: &'a BaselineJudgement,
    /// What the limits say.
    pub outcomes: &'a [CheckOutcome],
}

/// Returns text that other programs chose, on one line and with nothing that a terminal or a page obeys or hides: logs of
/// build servers are read on both.
fn shown(text: &str) -> Cow<'_, str> {
    visible(text, Charset::Unicode)
}

/// Writes a JSON document for another program, which may print it.
fn json_text<T: Serialize>(document: &T) -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(document)?;
    Ok(json_escaped(&text, Charset::Unicode).into_owned() + "\n")
}

impl CheckDocument<'_> {
    /// Returns whether everything is kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.judgement.is_kept() && self.outcomes.iter().all(|outcome| outcome.kept)
    }

    /// Returns all findings: those of the baseline, then the broken limits.
    fn findings(&self) -> Vec<CheckFinding> {
        let broken = self.outcomes.iter().filter(|outcome| !outcome.kept);
        let limits = broken.map(|outcome| {
            CheckFinding::new(FindingKind::Limit, format!("{}: {}", outcome.rule, outcome.text))
        });
        self.judgement.findings.iter().cloned().chain(limits).collect()
    }
}

#[cfg(test)]
mod tests;
