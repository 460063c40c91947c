//! A session with programs in the kernel: our own, or one that the recorder service has for us.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use sys::bpf::SharedMap;

use crate::record::{BpfRecord, ThreadTotals};
use crate::served::ServedSession;
use crate::session::{BpfSession, LossCounters, ThreadState, WatchStart, descriptor};
use crate::totals::Total;

/// A session, wherever it is.
#[derive(Debug)]
pub enum KernelSession {
    /// The programs are ours.
    Own(Box<BpfSession>),
    /// They are the service's.
    Served(Box<ServedSession>),
}

impl KernelSession {
    /// Observes a process, and the processes that it starts from now on.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`; `PermissionDenied` if the service may not observe it for us.
    pub fn watch(&mut self, process: u32, from: WatchStart) -> io::Result<()> {
        match self {
            KernelSession::Own(session) => session.watch(process, from),
            KernelSession::Served(session) => session.watch(process, from),
        }
    }

    /// Stops observing a process; the processes that it started are still observed.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn unwatch(&mut self, process: u32) -> io::Result<()> {
        match self {
            KernelSession::Own(session) => session.unwatch(process),
            KernelSession::Served(session) => session.unwatch(process),
        }
    }

    /// Records that a thread is in the call `number` since before it was watched; `times` are now, of the monotonic clock, and how long it
    /// has waited for CPUs in its life, in nanoseconds.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`: `EEXIST` when the thread has made a call since it is watched; `ESRCH` when it has ended.
    pub fn adopt(
        &mut self,
        [thread, process]: [u32; 2],
        number: u32,
        times: [u64; 2],
    ) -> io::Result<()> {
        match self {
            KernelSession::Own(session) => {
                let gone = || io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error());
                let descriptor = descriptor(thread).ok_or_else(gone)?;
                session.adopt(descriptor.as_fd(), [thread, process], number, times)
            }
            KernelSession::Served(session) => session.adopt([thread, process], number, times),
        }
    }

    /// Returns the processes that are watched and alive.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn watched(&mut self) -> io::Result<Vec<u32>> {
        match self {
            KernelSession::Own(session) => session.watched(),
            KernelSession::Served(session) => session.watched(),
        }
    }

    /// Returns the filter of processes, for other programs of ours that watch the same ones.
    pub fn filter(&self) -> Option<SharedMap> {
        match self {
            KernelSession::Own(session) => Some(session.filter()),
            KernelSession::Served(_) => None,
        }
    }

    /// Gives the records that are there to `each`, at most about `most`; returns how many there were.
    ///
    /// # Errors
    ///
    /// The service ended the session.
    pub fn take(&mut self, most: usize, each: impl FnMut(BpfRecord<'_>)) -> io::Result<usize> {
        match self {
            KernelSession::Own(session) => Ok(session.take(most, each)),
            KernelSession::Served(session) => session.take(most, each),
        }
    }

    /// Returns whether all records have been taken, those too that are being written. After [`detach`](Self::detach) the service has sent all.
    pub fn is_drained(&self) -> bool {
        match self {
            KernelSession::Own(session) => session.is_drained(),
            KernelSession::Served(_) => true,
        }
    }

    /// Detaches the programs: nothing is counted any more. The totals can still be read.
    ///
    /// # Errors
    ///
    /// The service ended the session, and the programs with it.
    pub fn detach(&mut self) -> io::Result<()> {
        match self {
            KernelSession::Own(session) => {
                session.detach();
                Ok(())
            }
            KernelSession::Served(session) => session.detach(),
        }
    }

    /// Returns the totals of one thread, by call; thread 0 stands for threads beyond the limit.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn totals(&mut self) -> io::Result<Vec<(u32, u32, Total)>> {
        match self {
            KernelSession::Own(session) => session.totals(),
            KernelSession::Served(session) => session.totals(),
        }
    }

    /// Takes the totals of a thread that has ended, with the calls that it was seen in, so that there is room for others.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn take_totals(
        &mut self,
        thread: u32,
        seen: &ThreadTotals,
    ) -> io::Result<Vec<(u32, Total)>> {
        match self {
            KernelSession::Own(session) => session.take_totals(thread, seen),
            KernelSession::Served(session) => session.take_totals(thread, seen),
        }
    }

    /// Returns how often each call failed with each error.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn errors(&mut self) -> io::Result<Vec<(u32, i32, u64)>> {
        match self {
            KernelSession::Own(session) => session.errors(),
            KernelSession::Served(session) => session.errors(),
        }
    }

    /// Returns the state of the call in which a thread is; one that has ended is in none.
    ///
    /// # Errors
    ///
    /// The service ended the session.
    pub fn thread_state(&mut self, thread: u32) -> io::Result<ThreadState> {
        match self {
            KernelSession::Own(session) => {
                let state =
                    descriptor(thread).map(|descriptor| session.thread_state(descriptor.as_fd()));
                Ok(state.unwrap_or(ThreadState::Outside))
            }
            KernelSession::Served(session) => session.thread_state(thread),
        }
    }

    /// Returns the loss counters.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`.
    pub fn faults(&mut self) -> io::Result<LossCounters> {
        match self {
            KernelSession::Own(session) => session.faults(),
            KernelSession::Served(session) => session.faults(),
        }
    }
}

impl AsFd for KernelSession {
    /// Readable when there are records.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            KernelSession::Own(session) => session.as_fd(),
            KernelSession::Served(session) => session.as_fd(),
        }
    }
}
