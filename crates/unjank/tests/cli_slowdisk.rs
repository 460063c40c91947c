//! `unjank slowdisk`: a disk that other programs see and that takes its time, and nothing of it left, however it ends.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test that cannot be set up fails; it stands for a user"
)]

use crate::fixture;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fixture::{in_time, skip};
use serde_json::Value;
use tempfile::TempDir;

fn unjank(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_unjank")).args(arguments).output().unwrap()
}

fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        fixture::pause();
    }
}

/// A mounted disk.
struct Disk {
    point: TempDir,
}

impl Disk {
    /// Mounts one, where that is possible.
    fn mount(options: &[&str]) -> Option<Disk> {
        Disk::mount_under_umask("022", options)
    }

    fn mount_under_umask(umask: &str, options: &[&str]) -> Option<Disk> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            skip("mounting a slow disk needs root and /dev/fuse");
            return None;
        }
        let point = tempfile::tempdir().unwrap();
        let at = point.path().to_str().unwrap();
        let words = [&["slowdisk", "mount", "--size", "64M"], options, &[at]].concat();
        let mut sh = Command::new("sh");
        sh.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_unjank")]);
        let output = sh.args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Disk { point })
    }

    fn at(&self) -> &str {
        self.point.path().to_str().unwrap()
    }

    fn status(&self) -> Value {
        let output = unjank(&["slowdisk", "status", self.at(), "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        listed["disks"][0].clone()
    }

    /// Says whether it is mounted, as another program sees it.
    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/1/mountinfo");
        let mounts = mounts.or_else(|_| fs::read_to_string("/proc/self/mountinfo")).unwrap();
        mounts.contains(self.at())
    }

    /// Waits until nothing of it is left.
    fn is_gone(&self, device: &str) {
        until(|| !self.is_mounted());
        let backing = PathBuf::from(format!("/sys/block/{device}/loop/backing_file"));
        // Somebody else's disk may be on it by now.
        let before = fs::read_to_string(&backing).unwrap_or_default();
        until(|| {
            let now = fs::read_to_string(&backing).unwrap_or_default();
            now.is_empty() || now != before || !now.contains("unjank-slowdisk") || served(device)
        });
        until(|| {
            !Path::new(&format!("/run/unjank/slowdisk/{device}.sock")).exists() || served(device)
        });
    }
}

/// Says whether somebody serves a disk on this loop device: one of another test.
fn served(device: &str) -> bool {
    let listed = unjank(&["slowdisk", "status", "--json"]);
    // Another test's disk that goes away meanwhile cannot be asked; then the next look says it.
    let Ok(listed) = serde_json::from_slice::<Value>(&listed.stdout) else { return false };
    listed["disks"].as_array().unwrap().iter().any(|disk| disk["device"] == device)
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = unjank(&["slowdisk", "umount", self.at()]);
            let _ = Command::new("umount").arg("-l").arg(self.at()).output();
        }
    }
}

/// Writes and syncs a file of this many bytes and returns how long it took.
fn write(path: &Path, bytes: usize) -> Duration {
    let start = Instant::now();
    let mut file = fs::File::create(path).unwrap();
    file.write_all(&vec![7; bytes]).unwrap();
    file.sync_all().unwrap();
    start.elapsed()
}

#[test]
fn nobody_gains_privileges_by_a_disk_or_reaches_its_server() {
    if !fixture::has(&["setpriv", "mknod", "python3"]) {
        return;
    }
    in_time(|| {
        // A folder that somebody has opened is closed again.
        let _ = fs::create_dir_all("/run/unjank/slowdisk");
        let Some(disk) = Disk::mount_under_umask("000", &[]) else { return };
        let at = disk.point.path();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = mounts.lines().find(|line| line.contains(disk.at())).unwrap();
        let options = line.split(' ').nth(5).unwrap();
        assert!(options.contains("nosuid") && options.contains("nodev"), "{line}");
        // What would run as root or reach a device does not.
        let other = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(disk.point.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fixture::copy_program("/usr/bin/id", &at.join("id"));
        fs::set_permissions(at.join("id"), fs::Permissions::from_mode(0o4755)).unwrap();
        let id = Command::new("setpriv").args(other).arg(at.join("id")).arg("-u").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&id.stdout).trim(), "65534");
        let null = at.join("null");
        let mut mknod = Command::new("mknod");
        mknod.args(["-m", "666"]).arg(&null).args(["c", "1", "3"]);
        assert!(mknod.status().unwrap().success());
        let refused = fs::File::open(&null).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
        // Nor does another user reach the server, who could take the disk away.
        let device = disk.status()["device"].as_str().unwrap().to_owned();
        let socket = format!("/run/unjank/slowdisk/{device}.sock");
        let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("/run/unjank/slowdisk"), mode(&socket)), (0o700, 0o600));
        let connect = "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(sys.argv[1])";
        let mut python = Command::new("setpriv");
        python.args(other).args(["/usr/bin/python3", "-c", connect, &socket]);
        let output = python.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("PermissionError"), "{said}");
    });
}

