//! A session in the recorder service that records hangs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use sys::perf::SamplerEvent;

use super::hang_messages::{HangReply, HangRequest};
use super::protocol::{self, Refusal, Reply, Request};
use super::{PATIENCE, RecorderConnection, ServedError, misunderstood};

/// A session in the service whose programs report when marked threads are away from their main loop's wait.
///
/// What the reports and the state of a thread mean is known to the crate whose programs they are.
#[derive(Debug)]
pub struct ServedHangSession {
    connection: RecorderConnection,
}

impl RecorderConnection {
    /// Begins a session that records hangs.
    ///
    /// # Errors
    ///
    /// [`ServedError`]; the kernel has no programs of ours.
    pub fn open_hangs(mut self) -> Result<ServedHangSession, ServedError> {
        self.done_within(&Request::Hangs(HangRequest::Open), PATIENCE)?;
        Ok(ServedHangSession { connection: self })
    }
}

impl ServedHangSession {
    fn done(&mut self, request: HangRequest) -> io::Result<()> {
        match self.connection.ask(&Request::Hangs(request))? {
            Reply::Done => Ok(()),
            _ => Err(misunderstood()),
        }
    }

    /// Marks the first thread of a process, which is in a wait for events with this stack pointer, instruction and subject, if any,
    /// or is away from it, as [`HangRequest::Mark`] says.
    ///
    /// # Errors
    ///
    /// `PermissionDenied`: the caller may not trace it. `NotFound`: it has ended. `AlreadyExists`: it is marked. Else the
    /// session was ended, or as `bpf(2)`.
    pub fn mark(&mut self, process: u32, wait: Option<[u64; 3]>) -> io::Result<()> {
        self.done(HangRequest::Mark { process, wait })
    }

    /// Ends a mark.
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn unmark(&mut self, process: u32) -> io::Result<()> {
        self.done(HangRequest::Unmark { process })
    }

    /// Says whether a wait of a marked process is that of its main loop.
    ///
    /// # Errors
    ///
    /// `NotFound` for a process that is not marked. Else the session was ended, or as `bpf(2)`.
    pub fn classify(&mut self, process: u32, wait: [u64; 3], is_loop: bool) -> io::Result<()> {
        self.done(HangRequest::Classify { process, wait, is_loop })
    }

    /// Returns what the programs keep of a marked process; none if it is not marked. What they reported before has come.
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn state(&mut self, process: u32) -> io::Result<Option<Vec<u8>>> {
        match self.connection.ask(&Request::Hangs(HangRequest::State { process }))? {
            Reply::Hangs(HangReply::State(state)) => Ok(state),
            _ => Err(misunderstood()),
        }
    }

    /// Returns how many reports were lost since the session began.
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn lost(&mut self) -> io::Result<u64> {
        match self.connection.ask(&Request::Hangs(HangRequest::Lost))? {
            Reply::Hangs(HangReply::Lost(lost)) => Ok(lost),
            _ => Err(misunderstood()),
        }
    }

    /// Has recorded who wakes whom from now on, or not any more. Waits of threads that the caller could not trace are not.
    ///
    /// # Errors
    ///
    /// The kernel does not take the programs for it, the session was ended, or as `bpf(2)`: nothing is recorded.
    pub fn follow(&mut self, is_on: bool) -> io::Result<()> {
        self.done(HangRequest::Follow { is_on })
    }

    /// Gives each wait that was recorded since the last time to `each`; returns how many were lost since the session began.
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn take_waits(&mut self, each: impl FnMut(&[u8])) -> io::Result<u64> {
        self.take_records(HangRequest::Waits, each)
    }

    /// Has operations of `io_uring` of marked processes recorded from now on, or not any more.
    ///
    /// # Errors
    ///
    /// As [`ServedHangSession::follow`].
    pub fn follow_operations(&mut self, is_on: bool) -> io::Result<()> {
        self.done(HangRequest::FollowOperations { is_on })
    }

    /// Gives each operation that was recorded since the last time to `each`; returns how many were lost since the session began.
    ///
    /// # Errors
    ///
    /// The session was ended, or as `bpf(2)`.
    pub fn take_operations(&mut self, each: impl FnMut(&[u8])) -> io::Result<u64> {
        self.take_records(HangRequest::Operations, each)
    }

