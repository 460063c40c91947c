//! The recorder with programs in the kernel beside a program that hangs in known ways.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use tempfile::TempDir;
use unjank_hangs::kernel::{
    EventWait, EventWaitKind, HangPrograms, LocalMarker, MarkedAs, MarkedThread, ThreadEvent,
    ThreadMarker,
};
use unjank_hangs::model::{CallShare, Hang, HangCause, UnseenParts};
use unjank_hangs::recorder::{KernelReports, ThreadSource};
use wakeups::kernel::WakeupTracer;

use super::recorder::{
    Interactive, TestRecorder, blamed, check_frame_pointers, middle_ns, stored, until,
};

/// Loads the programs; none where this user may not.
#[expect(clippy::print_stderr, reason = "a test says what it skips")]
pub(crate) fn load() -> Option<HangPrograms> {
    match HangPrograms::load(rustix::process::geteuid().as_raw()) {
        Ok(programs) => Some(programs),
        Err(why @ (sys::bpf::LoadError::NotAllowed(_) | sys::bpf::LoadError::OtherNumbers)) => {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
            eprintln!("SKIPPED: {why}");
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// Loads all programs that a recorder uses; none where this user may not.
pub(crate) fn reports() -> Option<KernelReports> {
    let HangPrograms { ring, marker } = load()?;
    let wakeups = WakeupTracer::load_for(Duration::from_millis(5)).unwrap();
    Some(KernelReports {
        reports: ring.into(),
        marker: Box::new(marker),
        wakeups: Some(wakeups.into()),
    })
}

/// Starts a program and a recorder, and waits until the recorder follows the program.
pub(crate) fn start(root: &TempDir, wait: &str) -> Option<(TestRecorder, Interactive)> {
    let recorder = TestRecorder::start_with(root, ThreadSource::Kernel(Box::new(reports()?)));
    let mut program = Interactive::start_with(root, wait);
    program.be_noticed(root);
    Some((recorder, program))
}

/// The commands of a program with the moments before and after each, in nanoseconds.
fn noted(program: &Interactive) -> Vec<(String, u64, u64)> {
    let path = format!("{}.log", program.lock.display());
    let log = fs::read_to_string(path).unwrap();
    let nanoseconds = |text: &str| {
        let (seconds, rest) = text.split_once('.').unwrap();
        seconds.parse::<u64>().unwrap() * 1_000_000_000 + rest.parse::<u64>().unwrap()
    };
    log.lines()
        .map(|line| {
            let mut words = line.split(' ');
            let mut next = || words.next().unwrap();
            (next().to_owned(), nanoseconds(next()), nanoseconds(next()))
        })
        .collect()
}

/// The hangs of a program that began after a moment.
pub(crate) fn hangs_since(root: &TempDir, program: &Interactive, since_ns: u64) -> Vec<Hang> {
    let hangs = stored(root).hangs.into_values();
    hangs.filter(|hang| hang.process == program.child.id() && middle_ns(hang) > since_ns).collect()
}

fn sum_of_parts(hang: &Hang) -> u64 {
    hang.parts.named().iter().map(|(_, part)| part).sum()
}

#[test]
fn each_hang_is_recorded_once_with_its_exact_length_its_cause_and_its_function() {
    let root = tempfile::tempdir().unwrap();
    let Some((recorder, mut program)) = start(&root, "poll") else { return };
    program.mark_now();
    let (since_ns, first) = (program.ordered_ns, noted(&program).len());
    let orders = [
        (b's', HangCause::Sleep, "sleep_on_purpose"),
        (b'n', HangCause::Sleep, "nap_in_select"),
        (b'r', HangCause::OtherProgram, "wait_for_reply"),
        (b'N', HangCause::Sleep, "nap_in_poll"),
        // Nobody could have ended it.
        (b'i', HangCause::OtherCall, "wait_in_vain"),
        (b'r', HangCause::OtherProgram, "wait_for_reply"),
    ];
    for (at, (order, cause, function)) in orders.into_iter().enumerate() {
        program.order(order);
        let hang = program.ended_hang(&root);
        assert_eq!((hang.cause, &*blamed(&hang)), (cause, function), "{hang:?}");
        // The next command is noted after the main loop's wait has returned.
        program.order(b'b');
        let noted = noted(&program);
        let (_, began, ended) = &noted[first + 2 * at];
        let before = first.checked_sub(1).map_or(0, |_| noted[first + 2 * at - 1].2);
        let after = noted[first + 2 * at + 1].1;
        let bounds = ended - began..=after - before;
        assert!(bounds.contains(&hang.length_ns), "{bounds:?} {hang:?}");
        assert_eq!(hang.uncertain_ns, 0, "{hang:?}");
        assert_eq!(sum_of_parts(&hang), hang.length_ns, "{hang:?}");
        assert!(!hang.unseen.has(UnseenParts::STEPS), "{hang:?}");
    }
    let hangs = hangs_since(&root, &program, since_ns);
    // On a loaded machine a step of 20 ms may take 100 ms; then it was ready, or on a processor.
    let waited = |hang: &&Hang| hang.parts.ready_ns + hang.parts.processor_ns < 30_000_000;
    assert!(hangs.len() >= orders.len(), "{hangs:?}");
    assert!(hangs.iter().filter(waited).count() <= orders.len(), "{hangs:?}");
    assert!(recorder.end().hangs >= 4);
    let periods = stored(&root).periods;
    let steps: u64 =
        periods.iter().flat_map(|period| &period.programs).map(|of| of.steps.total()).sum();
    assert!(steps >= 8, "each step over a frame is counted: {periods:?}");
    assert!(periods.iter().all(|period| period.interval_ns == 0 && period.lost == 0));
}

#[test]
fn the_function_of_a_program_with_frame_pointers_is_told() {
    let root = tempfile::tempdir().unwrap();
    let Some(reports) = reports() else { return };
    let _recorder = TestRecorder::start_with(&root, ThreadSource::Kernel(Box::new(reports)));
    check_frame_pointers(&root);
}

#[test]
fn main_loops_that_wait_with_select_and_epoll_are_followed() {
    for wait in ["select", "epoll"] {
        let root = tempfile::tempdir().unwrap();
        let Some((_recorder, mut program)) = start(&root, wait) else { return };
        // A main loop that finds the next command at once may not be seen between two hangs.
        program.mark_now();
        program.order(b's');
        let hang = program.ended_hang(&root);
        assert_eq!(&*blamed(&hang), "sleep_on_purpose", "{wait}: {hang:?}");
        assert_eq!((hang.cause, hang.uncertain_ns), (HangCause::Sleep, 0), "{wait}: {hang:?}");
    }
}

#[test]
fn a_hang_that_goes_on_a_stop_and_a_file_are_told() {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    let hang = program.hang_of_lock(&root);
    assert!(hang.length_ns >= 900_000_000, "{hang:?}");
    let hang = program.hang_of_stop(&root);
    assert!(hang.parts.stopped_ns >= 900_000_000, "{hang:?}");
    program.order(b'f');
    let hang = program.ended_hang(&root);
    let stored_file = format!("{}.stored", program.lock.display());
    let share = hang.calls.iter().find(|share| share.call == "fsync");
    // On a disk in memory nothing waits.
    if let Some(share) = share.filter(|share| share.blocked_ns > 100_000_000) {
        assert_eq!(share.object.as_ref().unwrap().name, stored_file, "{hang:?}");
        assert!(hang.frames.iter().any(|frame| frame.function == "store_file"), "{hang:?}");
    }
}

/// Returns for how long a hang waited for a file by `call`, and for how long by it for what is not known or another one.
fn waited_for(hang: &Hang, call: &str, file: &str) -> (u64, u64) {
    let shares = hang.calls.iter().filter(|share| share.call == call);
    let (right, wrong): (Vec<_>, Vec<_>) =
        shares.partition(|share| share.object.as_ref().is_some_and(|object| object.name == file));
    let named = wrong.iter().find(|share| share.object.is_some());
    assert_eq!(named, None, "another file is told: {hang:?}");
    let sum = |shares: &[&CallShare]| shares.iter().map(|share| share.blocked_ns).sum();
    (sum(&right), sum(&wrong))
}

#[test]
fn the_file_behind_page_faults_is_told() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    program.order(b'o');
    let may_sample = sys::perf::ThreadSampler::at_faults(program.child.id()).is_ok();
    let file = format!("{}.cold", program.lock.display());
    program.order(b'm');
    let hang = program.ended_hang(&root);
    let (right_ns, unknown_ns) = waited_for(&hang, CallShare::PAGE_FAULT, &file);
    // On a fast disk, or beside others on its processor, it waits for other things.
    if may_sample && hang.cause == HangCause::PageFault {
        assert!(right_ns > unknown_ns, "{right_ns} {unknown_ns} {hang:?}");
        assert_eq!(hang.object().map(|object| &*object.name), Some(&*file), "{hang:?}");
        assert_eq!(&*blamed(&hang), "touch_mapped_file", "{hang:?}");
    }
}

#[test]
fn the_file_of_operations_of_a_ring_is_told_and_the_ring_is_no_other_program() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    program.order(b'o');
    let file = format!("{}.cold", program.lock.display());
    // The first time the programs are loaded while it waits.
    for attempt in 0..2 {
        program.order(b'u');
        let hang = program.ended_hang(&root);
        assert_ne!(hang.cause, HangCause::OtherProgram, "{hang:?}");
        let (right_ns, _) = waited_for(&hang, "io_uring read", &file);
        let ring = hang.calls.iter().filter(|share| share.call == "io_uring_enter");
        let ring_ns: u64 = ring.map(|share| share.blocked_ns).sum();
        if attempt > 0 && right_ns + ring_ns > hang.length_ns / 4 {
            assert!(right_ns > ring_ns, "{right_ns} {ring_ns} {hang:?}");
        }
        if right_ns > hang.length_ns / 2 {
            assert_eq!((hang.cause, &*blamed(&hang)), (HangCause::FileData, "read_through_ring"));
        }
    }
}

#[test]
fn a_hang_is_followed_to_the_program_that_another_one_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    let hang = until("a hang of which all wake-ups are told", || {
        // The program reads from a pipe that `cat` writes to, which waits for `sleep`.
        program.order(b'w');
        let hang = program.ended_hang(&root);
        let end = hang.chain.as_ref().map(|chain| chain.end.clone());
        (end.as_deref() != Some("not-known")).then_some(hang)
    });
    assert_eq!((hang.cause, &*blamed(&hang)), (HangCause::OtherProgram, "wait_for_programs"));
    let chain = hang.chain.as_ref().unwrap_or_else(|| panic!("{hang:?}"));
    let names: Vec<&str> = chain.hops.iter().map(|hop| &*hop.program).collect();
    assert_eq!((names[0], names[1]), (super::recorder::NAME, "cat"), "{hang:?}");
    assert_eq!((chain.hops[0].process, &*chain.hops[0].call), (program.child.id(), "read"));
    // A shell may run `sleep` itself or wait for it.
    assert!(names.contains(&"sleep"), "{hang:?}");
    assert_eq!(&*chain.end, "timer", "{hang:?}");
    // Wake-ups are recorded from a moment on at which it has been away for 30 ms.
    assert!(chain.end_ns > 200_000_000, "{hang:?}");
}

