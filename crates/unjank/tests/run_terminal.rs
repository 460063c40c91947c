//! `unjank run` under an interactive shell in a terminal: stops, fg, bg and the keys that end a job are as without it.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test that cannot be set up fails; it stands for a user"
)]

use crate::fixture;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use fixture::{has, in_time, terminal};

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

/// A shell and its screen.
struct Shell {
    keyboard: File,
    seen: String,
    shell: Child,
    home: tempfile::TempDir,
}

const BASH: &[&str] = &["bash", "--norc", "--noprofile", "-i"];

impl Shell {
    fn open() -> Shell {
        Shell::open_in(BASH)
    }

    /// Opens one whose jobs find no cgroup, so that they are held by signals; `None` where the cgroups cannot be hidden.
    fn open_without_cgroup() -> Option<Shell> {
        if !has(&["bash", "setsid", "unshare", "mount"]) {
            return None;
        }
        let as_root = rustix::process::geteuid().is_root();
        let unshare: &[&str] =
            if as_root { &["unshare", "-m"] } else { &["unshare", "-m", "--map-root-user"] };
        let works = Command::new(unshare[0]).args(&unshare[1..]).arg("true").output();
        if !works.is_ok_and(|output| output.status.success()) {
            fixture::skip("no mount namespace can be made here");
            return None;
        }
        let mounts = sys::mounts::Mounts::read().unwrap();
        let cgroups = mounts.iter().find(|mount| mount.fs_type == "cgroup2");
        let script = match cgroups {
            Some(mount) => format!("mount -t tmpfs tmpfs {} && exec \"$@\"", mount.point.display()),
            None => "exec \"$@\"".to_owned(),
        };
        let program = [unshare, &["sh", "-c", &script, "sh"], BASH].concat();
        Some(Shell::open_in(&program))
    }

    fn open_in(program: &[&str]) -> Shell {
        let home = tempfile::tempdir().unwrap();
        let (pty, line) = terminal::open();
        let end = || Stdio::from(line.try_clone().unwrap());
        let shell = Command::new("setsid")
            .arg("--ctty")
            .args(program)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home.path())
            .env("XDG_RUNTIME_DIR", home.path())
            .env("LC_ALL", "C")
            .env("TERM", "dumb")
            // What is typed is shown once, and the end of a prompt is seen.
            .env("PS1", "<$?>")
            .env("RUN", format!("{UNJANK} run --"))
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let mut shell = Shell { keyboard: File::from(pty), seen: String::new(), shell, home };
        shell.expect("<0>");
        shell
    }

    /// Waits until `text` is on the screen and forgets what came before its end.
    fn expect(&mut self, text: &str) {
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let mut bytes = [0; 4096];
            let len = self.keyboard.read(&mut bytes).unwrap();
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a command.
    fn enter(&mut self, text: &str) {
        self.press(&format!("{text}\n"));
    }

    /// Waits until a job has the terminal, and says which.
    fn foreground(&self) -> i32 {
        let own = i32::try_from(self.shell.id()).unwrap();
        loop {
            let group = rustix::termios::tcgetpgrp(&self.keyboard).unwrap();
            let group = group.as_raw_nonzero().get();
            if group != own {
                return group;
            }
            fixture::pause();
        }
    }

    /// Waits until the program called `name` in this group is in this state, and returns its number.
    fn until(&self, group: i32, name: &str, state: &str) -> u32 {
        loop {
            let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
            let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            let found = pids.into_iter().find(|pid| {
                let fields = stat(*pid).unwrap_or_default();
                fields.len() > 3
                    && fields[0] == name
                    && fields[1] == state
                    && fields[3] == group.to_string()
            });
            if let Some(found) = found {
                return found;
            }
            fixture::pause();
        }
    }

    /// Runs `unjank` from elsewhere, where it reaches the jobs of this shell.
    fn unjank(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(UNJANK);
        command.args(arguments).env("XDG_RUNTIME_DIR", self.home.path());
        command
    }

    /// Has the keeper of a job do something, as soon as it can be reached.
    fn order(&self, order: &str, job: i32) {
        while !self.unjank(&["jobs", order, &job.to_string()]).status().unwrap().success() {
            fixture::pause();
        }
    }
}

/// Returns the name of a process, its state, its parent and its group.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = stat.rsplit_once(") ")?;
    let name = before.split_once('(')?.1;
    Some(std::iter::once(name).chain(after.split(' ').take(3)).map(str::to_owned).collect())
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn a_job_is_stopped_continued_and_ended_by_keys() {
    if !has(&["bash", "setsid"]) {
        return;
    }
    in_time(|| {
        let mut shell = Shell::open();
        shell.enter("$RUN sleep 600");
        let group = shell.foreground();
        shell.until(group, "sleep", "S");
        shell.press("\x1a");
        shell.expect("Stopped");
        // 128 and the number of SIGTSTP.
        shell.expect("<148>");
        shell.until(group, "sleep", "T");
        shell.enter("bg");
        shell.until(group, "sleep", "S");
        shell.expect("<0>");
        shell.enter("jobs");
        shell.expect("Running");
        shell.enter("fg");
        assert_eq!(shell.foreground(), group);
        shell.press("\x1a");
        shell.expect("Stopped");
        shell.expect("<148>");
        shell.enter("fg");
        assert_eq!(shell.foreground(), group);
        shell.until(group, "sleep", "S");
        shell.press("\x03");
        shell.expect("<130>");
        shell.enter("$RUN sleep 600");
        let group = shell.foreground();
        shell.until(group, "sleep", "S");
        shell.press("\x1c");
        shell.expect("<131>");
        // One that stops itself.
        shell.enter("$RUN sh -c 'kill -STOP $$; echo went-$((3+4))'");
        shell.expect("Stopped");
        shell.expect("<147>");
        shell.enter("fg");
        shell.expect("went-7");
        shell.expect("<0>");
    });
}

