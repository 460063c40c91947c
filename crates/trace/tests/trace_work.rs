//! Waits for operations of io_uring and for memory, planted in programs.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a program that cannot be built or started fails the test; a test says what it skips"
)]

use crate::waiting;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use unjank_trace::export;
use unjank_trace::recording::Backend;
use unjank_trace::report::account::TimeAccount;
use unjank_trace::report::schema::{Slow, TraceMethod};
use unjank_trace::report::{TraceReport, data, page, text};

const MS: u64 = 1_000_000;
/// As many bytes as the program reads or writes at a time.
const BYTES: usize = 24 << 20;

fn skip(why: &str) {
    assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
    eprintln!("SKIPPED: {why}");
}

/// A test that the machine cannot do, whatever is installed on it.
fn cannot(why: &str) {
    eprintln!("SKIPPED: {why}");
}

struct Planted {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Planted {
    fn new(source: &str) -> Planted {
        // Beside the build, which is on a disk: pages of a file in memory are never read from one.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let program = waiting::build(dir.path(), source, &["-O1", "-g"]);
        Planted { dir, program }
    }

    /// Makes a file that is on the disk.
    fn file(&self, name: &str, length: usize) -> PathBuf {
        let path = self.dir.path().join(name);
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![7; length]).unwrap();
        file.sync_all().unwrap();
        path
    }

    fn program(&self) -> &str {
        self.program.to_str().unwrap()
    }
}

/// Records a command; nothing where the backend is not allowed, or the program says that it cannot do it.
fn recorded(words: &[&str], backend: Backend) -> Option<TraceReport> {
    let report = waiting::recorded::seen(words, backend)?;
    let exits: Vec<&str> =
        report.processes.iter().filter_map(|process| process.exit.as_deref()).collect();
    if exits.contains(&"exit 77") {
        cannot("this kernel has no io_uring for this user");
        return None;
    }
    assert!(exits.iter().all(|exit| *exit == "exit 0"), "{exits:?}");
    Some(report)
}

fn account(report: &TraceReport) -> &TimeAccount {
    let account = report.main().unwrap().account.as_ref();
    account.unwrap_or_else(|| panic!("no account: {:?}", report.notes()))
}

fn is_whole(context: &str, report: &TraceReport) {
    let account = account(report);
    let sum: u64 = account.parts.named().iter().map(|(_, ns)| ns).sum();
    assert_eq!(sum, account.wall_ns, "{context}: the parts are the whole");
    for block in &account.blocks {
        let sum: u64 = block.parts.named().iter().map(|(_, ns)| ns).sum();
        assert!(sum.abs_diff(block.wall_ns) <= block.wall_ns / 100 + 1000, "{context}: {block:?}");
    }
}

fn blamed(report: &TraceReport, slow: &Slow) -> Option<String> {
    let stack = &report.stacks[usize::try_from(slow.stack?).unwrap()];
    let frame = stack.frames[usize::try_from(stack.blamed?).unwrap()];
    Some(report.frames[usize::try_from(frame).unwrap()].name.clone())
}

fn target(report: &TraceReport, at: Option<u32>) -> String {
    at.and_then(|at| report.target_name(at)).unwrap_or_default()
}

/// The waits of the main thread that an operation of this name ended, the longest first.
fn waits<'a>(report: &'a TraceReport, name: &str) -> Vec<&'a Slow> {
    let mut waits: Vec<&Slow> = report
        .slow
        .iter()
        .filter(|slow| Some(slow.thread) == report.main_thread)
        .filter(|slow| {
            let operation = slow.operation.map(|at| &report.operations[at as usize]);
            operation.is_some_and(|operation| operation.name == name)
        })
        .collect();
    waits.sort_by_key(|slow| std::cmp::Reverse(slow.wall_ns));
    waits
}

