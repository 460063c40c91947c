//! The child's side: it records as threads do, and hands over what the parent takes.

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

use super::frame::{self, ChunkFrame, EndFrame, FromChild, FromParent, LONGEST};
use crate::bus::record::lane::LaneEnd;
use crate::bus::record::memory::Memory;
use crate::bus::record::reader::Times;
use crate::bus::record::ring::{Chunk, Item, Ring, Taken};
use crate::bus::record::threads::Threads;
use crate::bus::record::{Options, Source, stop_descriptor};

/// So many chunks may be with the parent; what else there is waits in the ring, where it gathers.
const HANDED_OVER: usize = 4;
/// Without end, as far as anybody can tell.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);
/// What ends or stops a program by way of its terminal or its service manager: this process ends with its parent.
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

/// Records until the parent has all or is gone, and ends the process.
pub(super) fn run(
    sources: Vec<Source>,
    options: &Options,
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
    sources: Vec<Source>,
    options: &Options,
    times: &Times,
    socket: &OwnedFd,
    ring: Arc<Ring>,
) -> io::Result<()> {
    let mut kept: Vec<BorrowedFd<'_>> = vec![socket.as_fd()];
    for source in &sources {
        kept.push(source.monitor.descriptor.as_fd());
        kept.extend(source.follower.as_ref().map(AsFd::as_fd));
    }
    // A session of its own would be one more that the scheduler gives its share (`sched_autogroup`), beside the programs
    // that are watched, and the reader would wait for its turn.
    supervise::leave_job(&kept)?;
    drop(kept);
    supervise::ignore(&IGNORED.map(Signal::as_raw));
    // Whoever stops or ends programs by their names means the parent.
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
            // Without a parent there is nothing to do; with one that has all, neither.
            let done = shared.say(&FromChild::Begun, None).and_then(|()| shared.forward(threads));
            supervise::exit_now(i32::from(done.is_err()))
        });
        if let Err(error) = forwarder {
            return shared.refuse(&error);
        }
        let listened = shared.listen(&ring, &stop);
        // The parent is gone, or cannot be understood: the buses need not be drained any more. The other thread may wait
        // for the parent, so nobody waits for that thread.
        supervise::exit_now(i32::from(listened.is_err()))
    })
}

/// What both threads of the child use.
struct Shared<'a> {
    socket: &'a OwnedFd,
    parent: Parent,
}

/// The chunks that the parent has.
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
        frame::send(self.socket, frame, memory)
    }

    fn refuse(&self, error: &(dyn Error + 'static)) -> io::Result<()> {
        let mut causes = std::iter::successors(Some(error), |&error| error.source());
        let code = causes.find_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error());
        self.say(&FromChild::Refused { text: chain(error), code }, None)
    }

    fn chunks(&self) -> MutexGuard<'_, HashMap<u64, Chunk>> {
        // Nothing that holds the lock leaves things half done.
        self.parent.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over what comes until nothing will come any more.
    fn forward(&self, mut threads: Threads) -> io::Result<()> {
        let ring = Arc::clone(threads.ring());
        let mut number = 0;
        loop {
            let many = |chunks: &mut HashMap<u64, Chunk>| chunks.len() >= HANDED_OVER;
            drop(self.parent.given_back.wait_while(self.chunks(), many));
            match ring.take(FOR_EVER) {
                Taken::Item(Item::Chunk(chunk)) => {
                    number += 1;
                    self.hand_over(number, chunk)?;
                }
                Taken::Item(Item::Bus(bus)) => self.say(&FromChild::Bus(bus), None)?,
                Taken::Item(Item::Peers(peers)) => self.say(&FromChild::Peers(peers), None)?,
                Taken::Item(Item::Dropped(dropped)) => {
                    self.say(&FromChild::Dropped(dropped), None)?;
                }
                Taken::Item(Item::End(end)) => self.say(&FromChild::End(end), None)?,
                Taken::Quiet => (),
                Taken::Over => {
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
        // It may be given back before `send` returns.
        let mut chunks = self.chunks();
        let sent = self.say(&FromChild::Chunk(frame), Some(&chunk));
        chunks.insert(number, chunk);
        sent
    }

    /// Does what the parent says until it is gone.
    fn listen(&self, ring: &Ring, stop: &OwnedFd) -> io::Result<()> {
        let mut buffer = vec![0; LONGEST];
        loop {
            if !sys::socket::wait_readable(self.socket, None)? {
                continue;
            }
            let arrived = match frame::receive::<FromParent>(self.socket, &mut buffer) {
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

/// Writes an error and its causes as one text.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
