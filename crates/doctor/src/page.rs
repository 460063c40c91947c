//! A diagnosis as a page: the times of each group of steps, with figures beside the bars, at any width.

use super::finding::{Finding, MeasurementOutcome};
use super::text::{time, verdict};
use super::{Diagnosis, PROBES};
use report::advice::Advice;
use report::chart::bars;
use report::escape::escape;
use report::figure::{Quantity, duration, frame_count};
use report::page::{Page, Todo};
use report::provenance::Provenance;
use report::samples::Samples;

/// Bars with text beside them, and below them where the screen is narrow; a table whose rows become lists there.
const STYLE: &str = include_str!("page.css");

/// Writes the page, one HTML file.
#[must_use]
pub fn render(diagnosis: &Diagnosis, provenance: &Provenance) -> String {
    let mut page = Page::new("unjank doctor", &verdict(diagnosis));
    page.style(STYLE);
    if let Some(hangs) = &diagnosis.hangs {
        page.paragraph(&hangs.sentence);
    }
    let groups = groups(diagnosis);
    if !groups.is_empty() {
        let frame = duration(diagnosis.frame);
        page.paragraph(&format!(
            "Median time of each step. The line is one frame of {frame}, a bar ends after two; the thin line goes on to the time that 19 of 20 stay below."
        ));
        for (title, findings) in &groups {
            page.markup(&group(title, findings, diagnosis));
        }
    }
    let pick = |pick: &dyn Fn(&Finding) -> Option<String>| -> Vec<String> {
        diagnosis.findings.iter().filter_map(pick).collect()
    };
    let broken = pick(&|finding| match &finding.outcome {
        MeasurementOutcome::Wrong(text) => Some(format!("{}: {text}", finding.name)),
        _ => None,
    });
    if !broken.is_empty() {
        page.heading("Broken");
        page.list(&broken);
    }
    let (actions, causes) = diagnosis.actions();
    if !actions.is_empty() {
        page.heading("What to do");
        let advice: Vec<[Advice; 1]> = actions
            .iter()
            .map(|action| {
                let (text, command) = (action.text.clone(), Some(action.command.clone()));
                [Advice { text, command }]
            })
            .collect();
        let todo = actions.iter().zip(&advice);
        let todo: Vec<Todo<'_>> =
            todo.map(|(action, advice)| Todo { reason: &action.reason, advice }).collect();
        page.advice(&todo);
    }
    if !causes.is_empty() {
        page.heading("Why");
        let causes: Vec<String> = causes
            .into_iter()
            .map(|cause| {
                let hints = cause.hints.iter().map(|hint| report::paragraph::capital(hint));
                [cause.reason.clone()].into_iter().chain(hints).collect::<Vec<_>>().join(". ")
            })
            .collect();
        page.list(&causes);
    }
    let seen = pick(&Finding::told);
    if groups.is_empty() {
        // It is all that there is.
        page.heading("What was seen");
        page.list(&seen);
    } else {
        page.fold("All figures");
        page.markup(&table(&groups, diagnosis));
        page.unfold();
        page.fold("What else was seen");
        page.list(&seen);
        page.unfold();
    }
    page.fold("How it was measured");
    page.list(&pick(&|finding| Some(format!("{}: {}", finding.name, finding.measured))));
    page.unfold();
    page.finish(&[], provenance)
}

/// The heading of a probe, and what it timed, slowest first.
type Group<'a> = (&'static str, Vec<&'a Finding>);

fn groups(diagnosis: &Diagnosis) -> Vec<Group<'_>> {
    let slowest = diagnosis.slowest_first();
    let of = |probe: &str| -> Vec<&Finding> {
        let mut found: Vec<&Finding> =
            slowest.iter().copied().filter(|finding| finding.probe == probe).collect();
        found.sort_by_key(|finding| finding.is_comparison);
        found
    };
    let groups = PROBES.iter().map(|probe| (probe.title(), of(probe.name())));
    groups.filter(|(_, findings)| !findings.is_empty()).collect()
}

/// Returns the word for a time: its grade, or that it stands beside what is in effect.
fn judged(finding: &Finding, diagnosis: &Diagnosis) -> String {
    match finding.grade(diagnosis.frame) {
        Some(_) if finding.is_comparison => "compared".to_owned(),
        Some(grade) => format!("{} {}", grade.shape(), grade.word()),
        None => String::new(),
    }
}