#[test]
fn a_program_that_computes_is_told_from_one_that_waits() {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    program.order(b'c');
    let hang = program.ended_hang(&root);
    let ran = hang.parts.processor_ns + hang.parts.ready_ns;
    assert!(ran * 10 >= hang.length_ns * 9, "{hang:?}");
    let may_sample = sys::perf::ThreadSampler::open(program.child.id(), Duration::from_millis(5));
    if may_sample.is_ok() && hang.cause == HangCause::Computing {
        assert!(hang.frames.iter().any(|frame| frame.function == "compute_things"), "{hang:?}");
    }
}

/// What a kernel that has no memory left does not do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Failing {
    Mark,
    Classify,
    State,
    /// It forgets what it was told of a place.
    Place,
}

/// Marks one process only: other tests run programs, too. It may fail once with one of its commands.
#[derive(Debug)]
struct OneMarker {
    only: u32,
    inner: LocalMarker,
    /// Whether the place of its wait is classified.
    classified: Arc<AtomicBool>,
    fails: Option<Failing>,
}

impl OneMarker {
    fn fail(&mut self, command: Failing) -> io::Result<()> {
        match self.fails.take_if(|fails| *fails == command) {
            Some(_) => Err(io::ErrorKind::OutOfMemory.into()),
            None => Ok(()),
        }
    }
}

