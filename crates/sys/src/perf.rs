//! Samples of a thread by the kernel's performance events: where it runs on a processor, and where it waits for a page.
//!
//! Only the program's own code is sampled, so that a user may do it to their own programs wherever
//! `kernel.perf_event_paranoid` is 2 or less.

mod events;
mod ring;
mod switches;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

pub use self::events::{CopiedStack, EventOpener, OwnRights, PausedEvent, SamplerEvent};
use self::ring::EventRing;
pub use self::switches::{SwitchEvents, ThreadSwitch};

/// Pages of a ring without its first: some 30 samples.
const DATA_PAGES: usize = 64;
/// The same of a ring of breakpoints, whose samples are small: some 250.
const BREAKPOINT_PAGES: usize = 8;
/// The same of a ring of breakpoints with the stack, the first that may be had: some 120 samples, or 30.
const STACK_PAGES: [usize; 2] = [256, 64];
/// The same of a ring of breakpoints with the callers: some 200.
const CALLERS_PAGES: usize = 32;
/// Bytes of the stack in each of those samples: the frames of some callers.
pub const CALLERS_STACK: u16 = 512;
/// The same of rings of page faults without a stack, the first that may be had: some 2000 samples, or 250. If somebody else
/// samples page faults of the thread, too, each has their stack in it.
const FAULT_PAGES: [usize; 2] = [64, 8];

/// How many those are.
const REGISTER_COUNT: usize = 10;

/// The software events of `linux/perf_event.h`.
mod event {
    pub(super) const CPU_CLOCK: u64 = 0;
    pub(super) const MAJOR_FAULTS: u64 = 6;
    /// It counts nothing: what it carries is records of other kinds.
    pub(super) const DUMMY: u64 = 9;
}

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;
/// `PERF_EVENT_IOC_SET_OUTPUT`.
const SET_OUTPUT: libc::c_ulong = 0x2405;
/// `PERF_EVENT_IOC_SET_BPF`.
const SET_PROGRAM: libc::c_ulong = 0x4004_2408;
/// `PERF_RECORD_LOST`.
const LOST: u32 = 2;
/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;

/// One sample.
#[derive(Clone, Copy, Debug)]
pub struct ThreadSample<'a> {
    /// When, of the monotonic clock.
    pub at_ns: u64,
    /// The address that a page was missing at; `None` for a sample of the processor.
    pub fault: Option<u64>,
    /// The instruction pointer.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub bp: u64,
    /// `rbx`, `r12`, `r13`, `r14` and `r15`.
    pub kept: [u64; 5],
    /// `rdi` and `rsi`: behind a system call its first two arguments.
    pub arguments: [u64; 2],
    /// The stack, from the stack pointer on.
    pub stack: &'a [u8],
}

/// Samples one thread.
#[derive(Debug)]
pub struct ThreadSampler {
    /// The second one is that of page faults, if the first is not.
    events: [Option<OwnedFd>; 2],
    ring: EventRing,
    has_lost: bool,
}

/// Opens an event of a thread on every processor by its `struct perf_event_attr`.
fn open_event(thread: u32, attributes: &[u64; 16]) -> io::Result<OwnedFd> {
    let thread = i32::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
    open_on(thread, -1, attributes)
}

/// Has a program in the kernel run at each sample of an event.
fn run_at_samples(event: &OwnedFd, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: it takes a descriptor as its argument and touches no memory of ours.
    match unsafe { libc::ioctl(event.as_raw_fd(), SET_PROGRAM, program.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has a program in the kernel run whenever a thread has waited for a page that was read from a disk; returns an event for each
/// processor, which it runs as long as.
pub(crate) fn run_at_major_faults(program: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut attributes = [0_u64; 16];
    (attributes[0], attributes[1]) = (1 | 128 << 32, event::MAJOR_FAULTS);
    attributes[2] = 1;
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    let mut events = Vec::new();
    for processor in processors(&online).ok_or(io::ErrorKind::InvalidData)? {
        let event = open_on(-1, processor, &attributes)?;
        run_at_samples(&event, program)?;
        events.push(event);
    }
    Ok(events)
}

/// Reads the kernel's form of a set of processors: `0-3,8`.
fn processors(text: &str) -> Option<Vec<i32>> {
    let mut processors = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        processors.extend(first.parse::<i32>().ok()?..=last.parse::<i32>().ok()?.min(1 << 16));
    }
    Some(processors)
}

/// Opens an event of a thread on a processor; -1 stands for all of them.
fn open_on(thread: i32, processor: i32, attributes: &[u64; 16]) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads 128 bytes of attributes, whose size they say, and touches no other memory of ours.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            thread,
            processor,
            -1_i32,
            CLOSE_ON_EXEC,
        )
    };
    let descriptor = i32::try_from(descriptor).unwrap_or(-1);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

