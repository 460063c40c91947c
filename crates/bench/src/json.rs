//! A run for programs: `docs/benchmarks.md` has the schema.

use serde::Serialize;

use super::paired::PairedRatio;
use super::row::{FigureRow, FigureTarget, Reached};
use super::run::{BenchSetting, Run};
use super::text::verdict;
use report::figure::Quantity;
use report::provenance::Provenance;
use report::samples::Samples;

/// The name and version of the schema of `bench settings`; a field may be added without a new version, never changed or removed.
pub const SCHEMA: &str = "unjank.bench.settings/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: String,
    verdict: String,
    passes: bool,
    interrupted: bool,
    setting: &'a BenchSetting,
    provenance: &'a Provenance,
    figures: Vec<Entry<'a>>,
    missing: Vec<Missing<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    id: &'static str,
    title: &'a str,
    unit: &'static str,
    ours: Option<Side<'a>>,
    peer: Option<Side<'a>>,
    ratio: Option<f64>,
    /// The ratio by rounds, where both sides were measured in turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    paired: Option<PairedRatio>,
    target: Option<Promise>,
    verdict: Reached,
    note: &'a str,
}

#[derive(Serialize)]
struct Side<'a> {
    n: usize,
    median: f64,
    p95: f64,
    min: f64,
    max: f64,
    samples: &'a [f64],
}

#[derive(Serialize)]
struct Promise {
    /// `at-most` or `at-least` of the peer's median, or `within` a limit, or `reaching` one.
    kind: &'static str,
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<f64>,
}

#[derive(Serialize)]
struct Missing<'a> {
    id: &'static str,
    why: &'a str,
}

/// Writes the run as one JSON document, ending in a newline.
///
/// # Errors
///
/// Whatever `serde_json` reports; the types here give it no reason.
pub fn render(run: &Run) -> serde_json::Result<String> {
    let document = Document {
        schema: format!("unjank.bench.{}/1", run.terms.bench),
        verdict: verdict(run),
        passes: run.passes(),
        interrupted: run.interrupted,
        setting: &run.setting,
        provenance: &run.provenance,
        figures: run.rows.iter().map(|row| entry(run, row)).collect(),
        missing: run.missing.iter().map(|(id, why)| Missing { id, why }).collect(),
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

fn entry<'r>(run: &Run, row: &'r FigureRow) -> Entry<'r> {
    Entry {
        id: row.id,
        title: &row.title,
        unit: match row.quantity {
            Quantity::Time => "ns",
            Quantity::Size => "bytes",
            Quantity::Rate => "per second",
            Quantity::Count => "",
            Quantity::Share => "percent",
        },
        ours: side(&row.ours),
        peer: side(&row.peer),
        ratio: Some(row.ratio_of_medians()).filter(|ratio| ratio.is_finite()),
        paired: row.paired(),
        target: row.target.and_then(|target| {
            let (kind, limit) = match target {
                FigureTarget::Alone => return None,
                FigureTarget::AtMost(_) => ("at-most", None),
                FigureTarget::AtLeast(_) => ("at-least", None),
                FigureTarget::Within(most) => ("within", Some(most)),
                FigureTarget::Reaching(least) => ("reaching", Some(least)),
            };
            Some(Promise { kind, ratio: row.promised_ratio(), limit })
        }),
        verdict: run.reached(row),
        note: &row.note,
    }
}

fn side(samples: &Samples) -> Option<Side<'_>> {
    (!samples.is_empty()).then(|| Side {
        n: samples.len(),
        median: samples.median(),
        p95: samples.p95(),
        min: samples.min(),
        max: samples.max(),
        samples: samples.values(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_fields_that_are_promised() {
        let text = render(&super::super::text::tests::example()).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["schema"], SCHEMA);
        assert_eq!(document["passes"], false);
        let figures = document["figures"].as_array().unwrap();
        assert_eq!(figures[0]["verdict"], "pass");
        assert_eq!(figures[0]["ours"]["median"], 610_000.0);
        assert_eq!(figures[1]["verdict"], "falls-short");
        assert_eq!(figures[1]["target"]["kind"], "at-least");
        assert_eq!(figures[2]["verdict"], "no-target");
        assert_eq!(document["missing"][0]["id"], "bytes-disk");
    }
}
