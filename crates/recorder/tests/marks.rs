//! What the programs in the kernel tell of a marked thread, and of whose.
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]
#![allow(clippy::disallowed_methods, reason = "a test stands for programs")]

use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use hangs::kernel::{
    EventWaitKind, HangPrograms, MarkedAs, MarkedThread, ReportStream, ThreadEvent, ThreadMarker,
    open_served,
};
use sys::bpf::owner::SessionOwner;
use sys::socket;
use trace::backend::bpf::served::ServedError;
use trace::backend::bpf::served::hang_messages::{HangReply, HangRequest};
use trace::backend::bpf::served::protocol::{self, Reply, Request};
use wakeups::kernel::read_wait;

use crate::stage::interactive::Interactive;
use crate::stage::{ANN, Actor, BOB, LONG, Stage, say, wait_until};

/// Says what came of a command.
fn outcome(result: &io::Result<()>) -> String {
    match result {
        Ok(()) => "done".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// The role: has sessions that record hangs, and does with them what each line of its input says.
pub(crate) fn marks() {
    let mut sessions = Vec::new();
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let process = || u32::try_from(number(1)).unwrap();
        if words[0] == "open" {
            match open_served(&crate::stage::socket()) {
                Ok((reports, marker, _)) => {
                    sessions.push((ReportStream::Served(reports), marker));
                    say("open");
                }
                Err(ServedError::Refused(refusal)) => say(format!("{:?}: {refusal}", refusal.kind)),
                Err(error) => panic!("{error:?}"),
            }
            continue;
        }
        let (reports, marker) = sessions.last_mut().unwrap();
        match words[0] {
            "mark" => say(outcome(&marker.mark(process(), MarkedAs::Unknown))),
            "unmark" => say(outcome(&marker.unmark(process()))),
            "classify" => {
                let wait = [number(2), number(3), number(4)].into();
                say(outcome(&marker.classify(process(), wait, EventWaitKind::Loop)));
            }
            "state" => match marker.state(process()).unwrap() {
                None => say("none"),
                Some(MarkedThread { is_gone, steps, away_since_ns, .. }) => {
                    say(format!("gone {is_gone} {} {away_since_ns:?}", steps.total()));
                }
            },
            // What has come until the state is asked for; waits that are asked about are those of main loops.
            "take" => {
                let mut events = Vec::new();
                let _ = marker.state(process());
                reports.take(|bytes| events.extend(ThreadEvent::read(bytes))).unwrap();
                for (thread, event) in events {
                    if let ThreadEvent::Asks { wait } = event {
                        marker.classify(thread, wait, EventWaitKind::Loop).unwrap();
                    }
                    say(format!("event {thread} {event:?}"));
                }
                say("taken");
            }
            other => panic!("{other}"),
        }
    }
}

impl Actor {
    /// Has the role do something; returns what it says then.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.line().unwrap()
    }

    /// Returns the reports about a process that have come.
    fn events(&mut self, process: u32) -> Vec<String> {
        // Other tests start programs of the same user.
        let own = format!("event {process} ");
        let mut events = self.all_events(process);
        let is_of_any =
            |event: &str| [" Started", " Connected"].iter().any(|of| event.ends_with(of));
        events.retain(|event| event.starts_with(&own) || !is_of_any(event));
        events
    }

    /// The same with programs that were started or have connected.
    fn all_events(&mut self, process: u32) -> Vec<String> {
        let first = self.ask(&format!("take {process}"));
        let mut line = Some(first);
        std::iter::from_fn(|| {
            let said = line.take().or_else(|| self.line())?;
            (said != "taken").then_some(said)
        })
        .collect()
    }
}

/// Waits until the main loop of a marked program is known, and a hang of it was told.
fn learn(actor: &mut Actor, program: &mut Interactive) {
    wait_until("a hang is told", || {
        program.order(b's');
        program.wait_until_at_rest();
        actor.events(program.process()).iter().any(|event| event.contains("Ended"))
    });
}

