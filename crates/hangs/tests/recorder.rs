//! The recorder that samples beside a program that hangs in known ways, and what the other one's tests need, too.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use sys::clock::{Clock, SystemClock};
use tempfile::TempDir;
use trace::stack::names::SymbolSources;
use unjank_hangs::model::{Hang, HangCause, UnseenParts};
use unjank_hangs::recorder::{
    RecorderError, RecorderOptions, RecorderSummary, ThreadSource, record,
};
use unjank_hangs::store::{DEFAULT_LIMIT, StoredHistory, read};

/// Nothing here takes longer, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name of the program. Other tests run it at the same time, so that hangs are told apart by their process.
pub(crate) const NAME: &str = "unjank-hang-test";

pub(crate) fn store_of(root: &TempDir) -> PathBuf {
    root.path().join("hangs")
}

pub(crate) fn stored(root: &TempDir) -> StoredHistory {
    read(&*store::disk::real(), &store_of(root)).unwrap_or_default()
}

/// Waits until `found` returns something.
pub(crate) fn until<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    until_or_say(what, String::new, found)
}

/// Waits until `found` returns something; says what is `known` if it does not.
fn until_or_say<T>(
    what: &str,
    known: impl Fn() -> String,
    mut found: impl FnMut() -> Option<T>,
) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for {what} {}", known());
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn options(dir: &Path) -> RecorderOptions {
    RecorderOptions {
        dir: dir.to_owned(),
        limit_bytes: DEFAULT_LIMIT,
        named: Vec::new(),
        excluded: None,
        sources: SymbolSources::default(),
    }
}

/// A recorder in a thread.
pub(crate) struct TestRecorder {
    stop: Arc<AtomicBool>,
    /// The number of the thread that looks.
    looker: Pid,
    thread: Option<JoinHandle<Result<RecorderSummary, RecorderError>>>,
}

impl TestRecorder {
    pub(crate) fn start(root: &TempDir) -> TestRecorder {
        TestRecorder::start_with(root, ThreadSource::Sampling)
    }

    pub(crate) fn start_with(root: &TempDir, source: ThreadSource) -> TestRecorder {
        TestRecorder::start_by(root, source, Arc::new(SystemClock::start()))
    }

