//! Nobody uses the service up, and nobody leaves anything behind in it.
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]
#![allow(clippy::disallowed_methods, reason = "a test stands for programs")]

use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use trace::backend::bpf::served::ServedError;
use trace::backend::bpf::session::WatchStart;

use crate::stage::{ANN, BOB, Stage, detail, open, pause, say, socket, wait_until};

/// The role: begins as many sessions as the detail says, says what came of each, and holds them.
pub(crate) fn hold() {
    let mut held = Vec::new();
    for _ in 0..detail().parse().unwrap() {
        match open() {
            Ok(session) => {
                held.push(session);
                say("open");
            }
            Err(ServedError::Refused(refusal)) => say(format!("{:?}: {refusal}", refusal.kind)),
            Err(error) => panic!("{error:?}"),
        }
    }
    say("holds");
    pause();
}

/// The role: a session whose program makes calls without end, and of which nothing is read until the test lets it go on.
pub(crate) fn flood() {
    let mut session = open().unwrap();
    let mut child = Command::new("/bin/sh")
        .args(["-c", "while :; do read a; done </dev/zero"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    session.watch(child.id(), WatchStart::Now).unwrap();
    say("floods");
    pause();
    child.kill().unwrap();
    child.wait().unwrap();
    session.detach().unwrap();
    let mut records = 0_u64;
    session.take(usize::MAX, |_| records += 1).unwrap();
    let losses = session.faults().unwrap();
    say(format!("{} {}", records > 0, losses.lost_calls > 0));
}

/// The role: more connections than anybody may have.
pub(crate) fn crowd() {
    let connections: Vec<_> =
        (0..200).filter_map(|_| sys::socket::connect_to(&socket()).ok()).collect();
    say(connections.len());
    pause();
}

#[test]
fn a_user_has_a_few_sessions_and_leaves_the_rest_to_others() {
    let Some(stage) = Stage::set() else { return };
    let mut ann = stage.start(ANN, "hold", "6");
    let said: Vec<String> = (0..7).map(|_| ann.line().unwrap()).collect();
    assert_eq!(said[..4], ["open", "open", "open", "open"]);
    assert!(said[4].contains("TooMany") && said[5].contains("4 sessions"), "{said:?}");
    let mut bob = stage.start(BOB, "hold", "1");
    assert_eq!(bob.line().as_deref(), Some("open"));
    ann.go_on();
    ann.end();
    wait_until("her sessions are over", || stage.programs() < 10);
    assert_eq!(stage.play(ANN, "hold", "1")[0], "open");
}

#[test]
fn a_client_that_is_killed_leaves_no_program_in_the_kernel() {
    let Some(stage) = Stage::set() else { return };
    for _ in 0..3 {
        let mut ann = stage.start(ANN, "hold", "2");
        while ann.line().as_deref() != Some("holds") {}
        assert!(stage.programs() >= 10, "{}", stage.programs());
        ann.child.kill().unwrap();
        ann.status();
        wait_until("all programs are gone", || stage.programs() == 0);
    }
    // And the service itself.
    let mut ann = stage.start(ANN, "hold", "1");
    while ann.line().as_deref() != Some("holds") {}
    let mut stage = stage;
    stage.service.kill().unwrap();
    stage.service.wait().unwrap();
    ann.go_on();
    ann.end();
}

#[test]
fn a_client_that_is_stopped_or_never_reads_disturbs_nobody() {
    let Some(stage) = Stage::set() else { return };
    let mut idle = stage.start(ANN, "flood", "");
    assert_eq!(idle.line().as_deref(), Some("floods"));
    let mut stopped = stage.start(ANN, "flood", "");
    assert_eq!(stopped.line().as_deref(), Some("floods"));
    let pid = Pid::from_child(&stopped.child);
    kill_process(pid, Signal::STOP).unwrap();
    for _ in 0..3 {
        let said = stage.play(BOB, "trace", "cat /etc/hostname >/dev/null");
        assert!(said.contains(&"file /etc/hostname".to_owned()), "{said:?}");
    }
    kill_process(pid, Signal::CONT).unwrap();
    for mut one in [idle, stopped] {
        one.go_on();
        assert_eq!(one.line().as_deref(), Some("true true"), "what was lost is counted");
        one.end();
    }
    wait_until("all programs are gone", || stage.programs() == 0);
}

#[test]
fn a_crowd_of_connections_of_one_user_leaves_room_for_others() {
    let Some(stage) = Stage::set() else { return };
    let mut ann = stage.start(ANN, "crowd", "");
    assert!(ann.line().is_some());
    let said = stage.play(BOB, "trace", "cat /etc/hostname >/dev/null");
    assert!(said.contains(&"file /etc/hostname".to_owned()), "{said:?}");
    ann.go_on();
    ann.end();
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", stage.service.id())).unwrap().count();
    wait_until("the connections are closed", || descriptors() < 12);
}

#[test]
fn the_service_ends_when_nobody_is_connected_and_not_before() {
    let Some(mut stage) = Stage::set_with(&["--bus", "unix:path=/nowhere", "--idle", "1"]) else {
        return;
    };
    let mut ann = stage.start(ANN, "hold", "1");
    while ann.line().as_deref() != Some("holds") {}
    std::thread::park_timeout(std::time::Duration::from_millis(2500));
    assert!(stage.service.try_wait().unwrap().is_none(), "it ended under a session");
    ann.go_on();
    ann.end();
    wait_until("the service ends", || stage.service.try_wait().unwrap().is_some());
    assert!(stage.log().contains("ends, since nobody is connected"), "{}", stage.log());
}
