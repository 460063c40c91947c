//! `unjank host` and its `flatpak-spawn`: statuses, signals, descriptors and ends that nobody wanted, through real services.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test, which is another program"
)]

mod fixture;
mod host_terminal;

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use fixture::{Bus, has, in_time, skip};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, test_kill_process, waitpid};

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");
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

fn wait_until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
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
        assert!(out.starts_with("7\n") && out.contains("SCHED_IDLE"), "{out}");
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
        assert!(status == Some(125) && err.contains("at most 16 descriptors"), "{err}");
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
        assert!(said.contains("cannot learn what became of sh: "), "{said}");
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
        assert_eq!(run(&["--nice", "5", "nice"]).1, "5\n");
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

/// The name under which ours is called like the original.
fn like_the_original(dir: &Path) -> PathBuf {
    let link = dir.join("flatpak-spawn");
    if !link.exists() {
        std::os::unix::fs::symlink(UNJANK, &link).unwrap();
    }
    link
}

#[test]
fn under_the_name_of_the_original_it_says_and_does_the_same() {
    through_each(|host| {
        if !Path::new(SPAWN).exists() {
            return skip("no flatpak-spawn");
        }
        let ours = like_the_original(host.bus.dir());
        let run = |program: &Path, arguments: &[&str]| {
            let mut command = host.bus.command(program);
            // The same name in the messages of both.
            command.arg0("flatpak-spawn").args(arguments).stdin(Stdio::null());
            told(command.output().unwrap())
        };
        for arguments in [
            &["--host", "--", "echo", "hi"][..],
            &["--host", "echo", "--host"],
            &["--host", "--env=FOO=1", "printenv", "FOO"],
            &["--host", "--env=FOO", "true"],
            &["--host", "--env==x", "true"],
            &["--host", "--env", "FOO=1", "true"],
            &["--host", "--unset-env=HOME", "printenv", "HOME"],
            &["--host", "--clear-env", "env"],
            &["--host", "--directory=/nope", "true"],
            &["--host", "--directory=/tmp", "pwd"],
            &["--host", "--nonsense", "true"],
            &["--host", "--env"],
            &["--host"],
            &[],
            &["--host", "--forward-fd=77", "true"],
            &["--host", "--forward-fd=x", "true"],
            &["--host", "--sandbox", "true"],
            &["--host", "--app-path=/x", "true"],
            &["--host", "--sandbox-expose-path-try=/x", "true"],
            &["--host", "/nope"],
            &["--host", "/"],
            &["--host", ""],
            &["--host", "--watch-bus", "sh", "-c", "exit 139"],
            &["--host", "sh", "-c", "kill -TERM $$"],
            &["--host", "sh", "-c", "kill -34 $$"],
        ] {
            let theirs = run(Path::new(SPAWN), arguments);
            assert_eq!(run(&ours, arguments), theirs, "{arguments:?}");
        }
        let running = {
            let mut command = host.bus.command(&ours);
            command.args(["--host", "sh", "-c", "echo $$; exec sleep 1000"]);
            Running::start(command)
        };
        kill_process(running.number(), Signal::USR1).unwrap();
        assert_eq!(running.end().0.code(), Some(138));
        // Without --host it is the sandbox's own that is asked.
        let mut other = host.bus.command(&ours);
        fs::create_dir(host.bus.dir().join("bin")).unwrap();
        let fake = host.bus.dir().join("bin/flatpak-spawn");
        fs::write(&fake, "#!/bin/sh\necho own \"$@\"\n").unwrap();
        fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let path = format!(
            "{}:{}:/usr/bin:/bin",
            host.bus.dir().display(),
            fake.parent().unwrap().display()
        );
        let (status, out, _) =
            told(other.env("PATH", path).args(["--sandbox", "ls"]).output().unwrap());
        assert_eq!((status, &*out), (Some(0), "own --sandbox ls\n"));
    });
}

#[test]
fn under_the_name_of_the_original_a_lost_bus_is_no_success() {
    through_each(|mut host| {
        let ours = like_the_original(host.bus.dir());
        let mut command = host.bus.command(&ours);
        command.args(["--host", "sh", "-c", "echo $$; exec sleep 1000"]);
        let running = Running::start(command);
        let orphan = running.number();
        host.bus.kill();
        // The original says 0 here.
        assert_eq!(running.end().0.code(), Some(1));
        let _ = kill_process(orphan, Signal::KILL);
        let (status, _, said) =
            told(host.bus.command(&ours).args(["--host", "true"]).output().unwrap());
        assert!(status == Some(1) && said.starts_with("Can't find bus: "), "{said}");
    });
}

