//! Rest without looks: the kernel announces when a thread in its main loop's wait runs again.

use std::io;
use std::os::fd::BorrowedFd;

use sys::perf::SwitchEvents;

/// A thread that rested for so long before it was announced is expected to rest again, in nanoseconds.
const QUIET_NS: u64 = 200_000_000;

/// Announces the end of a thread's rest.
///
/// Its events are enabled only while the thread rests: they cost a thread that works some microseconds for each switch.
#[derive(Debug, Default)]
pub(super) struct RestWatch {
    events: Option<SwitchEvents>,
    /// Since when the end of a rest is announced.
    armed_ns: Option<u64>,
    was_quiet: bool,
    /// Whether an announcement did not come, or could not be had.
    is_useless: bool,
}

impl RestWatch {
    /// Returns whether it takes memory of the kernel's.
    pub(super) fn is_open(&self) -> bool {
        self.events.is_some()
    }

    /// Returns whether the end of a rest will be announced.
    pub(super) fn is_armed(&self) -> bool {
        self.armed_ns.is_some()
    }

    /// Returns whether the last rest was long.
    pub(super) fn was_quiet(&self) -> bool {
        self.was_quiet
    }

    /// Returns what becomes readable at the end of the rest.
    pub(super) fn announcement(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.armed_ns.and(self.events.as_ref()).map(AsFd::as_fd)
    }

    /// Has the end of the rest of a thread announced from now on. The caller looks once more whether it still rests.
    ///
    /// # Errors
    ///
    /// As [`SwitchEvents::open`]: nothing will be announced, and it is not tried again.
    pub(super) fn arm(&mut self, thread: u32, now_ns: u64) -> io::Result<()> {
        if self.is_useless {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let armed = match self.events.take() {
            Some(events) => Ok(events),
            None => SwitchEvents::open(thread),
        }
        .and_then(|events| events.enable().map(|()| events));
        self.is_useless = armed.is_err();
        self.events = Some(armed?);
        self.armed_ns = Some(now_ns);
        Ok(())
    }

    /// Ends the announcements, and returns when the rest ended if one was made.
    pub(super) fn disarm(&mut self) -> Option<u64> {
        let since_ns = self.armed_ns.take()?;
        let events = self.events.as_mut()?;
        self.is_useless |= events.disable().is_err();
        let mut first = None;
        events.take(|switch| {
            if switch.is_in && first.is_none() {
                first = Some(switch.at_ns);
            }
        });
        if let Some(at_ns) = first {
            self.was_quiet = at_ns.saturating_sub(since_ns) >= QUIET_NS;
        }
        first
    }

    /// Notes that the thread ran although nothing was announced.
    pub(super) fn missed(&mut self) {
        *self = RestWatch { is_useless: true, ..RestWatch::default() };
    }
}
