//! The threads of a recording: one reads, one allocates memory, one for each bus follows its connections.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::bus_stream::{BusBuffer, LaneEnd};
use super::reader::{DelayTimer, Reader, Times};
use super::ring::{Ring, RingItem, RingProducer};
use super::{BusToRecord, RecordError, RecordOptions};

/// Threads that fill a ring.
#[derive(Debug)]
pub(super) struct Threads {
    ring: Arc<Ring>,
    stop: Arc<OwnedFd>,
    reader: Option<JoinHandle<Vec<(u16, LaneEnd)>>>,
    /// The thread that allocates the ring's memory.
    maker: Option<JoinHandle<()>>,
    followers: Vec<(UnixStream, JoinHandle<()>)>,
}

impl Threads {
    /// Begins to record into a ring, until `stop` is readable.
    ///
    /// # Errors
    ///
    /// [`RecordError`]; the monitors are gone.
    pub(super) fn start(
        sources: Vec<BusToRecord>,
        options: &RecordOptions,
        ring: Arc<Ring>,
        times: &Times,
        stop: &Arc<OwnedFd>,
    ) -> Result<Threads, RecordError> {
        let linger = DelayTimer::new(options.linger).map_err(RecordError::NotBegun)?;
        for source in &sources {
            ring.put(RingItem::Bus(source.bus.clone()));
        }
        let mut producer = RingProducer::of(Arc::clone(&ring));
        let mut lanes = Vec::new();
        let mut followed = Vec::new();
        for source in sources {
            let number = source.bus.bus;
            if let Some(mut follower) = source.follower {
                ring.put(RingItem::Peers(follower.news(times.now())));
                followed.push((follower.handle()?, follower));
            }
            rustix::io::ioctl_fionbio(&source.monitor.descriptor, true)
                .map_err(|error| RecordError::NotBegun(error.into()))?;
            let address = source.bus.address;
            let lane = BusBuffer::new(number, source.monitor, &mut producer, times.now());
            lanes.push(lane.map_err(|end| RecordError::Broken {
                address,
                source: io::Error::new(io::ErrorKind::InvalidData, end.to_string()),
            })?);
        }
        let reader =
            Reader { lanes, producer, times: times.clone(), linger, stop: Arc::clone(stop) };
        let reader = sys::thread::spawn("bus-reader", move || reader.run());
        // If a thread cannot be started, dropping this ends those that were started before.
        let mut threads = Threads {
            ring: Arc::clone(&ring),
            stop: Arc::clone(stop),
            reader: Some(reader.map_err(RecordError::NotBegun)?),
            maker: None,
            followers: Vec::new(),
        };
        let maker = sys::thread::spawn("bus-memory", move || ring.keep_ready());
        threads.maker = Some(maker.map_err(RecordError::NotBegun)?);
        for (handle, follower) in followed {
            let (ring, times) = (Arc::clone(&threads.ring), times.clone());
            let thread = sys::thread::spawn("bus-follower", move || follower.run(&ring, &times));
            threads.followers.push((handle, thread.map_err(RecordError::NotBegun)?));
        }
        Ok(threads)
    }

    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Ends the threads, and returns why buses ended by themselves.
    pub(super) fn end(&mut self) -> Vec<(u16, LaneEnd)> {
        // It fails only if it is readable already.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        for (handle, thread) in self.followers.drain(..) {
            // It fails if the connection ended with the bus.
            let _ = handle.shutdown(std::net::Shutdown::Both);
            let _ = thread.join();
        }
        let ends = self.reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        // A reader that panicked returns nothing.
        self.ring.end();
        if let Some(maker) = self.maker.take() {
            let _ = maker.join();
        }
        ends
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}
