//! What filters choose.

use super::*;
use crate::model::peers::DRIVER;
use crate::model::sample::{SampleMessage, push, seen};

fn model() -> Model {
    let failed = "org.freedesktop.DBus.Error.Failed";
    seen(&[
        (0, SampleMessage::owner_changed("org.example.Echo", "", ":1.2")),
        (10, SampleMessage::call(1, ":1.1", "org.example.Echo", "org.example.I.Say").at("/a/b")),
        (20, SampleMessage::answer(1, ":1.2", ":1.1")),
        (30, SampleMessage::call(2, ":1.1", ":1.2", "org.example.I.Sing")),
        (9030, SampleMessage::error(2, ":1.2", ":1.1", failed)),
        (9040, SampleMessage::owner_changed("org.example.Echo", ":1.2", ":1.3")),
        (9050, SampleMessage::signal(3, ":1.3", "org.example.I.Done")),
        (9060, SampleMessage::signal(4, ":1.2", "org.example.I.Done")),
        (9070, SampleMessage::call(5, ":1.1", "org.example.Unknown", "org.example.I.Say")),
        (9080, SampleMessage::answer(5, ":1.7", ":1.1")),
    ])
}

fn chosen(filter: &str) -> Vec<u32> {
    let model = model();
    let filter: Filter = filter.parse().unwrap_or_else(|error| panic!("{filter}: {error}"));
    (0..model.end()).filter(|number| filter.chooses(&model, *number)).collect()
}

#[test]
fn a_service_is_followed_through_replies_and_owners() {
    assert_eq!(chosen("from:org.example.Echo"), [2, 4, 6], ":1.2 is not Echo any more at 7");
    assert_eq!(chosen("to:org.example.Echo"), [1, 3]);
    assert_eq!(chosen("with:org.example.Echo"), [1, 2, 3, 4, 6]);
    assert_eq!(chosen("from:org.example.Unknown"), [9], "whose owner only its answer tells");
    assert_eq!(chosen("from::1.2"), [2, 4, 7]);
    assert_eq!(chosen(&format!("from:{DRIVER}")), [0, 5]);
}

#[test]
fn both_ends_of_a_call_are_chosen_together() {
    assert_eq!(chosen("member:Say"), [1, 2, 8, 9]);
    assert_eq!(chosen("member:org.example.I.S*g"), [3, 4]);
    assert_eq!(chosen("path:/a/*"), [1, 2]);
    assert_eq!(chosen("iface:org.example.*"), [1, 2, 3, 4, 6, 7, 8, 9]);
    assert_eq!(chosen("slower-than:5ms"), [3, 4]);
    assert_eq!(chosen("error:*Failed"), [3, 4]);
    assert_eq!(chosen("slower-than:9ms"), [0; 0], "just as slow is not slower");
}

#[test]
fn a_call_that_nobody_answered_is_slower_than_any_time() {
    let slow = |model: &Model, filter: &str| -> Vec<u32> {
        let filter: Filter = filter.parse().unwrap();
        (0..model.end()).filter(|number| filter.chooses(model, *number)).collect()
    };
    let mut model = Model::default();
    let say = |serial| SampleMessage::call(serial, ":1.1", ":1.2", "org.example.I.Say");
    push(&mut model, 0, &say(1));
    push(&mut model, 10, &say(2).flags(1));
    push(&mut model, 20, &SampleMessage::signal(1, ":1.2", "org.example.I.Tick"));
    // While messages still come, it has waited for as long as is known.
    assert_eq!(slow(&model, "slower-than:10us"), [0]);
    assert_eq!(slow(&model, "slower-than:1s"), [0; 0]);
    model.set_now(model.until_ns(0) + 2_000_000_000);
    assert_eq!(slow(&model, "slower-than:1s"), [0]);
    assert_eq!(slow(&model, "slower-than:50s"), [0; 0]);
    // When the record is complete, nothing says that it would ever have been answered.
    model.complete();
    assert_eq!(slow(&model, "slower-than:50s"), [0]);
    assert_eq!(slow(&model, "not slower-than:50s"), [1, 2]);
}

#[test]
fn words_are_joined() {
    assert_eq!(chosen("type:call and member:Say"), [1, 8]);
    assert_eq!(chosen("type:call member:Say to:org.example.Echo"), [1]);
    assert_eq!(chosen("type:signal or type:error"), [0, 4, 5, 6, 7]);
    assert_eq!(chosen("not (type:signal or type:error) and !member:Say"), [3]);
    assert_eq!(chosen("type:return or type:error and member:Say"), [2, 9], "and binds closer");
    assert_eq!(chosen("sing"), [3, 4]);
    assert_eq!(chosen("\"I.Say\" or done"), [6, 7], "a dot is not in one field");
    assert_eq!(chosen(""), (0..10).collect::<Vec<u32>>());
    assert!(chosen("type:unanswered").is_empty());
}

#[test]
fn processes_and_applications_are_found_at_both_ends() {
    let mut model = model();
    let peer = model.row(1).unwrap().sender;
    let executable = model.texts.keep("/usr/bin/kate");
    let application = model.texts.keep("org.kde.kate");
    let about = crate::model::peers::ProcessIdentity {
        pid: Some(42),
        executable,
        application,
        ..Default::default()
    };
    model.peers.describe(peer, about);
    for filter in ["pid:42", "app:kate", "app:/usr/*", "app:org.kde.kate"] {
        let filter: Filter = filter.parse().unwrap();
        let chosen: Vec<u32> = (0..10).filter(|number| filter.chooses(&model, *number)).collect();
        assert_eq!(chosen, [1, 2, 3, 4, 8, 9], "{filter:?}");
    }
}

#[test]
fn what_is_no_filter_says_why() {
    let error = |text: &str| text.parse::<Filter>().unwrap_err();
    assert_eq!(error("colour:red"), FilterError::Key("colour".to_owned()));
    assert!(matches!(error("pid:x"), FilterError::Value { key: "pid", .. }));
    assert!(matches!(error("slower-than:5"), FilterError::Value { .. }));
    assert!(matches!(error("type:letter"), FilterError::Value { .. }));
    assert_eq!(error("(a or b"), FilterError::Parenthesis);
    assert_eq!(error("a) or b"), FilterError::Parenthesis);
    assert_eq!(error("a and"), FilterError::Unfinished);
    assert_eq!(error("from:"), FilterError::Unfinished);
    assert_eq!(error("\"a"), FilterError::Quotation);
    assert_eq!(error(&"(".repeat(5000)), FilterError::TooDeep);
    assert_eq!(error(&"not ".repeat(5000)), FilterError::TooDeep);
}
