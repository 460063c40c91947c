//! Judgements of reports: whatever can be read as a report or a baseline is judged and written in every way.

use std::path::Path;

use check::baseline::{self, Baseline, BaselineJudgement, BaselineRules, UserPlaces};
use check::compare;
use check::limits::CheckRule;
use check::output::{self, CheckDocument};
use report::paint::Paint;
use trace::report::{TraceReport, data};

/// Reads `bytes` as a report and judges it in every way.
pub fn report(bytes: &[u8]) {
    let Ok(report) = data::read(bytes) else { return };
    let same = compare::text(&compare::compare(&report, &report), 80, Paint::Off);
    assert!(!same.is_empty());
    let places = UserPlaces::new(Some(b"/home/ana"), |_| None);
    let runs = [(None, report.clone())];
    let Ok(made) = baseline::update(&runs, None, &places, BaselineRules::default()) else { return };
    // What a run showed is allowed in it.
    let judgement = baseline::judge(&report, &made.baseline, &places, None);
    assert!(judgement.is_kept(), "{:?}", judgement.findings);
    let mut empty = made.baseline;
    empty.waits.clear();
    write(&report, &baseline::judge(&report, &empty, &places, None));
}

/// Reads `bytes` as a baseline and judges a report by it.
pub fn baseline(bytes: &[u8]) {
    let Ok(read) = Baseline::read(bytes) else { return };
    let text = read.render();
    let again = Baseline::read(text.as_bytes()).expect("what was written is read");
    assert_eq!(again.render(), text);
    let report = data::read(include_bytes!("../corpus/check_report/every_trap.json"));
    let report = report.expect("the corpus has a report");
    let places = UserPlaces::new(Some(b"/home/ana"), |_| None);
    write(&report, &baseline::judge(&report, &read, &places, None));
}

/// Writes a judgement in every way.
fn write(report: &TraceReport, judgement: &BaselineJudgement) {
    let rule = CheckRule::count("fsync=0").expect("a limit");
    let document = CheckDocument {
        program: report.program(0),
        command: "command",
        baseline: Some("waits.baseline"),
        root: Path::new("/src"),
        began_ms: report.began_ms,
        length_ns: report.length_ns,
        verdict: &report.verdict,
        version: "0",
        judgement,
        outcomes: &[rule.check(report)],
    };
    let screen = output::text(&document, Paint::Off);
    assert!(screen.chars().all(|letter| letter == '\n' || !letter.is_control()), "{screen:?}");
    let lines = output::github(&document);
    assert!(lines.lines().all(|line| line.starts_with("::")), "{lines}");
    let xml = output::junit(&document);
    let is_xml = |letter: char| matches!(letter, '\n' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    assert!(xml.chars().all(is_xml), "{xml:?}");
    output::sarif(&document).expect("a judgement is SARIF");
    output::gitlab(&document).expect("a judgement is JSON");
    output::json(&document).expect("a judgement is JSON");
}
