//! A tracer asks no file system that may not answer, or that waits for the tracer itself.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "what cannot be set up fails the test"
)]

use crate::fuse::{HangingMount, LOOKUP, Server};
use crate::waiting;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use sys::mounts::Mounts;
use unjank_trace::backend::{self, ProgramToStart, TraceOptions, TraceTarget};
use unjank_trace::place::{ContextLookup, CopiedCall, SyscallContext};
use unjank_trace::recorder::TraceRecorder;
use unjank_trace::recording::{Backend, Exit, Recording, Target};
use unjank_trace::syscall::call_number;
use unjank_trace::syscall_set::Set;

/// How long something may take on a busy machine that waits for nobody.
const LONG: Duration = Duration::from_secs(100);

/// Has a thread do something that may hang until the mount is gone.
fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let _ = tell.send(work());
    });
    told
}

/// Follows a link as the program did that is traced, until the kernel has nothing more to write down about it.
fn use_link(link: &Path) {
    let mounts = Mounts::read().unwrap();
    let is_noted = || {
        let stat = std::fs::symlink_metadata(link).unwrap();
        (stat.atime(), stat.atime_nsec()) > (stat.ctime(), stat.ctime_nsec())
    };
    while !is_noted() && !mounts.above(link).unwrap().has("noatime") {
        std::fs::read_link(link).unwrap();
        waiting::pause();
    }
}

fn mount_of(recording: &Recording, target: &Target) -> (Vec<u8>, String) {
    let Target::File { mount, .. } = target else { panic!("no file: {target:?}") };
    let mount = &recording.mounts[usize::try_from(mount.unwrap()).unwrap()];
    (mount.point.clone(), mount.kind.clone())
}

#[test]
fn the_mount_of_a_path_is_known_although_its_server_does_not_answer() {
    let dir = tempfile::tempdir().unwrap();
    let Some(stuck) = HangingMount::make(Server::NeverAnswers) else { return };
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(stuck.path(), &link).unwrap();
    let point = stuck.path().as_os_str().as_bytes().to_vec();
    use_link(&link);
    for path in [stuck.path().join("a"), stuck.path().join("a/b/c"), link.join("a"), link] {
        let of = path.as_os_str().as_bytes().to_vec();
        let found = beside(move || {
            let mut recorder =
                TraceRecorder::new(Backend::Peek, Vec::new(), SystemTime::UNIX_EPOCH);
            let (mut places, own) = (ContextLookup::new(), std::process::id());
            let mut text = of.clone();
            text.push(0);
            let mut arguments = [0; 6];
            arguments[0] = text.as_ptr() as u64;
            let number = call_number("stat").unwrap();
            let made =
                SyscallContext { process: own, thread: own, number, arguments, returned: None };
            let copied = CopiedCall {
                made,
                first_path: Some(&of),
                second_path: None,
                polled: None,
                memory: &[],
                sets: None,
                root_mount: 0,
                link: None,
                is_opened: false,
                socket: None,
                mount: None,
            };
            let found =
                [places.target(&made, &mut recorder), places.recorded(&copied, &mut recorder)];
            found.map(|found| {
                let recording = recorder.recording();
                let target = &recording.targets[usize::try_from(found.unwrap().0).unwrap()];
                mount_of(recording, target)
            })
        });
        let found = found.recv_timeout(LONG).expect("the server was asked");
        for found in found {
            assert_eq!(found, (point.clone(), "fuse".to_owned()), "{}", path.display());
        }
    }
}

/// A program that hangs in a page fault of one thread and in giving that memory back in the other, with the lock of its memory held.
struct StuckProcess {
    /// It is cut off first, which frees the process.
    mount: Option<HangingMount>,
    process: Child,
    _dir: tempfile::TempDir,
}