#[test]
fn a_shim_runs_the_hosts_command_and_else_the_sandboxs_own() {
    through_each(|mut host| {
        let dir = host.bus.dir().to_owned();
        let (shims, own) = (dir.join("shims"), dir.join("own"));
        fs::create_dir(&own).unwrap();
        let program = |path: &Path, text: &str| {
            fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        // The service was started with another PATH: this one is the sandbox's.
        program(&own.join("nproc"), "echo own \"$@\"; exit 3");
        let path = format!("{}:{}:/usr/bin:/bin", shims.display(), own.display());
        let shim = |bus: &Bus, arguments: &[&str]| {
            let mut command = bus.command(UNJANK);
            command.args(["host", "shim"]).args(arguments).env("PATH", &path);
            told(command.output().unwrap())
        };
        let at = shims.to_str().unwrap().to_owned();
        let (status, out, err) = shim(&host.bus, &["add", "nproc", "--dir", &at]);
        assert_eq!((status, &*err), (Some(0), ""));
        assert_eq!(out, format!("nproc runs the host's: {at}/nproc\n"));
        assert_eq!(
            shim(&host.bus, &["add", "nproc", "--dir", &at]).0,
            Some(0),
            "it is there already"
        );
        fs::write(shims.join("taken"), "").unwrap();
        for wrong in ["taken", "a/b", "unjank", ""] {
            assert_eq!(shim(&host.bus, &["add", "--dir", &at, "--", wrong]).0, Some(2), "{wrong}");
        }
        let listed = shim(&host.bus, &["list"]).1;
        assert!(listed.starts_with("1 shim\n") && listed.contains("(else "), "{listed}");
        let json: serde_json::Value =
            serde_json::from_str(&shim(&host.bus, &["list", "--json"]).1).unwrap();
        assert_eq!(
            (&json["shims"][0]["name"], &json["shims"][0]["first"]),
            (&"nproc".into(), &true.into())
        );

        let run = |bus: &Bus, arguments: &[&str]| {
            let mut command = bus.command("nproc");
            // The shell's look-up, as a plugin of an editor does it.
            command.args(arguments).env("PATH", &path);
            told(command.output().unwrap())
        };
        let (status, out, _) = run(&host.bus, &["--version"]);
        assert!(status == Some(0) && out.contains("coreutils"), "the host's: {out}");
        // What is wrong there is wrong here.
        assert_eq!(run(&host.bus, &["--nonsense"]).0, Some(1));
        // A shim that the host itself would run again does not run for ever.
        let mut inside = host.bus.command("nproc");
        let (status, out, _) =
            told(inside.env("PATH", &path).env("UNJANK_SHIM", "nproc").output().unwrap());
        assert_eq!((status, &*out), (Some(3), "own\n"));

        let _ = host.service.kill();
        let _ = host.service.wait();
        assert_eq!(run(&host.bus, &["x y"]), (Some(3), "own x y\n".into(), String::new()));
        host.bus.kill();
        assert_eq!(run(&host.bus, &[]), (Some(3), "own\n".into(), String::new()));
        fs::remove_file(own.join("nproc")).unwrap();
        assert_eq!(shim(&host.bus, &["remove", "taken", "--dir", &at]).0, Some(2));
        assert_eq!(shim(&host.bus, &["remove", "nproc", "--dir", &at]).0, Some(0));
        assert_eq!(shim(&host.bus, &["list"]).1, "No command is a shim.\n");
    });
}

#[test]
fn what_the_policy_forbids_is_refused_and_what_ran_is_in_the_log() {
    in_time(|| {
        let Some(host) = Host::ours() else { return };
        let policy = |arguments: &[&str]| {
            let mut command = host.bus.command(UNJANK);
            told(command.args(["host", "policy"]).args(arguments).output().unwrap())
        };
        assert!(policy(&["show"]).1.starts_with("Every application may run every command"));
        assert_eq!(policy(&["explain", "org.x.App", "true"]).0, Some(0));
        assert_eq!(host.run(&["sh", "-c", "exit 4"]).0, Some(4));
        assert_eq!(policy(&["deny", "host", "true"]).0, Some(0));
        assert_eq!(policy(&["allow", "org.x.App", "git", "status"]).0, Some(0));
        let file = host.bus.dir().join("config/unjank/host-policy");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("# Mine.\n{text}")).unwrap();
        assert_eq!(policy(&["deny", "org.x.App", "*"]).0, Some(0));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# Mine.\n[host]\ndeny true\n"), "{text}");
        let (status, said, _) = policy(&["explain", "host", "true"]);
        assert!(status == Some(1) && said.contains("may not run"), "{said}");
        let json: serde_json::Value = serde_json::from_str(&policy(&["show", "--json"]).1).unwrap();
        assert_eq!(json["sections"][0]["rules"][0]["words"][0], "true");

        let (status, _, said) = host.run(&["true"]);
        assert!(status == Some(126) && said.contains("cannot run true on the host"), "{said}");
        assert_eq!(policy(&["remove", "host", "true"]).0, Some(0));
        assert_eq!(policy(&["remove", "host", "true"]).0, Some(1));
        wait_until(|| host.run(&["true"]).0 == Some(0));
        fs::write(&file, "nonsense\n").unwrap();
        let (status, _, said) = policy(&["show"]);
        assert!(status == Some(2) && said.contains("line 1"), "{said}");

        let log = |arguments: &[&str]| {
            let mut command = host.bus.command(UNJANK);
            told(command.args(["host", "log"]).args(arguments).output().unwrap()).1
        };
        // The end of a command is written after it was told.
        wait_until(|| log(&["--json"]).contains("\"wait_status\": 1024"));
        let json: serde_json::Value = serde_json::from_str(&log(&["--json"])).unwrap();
        let commands = json["commands"].as_array().unwrap();
        assert_eq!(commands[0]["command"], serde_json::json!(["sh", "-c", "exit 4"]));
        assert_eq!(commands[0]["app"], "host");
        assert!(commands.iter().any(|command| command["outcome"] == "refused"));
        let shown = log(&["--failed", "-n", "50"]);
        assert!(shown.contains("sh -c 'exit 4'") && shown.contains("refused"), "{shown}");
        assert!(log(&["--app", "org.no.One"]).starts_with("No command of the host"));
    });
}