#[test]
fn only_processes_that_the_user_could_trace_are_marked() {
    let Some(stage) = Stage::set() else { return };
    let mut ann = stage.start(ANN, "marks", "");
    assert_eq!(ann.ask("open"), "open");
    let own = Interactive::start(&stage, ANN);
    let of_bob = Interactive::start(&stage, BOB);
    let of_root = Interactive::start(&stage, 0);
    let in_group = |group: &str| {
        let mut command = Command::new("setpriv");
        let (user, group) = (format!("--reuid={ANN}"), format!("--regid={group}"));
        command.args([&*user, &group, "--clear-groups", "sleep", "1000"]);
        crate::stage::Daemon(command.spawn().unwrap())
    };
    let (of_other_group, of_roots) = (in_group(&BOB.to_string()), in_group("0"));
    let unreadable = stage.copy("/bin/sleep", "unreadable", 0o711);
    // `setpriv` itself has rights of root until it has executed something.
    let mut command = stage.command_of(ANN, "/bin/sh".as_ref());
    command.args(["-c", "exec \"$0\" 1000"]).arg(&unreadable);
    let unreadable = crate::stage::Daemon(command.spawn().unwrap());
    let is_sleep = |process: u32| {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        name.starts_with("sleep") || name.starts_with("unreadable")
    };
    for daemon in [&of_other_group, &of_roots, &unreadable] {
        wait_until("it sleeps", || is_sleep(daemon.0.id()));
    }
    let mark = |process: u32| format!("mark {process}");
    assert_eq!(ann.ask(&mark(own.process())), "done");
    assert_eq!(ann.ask(&mark(own.process())), "AlreadyExists");
    for other in [
        of_bob.process(),
        of_root.process(),
        of_other_group.0.id(),
        of_roots.0.id(),
        unreadable.0.id(),
        1,
        2,
    ] {
        assert_eq!(ann.ask(&mark(other)), "PermissionDenied", "{other}");
        assert_eq!(ann.ask(&format!("state {other}")), "none");
        assert_eq!(ann.ask(&format!("classify {other} 1 1 1")), "NotFound");
        assert_eq!(ann.ask(&format!("unmark {other}")), "done");
    }
    for nobody in [0, u32::MAX] {
        assert_eq!(ann.ask(&mark(nobody)), "NotFound");
    }
    // A mark of one user is nothing to another one.
    let mut bob = stage.start(BOB, "marks", "");
    assert_eq!(bob.ask("open"), "open");
    assert_eq!(bob.ask(&format!("state {}", own.process())), "none");
    assert_eq!(bob.ask(&mark(of_bob.process())), "done");
    assert_eq!(ann.ask(&format!("state {}", of_bob.process())), "none");
}

