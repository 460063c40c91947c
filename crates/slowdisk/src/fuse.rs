//! The file under a model disk: a file system in user space with one file, which answers reads, writes and flushes when its profile says so.
//!
//! The protocol is that of `linux/fuse.h`, version 7.31; only what a loop device asks for is answered.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sys::clock::Clock;
use sys::sched::RealtimeGuard;

use super::profile::{DiskProfile, DiskRequest};

/// The longest request with its header: the largest write that we allow, and room to spare.
const LONGEST: usize = (1 << 20) + 64 * 1024;
const HEADER: usize = 40;
/// The node of the file; 1 is that of the directory.
const FILE: u64 = 2;

// The kinds of requests.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const RELEASEDIR: u32 = 29;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOSYS: i32 = 38;

/// What has gone through a model disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Traffic {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Requests that read.
    pub reads: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Requests that wait or are being worked on now.
    pub waiting: u64,
    /// For how long the disk has worked on requests, in microseconds; those of several at a time are added up.
    pub busy_us: u64,
}

/// More than this many requests at a time no disk of ours works on.
pub(super) const MOST_PARALLEL: usize = 64;

/// What the file is called in its file system, which is how a loop device on it is known to be ours.
pub(super) const NAME: &str = "unjank-slowdisk";

/// What the threads share.
#[derive(Debug)]
pub(super) struct Shared {
    device: File,
    memory: File,
    size: u64,
    clock: Arc<dyn Clock>,
    /// Whether requests take their time; not while a file system is made and filled.
    delays: AtomicBool,
    waiting: Mutex<PendingRequest>,
    arrived: Condvar,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    busy_us: AtomicU64,
}

#[derive(Debug)]
struct PendingRequest {
    profile: DiskProfile,
    jobs: Vec<Job>,
    /// How many are being worked on.
    active: usize,
    /// Where the last request ended.
    head: u64,
    ended: bool,
}

#[derive(Debug)]
struct Job {
    unique: u64,
    request: DiskRequest,
    arrived: Duration,
    /// What is to be written.
    data: Vec<u8>,
}