#[test]
fn a_wait_for_an_operation_of_a_ring_is_told_with_its_name_its_file_and_the_function() {
    let planted = Planted::new("ring.c");
    let data = planted.file("data", BYTES);
    let synced = planted.dir.path().join("synced");
    for (how, operation, call, function, file) in [
        ("read", "READ", "io_uring_enter", "read_by_ring", &data),
        ("worker", "READ", "io_uring_enter", "read_by_ring", &data),
        ("registered", "READ", "io_uring_enter", "read_by_ring", &data),
        ("poller", "READ", "io_uring_enter", "read_by_poller", &data),
        ("sync", "FSYNC", "io_uring_enter", "sync_by_ring", &synced),
        ("counter", "READ", "read", "wait_for_counter", &data),
        ("poll", "READ", "poll", "poll_ring", &data),
    ] {
        let words = [planted.program(), how, file.to_str().unwrap()];
        let Some(report) = recorded(&words, Backend::Bpf) else { return };
        let context = format!("{how}: {} {:?}", report.verdict, report.notes());
        is_whole(&context, &report);
        let sums: Vec<_> =
            report.operation_sums.iter().filter(|sum| sum.name == operation).collect();
        let counted: u64 = sums.iter().map(|sum| sum.count).sum();
        assert_eq!(counted, 3, "{context} {sums:?}");
        assert!(sums.iter().all(|sum| sum.errors == 0), "{context} {sums:?}");
        let moved: Option<u64> = sums.iter().map(|sum| sum.bytes).sum();
        let wanted = if operation == "READ" { Some(3 * BYTES as u64) } else { None };
        assert_eq!(moved, wanted, "{context}");
        for sum in sums {
            assert_eq!(Path::new(&target(&report, sum.target)), file, "{context}");
        }
        // A read that was as fast as none is no wait; a cold one takes long on any disk.
        let slow: Vec<_> = report.operations.iter().filter(|row| row.wall_ns > 4 * MS).collect();
        assert!(!slow.is_empty(), "{context}: {:?}", report.operations);
        for row in &slow {
            assert_eq!(row.registered, ["registered", "poller"].contains(&how), "{context}");
            assert!(!["worker", "counter", "poll"].contains(&how) || row.worker, "{context}");
        }
        let waits = waits(&report, operation);
        let waits: Vec<_> = waits.into_iter().filter(|slow| slow.wall_ns > 4 * MS).collect();
        if ["read", "registered"].contains(&how) && waits.is_empty() {
            // The kernel did it while it was submitted, in the same call.
            continue;
        }
        assert!(!waits.is_empty(), "{context}: {:?}", report.slow);
        for wait in &waits {
            assert_eq!(report.call_name(wait.call), call, "{context}");
            assert_eq!(wait.how, TraceMethod::Stall, "{context}: {wait:?}");
            assert_eq!(blamed(&report, wait).as_deref(), Some(function), "{context}");
            assert_eq!(Path::new(&target(&report, wait.target)), file, "{context}");
        }
        // On a busy machine most of a wait may be one for a processor, and the counters of a starved thread are not exact.
        let blocked = |slow: &&Slow| {
            let known = slow.cpu_ns.unwrap_or(0) + slow.queued_ns.unwrap_or(0);
            slow.wall_ns.saturating_sub(known)
        };
        let blocked_ns: u64 = waits.iter().map(blocked).sum();
        let parts = account(&report).parts;
        let is_told = parts.ring_ns + parts.ready_ns > blocked_ns / 2;
        assert!(is_told, "{context}: {blocked_ns} of {parts:?}");
        if parts.ring_ns > 0 {
            is_in_all_forms(&report, operation);
        }
    }
}

#[test]
fn waits_for_many_short_operations_are_told_with_the_file_and_the_function() {
    let planted = Planted::new("ring.c");
    let data = planted.file("data", BYTES);
    let words = [planted.program(), "pages", data.to_str().unwrap()];
    let Some(report) = recorded(&words, Backend::Bpf) else { return };
    let context = format!("{} {:?}", report.verdict, report.notes());
    is_whole(&context, &report);
    let account = account(&report);
    let waits = report.slow.iter().filter(|slow| report.call_name(slow.call) == "io_uring_enter");
    let recorded_ns: u64 = waits.map(|slow| slow.wall_ns).sum();
    if recorded_ns * 2 > account.parts.ring_ns {
        cannot("the operations took long on this machine");
        return;
    }
    assert!(account.parts.ring_ns > 20 * MS, "{context}: {:?}", account.parts);
    let ring = report.short_calls_of("waiting for io_uring", &account.parts, &account.short_calls);
    let name = ring.map(|row| report.short_calls_name(row)).unwrap_or_default();
    let wanted = format!("io_uring_enter of {} by read_page", data.display());
    assert!(name.ends_with(&wanted), "{context}: {name} {:?}", account.short_calls);
    let screen = text::render(&report, 120, report::paint::Paint::Off);
    assert!(screen.contains("short calls of io_uring_enter by read_page"), "{screen}");
}

/// What is told is in each form of the report.
fn is_in_all_forms(report: &TraceReport, operation: &str) {
    let shown = text::render(report, 100, report::paint::Paint::Off);
    assert!(shown.contains("Operations of io_uring"), "{shown}");
    assert!(shown.contains("waiting for io_uring"), "{shown}");
    assert!(shown.contains(&format!("for {operation} of")), "{shown}");
    let html = page::render(report).unwrap();
    assert!(html.contains("Operations of io_uring") && html.contains(operation));
    assert_eq!(data::read(html.as_bytes()).unwrap(), *report);
    let lines = export::json_lines(report).unwrap();
    assert!(lines.contains(&format!("\"operation\":\"{operation} of ")), "{lines}");
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has(&export::perfetto(report), "io_uring 1"));
    assert!(has(export::firefox(report).unwrap().as_bytes(), "Operation of io_uring"));
}

