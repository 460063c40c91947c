//! The XML of JUnit, which every build server shows: a test for each finding, each limit, and all that is allowed.

use std::fmt::Write;

use super::{CheckDocument, shown};
use crate::baseline::{CheckFinding, FindingKind};

/// Writes the file.
#[must_use]
pub fn render(document: &CheckDocument<'_>) -> String {
    let findings = document.findings();
    let failing: Vec<&CheckFinding> =
        findings.iter().filter(|finding| finding.kind.fails()).collect();
    let kept: Vec<_> = document.outcomes.iter().filter(|outcome| outcome.kept).collect();
    let count =
        |test: fn(FindingKind) -> bool| failing.iter().filter(|finding| test(finding.kind)).count();
    let errors = count(|kind| kind == FindingKind::NotJudged);
    let failures = failing.len() - errors;
    let has_allowed = document.baseline.is_some();
    let tests = failing.len() + kept.len() + usize::from(has_allowed);
    let seconds = seconds(document.length_ns);
    let suite = format!("unjank trace check: {}", document.program);
    let suite = escaped(&suite);
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut push = |line: std::fmt::Arguments<'_>| {
        xml.write_fmt(line).expect("a String takes everything");
        xml.push('\n');
    };
    push(format_args!(
        "<testsuites name=\"unjank\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{seconds}\">"
    ));
    push(format_args!(
        "  <testsuite name=\"{suite}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"0\" time=\"{seconds}\">"
    ));
    let class = escaped(&format!("unjank.{}", document.program));
    if has_allowed {
        push(format_args!(
            "    <testcase classname=\"{class}\" name=\"{} allowed waits\" time=\"0\"/>",
            document.judgement.allowed
        ));
    }
    for outcome in kept {
        let name = escaped(&outcome.rule);
        push(format_args!("    <testcase classname=\"{class}\" name=\"{name}\" time=\"0\"/>"));
    }
    for finding in failing {
        let element = if finding.kind == FindingKind::NotJudged { "error" } else { "failure" };
        let (_, key) = finding.identity();
        let words = [&*key.phase, &key.call, &key.path, &key.function];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let name = escaped(&format!("{}: {}", finding.kind.id(), words.join(" ")));
        let time = self::seconds(finding.wait.as_ref().map_or(0, |wait| wait.blocked_ns));
        push(format_args!("    <testcase classname=\"{class}\" name=\"{name}\" time=\"{time}\">"));
        let stack = finding.wait.as_ref().map(|wait| lines(&wait.stack)).unwrap_or_default();
        push(format_args!(
            "      <{element} message=\"{}\" type=\"{}\">{}</{element}>",
            escaped(&finding.text),
            finding.kind.id(),
            stack
        ));
        push(format_args!("    </testcase>"));
    }
    let notes: Vec<&String> = findings
        .iter()
        .filter(|finding| !finding.kind.fails())
        .map(|finding| &finding.text)
        .collect();
    if !notes.is_empty() {
        push(format_args!("    <system-out>{}</system-out>", lines(notes)));
    }
    push(format_args!("  </testsuite>\n</testsuites>"));
    xml
}

fn seconds(ns: u64) -> String {
    // The schema of Jenkins takes three decimals.
    format!("{}.{:03}", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000_000)
}

/// Writes texts for an element, a line each.
fn lines<'a>(texts: impl IntoIterator<Item = &'a String>) -> String {
    let texts: Vec<String> = texts.into_iter().map(|text| escaped(text)).collect();
    texts.join("&#10;")
}

/// Writes text for an element or an attribute; what XML cannot hold is spelt like all that a terminal obeys.
fn escaped(text: &str) -> String {
    let mut xml = String::with_capacity(text.len());
    for letter in shown(text).chars() {
        match letter {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            letter => xml.push(letter),
        }
    }
    xml
}
