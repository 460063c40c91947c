//! A diagnosis for programs: `docs/doctor.md` has the schema.

use serde::Serialize;

use super::Diagnosis;
use super::actions::{self, Action};
use super::finding::{Finding, Help, MeasurementOutcome};
use super::text::verdict;
use report::figure::nanoseconds;
use report::grade::{Grade, feeling};
use report::provenance::Provenance;

/// The name and version of the schema; a field may be added without a new version, never changed or removed.
pub const SCHEMA: &str = "unjank.doctor/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    hangs: Option<HangsEntry<'a>>,
    verdict: String,
    bad: bool,
    interrupted: bool,
    frame_ns: f64,
    took_ns: f64,
    provenance: &'a Provenance,
    actions: Vec<ActionEntry>,
    setup: Vec<SetupEntry>,
    gains: &'a [String],
    findings: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct HangsEntry<'a> {
    sentence: &'a str,
    #[serde(flatten)]
    facts: &'a serde_json::Value,
}

#[derive(Serialize)]
struct ActionEntry {
    text: String,
    command: String,
    reason: String,
}

#[derive(Serialize)]
struct SetupEntry {
    part: &'static str,
    command: String,
}

#[derive(Serialize)]
struct Entry<'a> {
    probe: &'static str,
    name: &'a str,
    measured: &'a str,
    kind: &'static str,
    text: Option<&'a str>,
    time: Option<Time<'a>>,
    /// Measured beside what is in effect: not judged.
    comparison: bool,
    cause: Option<&'a str>,
    advice: Vec<Advice>,
}

#[derive(Serialize)]
struct Time<'a> {
    n: usize,
    median_ns: f64,
    p95_ns: f64,
    min_ns: f64,
    max_ns: f64,
    frames: f64,
    verdict: Option<Grade>,
    feeling: Option<&'static str>,
    samples_ns: &'a [f64],
}

#[derive(Serialize)]
struct Advice {
    text: String,
    command: Option<String>,
}

/// Writes the diagnosis as one JSON document, ending in a newline.
///
/// # Errors
///
/// Whatever `serde_json` reports; the types here give it no reason.
pub fn render(diagnosis: &Diagnosis, provenance: &Provenance) -> serde_json::Result<String> {
    let document = Document {
        schema: SCHEMA,
        hangs: diagnosis
            .hangs
            .as_ref()
            .map(|hangs| HangsEntry { sentence: &hangs.sentence, facts: &hangs.facts }),
        verdict: verdict(diagnosis),
        bad: diagnosis.is_bad(),
        interrupted: diagnosis.interrupted,
        frame_ns: nanoseconds(diagnosis.frame),
        took_ns: nanoseconds(diagnosis.took),
        provenance,
        actions: diagnosis.actions().0.into_iter().map(action).collect(),
        setup: actions::parts(diagnosis)
            .into_iter()
            .map(|(part, command)| SetupEntry { part: part.name(), command })
            .collect(),
        gains: &diagnosis.gains,
        findings: diagnosis.findings.iter().map(|finding| entry(finding, diagnosis)).collect(),
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

fn entry<'a>(finding: &'a Finding, diagnosis: &Diagnosis) -> Entry<'a> {
    let (kind, text) = match &finding.outcome {
        MeasurementOutcome::Time(_) => ("time", None),
        MeasurementOutcome::Note(text) => ("note", Some(&**text)),
        MeasurementOutcome::Wrong(text) => ("wrong", Some(&**text)),
        MeasurementOutcome::Skipped(text) => ("skipped", Some(&**text)),
    };
    let time = super::text::time(finding).map(|samples| Time {
        n: samples.len(),
        median_ns: samples.median(),
        p95_ns: samples.p95(),
        min_ns: samples.min(),
        max_ns: samples.max(),
        frames: samples.median() / nanoseconds(diagnosis.frame),
        verdict: finding.grade(diagnosis.frame),
        feeling: feeling(samples.median()),
        samples_ns: samples.values(),
    });
    Entry {
        probe: finding.probe,
        name: &finding.name,
        measured: &finding.measured,
        kind,
        text,
        time,
        comparison: finding.is_comparison,
        cause: finding.cause.as_deref(),
        advice: finding.help.iter().map(|help| advice(help, diagnosis)).collect(),
    }
}

fn action(Action { text, command, reason }: Action) -> ActionEntry {
    ActionEntry { text, command, reason }
}

fn advice(help: &Help, diagnosis: &Diagnosis) -> Advice {
    match help {
        Help::Hint(text) => Advice { text: text.clone(), command: None },
        Help::Remedy(remedy) => {
            Advice { text: remedy.text(), command: diagnosis.shell.command(remedy) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn the_document_has_the_fields_that_are_promised() {
        let provenance =
            Provenance::of_this_machine("unjank doctor".to_owned(), SystemTime::UNIX_EPOCH);
        let text = render(&super::super::text::tests::example(), &provenance).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["schema"], SCHEMA);
        assert_eq!(document["bad"], true);
        assert_eq!(document["provenance"]["command"], "unjank doctor");
        let entries = document["findings"].as_array().unwrap();
        let kinds: Vec<&str> =
            entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["note", "time", "time", "time", "time", "time", "wrong", "skipped"]);
        let slow = &entries[3];
        assert_eq!(slow["time"]["verdict"], "misses");
        assert_eq!(slow["time"]["feeling"], "hung");
        assert_eq!(slow["time"]["samples_ns"].as_array().unwrap().len(), 2);
        assert!(entries[2]["advice"][0]["command"].as_str().unwrap().starts_with("echo bfq"));
        assert_eq!(entries[2]["comparison"], false);
        let actions = document["actions"].as_array().unwrap();
        assert_eq!(actions.len(), 2);
        assert!(document["hangs"].is_null());
        assert!(actions[0]["command"].as_str().unwrap().ends_with("/run/user/1000/dconf/user"));
    }

    #[test]
    fn what_was_recorded_of_hangs_is_an_object_with_its_sentence() {
        let provenance =
            Provenance::of_this_machine("unjank doctor".to_owned(), SystemTime::UNIX_EPOCH);
        let diagnosis = super::super::text::tests::example_with_hangs();
        let text = render(&diagnosis, &provenance).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["hangs"]["sentence"], "Yesterday 14 hangs.");
        assert_eq!(document["hangs"]["hangs"], 14);
    }
}
