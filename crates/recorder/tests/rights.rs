//! Nothing about a process that its user could not trace comes out of the service.
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]
#![allow(clippy::disallowed_methods, clippy::print_stderr, reason = "a test stands for programs")]

use std::io;
use std::process::{Child, Command, Stdio};

use sys::bpf::owner::SessionOwner;
use trace::backend::bpf::programs::{KernelStacks, WakeupPolicy, WatchedThreads};
use trace::backend::bpf::session::{BpfSession, BpfSettings, WatchStart};
use trace::syscall_set::Set;

use crate::stage::{ANN, BOB, STAFF, Stage, connect, detail, open, say};

/// The role: asks for processes, and says what came of each.
pub(crate) fn refused() {
    let mut session = open().unwrap();
    for word in detail().split_whitespace() {
        let answer = match session.watch(word.parse().unwrap(), WatchStart::Now) {
            Ok(()) => "watched".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => "refused".to_owned(),
            Err(error) => format!("error {:?}", error.raw_os_error()),
        };
        say(answer);
    }
    let own = std::process::id();
    session.watch(own, WatchStart::Now).unwrap();
    // Another thread is none of his processes, and of another user none at all.
    let adopted = session.adopt([1, own], 0, [1, 1]).unwrap_err();
    say(format!("adopted {:?}", adopted.raw_os_error()));
}

/// The role: connects, and says why not.
pub(crate) fn denied() {
    match connect() {
        Ok(_) => say("let in"),
        Err(error) => say(error),
    }
}

/// Processes that end with the test.
struct Others(Vec<Child>);

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().unwrap();
    io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    child
}

const WAITS: &str = "echo; read a";

#[test]
fn only_processes_that_the_user_could_trace_are_watched() {
    let Some(stage) = Stage::set() else { return };
    let shell = |user: u32, groups: &[&str], program: &str| {
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={user}"))
            .args(groups)
            // `setpriv` itself has rights of root until it has executed something.
            .args(["/bin/sh", "-c", "exec \"$0\" -c \"$1\"", program, WAITS]);
        start(command)
    };
    let own = format!("--regid={ANN}");
    // Nobody may read the program: the kernel lets nobody look into its process.
    let unreadable = stage.copy("/bin/sh", "unreadable", 0o711);
    let others = Others(vec![
        shell(ANN, &[&own, "--clear-groups"], "/bin/sh"),
        shell(BOB, &[&own, "--clear-groups"], "/bin/sh"),
        shell(0, &[&own, "--clear-groups"], "/bin/sh"),
        shell(ANN, &[&format!("--regid={BOB}"), "--clear-groups"], "/bin/sh"),
        shell(ANN, &[&own, "--clear-groups"], unreadable.to_str().unwrap()),
    ]);
    let mut pids: Vec<String> = others.0.iter().map(|child| child.id().to_string()).collect();
    pids.extend(["1".to_owned(), "4294967295".to_owned()]);
    let said = stage.play(ANN, "refused", &pids.join(" "));
    let wanted = ["watched", "refused", "refused", "refused", "refused", "refused"];
    assert_eq!(said[..6], wanted);
    assert_eq!(said[6], "error Some(3)", "there is no such process");
    assert_eq!(said[7], "adopted Some(22)", "not a thread of that process");
}

#[test]
fn the_programs_themselves_record_nothing_of_others_although_their_number_is_watched() {
    let Some(stage) = Stage::set() else { return };
    // As if the number of a process that was watched had become another one's.
    let owner = SessionOwner { user: ANN, group: ANN, capabilities: 0 };
    let session = |owner| {
        BpfSession::load(&BpfSettings {
            calls: &Set::all(),
            threshold_ns: 0,
            kept: &[],
            threads: WatchedThreads::All,
            stacks: KernelStacks::Copied,
            ring_bytes: 1 << 20,
            wakes: WakeupPolicy::Paced,
            owner,
        })
        .unwrap()
    };
    let run = |user: u32, group: u32, owner: Option<SessionOwner>| {
        let mut session = session(owner);
        let (user, group) = (format!("--reuid={user}"), format!("--regid={group}"));
        let mut command = Command::new("setpriv");
        command.args([&*user, &group, "--clear-groups", "/bin/sh", "-c"]);
        command.arg("echo; read a; cat /etc/hostname >/dev/null; (exit 3)");
        let mut child = start(command);
        session.watch(child.id(), WatchStart::Now).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        session.detach();
        let counted: u64 = session.totals().unwrap().iter().map(|(_, _, total)| total.count).sum();
        let mut records = 0;
        session.take(usize::MAX, |_| records += 1);
        // With its end it is forgotten, whoever it was.
        assert_eq!(session.watched().unwrap(), Vec::<u32>::new());
        (counted, records)
    };
    let (counted, records) = run(ANN, ANN, Some(owner));
    assert!(counted > 20 && records > 20, "{counted} calls, {records} records");
    for (user, group) in [(BOB, ANN), (0, ANN), (ANN, BOB), (ANN, 0)] {
        assert_eq!(run(user, group, Some(owner)), (0, 0), "user {user}, group {group}");
    }
    let (counted, _) = run(BOB, BOB, None);
    assert!(counted > 20, "a session for all records everybody");
    drop(stage);
}

