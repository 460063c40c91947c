//! `bench impact`: how much longer launches take while one command works, on several kinds of disks: a score that a CI can hold an installer to.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::LaunchError;
use super::background::BackgroundLoad;
use super::cell::{LoadClass, Measure, Throttling};
use super::foreground::Foreground;
use super::ground::Site;
use super::matrix::{Lab, MatrixPlan, OtherPrograms, measure};
use super::sample::SampleFile;
use super::summary::{CellRow, rows};
use crate::lab::Effort;
use crate::run::BenchProgress;
use report::figure::Quantity;
use report::paint::{Paint, Tone};
use report::paragraph::wrap;
use report::provenance::Provenance;
use report::table::{Align, TableCell, TextTable};
use slowdisk::DiskProfile;

/// The disks, of what is sold least, most, and what is left of the past.
pub const DISKS: [&str; 3] = ["emmc", "hdd", "ssd"];

/// What is scored.
#[derive(Clone, Debug)]
pub struct Impact {
    /// The command.
    pub command: String,
    /// How it behaves.
    pub class: LoadClass,
    /// What is launched beside it.
    pub foreground: Foreground,
    /// What the launched program needs of other places.
    pub bring: Vec<PathBuf>,
    /// Launches on each disk, with and without it.
    pub runs: usize,
    /// The size of the disks, in bytes.
    pub size: u64,
    /// What is done about other programs on the machine.
    pub others: OtherPrograms,
}

/// What a disk says.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Score {
    /// Which disk.
    pub disk: String,
    /// Launches beside the command.
    pub n: usize,
    /// The median of launches with nothing beside them, in milliseconds.
    pub unloaded_ms: f64,
    /// The p95 of launches beside the command, in milliseconds.
    pub p95_ms: f64,
    /// The ratio of medians.
    pub ratio: f64,
    /// The p95 beside the command to the median without.
    pub p95_ratio: f64,
    /// Bytes that went out in the idle class, as a share.
    pub idle_share: Option<f64>,
}

impl Impact {
    /// Measures on all disks; samples go to `record`.
    ///
    /// # Errors
    ///
    /// As of [`measure`]; a command that fails is an error.
    pub fn measure(
        &self,
        record: &mut SampleFile,
        lab: &Lab<'_>,
        progress: BenchProgress<'_>,
    ) -> Result<Vec<Score>, LaunchError> {
        let profiles = DISKS.iter().filter_map(|name| DiskProfile::named(name));
        let mut scores = Vec::new();
        for profile in profiles {
            let plan = MatrixPlan {
                site: Site::Model(profile, self.size),
                measures: vec![Measure::Launch],
                schedulers: vec!["kept".to_owned()],
                throttlings: vec![Throttling::Default],
                backgrounds: vec![BackgroundLoad::Command(self.command.clone())],
                classes: vec![self.class],
                foreground: self.foreground.clone(),
                bring: self.bring.clone(),
                runs: self.runs,
                burst: self.runs,
                size: 0,
                window: Duration::ZERO,
                others: self.others,
            };
            measure(&plan, record, lab, progress)?;
            let disk = plan.site.name();
            let rows = rows(record.samples(), Effort::Full);
            let of = |class: LoadClass| {
                let own = |row: &&CellRow| row.cell.disk == disk && row.cell.class == class;
                rows.iter().find(own)
            };
            if let (Some(loaded), Some(unloaded)) = (of(self.class), of(LoadClass::Unloaded)) {
                scores.push(Score {
                    n: loaded.samples.len(),
                    unloaded_ms: unloaded.samples.median() / 1e6,
                    p95_ms: loaded.samples.p95() / 1e6,
                    ratio: loaded.ratio.ratio,
                    p95_ratio: loaded.p95_ratio,
                    idle_share: loaded.idle_share,
                    disk,
                });
            }
        }
        Ok(scores)
    }
}

/// Returns the score: the worst p95 ratio of all disks.
#[must_use]
pub fn score(scores: &[Score]) -> f64 {
    scores.iter().map(|score| score.p95_ratio).fold(f64::NAN, f64::max)
}

/// Says in one sentence whether the score is within `limit`.
#[must_use]
pub fn verdict(command: &str, scores: &[Score], limit: f64) -> String {
    let score = score(scores);
    let stands = if score <= limit { "within" } else { "over" };
    format!(
        "Beside `{command}` a launch takes up to {score:.2} times as long (p95 to unloaded median): {stands} the limit of {limit}."
    )
}

/// What `bench impact --json` prints: `docs/benchmarks.md` has the schema.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Document<'d> {
    schema: &'static str,
    command: &'d str,
    limit: f64,
    score: f64,
    within: bool,
    disks: &'d [Score],
    provenance: &'d Provenance,
}

/// Writes the scores as one JSON document and a newline.
///
/// # Errors
///
/// As `serde_json`: the document cannot be written, and nothing was.
pub fn json(
    command: &str,
    scores: &[Score],
    limit: f64,
    provenance: &Provenance,
) -> serde_json::Result<String> {
    let schema = "unjank.bench.impact/1";
    let score = score(scores);
    let within = score <= limit;
    let document = Document { schema, command, limit, score, within, disks: scores, provenance };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// Writes the scores for a screen of `width` columns.
#[must_use]
pub fn render(
    command: &str,
    scores: &[Score],
    limit: f64,
    provenance: &Provenance,
    width: usize,
    paint: Paint,
) -> String {
    let mut text =
        paint.set(Tone::Strong, wrap(&verdict(command, scores, limit), width, "").trim_end());
    text.push_str("\n\n");
    let mut table = TextTable::new(&[
        ("disk", Align::Text),
        ("n", Align::Text),
        ("unloaded", Align::Point),
        ("p95 beside it", Align::Point),
        ("median ratio", Align::Text),
        ("p95 ratio", Align::Text),
        ("written idle", Align::Text),
    ]);
    for score in scores {
        let tone = if score.p95_ratio <= limit { Tone::Good } else { Tone::Bad };
        let idle = score.idle_share.map(|share| format!("{:.0} %", share * 100.0));
        table.row(vec![
            score.disk.clone().into(),
            score.n.to_string().into(),
            Quantity::Time.show(score.unloaded_ms * 1e6).into(),
            Quantity::Time.show(score.p95_ms * 1e6).into(),
            format!("{:.2}", score.ratio).into(),
            TableCell::toned(tone, format!("{:.2}", score.p95_ratio)),
            idle.unwrap_or_default().into(),
        ]);
    }
    text.push_str(&table.render(width, paint));
    text.push('\n');
    for line in provenance.lines() {
        text.push_str(&paint.set(Tone::Dim, wrap(&line, width, "").trim_end()));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_disk_decides() {
        let on = |disk: &str, p95_ratio| Score {
            disk: disk.to_owned(),
            n: 5,
            unloaded_ms: 700.0,
            p95_ms: 700.0 * p95_ratio,
            ratio: 1.0,
            p95_ratio,
            idle_share: None,
        };
        let scores = [on("model:emmc", 3.5), on("model:ssd", 1.1)];
        assert!((score(&scores) - 3.5).abs() < 1e-9);
        assert!(verdict("tar", &scores, 2.0).contains("over"));
        assert!(verdict("tar", &scores, 3.5).contains("within"));
    }
}
