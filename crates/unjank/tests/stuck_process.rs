//! A process that hangs in the kernel with the lock of its memory held: nobody who looks at processes hangs with it.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use crate::fixture;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fixture::fuse::{HangingMount, Server};
use fixture::{Bus, has, in_time};

/// A program that hangs in a page fault of one thread, and in giving that memory back in the other: the second waits for the
/// first and holds the lock of the memory, for which the readers of its command line wait.
const PROGRAM: &str = include_str!("fixture/stuck.c");

/// The process, and the file system that it hangs on, which is cut off first when this is dropped: that frees the process.
struct Stuck {
    hanging: Option<HangingMount>,
    process: Child,
}

impl Stuck {
    /// Starts it with this home; `None` where it cannot be made to hang.
    fn start(home: &Path) -> Option<Stuck> {
        if !has(&["cc"]) {
            return None;
        }
        let hanging = HangingMount::make(Server::DiesWhenTold)?;
        let (source, program) = (home.join("stuck.c"), home.join("stuck"));
        std::fs::write(&source, PROGRAM).unwrap();
        let built = Command::new("cc").args(["-pthread", "-o"]).args([&program, &source]).status();
        assert!(built.unwrap().success());
        let mut command = Command::new(&program);
        command.arg(hanging.file()).env("HOME", home);
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stuck = Stuck { hanging: Some(hanging), process };
        let mut lines = BufReader::new(stuck.process.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "mapped");
        stuck.hanging.as_ref().unwrap().die();
        stuck.process.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "hangs");
        let start = Instant::now();
        while stuck.state() != Some('D') {
            assert!(start.elapsed() < Duration::from_secs(50), "it does not hang within 50 s");
        }
        Some(stuck)
    }

    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        drop(self.hanging.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a command in this home; it has ended within a minute, or the test says that it has not.
fn output(mut command: Command, home: &Path) -> String {
    command.env("HOME", home).stdin(Stdio::null());
    for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    let what = format!("{command:?}");
    let (tell, told) = std::sync::mpsc::channel();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    let Ok(output) = told.recv_timeout(Duration::from_secs(60)) else {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        panic!("{what} has not ended within 60 s");
    };
    let output = output.unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_process_that_hangs_holds_up_nobody_who_looks_at_it() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let home = tempfile::tempdir().unwrap();
        let Some(stuck) = Stuck::start(home.path()) else { return };
        let pid = stuck.process.id();
        for name in ["cmdline", "environ", "maps"] {
            let start = Instant::now();
            let error = sys::process_file::read(pid, name, 1 << 20).unwrap_err();
            assert!(sys::process_file::is_stuck(&error), "{name}: {error}");
            assert!(start.elapsed() < Duration::from_secs(20), "{name}: {:?}", start.elapsed());
        }
        // Others are read meanwhile.
        assert!(!sys::process_file::read(std::process::id(), "maps", 1 << 20).unwrap().is_empty());
        let command = |words: &[&str]| {
            let mut command = bus.command(env!("CARGO_BIN_EXE_unjank"));
            command.args(words);
            command
        };
        let forget =
            output(command(&["recent", "forget", "--dry-run", "/no/such/file"]), home.path());
        assert!(forget.contains(&format!("not checked: stuck ({pid}) hangs")), "{forget}");
        let doctor = output(command(&["doctor", "--only", "bus", "--json"]), home.path());
        assert!(!doctor.is_empty());
        // A monitor of the bus has the doctor look for the program that it is.
        let mut monitor = bus.command("dbus-monitor");
        let mut monitor = monitor.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(monitor.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        let doctor = output(command(&["doctor", "--only", "bus", "--json"]), home.path());
        let _ = monitor.kill();
        let _ = monitor.wait();
        assert!(doctor.contains(&format!("they hang in the kernel: processes {pid}")), "{doctor}");
        drop(stuck);
    });
}