#[test]
fn other_programs_see_a_disk_that_takes_its_time_and_can_become_another() {
    in_time(|| {
        let Some(disk) = Disk::mount(&["--model", "sd", "--scheduler", "mq-deadline"]) else {
            return;
        };
        let at = disk.point.path();
        // 3 MB at 12 MB a second.
        assert!(write(&at.join("slow"), 3_000_000) > Duration::from_millis(250));
        let status = disk.status();
        assert_eq!((&status["model"], &status["delays"]), (&"sd".into(), &"on".into()));
        assert_eq!(status["queue"]["scheduler"], "mq-deadline");
        let written = status["traffic"]["written-bytes"].as_u64().unwrap();
        assert!(written >= 3_000_000, "{status}");
        assert!(status["traffic"]["busy-us"].as_u64().unwrap() > 250_000);
        // A kind of a person's own, made from one that is there.
        let own = tempfile::NamedTempFile::new().unwrap();
        let text = unjank(&["slowdisk", "profile", "ssd"]).stdout;
        let text = String::from_utf8(text).unwrap().replace("flush-us=1000", "flush-us=700000");
        fs::write(own.path(), text).unwrap();
        let file = own.path().to_str().unwrap();
        let changed = unjank(&["slowdisk", "change", disk.at(), "--profile", file]);
        assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
        assert!(write(&at.join("flushed"), 10) >= Duration::from_millis(700));
        let shown = String::from_utf8(unjank(&["slowdisk", "profile", disk.at()]).stdout).unwrap();
        assert!(shown.contains("flush-us=700000"), "{shown}");
        let faster = unjank(&["slowdisk", "change", disk.at(), "--delays", "off"]);
        assert!(String::from_utf8(faster.stdout).unwrap().contains("no delays"));
        // What is there already and what changes nothing is told.
        let again = unjank(&["slowdisk", "mount", disk.at()]);
        assert_eq!(again.status.code(), Some(2));
        assert!(
            String::from_utf8_lossy(&again.stderr).contains("a slow disk is already mounted there"),
            "{again:?}"
        );
        let nothing = unjank(&["slowdisk", "change", disk.at()]);
        assert_eq!(nothing.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&nothing.stderr).contains("--delays"), "{nothing:?}");
        // It is not taken away from under somebody.
        let device = status["device"].as_str().unwrap().to_owned();
        let open = fs::File::open(at.join("slow")).unwrap();
        let refused = unjank(&["slowdisk", "umount", disk.at()]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("busy"), "{refused:?}");
        drop(open);
        // A child that another test has just started has the file, too, until it runs its program.
        let unmounted = loop {
            let output = unjank(&["slowdisk", "umount", disk.at()]);
            if !String::from_utf8_lossy(&output.stderr).contains("busy") {
                break output;
            }
        };
        assert!(unmounted.status.success(), "{unmounted:?}");
        disk.is_gone(&device);
        assert_eq!(unjank(&["slowdisk", "umount", disk.at()]).status.code(), Some(1));
    });
}

