//! The document for programs: `docs/trace-check.md` has its fields.

use serde::Serialize;

use super::{CheckDocument, json_text};
use crate::baseline::CheckFinding;
use crate::limits::CheckOutcome;

/// The name and version of the schema; a field may be added without a new version, never changed or removed.
const SCHEMA: &str = "unjank.trace.check/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    kept: bool,
    outcomes: &'a [CheckOutcome],
    verdict: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<Judged<'a>>,
}

#[derive(Serialize)]
struct Judged<'a> {
    file: &'a str,
    runs: usize,
    allowed: usize,
    findings: &'a [CheckFinding],
}

/// Writes the document, ending in a newline.
///
/// # Errors
///
/// Whatever `serde_json` reports; the types here give it no reason.
pub fn render(document: &CheckDocument<'_>) -> serde_json::Result<String> {
    let judgement = document.judgement;
    let baseline = document.baseline.map(|file| Judged {
        file,
        runs: judgement.runs,
        allowed: judgement.allowed,
        findings: &judgement.findings,
    });
    let written = Document {
        schema: SCHEMA,
        kept: document.is_kept(),
        outcomes: document.outcomes,
        verdict: document.verdict,
        baseline,
    };
    json_text(&written)
}