    fn take_records(
        &mut self,
        request: HangRequest,
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<u64> {
        let mut reply = self.connection.ask(&Request::Hangs(request))?;
        loop {
            let Reply::Hangs(HangReply::Waits { records, lost, is_last }) = reply else {
                return Err(misunderstood());
            };
            protocol::records(&records).for_each(&mut each);
            if is_last {
                return Ok(lost);
            }
            reply = self.connection.more()?;
        }
    }

    /// Has the service open an event of the first thread of a marked process; returns its descriptor.
    ///
    /// # Errors
    ///
    /// `NotFound`: the process is not marked, has ended, or is not the caller's any more. `PermissionDenied`: the kernel opens none for
    /// the service. `WouldBlock`: too many were opened lately. `EMFILE`: this process may have no more open files. Else the session was ended, or as `perf_event_open(2)`.
    pub fn event(&mut self, process: u32, event: SamplerEvent) -> io::Result<OwnedFd> {
        match self.connection.ask(&Request::Hangs(HangRequest::Event { process, event })) {
            Ok(Reply::Hangs(HangReply::Event)) => {
                self.connection.descriptor.take().ok_or_else(misunderstood)
            }
            Ok(_) => Err(misunderstood()),
            // What the service refuses is a process, and not an event.
            Err(error)
                if error.raw_os_error().is_none()
                    && error.get_ref().is_some_and(|it| it.is::<Refusal>()) =>
            {
                Err(io::Error::new(io::ErrorKind::NotFound, error))
            }
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                Err(io::Error::new(io::ErrorKind::NotFound, error))
            }
            Err(error) => Err(error),
        }
    }

    /// Gives each report that has come to `each`; returns how many there were.
    ///
    /// # Errors
    ///
    /// The session was ended.
    pub fn take(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            let records = match self.connection.records.pop_front() {
                Some(records) => records,
                None => match self.connection.receive()? {
                    Some(Reply::Records(records)) => records,
                    Some(_) => return Err(misunderstood()),
                    None => return Ok(taken),
                },
            };
            for record in protocol::records(&records) {
                taken += 1;
                each(record);
            }
        }
    }

    /// Says whether reports have come that were not taken, and of which the descriptor says nothing any more.
    #[must_use]
    pub fn has_reports(&self) -> bool {
        !self.connection.records.is_empty()
    }

    /// Says whether the session was ended, or cannot be talked to: nothing more comes of it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.connection.is_lost
    }
}

impl AsFd for ServedHangSession {
    /// Readable when there are reports, or the session was ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    use rustix::process::{Resource, getrlimit, setrlimit};
    use sys::clock::SystemClock;
    use sys::socket::{self, Full};

    use super::*;
    use crate::served::protocol::LONGEST;

    /// Says in the environment of a copy of the test what it is to do.
    const HAS_FEW_FILES: &str = "UNJANK_TEST_HAS_FEW_FILES";

    #[test]
    fn a_caller_with_no_room_for_a_descriptor_keeps_the_session() {
        #[expect(clippy::disallowed_methods, reason = "the test tells its copy what it is")]
        let is_copy = std::env::var_os(HAS_FEW_FILES).is_some();
        if !is_copy {
            // The limit is that of the whole process.
            let mut copy = Command::new(std::env::current_exe().unwrap());
            copy.args(["--test-threads=1", "--exact", "--nocapture"]);
            copy.arg(
                "served::hangs::tests::a_caller_with_no_room_for_a_descriptor_keeps_the_session",
            );
            let output = copy.env(HAS_FEW_FILES, "1").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        let (ours, service) = socket::pair().unwrap();
        let connection = RecorderConnection {
            socket: ours,
            clock: SystemClock::start(),
            records: VecDeque::new(),
            buffer: vec![0; LONGEST],
            asked: std::time::Duration::ZERO,
            descriptor: None,
            is_lost: false,
        };
        let mut session = ServedHangSession { connection };
        let passed = sys::memfd::create("event").unwrap();
        let answer = |reply: HangReply, descriptor| {
            socket::send(&service, &Reply::Hangs(reply).write(), descriptor, Full::Fail).unwrap();
        };
        let before = getrlimit(Resource::Nofile);
        let next = rustix::io::dup(&passed).unwrap().as_raw_fd();
        let few = u64::try_from(next).unwrap();
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(few), ..before })
            .unwrap();
        answer(HangReply::Event, Some(passed.as_fd()));
        let error = session.event(1, SamplerEvent::Fault).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()), "{error}");
        assert!(!session.is_lost(), "the session is lost");
        answer(HangReply::Lost(7), None);
        assert_eq!(session.lost().unwrap(), 7);
        setrlimit(Resource::Nofile, before).unwrap();
        answer(HangReply::Event, Some(passed.as_fd()));
        session.event(1, SamplerEvent::Fault).unwrap();
    }
}
