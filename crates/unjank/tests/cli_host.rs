//! `unjank host` and its `flatpak-spawn`: statuses, signals, descriptors and ends that nobody wanted, through real services.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test, which is another program"
)]

#[path = "cli_host/broken_bus.rs"]
mod broken_bus;
#[path = "cli_host/crowded.rs"]
mod crowded;
#[path = "host_terminal/mod.rs"]
mod host_terminal;
#[path = "cli_host/original.rs"]
mod original;
#[path = "cli_host/small.rs"]
mod small;
#[path = "cli_host/upkeep.rs"]
mod upkeep;

use crate::fixture;

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use fixture::{Bus, has, in_time, own_niceness, skip};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, test_kill_process, waitpid};

/// `unjank`, of which `host` is tested: what was built, or a script that passes on to the small program of packages (`ci/slow`).
const UNJANK: &str = match option_env!("SMALL_HOST_AS_UNJANK") {
    Some(script) => script,
    None => env!("CARGO_BIN_EXE_unjank"),
};
/// The small program: what was built, or that of packages.
const SMALL: &str = match option_env!("SMALL_HOST") {
    Some(program) => program,
    None => env!("CARGO_BIN_EXE_unjank-host"),
};
/// The service that ours stands in for.
const REAL: &str = "/usr/libexec/flatpak-session-helper";
/// The client that ours stands in for.
const SPAWN: &str = "/usr/libexec/flatpak-xdg-utils/flatpak-spawn";
const NAME: &str = "org.freedesktop.Flatpak";

/// A bus with a service that runs host commands.
struct Host {
    bus: Bus,
    service: Child,
}

impl Host {
    /// Starts a service, each on a bus of its own: ours, and the one that comes with Flatpak where it is there.
    fn all() -> Vec<Host> {
        let ours = Host::ours();
        if Path::new(REAL).exists() {
            return ours.into_iter().chain(Host::start(&[REAL])).collect();
        }
        skip("no flatpak-session-helper");
        ours.into_iter().collect()
    }

    fn ours() -> Option<Host> {
        Host::start(&[env!("CARGO_BIN_EXE_unjankd"), "--names", "flatpak"])
    }

    fn start(service: &[&str]) -> Option<Host> {
        let bus = Bus::start()?;
        let mut command = bus.command(service[0]);
        let service = command.args(&service[1..]).stderr(Stdio::null()).spawn().unwrap();
        bus.client().wait_for_owner(NAME).unwrap();
        Some(Host { bus, service })
    }

    /// `unjank host` with these arguments.
    fn host(&self, arguments: &[&str]) -> Command {
        let mut command = self.bus.command(UNJANK);
        command.arg("host").args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a command on the host and returns its status, as a shell shows it, and its output.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        told(self.host(arguments).output().unwrap())
    }

    /// Starts a shell script on the host, and waits for its first line.
    fn script(&self, options: &[&str], script: &str) -> Running {
        let arguments = [options, &["--", "sh", "-c", script]].concat();
        Running::start(self.host(&arguments))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The original leaves a server of certificates behind when it is killed.
        let _ = kill_process(Pid::from_child(&self.service), Signal::TERM);
        let _ = self.service.wait();
    }
}

