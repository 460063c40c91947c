//! Logs as strace writes them, with every trap that they have.

use super::*;
use report::provenance::Provenance;
use trace::report::schema::{TraceMethod, TraceReport};
use trace::report::{ReportOptions, build};

fn report(log: &str) -> TraceReport {
    let log = read(log.as_bytes(), 100_000).unwrap();
    build(&log.recording, &log.names, Provenance::default(), &ReportOptions::default())
}

const LOG: &str = r#"10 1795271282.000000 execve("/usr/bin/kate", ["kate", "a b"], 0x7ffc /* 20 vars */) = 0 <0.000500>
 > /usr/lib/x86_64-linux-gnu/libc.so.6(execve+0x7) [0xd7]
10 1795271282.001000 openat(AT_FDCWD</home/ana>, "x", O_RDWR|O_CREAT, 0644) = 3</home/ana/x> <0.000020>
10 1795271282.002000 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_THREAD, tls=0x7f) = 11 <0.000100>
11 1795271282.002500 futex(0x7f, FUTEX_WAIT_PRIVATE, 0, NULL <unfinished ...>
10 1795271282.003000 fdatasync(3</home/ana/x> <unfinished ...>
11 1795271282.050000 <... futex resumed>) = 0 <0.047400>
10 1795271282.153000 <... fdatasync resumed>) = 0 <0.150000>
 > /usr/lib/x86_64-linux-gnu/libc.so.6(fdatasync+0x10) [0xfece0]
 > /usr/lib/x86_64-linux-gnu/libKF5ConfigCore.so.5(KConfig::sync()+0x33) [0x4711]
 > /usr/bin/kate() [0x3e1a]
10 1795271282.160000 poll([{fd=4<anon_inode:[eventfd]>, events=POLLIN}], 1, 1000 <unfinished ...>
10 1795271282.400000 <... poll resumed>) = ? ERESTART_RESTARTBLOCK (Interrupted by signal) <0.240000>
10 1795271282.400100 --- SIGCHLD {si_signo=SIGCHLD} ---
10 1795271282.400200 rt_sigreturn({mask=[]}) = -1 EINTR (Interrupted system call) <0.000010>
10 1795271282.400300 restart_syscall(<... resuming interrupted poll ...>) = 0 <0.759700>
 > /usr/lib/x86_64-linux-gnu/libc.so.6(__poll+0x4f) [0x1]
 > /usr/lib/x86_64-linux-gnu/libglib-2.0.so.0(g_main_context_iterate+0x20) [0x2]