#[test]
fn a_job_reads_the_terminal_in_front_and_is_stopped_behind() {
    if !has(&["bash", "setsid"]) {
        return;
    }
    in_time(|| {
        let mut shell = Shell::open();
        shell.enter("$RUN cat");
        let group = shell.foreground();
        shell.until(group, "cat", "S");
        shell.enter("typed");
        shell.expect("typed\r\ntyped");
        shell.press("\x04");
        shell.expect("<0>");
        shell.enter("$RUN cat &");
        shell.expect("<0>");
        shell.enter("wait -n %1; echo stopped-$((1+1))");
        shell.expect("stopped-2");
        shell.enter("fg");
        let group = shell.foreground();
        shell.until(group, "cat", "S");
        shell.enter("again");
        shell.expect("again\r\nagain");
        shell.press("\x04");
        shell.expect("<0>");
        // A pipeline, ended by the shell.
        shell.enter("$RUN sleep 600 | cat &");
        shell.expect("<0>");
        shell.enter("kill %1; wait %1; echo ended");
        shell.expect("ended");
        shell.enter("exit 5");
        assert_eq!(shell.shell.wait().unwrap().code(), Some(5));
    });
}

#[test]
fn a_job_that_is_held_by_signals_and_was_stopped_by_keys_stays_stopped() {
    in_time(|| {
        let Some(mut shell) = Shell::open_without_cgroup() else { return };
        shell.enter("$RUN sleep 600");
        let group = shell.foreground();
        let sleep = shell.until(group, "sleep", "S");
        shell.order("pause", group);
        assert_eq!(shell.until(group, "sleep", "T"), sleep, "it is held by a signal");
        shell.order("resume", group);
        shell.until(group, "sleep", "S");
        shell.press("\x1a");
        shell.expect("Stopped");
        shell.expect("<148>");
        let is_stopped = || stat(sleep).unwrap()[1] == "T";
        assert!(is_stopped());
        // A hold and its end, as while others wait.
        shell.order("pause", group);
        shell.order("resume", group);
        assert!(is_stopped());
        shell.enter("fg");
        shell.until(group, "sleep", "S");
        // While it is held.
        shell.order("pause", group);
        shell.until(group, "sleep", "T");
        shell.press("\x1a");
        shell.expect("Stopped");
        shell.expect("<148>");
        shell.order("resume", group);
        assert!(is_stopped());
        shell.enter("fg");
        shell.until(group, "sleep", "S");
        shell.press("\x03");
        shell.expect("<130>");
    });
}

#[test]
fn a_program_in_the_foreground_of_its_terminal_is_not_attached_to() {
    if !has(&["bash", "setsid"]) {
        return;
    }
    in_time(|| {
        let mut shell = Shell::open();
        shell.enter("sleep 600 | sleep 600");
        let group = shell.foreground();
        let leader = u32::try_from(group).unwrap();
        shell.until(group, "sleep", "S");
        let other = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let is_other = pid != leader && stat(pid)?[3] == group.to_string();
            is_other.then_some(pid)
        });
        let pipeline: Vec<u32> = other.chain([leader]).collect();
        assert_eq!(pipeline.len(), 2);
        for pid in &pipeline {
            let refused = shell.unjank(&["run", "--attach", &pid.to_string()]).output().unwrap();
            let said = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{said}");
            assert!(said.contains("its shell would take back"), "{said}");
            assert!(said.contains("bg"), "{said}");
        }
        let attach = |shell: &Shell, arguments: &[&str]| {
            let target = leader.to_string();
            let arguments = [&["run", "--attach", &target], arguments].concat();
            let mut attached = shell.unjank(&arguments).spawn().unwrap();
            while sys::sched::IoClass::of(leader).unwrap() != sys::sched::IoClass::Idle {
                fixture::pause();
            }
            sys::supervise::send(attached.id(), 2).unwrap();
            assert!(attached.wait().unwrap().success());
        };
        // Nothing holds it.
        attach(&shell, &["--no-pause"]);
        shell.press("\x1a");
        shell.expect("<148>");
        attach(&shell, &[]);
        assert_eq!(stat(leader).unwrap()[1], "T", "the shell has stopped it");
        shell.enter("bg");
        shell.expect("<0>");
        attach(&shell, &[]);
        shell.until(group, "sleep", "S");
        shell.enter("kill %1; wait; echo ended-$((1+1))");
        shell.expect("ended-2");
    });
}
