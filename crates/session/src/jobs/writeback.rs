//! Writes what the job has written in the idle class: the kernel's own flusher would do it later in the usual class, in front of everybody's reads.
//!
//! Programs with our preload hand over files as they close them, over a mailbox. Files of all others (static programs, those with privileges) are found from outside: open
//! for writing in `/proc/PID/fd`, or closed in a directory where such a file was seen, where such a program works, or that was made in one of those. Whoever starts write-back gives it its class, so this thread is in the idle class.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use sys::sched::{CpuClass, IoClass, start_writeback, wait_for_writeback};

use crate::clock::{Clock, SystemClock};

/// How often open files are looked for from outside.
const ROUND: Duration = Duration::from_millis(100);
/// When no file has come for so long, those that were gathered are started.
const QUIET: Duration = Duration::from_millis(20);
/// File systems keep files up to this size apart from larger ones (ext4: `mb_stream_req`): small ones are gathered and started together, or the disk would go to and fro.
const SMALL: u64 = 64 << 10;
/// How many bytes of small files are gathered.
const BATCH: u64 = 1 << 20;
/// How many bytes of large files wait here at most. Further files wait in the mailbox, and their program with them.
const LARGE: u64 = 2 << 20;
/// How many small files wait here at most.
const MOST: usize = 256;
/// How many bytes are on their way to the disk at a time. Whoever wants to read waits behind them, on a disk that takes requests as they come.
const WINDOW: i64 = 1 << 20;
/// How many bytes are started at a time: the disk has something to do while the next are made ready.
const PART: i64 = WINDOW / 2;
/// How many directories are watched for files that are closed: the last ones.
const DIRECTORIES: usize = 512;
/// How many entries of a new directory are looked at.
const ENTRIES: usize = 4096;

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
    /// How often somebody asked for all that there is and got it.
    flushed: AtomicU64,
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
                if word != Word::None || clock.monotonic() >= round {
                    outside.scan(&list(), &mut queue);
                    round = clock.monotonic() + ROUND;
                }
                if word == Word::End || (word == Word::Flush && !queue.is_held()) {
                    // Twice: what did not fit the first time came before the word, too.
                    for _ in 0..2 {
                        drain(&mailbox, &mut queue);
                        queue.finish();
                    }
                }
                match word {
                    Word::End => return,
                    Word::Flush => {
                        queue.progress.flushed.fetch_add(1, Ordering::Release);
                    }
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
        let before = self.progress.flushed.load(Ordering::Acquire);
        let Some(stop) = &self.stop else { return };
        if sys::socket::send(stop, b"f", None, sys::socket::Full::Fail).is_err() {
            return;
        }
        let step = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        for _ in 0..1000 {
            if self.progress.flushed.load(Ordering::Acquire) != before {
                return;
            }
            // A signal ends it early, which does no harm.
            let _ = rustix::thread::nanosleep(&step);
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
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    None,
    Flush,
    End,
}

/// Why the thread goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// A file came, or a word.
    ToWork,
    /// Nothing came.
    ByTime,
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
        Ok(received) if received.length > 0 => Word::Flush,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Word::None,
        Ok(_) | Err(_) => Word::End,
    };
    (word, if ready > 0 { Woken::ToWork } else { Woken::ByTime })
}