#[test]
fn whoever_is_killed_nothing_is_left() {
    // The server; the server while it is used; the guard, then the server; both at once; umount(8).
    for kill in 0..5 {
        in_time(move || {
            let Some(disk) = Disk::mount(&["--model", "ssd"]) else { return };
            let status = disk.status();
            let device = status["device"].as_str().unwrap().to_owned();
            let server = u32::try_from(status["process"].as_u64().unwrap()).unwrap();
            let open = fs::File::create(disk.point.path().join("used")).unwrap();
            let guards = || children(server);
            match kill {
                0 => {
                    drop(open);
                    sys::supervise::send(server, 9).unwrap();
                }
                1 => {
                    sys::supervise::send(server, 9).unwrap();
                    until(|| !disk.is_mounted());
                    drop(open);
                }
                2 => {
                    drop(open);
                    let first = guards();
                    assert_eq!(first.len(), 1);
                    sys::supervise::send(first[0], 9).unwrap();
                    // Another one takes its place.
                    until(|| guards().iter().any(|guard| !first.contains(guard)));
                    sys::supervise::send(server, 9).unwrap();
                }
                3 => {
                    drop(open);
                    for guard in guards() {
                        sys::supervise::send(guard, 9).unwrap();
                    }
                    sys::supervise::send(server, 9).unwrap();
                    until(|| !Path::new(&format!("/proc/{server}/fd/0")).exists());
                    // Whoever looks cleans up.
                    until(|| {
                        assert!(unjank(&["slowdisk", "status"]).status.success());
                        !disk.is_mounted()
                    });
                }
                _ => {
                    drop(open);
                    assert!(Command::new("umount").arg(disk.at()).status().unwrap().success());
                }
            }
            disk.is_gone(&device);
            until(|| !Path::new(&format!("/proc/{server}/fd/0")).exists());
        });
    }
}

fn children(process: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let mut fields = rest.split(' ');
        let state = fields.next();
        let parent = fields.next().and_then(|parent| parent.parse().ok());
        if parent == Some(process) && state != Some("Z") {
            found.push(pid);
        }
    }
    found
}

#[test]
fn what_cannot_be_mounted_is_told_and_leaves_nothing() {
    in_time(|| {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().to_str().unwrap();
        let said = |words: &[&str]| {
            let output = unjank(&[&["slowdisk"], words].concat());
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        let (code, text) = said(&["mount", "--model", "tape", at]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("emmc, hdd, sd, ssd"), "{text}");
        let (code, text) = said(&["profile", "tape"]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("emmc, hdd, sd, ssd"), "{text}");
        if !rustix::process::geteuid().is_root() {
            skip("mounting needs root");
            return;
        }
        assert!(said(&["mount", "/no/such/folder"]).1.contains("No such file"));
        fs::write(directory.path().join("file"), "").unwrap();
        assert!(said(&["mount", at]).1.contains("not empty"));
        fs::remove_file(directory.path().join("file")).unwrap();
        assert!(said(&["mount", "--size", "1M", at]).1.contains("16 MiB"));
        let (code, text) = said(&["mount", "--scheduler", "no-such", at]);
        assert_eq!(code, Some(2), "{text}");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(at), "it was taken away again");
        let mut wrong = Command::new(env!("CARGO_BIN_EXE_unjank"))
            .args(["slowdisk", "mount", "--profile", "-", at])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wrong.stdin.take().unwrap().write_all(b"[disk]\nflush-us=soon\n").unwrap();
        let output = wrong.wait_with_output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("\"soon\""), "{output:?}");
        // As an ordinary user: told, with what helps.
        let user = Command::new("setpriv")
            .args(["--reuid=65534", "--clear-groups", env!("CARGO_BIN_EXE_unjank")])
            .args(["slowdisk", "mount", at])
            .output()
            .unwrap();
        if user.status.code() == Some(2) {
            assert!(String::from_utf8_lossy(&user.stderr).contains("sudo"), "{user:?}");
        }
    });
}

#[test]
fn threads_that_are_refused_are_an_error_that_leaves_nothing() {
    if !fixture::has(&["prlimit"]) {
        return;
    }
    in_time(|| {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            skip("mounting a slow disk needs root and /dev/fuse");
            return;
        }
        let mut refused = 0;
        // Each thread takes so much of what the process may address that only some fit in.
        for threads in 0..8_u64 {
            let point = tempfile::tempdir().unwrap();
            let at = point.path().to_str().unwrap();
            let limit = format!("--as={}", (threads << 30) + (1 << 29));
            let mut command = Command::new("prlimit");
            command.args([&limit, env!("CARGO_BIN_EXE_unjank"), "slowdisk", "mount"]);
            command.args(["--size", "64M", at]).env("RUST_MIN_STACK", (1 << 30).to_string());
            let output = command.output().unwrap();
            let disk = Disk { point };
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!said.contains("panicked"), "{threads} threads: {said}");
            if output.status.success() {
                disk.status();
            } else {
                assert_eq!(output.status.code(), Some(2), "{threads} threads: {said}");
                assert!(!disk.is_mounted());
                refused += 1;
            }
        }
        assert!(refused > 1, "no thread was refused");
    });
}
