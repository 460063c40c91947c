//! Records the messages of buses, without making a bus buffer them.
//!
//! A thread of its own reads the sockets into a ring of bounded memory, which another thread allocates ahead of need; the consumer
//! of the ring ([`BusRecorder`]) may be slow. Messages that do not fit are dropped and counted, and the recording contains
//! their number at their position. If possible, the threads run in a child process, so that a stopped program (Ctrl-Z,
//! `SIGSTOP`) only consumes nothing for a while, and the bus never has to buffer messages for it.

mod bus_stream;
mod child;
pub(crate) mod connection;
mod follow;
mod memory;
mod process;
mod reader;
mod ring;
mod scheduling;
mod threads;
mod writer;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use sys::clock::Clock;

pub use bus_stream::LaneEnd;
pub use connection::{BusMonitor, CaptureMethod, is_bus_at};
pub use follow::Follower;
pub use ring::MessageTally;
pub use writer::{Output, RecordWriteError, RecordingLimits, RecordingSummary, Why, write};

use super::capture::{CaptureEvent, CaptureTime, CapturedBus, CapturedMessage, PeerRecord};
use child::{Child, Taker};
use reader::Times;
use ring::{Chunk, Ring, RingItem, TakeResult};
use threads::Threads;

/// The default size of the ring, in bytes.
pub const ROOM: usize = 64 << 20;