#[test]
fn of_a_thread_that_is_not_the_owners_the_programs_tell_nothing_although_it_is_marked() {
    let Some(stage) = Stage::set() else { return };
    let mut program = Interactive::start(&stage, ANN);
    let process = program.process();
    let own = {
        let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Gid:")).unwrap();
        let group = line.split_whitespace().next().unwrap().parse().unwrap();
        SessionOwner { user: ANN, group, capabilities: 0 }
    };
    // As if the number of a process that was marked had become another one's.
    let told = |program: &mut Interactive, owner: SessionOwner| {
        let HangPrograms { mut ring, mut marker } = HangPrograms::load_for(owner).unwrap();
        program.wait_until_at_rest();
        marker.mark(process, MarkedAs::Unknown).unwrap();
        let mut events = Vec::new();
        let mut until_told = |events: &mut Vec<ThreadEvent>,
                              what: &str,
                              is_it: fn(&ThreadEvent) -> bool| {
            wait_until(what, || {
                // Other tests start programs with the same rights.
                ring.take(usize::MAX, |bytes| {
                    let (of, event) = ThreadEvent::read(bytes).unwrap();
                    events.extend((of == process).then_some(event));
                });
                events.iter().any(|event| is_it(event) || matches!(event, ThreadEvent::Gone { .. }))
            });
        };
        // A wait is asked about while the thread rests.
        program.order(b'b');
        until_told(&mut events, "a wait to be asked about", |event| {
            matches!(event, ThreadEvent::Asks { .. })
        });
        for event in &events {
            if let ThreadEvent::Asks { wait } = event {
                marker.classify(process, *wait, EventWaitKind::Loop).unwrap();
            }
        }
        for _ in 0..3 {
            program.order(b's');
            program.wait_until_at_rest();
        }
        until_told(&mut events, "a hang to be reported", |event| {
            matches!(event, ThreadEvent::Ended { .. })
        });
        assert_eq!(marker.lost().unwrap(), 0);
        (events, marker.state(process).unwrap().unwrap())
    };
    let (events, state) = told(&mut program, own);
    let is_end = |event: &ThreadEvent| matches!(event, ThreadEvent::Ended { .. });
    assert!(events.iter().any(is_end) && !state.is_gone, "{events:?}");
    assert!(state.steps.total() >= 1, "{state:?}");
    for owner in [SessionOwner { group: own.group + 1, ..own }, SessionOwner { group: 0, ..own }] {
        let (events, state) = told(&mut program, owner);
        assert_eq!(events, [ThreadEvent::Gone { absence: None }], "{owner:?}");
        let nothing = MarkedThread { is_gone: true, ..MarkedThread::default() };
        assert_eq!(state, nothing, "{owner:?}");
    }
    // Of another user not even the number can be marked.
    let mut marker = HangPrograms::load_for(SessionOwner { user: BOB, ..own }).unwrap().marker;
    let refused = marker.mark(process, MarkedAs::Unknown).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn of_a_program_with_other_rights_nothing_is_told_from_its_exec_on() {
    let Some(stage) = Stage::set() else { return };
    let has_setcap = Command::new("setcap").arg("-h").output().is_ok();
    for kind in ["plain", "set-user-ID", "set-group-ID", "unreadable", "capabilities"] {
        if kind == "capabilities" && !has_setcap {
            continue;
        }
        let mut ann = stage.start(ANN, "marks", "");
        assert_eq!(ann.ask("open"), "open");
        let mut program = Interactive::start(&stage, ANN);
        let process = program.process();
        assert_eq!(ann.ask(&format!("mark {process}")), "done");
        learn(&mut ann, &mut program);
        // The file becomes another one's while the program runs.
        let file = program.program.clone();
        let mode = |bits| std::fs::set_permissions(&file, PermissionsExt::from_mode(bits)).unwrap();
        match kind {
            "set-user-ID" => {
                chown(&file, Some(BOB), Some(BOB)).unwrap();
                mode(0o4755);
            }
            "set-group-ID" => {
                chown(&file, Some(BOB), Some(BOB)).unwrap();
                mode(0o2755);
            }
            "unreadable" => {
                chown(&file, Some(0), Some(0)).unwrap();
                mode(0o711);
            }
            "capabilities" => {
                let given = Command::new("setcap").arg("cap_net_raw+ep").arg(&file).status();
                assert!(given.unwrap().success());
            }
            _ => {}
        }
        program.wait_until_at_rest();
        ann.events(process);
        program.execute_again();
        let executed_ns = sys::bpf::clock_ns();
        for _ in 0..3 {
            program.order(b's');
            program.wait_until_at_rest();
        }
        let mut events = ann.events(process);
        // In the call it still is its user's.
        let in_call = format!("call: {:?}", sys::syscall::call_number("execve"));
        // So it is when the call takes long: what was begun before goes on.
        let is_before = |event: &str| {
            let began = event.split_once("Late { started_ns: ").map(|(_, rest)| rest);
            let began = began.and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
            began.is_some_and(|began_ns| began_ns < executed_ns)
        };
        events.retain(|event| {
            !is_before(event) && (!event.contains("Waited") || !event.contains(&in_call))
        });
        // It has connected to the display once more, which the owner is told of his own program alone.
        let connected = format!("event {process} Connected");
        assert!(kind == "plain" || !events.contains(&connected), "{kind}: {events:?}");
        events.retain(|event| *event != connected);
        // It hung three times, and has executed a program: that alone is told, once.
        assert_eq!(events.len(), 1, "{kind}: {events:?}");
        assert!(events[0].contains("Gone"), "{kind}: {events:?}");
        // What an own program had done until then was its user's; it is told if the thread leaves its processor in the call, when
        // it has the memory of the new program and not yet its rights.
        let began = events[0].split_once("Some((").map(|(_, rest)| rest);
        let began = began.map(|rest| rest.split(',').next().unwrap().parse::<u64>().unwrap());
        assert!(began.is_none_or(|began_ns| began_ns < executed_ns), "{kind}: {events:?}");
        assert_eq!(ann.ask(&format!("unmark {process}")), "done");
        let again = ann.ask(&format!("mark {process}"));
        assert_eq!(again, if kind == "plain" { "done" } else { "PermissionDenied" }, "{kind}");
        ann.end();
    }
}

#[test]
fn a_user_has_two_sessions_for_hangs_and_others_have_theirs() {
    let Some(stage) = Stage::set() else { return };
    let mut ann = stage.start(ANN, "marks", "");
    assert_eq!([ann.ask("open"), ann.ask("open")], ["open", "open"]);
    let refused = ann.ask("open");
    assert!(refused.contains("TooMany") && refused.contains("record hangs already"), "{refused}");
    let mut bob = stage.start(BOB, "marks", "");
    assert_eq!(bob.ask("open"), "open");
    // Traces are counted apart.
    assert_eq!(stage.play(ANN, "hold", "1")[0], "open");
    ann.child.kill().unwrap();
    ann.status();
    // Those of the other user's session are left.
    wait_until("her sessions are over", || stage.programs() == 3);
    let mut ann = stage.start(ANN, "marks", "");
    assert_eq!(ann.ask("open"), "open");
    // Marks without end are refused at some point, and those of others are not.
    let own = Interactive::start(&stage, ANN);
    assert_eq!(ann.ask(&format!("mark {}", own.process())), "done");
    let crowd: Vec<_> = (0..600)
        .map(|_| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &ANN.to_string(), "--regid", &ANN.to_string()]);
            command.args(["--clear-groups", "sleep", "1000"]);
            crate::stage::Daemon(command.spawn().unwrap())
        })
        .collect();
    let comm = |process: u32| std::fs::read_to_string(format!("/proc/{process}/comm"));
    let mut outcomes = Vec::new();
    for one in &crowd {
        wait_until("it sleeps", || comm(one.0.id()).is_ok_and(|name| name.starts_with("sleep")));
        outcomes.push(ann.ask(&format!("mark {}", one.0.id())));
    }
    let marked = outcomes.iter().filter(|outcome| *outcome == "done").count();
    assert_eq!(marked, 511, "{outcomes:?}");
    let of_bob = Interactive::start(&stage, BOB);
    assert_eq!(bob.ask(&format!("mark {}", of_bob.process())), "done");
    // That he has started a program is not told to her.
    let of_his = format!("event {} ", of_bob.process());
    let told = ann.all_events(own.process());
    assert!(!told.iter().any(|event| event.starts_with(&of_his)), "{told:?}");
    // Of the places of one process the last ones are kept.
    for place in 0..200 {
        assert_eq!(ann.ask(&format!("classify {} {place} 1 1", own.process())), "done");
    }
    assert_eq!(ann.ask(&format!("unmark {}", own.process())), "done");
    assert_eq!(ann.ask(&format!("state {}", own.process())), "none");
}

