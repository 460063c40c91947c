//! A session in the recorder service, which loads the programs for a user who may not load any himself.
//!
//! The service records the caller's own processes alone, and reads nothing but its own maps: records are read, stacks followed
//! and names looked up here, with the caller's rights.

mod fields;
pub mod hang_messages;
mod hangs;
pub mod protocol;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use sys::clock::{Clock, SystemClock};
use sys::socket::{self, Full, Received};

pub use self::hangs::ServedHangSession;
use self::protocol::{
    AuthorizationPrompt, LONGEST, Refusal, RefusalKind, Reply, Request, TraceOrder, VERSION,
};
use crate::record::{BpfRecord, ThreadTotals};
use crate::session::{BpfSettings, LossCounters, ThreadState, WatchStart};
use crate::totals::Total;

/// The longest that an answer may take, apart from one that a person is asked for.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest that a person may take.
const PATIENCE_WITH_PEOPLE: Duration = Duration::from_secs(300);
/// A session that asks for nothing is ended by the service after some minutes.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);

/// Why there is no session in the service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServedError {
    /// Nobody listens there.
    #[error("the recorder service is not there")]
    Absent(#[source] io::Error),
    /// The service does not do it.
    #[error("the recorder service refuses it: {0}")]
    Refused(Refusal),
    /// The connection broke, or what came makes no sense.
    #[error("cannot talk to the recorder service")]
    Lost(#[source] io::Error),
}

impl ServedError {
    /// Says whether there is no service, as opposed to one that refuses.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, ServedError::Absent(_))
    }
}

/// A connection that the service has let in.
#[derive(Debug)]
pub struct RecorderConnection {
    socket: OwnedFd,
    clock: SystemClock,
    /// Messages with records that are not taken yet.
    records: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
    /// When the service was last asked for something, on the clock.
    asked: Duration,
    /// What came with the last message.
    descriptor: Option<OwnedFd>,
    /// Whether it has failed.
    is_lost: bool,
}

/// A session in the service.
#[derive(Debug)]
pub struct ServedSession {
    connection: RecorderConnection,
}

impl RecorderConnection {
    /// Connects to the service at `path` and asks it whether it has sessions for this user.
    ///
    /// # Errors
    ///
    /// [`ServedError`]; there is no connection.
    pub fn connect(
        path: &Path,
        prompt: AuthorizationPrompt,
    ) -> Result<RecorderConnection, ServedError> {
        let socket = socket::connect_now(path).map_err(ServedError::Absent)?;
        let clock = SystemClock::start();
        let buffer = vec![0; LONGEST];
        let (records, asked) = (VecDeque::new(), clock.monotonic());
        let (descriptor, is_lost) = (None, false);
        let mut connection =
            RecorderConnection { socket, clock, records, buffer, asked, descriptor, is_lost };
        let patience = match prompt {
            AuthorizationPrompt::Allowed => PATIENCE_WITH_PEOPLE,
            AuthorizationPrompt::Unwanted => PATIENCE,
        };
        let hello = Request::Hello { version: VERSION.to_owned(), prompt };
        connection.done_within(&hello, patience)?;
        Ok(connection)
    }

    /// Begins a session.
    ///
    /// # Errors
    ///
    /// [`ServedError`]; the kernel has no programs of ours.
    pub fn open(mut self, settings: &BpfSettings<'_>) -> Result<ServedSession, ServedError> {
        let order = TraceOrder {
            calls: (0..super::layout::CALLS).filter(|n| settings.calls.contains(*n)).collect(),
            threshold_ns: settings.threshold_ns,
            kept: settings.kept.to_vec(),
            threads: settings.threads,
            stacks: settings.stacks,
            ring_bytes: settings.ring_bytes,
            wakes: settings.wakes,
        };
        self.done_within(&Request::OpenTrace(order), PATIENCE)?;
        Ok(ServedSession { connection: self })
    }

