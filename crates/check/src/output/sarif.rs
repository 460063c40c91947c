//! SARIF 2.1.0, which code hosts show beside the source line.

use serde_json::{Value, json};

use super::place::{self, FileLine};
use super::{CheckDocument, json_text, shown};
use crate::baseline::{CheckFinding, FindingKind};

/// The rules, with what each says.
const RULES: [(FindingKind, &str, &str, &str); 6] = [
    (
        FindingKind::NewWait,
        "NewWait",
        "The main thread waits where it did not wait before.",
        "Do the work on another thread or without a sync, or allow it: unjank trace check --baseline FILE --update-baseline.",
    ),
    (
        FindingKind::MoreWaits,
        "MoreWaits",
        "The main thread syncs more often than the baseline allows.",
        "Sync once for all changes, or allow it with --update-baseline.",
    ),
    (
        FindingKind::LongerWait,
        "LongerWait",
        "A wait of the main thread takes longer than the baseline and its margin allow.",
        "See the report of unjank trace for what it waits for, or allow it with --update-baseline.",
    ),
    (
        FindingKind::ShortWaits,
        "ShortWaits",
        "Many short waits of the main thread take longer together than the baseline and its margin allow.",
        "See the report of unjank trace for the calls, or allow it with --update-baseline.",
    ),
    (
        FindingKind::Limit,
        "Limit",
        "A limit of the command line is broken.",
        "See the report of unjank trace for what the main thread waited for.",
    ),
    (
        FindingKind::NotJudged,
        "NotJudged",
        "Something could not be seen, so that no answer would be true.",
        "The text says what was not seen; run again with the options that the baseline was made with.",
    ),
];

/// Writes the log, one JSON document.
///
/// # Errors
///
/// Whatever `serde_json` reports; the values here give it no reason.
pub fn render(document: &CheckDocument<'_>) -> serde_json::Result<String> {
    let failing: Vec<CheckFinding> =
        document.findings().into_iter().filter(|finding| finding.kind.fails()).collect();
    let rules: Vec<Value> = RULES
        .iter()
        .map(|(kind, name, says, helps)| {
            json!({
                "id": rule_id(*kind),
                "name": name,
                "shortDescription": { "text": says },
                "fullDescription": { "text": says },
                "help": { "text": helps },
                "defaultConfiguration": { "level": "error" },
                "properties": { "tags": ["performance"] },
            })
        })
        .collect();
    let results: Vec<Value> = failing.iter().map(|finding| result(finding, document)).collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "unjank", "version": document.version, "rules": rules } },
            "automationDetails": { "id": format!("unjank-trace-check/{}/", document.program) },
            "columnKind": "unicodeCodePoints",
            "invocations": [{
                "executionSuccessful": true,
                "commandLine": document.command,
            }],
            "results": results,
        }],
    });
    json_text(&log)
}

fn rule_id(kind: FindingKind) -> String {
    format!("unjank/{}", kind.id())
}

fn result(finding: &CheckFinding, document: &CheckDocument<'_>) -> Value {
    let index = RULES.iter().position(|(kind, ..)| *kind == finding.kind);
    let mut location = serde_json::Map::new();
    if let Some(place) = place::of(finding, document) {
        location.insert("physicalLocation".to_owned(), physical(&place));
    }
    let function = finding.wait.as_ref().map(|wait| wait.key.function.as_str());
    if let Some(function) = function.filter(|function| !function.is_empty()) {
        let logical = json!([{ "fullyQualifiedName": shown(function), "kind": "function" }]);
        location.insert("logicalLocations".to_owned(), logical);
    }
    let mut result = json!({
        "ruleId": rule_id(finding.kind),
        "level": "error",
        "message": { "text": shown(&finding.text) },
        "partialFingerprints": { "unjankWait/v1": place::fingerprint(finding) },
    });
    if let Some(index) = index {
        result["ruleIndex"] = json!(index);
    }
    if !location.is_empty() {
        result["locations"] = json!([location]);
    }
    if let Some(wait) = &finding.wait {
        result["properties"] = json!({
            "phase": wait.key.phase,
            "call": wait.key.call,
            "path": wait.key.path,
            "function": wait.key.function,
            "count": wait.count,
            "blockedNanoseconds": wait.blocked_ns,
        });
        if !wait.stack.is_empty() {
            let frame =
                |text: &String| json!({ "location": { "message": { "text": shown(text) } } });
            let frames: Vec<Value> = wait.stack.iter().map(frame).collect();
            result["stacks"] = json!([{ "frames": frames }]);
        }
    }
    result
}

fn physical(place: &FileLine) -> Value {
    let artifact = if place.is_ours {
        json!({ "uri": uri(&place.path), "uriBaseId": "%SRCROOT%" })
    } else {
        json!({ "uri": format!("file://{}", uri(&place.path)) })
    };
    json!({ "artifactLocation": artifact, "region": { "startLine": place.line } })
}

/// Writes a path as part of a URI.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/+@!$&'()*,;=".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}