#[test]
fn an_event_loop_on_a_ring_waits_for_nothing_and_a_path_is_told() {
    let planted = Planted::new("ring.c");
    let data = planted.file("data", BYTES);
    let words = [planted.program(), "loop", data.to_str().unwrap()];
    let Some(report) = recorded(&words, Backend::Bpf) else { return };
    for wait in waits(&report, "READ") {
        assert_eq!(wait.how, TraceMethod::Idle, "{wait:?}");
    }
    // An operation that nobody waits for any more when the program ends is not lost.
    let polls = report.operations.iter().filter(|row| row.name == "POLL_ADD");
    assert!(polls.count() <= 1);
    let words = [planted.program(), "open", data.to_str().unwrap()];
    let Some(report) = recorded(&words, Backend::Bpf) else { return };
    let sum = report.operation_sums.iter().find(|sum| sum.name == "OPENAT").unwrap();
    assert_eq!((sum.count, sum.errors), (6, 3), "{sum:?}");
    for row in report.operations.iter().filter(|row| row.name == "OPENAT") {
        let name = target(&report, row.target);
        let is_missing = row.error.as_deref() == Some("ENOENT");
        assert!(
            name.ends_with(if is_missing { "no-such-file" } else { "/data" }),
            "{row:?} {name}"
        );
    }
}

#[test]
fn an_operation_that_is_waited_for_alone_is_told_as_its_call_would_be() {
    let planted = Planted::new("ring.c");
    for (how, operation, function) in [
        ("pipe", "READ", Some("wait_like_a_call")),
        ("socket", "RECV", Some("wait_like_a_call")),
        ("sleep", "TIMEOUT", Some("sleep_by_ring")),
        ("child", "WAITID", Some("wait_for_child")),
        // What is read to wake an event loop up.
        ("waker", "READ", None),
    ] {
        let Some(report) = recorded(&[planted.program(), how], Backend::Bpf) else { return };
        let context = format!("{how}: {} {:?}", report.verdict, report.notes());
        if how == "child" && report.processes.iter().any(|p| p.exit.as_deref() == Some("exit 3")) {
            cannot("this kernel has no IORING_OP_WAITID");
            continue;
        }
        let waits = waits(&report, operation);
        let wait = waits.iter().find(|wait| wait.wall_ns > 100 * MS);
        let wait = wait.unwrap_or_else(|| panic!("{context}: {:?}", report.slow));
        let wanted = if function.is_some() { TraceMethod::Stall } else { TraceMethod::Idle };
        assert_eq!(wait.how, wanted, "{context}: {wait:?}");
        if function.is_some() {
            assert_eq!(blamed(&report, wait).as_deref(), function, "{context}");
            // On a busy machine the thread waits for a processor first, which is no wait for the operation.
            let parts = &account(&report).parts;
            assert!(parts.ring_ns > 0 && parts.ring_ns + parts.ready_ns > 100 * MS, "{context}");
            assert!(!report.verdict.contains("never waited"), "{context}");
        }
    }
}

#[test]
fn an_ordinary_users_report_says_that_operations_and_work_for_memory_are_not_seen() {
    let planted = Planted::new("ring.c");
    let data = planted.file("data", BYTES);
    for backend in [Backend::Seccomp, Backend::Ptrace, Backend::Peek] {
        let words = [planted.program(), "read", data.to_str().unwrap()];
        let Some(report) = recorded(&words, backend) else { return };
        let notes = report.notes().join("\n");
        for what in ["operations of io_uring", "reclaim of memory", "swap"] {
            assert!(notes.contains(what), "{}: {notes}", backend.name());
        }
        assert!(report.operations.is_empty() && report.operation_sums.is_empty());
    }
}

/// A control group with little memory; it is removed with the test.
struct SmallGroup(PathBuf);

impl SmallGroup {
    fn new(name: &str, bytes: u64) -> Result<SmallGroup, String> {
        let name = format!("unjank-test-{name}-{}", std::process::id());
        let unified = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().find(|root| {
            let controllers = fs::read_to_string(format!("{root}/cgroup.controllers"));
            controllers.is_ok_and(|all| all.split_whitespace().any(|name| name == "memory"))
        });
        let (group, limit) = match unified {
            Some(root) => {
                let subtree = format!("{root}/cgroup.subtree_control");
                let now = fs::read_to_string(&subtree).unwrap_or_default();
                if !now.split_whitespace().any(|name| name == "memory") {
                    return Err("the control groups below the root have no memory".to_owned());
                }
                (Path::new(root).join(name), "memory.max")
            }
            None => (Path::new("/sys/fs/cgroup/memory").join(name), "memory.limit_in_bytes"),
        };
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let group = SmallGroup(group);
        fs::write(group.0.join(limit), bytes.to_string()).map_err(|error| error.to_string())?;
        Ok(group)
    }

