//! What a check writes: for people, for build servers and for code hosts, with names that would be anything but names.

use std::path::Path;

use quick_xml::Reader;
use quick_xml::events::Event;
use report::paint::Paint;
use serde_json::Value;

use super::*;
use crate::baseline::{FoundWait, SourcePlace, WaitKey};
use crate::limits::CheckRule;

/// A name that would be markup, a command or another line where it is not escaped.
const HOSTILE: &str = "</failure><x a=\"\r\n::error::%0A\u{1b}[31m\u{0}\u{fffe}\u{202e}\u{85}::error::\u{2028}\u{2029}\u{9b}31m\u{7f}',;";

fn wait(function: &str, file: &str) -> FoundWait {
    FoundWait {
        key: WaitKey {
            phase: "start".to_owned(),
            call: "fsync".to_owned(),
            path: "~/a,b: 100%".to_owned(),
            function: function.to_owned(),
        },
        target: "/home/ana/a,b: 100%".to_owned(),
        is_sync: true,
        count: 1,
        blocked_ns: 12_345_678,
        source: (!file.is_empty()).then(|| SourcePlace { file: file.to_owned(), line: 31 }),
        stack: vec!["fsync (libc.so.6)".to_owned(), function.to_owned()],
    }
}

fn finding(kind: FindingKind, wait: FoundWait) -> CheckFinding {
    let text = format!("new wait: {} by {}", wait.key.path, wait.key.function);
    CheckFinding {
        wait: Some(wait),
        line: Some(7),
        is_certain: true,
        ..CheckFinding::new(kind, text)
    }
}

fn judgement(findings: Vec<CheckFinding>) -> BaselineJudgement {
    BaselineJudgement { findings, allowed: 3, runs: 1 }
}

fn outcomes() -> Vec<CheckOutcome> {
    let report = crate::example::report();
    ["fsync=0", "syncfs=0"].map(|rule| CheckRule::count(rule).unwrap().check(&report)).into()
}

/// Calls `each` with a document of these findings.
fn with<T>(judgement: &BaselineJudgement, each: impl Fn(&CheckDocument<'_>) -> T) -> T {
    each(&CheckDocument {
        program: "editor",
        command: "editor --start",
        baseline: Some("tests/waits.baseline"),
        root: Path::new("/src/editor"),
        began_ms: 0,
        length_ns: 1_500_000_000,
        verdict: "The main thread of editor waited.",
        version: "0.0.0",
        judgement,
        outcomes: &outcomes(),
    })
}

fn sarif_of(findings: Vec<CheckFinding>) -> Value {
    serde_json::from_str(&with(&judgement(findings), |document| sarif(document).unwrap())).unwrap()
}

#[test]
fn sarif_names_the_line_of_the_source_else_that_of_the_baseline() {
    let log = sarif_of(vec![
        finding(FindingKind::NewWait, wait("save", "/src/editor/src/../src/save file.c")),
        finding(FindingKind::LongerWait, wait("load", "/usr/src/lib/load.c")),
        finding(FindingKind::MoreWaits, wait("store", "")),
        CheckFinding::new(FindingKind::Tighten, "a note is no result".to_owned()),
    ]);
    assert_eq!(log["version"], "2.1.0");
    let results = log["runs"][0]["results"].as_array().unwrap();
    let place = |at: usize| {
        let physical = &results[at]["locations"][0]["physicalLocation"];
        let artifact = &physical["artifactLocation"];
        (
            artifact["uri"].as_str().unwrap().to_owned(),
            artifact["uriBaseId"].as_str().map(str::to_owned),
            physical["region"]["startLine"].as_u64().unwrap(),
        )
    };
    let root = Some("%SRCROOT%".to_owned());
    assert_eq!(place(0), ("src/save%20file.c".to_owned(), root.clone(), 31));
    assert_eq!(place(1), ("file:///usr/src/lib/load.c".to_owned(), None, 31));
    assert_eq!(place(2), ("tests/waits.baseline".to_owned(), root, 7));
    assert_eq!(results.len(), 4, "three findings and a broken limit");
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        assert_eq!(result["partialFingerprints"]["unjankWait/v1"].as_str().unwrap().len(), 32);
    }
    let function = &results[0]["locations"][0]["logicalLocations"][0];
    assert_eq!(
        (&function["fullyQualifiedName"], &function["kind"]),
        (&"save".into(), &"function".into())
    );
}

