//! The thread that empties the sockets: it waits for nothing but them, so that a bus never has to keep messages for us.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use session::clock::Clock;
use sys::sched::{CpuClass, Hurry};

use super::lane::{Lane, LaneEnd};
use super::ring::{CHUNK, Ring};

/// How long nothing may come before nothing is taken to be left, when the recording is to end.
const LAST: Duration = Duration::from_millis(50);
/// How long what is left is read at most, of a bus that sends without a pause.
const END: Duration = Duration::from_secs(1);
/// So many bytes at once are what a socket holds of long messages: the bus keeps what comes next. Short ones fill it with
/// less, and so slowly that nothing is gained by waking for each.
const MUCH: usize = 1 << 17;
/// How long we do not yield after that.
const HURRY: Duration = Duration::from_secs(1);
/// So many bytes in that time are a flood still: who hurries finds little at once, however much comes.
const FLOOD: usize = 4 << 20;

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

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The sockets, and where what comes goes.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) lanes: Vec<Lane>,
    pub(super) ring: Arc<Ring>,
    pub(super) times: Times,
    /// How long a message may wait for others before it is handed over.
    pub(super) linger: Duration,
    /// Readable when the recording is to end.
    pub(super) stop: Arc<OwnedFd>,
}

impl Reader {
    /// Reads until it is told to stop or no bus is left; returns why those that ended by themselves did.
    pub(super) fn run(mut self) -> Vec<(u16, LaneEnd)> {
        let mut pace = Pace::start();
        let mut scratch = vec![0; CHUNK];
        let mut ends = Vec::new();
        while !self.lanes.is_empty() {
            let ready = self.wait();
            let stop = ready.last() != Some(&false);
            let until = stop.then(|| self.times.now().saturating_add(nanoseconds(END)));
            let mut ready = ready.into_iter();
            let mut bytes = 0;
            // Whoever stops us wants what had come by then, so all are read once more.
            self.lanes.retain_mut(|lane| {
                if !ready.next().unwrap_or(false) && !stop {
                    return true;
                }
                match empty(lane, &self.ring, &mut scratch, &self.times, until) {
                    Ok(count) => {
                        bytes += count;
                        true
                    }
                    Err(end) => {
                        lane.finish(&self.ring);
                        ends.push((lane.bus(), end));
                        false
                    }
                }
            });
            if stop {
                break;
            }
            pace.keep(bytes, self.times.now());
            self.hand_over();
        }
        self.lanes.iter_mut().for_each(|lane| lane.finish(&self.ring));
        self.ring.end();
        ends
    }

    /// Waits until something can be read, and says of each lane whether it can, and last whether to stop.
    fn wait(&self) -> Vec<bool> {
        let waiting = self.lanes.iter().filter_map(Lane::waiting_since).min();
        let timeout = waiting.map(|since| {
            let now = self.times.now();
            let end = since.saturating_add(nanoseconds(self.linger));
            // What cannot be handed over when its time has come is tried again after as long.
            let rest = match end.saturating_sub(now) {
                0 => self.linger,
                rest => Duration::from_nanos(rest),
            };
            Timespec {
                tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: rest.subsec_nanos().into(),
            }
        });
        let mut polled: Vec<PollFd<'_>> =
            self.lanes.iter().map(|lane| PollFd::new(lane.source(), PollFlags::IN)).collect();
        polled.push(PollFd::new(&self.stop, PollFlags::IN));
        // A signal ends the wait early, which is no more than that; nothing else can go wrong with these.
        let _ = poll(&mut polled, timeout.as_ref());
        polled.iter().map(|polled| !polled.revents().is_empty()).collect()
    }

    /// Hands over what has waited long enough, if nobody is busy with what came before.
    fn hand_over(&mut self) {
        let limit = self.times.now().saturating_sub(nanoseconds(self.linger));
        for lane in &mut self.lanes {
            if lane.waiting_since().is_some_and(|since| since <= limit) && self.ring.is_empty() {
                lane.hand_over(&self.ring);
            }
        }
    }
}

/// Lets whoever is being watched finish what it does before the calling thread runs: more is then read at once, and
/// nobody is stopped midway for our sake. Where a processor is idle nothing changes.
pub(super) fn yield_to_others() {
    // Not to be let is no reason not to record.
    let _ = CpuClass::Batch.set(0);
}

/// How the thread that reads shares the processor. It yields, unless the bus sends so much that it had to keep it for us.
#[derive(Debug)]
struct Pace {
    /// Until when we do not yield, if we do not.
    until: Option<u64>,
    hurry: Option<Hurry>,
    /// How many bytes came since that was decided.
    came: usize,
}

impl Pace {
    fn start() -> Pace {
        yield_to_others();
        Pace { until: None, hurry: None, came: 0 }
    }

    /// Notes how many bytes came at once.
    fn keep(&mut self, bytes: usize, now: u64) {
        self.came = self.came.saturating_add(bytes);
        let is_late = bytes >= MUCH;
        if self.until.is_none() && is_late {
            self.hurry = Hurry::begin().ok();
        } else if self.until.is_none_or(|until| now < until) {
            return;
        }
        if is_late || self.came >= FLOOD {
            self.until = Some(now.saturating_add(nanoseconds(HURRY)));
        } else {
            (self.hurry, self.until) = (None, None);
        }
        self.came = 0;
    }
}

/// Reads what there is in one lane and returns how many bytes that was; with `until`, waits for what the bus still holds.
fn empty(
    lane: &mut Lane,
    ring: &Ring,
    scratch: &mut [u8],
    times: &Times,
    until: Option<u64>,
) -> Result<usize, LaneEnd> {
    let mut bytes = 0;
    // A bus that sends without a pause must not keep us from the others, or from stopping.
    let mut rounds = 16_u32;
    loop {
        let found = lane.read(ring, scratch, || times.now())?;
        bytes += found.bytes;
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
            return Ok(bytes);
        }
    }
}