impl ThreadMarker for OneMarker {
    fn mark(&mut self, process: u32, marked: MarkedAs) -> io::Result<()> {
        if process != self.only {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.fail(Failing::Mark)?;
        self.inner.mark(process, marked)
    }

    fn unmark(&mut self, process: u32) -> io::Result<()> {
        self.inner.unmark(process)
    }

    fn classify(&mut self, process: u32, wait: EventWait, kind: EventWaitKind) -> io::Result<()> {
        self.fail(Failing::Classify)?;
        self.inner.classify(process, wait, kind)?;
        if self.fail(Failing::Place).is_err() {
            for other in 1..100 {
                let other = [other, other, other].into();
                self.inner.classify(process, other, EventWaitKind::Nested)?;
            }
        }
        self.classified.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn state(&mut self, process: u32) -> io::Result<Option<MarkedThread>> {
        self.fail(Failing::State)?;
        self.inner.state(process)
    }

    fn lost(&mut self) -> io::Result<u64> {
        self.inner.lost()
    }
}

#[test]
fn a_program_is_followed_although_the_kernel_could_not_do_something_once() {
    for fails in [Failing::Mark, Failing::Classify, Failing::State, Failing::Place] {
        let root = tempfile::tempdir().unwrap();
        let mut program = Interactive::start(&root);
        let Some((_recorder, _)) = start_for(&root, &program, Some(fails)) else { return };
        println!("{fails:?}");
        program.be_noticed(&root);
    }
}

/// Answers late once: between the look at a thread that is blocked and the answer, the wait ends, and the next step begins
/// without a wait of the main loop.
#[derive(Debug)]
struct LateMarker {
    inner: LocalMarker,
    only: u32,
    is_armed: Arc<AtomicBool>,
    /// What the thread is blocked by.
    held: Option<File>,
    /// Where the program notes what it has done.
    log: PathBuf,
}

impl ThreadMarker for LateMarker {
    fn mark(&mut self, process: u32, marked: MarkedAs) -> io::Result<()> {
        self.inner.mark(process, marked)
    }

    fn unmark(&mut self, process: u32) -> io::Result<()> {
        self.inner.unmark(process)
    }

    fn classify(&mut self, process: u32, wait: EventWait, kind: EventWaitKind) -> io::Result<()> {
        self.inner.classify(process, wait, kind)
    }

    fn state(&mut self, process: u32) -> io::Result<Option<MarkedThread>> {
        let state = self.inner.state(process)?;
        let blocked_ns = |state: &MarkedThread| {
            let since_ns = state.off_since_ns.filter(|_| state.away_since_ns.is_some());
            since_ns.map_or(0, |(since_ns, _)| sys::bpf::clock_ns().saturating_sub(since_ns))
        };
        let is_blocked = state.as_ref().is_some_and(|state| blocked_ns(state) > 300_000_000);
        let is_armed = process == self.only && self.is_armed.load(Ordering::Relaxed);
        if is_armed && is_blocked && self.held.take().is_some() {
            until("the program to be done with the next step", || {
                let log = fs::read_to_string(&self.log).unwrap();
                log.lines().last().filter(|line| line.starts_with("b ")).map(|_| ())
            });
        }
        Ok(state)
    }

    fn lost(&mut self) -> io::Result<u64> {
        self.inner.lost()
    }
}

#[test]
fn a_wait_that_ends_while_the_recorder_looks_is_told_with_its_call() {
    let root = tempfile::tempdir().unwrap();
    let Some(HangPrograms { ring, marker: inner }) = load() else { return };
    let mut program = Interactive::start(&root);
    let held = File::create(&program.lock).unwrap();
    held.lock().unwrap();
    let log = PathBuf::from(format!("{}.log", program.lock.display()));
    let is_armed = Arc::new(AtomicBool::new(false));
    let marker = LateMarker {
        inner,
        only: program.child.id(),
        is_armed: Arc::clone(&is_armed),
        held: Some(held),
        log,
    };
    let _recorder = TestRecorder::start_with(
        &root,
        ThreadSource::Kernel(Box::new(KernelReports {
            reports: ring.into(),
            marker: Box::new(marker),
            wakeups: None,
        })),
    );
    program.be_noticed(&root);
    is_armed.store(true, Ordering::Relaxed);
    program.begin(b'l');
    program.begin(b'b');
    program.finished();
    program.finished();
    let hang = program.ended_hang(&root);
    assert_eq!(hang.cause, HangCause::Lock, "{hang:?}");
    assert!(hang.parts.unknown_ns < hang.length_ns / 4, "{hang:?}");
}

/// Returns how often this thread has given its processor away.
fn own_waits() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_rest_that_is_over_before_the_thread_has_left_its_processor_is_seen() {
    const ROUNDS: u64 = 20_000;
    let Some(HangPrograms { ring: _ring, mut marker }) = load() else { return };
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
    let round = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // Another thread ends the wait at about the moment at which it begins.
        scope.spawn(|| {
            for now in 1..=ROUNDS {
                while round.load(Ordering::Acquire) < now {
                    std::hint::spin_loop();
                }
                for _ in 0..now * 7 % 400 {
                    std::hint::spin_loop();
                }
                rustix::io::write(&event, &1_u64.to_ne_bytes()).unwrap();
            }
        });
        let process = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        marker.mark(process, MarkedAs::Unknown).unwrap();
        let (mut rests, mut untold, mut missed) = (0, 0, Vec::new());
        for now in 1..=ROUNDS {
            let (waits, begun_ns) = (own_waits(), sys::bpf::clock_ns());
            round.store(now, Ordering::Release);
            let mut polled = [PollFd::new(&event, PollFlags::IN)];
            rustix::event::poll(&mut polled, None).unwrap();
            let ended_ns = sys::bpf::clock_ns();
            let has_rested = own_waits() > waits;
            rustix::io::read(&event, &mut [0; 8]).unwrap();
            if !has_rested {
                continue;
            }
            rests += 1;
            let mut since = || marker.state(process).unwrap().unwrap().away_since_ns;
            let is_told = |since: &u64| (begun_ns..=ended_ns).contains(since);
            if since().filter(is_told).is_none() {
                // The kernel has not told that the thread got a processor; it is seen when it leaves it.
                untold += 1;
                let waits = own_waits();
                while own_waits() == waits {
                    std::thread::spawn(|| ()).join().unwrap();
                }
                let is_near = |since: &u64| (begun_ns..ended_ns + 10_000_000).contains(since);
                if since().filter(is_near).is_none() {
                    missed.push((begun_ns, since(), ended_ns));
                }
            }
        }
        println!("{rests} rests, {untold} ends of them were not told");
        assert_eq!(missed, [], "of {rests}");
    });
}

