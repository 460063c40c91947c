//! Starts the write-back of the job's files in the idle class; the kernel's flusher would write them later in the normal class, before the reads of other programs.
//!
//! Programs with the preload hand over files through a mailbox when they close them. A search finds the files of all others (static programs, privileged ones): open
//! for writing in `/proc/PID/fd`, or closed in a directory where such a file was seen, where such a program works, or that was made in one of those. Write-back has the class of the thread that starts it, so this thread is in the idle class.

mod discovery;
mod file_systems;
mod gathering;
mod mailbox;
mod queue;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use sys::sched::{CpuClass, IoClass};

use self::discovery::OutsideObserver;
use self::gathering::FileCollector;
use self::mailbox::Mailbox;
use self::queue::{Continue, Queue};
use sys::clock::{Clock, SystemClock};

pub use self::mailbox::WAITING;

/// The interval between two searches for open files.
const ROUND: Duration = Duration::from_millis(100);
/// The time limit of a flush.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the threads may take to end. A thread that waits for a disk that does not answer is abandoned.
const LAST: Duration = Duration::from_secs(3);

/// What was done, for the report.
#[derive(Debug, Default)]
pub struct WritebackProgress {
    /// The files that the preload handed over.
    pub handed_over: AtomicU64,
    /// The files that the search found.
    pub found: AtomicU64,
    /// The bytes of both, by the lengths of the files when their write-back was started: an estimate, because parts may have been clean.
    pub bytes: AtomicU64,
    /// Whether the job is held; nothing is started then.
    pub held: AtomicBool,
}

/// The processes of a job.
pub trait JobMembers: Send + Sync + 'static {
    /// Returns the process numbers.
    fn list(&self) -> Vec<u32>;
    /// Returns whether `process` belongs to the job.
    fn contains(&self, process: u32) -> bool;
}

/// The threads: one serves the mailbox, one searches, one writes. Dropping it starts the remaining files and ends the threads.
#[derive(Debug)]
pub struct Writeback {
    /// Closed to end the mailbox and the search; a message on it requests a search at once.
    stop: Option<[OwnedFd; 2]>,
    ended: Receiver<()>,
    progress: Arc<WritebackProgress>,
}

impl Writeback {
    /// Starts the threads. The mailbox, if there is one, serves the programs of `members`. A program without the preload is going to work in `directory`, if it is given.
    ///
    /// # Errors
    ///
    /// The system refuses a descriptor or a thread; threads that were started end.
    pub fn start(
        mailbox: Option<OwnedFd>,
        directory: Option<&Path>,
        members: impl JobMembers,
    ) -> io::Result<Writeback> {
        let progress = Arc::new(WritebackProgress::default());
        let gathering = Arc::new(FileCollector::new()?);
        let members = Arc::new(members);
        let (ended, all_ended) = channel();
        let (stop_finder, finder_stopped) = sys::socket::pair()?;
        let (stop_mailbox, mailbox_stopped) = sys::socket::pair()?;
        let mut outside = OutsideObserver::new(Arc::clone(&gathering), Arc::clone(&progress))?;
        if let Some(directory) = directory {
            outside.watch(directory);
        }
        let found = Arc::clone(&gathering);
        let all = Arc::clone(&members);
        start("found", ended.clone(), move || {
            look(outside, &finder_stopped, &*all);
            found.end();
        })?;
        if let Some(listener) = mailbox {
            let mailbox = Mailbox::new(
                listener,
                move |process| members.contains(process),
                Arc::clone(&gathering),
                Arc::clone(&progress),
            );
            start("mailbox", ended.clone(), move || mailbox.serve(&mailbox_stopped))?;
        }
        let shared = Arc::clone(&progress);
        start("writeback", ended, move || {
            // Some sandboxes refuse this: the bytes are then written in the class that the sandbox permits.
            let _ = IoClass::Idle.set(0);
            let clock = SystemClock::start();
            let mut queue = Queue::new(shared);
            while queue.go(gathering.next(queue.state()), &clock) == Continue::Yes {}
        })?;
        Ok(Writeback { stop: Some([stop_finder, stop_mailbox]), ended: all_ended, progress })
    }

    /// Starts all files, unless the job is held; waits a second at most.
    pub fn flush(&self) {
        let Some([finder, _]) = &self.stop else { return };
        let Ok((ours, theirs)) = sys::socket::pair() else { return };
        let asked = sys::socket::send(finder, b"f", Some(theirs.as_fd()), sys::socket::Full::Fail);
        drop(theirs);
        if asked.is_ok() {
            // A signal ends the wait early, which does no harm.
            let _ = sys::socket::wait_readable(&ours, Some(PATIENCE));
        }
    }

    /// Returns what was done so far.
    #[must_use]
    pub fn progress(&self) -> &WritebackProgress {
        &self.progress
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        drop(self.stop.take());
        // No message comes: the wait ends when the last thread closes its end.
        let _ = self.ended.recv_timeout(LAST);
    }
}

