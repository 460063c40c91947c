//! The programs at work in the recorder service, for a user who may not load them: the same reports and commands, over a socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use sys::bpf::Ring;
use trace::backend::bpf::served::protocol::AuthorizationPrompt;
use trace::backend::bpf::served::{RecorderConnection, ServedError, ServedHangSession};

use wakeups::WakeupHistory;
use wakeups::kernel::{WakeupTracer, read_wait};

use super::event::{EventWait, EventWaitKind, MarkedAs, MarkedThread};
use super::marker::ThreadMarker;
use super::samplers::SamplerRights;
use super::served_operations::{ServedOperations, locked};

/// Where reports come from.
#[derive(Debug)]
pub enum ReportStream {
    /// A ring, of which nobody else is a reader.
    Ring(Ring),
    /// A session in the recorder service.
    Served(ServedReports),
}

impl From<Ring> for ReportStream {
    fn from(ring: Ring) -> ReportStream {
        ReportStream::Ring(ring)
    }
}

impl ReportStream {
    /// Gives the bytes of each report that is there to `each`.
    ///
    /// # Errors
    ///
    /// The service ended the session; what had come before was given.
    pub fn take(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        match self {
            ReportStream::Ring(ring) => {
                ring.take(usize::MAX, each);
                Ok(())
            }
            ReportStream::Served(served) => locked(&served.session).take(&mut each).map(drop),
        }
    }

    /// Says whether no report is left that was made before the state of a thread was last asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            ReportStream::Ring(ring) => ring.is_empty(),
            ReportStream::Served(served) => !locked(&served.session).has_reports(),
        }
    }

    /// Says whether there are reports of which the descriptor says nothing: they came with the answer to a command.
    #[must_use]
    pub fn has_more(&self) -> bool {
        match self {
            ReportStream::Ring(_) => false,
            ReportStream::Served(served) => locked(&served.session).has_reports(),
        }
    }

    /// Says whether the session in the service is over, so that neither reports nor answers come any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            ReportStream::Ring(_) => false,
            ReportStream::Served(served) => locked(&served.session).is_lost(),
        }
    }
}

impl AsFd for ReportStream {
    /// Readable when a program wants its reports to be read, or the session is over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ReportStream::Ring(ring) => ring.as_fd(),
            ReportStream::Served(served) => served.socket.as_fd(),
        }
    }
}

/// The reports of a session in the recorder service.
#[derive(Debug)]
pub struct ServedReports {
    session: Arc<Mutex<ServedHangSession>>,
    /// The session's own descriptor once more, to wait for.
    socket: OwnedFd,
}

/// Records who wakes whom.
#[derive(Debug)]
pub enum WakeupStream {
    /// Of all threads of the machine.
    Own(WakeupTracer),
    /// Of the user's own threads, in the recorder service.
    Served(ServedWakeups),
}

/// A session in the recorder service that can record who wakes whom.
#[derive(Debug)]
pub struct ServedWakeups {
    session: Arc<Mutex<ServedHangSession>>,
    lost: u64,
}

impl From<WakeupTracer> for WakeupStream {
    fn from(tracer: WakeupTracer) -> WakeupStream {
        WakeupStream::Own(tracer)
    }
}

impl WakeupStream {
    /// Stops to record, so that nothing costs anything.
    pub fn pause(&mut self) {
        match self {
            WakeupStream::Own(tracer) => tracer.pause(),
            WakeupStream::Served(served) => {
                // Of a session that is over there is nothing to stop.
                let _ = locked(&served.session).follow(false);
            }
        }
    }

    /// Records again.
    ///
    /// # Errors
    ///
    /// The service does not do it, or as `bpf(2)`: nothing is recorded.
    pub fn resume(&mut self) -> io::Result<()> {
        match self {
            WakeupStream::Own(tracer) => tracer.resume(),
            WakeupStream::Served(served) => locked(&served.session).follow(true),
        }
    }

    /// Adds the waits that have ended since the last call to a history.
    pub fn take(&mut self, history: &mut WakeupHistory) {
        match self {
            WakeupStream::Own(tracer) => {
                tracer.take(history);
            }
            WakeupStream::Served(served) => {
                let mut session = locked(&served.session);
                let taken = session.take_waits(|bytes| {
                    if let Some(wait) = read_wait(bytes) {
                        history.add(wait);
                    }
                });
                served.lost = taken.unwrap_or(served.lost);
            }
        }
    }

    /// Returns how many waits were lost until they were last taken; `None` if that is not known.
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        match self {
            WakeupStream::Own(tracer) => tracer.lost().ok(),
            WakeupStream::Served(served) => Some(served.lost),
        }
    }

    /// Returns whether it takes a message to another process to take what was recorded.
    #[must_use]
    pub fn is_served(&self) -> bool {
        matches!(self, WakeupStream::Served(_))
    }
}

/// Marks threads in the recorder service.
#[derive(Debug)]
pub struct ServedMarker {
    session: Arc<Mutex<ServedHangSession>>,
}

/// Begins a session in the recorder service that listens at `socket`, for this process's user. No person is asked for a password.
///
/// # Errors
///
/// [`ServedError`]: nothing is left in the kernel.
pub fn open_served(
    socket: &Path,
) -> Result<(ServedReports, ServedMarker, ServedWakeups), ServedError> {
    let session = RecorderConnection::connect(socket, AuthorizationPrompt::Unwanted)?;
    let session = session.open_hangs()?;
    let socket = session.as_fd().try_clone_to_owned().map_err(ServedError::Lost)?;
    let session = Arc::new(Mutex::new(session));
    let reports = ServedReports { session: Arc::clone(&session), socket };
    let wakeups = ServedWakeups { session: Arc::clone(&session), lost: 0 };
    Ok((reports, ServedMarker { session }, wakeups))
}

/// A process that has ended is not found, as in the process that loaded the programs.
fn told(error: io::Error) -> io::Error {
    match error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) {
        true => io::ErrorKind::NotFound.into(),
        false => error,
    }
}

impl ThreadMarker for ServedMarker {
    fn mark(&mut self, process: u32, marked: MarkedAs) -> io::Result<()> {
        locked(&self.session).mark(process, marked.into()).map_err(told)
    }

    fn unmark(&mut self, process: u32) -> io::Result<()> {
        locked(&self.session).unmark(process)
    }

    fn classify(&mut self, process: u32, wait: EventWait, kind: EventWaitKind) -> io::Result<()> {
        locked(&self.session).classify(process, wait.into(), kind == EventWaitKind::Loop)
    }

    fn state(&mut self, process: u32) -> io::Result<Option<MarkedThread>> {
        let state = locked(&self.session).state(process)?;
        Ok(state.and_then(|bytes| MarkedThread::read(&bytes)))
    }

    fn lost(&mut self) -> io::Result<u64> {
        locked(&self.session).lost()
    }

    fn samplers(&self) -> SamplerRights {
        SamplerRights::of_session(Arc::clone(&self.session))
    }

    fn operations(&self) -> Option<ServedOperations> {
        Some(ServedOperations::of_session(Arc::clone(&self.session)))
    }
}