fn group(title: &str, findings: &[&Finding], diagnosis: &Diagnosis) -> String {
    let mut html = format!("<section class=\"steps\"><h2>{}</h2>\n<ul>\n", escape(title));
    for finding in findings {
        let Some(samples) = time(finding) else { continue };
        let grade = finding.grade(diagnosis.frame).filter(|_| !finding.is_comparison);
        let figure = format!(
            "{} · {} frames",
            Quantity::Time.show(samples.median()),
            frame_count(samples.median(), diagnosis.frame)
        );
        html.push_str(&format!(
            "<li><span class=\"step\">{}</span>{}<span class=\"figure\">{} · <span class=\"judged\">{}</span></span></li>\n",
            escape(&finding.name),
            bars::single(samples, diagnosis.frame, grade.map_or("aside", |grade| grade.word())),
            escape(&figure),
            escape(&judged(finding, diagnosis)),
        ));
    }
    html.push_str("</ul></section>\n");
    html
}

const HEADINGS: [&str; 8] = ["step", "median", "frames", "verdict", "p95", "least", "most", "n"];

/// Writes all figures as a table; each cell has its heading with it, for screens on which a row becomes a list.
fn table(groups: &[Group<'_>], diagnosis: &Diagnosis) -> String {
    let mut html = "<table class=\"stacked\">\n<thead><tr>".to_owned();
    for heading in HEADINGS {
        html.push_str(&format!("<th scope=\"col\">{heading}</th>"));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for finding in groups.iter().flat_map(|(_, findings)| findings) {
        let Some(samples) = time(finding) else { continue };
        html.push_str("<tr>");
        for (heading, cell) in HEADINGS.iter().zip(row(finding, samples, diagnosis)) {
            html.push_str(&format!("<td data-label=\"{heading}\">{}</td>", escape(&cell)));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table>\n");
    html
}

fn row(finding: &Finding, samples: &Samples, diagnosis: &Diagnosis) -> [String; 8] {
    let show = |value| Quantity::Time.show(value);
    [
        finding.name.clone(),
        show(samples.median()),
        frame_count(samples.median(), diagnosis.frame),
        judged(finding, diagnosis),
        show(samples.p95()),
        show(samples.min()),
        show(samples.max()),
        samples.len().to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn page() -> String {
        let provenance =
            Provenance::of_this_machine("unjank doctor".to_owned(), SystemTime::UNIX_EPOCH);
        render(&super::super::text::tests::example(), &provenance)
    }

    #[test]
    fn the_verdict_stands_before_the_picture_and_the_picture_before_the_advice() {
        let html = page();
        let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
        let order = [
            "2 of 4 steps miss",
            "<svg",
            "What to do",
            "<details",
            "<table",
            "Where this comes from",
        ];
        assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])));
        assert!(html.contains("rm -rf /run/user/1000/dconf/user"));
        assert!(html.len() < 300_000);
    }

    #[test]
    fn each_group_has_its_heading_and_each_bar_its_figure() {
        let html = page();
        for heading in ["<h2>Storage</h2>", "<h2>Settings</h2>"] {
            assert_eq!(html.matches(heading).count(), 1, "{heading}");
        }
        assert!(!html.contains("<h2>Session bus</h2>"), "nothing of it was timed");
        assert_eq!(html.matches("class=\"figure\"").count(), 5);
        assert!(html.contains("1.55 s · 93 frames · "), "{html}");
        // What is compared is neither counted nor coloured as if it were in effect.
        assert!(html.contains("<span class=\"judged\">compared</span>"));
        assert_eq!(
            html.matches("class=\"misses\"").count(),
            2 + 1,
            "two bars, and the point of one"
        );
    }

    #[test]
    fn what_was_recorded_of_hangs_stands_before_all_that_was_measured() {
        let provenance =
            Provenance::of_this_machine("unjank doctor".to_owned(), SystemTime::UNIX_EPOCH);
        let html = render(&super::super::text::tests::example_with_hangs(), &provenance);
        let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
        assert!(at("Yesterday 14 hangs.") < at("<svg"));
    }
}