fn told(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A client that runs; its command has written a line.
struct Running {
    client: Child,
    output: BufReader<ChildStdout>,
    /// No pipe: a command that outlives its client would hold it.
    said: fs::File,
    line: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

impl Running {
    fn start(mut command: Command) -> Running {
        let said = tempfile::tempfile().unwrap();
        command.stdout(Stdio::piped()).stderr(said.try_clone().unwrap());
        let mut client = command.spawn().unwrap();
        let mut output = BufReader::new(client.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        Running { client, output, said, line: line.trim().to_owned() }
    }

    /// The number that the command wrote.
    fn number(&self) -> Pid {
        self.line.parse().ok().and_then(Pid::from_raw).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.client), signal).unwrap();
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Waits for the client's end: its status, and what it says.
    fn end(mut self) -> (std::process::ExitStatus, String) {
        let status = self.client.wait().unwrap();
        let mut text = String::new();
        self.said.rewind().unwrap();
        self.said.read_to_string(&mut text).unwrap();
        (status, text)
    }
}

/// Runs a test through each service.
fn through_each(test: impl Fn(Host) + Send + 'static) {
    in_time(move || Host::all().into_iter().for_each(test));
}

/// How long something may take on a busy machine.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(40);

/// Waits for something that the calling line looks for. It fails before the time of the test is up, so that what the test
/// has started ends with it.
#[track_caller]
fn wait_until(what: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !what() {
        assert!(start.elapsed() < PATIENCE, "waited for {PATIENCE:?}");
        fixture::pause();
    }
}

fn is_alive(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_command_ends_here_as_it_ended_there() {
    through_each(|host| {
        for code in [0, 1, 42, 139, 255] {
            let (status, out, err) = host.run(&["sh", "-c", &format!("echo on; exit {code}")]);
            assert_eq!((status, &*out, &*err), (Some(code), "on\n", ""));
        }
        for signal in [1, 2, 6, 9, 11, 13, 15, 34, 64] {
            let script = format!("ulimit -c 0; kill -{signal} $$");
            assert_eq!(host.run(&["sh", "-c", &script]).0, Some(128 + signal), "{signal}");
            let same = host.host(&["--signal", "sh", "-c", &script]).status().unwrap();
            assert_eq!((same.signal(), same.core_dumped()), (Some(signal), false));
        }
    });
}

#[test]
fn what_cannot_be_run_has_the_status_of_a_shell_and_a_reason() {
    through_each(|host| {
        let file = host.bus.dir().join("plain");
        fs::write(&file, "text").unwrap();
        let file = file.to_str().unwrap();
        let (_, _, missing) = host.run(&["no-such-command"]);
        assert!(missing.starts_with("unjank: cannot run no-such-command on the host: "));
        for (arguments, status, said) in [
            (&["no-such-command"][..], 127, "No such file or directory"),
            (&[file], 126, "Permission denied"),
            (&["/"], 126, "Permission denied"),
            (&["--directory", "/no/such", "true"], 125, "No such file or directory"),
            (&[""], 125, "No command given"),
            (&["--forward-fd", "99", "true"], 125, "Bad file descriptor"),
            (&["--env-fd", "99", "true"], 125, "Bad file descriptor"),
        ] {
            let (code, out, err) = host.run(arguments);
            assert_eq!((code, &*out), (Some(status), ""), "{arguments:?}: {err}");
            assert!(err.contains(said) && err.starts_with("unjank: cannot "), "{err}");
        }
        for wrong in [
            &["--env", "A", "true"][..],
            &["--nice", "99", "true"],
            &["--nonsense", "true"],
            &["-x"],
            &[],
        ] {
            assert_eq!(host.run(wrong).0, Some(2), "{wrong:?}");
        }
        assert!(host.run(&["--help"]).1.contains("Usage: unjank host"));
        // Options of the command are its own.
        assert_eq!(host.run(&["sh", "-c", "exit $#", "sh", "--help", "-x"]).0, Some(2));
        assert_eq!(host.run(&["--clear-env", "sh", "-c", "exit 3"]).0, Some(3));
    });
}

#[test]
fn the_environment_and_the_directory_are_those_that_were_asked_for() {
    through_each(|host| {
        let env = |arguments: &[&str]| {
            let (status, out, err) = host.run(&[arguments, &["/usr/bin/env"]].concat());
            assert_eq!((status, &*err), (Some(0), ""));
            out
        };
        let all = env(&["--env", "A=1", "--env", "B=x=y", "--unset-env", "HOME"]);
        assert!(all.contains("A=1\n") && all.contains("B=x=y\n") && all.contains("PATH="));
        assert!(!all.contains("\nHOME="), "{all}");
        assert_eq!(env(&["--clear-env", "--env", "ONLY=this"]), "ONLY=this\n");
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"C=3\0D=two\nlines\0").unwrap();
        drop(writer);
        // The command reads variables from descriptor 0, and still gets it.
        let mut command = host.host(&["--clear-env", "--env-fd", "0", "/usr/bin/env", "-0"]);
        let (_, out, _) = told(command.stdin(reader.try_clone().unwrap()).output().unwrap());
        let mut pairs: Vec<&str> = out.split_terminator('\0').collect();
        pairs.sort_unstable();
        assert_eq!(pairs, ["C=3", "D=two\nlines"]);
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
        let here = host.bus.dir().join("home");
        let (_, out, _) = told(host.host(&["pwd"]).current_dir(&here).output().unwrap());
        assert_eq!(out.trim_end(), here.canonicalize().unwrap().to_str().unwrap());
        assert_eq!(host.run(&["-C", "home", "pwd"]).1, out);
        let (_, out, _) = host.run(&["--nice", "7", "--idle", "sh", "-c", "nice; chrt -p $$"]);
        let nice = format!("{}\n", own_niceness() + 7);
        assert!(out.starts_with(&nice) && out.contains("SCHED_IDLE"), "{out}");
    });
}

#[test]
fn descriptors_go_with_the_command() {
    through_each(|host| {
        let mut command = Command::new("sh");
        let script = format!(
            "exec 5</dev/null 7>&1; exec {UNJANK} host --forward-fd 7 -- sh -c 'cat; echo seven >&7; ls /proc/self/fd'"
        );
        command.args(["-c", &script]).env("DBUS_SESSION_BUS_ADDRESS", host.bus.address());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"in\n").unwrap();
        let (status, out, _) = told(child.wait_with_output().unwrap());
        // The last is the directory that `ls` reads.
        assert_eq!((status, &*out), (Some(0), "in\nseven\n0\n1\n2\n3\n7\n"));
        let many: Vec<String> = (20..34).map(|number| format!("--forward-fd={number}")).collect();
        let opened: String = (20..34).map(|number| format!(" {number}</dev/null")).collect();
        let script = format!("eval 'exec{opened}'; exec {UNJANK} host {} true", many.join(" "));
        let mut command = Command::new("bash");
        command.args(["-c", &script]).env("DBUS_SESSION_BUS_ADDRESS", host.bus.address());
        let (status, _, err) = told(command.output().unwrap());
        assert!(
            status == Some(125) && err.contains("at most 13 descriptors besides the first three"),
            "{err}"
        );
    });
}

#[test]
fn signals_reach_the_command_and_stops_reach_both() {
    through_each(|host| {
        let signals = [
            (Signal::HUP, "HUP"),
            (Signal::INT, "INT"),
            (Signal::QUIT, "QUIT"),
            (Signal::TERM, "TERM"),
            (Signal::USR1, "USR1"),
            (Signal::USR2, "USR2"),
            (Signal::ALARM, "ALRM"),
            (Signal::WINCH, "WINCH"),
        ];
        let traps: String = signals.map(|(_, name)| format!("trap 'echo {name}' {name};")).concat();
        let script = format!("{traps} trap 'exit 9' PWR; echo $$; while :; do sleep 0.01; done");
        let mut running = host.script(&[], &script);
        for (signal, name) in signals {
            running.signal(signal);
            assert_eq!(running.next_line(), name);
        }
        let command = running.number();
        running.signal(Signal::KILL);
        let (status, _) = running.end();
        assert_eq!(status.signal(), Some(9));
        // It goes on without its client, as through the original service.
        kill_process(command, Signal::POWER).unwrap();

        let running = host.script(&[], "echo $$; exec sleep 1000");
        let state = |process: Pid| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
            stat.unwrap().split(") ").nth(1).and_then(|rest| rest.chars().next()).unwrap()
        };
        running.signal(Signal::TSTP);
        let client = Pid::from_child(&running.client);
        let (_, stopped) = waitpid(Some(client), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(stopped.stopped());
        wait_until(|| state(running.number()) == 'T');
        running.signal(Signal::CONT);
        wait_until(|| state(running.number()) == 'S');
        running.signal(Signal::TERM);
        assert_eq!(running.end().0.code(), Some(143));

        // What nobody wanted to hear of is not passed on.
        let mut ignoring = Command::new("sh");
        let script = format!("trap '' HUP; exec {UNJANK} host -- sh -c 'echo $$; exec sleep 1000'");
        ignoring.args(["-c", &script]).env("DBUS_SESSION_BUS_ADDRESS", host.bus.address());
        let running = Running::start(ignoring);
        running.signal(Signal::HUP);
        running.signal(Signal::TERM);
        assert_eq!(running.end().0.code(), Some(143));
    });
}

#[test]
fn an_end_that_nobody_tells_of_is_no_success() {
    through_each(|mut host| {
        let running = host.script(&[], "echo $$; exec sleep 1000");
        let orphan = running.number();
        host.service.kill().unwrap();
        let (status, said) = running.end();
        assert_eq!(status.code(), Some(125));
        assert!(said.contains("cannot get the result of sh: "), "{said}");
        // The service may have taken it along.
        let _ = kill_process(orphan, Signal::KILL);

        let (status, _, said) = host.run(&["true"]);
        assert_eq!(status, Some(125), "{said}");
        assert!(said.contains("hint: the sandbox must be allowed to talk to"), "{said}");
    });
}

#[test]
fn a_bus_that_ends_is_no_success() {
    through_each(|mut host| {
        let running = host.script(&[], "echo $$; exec sleep 1000");
        let orphan = running.number();
        host.bus.kill();
        let (status, said) = running.end();
        assert_eq!(status.code(), Some(125));
        assert!(said.contains("the connection to the bus broke"), "{said}");
        // The service may have ended it by now, as ours does.
        let _ = kill_process(orphan, Signal::KILL);
    });
}

#[test]
fn a_watched_command_ends_with_its_client() {
    through_each(|host| {
        let running = host.script(&["--watch-bus"], "echo $$; exec sleep 1000");
        let command = running.number();
        running.signal(Signal::KILL);
        assert_eq!(running.end().0.signal(), Some(9));
        wait_until(|| !is_alive(command));
        let running = host.script(&[], "echo $$; exec sleep 1000");
        let command = running.number();
        running.signal(Signal::KILL);
        running.end();
        assert!(test_kill_process(command).is_ok(), "nobody asked for its end");
        kill_process(command, Signal::KILL).unwrap();
    });
}

#[test]
fn a_command_that_takes_too_long_is_ended() {
    through_each(|host| {
        let (status, _, said) = host.run(&["--timeout", "50ms", "sleep", "1000"]);
        assert_eq!((status, &*said), (Some(124), "unjank: sleep took too long\n"));
        let stubborn = "trap '' TERM; echo $$; while :; do sleep 0.1; done";
        let running = host.script(&["--timeout", "300ms"], stubborn);
        let command = running.number();
        assert_eq!(running.end().0.code(), Some(124));
        wait_until(|| !is_alive(command));
        assert_eq!(host.run(&["--timeout", "1h", "sh", "-c", "exit 3"]).0, Some(3));
    });
}

#[test]
fn only_the_service_may_say_that_a_command_ended() {
    through_each(|host| {
        if !has(&["dbus-send"]) {
            return;
        }
        let mut command = host.host(&["--", "sh", "-c", "echo $$; read x; exit 5"]);
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        let number = running.line.clone();
        for name in 0..20 {
            let mut forged = host.bus.command("dbus-send");
            forged.args([&format!("--dest=:1.{name}"), "--type=signal"]);
            forged.args([
                "/org/freedesktop/Flatpak/Development",
                "org.freedesktop.Flatpak.Development.HostCommandExited",
                &format!("uint32:{number}"),
                "uint32:0",
            ]);
            assert!(forged.status().unwrap().success());
        }
        assert_eq!(running.client.try_wait().unwrap(), None);
        drop(running.client.stdin.take());
        assert_eq!(running.end().0.code(), Some(5));
    });
}

#[test]
fn without_a_bus_the_command_runs_in_place_and_that_is_said() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let run = |arguments: &[&str]| {
            let mut command = Command::new(UNJANK);
            command.arg("host").args(arguments).env_clear().env("PATH", "/usr/bin:/bin");
            command.env("SEEN", "yes").current_dir(dir.path()).stdin(Stdio::null());
            told(command.output().unwrap())
        };
        let notice = "unjank: there is no bus (DBUS_SESSION_BUS_ADDRESS is not set); the command runs in place\n";
        let script = "echo $SEEN $A; exit 7";
        let (status, out, err) = run(&["--env", "A=b", "sh", "-c", script]);
        assert_eq!((status, &*out, &*err), (Some(7), "yes b\n", notice));
        assert_eq!(run(&["--clear-env", "--unset-env", "A", "/usr/bin/env"]).1, "");
        assert_eq!(run(&["--unset-env", "SEEN", "sh", "-c", script]).1, "\n");
        assert_eq!(run(&["-C", "/", "pwd"]).1, "/\n");
        assert_eq!(run(&["no-such-command"]).0, Some(127));
        assert_eq!(run(&["/"]).0, Some(126));
        assert_eq!(run(&["-C", "/no/such", "true"]).0, Some(125));
        assert_eq!(run(&["--timeout", "50ms", "sleep", "1000"]).0, Some(124));
        assert_eq!(run(&["--nice", "5", "nice"]).1, format!("{}\n", own_niceness() + 5));
        let mut command = Command::new(UNJANK);
        command.args(["host", "true"]).env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/no/bus");
        let (status, _, err) = told(command.output().unwrap());
        assert!(status == Some(0) && err.contains("(No such file or directory)"), "{err}");
    });
}

