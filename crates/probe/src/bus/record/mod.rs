//! Records what happens on buses as it happens, and never makes a bus wait.
//!
//! A thread of its own empties the sockets into a ring of bounded memory, which another makes ahead of need; whoever takes
//! from the ring ([`Recorder`]) may be as slow as it likes. What has no room is counted to the message, and the record says
//! so where it is missing. The threads are in a child process where that can be, so that a stopped program (Ctrl-Z,
//! `SIGSTOP`) is one that takes nothing for a while, and the bus never keeps its messages.

mod child;
pub(in crate::bus) mod connection;
mod follow;
mod lane;
mod memory;
mod pace;
mod process;
mod reader;
mod ring;
mod threads;
mod writer;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use session::clock::Clock;

pub use connection::{Monitor, Way};
pub use follow::Follower;
pub use lane::LaneEnd;
pub use ring::Tally;
pub use writer::{Ended, Limits, Output, Why, WriteError, write};

use super::capture::{Bus, Event, Message, Peer, Timestamp};
use child::{Child, Taker};
use reader::Times;
use ring::{Chunk, Item, Ring, Taken};
use threads::Threads;

/// How much memory the ring has if nobody says otherwise, in bytes.
pub const ROOM: usize = 64 << 20;

/// Why traffic is not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Nobody listens there, or it is no bus.
    #[error("cannot connect to the bus at {address}")]
    NoBus {
        /// Where.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The bus does not let us.
    #[error("the bus at {address} refuses: {text}")]
    Refused {
        /// Where.
        address: String,
        /// The D-Bus name of the error.
        name: String,
        /// What the bus says.
        text: String,
    },
    /// The connection broke; nothing is recorded.
    #[error("the connection to the bus at {address} broke")]
    Broken {
        /// Where.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The system has no thread or descriptor for us; nothing is recorded.
    #[error("cannot begin to record")]
    NotBegun(#[source] io::Error),
}

impl RecordError {
    /// Says whether somebody with more rights could do it.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, RecordError::Refused { name, .. } if name == "org.freedesktop.DBus.Error.AccessDenied")
    }
}

/// A bus that is to be recorded.
#[derive(Debug)]
pub struct Source {
    /// What the record says of it; its number is the place among all.
    pub bus: Bus,
    /// Its traffic.
    pub monitor: Monitor,
    /// Who tells who is on it; without one, nobody does.
    pub follower: Option<Follower>,
}

/// How to record.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much memory what is not taken yet may use, in bytes.
    pub room: usize,
    /// How long a message may wait for others before it can be taken.
    pub linger: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { room: ROOM, linger: Duration::from_millis(50) }
    }
}

/// What happens on some buses, to be taken as it comes.
#[derive(Debug)]
pub struct Recorder {
    home: Home,
    /// Readable when the recording is to end.
    stop: Arc<OwnedFd>,
    times: Times,
}

/// Where the sockets are read.
#[derive(Debug)]
enum Home {
    Threads(Threads),
    Child(Child),
}

/// What there is to be taken.
#[derive(Debug)]
pub enum Next {
    /// Events, in their order.
    Batch(Batch),
    /// Nothing came in the time.
    Quiet,
    /// Nothing will come any more.
    Over,
}

/// Some events; their memory is used again when it is dropped.
#[derive(Debug)]
pub struct Batch {
    item: Option<Item>,
    origin: Origin,
}

/// Who gets the memory of a batch back.
#[derive(Debug)]
enum Origin {
    Ring(Arc<Ring>),
    Child(Arc<Taker>),
}

