//! The thread that empties the sockets: it waits for nothing but them, so that a bus never has to keep messages for us.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use session::clock::Clock;
use sys::sched::CpuClass;

use super::lane::{Lane, LaneEnd};
use super::ring::{CHUNK, Ring};

/// How long nothing may come before nothing is taken to be left.
const LAST: Duration = Duration::from_millis(20);

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
        yield_to_others();
        let mut scratch = vec![0; CHUNK];
        let mut ends = Vec::new();
        while !self.lanes.is_empty() {
            let ready = self.wait();
            let stop = ready.last() != Some(&false);
            let mut at = 0;
            let mut ready = ready.into_iter();
            // Whoever stops us wants what had come by then, so all are read once more.
            self.lanes.retain_mut(|lane| {
                at += 1;
                if !ready.next().unwrap_or(false) && !stop {
                    return true;
                }
                match empty(lane, &self.ring, &mut scratch, &self.times, stop) {
                    Ok(()) => true,
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

/// Reads what there is in one lane.
fn empty(
    lane: &mut Lane,
    ring: &Ring,
    scratch: &mut [u8],
    times: &Times,
    stop: bool,
) -> Result<(), LaneEnd> {
    // A bus that sends without a pause must not keep us from the others, or from stopping.
    let most = if stop { 1024 } else { 16 };
    for _ in 0..most {
        let more = lane.read(ring, scratch, || times.now())?;
        // What a bus holds back because the socket was full comes as soon as there is room.
        if !more
            && !(stop && sys::socket::wait_readable(lane.source(), Some(LAST)).unwrap_or(false))
        {
            break;
        }
    }
    Ok(())
}