    fn done_within(&mut self, request: &Request, patience: Duration) -> Result<(), ServedError> {
        match self.send(request) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                return Err(ServedError::Lost(error));
            }
            _ => {}
        }
        // Who is turned away at once is told why, whether the request was taken or not.
        match self.answer(patience).map_err(ServedError::Lost)? {
            Reply::Done => Ok(()),
            Reply::Refused(refusal) => Err(ServedError::Refused(refusal)),
            Reply::Failed(error) => Err(ServedError::Lost(io::Error::from_raw_os_error(error))),
            _ => Err(ServedError::Lost(io::ErrorKind::InvalidData.into())),
        }
    }

    fn send(&self, request: &Request) -> io::Result<()> {
        socket::send(&self.socket, &request.write(), None, Full::Wait)
    }

    /// Waits for the answer to the last request; records that come before it are kept.
    fn answer(&mut self, patience: Duration) -> io::Result<Reply> {
        let until = self.clock.monotonic().saturating_add(patience);
        loop {
            let left = until.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("the recorder did not answer within {} s", patience.as_secs()),
                ));
            }
            if !socket::wait_readable(&self.socket, Some(left))? {
                continue;
            }
            match self.receive()? {
                Some(Reply::Records(records)) => self.records.push_back(records),
                Some(reply) => return Ok(reply),
                None => {}
            }
        }
    }

    /// Returns the next message, if there is one.
    fn receive(&mut self) -> io::Result<Option<Reply>> {
        self.receive_message().inspect_err(|_| self.is_lost = true)
    }

    fn receive_message(&mut self) -> io::Result<Option<Reply>> {
        let Received { length, descriptor } = match socket::receive(&self.socket, &mut self.buffer)
        {
            Ok(Received { length: 0, .. }) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the recorder ended the session",
                ));
            }
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            // Only the answer to a request brings a descriptor: that request fails, and the session goes on.
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                return Ok(Some(Reply::Failed(Errno::MFILE.raw_os_error())));
            }
            Err(error) => return Err(error),
        };
        self.descriptor = descriptor;
        let message = self.buffer.get(..length).unwrap_or_default();
        Reply::read(message).map(Some).map_err(io::Error::other)
    }

    /// Asks for something that is not expected to be refused.
    fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        self.send(request).inspect_err(|_| self.is_lost = true)?;
        self.asked = self.clock.monotonic();
        self.more()
    }

    fn more(&mut self) -> io::Result<Reply> {
        match self.answer(PATIENCE).inspect_err(|_| self.is_lost = true)? {
            Reply::Failed(error) => Err(io::Error::from_raw_os_error(error)),
            Reply::Refused(refusal) => {
                let kind = match refusal.kind {
                    RefusalKind::NotAllowed | RefusalKind::NotYours => {
                        io::ErrorKind::PermissionDenied
                    }
                    _ => io::ErrorKind::Other,
                };
                Err(io::Error::new(kind, refusal))
            }
            reply => Ok(reply),
        }
    }
}

impl ServedSession {
    fn done(&mut self, request: &Request) -> io::Result<()> {
        match self.connection.ask(request)? {
            Reply::Done => Ok(()),
            _ => Err(misunderstood()),
        }
    }

    /// As [`BpfSession::watch`](super::session::BpfSession::watch).
    ///
    /// # Errors
    ///
    /// `PermissionDenied`: the caller may not trace it. The session was ended, or as `bpf(2)`.
    pub fn watch(&mut self, process: u32, from: WatchStart) -> io::Result<()> {
        self.done(&Request::Watch { process, from })
    }

    /// As [`BpfSession::unwatch`](super::session::BpfSession::unwatch).
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn unwatch(&mut self, process: u32) -> io::Result<()> {
        self.done(&Request::Unwatch { process })
    }

    /// As [`BpfSession::adopt`](super::session::BpfSession::adopt).
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn adopt(
        &mut self,
        [thread, process]: [u32; 2],
        number: u32,
        times: [u64; 2],
    ) -> io::Result<()> {
        self.done(&Request::Adopt { thread, process, number, times })
    }

