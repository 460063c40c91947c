//! The thread that empties the sockets: it waits for nothing but them, so that a bus never has to keep messages for us.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use session::clock::Clock;

use super::lane::{Lane, LaneEnd};
use super::pace::{Came, Pace};
use super::ring::{CHUNK, RingProducer};

/// How long nothing may come before nothing is taken to be left, when the recording is to end.
const LAST: Duration = Duration::from_millis(50);
/// How long what is left is read at most, of a bus that sends without a pause.
const END: Duration = Duration::from_secs(1);
/// How soon is tried again to hand over what came, while somebody has the ring's lock.
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000 };

/// The time of day on a clock that nobody sets while it runs.
#[derive(Clone, Debug)]
pub(super) struct Times {
    clock: Arc<dyn Clock>,
    /// What the time of day was when the monotonic time was 0.
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

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The sockets, and where what comes goes.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) lanes: Vec<Lane>,
    pub(super) producer: RingProducer,
    pub(super) times: Times,
    pub(super) linger: Linger,
    /// Readable when the recording is to end.
    pub(super) stop: Arc<OwnedFd>,
}

/// Tells when a message has waited for others as long as it may. A timer of its own costs a wait for each message nothing.
#[derive(Debug)]
pub(super) struct Linger {
    timer: OwnedFd,
    time: Duration,
    is_set: bool,
}

impl Linger {
    /// Makes a timer for waits of `time`.
    pub(super) fn new(time: Duration) -> io::Result<Linger> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // No time at all would be none that is set.
        Ok(Linger { timer, time: time.max(Duration::from_micros(1)), is_set: false })
    }

    /// Makes the timer readable after `time`.
    fn set(&mut self, time: Duration) {
        let it_value = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let set = Itimerspec { it_interval, it_value };
        // The descriptor is a timer and the times are right, so nothing can go wrong.
        self.is_set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &set).is_ok();
    }

    /// Takes note that the time has come.
    fn clear(&mut self) {
        // It is readable still if it cannot be read, and is asked again.
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        self.is_set = false;
    }
}

impl Reader {
    /// Reads until it is told to stop or no bus is left; returns why those that ended by themselves did.
    pub(super) fn run(mut self) -> Vec<(u16, LaneEnd)> {
        let mut pace = Pace::start(self.times.now());
        let mut scratch = vec![0; CHUNK];
        let mut ends = Vec::new();
        while !self.lanes.is_empty() {
            if let Some(nap) = pace.nap() {
                // Whoever stops us ends it; nothing else can.
                let _ = sys::socket::wait_readable(&*self.stop, Some(nap));
            }
            let patience = (!self.producer.try_exchange()).then_some(SOON);
            let mut ready = self.wait(patience);
            let stop = ready.pop() != Some(false);
            let is_time = ready.pop() == Some(true);
            let until = stop.then(|| self.times.now().saturating_add(nanoseconds(END)));
            let mut ready = ready.into_iter();
            let mut came = Came::default();
            // The bus from which most came, and how much that was.
            let mut most = (0, 0);
            // Whoever stops us wants what had come by then, so all are read once more.
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
                busiest.and_then(Lane::processor)
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

    /// Waits until something can be read, but not longer than it may take, and says of each lane whether it can, then whether a message has waited long
    /// enough, and last whether to stop.
    fn wait(&self, patience: Option<Timespec>) -> Vec<bool> {
        let sources = self.lanes.iter().map(Lane::source);
        let all = sources.chain([&self.linger.timer, &*self.stop]);
        let mut polled: Vec<PollFd<'_>> = all.map(|it| PollFd::new(it, PollFlags::IN)).collect();
        // A signal ends the wait early, which is no more than that; nothing else can go wrong with these.
        let _ = poll(&mut polled, patience.as_ref());
        polled.iter().map(|polled| !polled.revents().is_empty()).collect()
    }

    /// Hands over what has waited long enough, if nobody is busy with what came before.
    fn hand_over(&mut self, now: u64) {
        let limit = now.saturating_sub(nanoseconds(self.linger.time));
        for lane in &mut self.lanes {
            if lane.waiting_since().is_some_and(|since| since <= limit) && self.producer.is_taken()
            {
                lane.hand_over(&mut self.producer);
            }
        }
    }

    /// Sets the timer, if a message waits.
    fn set(&mut self, now: u64) {
        let Some(since) = self.lanes.iter().filter_map(Lane::waiting_since).min() else { return };
        let end = since.saturating_add(nanoseconds(self.linger.time));
        // What cannot be handed over when its time has come is tried again after as long.
        self.linger.set(match end.saturating_sub(now) {
            0 => self.linger.time,
            rest => Duration::from_nanos(rest),
        });
    }
}

/// Reads what there is in one lane and returns how much that was; with `until`, waits for what the bus still holds.
fn empty(
    lane: &mut Lane,
    producer: &mut RingProducer,
    scratch: &mut [u8],
    times: &Times,
    until: Option<u64>,
) -> Result<Came, LaneEnd> {
    let mut came = Came::default();
    // A bus that sends without a pause must not keep us from the others, or from stopping.
    let mut rounds = 16_u32;
    loop {
        let found = lane.read(producer, scratch, || times.now())?;
        came += found.came;
        rounds = rounds.saturating_sub(1);
        let goes_on = match until {
            None => found.more && rounds > 0,
            // What a bus holds back because the socket was full comes as soon as there is room.
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
