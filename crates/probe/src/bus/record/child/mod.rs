//! The recording in a child process: it reads the sockets, and hands chunks of shared memory over as they are taken.
//!
//! The child is in a process group of its own, so that the terminal's Ctrl-Z does not reach it. If it is stopped all the
//! same, its parent, which is told of that, has it go on; only who stops both can make a bus wait.

mod drain;
mod frame;
mod take;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use sys::shared::{Counters, Slots};
use sys::supervise::{self, Side};

use self::frame::FromChild;
use super::lane::LaneEnd;
use super::reader::Times;
use super::ring::{CHUNK, Ring, Tally};
use super::{Options, RecordError, Source};

pub(super) use self::take::Taker;

/// How long the child may take to read what buses still hold, when the recording is to end.
const LAST: Duration = Duration::from_secs(5);
/// How long the child may take to begin.
const BEGIN: Duration = Duration::from_secs(30);

/// The child, as its parent has it.
#[derive(Debug)]
pub(super) struct Child {
    process: u32,
    taker: Arc<Taker>,
    counters: Arc<Counters<3>>,
    /// Has the child go on when it is stopped, and waits for its end.
    guard: Option<JoinHandle<io::Result<ExitStatus>>>,
}

impl Child {
    /// Forks a child that begins to record. This process must have one thread.
    pub(super) fn start(
        sources: Vec<Source>,
        options: &Options,
        times: &Times,
    ) -> Result<Child, RecordError> {
        let not_begun = RecordError::NotBegun;
        let slots = Arc::new(Slots::new(Ring::chunks(options.room), CHUNK).map_err(not_begun)?);
        let counters = Arc::new(Counters::new().map_err(not_begun)?);
        let (here, there) = sys::socket::pair().map_err(not_begun)?;
        let process = match supervise::fork().map_err(not_begun)? {
            Side::Child => drain::run(sources, options, times, &there, &slots, &counters),
            Side::Parent(process) => process,
        };
        // The child has them now; they close when it ends.
        drop((sources, there));
        let guard = sys::thread::spawn("bus-guard", move || supervise::keep_running(process));
        let taker = Arc::new(Taker::new(here, slots, times));
        let guard = match guard {
            Ok(guard) => guard,
            Err(error) => {
                // Nobody would have it go on, so it ends with its socket.
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

    pub(super) fn tally(&self) -> Tally {
        let [messages, bytes, dropped] = self.counters.load();
        Tally { messages, bytes, dropped }
    }

    /// Ends it; what was not taken is gone. Returns why buses ended by themselves.
    pub(super) fn end(&mut self) -> Vec<(u16, LaneEnd)> {
        let Some(guard) = self.guard.take() else { return Vec::new() };
        let ends = self.taker.finish(LAST);
        if ends.is_none() {
            // It may have ended already.
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