#[test]
fn a_thread_that_ends_before_its_main_loop_is_known_was_not_away_from_it() {
    let Some(HangPrograms { mut ring, mut marker }) = load() else { return };
    let starts = || {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        marker.mark(thread, MarkedAs::Unknown).unwrap();
        // Too short to be asked about: nobody has said whether that is the main loop.
        let shortly = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        rustix::event::poll(&mut [], Some(&shortly)).unwrap();
        thread
    };
    let thread = std::thread::scope(|scope| scope.spawn(starts).join().unwrap());
    let end = until("the end of the thread to be told", || {
        let mut events = Vec::new();
        ring.take(usize::MAX, |bytes| events.extend(ThreadEvent::read(bytes)));
        let mut ends = events.into_iter().filter(|(of, _)| *of == thread);
        ends.find_map(|(_, event)| matches!(event, ThreadEvent::Gone { .. }).then_some(event))
    });
    assert_eq!(end, ThreadEvent::Gone { absence: None });
}

/// Starts a recorder of one program only; returns whether the place of its wait is classified, too.
fn start_for(
    root: &TempDir,
    program: &Interactive,
    fails: Option<Failing>,
) -> Option<(TestRecorder, Arc<AtomicBool>)> {
    let HangPrograms { ring, marker: inner } = load()?;
    let classified = Arc::new(AtomicBool::new(false));
    let only = program.child.id();
    let marker = Box::new(OneMarker { only, inner, classified: Arc::clone(&classified), fails });
    let reports = KernelReports { reports: ring.into(), marker, wakeups: None };
    let recorder = TestRecorder::start_with(root, ThreadSource::Kernel(Box::new(reports)));
    Some((recorder, classified))
}