impl Recorder {
    /// Begins to record by threads of this process: while it is stopped, the buses keep what comes.
    ///
    /// # Errors
    ///
    /// [`RecordError`]; the monitors are gone.
    pub fn start(
        sources: Vec<Source>,
        options: &Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Recorder, RecordError> {
        let times = Times::start(clock);
        let stop = stop_descriptor()?;
        let ring = Arc::new(Ring::new(options.room));
        let threads = Threads::start(sources, options, ring, &times, &stop)?;
        Ok(Recorder { home: Home::Threads(threads), stop, times })
    }

    /// Begins to record in a child process, which goes on while this one is stopped, and which this one wakes if it is
    /// stopped itself.
    ///
    /// A process with other threads cannot be forked: it records as [`Recorder::start`] does.
    ///
    /// # Errors
    ///
    /// [`RecordError`]; the monitors are gone.
    pub fn start_in_child(
        sources: Vec<Source>,
        options: &Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Recorder, RecordError> {
        if !sys::supervise::has_one_thread().map_err(RecordError::NotBegun)? {
            return Recorder::start(sources, options, clock);
        }
        let times = Times::start(clock);
        let stop = stop_descriptor()?;
        let child = Child::start(sources, options, &times)?;
        Ok(Recorder { home: Home::Child(child), stop, times })
    }

    /// Returns the process that reads the sockets, if it is not this one.
    #[must_use]
    pub fn child(&self) -> Option<u32> {
        match &self.home {
            Home::Threads(_) => None,
            Home::Child(child) => Some(child.process()),
        }
    }

    /// Takes the next events; waits for them at most so long.
    #[must_use]
    pub fn next(&self, patience: Duration) -> Next {
        let (taken, origin) = match &self.home {
            Home::Threads(threads) => {
                let ring = threads.ring();
                (ring.take(patience), Origin::Ring(Arc::clone(ring)))
            }
            Home::Child(child) => {
                let taker = child.taker();
                (taker.take(patience), Origin::Child(Arc::clone(taker)))
            }
        };
        match taken {
            Taken::Item(item) => Next::Batch(Batch { item: Some(item), origin }),
            Taken::Quiet => Next::Quiet,
            Taken::Over => Next::Over,
        }
    }

    /// Returns what time it is for what is recorded, in nanoseconds since the epoch.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.times.now()
    }

    /// Returns how much came by now.
    #[must_use]
    pub fn tally(&self) -> Tally {
        match &self.home {
            Home::Threads(threads) => threads.ring().tally(),
            Home::Child(child) => child.tally(),
        }
    }

    /// Ends the recording: what has come by now can still be taken, and then it is over.
    pub fn stop(&self) {
        // It is readable already if this cannot be written.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Home::Child(child) = &self.home {
            child.taker().stop();
        }
    }

    /// Says whether the recording is to end, now or within this time.
    #[must_use]
    pub fn stopped_within(&self, patience: Duration) -> bool {
        sys::socket::wait_readable(&*self.stop, Some(patience)).unwrap_or(true)
    }

    /// Ends the recording and returns how much came in all, and why buses ended by themselves before that.
    #[must_use]
    pub fn finish(mut self) -> (Tally, Vec<(u16, LaneEnd)>) {
        let ends = self.end();
        (self.tally(), ends)
    }

    fn end(&mut self) -> Vec<(u16, LaneEnd)> {
        self.stop();
        match &mut self.home {
            Home::Threads(threads) => threads.end(),
            Home::Child(child) => child.end(),
        }
    }
}

fn stop_descriptor() -> Result<Arc<OwnedFd>, RecordError> {
    let made = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    made.map(Arc::new).map_err(|error| RecordError::NotBegun(error.into()))
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

impl Batch {
    /// Returns the events, in their order.
    pub fn events(&self) -> impl Iterator<Item = Event<'_>> {
        let (chunk, peers, rest) = match &self.item {
            Some(Item::Chunk(chunk)) => (Some(chunk), &[][..], chunk.dropped.map(Event::Dropped)),
            Some(Item::Peers(peers)) => (None, &peers[..], None),
            Some(Item::Bus(bus)) => (None, &[][..], Some(Event::Bus(Box::new(bus.clone())))),
            Some(Item::Dropped(dropped)) => (None, &[][..], Some(Event::Dropped(*dropped))),
            Some(Item::End(end)) => (None, &[][..], Some(Event::End(*end))),
            None => (None, &[][..], None),
        };
        let peers = peers.iter().map(|peer: &Peer| Event::Peer(Box::new(peer.clone())));
        rest.into_iter().chain(peers).chain(chunk.into_iter().flat_map(messages))
    }
}

fn messages(chunk: &Chunk) -> impl Iterator<Item = Event<'_>> {
    let mut begin = 0;
    chunk.marks.iter().filter_map(move |(at, end)| {
        let bytes = chunk.bytes.get(begin..*end)?;
        begin = *end;
        // No message is longer than 2^27 bytes.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Some(Event::Message(Message { at: Timestamp(*at), bus: chunk.bus, length, bytes }))
    })
}

impl Drop for Batch {
    fn drop(&mut self) {
        let Some(Item::Chunk(chunk)) = self.item.take() else { return };
        match &self.origin {
            Origin::Ring(ring) => ring.give_back(chunk),
            Origin::Child(taker) => taker.give_back(chunk),
        }
    }
}