    #[expect(clippy::print_stderr, reason = "whoever waits for a recorder that has ended sees why")]
    pub(crate) fn start_by(
        root: &TempDir,
        source: ThreadSource,
        clock: Arc<dyn Clock>,
    ) -> TestRecorder {
        let stop = Arc::new(AtomicBool::new(false));
        let options = options(&store_of(root));
        let flag = Arc::clone(&stop);
        let (looker, number) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            looker.send(rustix::thread::gettid()).unwrap();
            let disk = store::disk::real();
            let ended = record(&options, source, &disk, &*clock, &flag, &mut |_| {});
            ended.inspect_err(|error| eprintln!("the recorder has ended: {error:?}"))
        });
        TestRecorder { stop, looker: number.recv().unwrap(), thread: Some(thread) }
    }

    /// Returns how often the thread that looks has waited for something.
    pub(crate) fn waits(&self) -> u64 {
        let status = format!("/proc/self/task/{}/status", self.looker.as_raw_nonzero());
        let status = fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    /// Waits until the thread that looks has woken up so often; returns something if that took three seconds or longer.
    pub(crate) fn wakes_rarely(&self, count: u64) -> Option<()> {
        let (before, begin) = (self.waits(), Instant::now());
        until("wake-ups of the recorder", || (self.waits() >= before + count).then_some(()));
        (begin.elapsed() >= Duration::from_secs(3)).then_some(())
    }

    pub(crate) fn end(mut self) -> RecorderSummary {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

impl Drop for TestRecorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The program, and the display that it is connected to.
pub(crate) struct Interactive {
    pub(crate) child: Child,
    listener: UnixListener,
    display: UnixStream,
    pub(crate) lock: PathBuf,
    /// Whether its main loop sleeps and looks for events.
    sleeps: bool,
    /// When the last command was given, in nanoseconds since 1970.
    pub(crate) ordered_ns: u64,
}

fn accept(listener: &UnixListener) -> UnixStream {
    let (display, _) = listener.accept().unwrap();
    display.set_read_timeout(Some(PATIENCE)).unwrap();
    display
}

impl Interactive {
    pub(crate) fn start(root: &TempDir) -> Interactive {
        Interactive::start_with(root, "poll")
    }

    /// Starts the program; its main loop waits with `poll`, `select` or `epoll`, `behind` an epoll descriptor that
    /// it polls, `futex`, a condition, or `sleep`: it sleeps and looks for events in turns; or `never`: it has none. `poll late`: when it
    /// starts it looks for events and never waits, for six seconds.
    pub(crate) fn start_with(root: &TempDir, wait: &str) -> Interactive {
        Interactive::start_built(root, wait, &["-g", "-O1"])
    }

    /// Starts the program, compiled with these arguments.
    pub(crate) fn start_built(root: &TempDir, wait: &str, arguments: &[&str]) -> Interactive {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interactive/program.c");
        let program = root.path().join(NAME);
        let built = Command::new("cc").args(arguments).arg("-o").arg(&program).arg(source).status();
        assert!(built.unwrap().success(), "the program cannot be compiled");
        let socket = root.path().join("wayland-7");
        let listener = UnixListener::bind(&socket).unwrap();
        let lock = root.path().join("held");
        let child = Command::new(&program).arg(&socket).arg(&lock).arg(wait).spawn().unwrap();
        let display = accept(&listener);
        let sleeps = wait == "sleep";
        Interactive { child, listener, display, lock, sleeps, ordered_ns: 0 }
    }

    /// Takes the connection of the program that the program executed.
    pub(crate) fn accept_again(&mut self) {
        self.display = accept(&self.listener);
    }

    /// Has the program do something once it is at rest, and waits until it is done.
    ///
    /// A program that finds the next command before it rests is away from its main loop for both, which is one hang.
    pub(crate) fn order(&mut self, command: u8) {
        self.wait_until_at_rest();
        self.begin(command);
        self.finished();
    }

    /// Has the program do something, whether it is at rest or not.
    pub(crate) fn begin(&mut self, command: u8) {
        self.mark_now();
        self.display.write_all(&[command]).unwrap();
    }

    /// Waits until the program is in the wait of its main loop.
    pub(crate) fn wait_until_at_rest(&self) {
        let path = format!("/proc/{}/wchan", self.child.id());
        until("the program to wait", || {
            let function = fs::read_to_string(&path).unwrap();
            let is_rest = |name: &&str| function.contains(*name);
            let waits = ["poll", "select", "futex"].iter().any(is_rest);
            (waits || self.sleeps && function.contains("nanosleep")).then_some(())
        });
    }

    /// Tells the hangs that come from those that were: the recorder stores a hang some time after it has ended.
    pub(crate) fn mark_now(&mut self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        self.ordered_ns = now.as_nanos().try_into().unwrap();
    }

    pub(crate) fn finished(&mut self) {
        self.display.read_exact(&mut [0]).unwrap();
    }

    /// Keeps the program busy for moments until the recorder has seen its main loop.
    /// A hang is left that is stored later, as happens on a loaded machine.
    pub(crate) fn be_noticed(&mut self, root: &TempDir) {
        until("the recorder to follow the program", || {
            let seen = self.last_hang(root);
            self.order(b's');
            seen
        });
        self.wait_until_at_rest();
    }

    pub(crate) fn last_hang(&self, root: &TempDir) -> Option<Hang> {
        let hangs = stored(root).hangs.into_values();
        let last = hangs.into_iter().rfind(|hang| hang.process == self.child.id())?;
        assert_eq!(last.program, NAME);
        Some(last)
    }

    /// Returns the hang of the last command, if it is stored; it may go on.
    ///
    /// Its ends are known to within some milliseconds; its middle is after the command for certain.
    pub(crate) fn hang_of_order(&self, root: &TempDir) -> Option<Hang> {
        self.last_hang(root).filter(|hang| middle_ns(hang) > self.ordered_ns)
    }

    /// Returns the hang of the last command once it has ended.
    pub(crate) fn ended_hang(&self, root: &TempDir) -> Hang {
        let known = || format!("{:#?}", self.last_hang(root));
        until_or_say("the hang of the last command", known, || {
            self.hang_of_order(root).filter(|hang| !hang.goes_on)
        })
    }

    /// Has the program wait for a lock that this process holds until a hang that goes on is stored; returns it when it has ended.
    pub(crate) fn hang_of_lock(&mut self, root: &TempDir) -> Hang {
        self.hang_of_lock_while(root, &mut || {})
    }

    /// The same, and does something again and again meanwhile.
    pub(crate) fn hang_of_lock_while(&mut self, root: &TempDir, act: &mut dyn FnMut()) -> Hang {
        let held = File::create(&self.lock).unwrap();
        held.lock().unwrap();
        self.wait_until_at_rest();
        self.begin(b'l');
        self.wait_until_it_goes_on(root, act);
        drop(held);
        self.finished();
        let hang = self.ended_hang(root);
        assert_eq!((hang.cause, &*blamed(&hang)), (HangCause::Lock, "lock_file"), "{hang:?}");
        assert_eq!(hang.object().unwrap().name, self.lock.to_str().unwrap());
        hang
    }

    /// Stops the program until a hang that goes on is stored; returns it when it has ended.
    pub(crate) fn hang_of_stop(&mut self, root: &TempDir) -> Hang {
        let process = Pid::from_child(&self.child);
        self.wait_until_at_rest();
        self.mark_now();
        kill_process(process, Signal::STOP).unwrap();
        self.wait_until_it_goes_on(root, &mut || {});
        kill_process(process, Signal::CONT).unwrap();
        let hang = self.ended_hang(root);
        assert_eq!(hang.cause, HangCause::Stopped, "{hang:?}");
        hang
    }

    fn wait_until_it_goes_on(&self, root: &TempDir, act: &mut dyn FnMut()) {
        until("a hang that goes on to be stored", || {
            act();
            self.hang_of_order(root).filter(|hang| hang.goes_on)
        });
    }
}

impl Drop for Interactive {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn middle_ns(hang: &Hang) -> u64 {
    hang.started_ns + hang.length_ns / 2
}

pub(crate) fn blamed(hang: &Hang) -> String {
    hang.blamed_frame().map(|frame| frame.function.clone()).unwrap_or_default()
}

#[test]
fn each_way_to_hang_is_recorded_with_its_cause_and_its_function() {
    let root = tempfile::tempdir().unwrap();
    let recorder = TestRecorder::start(&root);
    let mut program = Interactive::start(&root);
    program.be_noticed(&root);
    for (order, cause, function) in [
        (b's', HangCause::Sleep, "sleep_on_purpose"),
        (b'n', HangCause::Sleep, "nap_in_select"),
        (b'r', HangCause::OtherProgram, "wait_for_reply"),
        (b'N', HangCause::Sleep, "nap_in_poll"),
    ] {
        program.order(order);
        let hang = program.ended_hang(&root);
        assert_eq!((hang.cause, &*blamed(&hang)), (cause, function), "{hang:?}");
        assert!(hang.length_ns + hang.uncertain_ns >= 380_000_000, "{hang:?}");
        let sum: u64 = hang.parts.named().iter().map(|(_, part)| part).sum();
        assert!(
            sum.abs_diff(hang.length_ns) <= hang.length_ns / 20,
            "the parts are all of it: {hang:?}"
        );
    }
    let hang = program.hang_of_lock(&root);
    assert!(hang.length_ns >= 900_000_000, "{hang:?}");
    // Stopped in the wait of its main loop, where it looks as if it waited.
    program.hang_of_stop(&root);
    let summary = recorder.end();
    assert!(summary.hangs >= 6, "{summary:?}");
    let periods = stored(&root).periods;
    assert!(periods.iter().any(|period| {
        period.programs.iter().any(|steps| steps.program == NAME && steps.watched_ns > 0)
    }));
}

/// Has programs with frame pointers wait, which `/proc/PID/syscall` does not tell.
pub(crate) fn check_frame_pointers(root: &TempDir) {
    let optimised = ["-g", "-O2", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"];
    for arguments in [&optimised[..], &["-g", "-O0"]] {
        let mut program = Interactive::start_built(root, "poll", arguments);
        program.be_noticed(root);
        program.order(b's');
        let hang = program.ended_hang(root);
        assert_eq!(&*blamed(&hang), "sleep_on_purpose", "{arguments:?} {hang:?}");
        assert!(hang.frames.iter().any(|frame| frame.function == "main"), "{hang:?}");
        assert!(!hang.unseen.has(UnseenParts::STACK), "{hang:?}");
        drop(program);
        fs::remove_file(root.path().join("wayland-7")).unwrap();
    }
}

#[test]
fn by_sampling_the_function_of_a_program_with_frame_pointers_is_told() {
    let root = tempfile::tempdir().unwrap();
    let _recorder = TestRecorder::start(&root);
    check_frame_pointers(&root);
}

#[test]
fn a_program_that_computes_is_told_from_one_that_waits() {
    let root = tempfile::tempdir().unwrap();
    let _recorder = TestRecorder::start(&root);
    let mut program = Interactive::start(&root);
    program.be_noticed(&root);
    program.order(b'c');
    let hang = program.ended_hang(&root);
    // On a loaded machine it may wait for the processor longer than it has it.
    let ran = hang.parts.processor_ns + hang.parts.ready_ns;
    assert!(ran * 10 >= hang.length_ns * 8, "{hang:?}");
    let may_sample = sys::perf::ThreadSampler::open(program.child.id(), Duration::from_millis(5));
    if may_sample.is_ok() && hang.cause == HangCause::Computing {
        assert!(hang.frames.iter().any(|frame| frame.function == "compute_things"), "{hang:?}");
    }
}

#[test]
fn a_hang_in_which_the_program_is_killed_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let _recorder = TestRecorder::start(&root);
    let mut program = Interactive::start(&root);
    program.be_noticed(&root);
    let held = File::create(&program.lock).unwrap();
    held.lock().unwrap();
    program.begin(b'l');
    until("a hang that goes on", || program.hang_of_order(&root));
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let hang = program.ended_hang(&root);
    assert_eq!((hang.cause, &*blamed(&hang)), (HangCause::Lock, "lock_file"), "{hang:?}");
}

#[test]
fn a_dialog_whose_waits_are_all_short_is_no_hang() {
    let root = tempfile::tempdir().unwrap();
    let _recorder = TestRecorder::start(&root);
    let mut program = Interactive::start(&root);
    program.be_noticed(&root);
    program.mark_now();
    let since_ns = program.ordered_ns;
    program.order(b'a');
    // Hangs are stored in their order.
    program.order(b's');
    program.ended_hang(&root);
    let of_it = |hang: &Hang| hang.process == program.child.id() && middle_ns(hang) > since_ns;
    let hangs: Vec<Hang> = stored(&root).hangs.into_values().filter(of_it).collect();
    let of_dialog = hangs.iter().filter(|hang| blamed(hang) != "sleep_on_purpose");
    let lengths: Vec<u64> = of_dialog.map(|hang| hang.length_ns / 1_000_000).collect();
    // On a busy machine the first looks at it may be late.
    assert!(lengths.iter().all(|ms| *ms < 500), "{lengths:?}");
}

#[test]
fn a_program_at_rest_has_no_hang() {
    let root = tempfile::tempdir().unwrap();
    let recorder = TestRecorder::start(&root);
    let mut program = Interactive::start(&root);
    program.be_noticed(&root);
    program.mark_now();
    let rest_ns = program.ordered_ns;
    // Steps that are too short for a hang, with rests in between.
    for _ in 0..20 {
        program.order(b'b');
    }
    recorder.end();
    let hangs = stored(&root).hangs;
    // On a loaded machine a step of 20 ms may take 100 ms; then it was ready, or on a processor.
    for hang in hangs
        .values()
        .filter(|hang| hang.process == program.child.id() && middle_ns(hang) > rest_ns)
    {
        assert!(hang.parts.ready_ns + hang.parts.processor_ns > 30_000_000, "{hang:?}");
    }
    fs::remove_dir_all(store_of(&root)).unwrap();
}

#[test]
fn a_program_that_starts_its_first_thread_later_is_at_rest_in_the_same_loop() {
    let root = tempfile::tempdir().unwrap();
    let recorder = TestRecorder::start(&root);
    // The display is not among what is polled: the loop is known by its depth on the stack alone.
    let mut program = Interactive::start_with(&root, "behind");
    program.be_noticed(&root);
    // Long enough for its loop to be looked at.
    std::thread::sleep(Duration::from_secs(1));
    program.order(b't');
    // Two hangs with a rest between them, and none that takes the rest for a part of it.
    for _ in 0..2 {
        program.wait_until_at_rest();
        std::thread::sleep(Duration::from_millis(300));
        program.order(b's');
        let hang = program.ended_hang(&root);
        assert_eq!((hang.cause, &*blamed(&hang)), (HangCause::Sleep, "sleep_on_purpose"));
        let rested_ns = program.ordered_ns.saturating_sub(hang.started_ns);
        assert!(rested_ns < 200_000_000, "the rest before it is a part of it: {hang:?}");
    }
    recorder.end();
}

#[test]
fn a_program_at_rest_wakes_nobody() {
    let sampled = sys::perf::SwitchEvents::open(std::process::id());
    if sampled.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) {
        eprintln!("not tested: kernel.perf_event_paranoid forbids it");
        return;
    }
    let root = TempDir::new().unwrap();
    let recorder = TestRecorder::start(&root);
    let mut program = Interactive::start(&root);
    program.be_noticed(&root);
    // Looks at a program that rests would be 60 in three seconds; without them there are a search and the count of time.
    until("12 wake-ups that take three seconds", || recorder.wakes_rarely(12));
    // What ends the rest is seen nevertheless.
    program.order(b's');
    program.ended_hang(&root);
    recorder.end();
}
