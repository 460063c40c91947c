//! Records what happens on buses as it happens, and never makes a bus wait.
//!
//! A thread of its own empties the sockets into a ring of bounded memory ([`Recorder`]), which another makes ahead of
//! need; whoever takes from the ring may be as slow as it likes. What has no room is counted to the message, and the record says so where it is missing.

pub(in crate::bus) mod connection;
mod follow;
mod lane;
mod pace;
mod process;
mod reader;
mod ring;
mod writer;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use session::clock::Clock;

pub use connection::{Monitor, Way};
pub use follow::Follower;
pub use lane::LaneEnd;
pub use ring::Tally;
pub use writer::{Ended, Limits, Output, Why, WriteError, write};

use super::capture::{Bus, Event, Message, Peer, Timestamp};
use lane::Lane;
use reader::{Linger, Reader, Times};
use ring::{Chunk, Desk, Item, Ring, Taken};

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
    ring: Arc<Ring>,
    stop: Arc<OwnedFd>,
    reader: Option<JoinHandle<Vec<(u16, LaneEnd)>>>,
    /// Who makes the ring's memory.
    maker: Option<JoinHandle<()>>,
    followers: Vec<(UnixStream, JoinHandle<()>)>,
    times: Times,
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
    ring: Arc<Ring>,
}

impl Recorder {
    /// Begins to record.
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
        let ring = Arc::new(Ring::new(options.room));
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
            .map_err(|error| RecordError::NotBegun(error.into()))?;
        let stop = Arc::new(stop);
        let linger = Linger::new(options.linger).map_err(RecordError::NotBegun)?;
        for source in &sources {
            ring.put(Item::Bus(source.bus.clone()));
        }
        let mut desk = Desk::of(Arc::clone(&ring));
        let mut lanes = Vec::new();
        let mut followed = Vec::new();
        for source in sources {
            let number = source.bus.bus;
            if let Some(mut follower) = source.follower {
                ring.put(Item::Peers(follower.news(times.now())));
                followed.push((follower.handle()?, follower));
            }
            rustix::io::ioctl_fionbio(&source.monitor.descriptor, true)
                .map_err(|error| RecordError::NotBegun(error.into()))?;
            let address = source.bus.address;
            let lane = Lane::new(number, source.monitor, &mut desk, times.now());
            lanes.push(lane.map_err(|end| RecordError::Broken {
                address,
                source: io::Error::new(io::ErrorKind::InvalidData, end.to_string()),
            })?);
        }
        let reader = Reader { lanes, desk, times: times.clone(), linger, stop: Arc::clone(&stop) };
        let reader = std::thread::Builder::new()
            .name("bus-reader".to_owned())
            .spawn(move || reader.run())
            .map_err(RecordError::NotBegun)?;
        let mut recorder = Recorder {
            ring,
            stop,
            reader: Some(reader),
            maker: None,
            followers: Vec::new(),
            times: times.clone(),
        };
        let ring = Arc::clone(&recorder.ring);
        let maker = std::thread::Builder::new()
            .name("bus-memory".to_owned())
            .spawn(move || ring.keep_ready())
            .map_err(RecordError::NotBegun)?;
        recorder.maker = Some(maker);
        for (handle, follower) in followed {
            let (ring, times) = (Arc::clone(&recorder.ring), times.clone());
            let thread = std::thread::Builder::new()
                .name("bus-follower".to_owned())
                .spawn(move || follower.run(&ring, &times))
                .map_err(RecordError::NotBegun)?;
            recorder.followers.push((handle, thread));
        }
        Ok(recorder)
    }

    /// Takes the next events; waits for them at most so long.
    #[must_use]
    pub fn next(&self, patience: Duration) -> Next {
        match self.ring.take(patience) {
            Taken::Item(item) => {
                Next::Batch(Batch { item: Some(item), ring: Arc::clone(&self.ring) })
            }
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
        self.ring.tally()
    }

    /// Ends the recording: what has come by now can still be taken, and then it is over.
    pub fn stop(&self) {
        // It is readable already if this cannot be written.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
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
        for (handle, thread) in self.followers.drain(..) {
            // It may be gone already, with the bus.
            let _ = handle.shutdown(std::net::Shutdown::Both);
            let _ = thread.join();
        }
        let ends = self.reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        // A reader that panicked has not said so.
        self.ring.end();
        if let Some(maker) = self.maker.take() {
            let _ = maker.join();
        }
        ends
    }
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
        if let Some(Item::Chunk(chunk)) = self.item.take() {
            self.ring.give_back(chunk);
        }
    }
}
