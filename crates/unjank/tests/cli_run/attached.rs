//! `unjank run --attach`: programs that run already, held and let go, and what is refused.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use sys::sched::{CpuClass, IoClass};

use super::fixture::{self, has, in_time};
use super::{Place, UNJANK, keeper_of, read_line, state, until};

/// Starts a program in the background of the terminal of the tests, if they have one.
fn start(program: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.process_group(0).spawn().unwrap()
}

#[test]
fn a_running_program_is_attached_to_and_let_go() {
    in_time(|| {
        let place = Place::new();
        let mut program = start("sh", &["-c", "read end"]);
        let class = || sys::sched::IoClass::of(program.id()).unwrap();
        let before = class();
        let target = program.id().to_string();
        let attach = || place.unjank(&["run", "--attach", &target]).spawn().unwrap();
        let mut attached = attach();
        until(|| class() == sys::sched::IoClass::Idle);
        sys::supervise::send(attached.id(), 2).unwrap();
        assert!(attached.wait().unwrap().success());
        assert_eq!(class(), before);
        // Killed while the program is held: it goes on.
        let mut attached = attach();
        place.status(&attached);
        assert!(place.jobs(&["pause", &attached.id().to_string()]).status.success());
        until(|| state(program.id()) == Some('T'));
        attached.kill().unwrap();
        attached.wait().unwrap();
        until(|| state(program.id()) == Some('S'));
        // And it ends with the program.
        let mut attached = attach();
        place.status(&attached);
        drop(program.stdin.take());
        program.wait().unwrap();
        assert!(attached.wait().unwrap().success());
        let none = place.unjank(&["run", "--attach", "no-such.service"]).output().unwrap();
        assert_eq!(none.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&none.stderr).contains("no-such.service"));
    });
}

#[test]
fn nothing_is_attached_to_that_the_command_itself_runs_in() {
    if !has(&["timeout"]) {
        return;
    }
    in_time(|| {
        let place = Place::new();
        // With --no-pause nothing is held by whoever does not refuse.
        let refused = |script: &str, target: &str| {
            let mut command = Command::new("timeout");
            command.args(["100", "sh", "-c", script, UNJANK, target]);
            let output = command.env("XDG_RUNTIME_DIR", place.runtime.path()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("this command runs in it"), "{said}");
        };
        // A shell, of a shell that it started.
        refused("(\"$0\" run --no-pause --attach $$; exit $?)", "");
        let mounts = sys::mounts::Mounts::read().unwrap();
        let name = format!("unjank-test-attach-{}", std::process::id());
        let own = jobs::cgroup::Cgroup::of(&mounts, std::process::id());
        let Some(unit) = own.and_then(|own| own.make(&name).ok()) else {
            fixture::skip("no cgroup can be made here");
            return;
        };
        let script = format!("echo $$ > {}/cgroup.procs", unit.path().display());
        refused(&format!("{script}; exec \"$0\" run --no-pause --attach \"$1\""), &name);
        until(|| unit.remove().is_ok());
    });
}

#[test]
fn what_another_user_runs_is_not_attached_to() {
    if !rustix::process::geteuid().is_root() {
        fixture::skip("another user's program is started by root");
        return;
    }
    if !has(&["setpriv", "timeout"]) {
        return;
    }
    in_time(|| {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fixture::copy_program(UNJANK, &home.path().join("unjank"));
        let mut program = start("cat", &[]);
        let mut command = Command::new("timeout");
        command.args(["100", "setpriv", "--reuid=65534", "--clear-groups"]);
        command.arg(home.path().join("unjank")).args(["run", "--attach"]);
        let output = command.arg(program.id().to_string()).current_dir("/").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("cannot attach to {}", program.id())), "{said}");
        drop(program.stdin.take());
        assert!(program.wait().unwrap().success());
    });
}

#[test]
fn what_was_stopped_before_stays_stopped_and_the_rest_is_continued() {
    in_time(|| {
        let place = Place::new();
        let mut program = start("sh", &["-c", "sleep 1000 & echo $!; read end"]);
        let child: u32 = read_line(&mut program).parse().unwrap();
        sys::supervise::send(child, 19).unwrap();
        until(|| state(child) == Some('T'));
        let target = program.id().to_string();
        let attach = || place.unjank(&["run", "--attach", &target]).spawn().unwrap();
        for order in ["pause", "resume"] {
            let mut attached = attach();
            place.status(&attached);
            let job = attached.id().to_string();
            assert!(place.jobs(&["pause", &job]).status.success());
            until(|| state(program.id()) == Some('T'));
            assert!(place.jobs(&[order, &job]).status.success());
            sys::supervise::send(attached.id(), 2).unwrap();
            assert!(attached.wait().unwrap().success());
            assert_eq!(state(child), Some('T'), "{order}");
            until(|| state(program.id()) == Some('S'));
        }
        for process in [child, program.id()] {
            sys::supervise::send(process, 9).unwrap();
        }
        program.wait().unwrap();
    });
}

