//! The events that samplers are made of, and who opens them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::{CALLERS_STACK, event, open_event, run_at_samples};

/// Bytes of the stack in each sample of the processor; a multiple of 8.
const STACK: u32 = 8192;
/// Bytes of the stack in each sample of a page fault.
const FAULT_STACK: u32 = 2048;

/// The registers of x86-64 that are sampled, by their bits: `bx`, `si`, `di`, `bp`, `sp`, `ip`, `r12` to `r15`.
const REGISTERS: u64 = 1 << 1 | 0x1f << 4 | 0xf << 20;
/// `PERF_SAMPLE_IP`, `TIME`, `ADDR`, `REGS_USER` and `STACK_USER`.
const SAMPLED: u64 = 1 | 1 << 2 | 1 << 3 | 1 << 12 | 1 << 13;
/// `exclude_kernel`, `exclude_hv` and `use_clockid`.
const FLAGS: u64 = EXCLUDE_KERNEL | 1 << 6 | 1 << 25;
/// `exclude_kernel`.
const EXCLUDE_KERNEL: u64 = 1 << 5;
/// `disabled`: nothing is sampled until the event is begun.
const DISABLED: u64 = 1;
/// `remove_on_exec`, since Linux 5.13.
const UNTIL_EXEC: u64 = 1 << 36;
/// `PERF_EVENT_IOC_ENABLE`.
const ENABLE: libc::c_ulong = 0x2400;

/// How much of the stack comes with each sample of a breakpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CopiedStack {
    /// None of it.
    Nothing,
    /// The first [`CALLERS_STACK`] bytes: the frames of some callers.
    Callers,
    /// Some kilobytes.
    Whole,
}

/// An event of a thread that a sampler is made of. Only the program's own code is sampled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SamplerEvent {
    /// It has run for so long; with its stack.
    Clock(Duration),
    /// It has waited for a page.
    Fault,
    /// It has waited for a page; with a part of its stack.
    FaultWithStack,
    /// It is about to execute the instruction at this address.
    Execution(u64, CopiedStack),
}

/// Opens events for samplers.
pub trait EventOpener {
    /// Opens an event of a thread, on every processor.
    ///
    /// # Errors
    ///
    /// As `perf_event_open(2)`: `PermissionDenied` if no event may be opened, or none of this thread.
    fn open_event(&self, thread: u32, event: SamplerEvent) -> io::Result<OwnedFd>;
}

/// Opens events with the rights of this process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OwnRights;

impl EventOpener for OwnRights {
    fn open_event(&self, thread: u32, event: SamplerEvent) -> io::Result<OwnedFd> {
        event.open(thread, 0)
    }
}

/// An event that was opened for somebody else and samples nothing yet.
#[derive(Debug)]
pub struct PausedEvent(OwnedFd);

impl PausedEvent {
    /// Opens an event of a thread that ends when the thread executes a program.
    ///
    /// # Errors
    ///
    /// As `perf_event_open(2)`; `EINVAL` on a kernel that cannot have it end then.
    pub fn open(thread: u32, event: SamplerEvent) -> io::Result<PausedEvent> {
        event.open(thread, DISABLED | UNTIL_EXEC).map(PausedEvent)
    }

    /// Begins to sample: what the program in the kernel does not let through is not sampled, whoever has the descriptor.
    ///
    /// # Errors
    ///
    /// As `ioctl(2)`: nothing is sampled.
    pub(crate) fn begin(self, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        run_at_samples(&self.0, program)?;
        // SAFETY: it takes a number as its argument and touches no memory of ours.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), ENABLE, 0) } {
            0 => Ok(self.0),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl SamplerEvent {
    fn open(self, thread: u32, more_flags: u64) -> io::Result<OwnedFd> {
        let mut attributes = [0_u64; 16];
        let stack = match self {
            SamplerEvent::Clock(period) => {
                software(&mut attributes, event::CPU_CLOCK, nanoseconds(period));
                STACK
            }
            SamplerEvent::Fault => {
                software(&mut attributes, event::MAJOR_FAULTS, 1);
                8
            }
            SamplerEvent::FaultWithStack => {
                software(&mut attributes, event::MAJOR_FAULTS, 1);
                FAULT_STACK
            }
            SamplerEvent::Execution(address, copied) => {
                // `PERF_TYPE_BREAKPOINT`, `HW_BREAKPOINT_X`, and the length of a word.
                (attributes[0], attributes[2]) = (5 | 128 << 32, 1);
                (attributes[6], attributes[7], attributes[8]) = (4 << 32, address, 8);
                match copied {
                    CopiedStack::Nothing => 8,
                    CopiedStack::Callers => CALLERS_STACK.into(),
                    CopiedStack::Whole => STACK,
                }
            }
        };
        open(thread, attributes, FLAGS | more_flags, stack)
    }
}

/// Opens the processor's clock, in the kernel, too.
pub(super) fn open_whole_clock(thread: u32, period: Duration) -> io::Result<OwnedFd> {
    let mut attributes = [0_u64; 16];
    software(&mut attributes, event::CPU_CLOCK, nanoseconds(period));
    open(thread, attributes, FLAGS & !EXCLUDE_KERNEL, STACK)
}

fn nanoseconds(period: Duration) -> u64 {
    u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)
}

/// Makes it a software event.
fn software(attributes: &mut [u64; 16], config: u64, period: u64) {
    // `PERF_TYPE_SOFTWARE`, and 128 bytes of attributes.
    (attributes[0], attributes[1], attributes[2]) = (1 | 128 << 32, config, period);
}

fn open(thread: u32, mut attributes: [u64; 16], flags: u64, stack: u32) -> io::Result<OwnedFd> {
    if !cfg!(target_arch = "x86_64") {
        return Err(io::ErrorKind::Unsupported.into());
    }
    attributes[3] = SAMPLED;
    attributes[5] = flags;
    attributes[10] = REGISTERS;
    // The size of the stack, and `CLOCK_MONOTONIC` above it.
    attributes[11] = u64::from(stack) | 1 << 32;
    open_event(thread, &attributes)
}
