//! The child process of a recording: records with threads, and passes chunks to the parent.

use report::error::chain;
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use sys::shared::{Counters, Slots};
use sys::supervise;

use super::protocol::{self, ChunkFrame, EndFrame, FromChild, FromParent, LONGEST};
use crate::record::bus_stream::LaneEnd;
use crate::record::memory::Memory;
use crate::record::reader::Times;
use crate::record::ring::{Chunk, Ring, RingItem, TakeResult};
use crate::record::threads::Threads;
use crate::record::{BusToRecord, RecordOptions, stop_descriptor};

/// The most chunks that the parent holds at a time; further data stays in the ring.
const HANDED_OVER: usize = 4;
/// A time limit that never passes.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);
/// Signals by which a terminal or a service manager ends or stops a program: this process ends with its parent instead.
const IGNORED: [Signal; 8] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
    Signal::PIPE,
    Signal::XFSZ,
];

/// Records until the parent has taken everything or has ended, then ends the process.
pub(super) fn run(
    sources: Vec<BusToRecord>,
    options: &RecordOptions,
    times: &Times,
    socket: &OwnedFd,
    slots: &Arc<Slots>,
    counters: &Arc<Counters<3>>,
) -> ! {
    // A panic must not reach the code of the parent, of which this process is a copy.
    let done = catch_unwind(AssertUnwindSafe(|| {
        let ring = Ring::shared(options.room, Arc::clone(slots), Arc::clone(counters));
        drain(sources, options, times, socket, Arc::new(ring))
    }));
    supervise::exit_now(i32::from(!matches!(done, Ok(Ok(())))))
}

fn drain(
    sources: Vec<BusToRecord>,
    options: &RecordOptions,
    times: &Times,
    socket: &OwnedFd,
    ring: Arc<Ring>,
) -> io::Result<()> {
    let mut kept: Vec<BorrowedFd<'_>> = vec![socket.as_fd()];
    for source in &sources {
        kept.push(source.monitor.descriptor.as_fd());
        kept.extend(source.follower.as_ref().map(AsFd::as_fd));
    }
    // The scheduler gives each session a share of the processor (`sched_autogroup`). A new session would compete with the
    // observed programs, and the reader would wait longer.
    supervise::leave_job(&kept)?;
    drop(kept);
    supervise::ignore(&IGNORED.map(Signal::as_raw));
    // A person who stops or ends programs by name means the parent.
    rustix::thread::set_name(c"bus-reader")?;
    let shared = Shared { socket, parent: Parent::default() };
    let begun = stop_descriptor().and_then(|stop| {
        let threads = Threads::start(sources, options, Arc::clone(&ring), times, &stop)?;
        Ok((threads, stop))
    });
    let (threads, stop) = match begun {
        Ok(begun) => begun,
        Err(error) => return shared.refuse(&error),
    };
    std::thread::scope(|scope| {
        let forwarder = sys::thread::spawn_scoped(scope, "bus-forward", || {
            // There is nothing left to do when the parent has ended or has taken everything.
            let done = shared.say(&FromChild::Begun, None).and_then(|()| shared.forward(threads));
            supervise::exit_now(i32::from(done.is_err()))
        });
        if let Err(error) = forwarder {
            return shared.refuse(&error);
        }
        let listened = shared.listen(&ring, &stop);
        // The parent has ended, or sent an invalid message: the buses are not read any more. The other thread may wait
        // for the parent, so this thread does not wait for it.
        supervise::exit_now(i32::from(listened.is_err()))
    })
}

/// The state that both threads of the child share.
struct Shared<'a> {
    socket: &'a OwnedFd,
    parent: Parent,
}

/// The chunks that the parent holds.
#[derive(Default)]
struct Parent {
    chunks: Mutex<HashMap<u64, Chunk>>,
    given_back: Condvar,
}

