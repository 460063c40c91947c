//! What the model makes of messages.

use super::peers::DRIVER;
use super::sample::{SampleMessage, push, push_on, seen};
use super::*;

const ECHO: &str = "org.example.Echo.Say";

#[test]
fn an_answer_is_joined_with_its_call_by_caller_and_serial() {
    let model = seen(&[
        (0, SampleMessage::call(7, ":1.1", ":1.9", ECHO)),
        (10, SampleMessage::call(7, ":1.2", ":1.9", ECHO)),
        (250, SampleMessage::answer(7, ":1.9", ":1.2")),
        (300, SampleMessage::answer(7, ":1.9", ":1.1")),
        (310, SampleMessage::answer(7, ":1.9", ":1.1")),
        (320, SampleMessage::answer(8, ":1.9", ":1.1")),
    ]);
    let latency = |number: u32| model.latency_ns(model.row(number).unwrap());
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(latency).map(|ns| ns.map(|ns| ns / 1000)),
        [Some(300), Some(240), Some(240), Some(300), None, None]
    );
}

#[test]
fn the_same_serial_on_another_bus_is_another_call() {
    let mut model = Model::default();
    let call = push_on(&mut model, 1, 0, &SampleMessage::call(7, ":1.1", ":1.9", ECHO));
    push_on(&mut model, 2, 5, &SampleMessage::answer(7, ":1.9", ":1.1"));
    assert!(model.is_unanswered(model.row(call).unwrap()));
    push_on(&mut model, 1, 6, &SampleMessage::answer(7, ":1.9", ":1.1"));
    assert!(!model.is_unanswered(model.row(call).unwrap()));
}

#[test]
fn a_call_that_wants_no_answer_is_not_unanswered() {
    let model = seen(&[(0, SampleMessage::call(7, ":1.1", ":1.9", ECHO).flags(1))]);
    assert!(!model.is_unanswered(model.row(0).unwrap()));
}

#[test]
fn who_answers_owns_the_name_that_was_called() {
    let model = seen(&[
        (0, SampleMessage::call(7, ":1.1", "org.example.Echo", ECHO)),
        (9, SampleMessage::answer(7, ":1.9", ":1.1")),
        (20, SampleMessage::call(8, ":1.1", "org.example.Echo", ECHO)),
    ]);
    let rows: Vec<Row> = model.rows().map(|(_, row)| *row).collect();
    assert_eq!(rows[0].receiver, rows[1].sender);
    assert_eq!(rows[2].receiver, rows[1].sender);
    assert_eq!(model.peers.label(rows[1].sender, &model.texts), "org.example.Echo");
    assert!(model.activations.is_empty() && model.astray().is_empty());
}

#[test]
fn a_service_that_starts_for_a_call_is_an_activation() {
    let model = seen(&[
        (0, SampleMessage::call(7, ":1.1", "org.example.Echo", ECHO)),
        (5, SampleMessage::call(8, ":1.1", "org.example.Echo", ECHO)),
        (900, SampleMessage::owner_changed(":1.9", "", ":1.9")),
        (1000, SampleMessage::owner_changed("org.example.Echo", "", ":1.9")),
        (1100, SampleMessage::answer(7, ":1.9", ":1.1")),
    ]);
    let activation = model.activations[0];
    assert_eq!((activation.message, activation.owned_ns - activation.asked_ns), (0, 1_000_000));
    assert_eq!(model.activations.len(), 1);
    assert_eq!(model.row(1).unwrap().receiver, model.row(4).unwrap().sender);
    assert_eq!(model.astray(), Vec::<u32>::new());
}

#[test]
fn what_goes_to_a_name_without_an_owner_is_astray() {
    let unknown = "org.freedesktop.DBus.Error.ServiceUnknown";
    let model = seen(&[
        (0, SampleMessage::owner_changed("org.example.Gone", ":1.5", "")),
        (1, SampleMessage::call(1, ":1.1", "org.example.Gone", ECHO).flags(1)),
        (2, SampleMessage::call(2, ":1.1", "org.example.Never", ECHO)),
        (3, SampleMessage::error(2, DRIVER, ":1.1", unknown)),
        (4, SampleMessage::owner_changed(":1.6", ":1.6", "")),
        (5, SampleMessage::directed(3, ":1.1", ":1.6", "org.example.Echo.Changed")),
        (6, SampleMessage::call(4, ":1.1", "org.example.Maybe", ECHO).flags(1)),
        (7, SampleMessage::call(5, ":1.1", ":1.7", ECHO)),
        (8, SampleMessage::error(5, ":1.7", ":1.1", unknown)),
    ]);
    assert_eq!(model.astray(), [1, 2, 5], "of Maybe nothing is known; a service may say anything");
}

#[test]
fn a_listed_name_has_an_owner_and_another_has_none() {
    let model = seen(&[
        (0, SampleMessage::call(1, ":1.1", DRIVER, "org.freedesktop.DBus.ListNames")),
        (
            1,
            SampleMessage::answer(1, DRIVER, ":1.1").texts(&[
                DRIVER,
                ":1.1",
                ":1.2",
                "org.example.A",
            ]),
        ),
        (2, SampleMessage::call(2, ":1.1", "org.example.A", ECHO).flags(1)),
        (3, SampleMessage::call(3, ":1.1", "org.example.B", ECHO).flags(1)),
    ]);
    assert_eq!(model.astray(), [3]);
}

