//! `unjank run` beside the plain command: the same output, files and end; and nothing of it left behind, however it ends.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test that cannot be set up fails; it stands for a user"
)]

#[path = "cli_run/attached.rs"]
mod attached;
#[path = "cli_run/files.rs"]
mod files;
#[path = "cli_run/killed.rs"]
mod killed;

use crate::fixture;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use fixture::{has, in_time, setting};
use serde_json::Value;
use tempfile::TempDir;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

/// A runtime directory of its own, in which jobs are reached.
struct Place {
    runtime: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { runtime: tempfile::tempdir().unwrap() }
    }

    fn unjank(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(UNJANK);
        command.args(arguments).env("XDG_RUNTIME_DIR", self.runtime.path());
        command
    }

    /// Starts `sh -c script` under `unjank run`, with pipes.
    fn start(&self, script: &str) -> Child {
        let mut command = self.unjank(&["run", "--", "sh", "-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn jobs(&self, arguments: &[&str]) -> Output {
        self.unjank(&[&["jobs"], arguments].concat()).output().unwrap()
    }

    /// What is said of the job of `supervisor`, as soon as it can be reached and runs.
    fn status(&self, supervisor: &Child) -> Value {
        loop {
            let listed: Value = serde_json::from_slice(&self.jobs(&["--json"]).stdout).unwrap();
            let jobs = listed["jobs"].as_array().unwrap();
            let runs = |job: &&Value| job["job"] == supervisor.id() && job["process"] != 0;
            if let Some(job) = jobs.iter().find(runs) {
                return job.clone();
            }
            fixture::pause();
        }
    }

    /// Fails if a job has left something that can be seen here.
    fn is_clean(&self, supervisor: u32) {
        let door = self.runtime.path().join(format!("unjank/jobs/{supervisor}.sock"));
        let trace = format!("/sys/kernel/tracing/instances/unjank-run-{supervisor}");
        let cgroup = cgroup_of(supervisor);
        // The keeper tidies up after the end was told.
        until(|| !door.exists());
        until(|| !door.with_extension("files").exists());
        until(|| !Path::new(&trace).exists());
        until(|| cgroup.as_ref().is_none_or(|cgroup| !cgroup.exists()));
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        fixture::pause();
    }
}

/// Where the cgroup of a job would be.
fn cgroup_of(supervisor: u32) -> Option<PathBuf> {
    let mounts = sys::mounts::Mounts::read().unwrap();
    let own = jobs::cgroup::Cgroup::of(&mounts, std::process::id())?;
    Some(own.path().join(format!("unjank-run-{supervisor}")))
}

fn state(process: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The keeper is the one of its children that is not the command.
fn keeper_of(supervisor: u32) -> u32 {
    let is_ours = |process: &u32| {
        fs::read_link(format!("/proc/{process}/exe"))
            .is_ok_and(|exe| exe == Path::new(UNJANK).canonicalize().unwrap())
    };
    children(supervisor).into_iter().find(is_ours).unwrap()
}

fn children(process: u32) -> Vec<u32> {
    // Asked of the process alone: one elsewhere that the kernel does not answer for holds up nobody.
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let lists =
        threads.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect()
}

fn read_line(child: &mut Child) -> String {
    let mut line = String::new();
    let mut reader = BufReader::with_capacity(1, child.stdout.as_mut().unwrap());
    reader.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

#[test]
fn a_command_ends_as_it_would_plainly() {
    in_time(|| {
        let place = Place::new();
        let status = |words: &[&str]| {
            // Beside programs that compute, those of the idle class have a processor for 1/300 of the time.
            let mut command = place.unjank(&[&["run", "--class", "low", "--"], words].concat());
            command.stderr(Stdio::null()).status().unwrap()
        };
        for code in [0, 1, 2, 77, 126, 127, 128, 139, 255] {
            assert_eq!(status(&["sh", "-c", &format!("exit {code}")]).code(), Some(code));
        }
        for signal in [1, 2, 6, 9, 10, 11, 13, 14, 15, 34] {
            let ended = status(&["sh", "-c", &format!("kill -{signal} $$")]);
            assert_eq!(ended.signal(), Some(signal), "{ended:?}");
        }
        assert_eq!(status(&["/no/such/program"]).code(), Some(127));
        assert_eq!(status(&["/etc/passwd"]).code(), Some(126));
    });
}

#[test]
fn a_command_runs_in_its_class_and_its_own_cgroup() {
    in_time(|| {
        let place = Place::new();
        let mut child = place
            .start("ionice -p $$; cut -d' ' -f41 /proc/$$/stat; cat /proc/$$/cgroup; read end");
        assert_eq!(read_line(&mut child), "idle");
        assert_eq!(read_line(&mut child), "5", "SCHED_IDLE");
        let cgroup = cgroup_of(child.id());
        if cgroup.as_ref().is_some_and(|cgroup| cgroup.exists()) {
            let listed = fs::read_to_string(cgroup.unwrap().join("cgroup.procs")).unwrap();
            assert!(!listed.is_empty(), "the command is in it");
        }
        drop(child.stdin.take());
        let supervisor = child.id();
        child.wait_with_output().unwrap();
        place.is_clean(supervisor);
        let low = place.unjank(&["run", "--class", "low", "ionice"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&low.stdout).trim(), "best-effort: prio 7");
    });
}

#[test]
fn a_paused_job_stands_still_until_it_is_resumed() {
    in_time(|| {
        let place = Place::new();
        let mut child = place.start("echo ready; read line; echo got $line");
        assert_eq!(read_line(&mut child), "ready");
        let job = child.id().to_string();
        let status = place.status(&child);
        assert_eq!(status["paused"], false);
        assert_eq!(status["command"][0], "sh");
        assert!(place.jobs(&["pause", &job]).status.success());
        let paused = place.status(&child);
        assert_eq!((&paused["paused"], &paused["watched"]["held"]), (&true.into(), &true.into()));
        child.stdin.take().unwrap().write_all(b"it\n").unwrap();
        assert!(child.try_wait().unwrap().is_none());
        assert!(place.jobs(&["resume", &job]).status.success());
        assert_eq!(read_line(&mut child), "got it");
        assert!(child.wait().unwrap().success());
        place.is_clean(job.parse().unwrap());
        assert_eq!(place.jobs(&["pause", &job]).status.code(), Some(1));
        let none = String::from_utf8(place.jobs(&[]).stdout).unwrap();
        assert!(none.starts_with("No jobs."), "{none}");
    });
}

#[test]
fn the_socket_of_a_job_that_is_about_to_listen_stays() {
    let place = Place::new();
    let folder = place.runtime.path().join("unjank/jobs");
    place.jobs(&[]);
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    // What nobody listens on refuses in the same way before and afterwards.
    let paths = [std::process::id(), ended.id()].map(|job| folder.join(format!("{job}.sock")));
    for path in &paths {
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    }
    assert!(place.jobs(&[]).status.success());
    assert_eq!(paths.map(|path| path.exists()), [true, false]);
}

#[test]
fn a_signal_reaches_a_paused_job() {
    in_time(|| {
        let place = Place::new();
        let mut child = place.start("echo ready; exec sleep 1000");
        read_line(&mut child);
        place.status(&child);
        assert!(place.jobs(&["pause", &child.id().to_string()]).status.success());
        sys::supervise::send(child.id(), 15).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        place.is_clean(child.id());
    });
}

/// What a program left: its output, its end, and all files with what is in them.
#[derive(Debug, PartialEq)]
struct Left {
    output: String,
    errors: String,
    end: String,
    files: BTreeMap<PathBuf, (u32, Vec<u8>)>,
}

fn left(mut command: Command, directory: &Path) -> Left {
    let output = command.current_dir(directory).stdin(Stdio::null()).output().unwrap();
    let mut files = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(inside) = directories.pop() {
        for entry in fs::read_dir(inside).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let contents = if metadata.is_dir() {
                directories.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if metadata.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            let name = path.strip_prefix(directory).unwrap().to_owned();
            files.insert(name, (metadata.mode(), contents));
        }
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Left {
        output: text(&output.stdout),
        errors: text(&output.stderr),
        end: format!("{}", output.status),
        files,
    }
}

/// Programs of many kinds; `N` stands for a number that makes each one another.
const PROGRAMS: [&str; 20] = [
    "seq N | sort -r | head -5; exit $((N % 256))",
    "mkdir a; cd a; for i in 1 2 3; do echo $i N > f$i; done; tar cf ../a.tar --mtime=@0 --sort=name --owner=0 --group=0 .; cd ..; tar tf a.tar",
    "printf 'int main(void){return N%%200;}' > m.c; gcc -o m m.c; ./m; echo $?; rm m",
    "git init -q g; cd g; git config user.name n; git config user.email e; echo N > f; git add f; GIT_AUTHOR_DATE='1 +0000' GIT_COMMITTER_DATE='1 +0000' git commit -qm N; git log --format=%H; cd ..; rm -r g",
    "python3 -c 'import subprocess,threading; r=[]; ts=[threading.Thread(target=lambda i=i: r.append(subprocess.run([\"echo\",str(i*N)],capture_output=True).stdout)) for i in range(8)]; [t.start() for t in ts]; [t.join() for t in ts]; print(sorted(r))'",
    "python3 -c 'import os; fs=[open(f\"t{i}\",\"w\") for i in range(N%30+2)]; [f.write(\"z\"*9000) for f in fs]; [f.close() for f in fs]; print(os.dup(1))'",
    "(sleep 0; echo first) & wait; echo second; kill -$((N % 15 + 1)) $$",
    "dd if=/dev/zero of=big bs=64k count=$((N % 90 + 70)) status=none; sha256sum big; cp big copy; cmp big copy; mv copy moved; ln moved linked; ln -s moved soft",
    "umask 077; echo N > private; chmod 640 private; mkfifo pipe; (echo through > pipe) & cat pipe; wait",
    "exec 3> kept; (echo child >&3); echo parent >&3; exec 3>&-; cat kept; exit 3",
    "perl -e 'open F, \">f\"; flock F, 2; print F N; close F; open G, \"f\"; flock(G, 6) or die; print <G>; if (!fork) { exec \"true\" } wait; exit N % 256'",
    "echo 'all: a b\na:\n\techo N > a\nb: a\n\tcp a b' > Makefile; make -s -j4; cat b",
    "trap 'echo caught; exit 9' USR1; kill -USR1 $$; echo never",
    "xargs -n1 -P4 sh -c 'echo $0 > x$0' < /dev/null; for i in 1 2 3 4; do echo $i; done | xargs -n1 -P4 sh -c 'echo N > x$0'; ls",
    "cat /no/such/file; echo to-stderr-N >&2; false",
    "gzip -c /etc/passwd | gunzip | cmp - /etc/passwd; bash -c 'set -o pipefail; false | true'; echo $?",
    "python3 -c 'import ctypes,os; print(ctypes.CDLL(None, use_errno=True).close(999), ctypes.get_errno()); os.close(2); os.abort() if N % 2 else None'",
    "sqlite3 d.db 'create table t(a); insert into t values(N); select * from t' && sqlite3 d.db .dump",
    "g++ -x c++ - -o p -pthread <<'END'\n#include <thread>\n#include <fstream>\nint main(){std::thread t([]{std::ofstream(\"o\")<<N;});t.join();return 5;}\nEND\n./p; echo $?; rm p",
    "dpkg-query -W -f '${Package}\\n' dbus coreutils; find . -name '*' -type f | wc -l; truncate -s N sparse; stat -c %s sparse",
];

#[test]
fn programs_of_many_kinds_behave_the_same() {
    if !has(&["gcc", "g++", "git", "python3", "perl", "make", "sqlite3"]) {
        return;
    }
    let place = Place::new();
    for run in 0..setting("PROGRAMS").unwrap_or(40) {
        let template = PROGRAMS[usize::try_from(run).unwrap() % PROGRAMS.len()];
        let script = template.replace('N', &(run * 37 + 11).to_string());
        let (plain, treated) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let quiet = |command: &mut Command| {
            command.env("HOME", "/nonexistent").env("LC_ALL", "C").env_remove("LD_PRELOAD");
        };
        let mut shell = Command::new("sh");
        quiet(shell.args(["-c", &script]));
        let expected = left(shell, plain.path());
        let mut run = place.unjank(&["run", "--", "sh", "-c", &script]);
        quiet(&mut run);
        let mut seen = left(run, treated.path());
        // The process that a shell names in an error is another one.
        let same = |left: &mut Left| left.errors.retain(|letter| !letter.is_ascii_digit());
        let mut expected = expected;
        same(&mut expected);
        same(&mut seen);
        assert_eq!(seen, expected, "{script}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_told_and_the_command_runs() {
    let place = Place::new();
    let output = place
        .unjank(&["run", "--report", "/no/such/folder/r", "--", "echo", "done"])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"done\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/folder/r"));
    // Without permissions of any kind, and without a runtime directory.
    let work = tempfile::tempdir().unwrap();
    fs::set_permissions(work.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut plain = Command::new(UNJANK);
    plain
        .args(["run", "--report", "-", "--", "sh", "-c", "exit 4"])
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("HOME");
    let output = plain.current_dir(work.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("unjank: sh in "), "{output:?}");
}

#[test]
fn a_report_on_a_full_disk_is_told_and_the_end_stands() {
    let place = Place::new();
    let run = ["run", "--report", "/dev/full", "--", "sh", "-c", "exit 3"];
    let output = place.unjank(&run).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("cannot write the report /dev/full"), "{errors}");
}

#[test]
fn a_report_is_for_its_user_alone() {
    let place = Place::new();
    let work = tempfile::tempdir().unwrap();
    for name in ["report", "report.json"] {
        let report = work.path().join(name);
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec \"$@\"", "sh", UNJANK, "run", "--report"]);
        command.arg(&report).args(["--", "true"]).env("XDG_RUNTIME_DIR", place.runtime.path());
        assert!(command.status().unwrap().success());
        let mode = fs::metadata(&report).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
        // One that is there is its owner's to open.
        fs::set_permissions(&report, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(command.status().unwrap().success());
        let mode = fs::metadata(&report).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "{name}");
    }
}

#[test]
fn a_command_runs_where_threads_and_processes_are_refused() {
    if !has(&["prlimit", "setpriv"]) {
        return;
    }
    in_time(|| {
        let place = Place::new();
        // Each thread takes so much of what the process may address that only some fit in.
        for threads in 0..6_u64 {
            let limit = format!("--as={}", (threads << 30) + (1 << 29));
            let mut command = Command::new("prlimit");
            command.args([&limit, UNJANK, "run", "--", "sh", "-c", "echo runs; exit 3"]);
            command.env("RUST_MIN_STACK", (1 << 30).to_string());
            command.env("XDG_RUNTIME_DIR", place.runtime.path());
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(said, "", "{threads} threads");
            assert_eq!((&*output.stdout, output.status.code()), (&b"runs\n"[..], Some(3)));
        }
        if !rustix::process::geteuid().is_root() {
            fixture::skip("limits of another user are tried by root");
            return;
        }
        // Of a user who has no process yet, in a place that this user reaches.
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fixture::copy_program(UNJANK, &home.path().join("unjank"));
        let user = 600_000 + std::process::id() % 100_000;
        for processes in [1, 2, 3, 4, 6, 9] {
            let mut command = Command::new("setpriv");
            command.args([&format!("--reuid={user}"), "--clear-groups", "prlimit"]);
            command.arg(format!("--nproc={processes}")).arg(home.path().join("unjank"));
            command.args(["run", "--", "sh", "-c", "echo runs; exit 3"]).current_dir(home.path());
            let output = command.env("HOME", home.path()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!said.contains("panicked"), "{processes} processes: {said}");
            match output.status.code() {
                Some(3) => assert_eq!(output.stdout, b"runs\n"),
                code => {
                    assert_eq!(code, Some(126), "{processes} processes: {said}");
                    assert!(said.contains("limit on processes"), "{said}");
                }
            }
            // What is left of it would count, too.
            until(|| !has_processes(user));
        }
    });
}

/// Says whether a user has processes.
fn has_processes(user: u32) -> bool {
    let mut entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let of_user = |entry: fs::DirEntry| entry.metadata().is_ok_and(|about| about.uid() == user);
    entries.any(of_user)
}

#[test]
fn a_bus_that_never_answers_holds_a_command_up_for_a_while_only() {
    let place = Place::new();
    fs::create_dir(place.runtime.path().join("systemd")).unwrap();
    let bus = place.runtime.path().join("bus");
    // It accepts whoever comes, and says nothing.
    let listener = std::os::unix::net::UnixListener::bind(&bus).unwrap();
    in_time(move || {
        let mut command = place.unjank(&["run", "--", "sh", "-c", "echo here; exit 5"]);
        let output = command.env_remove("DBUS_SESSION_BUS_ADDRESS").output().unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(5), &b"here\n"[..]));
        drop(listener);
    });
}

#[test]
fn nobody_stands_in_the_commands_directory_when_it_has_ended() {
    for _ in 0..12 {
        let place = Place::new();
        let work = tempfile::tempdir().unwrap();
        let mut command = place.unjank(&["run", "--", "sh", "-c", "echo x > a; echo y > b"]);
        assert!(command.current_dir(work.path()).status().unwrap().success());
        let mut used = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let open = fs::read_dir(entry.path().join("fd")).into_iter().flatten();
            let links = open.filter_map(|open| Some(open.ok()?.path()));
            for link in links.chain([entry.path().join("cwd")]) {
                used.extend(fs::read_link(link).ok().filter(|to| to.starts_with(work.path())));
            }
        }
        assert!(used.is_empty(), "{used:?}");
    }
}