#[test]
fn a_program_without_a_main_loop_has_no_hang_when_the_recorder_ends() {
    let root = tempfile::tempdir().unwrap();
    let Some(reports) = reports() else { return };
    let source = ThreadSource::Kernel(Box::new(reports));
    let recorder = TestRecorder::start_with(&root, source);
    let program = Interactive::start_with(&root, "never");
    // Files of its first thread are open as long as it is followed.
    let of_program = format!("/proc/{}/", program.child.id());
    until("the program to be followed", || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        open.any(|target| target.to_string_lossy().starts_with(&of_program)).then_some(())
    });
    // Once in its short wait, and in the long one after it: each begins with a switch.
    let status = format!("/proc/{}/status", program.child.id());
    let switches = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = switches();
    until("the program to wait in both ways", || (switches() > before + 2).then_some(()));
    recorder.end();
    assert_eq!(program.last_hang(&root), None);
}

#[test]
fn a_program_at_rest_has_no_hang_and_wakes_nobody() {
    let root = tempfile::tempdir().unwrap();
    let mut program = Interactive::start(&root);
    let Some((recorder, _)) = start_for(&root, &program, None) else { return };
    program.be_noticed(&root);
    program.mark_now();
    let since_ns = program.ordered_ns;
    // Without reports there are the count of time, once a second, and what a search takes.
    until("six wake-ups that take three seconds", || recorder.wakes_rarely(6));
    assert_eq!(hangs_since(&root, &program, since_ns), []);
    // What ends the rest is seen nevertheless.
    program.order(b's');
    program.ended_hang(&root);
}