10 1795271283.161000 vfork() = 12 <0.000300>
12 1795271283.161100 execve("/bin/true", ["true"], 0x7ffc /* 20 vars */) = -1 ENOENT (No such file or directory) <0.000030>
12 1795271283.161200 exit_group(127) = ?
12 1795271283.161300 +++ exited with 127 +++
this line is damaged
10 1795271283.162000 wait4(12, [{WIFEXITED(s) && WEXITSTATUS(s) == 127}], 0, NULL) = 12 <0.000200>
10 1795271283.163000 newcall64(1, 2) = 5 <0.000150>
10 1795271283.164000 read(0</dev/pts/1<char 136:1>>,  <unfinished ...>
11 1795271283.165000 +++ killed by SIGKILL +++
"#;

#[test]
fn a_log_becomes_the_report_of_what_it_tells() {
    let report = report(LOG);
    assert_eq!(report.command, ["kate", "a b"]);
    let main = report.main().unwrap();
    assert_eq!((main.id, &*main.name), (10, "kate"));
    assert_eq!((main.stalls.missed, main.stalls.felt), (1, 1));
    let first = &report.paths[0];
    assert_eq!(report.path_name(first), "fdatasync of /home/ana/x by KConfig::sync");
    assert_eq!((first.wall_ns, first.how), (150_000_000, TraceMethod::Stall));
    let kind = |name: &str| report.calls.iter().find(|kind| kind.name == name).unwrap();
    assert_eq!(kind("newcall64").count, 1);
    assert_eq!(kind("execve").errnos[0].name, "ENOENT");
    assert!(report.calls.iter().all(|kind| kind.name != "restart_syscall"), "it is the same poll");
    let poll = report.slow.iter().find(|slow| report.call_name(slow.call) == "poll").unwrap();
    assert_eq!((poll.wall_ns, poll.how), (1_000_000_000, TraceMethod::Idle));
    let worker = report.threads.iter().find(|thread| thread.id == 11).unwrap();
    assert_eq!((worker.process, worker.main, worker.stalls.idle), (10, false, 1));
    let child = report.processes.iter().find(|process| process.id == 12).unwrap();
    assert_eq!((child.parent, child.exit.as_deref()), (Some(10), Some("exit 127")));
    assert_eq!(report.processes.len(), 2, "a thread is no process");
    let read = report.slow.iter().find(|slow| slow.running).unwrap();
    assert_eq!(
        (report.call_name(read.call), read.how, read.wall_ns),
        ("read", TraceMethod::Idle, 1_000_000)
    );
    assert!(report.watch.notes.iter().any(|note| note == "1 lines of the log were not understood"));
    assert_eq!(report.began_ms, 1_795_271_282_000);
}

#[test]
fn lines_before_the_first_child_belong_to_the_one_thread() {
    let report = report(
        "10:00:00.000000 getpid() = 70 <0.000010>\nstrace: Process 71 attached\n[pid    71] 10:00:00.1 sync() = 0 <0.2>\n[pid    70] 23:59:59.0 fsync(3) = 0 <0.3>\n[pid 70] 00:00:01.0 fsync(3) = 0 <0.3>\n",
    );
    let threads: Vec<u32> = report.threads.iter().map(|thread| thread.id).collect();
    assert_eq!(threads, [70, 71]);
    assert_eq!(report.length_ns, 50_401_000_000_000, "past midnight is the next day");
}

#[test]
fn a_log_without_times_still_counts() {
    let report = report(
        "open(\"/x\", O_RDONLY) = -1 ENOENT (No such file or directory)\nread(0, \"\", 1) = 0\n",
    );
    assert_eq!((report.sums.count, report.sums.errors), (2, 1));
    assert!(report.watch.notes.iter().any(|note| note.contains("strace -T")));
    assert!(report.watch.notes.iter().any(|note| note.contains("strace -ttt")));
}

#[test]
fn what_is_no_log_is_said_to_be_none() {
    for wrong in [&b""[..], b"hello\nworld\n", b"\x7fELF\x02\x01\x01\0\0", b" > /x(y+0x1) [0x1]\n"]
    {
        assert!(matches!(read(wrong, 0), Err(LogError::NoCalls)));
    }
}

#[test]
fn other_patterns_are_told_apart_by_what_is_waited_for() {
    let of = |calls: &str| -> Vec<String> {
        let log = read(calls.as_bytes(), 100_000).unwrap();
        let report =
            build(&log.recording, &log.names, Provenance::default(), &ReportOptions::default());
        report.advice.into_iter().map(|found| found.pattern).collect()
    };
    let dns = "1 1.0 connect(3, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr(\"9.9.9.9\")}, 16) = 0 <0.000010>\n\
               1 1.1 recvfrom(3, \"\", 1024, 0, NULL, NULL) = 40 <5.000000>\n";
    assert_eq!(of(dns), ["blocking-name-resolution"]);
    let peer = dns.replace("htons(53)", "htons(631)");
    assert_eq!(of(&peer), ["wait-for-peer"]);
    let sync = |path: &str| format!("1 1.0 fdatasync(3<{path}>) = 0 <0.050000>\n");
    assert_eq!(of(&sync("/home/a/.config/kate.lock")), ["sync-of-lock-file"]);
    assert_eq!(of(&sync("/home/a/.cache/x/y")), ["sync-of-what-can-be-made-again"]);
    assert_eq!(of(&sync("/home/a/letter.odt")), ["sync-on-main-thread"]);
    let many = |line: &str, times: usize| line.repeat(times);
    assert_eq!(
        of(&many("1 1.0 read(3</x/y>, \"a\", 1) = 1 <0.000005>\n", 1500)),
        ["tiny-transfers"]
    );
    assert_eq!(
        of(&many("1 1.0 newfstatat(AT_FDCWD, \"/x\", {}, 0) = 0 <0.000005>\n", 2500)),
        ["attribute-storm"]
    );
    assert_eq!(
        of(&many("1 1.0 read(3</x/y>, \"a\", 1) = 1 <0.000005>\n", 100)),
        Vec::<String>::new()
    );
}