#[test]
fn of_a_program_with_other_rights_nothing_is_recorded_after_its_exec() {
    let Some(stage) = Stage::set() else { return };
    let plain = stage.copy("/bin/cat", "plain", 0o755);
    let mut programs = vec![
        (stage.copy("/bin/cat", "setuid", 0o4755), "set-user-ID"),
        (stage.copy("/bin/cat", "setgid", 0o2755), "set-group-ID"),
        (stage.copy("/bin/cat", "unreadable", 0o711), "unreadable"),
    ];
    let capable = stage.copy("/bin/cat", "capable", 0o755);
    let given = Command::new("setcap").arg("cap_net_raw+ep").arg(&capable).status();
    if given.is_ok_and(|status| status.success()) {
        programs.push((capable, "capabilities"));
    }
    let read = |program: &std::path::Path| {
        let script = format!(
            "{} /etc/debian_version >/dev/null; cat /etc/hostname >/dev/null",
            program.display()
        );
        stage.play(ANN, "trace", &script)
    };
    let has = |said: &[String], wanted: &str| said.iter().any(|line| line == wanted);
    let said = read(&plain);
    assert!(has(&said, "file /etc/debian_version"), "{said:?}");
    let count = |said: &[String]| {
        let counted = said.iter().find_map(|line| line.strip_prefix("call read "));
        counted.and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let reads = count(&said);
    for (program, kind) in programs {
        let said = read(&program);
        let all = said.join("\n");
        assert!(!all.contains("debian_version"), "{kind}: {all}");
        assert!(has(&said, "file /etc/hostname"), "{kind}: what comes next is recorded: {all}");
        assert!(count(&said) < reads, "{kind}: {} of {reads} reads", count(&said));
        assert!(
            all.contains("unseen a process after it ran a program with other rights"),
            "{kind}: {all}"
        );
    }
    // And as the command itself.
    let sudo = stage.copy("/usr/bin/env", "setuid-env", 0o4755);
    let said =
        stage.play(ANN, "trace", &format!("exec {} cat /etc/debian_version", sudo.display()));
    assert!(!said.join("\n").contains("debian_version"), "{said:?}");
}

#[test]
fn a_command_that_goes_on_with_other_rights_is_recorded_to_its_end_with_its_status() {
    let Some(stage) = Stage::set() else { return };
    for (name, mode) in [("setuid-env", 0o4755), ("unreadable-env", 0o711)] {
        let program = stage.copy("/usr/bin/env", name, mode);
        let program = program.display();
        // Longer than it is believed to live without being watched.
        for (ending, wanted) in [("exit 3", "Code(3)"), ("kill -USR1 $$", "Signal(10)")] {
            let script = format!("exec {program} sh -c 'sleep 1; {ending}'");
            let said = stage.play(ANN, "trace", &script);
            let all = said.join("\n");
            assert!(said.contains(&format!("ended Some({wanted})")), "{name}: {all}");
            let length = said.iter().find_map(|line| line.strip_prefix("length ")).unwrap();
            assert!(length.parse::<u64>().unwrap() >= 1_000_000_000, "{name}: {all}");
            let left = "unseen the first process after it ran a program with other rights";
            assert!(all.contains(left), "{name}: {all}");
        }
    }
}

#[test]
fn callers_in_a_sandbox_and_people_outside_of_the_group_are_not_served() {
    let Some(stage) = Stage::set() else { return };
    let (user, group) = (format!("--reuid={ANN}"), format!("--regid={ANN}"));
    let staff = format!("--groups={STAFF}");
    let said = stage.start_by(&["setpriv", &user, &group, &staff, "{}"], "denied", "").end();
    assert_eq!(said, ["let in"]);
    let said =
        stage.start_by(&["setpriv", &user, &group, "--clear-groups", "{}"], "denied", "").end();
    assert!(said[0].contains("the caller is not in the group"), "{said:?}");
    let inside = |unshare: &[&str]| {
        let words =
            [&["setpriv", &*user, &group, &staff, "unshare"][..], unshare, &["{}"]].concat();
        let probe = Command::new("setpriv")
            .args([&*user, &group, &staff, "unshare"])
            .args(unshare)
            .arg("true")
            .status();
        if !probe.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no namespaces for users: {unshare:?}");
            return;
        }
        let said = stage.start_by(&words, "denied", "").end();
        assert!(said[0].contains("in a container or a sandbox"), "{unshare:?}: {said:?}");
    };
    inside(&["--user"]);
    inside(&["--user", "--map-root-user"]);
    inside(&["--user", "--map-root-user", "--pid", "--fork"]);
    assert_eq!(stage.programs(), 0);
}
