//! Writes what the job has written in the idle class: the kernel's own flusher would do it later in the usual class, in front of everybody's reads.
//!
//! Programs with our preload hand over files as they close them, over a mailbox. Files of all others (static programs, those with privileges) are found from outside: open
//! for writing in `/proc/PID/fd`, or closed in a directory where such a file was seen, where such a program works, or that was made in one of those. Whoever starts write-back gives it its class, so this thread is in the idle class.

mod outside;
mod queue;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use sys::sched::{CpuClass, IoClass};

use self::outside::Outside;
use self::queue::{Queue, Woken};
use crate::clock::{Clock, SystemClock};

/// How often open files are looked for from outside.
const ROUND: Duration = Duration::from_millis(100);
/// When no file has come for so long, those that were gathered are started.
const QUIET: Duration = Duration::from_millis(20);
/// How long whoever asks for all that there is waits for it at most.
const PATIENCE: Duration = Duration::from_secs(1);
/// What a message begins with that carries no file: its descriptor is told when all files that came before are on their way.
const TELL: u8 = b's';

/// What was done, for the report and for whoever waits.
#[derive(Debug, Default)]
pub struct Progress {
    /// Files that the preload handed over.
    pub handed_over: AtomicU64,
    /// Files that were found from outside.
    pub found: AtomicU64,
    /// Bytes of both, as far as the files were long when their write-back was started: an estimate, because parts may have been clean.
    pub bytes: AtomicU64,
    /// Set while the job is held: nothing is started then.
    pub held: AtomicBool,
}

/// The thread that does it. Dropping it starts what is left and ends it.
#[derive(Debug)]
pub struct Writeback {
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
}

impl Writeback {
    /// Starts the thread: files arrive at `mailbox`, and `list` tells which processes there are. In `directory`, if it is given, a program without the preload is going to work.
    ///
    /// # Errors
    ///
    /// There is no descriptor or thread left.
    pub fn start(
        mailbox: OwnedFd,
        directory: Option<&Path>,
        list: impl Fn() -> Vec<u32> + Send + 'static,
    ) -> io::Result<Writeback> {
        let (stop, stopped) = sys::socket::pair()?;
        let progress = Arc::new(Progress::default());
        let mut outside = Outside::new(Arc::clone(&progress))?;
        if let Some(directory) = directory {
            outside.watch(directory);
        }
        let shared = Arc::clone(&progress);
        let thread = thread::Builder::new().name("writeback".to_owned()).spawn(move || {
            // Refused in some sandboxes: the bytes then go out in the class that the sandbox leaves.
            let _ = IoClass::Idle.set(0);
            let _ = CpuClass::Batch.set(0);
            let clock = SystemClock::start();
            let mut queue = Queue::new(shared);
            let mut round = Duration::ZERO;
            loop {
                let (word, woken) = wait(&mailbox, &outside, &stopped, &queue);
                drain(&mailbox, &mut queue);
                outside.closed(&mut queue);
                if !matches!(word, Word::None) || clock.monotonic() >= round {
                    outside.scan(&list(), &mut queue);
                    round = clock.monotonic() + ROUND;
                }
                let is_asked = match word {
                    Word::End => true,
                    Word::Flush(_) => !queue.is_held(),
                    Word::None => false,
                };
                if is_asked {
                    // Twice: what did not fit the first time came before the word, too.
                    for _ in 0..2 {
                        drain(&mailbox, &mut queue);
                        queue.finish(&clock);
                    }
                }
                match word {
                    Word::End => return,
                    // Whoever asked hears that his socket is closed.
                    Word::Flush(asking) => drop(asking),
                    Word::None => (),
                }
                if !queue.is_held() {
                    queue.step(woken);
                }
            }
        })?;
        Ok(Writeback { stop: Some(stop), thread: Some(thread), progress })
    }

    /// Starts all that there is to be started, unless the job is held; waits for it a second at most.
    pub fn flush(&self) {
        let Some(stop) = &self.stop else { return };
        let Ok((ours, theirs)) = sys::socket::pair() else { return };
        let asked = sys::socket::send(stop, b"f", Some(theirs.as_fd()), sys::socket::Full::Fail);
        drop(theirs);
        if asked.is_ok() {
            // A signal ends it early, which does no harm.
            let _ = sys::socket::wait_readable(&ours, Some(PATIENCE));
        }
    }

    /// Returns what has been done so far.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It panicked: its message is on stderr already, and nothing depends on it.
            let _ = thread.join();
        }
    }
}

/// What the thread is told.
enum Word {
    None,
    /// To start all that there is; this is closed then.
    Flush(OwnedFd),
    End,
}