/// Why a recording did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no server at the address, or it is not a bus.
    #[error("cannot connect to the bus at {address}")]
    NoBus {
        /// Its address.
        address: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// The bus refuses.
    #[error("the bus at {address} refuses: {text}")]
    Refused {
        /// Its address.
        address: String,
        /// The D-Bus name of the error.
        name: String,
        /// The error of the bus.
        text: String,
    },
    /// The connection broke; nothing is recorded.
    #[error("the connection to the bus at {address} broke")]
    Broken {
        /// Its address.
        address: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// The system refuses a thread or a descriptor; nothing is recorded.
    #[error("cannot start recording")]
    NotBegun(#[source] io::Error),
}

impl RecordError {
    /// Returns whether more permissions would help.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, RecordError::Refused { name, .. } if name == "org.freedesktop.DBus.Error.AccessDenied")
    }
}

/// A bus that is to be recorded.
#[derive(Debug)]
pub struct BusToRecord {
    /// The bus as the recording describes it; its number is its position among all.
    pub bus: CapturedBus,
    /// Its messages.
    pub monitor: BusMonitor,
    /// The follower of its connections, if there is one.
    pub follower: Option<Follower>,
}

/// How to record.
#[derive(Clone, Copy, Debug)]
pub struct RecordOptions {
    /// The most memory for messages that are not consumed yet, in bytes.
    pub room: usize,
    /// How long a message may wait for further messages before it can be consumed.
    pub linger: Duration,
}

impl Default for RecordOptions {
    fn default() -> RecordOptions {
        RecordOptions { room: ROOM, linger: Duration::from_millis(50) }
    }
}

/// A recorder of buses, whose events the caller consumes.
#[derive(Debug)]
pub struct BusRecorder {
    home: ReaderLocation,
    /// Readable when the recording is to end.
    stop: Arc<OwnedFd>,
    times: Times,
}

/// The threads or the child process that read the sockets.
#[derive(Debug)]
enum ReaderLocation {
    Threads(Threads),
    Child(Child),
}

/// The result of waiting for events.
#[derive(Debug)]
pub enum NextRecord {
    /// Events, in their order.
    Batch(Batch),
    /// Nothing arrived in time.
    Quiet,
    /// The recording has ended.
    Over,
}

/// Some events. Their memory is reused when the batch is dropped.
#[derive(Debug)]
pub struct Batch {
    item: Option<RingItem>,
    origin: Origin,
}

/// The owner of the memory of a batch.
#[derive(Debug)]
enum Origin {
    Ring(Arc<Ring>),
    Child(Arc<Taker>),
}

impl BusRecorder {
    /// Starts recording with threads of this process. While the process is stopped, the buses buffer messages.
    ///
    /// # Errors
    ///
    /// [`RecordError`]; the monitors are gone.
    pub fn start(
        sources: Vec<BusToRecord>,
        options: &RecordOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<BusRecorder, RecordError> {
        let times = Times::start(clock);
        let stop = stop_descriptor()?;
        let ring = Arc::new(Ring::new(options.room));
        let threads = Threads::start(sources, options, ring, &times, &stop)?;
        Ok(BusRecorder { home: ReaderLocation::Threads(threads), stop, times })
    }

    /// Begins to record in a child process, which continues while this process is stopped. This process resumes the child if
    /// the child is stopped.
    ///
    /// A process with several threads cannot be forked safely: it records as [`BusRecorder::start`] does.
    ///
    /// # Errors
    ///
    /// [`RecordError`]; the monitors are gone.
    pub fn start_in_child(
        sources: Vec<BusToRecord>,
        options: &RecordOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<BusRecorder, RecordError> {
        if !sys::supervise::has_one_thread().map_err(RecordError::NotBegun)? {
            return BusRecorder::start(sources, options, clock);
        }
        let times = Times::start(clock);
        let stop = stop_descriptor()?;
        let child = Child::start(sources, options, &times)?;
        Ok(BusRecorder { home: ReaderLocation::Child(child), stop, times })
    }

    /// Returns the process that reads the sockets, if it is not this one.
    #[must_use]
    pub fn child(&self) -> Option<u32> {
        match &self.home {
            ReaderLocation::Threads(_) => None,
            ReaderLocation::Child(child) => Some(child.process()),
        }
    }

    /// Returns the next events; waits for at most `patience`.
    #[must_use]
    pub fn next(&self, patience: Duration) -> NextRecord {
        let (taken, origin) = match &self.home {
            ReaderLocation::Threads(threads) => {
                let ring = threads.ring();
                (ring.take(patience), Origin::Ring(Arc::clone(ring)))
            }
            ReaderLocation::Child(child) => {
                let taker = child.taker();
                (taker.take(patience), Origin::Child(Arc::clone(taker)))
            }
        };
        match taken {
            TakeResult::Item(item) => NextRecord::Batch(Batch { item: Some(item), origin }),
            TakeResult::Quiet => NextRecord::Quiet,
            TakeResult::Over => NextRecord::Over,
        }
    }

    /// Returns the present time on the clock of the recording, in nanoseconds since the epoch.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.times.now()
    }

    /// Returns how many messages and bytes have arrived so far.
    #[must_use]
    pub fn tally(&self) -> MessageTally {
        match &self.home {
            ReaderLocation::Threads(threads) => threads.ring().tally(),
            ReaderLocation::Child(child) => child.tally(),
        }
    }

    /// Ends the recording. Messages that have arrived can still be consumed.
    pub fn stop(&self) {
        // It fails only if it is readable already.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let ReaderLocation::Child(child) = &self.home {
            child.taker().stop();
        }
    }

    /// Returns whether the end of the recording is requested now or within this time.
    #[must_use]
    pub fn stopped_within(&self, patience: Duration) -> bool {
        sys::socket::wait_readable(&*self.stop, Some(patience)).unwrap_or(true)
    }

    /// Ends the recording, and returns how many messages and bytes arrived, and why buses ended by themselves before.
    #[must_use]
    pub fn finish(mut self) -> (MessageTally, Vec<(u16, LaneEnd)>) {
        let ends = self.end();
        (self.tally(), ends)
    }

    fn end(&mut self) -> Vec<(u16, LaneEnd)> {
        self.stop();
        match &mut self.home {
            ReaderLocation::Threads(threads) => threads.end(),
            ReaderLocation::Child(child) => child.end(),
        }
    }
}

fn stop_descriptor() -> Result<Arc<OwnedFd>, RecordError> {
    let made = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    made.map(Arc::new).map_err(|error| RecordError::NotBegun(error.into()))
}

impl Drop for BusRecorder {
    fn drop(&mut self) {
        self.end();
    }
}

impl Batch {
    /// Returns the events, in their order.
    pub fn events(&self) -> impl Iterator<Item = CaptureEvent<'_>> {
        let (chunk, peers, rest) = match &self.item {
            Some(RingItem::Chunk(chunk)) => {
                (Some(chunk), &[][..], chunk.dropped.map(CaptureEvent::Dropped))
            }
            Some(RingItem::Peers(peers)) => (None, &peers[..], None),
            Some(RingItem::Bus(bus)) => {
                (None, &[][..], Some(CaptureEvent::Bus(Box::new(bus.clone()))))
            }
            Some(RingItem::Dropped(dropped)) => {
                (None, &[][..], Some(CaptureEvent::Dropped(*dropped)))
            }
            Some(RingItem::End(end)) => (None, &[][..], Some(CaptureEvent::End(*end))),
            None => (None, &[][..], None),
        };
        let peers =
            peers.iter().map(|peer: &PeerRecord| CaptureEvent::Peer(Box::new(peer.clone())));
        rest.into_iter().chain(peers).chain(chunk.into_iter().flat_map(messages))
    }
}

fn messages(chunk: &Chunk) -> impl Iterator<Item = CaptureEvent<'_>> {
    let mut begin = 0;
    chunk.marks.iter().filter_map(move |(at, end)| {
        let bytes = chunk.bytes.get(begin..*end)?;
        begin = *end;
        // No message is longer than 2^27 bytes.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Some(CaptureEvent::Message(CapturedMessage {
            at: CaptureTime(*at),
            bus: chunk.bus,
            length,
            bytes,
        }))
    })
}

impl Drop for Batch {
    fn drop(&mut self) {
        let Some(RingItem::Chunk(chunk)) = self.item.take() else { return };
        match &self.origin {
            Origin::Ring(ring) => ring.give_back(chunk),
            Origin::Child(taker) => taker.give_back(chunk),
        }
    }
}
