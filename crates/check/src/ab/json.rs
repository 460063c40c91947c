//! A comparison for programs: `docs/trace.md` has the schema.

use serde::Serialize;

use super::Comparison;
use super::text::{sentence, warnings};
use report::provenance::Provenance;
use report::samples::Samples;

/// The name and version of the schema; a field may be added without a new version, never changed or removed.
pub const SCHEMA: &str = "unjank.trace.ab/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    sentence: String,
    warnings: Vec<String>,
    differs: bool,
    interrupted: bool,
    calls_matched: u64,
    skipped: Vec<&'static str>,
    delayed_ns: Vec<(&'static str, u64)>,
    environment: Vec<String>,
    files: Vec<File>,
    without: Option<Side<'a>>,
    with: Option<Side<'a>>,
    ratio: Option<Ratio>,
    p: f64,
    provenance: &'a Provenance,
}

#[derive(Serialize)]
struct File {
    path: Option<String>,
    calls: u64,
}

#[derive(Serialize)]
struct Side<'a> {
    n: usize,
    median_ns: f64,
    min_ns: f64,
    max_ns: f64,
    samples_ns: &'a [f64],
}

#[derive(Serialize)]
struct Ratio {
    median: f64,
    low: f64,
    high: f64,
}

/// Writes the comparison as one JSON document, ending in a newline.
///
/// # Errors
///
/// Whatever `serde_json` reports; the types here give it no reason.
pub fn render(comparison: &Comparison, provenance: &Provenance) -> serde_json::Result<String> {
    let change = &comparison.change;
    let interval = comparison.interval();
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let document = Document {
        schema: SCHEMA,
        sentence: sentence(comparison),
        warnings: warnings(comparison),
        differs: comparison.differs(),
        interrupted: comparison.interrupted,
        calls_matched: comparison.matched,
        skipped: change.skipped().iter().map(|kind| kind.name).collect(),
        delayed_ns: change.delayed().iter().map(|(kind, by)| (kind.name, nanos(*by))).collect(),
        environment: change
            .environment()
            .iter()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
            .collect(),
        files: comparison
            .files
            .iter()
            .map(|(path, calls)| File {
                path: path.as_ref().map(|path| path.to_string_lossy().into_owned()),
                calls: *calls,
            })
            .collect(),
        without: side(&comparison.without),
        with: side(&comparison.with),
        ratio: interval.ratio.is_finite().then_some(Ratio {
            median: interval.ratio,
            low: interval.low,
            high: interval.high,
        }),
        p: comparison.chance(),
        provenance,
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

fn side(samples: &Samples) -> Option<Side<'_>> {
    (!samples.is_empty()).then(|| Side {
        n: samples.len(),
        median_ns: samples.median(),
        min_ns: samples.min(),
        max_ns: samples.max(),
        samples_ns: samples.values(),
    })
}