impl Shared<'_> {
    fn say(&self, frame: &FromChild, chunk: Option<&Chunk>) -> io::Result<()> {
        let memory = chunk.and_then(|chunk| match &chunk.bytes {
            Memory::Passed(memory) => Some(memory),
            _ => None,
        });
        protocol::send(self.socket, frame, memory)
    }

    fn refuse(&self, error: &(dyn Error + 'static)) -> io::Result<()> {
        let mut causes = std::iter::successors(Some(error), |&error| error.source());
        let code = causes.find_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error());
        self.say(&FromChild::Refused { text: chain(error), code }, None)
    }

    fn chunks(&self) -> MutexGuard<'_, HashMap<u64, Chunk>> {
        // No code panics between two related changes under this lock, so its data is consistent.
        self.parent.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes chunks on until the recording ends.
    fn forward(&self, mut threads: Threads) -> io::Result<()> {
        let ring = Arc::clone(threads.ring());
        let mut number = 0;
        loop {
            let many = |chunks: &mut HashMap<u64, Chunk>| chunks.len() >= HANDED_OVER;
            drop(self.parent.given_back.wait_while(self.chunks(), many));
            match ring.take(FOR_EVER) {
                TakeResult::Item(RingItem::Chunk(chunk)) => {
                    number += 1;
                    self.hand_over(number, chunk)?;
                }
                TakeResult::Item(RingItem::Bus(bus)) => self.say(&FromChild::Bus(bus), None)?,
                TakeResult::Item(RingItem::Peers(peers)) => {
                    self.say(&FromChild::Peers(peers), None)?
                }
                TakeResult::Item(RingItem::Dropped(dropped)) => {
                    self.say(&FromChild::Dropped(dropped), None)?;
                }
                TakeResult::Item(RingItem::End(end)) => self.say(&FromChild::End(end), None)?,
                TakeResult::Quiet => (),
                TakeResult::Over => {
                    let ends = threads.end().into_iter().map(|(bus, end)| (bus, end.into()));
                    return self.say(&FromChild::Over(ends.collect()), None);
                }
            }
        }
    }

    fn hand_over(&self, number: u64, chunk: Chunk) -> io::Result<()> {
        let mut runs: Vec<(u64, u32)> = Vec::new();
        for (at, _) in &chunk.marks {
            match runs.last_mut() {
                Some((last, count)) if last == at => *count += 1,
                _ => runs.push((*at, 1)),
            }
        }
        let slot = match &chunk.bytes {
            Memory::Slot(slot) => Some(slot.number()),
            _ => None,
        };
        let frame = ChunkFrame { number, slot, bus: chunk.bus, dropped: chunk.dropped, runs };
        // The parent may return it before `send` returns.
        let mut chunks = self.chunks();
        let sent = self.say(&FromChild::Chunk(frame), Some(&chunk));
        chunks.insert(number, chunk);
        sent
    }

    /// Executes the parent's requests until the parent ends.
    fn listen(&self, ring: &Ring, stop: &OwnedFd) -> io::Result<()> {
        let mut buffer = vec![0; LONGEST];
        loop {
            if !sys::socket::wait_readable(self.socket, None)? {
                continue;
            }
            let arrived = match protocol::receive::<FromParent>(self.socket, &mut buffer) {
                Ok(Some(arrived)) => arrived,
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            match arrived.frame {
                FromParent::GiveBack(number) => {
                    if let Some(chunk) = self.chunks().remove(&number) {
                        ring.give_back(chunk);
                    }
                    self.parent.given_back.notify_one();
                }
                FromParent::Stop => {
                    rustix::io::write(stop, &1_u64.to_ne_bytes())?;
                }
            }
        }
    }
}

impl From<LaneEnd> for EndFrame {
    fn from(end: LaneEnd) -> EndFrame {
        match end {
            LaneEnd::Closed => EndFrame::Closed,
            end => EndFrame::Broken(chain(&end)),
        }
    }
}
