//! The mailbox of a job under attack: by other users, by programs that are not of the job, by a flood, with descriptors whose file system is dead, and after the command has ended.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test that cannot be set up fails; it stands for a user"
)]

use crate::fixture;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fixture::fuse::{HangingMount, Server};
use fixture::{has, in_time, skip};
use serde_json::Value;
use tempfile::TempDir;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");
/// Sends descriptors to mailboxes and takes their names, as whoever runs it may.
const ATTACKER: &str = include_str!("run_mailbox/attacker.py");
/// Another user of the machine: nobody.
const OTHER_USER: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Directories of a job: its runtime directory, where its socket is, and one to work in, which everybody may read.
struct Place {
    runtime: TempDir,
    work: TempDir,
}

impl Place {
    fn new() -> Place {
        let place =
            Place { runtime: tempfile::tempdir().unwrap(), work: tempfile::tempdir().unwrap() };
        fs::set_permissions(place.work.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(place.at("attacker.py"), ATTACKER).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.work.path()).env("XDG_RUNTIME_DIR", self.runtime.path());
        // Programs that another user may run, too.
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
    }

    /// Starts `sh -c script` under `unjank run`; the first line that it prints is the name of its mailbox.
    fn start(&self, options: &[&str], script: &str) -> Job {
        let mut command = self.command(UNJANK);
        command.args(["run", "--no-pause"]).args(options).arg("--");
        let script = format!("echo \"$UNJANK_WRITEBACK\"; {script}");
        command.args(["sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut job = Job { child, keeper: 0, output, mailbox: String::new() };
        job.mailbox = job.line();
        job.keeper = keeper_of(job.child.id());
        assert!(!job.mailbox.is_empty(), "the job has no mailbox");
        job
    }

    /// Starts the attacker; what it prints is read line by line.
    fn attack(&self, user: &[&str], arguments: &[&str]) -> Attacker {
        let words = [user, &["python3", "attacker.py"], arguments].concat();
        let mut command = self.command(words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut attacker = Attacker { child, output };
        assert_eq!(attacker.line(), "ready", "the attacker runs");
        attacker
    }
}

struct Job {
    child: Child,
    keeper: u32,
    output: BufReader<std::process::ChildStdout>,
    mailbox: String,
}

impl Job {
    fn line(&mut self) -> String {
        read_line(&mut self.output)
    }

    fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // After a failure it may be held by a keeper that is stopped.
        if std::thread::panicking() {
            let _ = sys::supervise::send(self.keeper, 9);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Attacker {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Attacker {
    fn line(&mut self) -> String {
        read_line(&mut self.output)
    }

    /// Has it stop, and returns the last line that it prints: what it got.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let last = self.line();
        self.child.wait().unwrap();
        last
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Waits until `holds`, for a minute at most, and says what for if that is too long.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited for a minute until {what}");
        fixture::pause();
    }
}

/// The keeper is the child of the supervisor that leads a session of its own.
fn keeper_of(supervisor: u32) -> u32 {
    let text =
        fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
    let mut children = text.split_whitespace().map(|pid| pid.parse::<u32>().unwrap());
    let leads = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let session = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(3));
        session == Some(&pid.to_string())
    };
    children.find(leads).unwrap()
}

/// Other users are tried by root, who can become one.
fn can_attack() -> bool {
    if !rustix::process::geteuid().is_root() {
        skip("only root can become another user");
        return false;
    }
    has(&["python3", "setpriv"])
}

#[test]
fn no_other_user_gets_a_file_from_what_is_left_of_a_job() {
    if !can_attack() {
        return;
    }
    in_time(|| {
        let place = Place::new();
        // The command ends; what it has started goes on, and writes what is its user's alone.
        let mut job = place.start(
            &[],
            "umask 077; mkfifo go done; \
             (read line < go; for i in 1 2 3 4 5 6 7 8; do head -c 30 /dev/zero > zeros; \
              cp /etc/hostname private$i; echo secret > text; cp text copy$i; done; echo > done) \
             </dev/null >/dev/null 2>&1 & read line; exit 0",
        );
        let mut thief = place.attack(&OTHER_USER, &["take", &job.mailbox]);
        job.say("end");
        job.child.wait().unwrap();
        // It has tried again with the name that is free now.
        writeln!(thief.child.stdin.as_mut().unwrap(), "again").unwrap();
        assert_eq!(thief.line(), "tried");
        fs::write(place.at("go"), "\n").unwrap();
        fs::read(place.at("done")).unwrap();
        assert!(place.at("copy8").exists());
        assert_eq!(thief.end(), "got 0");
    });
}

#[test]
fn a_program_gives_no_file_to_a_mailbox_of_another_user() {
    if !can_attack() {
        return;
    }
    in_time(|| {
        let place = Place::new();
        let job = place.start(&[], "grep -m1 unjank.writeback /proc/self/maps; read line");
        let mut job = job;
        let library = job.line();
        let library = &library[library.find('/').unwrap()..];
        let open = place.at("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let socket = open.join("socket");
        let socket = socket.to_str().unwrap();
        let thief = place.attack(&OTHER_USER, &["take", socket]);
        for number in 0..4 {
            let mut copy = place.command("cp");
            copy.arg("/etc/hostname").arg(format!("copy{number}"));
            copy.env("LD_PRELOAD", library).env("UNJANK_WRITEBACK", socket);
            assert!(copy.status().unwrap().success());
        }
        assert_eq!(thief.end(), "got 0");
    });
}

/// Copies a small file thirty times and says how many milliseconds that waited.
/// The time on a processor or without one does not count: a busy machine adds nothing.
const THIRTY: &str = "\
python3 -c \"
import time
def waited():
    with open('/proc/thread-self/schedstat') as f: ran, ready = map(int, f.read().split()[:2])
    return time.monotonic_ns() - ran - ready
start = waited()
for i in range(30):
    with open('small%d' % i, 'w') as f: f.write('x' * 500)
print(max(0, waited() - start) // 1000000)
\"";

#[test]
fn another_user_can_send_nothing_to_a_job() {
    if !can_attack() {
        return;
    }
    in_time(|| {
        let place = Place::new();
        let mut job = place.start(&[], &format!("read line; {THIRTY}"));
        let flood = place.attack(&OTHER_USER, &["flood", &job.mailbox, "/etc/hostname"]);
        job.say("go");
        let waited: u64 = job.line().parse().unwrap();
        assert_eq!(flood.end(), "sent 0", "and thirty small files waited {waited} ms");
    });
}

#[test]
fn a_flood_from_outside_of_the_job_or_from_inside_does_not_delay_its_other_programs() {
    if !has(&["python3"]) {
        return;
    }
    in_time(|| {
        for inside in [false, true] {
            let place = Place::new();
            let flood = "python3 attacker.py flood \"$UNJANK_WRITEBACK\" attacker.py </dev/tty";
            // The attacker ends when its standard input does, which the job has from here.
            let flood = flood.replace("</dev/tty", "<&3 >flooding");
            let start = if inside { format!("exec 3<hold; {flood} & ") } else { String::new() };
            let hold = place.at("hold");
            assert!(Command::new("mkfifo").arg(&hold).status().unwrap().success());
            let script = format!("{start} read line; {THIRTY}");
            let opened = inside.then(|| {
                let hold = hold.clone();
                std::thread::spawn(move || fs::OpenOptions::new().write(true).open(hold).unwrap())
            });
            let mut job = place.start(&[], &script);
            let mailbox = job.mailbox.clone();
            let outside = (!inside).then(|| place.attack(&[], &["flood", &mailbox, "attacker.py"]));
            let opened = opened.map(|thread| thread.join().unwrap());
            if inside {
                wait_until("the flood runs", || {
                    fs::read_to_string(place.at("flooding"))
                        .is_ok_and(|text| text.contains("ready"))
                });
            }
            let keeper = job.keeper;
            job.say("go");
            let waited: u64 = job.line().parse().unwrap();
            // 3,150 ms were seen where everybody could fill the mailbox.
            assert!(waited < 1_500, "thirty small files waited {waited} ms (inside: {inside})");
            let open = fs::read_dir(format!("/proc/{keeper}/fd")).map_or(0, Iterator::count);
            assert!(open < 1_100, "the keeper has {open} descriptors open");
            if let Some(flood) = outside {
                let sent = flood.end();
                assert!(sent.starts_with("sent"), "{sent}");
            }
            drop(opened);
        }
    });
}

#[test]
fn descriptors_on_a_dead_file_system_hang_nobody() {
    if !has(&["python3"]) {
        return;
    }
    in_time(|| {
        for server in [Server::NeverAnswers, Server::DiesWhenTold] {
            let Some(mount) = HangingMount::make(server) else { return };
            let place = Place::new();
            let report = place.at("report.json");
            let made = Command::new("mkfifo").arg(place.at("go")).status();
            assert!(made.unwrap().success());
            // What has it open ends with its file system only; the command goes on.
            let script = format!(
                "python3 attacker.py send \"$UNJANK_WRITEBACK\" {} go & read line; {THIRTY}",
                mount.file().display()
            );
            let mut job = place.start(&["--report", report.to_str().unwrap()], &script);
            assert_eq!(job.line(), "open");
            mount.die();
            fs::write(place.at("go"), "\n").unwrap();
            assert_eq!(job.line(), "sent");
            let keeper = job.keeper;
            job.say("go");
            let waited: u64 = job.line().parse().unwrap();
            assert!(waited < 1_500, "thirty small files waited {waited} ms beside {server:?}");
            // It answers, counts, and ends with the job.
            assert!(job.child.wait().unwrap().success());
            let told: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
            let handed = told["watched"]["handed-over"].as_u64();
            assert_eq!(handed, Some(30), "{server:?}: {told}");
            drop(mount);
            wait_until("the keeper has ended", || !Path::new(&format!("/proc/{keeper}")).exists());
        }
    });
}

#[test]
fn a_program_that_is_watched_from_outside_on_a_dead_file_system_hangs_nobody() {
    if !has(&["python3"]) {
        return;
    }
    in_time(|| {
        let Some(mount) = HangingMount::make(Server::DiesWhenTold) else { return };
        let place = Place::new();
        let report = place.at("report.json");
        // It works there, has a file there open for writing, and is not preloaded into.
        let script = format!(
            "python3 -c \"
import os, sys
file = os.open('{file}', os.O_RDWR)
os.chdir('{directory}')
print('open', flush=True)
sys.stdin.readline()
with open('{work}/closed', 'w') as other: other.write('x' * 5000)
print('written', flush=True)
sys.stdin.readline()
os._exit(0)
\"",
            file = mount.file().display(),
            directory = mount.path().display(),
            work = place.work.path().display(),
        );
        let options = ["--no-preload", "--report", report.to_str().unwrap()];
        let mut command = place.command(UNJANK);
        command.args(["run", "--no-pause"]).args(options).args(["--", "sh", "-c", &script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut job = Job { child, keeper: 0, output, mailbox: String::new() };
        assert_eq!(job.line(), "open");
        job.keeper = keeper_of(job.child.id());
        mount.die();
        let keeper = job.keeper;
        job.say("go");
        assert_eq!(job.line(), "written");
        let status = place.command(UNJANK).args(["jobs", "--json"]).output().unwrap();
        assert!(status.status.success());
        let told: Value = serde_json::from_slice(&status.stdout).unwrap();
        assert_eq!(told["jobs"][0]["job"], job.child.id(), "the keeper answers");
        wait_until("the file is found", || {
            let status = place.command(UNJANK).args(["jobs", "--json"]).output().unwrap();
            let told: Value = serde_json::from_slice(&status.stdout).unwrap();
            told["jobs"][0]["watched"]["found"].as_u64().is_some_and(|found| found > 0)
        });
        drop(mount);
        job.say("end");
        job.child.wait().unwrap();
        wait_until("the keeper has ended", || !Path::new(&format!("/proc/{keeper}")).exists());
    });
}

#[test]
fn what_is_left_of_a_job_is_served_until_its_last_process_has_ended() {
    if !has(&["python3"]) {
        return;
    }
    in_time(|| {
        let place = Place::new();
        let mut job = place.start(&[], "mkfifo go; (read line < go) >/dev/null 2>&1 & read line");
        let keeper = job.keeper;
        let own_cgroup = fs::read_to_string(format!("/proc/{}/cgroup", job.child.id())).unwrap();
        job.say("end");
        job.child.wait().unwrap();
        let mailbox = PathBuf::from(&job.mailbox);
        let is_a_path = mailbox.is_absolute();
        if own_cgroup.contains("0::") && Path::new(&format!("/proc/{keeper}")).exists() {
            assert!(is_a_path, "the mailbox has a name that anybody can take: {mailbox:?}");
            assert!(mailbox.exists(), "the mailbox is gone before the job");
        }
        fs::write(place.at("go"), "\n").unwrap();
        wait_until("the keeper has ended", || !Path::new(&format!("/proc/{keeper}")).exists());
        assert!(is_a_path && !mailbox.exists(), "the mailbox is left: {mailbox:?}");
        let left: Vec<_> = fs::read_dir(mailbox.parent().unwrap()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn only_the_user_reaches_the_directory_of_the_mailbox_whatever_the_umask_is() {
    in_time(|| {
        let place = Place::new();
        let mut command = place.command("sh");
        let script = "umask 000; exec \"$@\"";
        command.args(["-c", script, "sh", UNJANK, "run", "--", "sh", "-c"]);
        command.arg("stat -c '%a %n' \"$UNJANK_WRITEBACK\" \"$(dirname \"$UNJANK_WRITEBACK\")\"/*.sock; stat -c %a \"$(dirname \"$UNJANK_WRITEBACK\")\"");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let modes: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(
            modes,
            ["600", "600", "700"],
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    });
}

#[test]
fn a_stopped_keeper_delays_a_job_little_and_holds_it_no_longer() {
    if !has(&["python3"]) {
        return;
    }
    in_time(|| {
        let place = Place::new();
        let mut job = place.start(&[], &format!("read line; {THIRTY}; {THIRTY}"));
        let keeper = job.keeper;
        let number = job.child.id().to_string();
        let pause = place.command(UNJANK).args(["jobs", "pause", &number]).status().unwrap();
        assert!(pause.success());
        sys::supervise::send(keeper, 19).unwrap();
        // It stood still while its keeper did; now nobody else would let it go on.
        job.say("go");
        let first: u64 = job.line().parse().unwrap();
        let second: u64 = job.line().parse().unwrap();
        sys::supervise::send(keeper, 18).unwrap();
        assert!(job.child.wait().unwrap().success());
        assert!(first + second < 5_000, "sixty small files waited {first} + {second} ms");
    });
}
