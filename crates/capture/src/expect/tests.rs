//! What rules find.

use super::*;
use crate::model::Model;
use crate::model::peers::DRIVER;
use crate::model::sample::{SampleMessage, seen};

const SAY: &str = "org.example.I.Say";

fn model() -> Model {
    let mut messages = vec![
        (0, SampleMessage::owner_changed("org.example.Echo", "", ":1.2")),
        (10, SampleMessage::call(1, ":1.1", "org.example.Echo", SAY)),
        (150_010, SampleMessage::answer(1, ":1.2", ":1.1")),
        (200_000, SampleMessage::call(2, ":1.1", "org.example.Never", "org.example.I.Ask")),
        (
            200_010,
            SampleMessage::error(2, DRIVER, ":1.1", "org.freedesktop.DBus.Error.ServiceUnknown"),
        ),
        (210_000, SampleMessage::call(3, ":1.1", "org.example.Echo", "org.example.I.Wait")),
    ];
    for at in 0..30 {
        messages
            .push((900_000 + at * 100_000, SampleMessage::signal(9, ":1.2", "org.example.I.Tick")));
    }
    seen(&messages)
}

fn kept(rule: &str) -> bool {
    let rules: ExpectRules = rule.parse().unwrap_or_else(|error| panic!("{rule}: {error}"));
    let outcomes = check(&rules, &model());
    assert_eq!(outcomes.len(), 1);
    outcomes[0].kept
}

#[test]
fn each_rule_is_kept_by_what_it_wants_and_broken_by_what_it_forbids() {
    for rule in [
        "called org.example.I.Say",
        "called org.example.I.Say within 200ms",
        "called Say within 1 s where to:org.example.Echo",
        "at most 10 signals a second",
        "at most 31 signals",
        "at least 30 signals where member:Tick",
        "at least 10 signals per second where member:Tick",
        "no errors where from:org.example.Echo",
        "no unowned where to:org.example.Echo",
        "no unanswered where member:Say",
        "no refused",
        "no lost",
        "no calls where member:Shout",
    ] {
        assert!(kept(rule), "{rule}");
    }
    for rule in [
        "called org.example.I.Shout",
        "called org.example.I.Say within 100ms",
        "called org.example.I.Say where from:org.example.Echo",
        "called org.example.I.Wait",
        "at most 9 signals a second",
        "at most 30 signals",
        "at least 32 signals",
        "no errors",
        "no unowned",
        "no unanswered",
        "no messages where from::1.2",
    ] {
        assert!(!kept(rule), "{rule}");
    }
}

#[test]
fn a_broken_rule_names_messages() {
    let rules: ExpectRules =
        "# Comments and empty lines say nothing.\n\nno errors\n".parse().unwrap();
    let outcome = &check(&rules, &model())[0];
    assert_eq!(outcome.line, 3);
    assert_eq!(
        outcome.examples,
        [
            "200 ms org.example.I.Ask from org.freedesktop.DBus to :1.1: org.freedesktop.DBus.Error.ServiceUnknown"
        ]
    );
    let rules: ExpectRules = "called org.example.I.Say within 1ms".parse().unwrap();
    let outcome = &check(&rules, &model())[0];
    assert_eq!(outcome.found, "called 1 times, the longest took 150 ms");
    assert!(outcome.examples[0].ends_with("took 150 ms"), "{outcome:?}");
}

#[test]
fn what_the_recorder_lost_breaks_a_rule() {
    let mut model = model();
    let loss = crate::model::MessageLoss { bus: 0, count: 3, bytes: 100, before: 4 };
    model.losses.push(loss);
    let rules: ExpectRules = "no lost".parse().unwrap();
    assert!(!check(&rules, &model)[0].kept);
}

#[test]
fn a_call_without_an_answer_breaks_each_rule_about_slow_calls() {
    for rule in [
        "at most 0 calls where slower-than:1s",
        "no calls where slower-than:50s and member:Wait",
        "called org.example.I.Wait within 1m",
        "no messages where slower-than:10m",
    ] {
        assert!(!kept(rule), "{rule}");
    }
    assert!(kept("at most 1 calls where slower-than:1s"));
    let rules: ExpectRules = "no calls where slower-than:1s".parse().unwrap();
    let outcome = &check(&rules, &model())[0];
    assert!(outcome.examples[0].contains("org.example.I.Wait"), "{outcome:?}");
    assert!(outcome.examples[0].ends_with(" had no answer in 3.59 s"), "{outcome:?}");
}