#[test]
fn a_keeper_that_is_stopped_holds_nothing_that_was_attached_to() {
    in_time(|| {
        let place = Place::new();
        let mut program = start("sh", &["-c", "read end"]);
        let mut attached =
            place.unjank(&["run", "--attach", &program.id().to_string()]).spawn().unwrap();
        place.status(&attached);
        assert!(place.jobs(&["pause", &attached.id().to_string()]).status.success());
        until(|| state(program.id()) == Some('T'));
        let keeper = keeper_of(attached.id());
        sys::supervise::send(keeper, 19).unwrap();
        until(|| state(program.id()) == Some('S'));
        sys::supervise::send(attached.id(), 2).unwrap();
        assert!(attached.wait().unwrap().success());
        assert_eq!(state(keeper), None);
        drop(program.stdin.take());
        program.wait().unwrap();
    });
}

#[test]
fn threads_and_children_that_began_meanwhile_are_restored() {
    if !has(&["python3"]) {
        return;
    }
    in_time(|| {
        let place = Place::new();
        // Each line that it reads starts a thread and a child, whose numbers it prints.
        let script = r#"
import subprocess, sys, threading
stop = threading.Event()
for line in sys.stdin:
    thread = threading.Thread(target=stop.wait, daemon=True)
    thread.start()
    child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    print(thread.native_id, flush=True)
    print(child.pid, flush=True)
"#;
        let mut program = start("python3", &["-c", script]);
        let target = program.id();
        let mut more = || {
            program.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            let mut number = || read_line(&mut program).parse::<u32>().unwrap();
            [number(), number()]
        };
        let before = more();
        let classes = |threads: &[u32]| -> Vec<(IoClass, CpuClass)> {
            let class = |&tid: &u32| (IoClass::of(tid).unwrap(), CpuClass::of(tid).unwrap());
            threads.iter().map(class).collect()
        };
        let usual = classes(&before)[0];
        let mut attached = place.unjank(&["run", "--attach", &target.to_string()]).spawn().unwrap();
        let are_moved = |threads: &[u32]| {
            let classes = classes(threads);
            classes.iter().all(|(io, cpu)| *io == IoClass::Idle && *cpu != CpuClass::Normal)
        };
        until(|| are_moved(&before));
        let new = more();
        assert!(are_moved(&new), "{:?}", classes(&new));
        sys::supervise::send(attached.id(), 2).unwrap();
        assert!(attached.wait().unwrap().success());
        let all = [&before[..], &new[..], &[target]].concat();
        assert_eq!(classes(&all), [usual; 5]);
        for child in [before[1], new[1]] {
            sys::supervise::send(child, 9).unwrap();
        }
        drop(program.stdin.take());
        program.wait().unwrap();
    });
}

#[test]
fn an_ordinary_user_gets_back_the_class_on_the_processor() {
    in_time(|| {
        let home = tempfile::tempdir().unwrap();
        let program = home.path().join("unjank");
        fixture::copy_program(UNJANK, &program);
        let script = "sleep 1000 >&- & echo $!; exec \"$0\" run --attach $!";
        let mut words = vec!["sh", "-c", script, program.to_str().unwrap()];
        if rustix::process::geteuid().is_root() {
            if !has(&["setpriv"]) {
                return;
            }
            fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let user = ["setpriv", "--reuid=65534", "--clear-groups", "--bounding-set=-all"];
            words.splice(0..0, user);
        }
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("XDG_RUNTIME_DIR", home.path()).current_dir("/");
        let mut attached = command.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let sleep: u32 = read_line(&mut attached).parse().unwrap();
        let class = || (IoClass::of(sleep).unwrap(), CpuClass::of(sleep).unwrap());
        let before = class();
        until(|| class().0 == IoClass::Idle);
        // It changes both, then watches.
        until(|| class().1 != CpuClass::Normal);
        sys::supervise::send(attached.id(), 2).unwrap();
        assert!(attached.wait().unwrap().success());
        assert_eq!(class(), before);
        sys::supervise::send(sleep, 9).unwrap();
    });
}