#[test]
fn a_name_goes_from_owner_to_owner_and_answers_stay_with_who_gave_them() {
    let model = seen(&[
        (0, SampleMessage::owner_changed("org.example.Echo", "", ":1.2")),
        (1, SampleMessage::call(1, ":1.1", "org.example.Echo", ECHO)),
        (2, SampleMessage::owner_changed("org.example.Echo", ":1.2", ":1.3")),
        (3, SampleMessage::answer(1, ":1.2", ":1.1")),
        (4, SampleMessage::call(2, ":1.1", "org.example.Echo", ECHO)),
    ]);
    let receiver = |number: u32| {
        let peer = model.peers.get(model.row(number).unwrap().receiver).unwrap();
        model.texts.get(peer.unique)
    };
    assert_eq!((receiver(1), receiver(4)), (":1.2", ":1.3"));
    assert!(model.latency_ns(model.row(1).unwrap()).is_some());
}

#[test]
fn the_bus_is_asked_for_owners_and_processes() {
    let name = |member: &str| format!("org.freedesktop.DBus.{member}");
    let model = seen(&[
        (0, SampleMessage::call(1, ":1.1", DRIVER, &name("GetNameOwner")).text("org.example.A")),
        (1, SampleMessage::answer(1, DRIVER, ":1.1").text(":1.4")),
        (
            2,
            SampleMessage::call(2, ":1.1", DRIVER, &name("GetConnectionUnixProcessID"))
                .text(":1.4"),
        ),
        (3, SampleMessage::answer(2, DRIVER, ":1.1").number(4711)),
        (4, SampleMessage::signal(1, ":1.4", "org.example.I.Changed")),
    ]);
    let sender = model.row(4).unwrap().sender;
    assert_eq!(model.peers.get(sender).unwrap().pid, Some(4711));
    assert_eq!(model.peers.label(sender, &model.texts), "org.example.A");
}

#[test]
fn who_asked_for_a_signal_hears_it() {
    let add = |serial: u32, who: &str, rule: &str| {
        SampleMessage::call(serial, who, DRIVER, "org.freedesktop.DBus.AddMatch").text(rule)
    };
    let model = seen(&[
        (0, SampleMessage::owner_changed("org.example.A", "", ":1.4")),
        (1, add(1, ":1.1", "type='signal',sender='org.example.A'")),
        (2, add(1, ":1.2", "member='Changed',arg0='x'")),
        (3, add(1, ":1.3", "interface='org.example.J'")),
        (4, SampleMessage::signal(1, ":1.4", "org.example.I.Changed").text("x")),
        (5, SampleMessage::signal(2, ":1.4", "org.example.I.Changed").text("y")),
        (6, SampleMessage::owner_changed(":1.1", ":1.1", "")),
        (7, SampleMessage::signal(3, ":1.4", "org.example.I.Changed").text("x")),
    ]);
    let heard = |number: u32| {
        let hearers = model.hearers(model.row(number).unwrap()).iter();
        hearers
            .map(|peer| model.texts.get(model.peers.get(*peer).unwrap().unique))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!([heard(4), heard(5), heard(7)], [":1.1 :1.2", ":1.1", ":1.2"]);
}

#[test]
fn a_request_to_a_portal_is_joined_with_its_response() {
    let handle = "/org/freedesktop/portal/desktop/request/1_1/t";
    let portal = "org.freedesktop.portal";
    let model = seen(&[
        (0, SampleMessage::call(1, ":1.1", ":1.9", &format!("{portal}.FileChooser.OpenFile"))),
        (5, SampleMessage::answer(1, ":1.9", ":1.1").path(handle)),
        (
            9000,
            SampleMessage::directed(2, ":1.9", ":1.1", &format!("{portal}.Request.Response"))
                .at(handle)
                .number(1),
        ),
    ]);
    let [request] = model.requests() else { panic!("{:?}", model.requests()) };
    assert_eq!((request.call, request.response, request.code), (0, 2, Some(1)));
}

#[test]
fn what_is_forgotten_is_not_missed() {
    let mut model = Model::default();
    for at in 0..100 {
        push(&mut model, u64::from(at), &SampleMessage::call(at + 1, ":1.1", ":1.9", ECHO));
    }
    model.forget(10);
    assert_eq!((model.first(), model.end(), model.len()), (90, 100, 10));
    let late = push(&mut model, 200, &SampleMessage::answer(5, ":1.9", ":1.1"));
    assert_eq!(model.row(late).unwrap().partner, NONE);
    let answer = push(&mut model, 200, &SampleMessage::answer(95, ":1.9", ":1.1"));
    assert_eq!(model.row(answer).unwrap().partner, 94);
    assert_eq!(model.row(94).unwrap().partner, answer);
    assert!(model.row(3).is_none());
}