/// The threads that answer. They end when the file system is unmounted or its device closed.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to answer requests that arrive at `device`, for a disk of `size` bytes that lives in `memory`.
    pub(super) fn start(
        device: File,
        memory: File,
        size: u64,
        profile: DiskProfile,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Server> {
        let shared = Arc::new(Shared {
            device,
            memory,
            size,
            clock,
            delays: AtomicBool::new(false),
            waiting: Mutex::new(PendingRequest {
                profile,
                jobs: Vec::new(),
                active: 0,
                head: 0,
                ended: false,
            }),
            arrived: Condvar::new(),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            busy_us: AtomicU64::new(0),
        });
        let mut server = Server { shared: Arc::clone(&shared), threads: Vec::new() };
        let reader = Arc::clone(&shared);
        let builder = || thread::Builder::new().name("model disk".to_owned());
        server.threads.push(builder().spawn(move || {
            let _hurry = RealtimeGuard::begin();
            reader.receive();
            reader.lock().ended = true;
            reader.arrived.notify_all();
        })?);
        server.employ(profile.parallel)?;
        Ok(server)
    }

    /// Sees to it that this many threads work.
    fn employ(&mut self, workers: usize) -> io::Result<()> {
        // The first one reads.
        while self.threads.len() < 1 + workers.min(MOST_PARALLEL) {
            let worker = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("model disk".to_owned());
            self.threads.push(builder.spawn(move || {
                // A disk does not wait for a processor; where it is refused, this one does.
                let _hurry = RealtimeGuard::begin();
                worker.work();
            })?);
        }
        Ok(())
    }

    /// Has requests that are not yet begun take what `profile` says.
    ///
    /// # Errors
    ///
    /// There is no thread left; the disk is as before.
    pub(super) fn set_profile(&mut self, profile: DiskProfile) -> io::Result<()> {
        self.employ(profile.parallel)?;
        self.shared.lock().profile = profile;
        self.shared.arrived.notify_all();
        Ok(())
    }

    /// Returns whether requests take their time.
    pub(super) fn delays(&self) -> bool {
        self.shared.delays.load(Ordering::Relaxed)
    }

    /// Says from now on whether requests take their time.
    pub(super) fn set_delays(&self, delays: bool) {
        self.shared.delays.store(delays, Ordering::Relaxed);
    }

    /// Returns what has gone through so far.
    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            read_bytes: self.shared.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.shared.written_bytes.load(Ordering::Relaxed),
            flushes: self.shared.flushes.load(Ordering::Relaxed),
            reads: self.shared.reads.load(Ordering::Relaxed),
            writes: self.shared.writes.load(Ordering::Relaxed),
            waiting: {
                let waiting = self.shared.lock();
                (waiting.jobs.len() + waiting.active) as u64
            },
            busy_us: self.shared.busy_us.load(Ordering::Relaxed),
        }
    }

    /// Returns whether the file system was unmounted.
    pub(super) fn is_over(&self) -> bool {
        self.shared.lock().ended
    }

    /// Waits for the threads, after the file system was unmounted.
    pub(super) fn join(self) {
        for thread in self.threads {
            // It panicked: its message is on stderr already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, PendingRequest> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads requests until there are no more: those of the disk are queued, all others answered at once.
    fn receive(&self) {
        let mut buffer = vec![0; LONGEST];
        loop {
            let length = match (&self.device).read(&mut buffer) {
                Ok(length) if length >= HEADER => length,
                // A request that was taken back before we read it.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::Interrupted
                    ) =>
                {
                    continue;
                }
                // Unmounted.
                Ok(_) | Err(_) => return,
            };
            let message = Message(buffer.get(..length).unwrap_or_default());
            if let Some(request) = message.request() {
                let job = Job {
                    unique: message.unique(),
                    request,
                    arrived: self.clock.monotonic(),
                    data: message.data().to_vec(),
                };
                self.lock().jobs.push(job);
                self.arrived.notify_one();
                continue;
            }
            let answered = match message.kind() {
                FORGET | BATCH_FORGET | INTERRUPT => Ok(()),
                kind => match self.answer(kind, message) {
                    Ok(body) => self.reply(message.unique(), 0, &body),
                    Err(error) => self.reply(message.unique(), error, &[]),
                },
            };
            if answered.is_err() {
                return;
            }
        }
    }

    /// Returns the body of an answer, or an error number.
    fn answer(&self, kind: u32, message: Message<'_>) -> Result<Vec<u8>, i32> {
        match kind {
            INIT => Ok(init()),
            LOOKUP if message.body().strip_suffix(b"\0") == Some(NAME.as_bytes()) => {
                // Node, generation, and for how long the kernel may believe both: for ever.
                let mut entry = Vec::with_capacity(128);
                for number in [FILE, 0, u64::MAX >> 1, u64::MAX >> 1, 0] {
                    entry.extend_from_slice(&number.to_ne_bytes());
                }
                entry.extend_from_slice(&self.attributes(FILE));
                Ok(entry)
            }
            LOOKUP => Err(ENOENT),
            GETATTR | SETATTR => {
                let mut attributes = (u64::MAX >> 1).to_ne_bytes().to_vec();
                attributes.extend_from_slice(&[0; 8]);
                attributes.extend_from_slice(&self.attributes(message.node()));
                Ok(attributes)
            }
            OPEN | OPENDIR => Ok(vec![0; 16]),
            STATFS => Ok(vec![0; 80]),
            RELEASE | RELEASEDIR | FLUSH => Ok(Vec::new()),
            _ => Err(ENOSYS),
        }
    }

    /// Returns the attributes of a node as the protocol has them.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let (size, mode) =
            if node == FILE { (self.size, 0o100_600_u32) } else { (0, 0o040_700_u32) };
        let mut bytes = Vec::with_capacity(88);
        for number in [node, size, size.div_ceil(512), 0, 0, 0] {
            bytes.extend_from_slice(&number.to_ne_bytes());
        }
        for number in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
            bytes.extend_from_slice(&u32::to_ne_bytes(number));
        }
        bytes
    }

    fn reply(&self, unique: u64, error: i32, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(16 + body.len()).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut header = [0; 16];
        header[..4].copy_from_slice(&length.to_ne_bytes());
        header[4..8].copy_from_slice(&(-error).to_ne_bytes());
        header[8..].copy_from_slice(&unique.to_ne_bytes());
        match (&self.device).write_vectored(&[IoSlice::new(&header), IoSlice::new(body)]) {
            // Whoever asked is gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map(drop),
        }
    }

    /// Serves requests of the disk, one after another, each in its time.
    fn work(&self) {
        loop {
            let mut waiting = self.lock();
            let (job, head, profile) = loop {
                let profile = waiting.profile;
                let busy = waiting.active >= profile.parallel.min(MOST_PARALLEL);
                let listed: Vec<(DiskRequest, Duration)> =
                    waiting.jobs.iter().map(|job| (job.request, job.arrived)).collect();
                let now = self.clock.monotonic();
                let next = profile.next(&listed, waiting.head, now).filter(|_| !busy);
                if let Some(place) = next {
                    let job = waiting.jobs.remove(place);
                    let head = waiting.head;
                    waiting.head = end(job.request, head);
                    waiting.active += 1;
                    break (job, head, profile);
                }
                if waiting.ended {
                    return;
                }
                waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            };
            drop(waiting);
            let begun = self.clock.monotonic();
            let done = self.serve(&job);
            if self.delays.load(Ordering::Relaxed) {
                let due = begun + profile.takes(job.request, head, self.size);
                self.wait_until(due);
            }
            let took = self.clock.monotonic().saturating_sub(begun).as_micros();
            self.busy_us.fetch_add(u64::try_from(took).unwrap_or(0), Ordering::Relaxed);
            self.lock().active -= 1;
            if profile.parallel > 1 {
                // Another one may wait for this place; a single worker looks itself.
                self.arrived.notify_one();
            }
            let replied = match done {
                Ok(body) => self.reply(job.unique, 0, &body),
                Err(_) => self.reply(job.unique, EIO, &[]),
            };
            if replied.is_err() {
                return;
            }
        }
    }

    fn serve(&self, job: &Job) -> io::Result<Vec<u8>> {
        match job.request {
            DiskRequest::Read { at, len } => {
                let len = usize::try_from(len.min(self.size.saturating_sub(at)))
                    .map_err(|_| io::ErrorKind::InvalidInput)?;
                let mut bytes = vec![0; len];
                self.memory.read_exact_at(&mut bytes, at)?;
                self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
                self.reads.fetch_add(1, Ordering::Relaxed);
                Ok(bytes)
            }
            DiskRequest::Write { at, .. } => {
                self.memory.write_all_at(&job.data, at)?;
                self.written_bytes.fetch_add(job.data.len() as u64, Ordering::Relaxed);
                self.writes.fetch_add(1, Ordering::Relaxed);
                let length = u32::try_from(job.data.len()).unwrap_or(0);
                Ok([length.to_ne_bytes(), [0; 4]].concat())
            }
            DiskRequest::Flush => {
                self.flushes.fetch_add(1, Ordering::Relaxed);
                Ok(Vec::new())
            }
        }
    }

    /// Waits until `due`: asleep while there is time, turning for the last bit, since a sleep ends some 60 µs late.
    fn wait_until(&self, due: Duration) {
        const LATE: Duration = Duration::from_micros(80);
        loop {
            let left = due.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return;
            }
            if left > LATE {
                let sleep = left - LATE;
                let request = rustix::thread::Timespec {
                    tv_sec: i64::try_from(sleep.as_secs()).unwrap_or(0),
                    tv_nsec: i64::from(sleep.subsec_nanos()),
                };
                // A signal ends it early: what is left is slept in the next round.
                let _ = rustix::thread::nanosleep(&request);
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Returns where the disk stands after a request.
fn end(request: DiskRequest, head: u64) -> u64 {
    match request {
        DiskRequest::Read { at, len } | DiskRequest::Write { at, len } => at + len,
        DiskRequest::Flush => head,
    }
}

/// The answer to the first request: asynchronous direct reads and writes of up to 1 MiB, 256 at a time, so that the kernel's side keeps no queue of its own.
fn init() -> Vec<u8> {
    const ASYNC_READ: u32 = 1;
    const BIG_WRITES: u32 = 1 << 5;
    const ASYNC_DIO: u32 = 1 << 15;
    const MAX_PAGES: u32 = 1 << 22;
    let mut body = Vec::with_capacity(64);
    for number in [7, 31, 1 << 20, ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES] {
        body.extend_from_slice(&u32::to_ne_bytes(number));
    }
    for number in [256, 256] {
        body.extend_from_slice(&u16::to_ne_bytes(number));
    }
    for number in [1 << 20, 1] {
        body.extend_from_slice(&u32::to_ne_bytes(number));
    }
    for number in [256, 0] {
        body.extend_from_slice(&u16::to_ne_bytes(number));
    }
    body.resize(64, 0);
    body
}

/// A request as the kernel sent it, at least as long as its header.
#[derive(Clone, Copy)]
struct Message<'m>(&'m [u8]);

impl<'m> Message<'m> {
    fn word(self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    fn long(self, at: usize) -> u64 {
        let bytes = self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }

    fn kind(self) -> u32 {
        self.word(4)
    }

    fn unique(self) -> u64 {
        self.long(8)
    }

    fn node(self) -> u64 {
        self.long(16)
    }

    fn body(self) -> &'m [u8] {
        self.0.get(HEADER..).unwrap_or_default()
    }

    /// Returns what is wanted of the disk, if it is that kind of request.
    fn request(self) -> Option<DiskRequest> {
        let (at, len) = (self.long(HEADER + 8), u64::from(self.word(HEADER + 16)));
        match self.kind() {
            READ => Some(DiskRequest::Read { at, len }),
            WRITE => Some(DiskRequest::Write { at, len }),
            FSYNC => Some(DiskRequest::Flush),
            _ => None,
        }
    }

    /// Returns the bytes of a write.
    fn data(self) -> &'m [u8] {
        if self.kind() == WRITE { self.0.get(HEADER + 40..).unwrap_or_default() } else { &[] }
    }
}
