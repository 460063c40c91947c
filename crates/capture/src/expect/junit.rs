//! The outcomes as JUnit writes them, which continuous integration reads: a test case for each rule, and one for the run.

use report::text::{Charset, visible};

use super::{ExpectReport, RuleOutcome};
use report::escape::escape;

/// Writes a report as one test suite called `name`.
#[must_use]
pub fn junit(report: &ExpectReport, name: &str) -> String {
    let name = shown(name);
    let failures = report.outcomes.iter().filter(|outcome| !outcome.kept).count();
    let errors = usize::from(!report.faults.is_empty());
    let tests = report.outcomes.len() + 1;
    let counts = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\"");
    let took_ns = report.command.as_ref().map_or(0, |command| command.took_ns);
    let time = format!("{}.{:09}", took_ns / 1_000_000_000, took_ns % 1_000_000_000);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts} time=\"{time}\">\n\
         <testsuite name=\"{name}\" {counts} skipped=\"0\" time=\"{time}\">\n\
         <testcase classname=\"{name}\" name=\"the traffic can be checked\" time=\"{time}\""
    );
    if report.faults.is_empty() {
        text.push_str("/>\n");
    } else {
        // A test case has one error at most.
        let faults: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
        let faults = shown(&faults.join("; "));
        text.push_str(&format!(
            ">\n<error message=\"{faults}\" type=\"not-checked\">{faults}</error>\n</testcase>\n"
        ));
    }
    for outcome in &report.outcomes {
        case(&mut text, &name, outcome);
    }
    text.push_str("</testsuite>\n</testsuites>\n");
    text
}

fn case(text: &mut String, suite: &str, outcome: &RuleOutcome) {
    let rule = shown(&outcome.rule);
    let line = outcome.line;
    let begin = format!("<testcase classname=\"{suite}\" name=\"{rule} (line {line})\" time=\"0\"");
    text.push_str(&begin);
    if outcome.kept {
        text.push_str("/>\n");
        return;
    }
    let found = shown(&outcome.found);
    let examples: Vec<String> = outcome.examples.iter().map(|example| shown(example)).collect();
    text.push_str(&format!(
        ">\n<failure message=\"{found}\" type=\"broken\">{}</failure>\n</testcase>\n",
        examples.join("\n")
    ));
}

/// Writes text of others as XML may hold it: many control characters have no place there at all.
fn shown(text: &str) -> String {
    escape(&visible(text, Charset::Unicode))
}
