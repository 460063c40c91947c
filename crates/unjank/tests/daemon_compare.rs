//! The same calls to the real service and to ours must be answered alike.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use crate::fixture;

use bus::client::blocking::BlockingClient;
use bus::client::{CallArgument, CallOutcome};
use fixture::{Bus, NAME, OURS, REAL, SET_A_B, in_time};

/// One call: path, interface, method and arguments.
type Call = (&'static str, Option<&'static str>, &'static str, Vec<CallArgument>);

const WRITER: Option<&str> = Some("ca.desrt.dconf.Writer");
const INFO: Option<&str> = Some("ca.desrt.dconf.ServiceInfo");
const PEER: Option<&str> = Some("org.freedesktop.DBus.Peer");
const INTROSPECTABLE: Option<&str> = Some("org.freedesktop.DBus.Introspectable");
const PROPERTIES: Option<&str> = Some("org.freedesktop.DBus.Properties");
const NOPE: Option<&str> = Some("org.example.Nope");

fn text(text: &str) -> CallArgument {
    CallArgument::Text(text.to_owned())
}

fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for path in [
        "/",
        "/ca",
        "/ca/desrt",
        "/ca/desrt/dconf",
        "/ca/desrt/dconf/Writer",
        "/ca/desrt/dconf/Writer/user",
        "/ca/desrt/dconf/Writer/a_9",
        "/ca/desrt/dconf/Writer/a/b",
        "/ca/desrt/dconf/shm",
        "/ca/desrt/dconf/shm/x",
        "/ca/desrt/dconf/keyfile",
        "/ca/desrt/dconf/keyfile/x",
        "/ca/desrt/dconf/writer/x",
        "/ca/desrt/dconfWriter",
        "/elsewhere",
    ] {
        let properties = |method, arguments| (path, PROPERTIES, method, arguments);
        calls.extend([
            (path, PEER, "Ping", vec![]),
            (path, PEER, "Ping", vec![text("x")]),
            (path, PEER, "GetMachineId", vec![]),
            (path, PEER, "Nope", vec![]),
            (path, INTROSPECTABLE, "Introspect", vec![text("x")]),
            (path, INTROSPECTABLE, "Nope", vec![]),
            (path, WRITER, "Init", vec![]),
            (path, WRITER, "Init", vec![text("x")]),
            (path, WRITER, "Nope", vec![]),
            (path, WRITER, "Change", vec![]),
            (path, WRITER, "Change", vec![text("x")]),
            (path, WRITER, "Change", vec![CallArgument::Bytes(vec![1]), text("x")]),
            (path, WRITER, "Change", vec![CallArgument::Variant(Box::new(text("x")))]),
            (path, INFO, "Blame", vec![text("x")]),
            (path, INFO, "Nope", vec![]),
            (path, NOPE, "Nope", vec![CallArgument::Number(1), CallArgument::Truth(true)]),
            (path, Some("org.freedesktop.DBus.ObjectManager"), "GetManagedObjects", vec![]),
            (path, None, "Ping", vec![]),
            (path, None, "Init", vec![]),
            (path, None, "Nope", vec![]),
            properties("Nope", vec![]),
            properties("Get", vec![text("ca.desrt.dconf.Writer"), text("x")]),
            properties("Get", vec![text("org.example.Nope"), text("x")]),
            properties("Get", vec![text("x")]),
            properties("Set", vec![text("x")]),
            properties(
                "Set",
                vec![
                    text("ca.desrt.dconf.Writer"),
                    text("x"),
                    CallArgument::Variant(Box::new(CallArgument::Number(1))),
                ],
            ),
            properties(
                "Set",
                vec![
                    text("org.example.Nope"),
                    text("x"),
                    CallArgument::Variant(Box::new(text("y"))),
                ],
            ),
            properties("GetAll", vec![text("ca.desrt.dconf.Writer")]),
            properties("GetAll", vec![text("ca.desrt.dconf.ServiceInfo")]),
            properties("GetAll", vec![text("org.example.Nope")]),
            properties("GetAll", vec![text("")]),
            properties("GetAll", vec![]),
        ]);
    }
    for blob in [SET_A_B, SET_A_B, &[], &[1, 2, 3], &[0; 64]] {
        calls.push((fixture::USER, WRITER, "Change", vec![CallArgument::Bytes(blob.to_vec())]));
    }
    calls
}

/// What a reply says apart from the unique name of who sent it.
fn answer(client: &BlockingClient, owner: &str, call: Call) -> String {
    let (path, interface, method, arguments) = call;
    let outcome = client.run(async |client| {
        client.try_call(NAME, path, interface, method, arguments).await.unwrap()
    });
    match outcome {
        CallOutcome::Reply { signature, text } => {
            format!("({signature}) {}", text.unwrap_or_default().replace(owner, "OWNER"))
        }
        CallOutcome::Error { name, message } => format!("{name}: {message}"),
    }
}

fn answers(program: &str, blame: bool) -> Option<Vec<String>> {
    let bus = Bus::start()?;
    let mut command = bus.command(program);
    if blame {
        command.env("DCONF_BLAME", "");
    }
    let _service = bus.serve_by(command);
    let client = bus.client();
    let owner = client.name_owner(NAME).unwrap().unwrap();
    Some(
        calls()
            .into_iter()
            .map(|call| {
                let shown = format!("{call:?}");
                format!("{shown}\n  -> {}", answer(&client, &owner, call))
            })
            .collect(),
    )
}

/// The calls that were not answered alike.
fn differences(real: &[String], ours: &[String]) -> Vec<String> {
    let differ = real.iter().zip(ours).filter(|(real, ours)| real != ours);
    differ.map(|(real, ours)| format!("real {real}\nours {ours}")).collect()
}

fn compare(blame: bool) {
    if !fixture::has(&[REAL]) {
        return;
    }
    let (Some(real), Some(ours)) = (answers(REAL, blame), answers(OURS, blame)) else { return };
    let different = differences(&real, &ours);
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

#[test]
fn calls_right_and_wrong_are_answered_as_by_the_real_service() {
    in_time(|| compare(false));
}

#[test]
fn with_blame_they_are_answered_alike_too() {
    in_time(|| compare(true));
}

#[test]
fn an_answer_that_is_not_alike_is_noticed() {
    in_time(|| {
        // With and without blame differ in the three calls that concern it.
        let (Some(with), Some(without)) = (answers(OURS, true), answers(OURS, false)) else {
            return;
        };
        assert_eq!(differences(&with, &without).len(), 3);
    });
}
