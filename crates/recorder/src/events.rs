//! Events of a caller's own threads that the service opens for him: which, how many at a time, and what comes out of them.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use sys::bpf::owner::{OwnerFields, OwnerPlan, SessionOwner};
use sys::bpf::{BpfProgram, LoadError};
use sys::perf::{PausedEvent, SamplerEvent};

/// The shortest period of samples of a processor: a recorder of hangs has 7 ms.
const SHORTEST: Duration = Duration::from_millis(5);
/// So many events may be opened for one session in `HANDOUT_PERIOD`: an absence takes five.
const HANDOUTS: u32 = 2000;
/// See `HANDOUTS`.
const HANDOUT_PERIOD: Duration = Duration::from_secs(10);
/// The most descriptors on their way to a caller who reads nothing: the kernel lets a user have no more of them than open files, and
/// those of all callers are the service's.
const IN_FLIGHT: u32 = 8;
/// Addresses of programs are below.
const END_OF_PROGRAMS: u64 = 1 << 56;

/// Says whether a recorder of hangs has a use for an event.
pub(crate) fn is_needed(event: SamplerEvent) -> bool {
    match event {
        SamplerEvent::Clock(period) => period >= SHORTEST,
        SamplerEvent::Fault | SamplerEvent::FaultWithStack => true,
        SamplerEvent::Execution(address, _) => address < END_OF_PROGRAMS,
    }
}

/// What was handed out to a session.
#[derive(Debug, Default)]
pub(crate) struct EventHandout {
    filter: SampleFilter,
    /// Events since `since`.
    handed: u32,
    since: Duration,
    /// Descriptors that may still be on their way.
    in_flight: u32,
}

/// The program in the kernel that drops samples of what is not the caller's to trace.
#[derive(Debug, Default)]
enum SampleFilter {
    #[default]
    NotLoaded,
    Loaded(BpfProgram),
    /// The kernel does not take it.
    Refused,
}

impl EventHandout {
    /// Says whether one more descriptor may be on its way. `are_received` says that none is.
    pub(crate) fn has_room(&mut self, are_received: bool) -> bool {
        if are_received {
            self.in_flight = 0;
        }
        self.in_flight < IN_FLIGHT
    }

    /// Counts a descriptor that is about to be sent.
    pub(crate) fn count_sent(&mut self) {
        self.in_flight += 1;
    }

    /// Says whether one more event may be opened `now`, and counts it, whatever becomes of it.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.since) >= HANDOUT_PERIOD {
            (self.handed, self.since) = (0, now);
        }
        if self.handed >= HANDOUTS {
            return false;
        }
        self.handed += 1;
        true
    }

    /// Loads the program that asks at each sample whether its process is the owner's to trace, unless that was tried before.
    ///
    /// # Errors
    ///
    /// [`LoadError`], once: no event is handed out.
    pub(crate) fn load_filter(&mut self, owner: SessionOwner) -> Result<(), LoadError> {
        if !matches!(self.filter, SampleFilter::NotLoaded) {
            return Ok(());
        }
        self.filter = SampleFilter::Refused;
        let fields = OwnerFields::of_this_kernel()?;
        self.filter = SampleFilter::Loaded(OwnerPlan { owner, fields }.load_sample_filter()?);
        Ok(())
    }

    /// Begins to sample an event, as far as it is the owner's to see.
    ///
    /// # Errors
    ///
    /// `EACCES`: the kernel does not take the program that asks that. Else as `ioctl(2)`; nothing is sampled.
    pub(crate) fn begin(&self, event: PausedEvent) -> io::Result<OwnedFd> {
        match &self.filter {
            SampleFilter::Loaded(filter) => filter.begin(event),
            SampleFilter::NotLoaded | SampleFilter::Refused => Err(Errno::ACCESS.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use sys::perf::CopiedStack;

    use super::*;

    #[test]
    fn events_that_no_recorder_needs_are_not_opened() {
        let of_period = |ms: u64| is_needed(SamplerEvent::Clock(Duration::from_millis(ms)));
        assert!(of_period(7) && of_period(5) && !of_period(4) && !of_period(0));
        let at = |address: u64| is_needed(SamplerEvent::Execution(address, CopiedStack::Whole));
        assert!(at(0x5555_5555_5000) && !at(0xffff_ffff_8100_0000));
    }

    #[test]
    fn a_caller_who_reads_nothing_or_asks_without_end_gets_no_more() {
        let mut handout = EventHandout::default();
        let now = Duration::from_secs(100);
        let mut sent = 0;
        while handout.has_room(false) {
            handout.count_sent();
            sent += 1;
        }
        assert_eq!(sent, IN_FLIGHT);
        assert!(handout.has_room(true), "he has read all of it");
        let taken = (0..10_000).filter(|_| handout.take(now)).count();
        assert_eq!(taken, usize::try_from(HANDOUTS).unwrap());
        assert!(!handout.take(now + HANDOUT_PERIOD / 2));
        assert!(handout.take(now + HANDOUT_PERIOD));
    }
}