/// Starts a thread with low priority, which drops `ended` when it ends.
fn start(
    name: &'static str,
    ended: Sender<()>,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    sys::thread::spawn(name, move || {
        let _ended = ended;
        // Some sandboxes refuse this.
        let _ = CpuClass::Batch.set(0);
        work();
    })?;
    Ok(())
}

/// Searches for files until the other end of `stopped` is closed, and once more then.
fn look(mut outside: OutsideObserver, stopped: &OwnedFd, members: &impl JobMembers) {
    let clock = SystemClock::start();
    let mut next_round = Duration::ZERO;
    loop {
        let word = wait(&outside, stopped);
        outside.closed();
        if !matches!(word, ObserverRequest::None) || clock.monotonic() >= next_round {
            outside.scan(&members.list());
            next_round = clock.monotonic() + ROUND;
        }
        match word {
            ObserverRequest::None => (),
            ObserverRequest::Flush(asking) => outside.finish(asking),
            ObserverRequest::End => return,
        }
    }
}

/// A message to the searching thread.
enum ObserverRequest {
    None,
    /// Start all files, then close this socket.
    Flush(OwnedFd),
    End,
}

/// Waits for a closed file, the end of the interval or a message.
fn wait(outside: &OutsideObserver, stopped: &OwnedFd) -> ObserverRequest {
    let mut polled =
        [PollFd::new(&outside.inotify, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
    let round = rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(ROUND.subsec_nanos()) };
    // A signal ends the wait early, which does no harm.
    let _ = poll(&mut polled, Some(&round));
    let mut word = [0; 1];
    match sys::socket::receive(stopped, &mut word) {
        Ok(received) if received.length > 0 => {
            received.descriptor.map_or(ObserverRequest::None, ObserverRequest::Flush)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => ObserverRequest::None,
        Ok(_) | Err(_) => ObserverRequest::End,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use std::sync::atomic::Ordering;
    use std::thread;

    use rustix::fs::fstat;

    use super::*;

    /// Some processes.
    struct These(Vec<u32>);

    impl JobMembers for These {
        fn list(&self) -> Vec<u32> {
            self.0.clone()
        }

        fn contains(&self, process: u32) -> bool {
            self.0.contains(&process)
        }
    }

    /// This process, whose files no search covers.
    struct Own;

    impl JobMembers for Own {
        fn list(&self) -> Vec<u32> {
            Vec::new()
        }

        fn contains(&self, process: u32) -> bool {
            process == std::process::id()
        }
    }

    fn mailbox(directory: &tempfile::TempDir) -> (PathBuf, OwnedFd) {
        let path = directory.path().join("mailbox");
        let listener = sys::socket::listen_privately(&path, WAITING).unwrap();
        (path, listener)
    }

    /// Hands a file over as a program does, and returns the last answer.
    fn hand_over(mailbox: &Path, file: &std::fs::File) -> u8 {
        let about = fstat(file).unwrap();
        let mut message = [0; 24];
        message[0] = b'f';
        message[4..8].copy_from_slice(&file.as_raw_fd().to_ne_bytes());
        message[8..16].copy_from_slice(&about.st_dev.to_ne_bytes());
        message[16..].copy_from_slice(&about.st_ino.to_ne_bytes());
        let socket = sys::socket::connect_to(mailbox).unwrap();
        sys::socket::send(&socket, &message, None, sys::socket::Full::Wait).unwrap();
        let mut word = [0];
        let mut last = 0;
        while !b"knx".contains(&last) {
            sys::socket::wait_readable(&socket, None).unwrap();
            if sys::socket::receive(&socket, &mut word).unwrap().length == 0 {
                break;
            }
            last = word[0];
        }
        last
    }

    #[test]
    fn files_of_a_program_without_the_preload_are_found_open_and_closed() {
        let directory = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh")
            .args([
                "-c",
                "exec 3>open; echo something >&3; read line; echo more > closed; read line",
            ])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = shell.id();
        let writeback = Writeback::start(None, None, These(vec![pid])).unwrap();
        let found = || writeback.progress().found.load(Ordering::Relaxed);
        while found() == 0 {
            thread::yield_now();
        }
        let mut stdin = shell.stdin.take().unwrap();
        stdin.write_all(b"\n").unwrap();
        let before = found();
        // Each round finds the open file again; both are found together only if the closing was noticed.
        while writeback.progress().bytes.load(Ordering::Relaxed) == 0 || found() < before + 2 {
            thread::yield_now();
        }
        drop(stdin);
        shell.wait().unwrap();
        assert!(directory.path().join("closed").exists());
    }

    #[test]
    fn a_file_that_is_handed_over_is_started_also_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let (path, mailbox) = mailbox(&directory);
        let writeback = Writeback::start(Some(mailbox), None, Own).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"something").unwrap();
        writeback.progress().held.store(true, Ordering::Relaxed);
        assert_eq!(hand_over(&path, file.as_file()), b'k');
        assert_eq!(writeback.progress().handed_over.load(Ordering::Relaxed), 1);
        assert_eq!(writeback.progress().bytes.load(Ordering::Relaxed), 0, "it is held");
        let progress = Arc::clone(&writeback.progress);
        drop(writeback);
        assert_eq!(progress.bytes.load(Ordering::Relaxed), 9);
    }

    #[test]
    fn a_caller_that_gets_no_processor_for_long_keeps_its_place_unless_others_need_it() {
        let directory = tempfile::tempdir().unwrap();
        let (path, mailbox) = mailbox(&directory);
        let _writeback = Writeback::start(Some(mailbox), None, Own).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"something").unwrap();
        // As many as one process may have; each is silent for longer than it may be where places are needed.
        let connect = |_| sys::socket::connect_to(&path).unwrap();
        let late: Vec<_> = (0..32).map(connect).collect();
        let over = Some(Duration::from_millis(1300));
        assert!(!sys::socket::wait_readable(&late[0], over).unwrap(), "it was disconnected");
        let mut word = [0];
        let last = late.last().unwrap();
        sys::socket::send(last, b"s", None, sys::socket::Full::Wait).unwrap();
        sys::socket::wait_readable(last, None).unwrap();
        assert_eq!(sys::socket::receive(last, &mut word).unwrap().length, 1, "it is answered");
        // One more than may be.
        let _more = connect(0);
        assert_eq!(hand_over(&path, file.as_file()), b'k');
        sys::socket::wait_readable(&late[0], None).unwrap();
        assert_eq!(sys::socket::receive(&late[0], &mut word).unwrap().length, 0);
    }

    #[test]
    fn small_and_large_files_are_started_while_the_job_runs() {
        let directory = tempfile::tempdir().unwrap();
        let (path, mailbox) = mailbox(&directory);
        let writeback = Writeback::start(Some(mailbox), None, Own).unwrap();
        let (mut whole, mut kept) = (0, Vec::new());
        for size in [3_000_000_usize, 9, 100_000, 65_536, 65_537, 2_100_000, 1].repeat(8) {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&vec![b'x'; size]).unwrap();
            assert_eq!(hand_over(&path, file.as_file()), b'k');
            whole += u64::try_from(size).unwrap();
            // A deleted file needs no write-back.
            kept.push(file);
        }
        while writeback.progress().bytes.load(Ordering::Relaxed) < whole {
            thread::yield_now();
        }
        assert_eq!(writeback.progress().bytes.load(Ordering::Relaxed), whole);
        assert_eq!(writeback.progress().handed_over.load(Ordering::Relaxed), 56);
    }

    #[test]
    fn only_what_a_member_has_open_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let (path, mailbox) = mailbox(&directory);
        let writeback = Writeback::start(Some(mailbox), None, Own).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"something").unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(hand_over(&path, &null), b'x', "no regular file");
        assert_eq!(hand_over(&path, file.as_file()), b'k');
        // A message with a wrong inode, an invalid message, and an empty one.
        let about = fstat(&file).unwrap();
        let mut message = [0; 24];
        message[0] = b'f';
        message[4..8].copy_from_slice(&file.as_file().as_raw_fd().to_ne_bytes());
        message[8..16].copy_from_slice(&about.st_dev.to_ne_bytes());
        message[16..].copy_from_slice(&(about.st_ino + 1).to_ne_bytes());
        let mut word = [0; 2];
        for (message, wanted) in [(&message[..], 1), (&message[..7], 0), (&[0; 400], 0), (&[], 0)] {
            let socket = sys::socket::connect_to(&path).unwrap();
            let _ = sys::socket::send(&socket, message, None, sys::socket::Full::Wait);
            assert!(sys::socket::wait_readable(&socket, Some(Duration::from_secs(60))).unwrap());
            let answer = sys::socket::receive(&socket, &mut word).unwrap();
            assert_eq!(answer.length, wanted, "{message:?}");
            assert!(wanted == 0 || word[0] == b'n');
        }
        // Another process of this user that does not belong to the job.
        let connect = "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); s.send(b's'); print(s.recv(9))";
        let output = Command::new("python3").args(["-c", connect]).arg(&path).output();
        match output {
            Ok(output) => {
                let text =
                    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
                assert!(
                    text.starts_with("b''")
                        || text.contains("BrokenPipe")
                        || text.contains("reset"),
                    "{text}"
                );
            }
            Err(error) => eprintln!("SKIPPED: no python3: {error}"),
        }
        assert_eq!(writeback.progress().handed_over.load(Ordering::Relaxed), 1);
    }
}