#[test]
fn a_record_of_which_something_is_missing_is_not_checked() {
    let rules: ExpectRules = "no refused".parse().unwrap();
    let whole = ExpectReport::of(&rules, &model(), &[]);
    assert!(whole.kept && whole.faults.is_empty() && whole.outcomes.len() == 1);
    for spoil in [|model: &mut Model| model.damaged = 1, |model: &mut Model| model.cut = 1] {
        let mut model = model();
        spoil(&mut model);
        let report = ExpectReport::of(&rules, &model, &[]);
        assert!(!report.kept && report.outcomes.is_empty());
        assert!(matches!(&report.faults[..], [CheckProblem::Damaged { .. }]), "{report:?}");
    }
}

#[test]
fn what_was_lost_leaves_a_verdict_open_unless_a_rule_is_about_it() {
    let mut model = model();
    model.losses.push(crate::model::MessageLoss { bus: 0, count: 3, bytes: 100, before: 4 });
    let report = |rules: &str| ExpectReport::of(&rules.parse().unwrap(), &model, &[]);
    let open = report("no refused");
    assert!(!open.kept && open.outcomes[0].kept, "{open:?}");
    assert_eq!(open.faults, [CheckProblem::Lost { count: 3 }]);
    assert_eq!(open.faults[0].to_string(), "3 messages lost by the recorder");
    let told = report("no refused\nat most 3 lost");
    assert!(told.kept && told.faults.is_empty(), "{told:?}");
}

#[test]
fn a_record_of_chosen_messages_is_judged_only_for_who_chose_them() {
    let rules: ExpectRules = "no refused".parse().unwrap();
    let chosen = vec!["type='signal'".to_owned(), "interface='org.a'".to_owned()];
    let mut model = model();
    model.matched.clone_from(&chosen);
    for others in [&[][..], &chosen[..1], &["type='error'".to_owned()]] {
        let report = ExpectReport::of(&rules, &model, others);
        assert!(!report.kept && report.outcomes[0].kept, "{report:?}");
        assert_eq!(report.faults, [CheckProblem::Matched { rules: chosen.clone() }]);
    }
    let told = ExpectReport::of(&rules, &model, &chosen);
    assert!(told.kept && told.matched == chosen, "{told:?}");
}

/// Reads a report as programs read XML: elements in order, with their attributes and what is in them.
fn elements(xml: &str) -> Vec<(String, Vec<(String, String)>)> {
    use quick_xml::events::Event;
    let mut reader = quick_xml::reader::Reader::from_str(xml);
    let mut all = Vec::new();
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) | Event::Empty(tag) => {
                let name = tag.name().as_ref().to_owned();
                let attributes = tag.attributes().map(|attribute| {
                    let attribute = attribute.unwrap();
                    (attribute.key.as_ref().to_owned(), attribute.value.clone().into_owned())
                });
                all.push((name, attributes.collect()));
            }
            Event::Eof => return all,
            _ => (),
        }
    }
}

#[test]
fn junit_has_a_case_for_each_rule_and_one_for_the_run() {
    let rules: ExpectRules = "no refused\nno errors\nno calls where \"<&\u{1b}\"".parse().unwrap();
    let mut report = ExpectReport::of(&rules, &model(), &[]);
    let count =
        |xml: &str, wanted: &str| elements(xml).iter().filter(|(name, _)| name == wanted).count();
    let xml = junit(&report, "rules <&>.txt");
    assert_eq!([count(&xml, "testcase"), count(&xml, "failure"), count(&xml, "error")], [4, 1, 0]);
    assert!(xml.contains("tests=\"4\" failures=\"1\" errors=\"0\""), "{xml}");
    assert!(!xml.chars().any(|letter| letter.is_control() && letter != '\n'), "{xml:?}");
    report.add_fault(CheckProblem::TimeLimit { limit: "10.0 s".to_owned() });
    report.command = Some(CommandEnd { took_ns: 10_000_000_001, ..CommandEnd::default() });
    let xml = junit(&report, "rules");
    assert_eq!([count(&xml, "testcase"), count(&xml, "failure"), count(&xml, "error")], [4, 1, 1]);
    assert!(xml.contains("time=\"10.000000001\"") && xml.contains("ended after 10.0 s"), "{xml}");
}

#[test]
fn what_is_no_rule_says_where() {
    for (text, line) in [
        ("no errors\nsometimes calls", 2),
        ("called", 1),
        ("called A.B within soon", 1),
        ("at most many signals", 1),
        ("at most 3 birds", 1),
        ("at most 3 signals a day", 1),
        ("no errors where colour:red", 1),
    ] {
        let error = text.parse::<ExpectRules>().unwrap_err();
        assert!(error.to_string().contains(&format!("line {line}")), "{text}: {error}");
    }
    assert!(matches!("# nothing\n".parse::<ExpectRules>(), Err(ExpectRuleError::None)));
}