#[test]
fn a_finding_is_the_same_one_when_its_line_its_count_and_its_time_are_others() {
    let print = |wait: FoundWait| {
        let log = sarif_of(vec![finding(FindingKind::NewWait, wait)]);
        log["runs"][0]["results"][0]["partialFingerprints"]["unjankWait/v1"].clone()
    };
    let first = print(wait("save", "/src/editor/save.c"));
    let mut moved = wait("save", "/src/editor/other.c");
    (moved.count, moved.blocked_ns) = (9, 1);
    assert_eq!(print(moved), first);
    assert_ne!(print(wait("load", "/src/editor/save.c")), first);
    // Of a limit, too.
    let limit = |log: &Value| log["runs"][0]["results"][0]["partialFingerprints"].clone();
    assert_eq!(limit(&sarif_of(Vec::new())), limit(&sarif_of(Vec::new())));
}

/// Returns the elements of an XML text with their texts; panics where it is not well-formed.
fn elements(xml: &str) -> Vec<(String, String)> {
    let mut reader = Reader::from_str(xml);
    let mut elements: Vec<(String, String)> = Vec::new();
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) | Event::Empty(tag) => {
                let name = tag.name().as_ref().to_owned();
                tag.attributes().for_each(|attribute| drop(attribute.unwrap()));
                elements.push((name, String::new()));
            }
            Event::Text(text) => {
                let text = AsRef::<str>::as_ref(&text).to_owned();
                elements.last_mut().into_iter().for_each(|(_, all)| all.push_str(text.trim()));
            }
            Event::Eof => return elements,
            _ => (),
        }
    }
}

#[test]
fn junit_has_a_test_for_each_finding_each_limit_and_what_is_allowed() {
    let judged = judgement(vec![
        finding(FindingKind::NewWait, wait("save", "")),
        CheckFinding::new(FindingKind::NotJudged, "lost: 1 event".to_owned()),
        CheckFinding::new(FindingKind::NotConfirmed, "once".to_owned()),
    ]);
    let xml = with(&judged, junit);
    assert!(xml.contains("tests=\"5\" failures=\"2\" errors=\"1\""), "{xml}");
    assert!(
        xml.contains("name=\"new-wait: start fsync ~/a,b: 100% save\" time=\"0.012\""),
        "{xml}"
    );
    let names: Vec<String> = elements(&xml).into_iter().map(|(name, _)| name).collect();
    let count = |wanted: &str| names.iter().filter(|name| *name == wanted).count();
    assert_eq!((count("testcase"), count("failure"), count("error")), (5, 2, 1));
}