/// Takes files that wait in the mailbox, until the queue is full.
fn drain(mailbox: &OwnedFd, queue: &mut Queue) {
    let mut nothing = [0; 16];
    while !queue.is_full() {
        match sys::socket::receive(mailbox.as_fd(), &mut nothing) {
            Ok(received) => {
                let Some(file) = received.descriptor else { continue };
                if queue.add(File::from(file)) {
                    queue.progress.handed_over.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => (),
            Err(_) => return,
        }
    }
}

/// A part of a file, from one place to another.
#[derive(Debug)]
struct Part {
    file: Rc<File>,
    from: i64,
    to: i64,
}

/// Files whose write-back is to be started: part by part, never more than a window on the way.
struct Queue {
    /// Small files by device and inode: in the order in which most file systems lay out files that were made together.
    small: BTreeMap<(u64, u64), (File, u64)>,
    small_bytes: u64,
    /// Large files as they came.
    large: VecDeque<(File, u64)>,
    large_bytes: u64,
    /// What has its turn.
    begun: VecDeque<Part>,
    /// What is on its way.
    on_the_way: VecDeque<Part>,
    bytes_on_the_way: i64,
    progress: Arc<Progress>,
}

impl Queue {
    fn new(progress: Arc<Progress>) -> Queue {
        Queue {
            small: BTreeMap::new(),
            small_bytes: 0,
            large: VecDeque::new(),
            large_bytes: 0,
            begun: VecDeque::new(),
            on_the_way: VecDeque::new(),
            bytes_on_the_way: 0,
            progress,
        }
    }

    fn is_held(&self) -> bool {
        self.progress.held.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.small.is_empty() && !self.is_busy()
    }

    /// Says whether there is something to do at once.
    fn is_busy(&self) -> bool {
        !self.begun.is_empty() || !self.large.is_empty()
    }

    fn is_full(&self) -> bool {
        self.small.len() >= MOST || self.large_bytes >= LARGE
    }

    /// Takes a file on, if it is a regular one with something in it. Says so.
    fn add(&mut self, file: File) -> bool {
        let Ok(metadata) = file.metadata() else { return false };
        let length = metadata.len();
        if !metadata.is_file() || length == 0 {
            return false;
        }
        if length <= SMALL {
            // As many as one may have open, of those found from outside too: the rest is the flusher's.
            if self.small.len() < 2 * MOST
                && self.small.insert((metadata.dev(), metadata.ino()), (file, length)).is_none()
            {
                self.small_bytes += length;
            }
        } else if self.large.len() < MOST {
            self.large.push_back((file, length));
            self.large_bytes = self.large_bytes.saturating_add(length);
        }
        true
    }

    /// Does the next part of the work: starts one part of a file, after it has waited for as much as that is too much.
    fn step(&mut self, woken: Woken) {
        if self.begun.is_empty() {
            let gathered = self.small_bytes >= BATCH || self.small.len() >= MOST;
            // While large files are there nothing is waited for, so that no time says that no more small ones come.
            if gathered || (self.large.is_empty() && woken == Woken::ByTime) {
                self.begin_small();
            } else {
                self.begin_large();
            }
        }
        let Some(whole) = self.begun.pop_front() else { return };
        let (from, to) = (whole.from, whole.to.min(whole.from.saturating_add(PART)));
        while self.bytes_on_the_way > 0 && self.bytes_on_the_way + (to - from) > WINDOW {
            let Some(Part { file, from, to }) = self.on_the_way.pop_front() else { break };
            // It cannot be written: its program is told when it asks.
            let _ = wait_for_writeback(&*file, from, to - from);
            self.bytes_on_the_way -= to - from;
        }
        if self.start(&whole.file, from, to) {
            self.bytes_on_the_way += to - from;
            self.on_the_way.push_back(Part { file: Rc::clone(&whole.file), from, to });
        }
        if to < whole.to {
            self.begun.push_front(Part { from: to, ..whole });
        }
    }

    /// Starts a part; says whether the file system can.
    fn start(&self, file: &File, from: i64, to: i64) -> bool {
        // On one that cannot (FUSE, network) the flusher does it as always.
        let started = start_writeback(file, from, to - from).is_ok();
        if started {
            self.progress.bytes.fetch_add((to - from).unsigned_abs(), Ordering::Relaxed);
        }
        started
    }

    /// Gives all small files their turn.
    fn begin_small(&mut self) {
        self.small_bytes = 0;
        for (file, length) in std::mem::take(&mut self.small).into_values() {
            self.give_turn(file, length);
        }
    }

    /// Gives the next large file its turn.
    fn begin_large(&mut self) {
        let Some((file, length)) = self.large.pop_front() else { return };
        self.large_bytes = self.large_bytes.saturating_sub(length);
        self.give_turn(file, length);
    }

    fn give_turn(&mut self, file: File, length: u64) {
        let to = i64::try_from(length).unwrap_or(i64::MAX);
        self.begun.push_back(Part { file: Rc::new(file), from: 0, to });
    }

    /// Starts all that is left, and waits for nothing more.
    fn finish(&mut self) {
        self.begin_small();
        while !self.large.is_empty() {
            self.begin_large();
        }
        for part in std::mem::take(&mut self.begun) {
            self.start(&part.file, part.from, part.to);
        }
    }
}

/// Files of programs without the preload.
struct Outside {
    inotify: OwnedFd,
    directories: HashMap<i32, PathBuf>,
    watched: HashSet<PathBuf>,
    /// Their numbers, the oldest first.
    order: VecDeque<i32>,
    /// Processes that do it themselves, and those that were looked at and do not.
    preloaded: HashMap<u32, Preload>,
    progress: Arc<Progress>,
}

/// Whether a process has our preload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preload {
    Loaded,
    /// Not when it was looked at this many rounds ago: it may have been before its `exec`.
    Missing(u8),
}

impl Outside {
    fn new(progress: Arc<Progress>) -> io::Result<Outside> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Outside {
            inotify,
            directories: HashMap::new(),
            watched: HashSet::new(),
            order: VecDeque::new(),
            preloaded: HashMap::new(),
            progress,
        })
    }

    /// Looks for files that `processes` have open for writing.
    fn scan(&mut self, processes: &[u32], queue: &mut Queue) {
        self.preloaded.retain(|pid, _| processes.contains(pid));
        for &pid in processes {
            if self.does_it_itself(pid) {
                continue;
            }
            self.watch(&working_directory(pid));
            for (path, file) in written(pid) {
                if let Some(directory) = path.parent() {
                    self.watch(directory);
                }
                if queue.add(file) {
                    self.progress.found.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn does_it_itself(&mut self, pid: u32) -> bool {
        let known = self.preloaded.entry(pid).or_insert(Preload::Missing(0));
        match *known {
            Preload::Loaded => return true,
            // Looked at again from time to time: it may have become another program.
            Preload::Missing(rounds) if rounds > 1 && rounds % 16 != 0 => {
                *known = Preload::Missing(rounds.wrapping_add(1).max(2));
                return false;
            }
            Preload::Missing(rounds) => *known = Preload::Missing(rounds.wrapping_add(1)),
        }
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        // With an underscore where it was built, with a hyphen where it is installed.
        let name = [b"unjank_writeback.so".as_slice(), b"unjank-writeback.so".as_slice()];
        if maps.windows(name[0].len()).any(|part| name.contains(&part)) {
            *known = Preload::Loaded;
        }
        *known == Preload::Loaded
    }

    fn watch(&mut self, directory: &Path) {
        if self.watched.contains(directory) {
            return;
        }
        while self.order.len() >= DIRECTORIES {
            let Some(oldest) = self.order.pop_front() else { break };
            // It is gone already.
            let _ = inotify::remove_watch(&self.inotify, oldest);
            if let Some(path) = self.directories.remove(&oldest) {
                self.watched.remove(&path);
            }
        }
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::CREATE | WatchFlags::ONLYDIR;
        // Without a watch, files that are closed between two rounds are the flusher's.
        if let Ok(number) = inotify::add_watch(&self.inotify, directory, flags) {
            if self.directories.insert(number, directory.to_owned()).is_none() {
                self.order.push_back(number);
            }
            self.watched.insert(directory.to_owned());
        }
    }

    /// Watches a directory that has just been made, and takes on what came into it before.
    fn enter(&mut self, directory: PathBuf, queue: &mut Queue) {
        let mut new = vec![directory];
        let mut left = ENTRIES;
        while let Some(directory) = new.pop() {
            self.watch(&directory);
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries.filter_map(Result::ok) {
                if left == 0 {
                    return;
                }
                left -= 1;
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => new.push(entry.path()),
                    Ok(kind) if kind.is_file() => self.take(&entry.path(), queue),
                    Ok(_) | Err(_) => (),
                }
            }
        }
    }

    /// Takes a file on that was closed.
    fn take(&self, path: &Path, queue: &mut Queue) {
        // Neither a link is followed nor a pipe waited for: somebody may have put one there meanwhile.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags.bits().cast_signed());
        if let Ok(file) = options.open(path)
            && queue.add(file)
        {
            self.progress.found.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes on files that were closed in watched directories.
    fn closed(&mut self, queue: &mut Queue) {
        let mut space = [std::mem::MaybeUninit::uninit(); 8192];
        let mut told = Vec::new();
        let mut reader = inotify::Reader::new(&self.inotify, &mut space);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::IGNORED) {
                if let Some(gone) = self.directories.remove(&event.wd()) {
                    self.watched.remove(&gone);
                }
                continue;
            }
            let (Some(directory), Some(name)) =
                (self.directories.get(&event.wd()), event.file_name())
            else {
                continue;
            };
            use std::os::unix::ffi::OsStrExt;
            let path = directory.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            if !event.events().contains(ReadFlags::CREATE) {
                told.push(Told::Closed(path));
            } else if event.events().contains(ReadFlags::ISDIR) {
                told.push(Told::Made(path));
            }
        }
        for one in told {
            match one {
                Told::Closed(path) => self.take(&path, queue),
                Told::Made(path) => self.enter(path, queue),
            }
            // As many as may be open: a big tree comes all at once.
            if queue.is_full() && !queue.is_held() {
                queue.step(Woken::ToWork);
            }
        }
    }
}

/// What happened in a watched directory.
enum Told {
    Closed(PathBuf),
    Made(PathBuf),
}

/// Returns where process `pid` works; where that is not shown, because it has gained privileges, where its job was started.
fn working_directory(pid: u32) -> PathBuf {
    let link = fs::read_link(format!("/proc/{pid}/cwd"));
    link.or_else(|_| fs::read_link("/proc/self/cwd")).unwrap_or_default()
}

/// Returns the regular files that process `pid` has open for writing, as far as they may be opened by us.
fn written(pid: u32) -> Vec<(PathBuf, File)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let files = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        // Pipes and sockets have no path; devices are none of ours.
        if !target.is_absolute() || target.starts_with("/dev") || target.starts_with("/proc") {
            return None;
        }
        // The link has the owner's write bit if it is open for writing (proc(5)).
        if fs::symlink_metadata(entry.path()).ok()?.mode() & 0o200 == 0 {
            return None;
        }
        let metadata = fs::metadata(entry.path()).ok()?;
        if !metadata.is_file() {
            return None;
        }
        Some((target, File::open(entry.path()).ok()?))
    });
    files.collect()
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
        let mut file = tempfile::tempfile().unwrap();
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
        let mut whole = 0;
        for size in [3_000_000_usize, 9, 100_000, 65_536, 65_537, 2_100_000, 1].repeat(8) {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&vec![b'x'; size]).unwrap();
            sys::socket::send(&sender, b"f", Some(file.as_fd()), sys::socket::Full::Wait).unwrap();
            whole += u64::try_from(size).unwrap();
        }
        while writeback.progress().bytes.load(Ordering::Relaxed) < whole {
            thread::yield_now();
        }
        assert_eq!(writeback.progress().bytes.load(Ordering::Relaxed), whole);
        assert_eq!(writeback.progress().handed_over.load(Ordering::Relaxed), 56);
    }
}
