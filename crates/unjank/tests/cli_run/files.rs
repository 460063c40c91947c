//! Files that a job has written are found, whatever kind of program wrote them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::fixture::{self, has, in_time};
use super::{Place, UNJANK};

/// A program without a loader that writes many files into directories that it makes.
const WRITER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
static char bytes[65536];
int main(void) {
    char name[64];
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "d%d", i % 20);
        mkdir(name, 0755);
        snprintf(name, sizeof name, "d%d/f%d", i % 20, i);
        int fd = open(name, O_CREAT | O_WRONLY, 0644);
        if (fd < 0 || write(fd, bytes, sizeof bytes) != sizeof bytes) return 1;
        close(fd);
    }
    return 0;
}
"#;

#[test]
fn files_are_handed_over_and_locks_are_not() {
    if !has(&["python3"]) {
        return;
    }
    in_time(|| {
        let place = Place::new();
        let work = tempfile::tempdir().unwrap();
        let report = work.path().join("report.json");
        let script = "\
import fcntl, os
for i in range(100):
    with open(f'file{i}', 'w') as f: f.write('x' * 5000)
f = open('lock', 'w'); f.write('x'); f.flush(); fcntl.flock(f, fcntl.LOCK_EX); f.close()
g = open('lock'); fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)
big = os.open('big', os.O_CREAT | os.O_WRONLY)
for i in range(20): os.write(big, b'y' * (1 << 20))
os.close(big)
print(sorted(os.listdir('/proc/self/fd')), g.fileno())
";
        let words = [
            "run",
            "--no-pause",
            "--report",
            report.to_str().unwrap(),
            "--",
            "python3",
            "-c",
            script,
        ];
        let output = place.unjank(&words).current_dir(work.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let other = tempfile::tempdir().unwrap();
        let mut plain = Command::new("python3");
        let plain = plain.args(["-c", script]).current_dir(other.path()).output().unwrap();
        assert_eq!(output.stdout, plain.stdout, "the same descriptors are open");
        let told: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
        assert_eq!(told["preload"], true);
        // The mailbox holds ten at a time: what does not fit is started by the program itself.
        assert!(told["watched"]["handed-over"].as_u64().unwrap() >= 10, "{told}");
        assert_eq!(told["exit-status"], 0);
    });
}

#[test]
fn a_library_that_is_missing_is_told_once_with_what_to_do_and_the_command_runs() {
    in_time(|| {
        let place = Place::new();
        // A program that stands alone, as one that somebody has copied to another machine.
        let alone = tempfile::tempdir_in(Path::new(UNJANK).parent().unwrap()).unwrap();
        let program = alone.path().join("unjank");
        fs::hard_link(UNJANK, &program).unwrap();
        let run = |options: &[&str]| {
            let mut command = Command::new(&program);
            command.env("XDG_RUNTIME_DIR", place.runtime.path()).arg("run").args(options);
            let output = command.args(["--", "sh", "-c", "echo ran; exit 7"]).output().unwrap();
            assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"ran\n"[..], Some(7)));
            String::from_utf8(output.stderr).unwrap()
        };
        let said = run(&[]);
        let warning = "unjank: warning: cannot find libunjank-writeback.so\n";
        assert_eq!(said.matches(warning).count(), 1, "{said}");
        assert_eq!(said.matches("unjank:").count(), 1, "{said}");
        assert!(said.contains("hint: install it beside"), "{said}");
        assert_eq!(run(&["--no-preload"]), "");
    });
}

#[test]
fn files_of_a_static_and_of_a_privileged_program_are_found_from_outside() {
    if !has(&["gcc", "setpriv"]) {
        return;
    }
    in_time(|| {
        let place = Place::new();
        let work = tempfile::tempdir().unwrap();
        // Files in memory: how fast a disk takes them is not the question.
        let memory =
            tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" });
        let memory = memory.unwrap();
        fs::set_permissions(memory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::set_permissions(work.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let source = work.path().join("writer.c");
        fs::write(&source, WRITER).unwrap();
        let program = work.path().join("writer");
        let built =
            Command::new("gcc").arg("-static").arg("-o").arg(&program).arg(&source).output();
        if !built.as_ref().is_ok_and(|output| output.status.success()) {
            fixture::skip("no static C library");
            return;
        }
        let is_root = rustix::process::geteuid().is_root();
        for kind in ["static", "privileged"] {
            if kind == "privileged" {
                if !is_root {
                    fixture::skip("a program that gains privileges is made by root");
                    continue;
                }
                fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
            }
            let files = memory.path().join(kind);
            fs::create_dir(&files).unwrap();
            fs::set_permissions(&files, fs::Permissions::from_mode(0o777)).unwrap();
            let report = work.path().join(format!("{kind}.json"));
            let mut command = if kind == "privileged" {
                // As somebody who gains them.
                fs::set_permissions(place.runtime.path(), fs::Permissions::from_mode(0o777))
                    .unwrap();
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--clear-groups", UNJANK]);
                command.env("XDG_RUNTIME_DIR", place.runtime.path());
                command
            } else {
                place.unjank(&[])
            };
            command.args(["run", "--no-pause", "--report"]).arg(&report).arg("--").arg(&program);
            let output = command.current_dir(&files).output().unwrap();
            if kind == "privileged" && output.status.code() == Some(126) {
                fixture::skip("another user cannot run what is built here");
                return;
            }
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let told: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
            let started = told["watched"]["started-bytes"].as_u64().unwrap();
            assert!(started >= 180 * 65536, "{kind}: {started} bytes, {told}");
        }
    });
}
