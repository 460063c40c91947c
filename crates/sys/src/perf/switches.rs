//! When a thread gets a processor and when it leaves it, by `PERF_RECORD_SWITCH`: a descriptor becomes readable.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ring::EventRing;
use super::{event, long, open_event};

/// One page: some 250 switches.
const PAGES: usize = 1;
/// `PERF_SAMPLE_TIME`.
const SAMPLED: u64 = 1 << 2;
/// `disabled`, `exclude_kernel`, `exclude_hv`, `watermark`, `sample_id_all`, `use_clockid` and `context_switch`.
const FLAGS: u64 = 1 | 1 << 5 | 1 << 6 | 1 << 14 | 1 << 18 | 1 << 25 | 1 << 26;
/// `PERF_EVENT_IOC_ENABLE` and `PERF_EVENT_IOC_DISABLE`.
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;
/// `PERF_RECORD_SWITCH`.
const SWITCH: u32 = 14;
/// `PERF_RECORD_MISC_SWITCH_OUT`.
const SWITCH_OUT: u16 = 1 << 13;

/// A switch of a thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ThreadSwitch {
    /// When, of the monotonic clock.
    pub at_ns: u64,
    /// Whether it got a processor; it left one otherwise.
    pub is_in: bool,
}

/// The switches of one thread. Its descriptor is readable once there is one, and hung up when the thread has ended.
///
/// A user may have it of their own programs wherever `kernel.perf_event_paranoid` is 2 or less.
#[derive(Debug)]
pub struct SwitchEvents {
    event: OwnedFd,
    ring: EventRing,
}

impl SwitchEvents {
    /// Opens the switches of `thread`. Nothing is recorded until [`SwitchEvents::enable`].
    ///
    /// # Errors
    ///
    /// As `perf_event_open(2)`: `EACCES` and `EPERM` where `kernel.perf_event_paranoid` or the owner of the thread forbid it;
    /// `ENOMEM` where the memory that the user may lock is used up.
    pub fn open(thread: u32) -> io::Result<SwitchEvents> {
        let mut attributes = [0_u64; 16];
        // `PERF_TYPE_SOFTWARE`, and 128 bytes of attributes.
        (attributes[0], attributes[1]) = (1 | 128 << 32, event::DUMMY);
        attributes[3] = SAMPLED;
        attributes[5] = FLAGS;
        // `wakeup_watermark`: each record.
        attributes[6] = 1;
        // `CLOCK_MONOTONIC`.
        attributes[11] = 1 << 32;
        let event = open_event(thread, &attributes)?;
        let ring = EventRing::map(&event, PAGES)?;
        Ok(SwitchEvents { event, ring })
    }

    /// Has switches recorded from now on. The descriptor is not readable because of earlier ones.
    ///
    /// # Errors
    ///
    /// As `ioctl(2)` and `poll(2)`: nothing is recorded.
    pub fn enable(&self) -> io::Result<()> {
        // The kernel says once that there are records, also of those that have been taken.
        poll(&mut [PollFd::new(&self.event, PollFlags::IN)], Some(&Timespec::default()))?;
        self.control(ENABLE)
    }

    /// Has no more switches recorded: each costs the thread some microseconds.
    ///
    /// # Errors
    ///
    /// As `ioctl(2)`: they may still be recorded.
    pub fn disable(&self) -> io::Result<()> {
        self.control(DISABLE)
    }

    fn control(&self, request: libc::c_ulong) -> io::Result<()> {
        // SAFETY: both requests take a number as their argument and touch no memory of ours.
        match unsafe { libc::ioctl(self.event.as_raw_fd(), request, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Gives each switch that was recorded to `each`, in order.
    pub fn take(&mut self, mut each: impl FnMut(ThreadSwitch)) {
        self.ring.take(|header, mut record| {
            if header.kind == SWITCH
                && let Some(at_ns) = long(&mut record)
            {
                each(ThreadSwitch { at_ns, is_in: header.flags & SWITCH_OUT == 0 });
            }
        });
    }
}

impl AsFd for SwitchEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, ChildStdin, Command, Stdio};

    /// Waits until the kernel says something of the events.
    fn said(events: &SwitchEvents) -> PollFlags {
        let mut polled = [PollFd::new(events, PollFlags::IN)];
        poll(&mut polled, None).unwrap();
        polled[0].revents()
    }

    /// Waits until the program has read its input and reads again. The kernel names no call of a thread on a processor.
    fn wait_for_rest(child: &Child, input: &ChildStdin) {
        let call = format!("/proc/{}/syscall", child.id());
        while rustix::io::ioctl_fionread(input).unwrap() > 0
            || !std::fs::read_to_string(&call).unwrap().starts_with("0 0x0 ")
        {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_at_rest_is_announced_when_it_runs_and_when_it_ends() {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut events = match SwitchEvents::open(child.id()) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                drop(input);
                child.wait().unwrap();
                return;
            }
            opened => opened.unwrap(),
        };
        wait_for_rest(&child, &input);
        events.enable().unwrap();
        let before_ns = crate::bpf::clock_ns();
        std::io::Write::write_all(&mut input, b"x").unwrap();
        assert_eq!(said(&events), PollFlags::IN);
        let mut switches = Vec::new();
        events.take(|switch| switches.push(switch));
        let first = switches.iter().find(|switch| switch.is_in).expect("it got a processor");
        assert!((before_ns..crate::bpf::clock_ns()).contains(&first.at_ns), "{switches:?}");
        wait_for_rest(&child, &input);
        events.disable().unwrap();
        // What was recorded and not taken makes nobody wait in vain.
        events.enable().unwrap();
        let mut polled = [PollFd::new(&events, PollFlags::IN)];
        assert_eq!(poll(&mut polled, Some(&Timespec::default())).unwrap(), 0, "{polled:?}");
        drop(input);
        while !said(&events).contains(PollFlags::HUP) {}
        child.wait().unwrap();
    }
}
