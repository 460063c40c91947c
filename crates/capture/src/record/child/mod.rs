//! The recording in a child process: it reads the sockets, and hands chunks of shared memory over as they are taken.
//!
//! The child is in a process group of its own, so that the terminal's Ctrl-Z does not reach it. If it is stopped all the
//! same, its parent is notified and resumes it; the bus has to buffer messages only if both are stopped.

mod child_process;
mod parent;
mod protocol;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use sys::sched::RealtimeGuard;
use sys::shared::{Counters, Slots};
use sys::supervise::{self, ForkSide};

use self::protocol::FromChild;
use super::bus_stream::LaneEnd;
use super::memory::CHUNK;
use super::reader::Times;
use super::ring::{MessageTally, Ring};
use super::{BusToRecord, RecordError, RecordOptions};

pub(super) use self::parent::Taker;

/// The time limit for reading messages that buses still buffer at the end of the recording.
const LAST: Duration = Duration::from_secs(5);
/// The time limit for the child to begin.
const BEGIN: Duration = Duration::from_secs(30);

/// The child process, from the side of its parent.
#[derive(Debug)]
pub(super) struct Child {
    process: u32,
    taker: Arc<Taker>,
    counters: Arc<Counters<3>>,
    /// Resumes the child when it is stopped, and waits for its end.
    guard: Option<JoinHandle<io::Result<ExitStatus>>>,
}

impl Child {
    /// Forks a child that begins to record. This process must have one thread.
    pub(super) fn start(
        sources: Vec<BusToRecord>,
        options: &RecordOptions,
        times: &Times,
    ) -> Result<Child, RecordError> {
        let not_begun = RecordError::NotBegun;
        let slots = Arc::new(Slots::new(Ring::chunks(options.room), CHUNK).map_err(not_begun)?);
        let counters = Arc::new(Counters::new().map_err(not_begun)?);
        let (here, there) = sys::socket::pair().map_err(not_begun)?;
        let process = match supervise::fork().map_err(not_begun)? {
            ForkSide::Child => {
                child_process::run(sources, options, times, &there, &slots, &counters)
            }
            ForkSide::Parent(process) => process,
        };
        // The child has copies of these sockets; they close when it ends.
        drop((sources, there));
        let guard = sys::thread::spawn("bus-guard", move || {
            // While the child is stopped, the bus has to buffer. Without this priority the thread works, too.
            let _realtime = RealtimeGuard::begin();
            supervise::keep_running(process)
        });
        let taker = Arc::new(Taker::new(here, slots, times));
        let guard = match guard {
            Ok(guard) => guard,
            Err(error) => {
                // Without this thread nobody would resume the child, so its socket is closed, which ends it.
                drop(taker);
                let _ = supervise::keep_running(process);
                return Err(not_begun(error));
            }
        };
        let child = Child { process, taker, counters, guard: Some(guard) };
        match child.taker.answer(BEGIN).map_err(not_begun)? {
            FromChild::Begun => Ok(child),
            FromChild::Refused { code: Some(code), .. } => {
                Err(not_begun(io::Error::from_raw_os_error(code)))
            }
            FromChild::Refused { text, .. } => Err(not_begun(io::Error::other(text))),
            _ => Err(not_begun(io::ErrorKind::InvalidData.into())),
        }
    }

    pub(super) fn process(&self) -> u32 {
        self.process
    }

    pub(super) fn taker(&self) -> &Arc<Taker> {
        &self.taker
    }

    pub(super) fn tally(&self) -> MessageTally {
        let [messages, bytes, dropped] = self.counters.load();
        MessageTally { messages, bytes, dropped }
    }

    /// Ends the child. Items that were not taken are lost. Returns why buses ended by themselves.
    pub(super) fn end(&mut self) -> Vec<(u16, LaneEnd)> {
        let Some(guard) = self.guard.take() else { return Vec::new() };
        let ends = self.taker.finish(LAST);
        if ends.is_none() {
            // It fails if the child has ended already.
            let _ = supervise::send(self.process, rustix::process::Signal::KILL.as_raw());
        }
        let ended = guard.join().ok().and_then(Result::ok);
        ends.unwrap_or_else(|| {
            vec![(0, LaneEnd::Killed { signal: ended.and_then(|it| it.signal()) })]
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}