/// Waits for a file, a closed one, the end of a round or a word; not at all while there is something to do.
fn wait(mailbox: &OwnedFd, outside: &Outside, stopped: &OwnedFd, queue: &Queue) -> (Word, Woken) {
    // While the queue is full the mailbox is not looked at.
    let wanted = if queue.is_full() { PollFlags::empty() } else { PollFlags::IN };
    let mut polled = [
        PollFd::new(mailbox, wanted),
        PollFd::new(&outside.inotify, PollFlags::IN),
        PollFd::new(stopped, PollFlags::IN),
    ];
    let time = match (queue.is_held(), queue.is_busy(), queue.is_empty()) {
        (false, true, _) => Duration::ZERO,
        (false, false, false) => QUIET,
        (true, ..) | (_, _, true) => ROUND,
    };
    let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    // A signal ends a wait early, which does no harm.
    let ready = poll(&mut polled, Some(&time)).unwrap_or(0);
    let mut word = [0; 1];
    let word = match sys::socket::receive(stopped, &mut word) {
        Ok(received) if received.length > 0 => received.descriptor.map_or(Word::None, Word::Flush),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Word::None,
        Ok(_) | Err(_) => Word::End,
    };
    (word, if ready > 0 { Woken::ToWork } else { Woken::ByTime })
}

/// Takes files that wait in the mailbox, until the queue is full.
fn drain(mailbox: &OwnedFd, queue: &mut Queue) {
    let mut word = [0; 16];
    while !queue.is_full() {
        match sys::socket::receive(mailbox.as_fd(), &mut word) {
            Ok(received) => {
                let Some(descriptor) = received.descriptor else { continue };
                if received.length > 0 && word[0] == TELL {
                    queue.tell_after_all(descriptor);
                } else if queue.add(File::from(descriptor)) {
                    queue.progress().handed_over.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => (),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    fn mailbox() -> (String, OwnedFd) {
        let directory = tempfile::tempdir().unwrap();
        let name = format!("unjank-test-{}", directory.path().display());
        let mailbox = sys::socket::mailbox(name.as_bytes()).unwrap();
        (name, mailbox)
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
        let writeback = Writeback::start(mailbox().1, None, move || vec![pid]).unwrap();
        let found = || writeback.progress().found.load(Ordering::Relaxed);
        while found() == 0 {
            thread::yield_now();
        }
        let mut stdin = shell.stdin.take().unwrap();
        stdin.write_all(b"\n").unwrap();
        let before = found();
        // The open one is found again in every round; both together only when the closed one was told.
        while writeback.progress().bytes.load(Ordering::Relaxed) == 0 || found() < before + 2 {
            thread::yield_now();
        }
        drop(stdin);
        shell.wait().unwrap();
        assert!(directory.path().join("closed").exists());
    }

    #[test]
    fn a_file_that_is_handed_over_is_started_also_at_the_end() {
        let (name, mailbox) = mailbox();
        let writeback = Writeback::start(mailbox, None, Vec::new).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"something").unwrap();
        let sender = sys::socket::mailbox(format!("{name}-sender").as_bytes()).unwrap();
        let to = rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        rustix::net::connect(&sender, &to).unwrap();
        writeback.progress().held.store(true, Ordering::Relaxed);
        sys::socket::send(&sender, b"f", Some(file.as_fd()), sys::socket::Full::Wait).unwrap();
        while writeback.progress().handed_over.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        assert_eq!(writeback.progress().bytes.load(Ordering::Relaxed), 0, "it is held");
        let progress = Arc::clone(&writeback.progress);
        drop(writeback);
        assert_eq!(progress.bytes.load(Ordering::Relaxed), 9);
    }

    #[test]
    fn small_and_large_files_are_started_while_the_job_runs() {
        let (name, mailbox) = mailbox();
        let writeback = Writeback::start(mailbox, None, Vec::new).unwrap();
        let sender = sys::socket::mailbox(format!("{name}-sender").as_bytes()).unwrap();
        let to = rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        rustix::net::connect(&sender, &to).unwrap();
        let (mut whole, mut kept) = (0, Vec::new());
        for size in [3_000_000_usize, 9, 100_000, 65_536, 65_537, 2_100_000, 1].repeat(8) {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&vec![b'x'; size]).unwrap();
            sys::socket::send(&sender, b"f", Some(file.as_fd()), sys::socket::Full::Wait).unwrap();
            whole += u64::try_from(size).unwrap();
            // One that is deleted needs no disk.
            kept.push(file);
        }
        while writeback.progress().bytes.load(Ordering::Relaxed) < whole {
            thread::yield_now();
        }
        assert_eq!(writeback.progress().bytes.load(Ordering::Relaxed), whole);
        assert_eq!(writeback.progress().handed_over.load(Ordering::Relaxed), 56);
    }
}
