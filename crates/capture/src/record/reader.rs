//! The thread that empties the sockets. It waits for nothing else, so that a bus never has to buffer messages.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use sys::clock::Clock;

use super::bus_stream::{BusBuffer, LaneEnd};
use super::memory::CHUNK;
use super::ring::RingProducer;
use super::scheduling::{Pace, ReadVolume, nanoseconds};

/// At the end of the recording: how long a bus must be quiet until all its messages are taken to be read.
const LAST: Duration = Duration::from_millis(50);
/// At the end of the recording: how long a bus that sends without a pause is read at most.
const END: Duration = Duration::from_secs(1);
/// The delay before the next attempt to pass messages on, while another thread holds the ring's lock.
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000 };

/// The time of day, derived from the monotonic clock, so that it never jumps during a recording.
#[derive(Clone, Debug)]
pub(super) struct Times {
    clock: Arc<dyn Clock>,
    /// The time of day at the monotonic time 0.
    begin: u64,
}

impl Times {
    pub(super) fn start(clock: Arc<dyn Clock>) -> Times {
        let day = clock.now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let begin = nanoseconds(day).saturating_sub(nanoseconds(clock.monotonic()));
        Times { clock, begin }
    }

    /// Returns nanoseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.begin.saturating_add(nanoseconds(self.clock.monotonic()))
    }
}

/// The sockets, and the chunks into which their messages go.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) lanes: Vec<BusBuffer>,
    pub(super) producer: RingProducer,
    pub(super) times: Times,
    pub(super) linger: DelayTimer,
    /// Readable when the recording is to end.
    pub(super) stop: Arc<OwnedFd>,
}

/// A timer for the longest wait of a message. With a timer the wait for each message needs no time limit of its own.
#[derive(Debug)]
pub(super) struct DelayTimer {
    timer: OwnedFd,
    time: Duration,
    is_set: bool,
}

impl DelayTimer {
    /// Creates a timer for waits of `time`.
    pub(super) fn new(time: Duration) -> io::Result<DelayTimer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // A time of zero would disarm the timer.
        Ok(DelayTimer { timer, time: time.max(Duration::from_micros(1)), is_set: false })
    }

    /// Makes the timer readable after `time`.
    fn set(&mut self, time: Duration) {
        let it_value = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let set = Itimerspec { it_interval, it_value };
        // It cannot fail: the descriptor is a timer and the times are valid.
        self.is_set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &set).is_ok();
    }

    /// Clears the timer.
    fn clear(&mut self) {
        // If it cannot be read, it stays readable and is read again.
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        self.is_set = false;
    }
}

impl Reader {
    /// Reads until the end is requested or no bus is left; returns why buses ended by themselves.
    pub(super) fn run(mut self) -> Vec<(u16, LaneEnd)> {
        let mut pace = Pace::start(self.times.now());
        let mut scratch = vec![0; CHUNK];
        let mut ends = Vec::new();
        while !self.lanes.is_empty() {
            if let Some(nap) = pace.nap() {
                // Only the end of the recording closes it.
                let _ = sys::socket::wait_readable(&*self.stop, Some(nap));
            }
            let patience = (!self.producer.try_exchange()).then_some(SOON);
            let mut ready = self.wait(patience);
            let stop = ready.pop() != Some(false);
            let is_time = ready.pop() == Some(true);
            let until = stop.then(|| self.times.now().saturating_add(nanoseconds(END)));
            let mut ready = ready.into_iter();
            let mut came = ReadVolume::default();
            // The bus that sent most bytes, and how many.
            let mut most = (0, 0);
            // At the end all buses are read once more, for the messages that had arrived by then.
            self.lanes.retain_mut(|lane| {
                if !ready.next().unwrap_or(false) && !stop {
                    return true;
                }
                match empty(lane, &mut self.producer, &mut scratch, &self.times, until) {
                    Ok(more) => {
                        came += more;
                        most = most.max((more.bytes, lane.bus()));
                        true
                    }
                    Err(end) => {
                        lane.finish(&mut self.producer, self.times.now());
                        ends.push((lane.bus(), end));
                        false
                    }
                }
            });
            if stop {
                break;
            }
            let now = self.times.now();
            pace.keep(came, now, || {
                let busiest = self.lanes.iter().find(|lane| lane.bus() == most.1);
                busiest.and_then(BusBuffer::processor)
            });
            if is_time {
                self.linger.clear();
                self.hand_over(now);
            }
            if !self.linger.is_set {
                self.set(now);
            }
        }
        let now = self.times.now();
        self.lanes.iter_mut().for_each(|lane| lane.finish(&mut self.producer, now));
        self.producer.end();
        ends
    }

    /// Waits until a socket is readable or the time limit passes. Returns for each bus whether it is readable, then whether a message has waited long
    /// enough, and last whether the end is requested.
    fn wait(&self, patience: Option<Timespec>) -> Vec<bool> {
        let sources = self.lanes.iter().map(BusBuffer::source);
        let all = sources.chain([&self.linger.timer, &*self.stop]);
        let mut polled: Vec<PollFd<'_>> = all.map(|it| PollFd::new(it, PollFlags::IN)).collect();
        // A signal ends the wait early, which does no harm; other errors cannot occur.
        let _ = poll(&mut polled, patience.as_ref());
        polled.iter().map(|polled| !polled.revents().is_empty()).collect()
    }

    /// Passes messages on that have waited long enough, unless the consumer still has earlier ones.
    fn hand_over(&mut self, now: u64) {
        let limit = now.saturating_sub(nanoseconds(self.linger.time));
        for lane in &mut self.lanes {
            if lane.waiting_since().is_some_and(|since| since <= limit) && self.producer.is_taken()
            {
                lane.hand_over(&mut self.producer);
            }
        }
    }

    /// Arms the timer if a message waits.
    fn set(&mut self, now: u64) {
        let Some(since) = self.lanes.iter().filter_map(BusBuffer::waiting_since).min() else {
            return;
        };
        let end = since.saturating_add(nanoseconds(self.linger.time));
        // Messages that cannot be passed on now are tried again after the same time.
        self.linger.set(match end.saturating_sub(now) {
            0 => self.linger.time,
            rest => Duration::from_nanos(rest),
        });
    }
}

/// Reads one bus and returns how many bytes there were; with `until`, waits for messages that the bus still buffers.
fn empty(
    lane: &mut BusBuffer,
    producer: &mut RingProducer,
    scratch: &mut [u8],
    times: &Times,
    until: Option<u64>,
) -> Result<ReadVolume, LaneEnd> {
    let mut came = ReadVolume::default();
    // A bus that sends without a pause must not delay the other buses or the end.
    let mut rounds = 16_u32;
    loop {
        let found = lane.read(producer, scratch, || times.now())?;
        came += found.came;
        rounds = rounds.saturating_sub(1);
        let goes_on = match until {
            None => found.more && rounds > 0,
            // Messages that the bus buffers because the socket was full arrive as soon as there is room.
            Some(until) => {
                times.now() < until
                    && (found.more
                        || sys::socket::wait_readable(lane.source(), Some(LAST)).unwrap_or(false))
            }
        };
        if !goes_on {
            return Ok(came);
        }
    }
}