impl ThreadSampler {
    /// Samples `thread` each time that it has run for `period`, and whenever it has waited for a page.
    ///
    /// # Errors
    ///
    /// As `perf_event_open(2)`: `EACCES` and `EPERM` where `kernel.perf_event_paranoid` or the owner of the thread forbid it.
    pub fn open(thread: u32, period: Duration) -> io::Result<ThreadSampler> {
        ThreadSampler::open_by(&OwnRights, thread, period)
    }

    /// As [`ThreadSampler::open`], of events that somebody else may open.
    ///
    /// # Errors
    ///
    /// As [`EventOpener::open_event`].
    pub fn open_by(
        opener: &dyn EventOpener,
        thread: u32,
        period: Duration,
    ) -> io::Result<ThreadSampler> {
        let clock = opener.open_event(thread, SamplerEvent::Clock(period))?;
        ThreadSampler::of_clock(opener, thread, clock)
    }

    /// As [`ThreadSampler::open`], and what the thread called is sampled while the kernel works for it, too.
    ///
    /// # Errors
    ///
    /// As [`ThreadSampler::open`]; it is forbidden where that is not.
    pub fn with_kernel(thread: u32, period: Duration) -> io::Result<ThreadSampler> {
        ThreadSampler::of_clock(&OwnRights, thread, events::open_whole_clock(thread, period)?)
    }

    fn of_clock(
        opener: &dyn EventOpener,
        thread: u32,
        clock: OwnedFd,
    ) -> io::Result<ThreadSampler> {
        let ring = EventRing::map(&clock, DATA_PAGES)?;
        let faults = opener.open_event(thread, SamplerEvent::FaultWithStack);
        let faults = faults.ok().filter(|faults| {
            // SAFETY: it takes a descriptor as its argument and touches no memory of ours.
            let done = unsafe { libc::ioctl(faults.as_raw_fd(), SET_OUTPUT, clock.as_raw_fd()) };
            done == 0
        });
        Ok(ThreadSampler { events: [Some(clock), faults], ring, has_lost: false })
    }

    /// Samples `thread` each time that it is about to execute the instruction at `address`; the stack is not copied.
    ///
    /// A processor has four such breakpoints for all of its threads and tracers.
    ///
    /// # Errors
    ///
    /// As [`ThreadSampler::open`]; `ENOSPC` if no breakpoint is free.
    pub fn at_instruction(thread: u32, address: u64) -> io::Result<ThreadSampler> {
        ThreadSampler::at_instruction_by(&OwnRights, thread, address, CopiedStack::Nothing)
    }

    /// As [`ThreadSampler::at_instruction`], with a copy of the stack or a part of it, of an event that somebody else may open.
    ///
    /// With [`CopiedStack::Callers`] there is room for some 200 samples, with [`CopiedStack::Whole`] for some 120, or 30 where this
    /// user may not lock so much memory.
    ///
    /// # Errors
    ///
    /// As [`EventOpener::open_event`]; `ENOSPC` if no breakpoint is free.
    pub fn at_instruction_by(
        opener: &dyn EventOpener,
        thread: u32,
        address: u64,
        copied: CopiedStack,
    ) -> io::Result<ThreadSampler> {
        let breakpoint = opener.open_event(thread, SamplerEvent::Execution(address, copied))?;
        let ring = match copied {
            CopiedStack::Nothing => EventRing::map(&breakpoint, BREAKPOINT_PAGES),
            CopiedStack::Callers => EventRing::map(&breakpoint, CALLERS_PAGES),
            CopiedStack::Whole => EventRing::map(&breakpoint, STACK_PAGES[0])
                .or_else(|_| EventRing::map(&breakpoint, STACK_PAGES[1])),
        };
        Ok(ThreadSampler { events: [Some(breakpoint), None], ring: ring?, has_lost: false })
    }

    /// Samples `thread` each time that it has waited for a page; the stack is not copied, so that the ring has room for more.
    ///
    /// # Errors
    ///
    /// As [`ThreadSampler::open`].
    pub fn at_faults(thread: u32) -> io::Result<ThreadSampler> {
        ThreadSampler::at_faults_by(&OwnRights, thread)
    }

    /// As [`ThreadSampler::at_faults`], of an event that somebody else may open.
    ///
    /// # Errors
    ///
    /// As [`EventOpener::open_event`].
    pub fn at_faults_by(opener: &dyn EventOpener, thread: u32) -> io::Result<ThreadSampler> {
        let faults = opener.open_event(thread, SamplerEvent::Fault)?;
        let ring = EventRing::map(&faults, FAULT_PAGES[0])
            .or_else(|_| EventRing::map(&faults, FAULT_PAGES[1]))?;
        Ok(ThreadSampler { events: [Some(faults), None], ring, has_lost: false })
    }

