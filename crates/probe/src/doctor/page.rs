//! A diagnosis as a page.

use super::Diagnosis;
use super::advice::entries;
use super::finding::{Finding, Outcome};
use super::text::{time, verdict};
use crate::report::chart::bars::{self, Bar};
use crate::report::figure::{Quantity, frame_count};
use crate::report::page::{Page, Todo};
use crate::report::provenance::Provenance;

/// On a telephone the name of a step takes two lines, not five.
const STYLE: &str = "td:first-child { min-width: 9em; }\n";

/// Writes the page, one HTML file.
#[must_use]
pub fn render(diagnosis: &Diagnosis, provenance: &Provenance) -> String {
    let mut page = Page::new("unjank doctor", &verdict(diagnosis));
    page.style(STYLE);
    let slowest = diagnosis.slowest_first();
    let bars: Vec<Bar<'_>> = slowest
        .iter()
        .filter_map(|finding| Some(Bar { name: &finding.name, samples: time(finding)? }))
        .collect();
    if !bars.is_empty() {
        page.figure(
            &bars::render(&bars, diagnosis.frame),
            "Median time of each step; the thin line goes on to the time that 19 of 20 stay below. A bar with a point goes on beyond two frames.",
        );
    }
    let pick = |pick: &dyn Fn(&Finding) -> Option<String>| -> Vec<String> {
        diagnosis.findings.iter().filter_map(pick).collect()
    };
    let broken = pick(&|finding| match &finding.outcome {
        Outcome::Wrong(text) => Some(format!("{}: {text}", finding.name)),
        _ => None,
    });
    if !broken.is_empty() {
        page.heading("Broken");
        page.list(&broken);
    }
    let advice = entries(diagnosis);
    if !advice.is_empty() {
        page.heading("What to do");
        let todo: Vec<Todo<'_>> = advice
            .iter()
            .map(|entry| Todo { reason: &entry.reason, advice: entry.advice })
            .collect();
        page.advice(&todo);
    }
    let headings = ["step", "median", "frames", "verdict", "p95", "least", "most", "n"];
    let rows: Vec<Vec<String>> =
        slowest.iter().filter_map(|finding| row(finding, diagnosis)).collect();
    let seen = pick(&|finding| match &finding.outcome {
        Outcome::Note(text) => Some(format!("{}: {text}", finding.name)),
        Outcome::Skipped(why) => Some(format!("{}: not measured: {why}", finding.name)),
        _ => None,
    });
    if rows.is_empty() {
        // It is all that there is.
        page.heading("What was seen");
        page.list(&seen);
    } else {
        page.heading("Figures");
        page.table(&headings, &rows);
        page.fold("What else was seen");
        page.list(&seen);
        page.unfold();
    }
    page.fold("How it was measured");
    page.list(&pick(&|finding| Some(format!("{}: {}", finding.name, finding.measured))));
    page.unfold();
    page.finish(&[], provenance)
}

fn row(finding: &Finding, diagnosis: &Diagnosis) -> Option<Vec<String>> {
    let samples = time(finding)?;
    let grade = finding.grade(diagnosis.frame)?;
    let show = |value| Quantity::Time.show(value);
    Some(vec![
        finding.name.clone(),
        show(samples.median()),
        frame_count(samples.median(), diagnosis.frame),
        format!("{} {}", grade.shape(), grade.word()),
        show(samples.p95()),
        show(samples.min()),
        show(samples.max()),
        samples.len().to_string(),
    ])
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn the_verdict_stands_before_the_picture_and_the_picture_before_the_advice() {
        let provenance =
            Provenance::of_this_machine("unjank doctor".to_owned(), SystemTime::UNIX_EPOCH);
        let html = render(&super::super::text::tests::example(), &provenance);
        let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
        let order = [
            "2 of 4 steps miss",
            "<svg",
            "What to do",
            "<table",
            "<details",
            "Where this comes from",
        ];
        assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])));
        assert!(html.contains("sudo rm /run/user/1000/dconf/user"));
        assert!(html.len() < 300_000);
    }
}