#[test]
fn the_doctor_says_who_serves_and_what_is_left_behind() {
    through_each(|host| {
        let doctor = |display: Option<&str>| {
            let mut command = host.bus.command(UNJANK);
            command.args(["doctor", "--only", "host", "--json"]);
            display.map(|display| command.env("DISPLAY", display));
            let (status, out, err) = told(command.output().unwrap());
            assert!(status.is_some_and(|status| status < 2), "{err}");
            out
        };
        let said = doctor(None);
        let served = format!("(process {})", host.service.id());
        assert!(said.contains(&served) && said.contains("run a host command"), "{said}");
        assert!(said.contains("is that of this session"), "{said}");
        // The service was started without a display.
        let said = doctor(Some(":7"));
        assert!(said.contains("is another session's: DISPLAY differ"), "{said}");

        let running = host.script(&[], "echo $$; exec sleep 1000");
        let orphan = running.number();
        assert!(!doctor(None).contains("orphaned host commands"));
        drop(running);
        // Only ours keeps a log, by which they are known.
        if host.bus.dir().join("state/unjank/host").exists() {
            let named = format!("sh ({})", orphan.as_raw_nonzero());
            wait_until(|| doctor(None).contains(&named));
        }
        kill_process(orphan, Signal::KILL).unwrap();
    });
}

#[test]
fn the_benchmark_measures_every_figure() {
    in_time(|| {
        if !Path::new(REAL).exists() || !Path::new(SPAWN).exists() {
            return skip("no flatpak-session-helper or no flatpak-spawn");
        }
        let mut command = Command::new(UNJANK);
        command.args(["bench", "host", "--quick", "--json", "--peer", REAL, "--client", SPAWN]);
        let unjankd = env!("CARGO_BIN_EXE_unjankd");
        let (_, out, err) = told(command.args(["--ours", unjankd]).output().unwrap());
        let run: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
        let ids: Vec<_> = run["figures"].as_array().unwrap().iter().map(|row| &row["id"]).collect();
        assert_eq!(ids, ["spawn", "client", "plain-ours", "plain-peer", "bytes", "burst"], "{out}");
    });
}
