//! Annotations of code hosts: commands of GitHub's workflows, and GitLab's report of code quality.

use serde::Serialize;

use super::{CheckDocument, json_text, place, shown};

/// Writes a workflow command for each finding, a line each.
#[must_use]
pub fn github(document: &CheckDocument<'_>) -> String {
    let mut text = String::new();
    for finding in document.findings() {
        let level = if finding.kind.fails() { "error" } else { "notice" };
        let mut properties = Vec::new();
        if let Some(place) = place::of_ours(&finding, document) {
            properties.push(format!("file={}", property(&place.path)));
            properties.push(format!("line={}", place.line));
        }
        properties.push(format!("title={}", property(&format!("unjank {}", finding.kind.id()))));
        let message = data(&finding.text);
        text.push_str(&format!("::{level} {}::{message}\n", properties.join(",")));
    }
    text
}

/// Escapes the text of a command, so that it ends with its line, whatever the reader takes for the end of one.
fn data(text: &str) -> String {
    shown(text).replace('%', "%25")
}

/// Escapes a property, which ends at a comma or colon.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[derive(Serialize)]
struct Issue {
    r#type: &'static str,
    check_name: String,
    description: String,
    categories: [&'static str; 1],
    severity: &'static str,
    fingerprint: String,
    location: Location,
}

#[derive(Serialize)]
struct Location {
    path: String,
    lines: Lines,
}

#[derive(Serialize)]
struct Lines {
    begin: u64,
}

/// Writes the report of code quality: the findings that fail and have a place in the sources or the baseline.
///
/// # Errors
///
/// Whatever `serde_json` reports; the types here give it no reason.
pub fn gitlab(document: &CheckDocument<'_>) -> serde_json::Result<String> {
    let failing = document.findings().into_iter().filter(|finding| finding.kind.fails());
    let issues: Vec<Issue> = failing
        .map(|finding| {
            let place = place::of_ours(&finding, document);
            Issue {
                r#type: "issue",
                check_name: format!("unjank/{}", finding.kind.id()),
                categories: ["Performance"],
                severity: "major",
                fingerprint: place::fingerprint(&finding),
                location: Location {
                    // A place is required; a limit has none of its own.
                    path: place.as_ref().map_or_else(|| ".".to_owned(), |place| place.path.clone()),
                    lines: Lines { begin: place.map_or(1, |place| place.line) },
                },
                description: shown(&finding.text).into_owned(),
            }
        })
        .collect();
    json_text(&issues)
}