/// Starts a program and, once it is in the wait of its main loop, a recorder; waits until the place of the wait is classified.
fn start_beside_one_at_rest(root: &TempDir) -> Option<(TestRecorder, Interactive)> {
    let mut program = Interactive::start_with(root, "poll");
    program.order(b'b');
    program.wait_until_at_rest();
    let (recorder, classified) = start_for(root, &program, None)?;
    until("the wait to be classified", || classified.load(Ordering::Relaxed).then_some(()));
    Some((recorder, program))
}

#[test]
fn a_program_that_waits_when_it_is_found_has_its_first_hang_recorded() {
    let root = tempfile::tempdir().unwrap();
    // It is in the wait since before it was marked.
    let Some((_recorder, mut program)) = start_beside_one_at_rest(&root) else { return };
    program.order(b's');
    let hang = program.ended_hang(&root);
    assert_eq!(&*blamed(&hang), "sleep_on_purpose", "{hang:?}");
}

/// Returns for how long programs of this name were watched.
fn watched_ns(root: &TempDir) -> u64 {
    let periods = stored(root).periods;
    let programs = periods.iter().flat_map(|period| &period.programs);
    programs.filter(|of| of.program == super::recorder::NAME).map(|of| of.watched_ns).sum()
}

#[test]
fn a_program_that_rests_all_the_time_is_watched() {
    let root = tempfile::tempdir().unwrap();
    let Some((recorder, _program)) = start_beside_one_at_rest(&root) else { return };
    recorder.end();
    assert!(watched_ns(&root) > 0);
}