    /// Ends to sample page faults, of which a stack is copied each.
    ///
    /// While they are sampled, another sampler of this thread's page faults gets the same stacks, in which its ring fills.
    pub fn end_faults(&mut self) {
        self.events[1] = None;
    }

    /// Returns whether samples that the last [`take`](ThreadSampler::take) would have given found no room in the ring.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// Returns whether no sample is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Gives each sample that is there to `each`.
    pub fn take(&mut self, mut each: impl FnMut(&ThreadSample<'_>)) {
        let mut has_lost = false;
        self.ring.take(|header, record| {
            has_lost |= header.kind == LOST;
            if header.kind == SAMPLE
                && let Some(sample) = parse(record)
            {
                each(&sample);
            }
        });
        self.has_lost = has_lost;
    }
}

fn long(bytes: &mut &[u8]) -> Option<u64> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_ne_bytes(*word))
}

/// Reads a sample: `ip`, time, address, registers, stack.
fn parse(mut record: &[u8]) -> Option<ThreadSample<'_>> {
    let _ip = long(&mut record)?;
    let at_ns = long(&mut record)?;
    let address = long(&mut record)?;
    // A thread without registers of its own, or in 32-bit code.
    if long(&mut record)? != 2 {
        return None;
    }
    let mut registers = [0; REGISTER_COUNT];
    for register in &mut registers {
        *register = long(&mut record)?;
    }
    let [bx, si, di, bp, sp, ip, r12, r13, r14, r15] = registers;
    let size = usize::try_from(long(&mut record)?).ok()?;
    let mut stack = record.get(..size)?;
    if size > 0 {
        record = &record[size..];
        let used = usize::try_from(long(&mut record)?).ok()?;
        stack = stack.get(..used)?;
    }
    let fault = (address != 0).then_some(address);
    let kept = [bx, r12, r13, r14, r15];
    Some(ThreadSample { at_ns, fault, ip, sp, bp, kept, arguments: [di, si], stack })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_processors_are_read() {
        assert_eq!(processors("0\n"), Some(vec![0]));
        assert_eq!(processors("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(processors(""), None);
    }

    #[test]
    fn a_sample_is_read_and_a_torn_one_is_none() {
        let mut words = vec![7_u64, 1000, 0, 2];
        words.extend([1, 6, 5, 2, 3, 4, 12, 13, 14, 15]);
        words.extend([16, 0x11, 0x22, 8]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let sample = parse(&bytes).expect("a sample");
        assert_eq!((sample.at_ns, sample.fault, sample.ip, sample.sp), (1000, None, 4, 3));
        assert_eq!((sample.bp, sample.kept), (2, [1, 12, 13, 14, 15]));
        assert_eq!(sample.arguments, [5, 6]);
        assert_eq!(sample.stack, 0x11_u64.to_ne_bytes());
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_none(), "{length}");
        }
    }

    /// How often this thread has waited for a page from a disk.
    fn major_faults() -> usize {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(9).unwrap().parse().unwrap()
    }

    #[test]
    fn the_address_of_each_page_that_was_missing_is_sampled() {
        use std::io::Write as _;
        const PAGE: u64 = 4096;
        // More than the kernel reads at a time.
        const APART: usize = 1 << 20;
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; 16 * APART]).unwrap();
        file.sync_all().unwrap();
        let map = crate::map::Map::of(&file).unwrap();
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        // Where the kernel allows no samples nothing can be said.
        let Ok(mut sampler) = ThreadSampler::at_faults(thread) else { return };
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let before = major_faults();
        let touched: Vec<u64> = (0..16)
            .map(|part| {
                let byte = std::hint::black_box(&map.bytes()[part * APART]);
                u64::try_from(std::ptr::from_ref(byte).addr()).unwrap() + u64::from(*byte) - 7
            })
            .collect();
        // On a disk in memory there is none.
        let missing = major_faults() - before;
        let mut addresses = Vec::new();
        sampler.take(|sample| addresses.extend(sample.fault));
        assert!(!sampler.has_lost());
        assert!(addresses.len() >= missing, "{missing} {addresses:?}");
        let is_ours = |address: &&u64| touched.iter().any(|at| at / PAGE == **address / PAGE);
        let ours = addresses.iter().filter(is_ours).count();
        // Our own code may be read, too.
        assert!(missing < 8 || ours >= missing / 2, "{missing} {addresses:?}");
    }
}
