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

/// A shell and its screen.
struct Shell {
    keyboard: File,
    seen: String,
    shell: Child,
    _home: tempfile::TempDir,
}

impl Shell {
    fn open() -> Shell {
        let home = tempfile::tempdir().unwrap();
        let (pty, line) = terminal::open();
        let end = || Stdio::from(line.try_clone().unwrap());
        let shell = Command::new("setsid")
            .args(["--ctty", "bash", "--norc", "--noprofile", "-i"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home.path())
            .env("XDG_RUNTIME_DIR", home.path())
            .env("LC_ALL", "C")
            .env("TERM", "dumb")
            // What is typed is shown once, and the end of a prompt is seen.
            .env("PS1", "<$?>")
            .env("RUN", format!("{} run --", env!("CARGO_BIN_EXE_unjank")))
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let mut shell =
            Shell { keyboard: File::from(pty), seen: String::new(), shell, _home: home };
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

    /// Waits until the program called `name` in this group is in this state.
    fn until(&self, group: i32, name: &str, state: &str) {
        let is = |process: &fs::DirEntry| {
            let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            let Some((before, after)) = stat.rsplit_once(") ") else { return false };
            let mut fields = after.split(' ');
            let now = fields.next();
            before.ends_with(&format!("({name}"))
                && now == Some(state)
                && fields.nth(1) == Some(&group.to_string())
        };
        while !fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|process| is(&process)) {
            fixture::pause();
        }
    }
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