impl StuckProcess {
    /// Starts it; `None` where it cannot be made to hang.
    fn start() -> Option<StuckProcess> {
        let mount = HangingMount::make(Server::DiesWhenTold)?;
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("stuck");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../unjank/tests/fixture/stuck.c");
        let mut cc = Command::new("cc");
        assert!(cc.args(["-pthread", "-o"]).args([&program, &source]).status().unwrap().success());
        let mut command = Command::new(&program);
        command.arg(mount.file()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = command.spawn().unwrap();
        let mut stuck = StuckProcess { mount: Some(mount), process, _dir: dir };
        let mut lines = BufReader::new(stuck.process.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "mapped");
        stuck.mount.as_ref().unwrap().die();
        stuck.process.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "hangs");
        let stat = format!("/proc/{}/stat", stuck.process.id());
        while !std::fs::read_to_string(&stat).unwrap().contains(") D ") {
            waiting::pause();
        }
        Some(stuck)
    }
}

impl Drop for StuckProcess {
    fn drop(&mut self) {
        drop(self.mount.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_process_that_hangs_with_the_lock_of_its_memory_held_is_named_without_its_words() {
    let Some(stuck) = StuckProcess::start() else { return };
    let id = stuck.process.id();
    let read = beside(move || wakeups::ProgramFacts::read(id));
    let facts = read.recv_timeout(LONG).expect("its command line was waited for");
    assert!(facts.executable.ends_with(b"/stuck"), "{facts:?}");
    assert!(facts.command.is_empty() && facts.user.is_some(), "{facts:?}");
}

#[test]
fn a_recording_of_a_process_that_hangs_with_the_lock_of_its_memory_held_ends() {
    if !backend::bpf::is_allowed() {
        return crate::skip("no programs can be loaded into this kernel");
    }
    let Some(stuck) = StuckProcess::start() else { return };
    let id = stuck.process.id();
    let mut options = TraceOptions::new(TraceTarget::Attach(id), Set::all());
    options.threshold = Duration::ZERO;
    options.backend = Some(Backend::Bpf);
    let recorded = beside(move || backend::run(&options, &Arc::new(AtomicBool::new(true))));
    let outcome = recorded.recv_timeout(LONG).expect("its memory was waited for").unwrap();
    let calls = outcome.recording.slow.iter();
    let waits = calls.filter(|call| call.number == call_number("munmap").unwrap());
    assert_eq!(waits.count(), 1, "{:?}", outcome.recording.slow);
}

#[test]
fn a_recording_ends_while_the_program_waits_for_a_server_that_does_not_answer() {
    for backend in [Backend::Seccomp, Backend::Ptrace, Backend::Bpf] {
        if backend == Backend::Bpf && !backend::bpf::is_allowed() {
            crate::skip("no programs can be loaded into this kernel");
            continue;
        }
        let Some(stuck) = HangingMount::make(Server::NeverAnswers) else { return };
        let file = stuck.path().join("file");
        let arguments = ["stat".into(), file.clone().into_os_string()].to_vec();
        let command = ProgramToStart { arguments, ..ProgramToStart::default() };
        let mut options = TraceOptions::new(TraceTarget::Run(command), Set::all());
        options.backend = Some(backend);
        let stop = Arc::new(AtomicBool::new(false));
        let ask_to_stop = Arc::clone(&stop);
        let recorded = beside(move || backend::run(&options, &stop).unwrap());
        stuck.wait_for(LOOKUP);
        ask_to_stop.store(true, Ordering::Relaxed);
        let outcome = recorded.recv_timeout(LONG).expect("the tracer waits for the server");
        let recording = outcome.recording;
        let is_meant = |target: &&Target| matches!(target, Target::File { path, .. } if path == file.as_os_str().as_bytes());
        let target = recording.targets.iter().find(is_meant).expect("the call that waits");
        let point = stuck.path().as_os_str().as_bytes().to_vec();
        assert_eq!(mount_of(&recording, target), (point, "fuse".to_owned()), "{backend:?}");
        // The program gets an error, and ends.
        drop(stuck);
        assert_eq!(outcome.rest.unwrap().wait(), Some(Exit::Code(1)), "{backend:?}");
    }
}