#[test]
fn a_hundred_commands_at_once_have_a_status_each() {
    through_each(|host| {
        let start = |code: i32| {
            host.host(&["sh", "-c", &format!("exit {code}")]).stderr(Stdio::null()).spawn().unwrap()
        };
        let clients: Vec<Child> = (0..100).map(start).collect();
        for (code, mut client) in (0..).zip(clients) {
            assert_eq!(client.wait().unwrap().code(), Some(code));
        }
    });
}

#[test]
fn a_command_goes_through_the_proxy_of_a_sandbox() {
    through_each(|host| {
        if !has(&["xdg-dbus-proxy"]) {
            return;
        }
        let socket = host.bus.dir().join("proxy");
        let proxy = |rule: &str| {
            let _ = fs::remove_file(&socket);
            let mut command = host.bus.command("xdg-dbus-proxy");
            command.arg(host.bus.address()).arg(&socket).args(["--filter", rule]);
            let child = command.spawn().unwrap();
            wait_until(|| std::os::unix::net::UnixStream::connect(&socket).is_ok());
            child
        };
        let run = |arguments: &[&str]| {
            let mut command = host.host(arguments);
            let address = format!("unix:path={}", socket.display());
            told(command.env("DBUS_SESSION_BUS_ADDRESS", address).output().unwrap())
        };
        let mut child = proxy("--talk=org.freedesktop.Flatpak");
        assert_eq!(run(&["sh", "-c", "echo out; exit 3"]), (Some(3), "out\n".into(), "".into()));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut child = proxy("--talk=org.example.Other");
        let (status, _, said) = run(&["true"]);
        assert!(status == Some(125) && said.contains("hint: the sandbox must"), "{said}");
        child.kill().unwrap();
        child.wait().unwrap();
    });
}