    /// A script that runs its arguments in the group.
    fn script(&self) -> String {
        format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display())
    }
}

impl Drop for SmallGroup {
    fn drop(&mut self) {
        let _gone = fs::remove_dir(&self.0);
    }
}

#[test]
fn time_in_reclaim_is_told_as_that_with_the_function_that_needed_memory() {
    let planted = Planted::new("memory.c");
    let group = match SmallGroup::new("reclaim", 32 << 20) {
        Ok(group) => group,
        Err(why) => return cannot(&format!("no control group with little memory: {why}")),
    };
    // Fast machines reclaim a gigabyte in some 60 ms.
    let data = planted.file("data", 160 << 20);
    let script = group.script();
    for _ in 0..3 {
        let words =
            ["sh", "-c", &script, "sh", planted.program(), "reclaim", data.to_str().unwrap()];
        let Some(report) = recorded(&words, Backend::Bpf) else { return };
        let context = format!("{} {:?}", report.verdict, report.notes());
        is_whole(&context, &report);
        let account = account(&report);
        assert!(account.parts.reclaim_ns > 2 * MS, "{context}: {account:?}");
        let row = account.memory.iter().find(|row| row.work == "reclaim").unwrap();
        assert!(row.count >= 10 && row.pages > 10_000, "{context}: {row:?}");
        assert!(row.wall_ns >= account.parts.reclaim_ns / 2, "{context}: {row:?}");
        if let Some(frame) = row.frame {
            let frame = &report.frames[frame as usize];
            assert_eq!(frame.name, "read_too_much", "{frame:?} {row:?} {context}");
        }
        let shown = text::render(&report, 100, report::paint::Paint::Off);
        assert!(shown.contains("reclaiming memory"), "{shown}");
    }
}

/// A swap in a file; it is taken off with the test.
struct SwapFile(PathBuf);

impl SwapFile {
    fn new(path: PathBuf, length: usize) -> Result<SwapFile, String> {
        use std::os::unix::fs::PermissionsExt;
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![0; length]).unwrap();
        file.sync_all().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for program in ["mkswap", "swapon"] {
            let output = Command::new(program).arg(&path).output();
            let output = output.map_err(|error| format!("{program}: {error}"))?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
            }
        }
        Ok(SwapFile(path))
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        let _off = Command::new("swapoff").arg(&self.0).output();
    }
}

#[test]
fn memory_that_is_read_back_from_swap_is_told_as_that_with_the_swap_and_the_function() {
    let planted = Planted::new("memory.c");
    if !rustix::process::geteuid().is_root() {
        return skip("only root makes a swap");
    }
    let swap = match SwapFile::new(planted.dir.path().join("swap"), 96 << 20) {
        Ok(swap) => swap,
        Err(why) => return cannot(&format!("no swap in a file: {why}")),
    };
    let group = match SmallGroup::new("swap", 24 << 20) {
        Ok(group) => group,
        Err(why) => return cannot(&format!("no control group with little memory: {why}")),
    };
    let script = group.script();
    let is_only = fs::read_to_string("/proc/swaps").unwrap().lines().count() == 2;
    let mut named = 0;
    for _ in 0..3 {
        let words = ["sh", "-c", &script, "sh", planted.program(), "swap"];
        let Some(report) = recorded(&words, Backend::Bpf) else { return };
        let context = format!("{} {:?}", report.verdict, report.notes());
        is_whole(&context, &report);
        let account = account(&report);
        let row = account.memory.iter().find(|row| row.work == "swap-in");
        let row = row.unwrap_or_else(|| panic!("{context}: {account:?}"));
        assert!(row.count >= 100, "{context}: {row:?}");
        assert!(account.parts.swap_ns > 2 * MS, "{context}: {account:?}");
        assert!(account.parts.fault_ns < account.parts.swap_ns, "{context}: {account:?}");
        if is_only {
            assert_eq!(row.swap.as_deref(), swap.0.to_str(), "{context}");
        }
        // Few are as long as those whose callers are always known; the others are known by samples.
        if let Some(frame) = row.frame {
            // A single read in which the host kept the processor for itself may be longer than all others.
            let is_told = report.frames[frame as usize].name == "touch_swapped";
            assert!(is_told || report.watch.stolen_ns > row.wall_ns / 4, "{context}: {row:?}");
            named += 1;
        }
        let shown = text::render(&report, 100, report::paint::Paint::Off);
        assert!(shown.contains("swapping in"), "{shown}");
    }
    assert!(named > 0);
}