#[test]
fn a_hostile_name_is_neither_markup_nor_a_command_nor_another_line() {
    let judged = judgement(vec![finding(FindingKind::NewWait, wait(HOSTILE, HOSTILE))]);
    let xml = with(&judged, junit);
    let names: Vec<String> = elements(&xml).into_iter().map(|(name, _)| name).collect();
    assert!(!names.iter().any(|name| name == "x"), "{xml}");
    let is_xml = |letter: char| matches!(letter, '\n' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    assert!(xml.chars().all(is_xml), "{xml:?}");
    let commands = with(&judged, github);
    assert_eq!(commands.lines().count(), 2, "{commands}");
    assert!(commands.lines().all(|line| line.starts_with("::error ")), "{commands}");
    // What one reader shows another one obeys, or ends a line at.
    let documents: [fn(&CheckDocument<'_>) -> String; 4] = [
        junit,
        |document| sarif(document).unwrap(),
        |document| gitlab(document).unwrap(),
        |document| json(document).unwrap(),
    ];
    for text in documents.map(|write| with(&judged, write)).into_iter().chain([commands]) {
        let is_plain = |letter| letter == '\n' || report::text::is_shown(letter, Charset::Unicode);
        assert!(text.chars().all(is_plain), "{text:?}");
    }
    let log = sarif_of(judged.findings.clone());
    // Programs get the name as it is, people one that they can read.
    assert_eq!(log["runs"][0]["results"][0]["properties"]["function"], HOSTILE);
    let message = log["runs"][0]["results"][0]["message"]["text"].as_str().unwrap();
    assert!(message.contains(r"\u{202e}\u{85}::error::\u{2028}"), "{message:?}");
    let screen = with(&judged, |document| text(document, Paint::Off));
    assert!(screen.chars().all(|letter| letter == '\n' || !letter.is_control()), "{screen:?}");
    assert!(!screen.contains("\n::error"), "{screen}");
    let uri = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
        ["uri"]
        .clone();
    assert!(uri.as_str().unwrap().bytes().all(|byte| byte.is_ascii_graphic()), "{uri}");
}

#[test]
fn annotations_are_beside_the_line_that_they_are_about() {
    let judged = judgement(vec![
        finding(FindingKind::NewWait, wait("save", "/src/editor/src/save.c")),
        finding(FindingKind::LongerWait, wait("load", "/usr/src/lib/load.c")),
        CheckFinding::new(FindingKind::NotConfirmed, "once: 5 %".to_owned()),
    ]);
    insta::assert_snapshot!(with(&judged, github), @"
    ::error file=src/save.c,line=31,title=unjank new-wait::new wait: ~/a,b: 100%25 by save
    ::error file=tests/waits.baseline,line=7,title=unjank longer-wait::new wait: ~/a,b: 100%25 by load
    ::notice file=tests/waits.baseline,line=1,title=unjank not-confirmed::once: 5 %25
    ::error file=tests/waits.baseline,line=1,title=unjank limit::max fsync: fsync was called 1 times, 0 allowed
    ");
    let issues: Value =
        serde_json::from_str(&with(&judged, |document| gitlab(document).unwrap())).unwrap();
    let issues = issues.as_array().unwrap();
    assert_eq!(issues.len(), 3);
    assert_eq!(issues[0]["location"]["path"], "src/save.c");
    assert_eq!(issues[0]["location"]["lines"]["begin"], 31);
    assert_ne!(issues[0]["fingerprint"], issues[1]["fingerprint"]);
}

#[test]
fn a_person_reads_what_is_broken_who_called_and_the_verdict() {
    let judged = judgement(vec![finding(FindingKind::NewWait, wait("save", "/src/editor/save.c"))]);
    insta::assert_snapshot!(with(&judged, |document| text(document, Paint::Off)), @"
    ▲ broken  fsync was called 1 times, 0 allowed
    ● kept    syncfs was called 0 times, 0 allowed
    ▲ broken  new wait: ~/a,b: 100% by save
              fsync (libc.so.6)
              save
    ▲ broken  tests/waits.baseline: 1 finding, 3 allowed waits in 1 run
    The main thread of editor waited.
    ");
    let kept = judgement(Vec::new());
    assert!(with(&kept, |document| text(document, Paint::Off)).contains("none that is new"));
}

#[test]
fn the_document_has_the_fields_that_it_had_before_there_were_baselines() {
    let judged = judgement(vec![finding(FindingKind::NewWait, wait("save", "/src/editor/save.c"))]);
    let written = with(&judged, |document| json(document).unwrap());
    let document: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(document["schema"], "unjank.trace.check/1");
    assert_eq!(document["kept"], false);
    assert_eq!(document["outcomes"][1]["kept"], true);
    assert_eq!(document["baseline"]["findings"][0]["kind"], "new-wait");
    assert_eq!(document["baseline"]["findings"][0]["wait"]["function"], "save");
}
