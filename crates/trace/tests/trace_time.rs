//! All of a main thread's time is accounted for, whatever it goes to, as far as the kernel lets it be seen.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a program that cannot be built or started fails the test; a test says what it skips"
)]

use crate::waiting;
use crate::waiting::recorded::some_of;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use unjank_trace::backend::TraceError;
use unjank_trace::recording::Backend;
use unjank_trace::report::TraceReport;
use unjank_trace::report::account::TimeAccount;
use unjank_trace::report::schema::TraceMethod;
use unjank_trace::stack::names::SymbolSources;
use unjank_trace::watch::{self, WatchEvent, WatchOptions, WatchTarget};

const MS: u64 = 1_000_000;

/// Shared by all tests here but the one that makes the machine busy: what it does to times is not theirs to tell.
static MACHINE: RwLock<()> = RwLock::new(());

/// A test's share of [`MACHINE`].
enum MachineShare {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Whole { _guard: RwLockWriteGuard<'static, ()> },
}

impl MachineShare {
    fn shared() -> MachineShare {
        MachineShare::Shared { _guard: MACHINE.read().unwrap_or_else(PoisonError::into_inner) }
    }

    fn whole() -> MachineShare {
        MachineShare::Whole { _guard: MACHINE.write().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// A program that spends its time in the way that its argument says, and the backends that this user may use.
struct Planted {
    dir: tempfile::TempDir,
    program: PathBuf,
    _machine: MachineShare,
}

const BACKENDS: [Backend; 4] = [Backend::Bpf, Backend::Seccomp, Backend::Ptrace, Backend::Peek];

impl Planted {
    fn new() -> Planted {
        Planted::with(MachineShare::shared())
    }

    fn with(machine: MachineShare) -> Planted {
        // Beside the build, which is on a disk: pages of a file in memory are never read from one.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let program = waiting::build(dir.path(), "time.c", &["-O1", "-g", "-pthread"]);
        Planted { dir, program, _machine: machine }
    }

    /// Records the program with each of `backends` that is allowed, and gives its report to `check`.
    fn each(
        &self,
        how: &[&str],
        backends: impl AsRef<[Backend]>,
        check: impl Fn(&str, &TraceReport),
    ) {
        let words = [&[self.program.to_str().unwrap()], how].concat();
        for backend in backends.as_ref() {
            if let Some(report) = waiting::recorded::seen(&words, *backend) {
                check(&format!("{} {how:?}: {}", backend.name(), report.verdict), &report);
            }
        }
    }
}

fn account(report: &TraceReport) -> &TimeAccount {
    let main = report.main().unwrap();
    let (backend, verdict) = (&report.watch.backend, &report.verdict);
    let none = || panic!("{backend}: no account of {main:?}; {verdict} {:?}", report.notes());
    main.account.as_ref().unwrap_or_else(none)
}

/// Says that the longest stall is over 50 ms, that the verdict says so, and that all time is accounted for.
fn is_told(context: &str, report: &TraceReport, words: &str) {
    let longest_ns = report.main().unwrap().longest_ns();
    assert!(longest_ns > 50 * MS, "{context}: {longest_ns}");
    assert!(report.verdict.contains(words), "{context}");
    assert!(report.verdict.contains("Not explained: "), "{context}");
    let account = account(report);
    let sum: u64 = account.parts.named().iter().map(|(_, ns)| ns).sum();
    assert_eq!(sum, account.wall_ns, "{context}: the parts are the whole");
}

/// Says that a time is what the program counted for itself, less the given part of that at most, and that nearly all is explained.
fn is_near_to_counted(context: &str, told_ns: u64, part: u64, file: &Path, report: &TraceReport) {
    let counted_ns: u64 = std::fs::read_to_string(file).unwrap().parse().unwrap();
    let account = account(report);
    let context = format!("{context}: {told_ns} of {counted_ns}, {:?}", account.parts);
    assert!(counted_ns > 100 * MS, "{context}");
    // What the host of a virtual machine keeps for itself, the program counts as its waits.
    let stolen_ns = report.watch.stolen_ns;
    assert!(told_ns + counted_ns / part + stolen_ns > counted_ns, "{context}");
    // On a busy machine time that would not be explained is taken for that of calls beside it.
    assert!(told_ns < counted_ns + counted_ns / 8 + stolen_ns, "{context}");
    let is_explained = account.parts.unknown_ns < account.wall_ns / 16 + stolen_ns;
    assert!(is_explained || report.watch.backend != "bpf", "{context}");
}

fn function(report: &TraceReport) -> Option<&str> {
    let share = account(report).functions.first()?;
    Some(&report.frames[usize::try_from(share.frame).unwrap()].name)
}

#[test]
fn a_loop_on_the_processor_is_a_stall_and_its_function_is_named() {
    Planted::new().each(&["loop"], some_of(&BACKENDS, 0), |context, report| {
        is_told(context, report, "on a processor");
        let parts = account(report).parts;
        assert!(parts.processor_ns > 400 * MS, "{context}: {parts:?}");
        assert!(account(report).frames >= 20, "{context}");
        // Where the kernel lets a user sample, the function is known.
        let is_sampled = account(report).unseen.is_empty();
        assert!(!is_sampled || function(report) == Some("spin"), "{context}");
    });
}

#[test]
fn who_has_the_kernel_work_is_named_where_that_may_be_sampled() {
    let may_sample = rustix::process::geteuid().is_root();
    // Beside a tracer that stops the program, what the kernel does for that would be sampled, too.
    Planted::new().each(&["kernel"], [Backend::Bpf, Backend::Peek], |context, report| {
        let parts = account(report).parts;
        assert!(parts.processor_ns > 300 * MS, "{context}: {parts:?}");
        assert!(!may_sample || function(report) == Some("ask_kernel"), "{context}");
    });
}

#[test]
fn waits_that_are_each_too_short_to_be_recorded_are_a_stall_in_their_call() {
    let planted = Planted::new();
    let file = planted.dir.path().join("counted");
    // The partner answers at once, or computes for so many microseconds, and so does whoever asked it.
    for work in ["0", "30"] {
        planted.each(
            &["short", work, file.to_str().unwrap()],
            [Backend::Bpf],
            |context, report| {
                is_told(context, report, "blocked in calls");
                let account = account(report);
                let parts = account.parts;
                is_near_to_counted(context, parts.call_ns, 16, &file, report);
                // On a busy machine an answer takes longer, and the call is recorded for itself.
                let slow = report.slow.iter().filter(|slow| report.call_name(slow.call) == "read");
                let recorded: u64 = slow.map(|slow| slow.wall_ns).sum();
                if recorded * 2 > parts.call_ns {
                    eprintln!("SKIPPED: {} ms of reads were long on this machine", recorded / MS);
                    return;
                }
                let row = account.short_calls.first();
                let row = row.unwrap_or_else(|| panic!("{context}: no short calls"));
                let name = report.short_calls_name(row);
                assert!(name.contains("short calls: read of "), "{context}: {name}");
                assert!(name.ends_with(" by ask_partner"), "{context}: {name}");
                assert!(row.count > 100, "{context}: {row:?}");
                let block = account.longest().unwrap();
                assert_eq!(
                    block.short_calls.first().map(|row| row.frame),
                    Some(row.frame),
                    "{context}"
                );
            },
        );
    }
}

#[test]
fn short_waits_on_many_objects_are_those_of_one_function_and_not_of_one_object() {
    let planted = Planted::new();
    planted.each(&["reads", "20000"], [Backend::Bpf], |context, report| {
        let account = account(report);
        let rows = account.short_calls.iter().filter(|row| report.call_name(row.call) == "read");
        let rows: Vec<_> = rows.collect();
        let slow = report.slow.iter().filter(|slow| report.call_name(slow.call) == "read");
        let recorded: u64 = slow.map(|slow| slow.wall_ns).sum();
        if recorded * 2 > account.parts.call_ns {
            eprintln!("SKIPPED: {} ms of reads were long on this machine", recorded / MS);
            return;
        }
        let [row] = rows[..] else { panic!("{context}: {rows:?}") };
        assert!(row.count > 5_000 && row.more_targets > 20, "{context}: {row:?}");
        let name = report.short_calls_name(row);
        assert!(name.contains(&format!(" and {} more by ask_partner", row.more_targets)), "{name}");
    });
}

#[test]
fn who_runs_and_waits_by_turns_beside_others_is_told_as_the_kernel_counts() {
    let planted = Planted::new();
    let file = planted.dir.path().join("counted");
    // A tracer that stops the thread has time of its own in these.
    planted.each(
        &["shared", file.to_str().unwrap()],
        [Backend::Bpf, Backend::Peek],
        |context, report| {
            let counted = std::fs::read_to_string(&file).unwrap();
            let mut counted = counted.split_whitespace().map(|word| word.parse::<u64>().unwrap());
            let (ran, ready) = (counted.next().unwrap(), counted.next().unwrap());
            let parts = account(report).parts;
            let is_near = |told: u64, counted: u64| told.abs_diff(counted) < 25 * MS;
            assert!(ready > 100 * MS, "{context}: {ready}");
            assert!(is_near(parts.processor_ns, ran), "{context}: {ran} {parts:?}");
            assert!(is_near(parts.ready_ns, ready), "{context}: {ready} {parts:?}");
        },
    );
}

#[test]
fn the_same_work_in_an_event_loop_that_goes_round_is_no_stall() {
    // Sampling alone does not see calls that do not wait.
    let backends = [Backend::Bpf, Backend::Seccomp, Backend::Ptrace];
    Planted::new().each(&["turns"], some_of(&backends, 1), |context, report| {
        let account = account(report);
        assert!(account.parts.processor_ns > 400 * MS, "{context}: {:?}", account.parts);
        // The start of the program is one block, and takes long on a busy machine; no other one is.
        let start = account.blocks.iter().min_by_key(|block| block.at_ns);
        let at_start = start.map_or(0, |block| block.parts.processor_ns);
        assert!(at_start < account.parts.processor_ns / 2, "{context}: {start:?}");
        for block in account.blocks.iter().filter(|block| Some(*block) != start) {
            assert!(block.parts.processor_ns < 100 * MS, "{context}: {block:?}");
        }
    });
}

#[test]
fn short_waits_for_locks_and_short_stops_are_told_as_long_as_they_were() {
    // Who only looks does not see them, and what follows calls does not follow those for locks.
    let backends: [(_, &[Backend]); 2] =
        [("locks", &[Backend::Bpf]), ("stops", &[Backend::Bpf, Backend::Seccomp, Backend::Ptrace])];
    let planted = Planted::new();
    let file = planted.dir.path().join("counted");
    for (how, backends) in backends {
        planted.each(&[how, file.to_str().unwrap()], backends, |context, report| {
            let parts = account(report).parts;
            if report.watch.backend != "bpf" {
                // Who holds the program at calls adds to what it counts, and sees stops by looks, which come late on a busy machine.
                assert!(parts.stopped_ns > 150 * MS, "{context}: {parts:?}");
                return;
            }
            let told = if how == "locks" { parts.lock_ns } else { parts.stopped_ns };
            is_near_to_counted(context, told, 8, &file, report);
        });
    }
}

#[test]
fn a_call_that_ends_on_another_processor_did_not_run_all_the_time() {
    let planted = Planted::new();
    let file = planted.dir.path().join("counted");
    planted.each(&["moved", file.to_str().unwrap()], [Backend::Bpf], |context, report| {
        let thread = report.main_thread.unwrap();
        let reads = report.slow.iter().filter(|slow| slow.thread == thread);
        let reads = reads.filter(|slow| report.call_name(slow.call) == "read");
        let (wall_ns, ran_ns) = reads
            .fold((0, 0), |(wall, ran), slow| (wall + slow.wall_ns, ran + slow.cpu_ns.unwrap()));
        assert!(wall_ns > 100 * MS && ran_ns < wall_ns / 5, "{context}: {ran_ns} of {wall_ns}");
        is_near_to_counted(context, account(report).parts.call_ns, 16, &file, report);
    });
}

#[test]
fn what_a_call_has_left_to_do_as_it_returns_is_of_the_call() {
    Planted::new().each(&["lingers"], [Backend::Bpf, Backend::Seccomp], |context, report| {
        is_told(context, report, "execve of ");
        let account = account(report);
        assert!(account.parts.call_ns > 900 * MS, "{context}: {:?}", account.parts);
        assert!(account.parts.unknown_ns < 100 * MS, "{context}: {:?}", account.parts);
        let main = report.slow.iter().filter(|slow| Some(slow.thread) == report.main_thread);
        let long = main.filter(|slow| slow.wall_ns > 900 * MS);
        assert_eq!(long.map(|slow| report.call_name(slow.call)).collect::<Vec<_>>(), ["execve"]);
    });
}

#[test]
fn a_wait_for_no_descriptor_is_a_sleep_and_no_look_for_events() {
    let backends = [Backend::Bpf, Backend::Seccomp, Backend::Ptrace];
    Planted::new().each(&["naps"], backends, |context, report| {
        let account = account(report);
        let block = account.longest().unwrap();
        assert!(block.wall_ns > account.wall_ns * 3 / 4, "{context}: {block:?}");
        let long = report.slow.iter().filter(|slow| slow.wall_ns > 150 * MS);
        let stalls = long.filter(|slow| slow.how == TraceMethod::Stall);
        let stalls: Vec<&str> = stalls.map(|slow| report.call_name(slow.call)).collect();
        assert_eq!(stalls, ["pselect6", "ppoll"], "{context}");
    });
}

#[test]
fn waits_for_a_lock_and_for_a_thread_are_stalls_with_their_callers() {
    let planted = Planted::new();
    for (case, how, function) in [(1, "mutex", "take_lock"), (2, "join", "join_worker")] {
        planted.each(&[how], some_of(&BACKENDS, case), |context, report| {
            is_told(context, report, function);
            let parts = account(report).parts;
            assert!(parts.lock_ns > 200 * MS, "{context}: {parts:?}");
            // Calls for locks are not recorded, and followed to who held it all the same, where the kernel's wake-ups are seen.
            if report.watch.backend == "bpf" {
                let chains = report.chains.iter();
                let chains: Vec<_> =
                    chains.map(|chain| (chain.hops.len(), &*chain.end, chain.has_losses)).collect();
                let is_lost = chains.iter().any(|(_, _, has_losses)| *has_losses);
                assert!(is_lost || chains == [(2, "timer", false)], "{context}: {chains:?}");
            }
        });
    }
}

/// Pairs of threads that wake each other up all the time, as on a busy machine, until this is dropped.
struct Flood {
    is_over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Flood {
    fn start(pairs: usize) -> Flood {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for _ in 0..pairs {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            let flag = Arc::clone(&is_over);
            threads.push(std::thread::spawn(move || {
                while !flag.load(Ordering::Relaxed) {
                    ours.write_all(&[1]).unwrap();
                    ours.read_exact(&mut [0]).unwrap();
                }
            }));
            // It ends with the other one, whose end is closed then.
            threads.push(std::thread::spawn(move || {
                while theirs.read_exact(&mut [0]).is_ok() && theirs.write_all(&[1]).is_ok() {}
            }));
        }
        Flood { is_over, threads }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn who_waits_for_a_lock_is_known_or_said_to_be_unknown_however_busy_the_machine_is() {
    let planted = Planted::with(MachineShare::whole());
    let _flood = Flood::start(6);
    planted.each(&["mutex"], [Backend::Bpf, Backend::Peek], |context, report| {
        let account = account(report);
        assert!(account.parts.lock_ns > 200 * MS, "{context}: {:?}", account.parts);
        // The kernel's programs see every wait; a look from outside may miss one, or come too late for its stack.
        let is_said = |unseen: &String| unseen.starts_with("the functions that made");
        let may_miss = report.watch.backend != "bpf";
        let is_named = report.verdict.contains("take_lock");
        assert!(
            is_named || may_miss && account.unseen.iter().any(is_said),
            "{context}: {}; {:?}",
            report.verdict,
            account.unseen
        );
    });
}

#[test]
fn cold_pages_of_a_mapped_file_are_told_with_the_file() {
    let planted = Planted::new();
    let path = planted.dir.path().join("cold");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&vec![7; 4 << 20]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    planted.each(&["pages", path.to_str().unwrap()], some_of(&BACKENDS, 1), |context, report| {
        let account = account(report);
        assert!(account.page_faults >= 800, "{context}: {account:?}");
        // The counters of a starved thread do not always tell its waits apart; then that is said.
        let is_said =
            account.unseen.iter().any(|part| part.starts_with("how long page faults took"));
        let parts = &account.parts;
        let is_starved = parts.ready_ns + parts.unknown_ns > account.wall_ns / 16;
        let is_told = account.parts.fault_ns > 0;
        assert!(is_told || is_said && is_starved, "{context}: {account:?}");
        let first = account.pages.first();
        let is_file = |name: &str| Path::new(name) == path;
        let is_named = first.is_some_and(|share| share.file.as_deref().is_some_and(is_file));
        assert!(is_named || !account.unseen.is_empty(), "{context}: {:?}", account.pages);
    });
}

#[test]
fn a_thread_without_a_processor_and_a_stopped_one_are_told_as_that() {
    let planted = Planted::new();
    let backends = [Backend::Bpf, Backend::Seccomp, Backend::Peek];
    planted.each(&["starved"], some_of(&backends, 1), |context, report| {
        is_told(context, report, "ready, without a processor");
        let parts = account(report).parts;
        assert!(parts.ready_ns > parts.processor_ns, "{context}: {parts:?}");
    });
    planted.each(&["stopped"], some_of(&backends, 0), |context, report| {
        is_told(context, report, "stopped or frozen");
        let parts = account(report).parts;
        assert!(parts.stopped_ns > 200 * MS, "{context}: {parts:?}");
    });
}

#[test]
fn a_program_that_is_stopped_while_it_rests_was_held_up_and_no_call_is_blamed() {
    Planted::new().each(&["rests"], some_of(&BACKENDS, 2), |context, report| {
        is_told(context, report, "stopped or frozen");
        let account = account(report);
        assert!(account.parts.stopped_ns > 200 * MS, "{context}: {account:?}");
        let longest = account.longest().map_or(0, |block| block.parts.stopped_ns);
        assert!(longest > 200 * MS, "{context}: {:?}", account.blocks);
        // What it rested in goes on after the stop by another call. A start may be as long where all is busy.
        let blamed = report.slow.iter().filter(|slow| {
            let is_long = slow.how == TraceMethod::Stall && slow.wall_ns >= 200 * MS;
            is_long
                && Some(slow.thread) == report.main_thread
                && report.call_name(slow.call) != "execve"
        });
        assert_eq!(blamed.count(), 0, "{context}: {:?}", report.slow);
    });
}

#[test]
fn a_watch_tells_of_a_loop_on_the_processor_and_of_a_freeze_made_of_many_short_calls() {
    let planted = Planted::new();
    let file = planted.dir.path().join("synced");
    let mut command = Command::new(&planted.program);
    command.arg("steps").arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let options = WatchOptions {
        recorder: None,
        subject: WatchTarget::Process(child.id()),
        threshold: Duration::from_millis(100),
        backend: Some(Backend::Bpf),
        sources: SymbolSources::default(),
    };
    let mut steps = Vec::new();
    let summary = watch::watch(&options, &AtomicBool::new(false), &mut |event| match event {
        WatchEvent::Found { .. } => child.stdin.take().unwrap().write_all(b"x").unwrap(),
        WatchEvent::Busy(step) => steps.push(step),
        _ => (),
    });
    if let Err(TraceError::Backend { reason, .. }) = summary {
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {reason}");
        eprintln!("SKIPPED: {reason}");
        return;
    }
    assert!(child.wait().unwrap().success());
    let half = |time: Duration, step: &watch::BusyStep| 2 * time > step.length;
    let computed = steps.iter().filter(|step| {
        step.frames.iter().any(|frame| frame.name == "spin")
            && step.parts.is_some_and(|(ran, _)| ran > Duration::from_millis(150))
    });
    assert!(computed.count() >= 1, "{steps:?}");
    let synced = steps.iter().filter(|step| {
        step.parts.is_some_and(|(ran, ready)| {
            !half(ran, step) && step.length.saturating_sub(ran + ready) > Duration::from_millis(20)
        })
    });
    assert!(synced.count() >= 1, "{steps:?}");
}

#[test]
fn a_poll_is_told_with_its_descriptor_though_its_memory_holds_another_one() {
    Planted::new().each(&["polled"], [Backend::Bpf, Backend::Seccomp], |context, report| {
        let polls = report.slow.iter().filter(|slow| report.call_name(slow.call) == "poll");
        let names: Vec<&str> = polls
            .filter_map(|slow| slow.target)
            .map(|at| &*report.targets[usize::try_from(at).unwrap()].name)
            .collect();
        assert!(names.iter().any(|name| name.starts_with("pipe:")), "{context}: {names:?}");
        assert!(names.iter().all(|name| !name.starts_with('/')), "{context}: {names:?}");
    });
}

#[test]
fn a_watch_tells_of_a_program_that_is_stopped_while_it_waits() {
    use rustix::process::{Pid, Signal, kill_process};

    for backend in [Backend::Bpf, Backend::Peek] {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Pid::from_child(&child);
        let options = WatchOptions {
            recorder: None,
            subject: WatchTarget::Process(child.id()),
            threshold: Duration::from_millis(100),
            backend: Some(backend),
            sources: SymbolSources::default(),
        };
        // Two looks are some time apart.
        let shortest = Duration::from_millis(200);
        let (found, is_found) = std::sync::mpsc::channel();
        let (stop, is_told) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut stops = Vec::new();
        let summary = std::thread::scope(|scope| {
            let (stop, is_told) = (&stop, &is_told);
            scope.spawn(move || {
                let rest = || std::thread::sleep(Duration::from_secs(1));
                // Nothing comes where the backend is not there. The first stops may come before the first look, or that into one of them.
                if is_found.recv().is_ok() {
                    for _ in 0..30 {
                        kill_process(process, Signal::STOP).unwrap();
                        rest();
                        kill_process(process, Signal::CONT).unwrap();
                        rest();
                        if is_told.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    kill_process(process, Signal::STOP).unwrap();
                    rest();
                }
                stop.store(true, Ordering::Relaxed);
            });
            let summary = watch::watch(&options, stop, &mut |event| match event {
                WatchEvent::Found { .. } => found.send(()).unwrap(),
                WatchEvent::Stopped { length, goes_on, .. } => {
                    is_told.fetch_or(length > shortest, Ordering::Relaxed);
                    stops.push((length, goes_on));
                }
                _ => (),
            });
            drop(found);
            summary
        });
        child.kill().unwrap();
        child.wait().unwrap();
        match summary {
            Ok(_) => {
                let [.., (first, false), (last, true)] = stops[..] else { panic!("{stops:?}") };
                assert!(first > shortest && last > shortest, "{backend:?}: {stops:?}");
            }
            Err(TraceError::Backend { reason, .. }) => {
                assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {reason}");
                eprintln!("SKIPPED: {reason}");
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}