/// The role: asks for what no client asks for, and looks at the bytes of the answers.
pub(crate) fn hostile_marks() {
    let connection = socket::connect_to(&crate::stage::socket()).unwrap();
    let answer = || {
        assert!(socket::wait_readable(&connection, Some(LONG)).unwrap(), "no answer in {LONG:?}");
        let mut buffer = vec![0; 1 << 17];
        let length = socket::receive_bytes(&connection, &mut buffer).unwrap_or(0);
        buffer.truncate(length);
        buffer
    };
    let send = |bytes: &[u8]| {
        socket::send(&connection, bytes, None, socket::Full::Wait).unwrap();
    };
    // What the user's programs do, also those of other tests, may be reported before an answer.
    let reply = || {
        std::iter::repeat_with(|| Reply::read(&answer()).unwrap())
            .find(|reply| !matches!(reply, Reply::Records(_)))
            .unwrap()
    };
    let ask = |request: Request| {
        send(&request.write());
        reply()
    };
    let own: u32 = crate::stage::detail().parse().unwrap();
    let requests = || {
        [
            HangRequest::Mark { process: own, wait: Some([u64::MAX; 3]) },
            HangRequest::Unmark { process: own },
            HangRequest::Classify { process: own, wait: [1, 1, 1], is_loop: true },
            HangRequest::State { process: own },
            HangRequest::Lost,
            HangRequest::Event { process: own, event: sys::perf::SamplerEvent::Fault },
            HangRequest::FollowOperations { is_on: true },
            HangRequest::Operations,
        ]
    };
    let is_refused = |reply: &Reply| matches!(reply, Reply::Refused(_));
    // Neither before the caller was let in nor without a session.
    assert!(is_refused(&ask(Request::Hangs(HangRequest::Open))));
    for request in requests() {
        assert!(is_refused(&ask(Request::Hangs(request))), "{request:?}");
    }
    let hello = Request::Hello {
        version: protocol::VERSION.to_owned(),
        prompt: protocol::AuthorizationPrompt::Unwanted,
    };
    assert_eq!(ask(hello), Reply::Done);
    for request in requests() {
        assert!(is_refused(&ask(Request::Hangs(request))), "{request:?}");
    }
    assert_eq!(ask(Request::Hangs(HangRequest::Open)), Reply::Done);
    // One session of one kind.
    assert!(is_refused(&ask(Request::Hangs(HangRequest::Open))));
    for request in [Request::Watched, Request::Totals, Request::Detach, Request::Losses] {
        assert!(is_refused(&ask(request.clone())), "{request:?}");
    }
    assert_eq!(ask(Request::Hangs(requests()[0])), Reply::Done);
    // No address of the kernel is in an answer or a report, whatever the thread does.
    say("marked");
    crate::stage::pause();
    send(&Request::Hangs(HangRequest::State { process: own }).write());
    let (mut reports, mut longs) = (0, Vec::new());
    loop {
        let bytes = answer();
        let words = |bytes: &[u8]| {
            bytes
                .chunks_exact(8)
                .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
                .collect::<Vec<u64>>()
        };
        match Reply::read(&bytes).unwrap() {
            Reply::Records(records) => {
                for record in protocol::records(&records) {
                    reports += 1;
                    longs.extend(words(record));
                }
            }
            Reply::Hangs(HangReply::State(Some(state))) => {
                longs.extend(words(&state));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    // The place with which it was marked is the client's own, and calls that are none are -1.
    let is_of_kernel = |long: &&u64| (1 << 63..u64::MAX - 4096).contains(*long);
    assert_eq!([0xffff_8881_0000_1000].iter().filter(is_of_kernel).count(), 1, "it would be seen");
    assert_eq!(longs.iter().find(is_of_kernel), None, "{longs:x?}");
    say(format!("reports {}", reports > 0));
    // Kinds that are none end the connection.
    send(&[70, 1, 2, 3]);
    assert!(is_refused(&reply()));
    assert_eq!(answer(), Vec::<u8>::new());
    say("done");
}

#[test]
fn nonsense_about_hangs_is_refused_and_no_address_of_the_kernel_is_told() {
    let Some(stage) = Stage::set() else { return };
    let mut program = Interactive::start(&stage, ANN);
    let mut ann = stage.start(ANN, "hostile marks", &program.process().to_string());
    assert_eq!(ann.line().as_deref(), Some("marked"));
    for _ in 0..4 {
        program.order(b's');
        program.wait_until_at_rest();
    }
    ann.go_on();
    assert_eq!(ann.end(), ["reports true", "done"]);
    wait_until("all programs are gone", || stage.programs() == 0);
    assert!(!stage.log().contains("panicked"), "{}", stage.log());
}

#[test]
fn a_session_that_is_not_read_keeps_its_reports_from_nobody_else() {
    let Some(stage) = Stage::set() else { return };
    let mut ann = stage.start(ANN, "marks", "");
    assert_eq!(ann.ask("open"), "open");
    let mut bob = stage.start(BOB, "marks", "");
    assert_eq!(bob.ask("open"), "open");
    let (mut own, mut other) = (Interactive::start(&stage, ANN), Interactive::start(&stage, BOB));
    assert_eq!(ann.ask(&format!("mark {}", own.process())), "done");
    assert_eq!(bob.ask(&format!("mark {}", other.process())), "done");
    learn(&mut ann, &mut own);
    learn(&mut bob, &mut other);
    // Bob's session hears of his program while hers is not read at all.
    for _ in 0..3 {
        own.order(b's');
        other.order(b's');
        other.wait_until_at_rest();
    }
    let told = |events: &[String]| events.iter().filter(|event| event.contains("Ended")).count();
    assert_eq!(told(&bob.events(other.process())), 3);
    own.wait_until_at_rest();
    assert_eq!(told(&ann.events(own.process())), 3, "what waited in the socket is read later");
}

/// The role: has recorded who wakes whom, and says each wait that is told with who ended it, and whether the name in the
/// detail is in the bytes.
pub(crate) fn waits() {
    let mut session = crate::stage::connect().unwrap().open_hangs().unwrap();
    session.follow(true).unwrap();
    // Who has programs attached again and again disturbs everybody.
    let mut again = || session.follow(true).map_err(|error| error.kind());
    assert!((0..50).any(|_| again() == Err(io::ErrorKind::WouldBlock)), "fifty times at once");
    say("follows");
    let name = crate::stage::detail();
    let (mut is_on, mut lost_before) = (true, 0);
    while is_on {
        // The ring of a user is small, and whatever his programs wait for on this machine is in it.
        is_on = crate::stage::pause();
        if !is_on {
            session.follow(false).unwrap();
        }
        let lost = session.take_waits(|bytes| {
            let wait = read_wait(bytes).unwrap();
            let has_name = bytes.windows(name.len()).any(|part| part == name.as_bytes());
            let sources = wait.sources.iter().map(|source| source.process.to_string());
            let sources: Vec<String> = sources.collect();
            let functions = wait.functions.len();
            let counters = wait.source_counters.is_some_and(|counters| counters != [0, 0]);
            let process = wait.process;
            say(format!("{process} {has_name} {functions} {counters} {}", sources.join(",")));
        });
        let lost = lost.unwrap();
        if is_on {
            // It is counted from the beginning on.
            say(if lost == std::mem::replace(&mut lost_before, lost) { "taken" } else { "lost" });
        }
    }
}

#[test]
fn of_who_wakes_whom_no_thread_of_another_user_is_told() {
    let Some(stage) = Stage::set() else { return };
    let (mut own, mut other) = (Interactive::start(&stage, ANN), Interactive::start(&stage, BOB));
    let name = other.program.file_name().unwrap().to_str().unwrap().to_owned();
    let mut ann = stage.start(ANN, "waits", &name);
    assert_eq!(ann.line().as_deref(), Some("follows"));
    let mut said = Vec::new();
    // The programs of other tests wait, too; what they take the room of is said to be lost, and done again.
    let (mut whole, mut rounds) = (0, 0);
    while whole < 3 {
        rounds += 1;
        assert!(rounds <= 50, "in {rounds} rounds only {whole} had no losses: {said:?}");
        // Both wait for this program, and for programs of their own.
        own.order(b's');
        other.order(b's');
        own.order(b'w');
        other.order(b'w');
        ann.go_on();
        let end = loop {
            match ann.line().unwrap() {
                line if ["taken", "lost"].contains(&line.as_str()) => break line,
                line => said.push(line),
            }
        };
        whole += usize::from(end == "taken");
    }
    said.extend(ann.end());
    let waits: Vec<(u32, &str, Vec<u32>)> = said
        .iter()
        .map(|line| {
            let (process, rest) = line.split_once(' ').unwrap();
            let (seen, sources) = rest.rsplit_once(' ').unwrap();
            let sources = sources.split(',').filter_map(|source| source.parse().ok());
            (process.parse().unwrap(), seen, sources.collect())
        })
        .collect();
    let of_own = waits.iter().filter(|(process, ..)| *process == own.process());
    let is_hidden = |(_, _, sources): &&(u32, &str, Vec<u32>)| sources.first() == Some(&0);
    assert!(of_own.clone().filter(is_hidden).count() >= 3, "{said:?}");
    assert!(of_own.clone().any(|wait| !is_hidden(&wait)), "{said:?}");
    for (process, seen, sources) in &waits {
        for others in [other.process(), std::process::id()] {
            assert!(*process != others && !sources.contains(&others), "{said:?}");
        }
        // Programs of other tests, which were hers, may have other rights by now; who started them does not change.
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let user = status.lines().find_map(|line| line.strip_prefix("Uid:\t"));
        let user = user.and_then(|users| users.split('\t').next()?.parse::<u32>().ok());
        assert!(user.is_none_or(|user| user == ANN), "{process}: {status} {said:?}");
        // Neither the other's name nor a function of the kernel, and no times of who is not told.
        assert!(seen.starts_with("false 0"), "{said:?}");
        let has_counters = seen.ends_with("true");
        assert!(!has_counters || sources.first() != Some(&0), "{said:?}");
    }
}
