//! The summary for programs.

use serde::Serialize;

use super::cell::MatrixCell;
use super::summary::{CellRow, verdict};
use crate::row::Reached;
use report::provenance::Provenance;

/// The name and version of the document.
pub const SCHEMA: &str = "unjank.bench.launch/1";

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Document<'d> {
    schema: &'static str,
    verdict: String,
    cells: Vec<Entry<'d>>,
    notes: &'d [String],
    provenance: &'d Provenance,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Entry<'d> {
    #[serde(flatten)]
    cell: &'d MatrixCell,
    n: usize,
    /// Milliseconds, or bytes a second.
    median: Option<f64>,
    p95: Option<f64>,
    ratio: Option<f64>,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    p95_ratio: Option<f64>,
    idle_share: Option<f64>,
    failed: usize,
    disturbed: usize,
    keeps: Option<bool>,
    /// As in the documents of the other benchmarks.
    result: Reached,
    samples: Vec<f64>,
}

/// Writes the document.
///
/// # Errors
///
/// None is known: all its keys are texts.
pub fn render(
    rows: &[CellRow],
    notes: &[String],
    provenance: &Provenance,
) -> serde_json::Result<String> {
    let finite = |value: f64| Some(value).filter(|value| value.is_finite());
    let entry = |row: &CellRow| -> f64 {
        match super::text::quantity(row.cell.measure) {
            report::figure::Quantity::Time => 1e-6,
            _ => 1.0,
        }
    };
    let cells = rows.iter().map(|row| Entry {
        cell: &row.cell,
        n: row.samples.len(),
        median: finite(row.samples.median() * entry(row)),
        p95: finite(row.samples.p95() * entry(row)),
        ratio: finite(row.ratio.ratio),
        ratio_low: finite(row.ratio.low),
        ratio_high: finite(row.ratio.high),
        p95_ratio: finite(row.p95_ratio),
        idle_share: row.idle_share,
        failed: row.failed,
        disturbed: row.disturbed,
        keeps: match row.reached() {
            Reached::Pass => Some(true),
            Reached::FallsShort => Some(false),
            Reached::NotResolved
            | Reached::NotJudged
            | Reached::NoTarget
            | Reached::NotMeasured => None,
        },
        result: row.reached(),
        samples: row.samples.values().iter().map(|value| value * entry(row)).collect(),
    });
    let document = Document {
        schema: SCHEMA,
        verdict: verdict(rows),
        cells: cells.collect(),
        notes,
        provenance,
    };
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}
