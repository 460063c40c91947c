//! `unjank trace` and `unjank hangs record` of a user who is not root, beside the recorder service as it is shipped.
#![expect(clippy::unwrap_used, reason = "a test stands for other programs")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::fixture::{copy_program, has, in_time, skip};
use serde_json::Value;

/// Not the user of other tests: the recorder is told of each program of its user, whoever started it.
const USER: &str = "64133";
const STAFF: &str = "64200";
const SERVICE: u32 = 64_310;

/// The service with its two capabilities; it ends with the test.
struct Recorder {
    child: Child,
    dir: tempfile::TempDir,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Recorder {
    fn start() -> Option<Recorder> {
        if !rustix::process::geteuid().is_root() || !has(&["setpriv", "python3"]) {
            skip("only root can be several users");
            return None;
        }
        if !trace::backend::bpf::is_allowed() {
            skip("no programs can be loaded into this kernel");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for (name, from) in [
            ("unjank", env!("CARGO_BIN_EXE_unjank")),
            ("unjank-recorder", env!("CARGO_BIN_EXE_unjank-recorder")),
        ] {
            copy_program(from, &dir.path().join(name));
        }
        let run = dir.path().join("run");
        std::fs::create_dir(&run).unwrap();
        chown(&run, Some(SERVICE), Some(SERVICE)).unwrap();
        let (user, kept) = (SERVICE.to_string(), "-all,+bpf,+perfmon");
        let child = Command::new("setpriv")
            .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--no-new-privs"])
            .args(["--inh-caps", kept, "--ambient-caps", kept, "--bounding-set", kept])
            .arg(dir.path().join("unjank-recorder"))
            .args(["--group", STAFF, "--bus", "unix:path=/nowhere", "--socket"])
            .arg(run.join("socket"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let recorder = Recorder { child, dir };
        while !recorder.dir.path().join("run/socket").exists() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Some(recorder)
    }

    /// Runs `unjank trace` as a user in these groups, and returns its output with the report.
    fn trace(&self, groups: &[&str], socket: &Path, command: &[&str]) -> (Output, Value) {
        let mut run = Command::new("setpriv");
        run.args(["--reuid", USER, "--regid", USER]).args(groups);
        run.arg(self.dir.path().join("unjank")).args(["trace", "--json", "--"]).args(command);
        run.env("UNJANK_RECORDER", socket).env("HOME", self.dir.path()).current_dir("/");
        let output = run.output().unwrap();
        let report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        (output, report)
    }
}

fn notes(report: &Value) -> String {
    let notes = report["watch"]["notes"].as_array().unwrap().iter();
    notes.map(|note| note.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_user_has_programs_in_the_kernel_where_the_service_lets_him_and_is_told_where_it_does_not() {
    in_time(|| {
        let Some(recorder) = Recorder::start() else { return };
        let socket = recorder.dir.path().join("run/socket");
        let command = ["sh", "-c", "cat /etc/hostname >&2; exit 3"];
        let (output, report) = recorder.trace(&["--groups", STAFF], &socket, &command);
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(report["watch"]["backend"], "bpf", "{report}");
        let said = notes(&report);
        assert!(said.contains("The recorder service has programs in the kernel"), "{said}");
        assert!(said.contains("Waits are not followed to other programs"), "{said}");

        let (output, report) = recorder.trace(&["--clear-groups"], &socket, &command);
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(report["watch"]["backend"], "seccomp", "{report}");
        let said = notes(&report);
        assert!(said.contains("the recorder service refuses it: polkit is not there"), "{said}");

        let nowhere = recorder.dir.path().join("nowhere");
        let (_, report) = recorder.trace(&["--clear-groups"], &nowhere, &command);
        assert_eq!(report["watch"]["backend"], "seccomp", "{report}");
        let said = notes(&report);
        assert!(said.contains("sudo unjank setup --system trace"), "{said}");
    });
}

#[test]
fn a_command_that_its_user_may_not_look_into_has_its_own_exit_status() {
    in_time(|| {
        let Some(recorder) = Recorder::start() else { return };
        let socket = recorder.dir.path().join("run/socket");
        let shell = recorder.dir.path().join("unreadable");
        std::fs::copy("/bin/sh", &shell).unwrap();
        std::fs::set_permissions(&shell, PermissionsExt::from_mode(0o711)).unwrap();
        let shell = shell.to_str().unwrap();
        for (script, status) in [("exit 3", 3), ("kill -TERM $$", 128 + 15), ("exit 0", 0)] {
            let command = [shell, "-c", script];
            let (output, report) = recorder.trace(&["--groups", STAFF], &socket, &command);
            assert_eq!(report["watch"]["backend"], "bpf", "{report}");
            assert_eq!(output.status.code(), Some(status), "{script}");
        }
    });
}

#[test]
fn a_user_has_hangs_recorded_exactly_where_the_service_lets_him_and_is_told_where_it_does_not() {
    in_time(|| {
        let Some(recorder) = Recorder::start() else { return };
        let socket = recorder.dir.path().join("run/socket");
        let nowhere = recorder.dir.path().join("nowhere");
        let home = recorder.dir.path().join("home");
        std::fs::create_dir(&home).unwrap();
        chown(&home, Some(64_133), Some(64_133)).unwrap();
        for (groups, socket, wanted) in [
            (&["--groups", STAFF][..], &socket, "The recorder service has programs in the kernel"),
            (&["--clear-groups"], &socket, "the recorder service refuses it: polkit is not there"),
            (&["--clear-groups"], &nowhere, "sudo unjank setup --system trace"),
        ] {
            let mut run = Command::new("setpriv");
            run.args(["--reuid", USER, "--regid", USER]).args(groups);
            run.arg(recorder.dir.path().join("unjank")).args(["hangs", "record"]);
            run.env("UNJANK_RECORDER", socket).env("HOME", &home).env_remove("XDG_STATE_HOME");
            let mut child = run.current_dir("/").stderr(Stdio::piped()).spawn().unwrap();
            let mut said = String::new();
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            // Lines are wrapped.
            while !said.contains(wanted) {
                let line = lines.next().unwrap_or_else(|| panic!("{said}")).unwrap();
                said.push_str(&line);
                said.push(' ');
            }
            rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
            let is_sampled = said.contains("Sampling from outside");
            assert_eq!(is_sampled, !wanted.starts_with("The recorder service has"), "{said}");
        }
    });
}