    /// Returns the processes that are watched and alive.
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn watched(&mut self) -> io::Result<Vec<u32>> {
        match self.connection.ask(&Request::Watched)? {
            Reply::Processes(processes) => Ok(processes),
            _ => Err(misunderstood()),
        }
    }

    /// Gives the records that have come to `each`, until there are `most`; returns how many there were.
    ///
    /// # Errors
    ///
    /// The session was ended.
    pub fn take(&mut self, most: usize, mut each: impl FnMut(BpfRecord<'_>)) -> io::Result<usize> {
        let now = self.connection.clock.monotonic();
        if now.saturating_sub(self.connection.asked) >= SIGN_OF_LIFE {
            self.faults()?;
        }
        let mut taken = 0;
        while taken < most {
            let records = match self.connection.records.pop_front() {
                Some(records) => records,
                None => match self.connection.receive()? {
                    Some(Reply::Records(records)) => records,
                    Some(_) => return Err(misunderstood()),
                    None => break,
                },
            };
            for record in protocol::records(&records) {
                taken += 1;
                if let Some(record) = BpfRecord::read(record) {
                    each(record);
                }
            }
        }
        Ok(taken)
    }

    /// Detaches the programs. All that they reported has come when this returns.
    ///
    /// # Errors
    ///
    /// The session was ended; then the programs are gone, too.
    pub fn detach(&mut self) -> io::Result<()> {
        self.done(&Request::Detach)
    }

    /// As [`BpfSession::totals`](super::session::BpfSession::totals).
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn totals(&mut self) -> io::Result<Vec<(u32, u32, Total)>> {
        let mut all = Vec::new();
        let mut reply = self.connection.ask(&Request::Totals)?;
        loop {
            let Reply::Totals { totals, is_last } = reply else { return Err(misunderstood()) };
            all.extend(totals);
            if is_last {
                return Ok(all);
            }
            reply = self.connection.more()?;
        }
    }

    /// As [`BpfSession::take_totals`](super::session::BpfSession::take_totals).
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn take_totals(
        &mut self,
        thread: u32,
        seen: &ThreadTotals,
    ) -> io::Result<Vec<(u32, Total)>> {
        let mut all = Vec::new();
        let mut reply = self.connection.ask(&Request::TakeTotals { thread, seen: *seen })?;
        loop {
            let Reply::Totals { totals, is_last } = reply else { return Err(misunderstood()) };
            all.extend(totals.into_iter().map(|(_, number, total)| (number, total)));
            if is_last {
                return Ok(all);
            }
            reply = self.connection.more()?;
        }
    }

    /// As [`BpfSession::errors`](super::session::BpfSession::errors).
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn errors(&mut self) -> io::Result<Vec<(u32, i32, u64)>> {
        let mut all = Vec::new();
        let mut reply = self.connection.ask(&Request::Errors)?;
        loop {
            let Reply::Errors { errors, is_last } = reply else { return Err(misunderstood()) };
            all.extend(errors);
            if is_last {
                return Ok(all);
            }
            reply = self.connection.more()?;
        }
    }

    /// Returns the state of the call in which a thread is.
    ///
    /// # Errors
    ///
    /// The session was ended.
    pub fn thread_state(&mut self, thread: u32) -> io::Result<ThreadState> {
        match self.connection.ask(&Request::ThreadState { thread }) {
            Ok(Reply::State(state)) => Ok(state),
            Ok(_) => Err(misunderstood()),
            // It has ended.
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                Ok(ThreadState::Outside)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the loss counters.
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn faults(&mut self) -> io::Result<LossCounters> {
        match self.connection.ask(&Request::Losses)? {
            Reply::Losses(losses) => Ok(losses),
            _ => Err(misunderstood()),
        }
    }
}

fn misunderstood() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the recorder's answer makes no sense")
}

impl AsFd for ServedSession {
    /// Readable when there are records, or the session was ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.socket.as_fd()
    }
}