#[test]
fn a_program_is_watched_also_in_the_rest_in_which_it_was_found() {
    let root = tempfile::tempdir().unwrap();
    let Some((recorder, mut program)) = start_beside_one_at_rest(&root) else { return };
    let found_ns = sys::bpf::clock_ns();
    let looks = recorder.waits();
    until("two looks of the recorder", || (recorder.waits() >= looks + 2).then_some(()));
    let rested_ns = sys::bpf::clock_ns() - found_ns;
    program.order(b'b');
    program.wait_until_at_rest();
    recorder.end();
    assert!(watched_ns(&root) >= rested_ns, "{rested_ns}");
}

#[test]
fn a_program_that_executes_another_one_is_followed_anew() {
    let root = tempfile::tempdir().unwrap();
    let Some((_recorder, mut program)) = start(&root, "poll") else { return };
    program.begin(b'x');
    program.accept_again();
    program.mark_now();
    until("the new program to be followed", || {
        let begun_ns = program.ordered_ns;
        program.order(b's');
        program.last_hang(&root).filter(|hang| middle_ns(hang) > begun_ns)
    });
    program.order(b'r');
    let hang = program.ended_hang(&root);
    assert_eq!(&*blamed(&hang), "wait_for_reply", "{hang:?}");
}

#[test]
fn two_recorders_see_the_same_hang() {
    let root = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let Some((_first, mut program)) = start(&root, "poll") else { return };
    let _second =
        TestRecorder::start_with(&other, ThreadSource::Kernel(Box::new(reports().unwrap())));
    until("the other recorder to follow the program", || {
        program.order(b's');
        program.last_hang(&other)
    });
    program.order(b'r');
    let hang = program.ended_hang(&root);
    let again = program.ended_hang(&other);
    assert_eq!((hang.cause, again.cause), (HangCause::OtherProgram, HangCause::OtherProgram));
    // Each sees the moments at which its own programs run.
    assert!(hang.length_ns.abs_diff(again.length_ns) < hang.length_ns / 10, "{hang:?} {again:?}");
}

#[test]
fn a_process_that_may_not_load_programs_is_told_so() {
    use rustix::thread::CapabilitySet;
    // Capabilities are those of a thread.
    let refused = std::thread::spawn(|| {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        let taken = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
        sets.effective.remove(taken);
        rustix::thread::set_capabilities(None, sets).unwrap();
        HangPrograms::load(0).map(|_| ())
    });
    let error = refused.join().unwrap().unwrap_err();
    assert!(matches!(error, sys::bpf::LoadError::NotAllowed(_)), "{error:?}");
    assert!(error.to_string().contains("CAP_BPF and CAP_PERFMON"), "{error}");
}
