//! Files on a disk that does not answer: what is on others is still told.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a program that cannot be built or started fails the test"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use slowdisk::{DiskProfile, ModelDisk};
use sys::clock::Clock;
use sys::file_worker::FileWorker;
use unjank_trace::recording::StackEnd;
use unjank_trace::stack::Unwinder;
use unjank_trace::stack::names::{Frame, NameCertainty, Names, SymbolSources};

use crate::trace_stacks::{READ, recorder, stack_of, tool};
use crate::waiting::{Waiting, build, pause};

/// How long one file may take: a busy machine reads those of other disks in a tenth of that.
const LIMIT: Duration = Duration::from_secs(5);

/// A clock that stands still unless it is set: no request of a disk that goes by it is over before.
#[derive(Debug, Default)]
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

/// A disk whose requests take a second by a clock that stands still.
///
/// Nobody can end a process that waits for a disk of its own. After a minute the clock goes on, and the test fails.
struct StuckDisk {
    disk: ModelDisk,
    clock: Arc<SetClock>,
    _answered: Sender<()>,
    was_waited_for: Arc<AtomicBool>,
    _directory: tempfile::TempDir,
}

impl StuckDisk {
    fn make() -> StuckDisk {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(SetClock::default());
        let second = Duration::from_secs(1);
        let profile = DiskProfile { command: second, ..DiskProfile::named("ssd").unwrap() };
        let of_disk: Arc<dyn Clock> = Arc::<SetClock>::clone(&clock);
        let disk = ModelDisk::make(profile, 64 << 20, directory.path(), of_disk).unwrap();
        let (answered, is_answered) = channel::<()>();
        let was_waited_for = Arc::new(AtomicBool::new(false));
        let (late, of_late) = (Arc::clone(&was_waited_for), Arc::clone(&clock));
        std::thread::spawn(move || {
            let mut rest = Duration::from_secs(60);
            while is_answered.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
                late.store(true, Ordering::Relaxed);
                of_late.0.fetch_add(3600, Ordering::Relaxed);
                rest = second;
            }
        });
        StuckDisk { disk, clock, _answered: answered, was_waited_for, _directory: directory }
    }

    /// Forgets what memory has of its files, and answers no more, while the journal of the file system writes the times of `path`.
    fn stop(&self, path: &Path) -> JoinHandle<()> {
        rustix::fs::sync();
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let file = fs::File::open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        self.disk.set_delays(true);
        let (begun, begins) = channel();
        let synced = std::thread::spawn(move || {
            begun.send(rustix::thread::gettid()).unwrap();
            file.sync_all().unwrap();
        });
        let thread = begins.recv().unwrap();
        let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
        while !fs::read_to_string(&stat).unwrap().contains(") D ") {
            pause();
        }
        synced
    }

    fn answer(&self) {
        self.disk.set_delays(false);
        self.clock.0.fetch_add(3600, Ordering::Relaxed);
    }
}

impl Drop for StuckDisk {
    fn drop(&mut self) {
        // Else nobody could take it away.
        self.answer();
    }
}

fn sources(debug: &Path) -> SymbolSources {
    SymbolSources {
        debug_directories: vec![debug.to_owned()],
        compiled: None,
        ..SymbolSources::default()
    }
}

#[test]
fn of_a_disk_that_does_not_answer_names_are_missing_and_nobody_waits_for_it() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: not root");
        eprintln!("SKIPPED: mounting needs root");
        return;
    }
    // Its mounts are this thread's own.
    std::thread::spawn(on_a_stuck_disk).join().unwrap();
}

fn on_a_stuck_disk() {
    let local = tempfile::tempdir().unwrap();
    let stuck = StuckDisk::make();
    let id = "-Wl,--build-id=0x00112233445566";
    let full = build(local.path(), "chain.c", &["-O2", "-g", id]);
    let stripped = local.path().join("stripped");
    tool("strip", &["-o".as_ref(), stripped.as_ref(), full.as_ref()]);
    let by_id = stuck.disk.path().join(".build-id/00");
    fs::create_dir_all(&by_id).unwrap();
    let debug = by_id.join("112233445566.debug");
    tool("objcopy", &["--only-keep-debug".as_ref(), full.as_ref(), debug.as_ref()]);
    let on_disk = stuck.disk.path().join("program");
    fs::copy(&full, &on_disk).unwrap();

    let programs = [&stripped, &on_disk].map(|program| {
        let (waiting, registers) = Waiting::start(&mut Command::new(program), READ);
        let mut recorder = recorder();
        let stack = stack_of(waiting.id(), &registers, &mut recorder);
        (waiting, registers, recorder.recording().clone(), stack)
    });
    let named = |names: &mut Names| {
        programs
            .each_ref()
            .map(|(waiting, _, recording, stack)| names.frames(recording, waiting.id(), stack))
    };
    let synced = stuck.stop(&on_disk);
    // Without the tables of its file the callers of its function are not known.
    let (waiting, registers, ..) = &programs[1];
    let worker = FileWorker::new(LIMIT);
    let mut unwinder = Unwinder::with_worker(worker.clone());
    let mut in_memory = recorder();
    let id = unwinder.capture(waiting.id(), registers, &mut in_memory);
    let stack = &in_memory.recording().stacks[usize::try_from(id.0).unwrap()];
    assert_eq!((stack.frames.len(), stack.end), (2, StackEnd::Lost), "{stack:?}");
    let sources = || sources(&stuck.disk.path());
    let mut names = Names::with_worker(sources(), worker);
    let [of_stripped, of_disk] = named(&mut names);
    for frames in [&of_stripped, &of_disk] {
        assert_eq!(frames[0].name, "read", "another file: {frames:?}");
    }
    // What its own file says is told; of the one on the disk no more than where in it.
    assert!(of_stripped[1].name.starts_with("fn@"), "{of_stripped:?}");
    assert_eq!(of_disk[1].trust, NameCertainty::Offset, "{of_disk:?}");
    assert!(!stuck.was_waited_for.load(Ordering::Relaxed), "the disk was waited for");
    stuck.answer();
    let expected = ["inner", "middle", "outer", "main"];
    let is_named = |frames: &[Frame]| {
        let told = frames.iter().skip(1).zip(expected);
        told.into_iter().all(|(frame, name)| frame.name == name)
    };
    // The same ones read it as soon as it answers.
    while !is_named(&named(&mut names)[1]) {
        pause();
    }
    synced.join().unwrap();
    let mut names = Names::new(sources());
    assert!(named(&mut names).iter().all(|frames| is_named(frames)));
}
