//! The scheduling of the reading thread: its priority relative to the observed programs, and its polling in a flood.

use std::time::Duration;

use sys::processor::{Pinned, RunDelay};
use sys::sched::{CpuClass, RealtimeGuard};

/// A read of this many bytes means that the socket was full of long messages, and that the bus buffers further ones. Short
/// messages fill a socket with fewer bytes, but so slowly that waking for each gains nothing.
const MUCH: usize = 1 << 17;
/// How long the reader does not yield after that.
const HURRY: Duration = Duration::from_secs(1);
/// A wait of this length for a processor means that other programs compute there, and the reader would be late in a flood.
const WAITED: Duration = Duration::from_millis(1);
/// How long the reader does not yield after that.
const BUSY: Duration = Duration::from_secs(10);
/// The shortest time after which the reader follows a bus to another processor.
const STAY: Duration = Duration::from_millis(1);
/// This many bytes in that time mean that the flood continues: a reader that does not yield finds few bytes in each read.
const FLOOD: usize = 4 << 20;
/// The interval over which messages are counted.
const WINDOW: Duration = Duration::from_millis(4);
/// The rate of messages, per second, at which polling begins. Calls that are made one at a time stay below it.
const MESSAGES: u64 = 40_000;
/// The rate of bytes, per second, at which polling begins.
const BYTES: u64 = 80 << 20;
/// The most messages that may arrive between two polls: a third of what a socket holds.
const FEW: u64 = 64;
/// The most bytes that may arrive between two polls; bursts are larger.
const LITTLE: u64 = 48 << 10;
/// The longest time between two polls, which is the accuracy of the recorded times in a flood.
const LONGEST: Duration = Duration::from_micros(250);
/// The factor by which the time between two polls grows again after it was too long.
const STEP: Duration = Duration::from_micros(50);
/// The shortest sleep that saves more than it costs.
const SHORTEST: Duration = Duration::from_micros(40);

/// The number of messages and bytes that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadVolume {
    pub(super) bytes: usize,
    pub(super) messages: usize,
}

impl std::ops::AddAssign for ReadVolume {
    fn add_assign(&mut self, more: ReadVolume) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.messages = self.messages.saturating_add(more.messages);
    }
}

/// Lets the observed programs finish their work before the calling thread runs: each read then finds more messages, and
/// no program is preempted for the recorder. Nothing changes where a processor is idle.
pub(super) fn yield_to_others() {
    // The recording works without this, too.
    let _ = CpuClass::Batch.set(0);
}

/// How the reading thread shares the processor. It yields, unless the bus sends so much that it would have to buffer
/// messages, or other programs compute so much that it would have to.
#[derive(Debug)]
pub(super) struct Pace {
    /// Until when the thread does not yield; `None` while it yields.
    until: Option<u64>,
    hurry: Option<RealtimeGuard>,
    /// The processor of the bus, to which the thread is bound while it does not yield: there the bus cannot run ahead of the
    /// reader, and a long system call on another processor does not delay it.
    pinned: Option<Pinned>,
    /// Until when the processor of the bus is not read again.
    stays_until: u64,
    waits: Waits,
    /// How many bytes arrived since that decision.
    came: usize,
    looks: FloodPolling,
}

impl Pace {
    pub(super) fn start(now: u64) -> Pace {
        yield_to_others();
        Pace {
            until: None,
            hurry: None,
            pinned: None,
            stays_until: 0,
            waits: Waits::start(now),
            came: 0,
            looks: FloodPolling::start(now),
        }
    }

    /// Takes the number of bytes of one read into account; `processor` returns where the bus that sent most of them runs.
    pub(super) fn keep(
        &mut self,
        came: ReadVolume,
        now: u64,
        processor: impl FnOnce() -> Option<usize>,
    ) {
        self.looks.note(came, now);
        self.came = self.came.saturating_add(came.bytes);
        let is_busy = self.waits.has_waited(now);
        // At this rate the bus has to buffer messages as soon as the scheduler runs another thread here.
        let is_late = came.bytes >= MUCH || self.looks.is_torrent;
        if self.until.is_none() && (is_late || is_busy) {
            self.hurry = RealtimeGuard::begin().ok();
        } else if self.until.is_none_or(|until| now < until) && !is_late && !is_busy {
            return;
        }
        let has_moved = came.bytes >= MUCH && now >= self.stays_until;
        if is_late && (self.pinned.is_none() || has_moved) {
            self.stays_until = now.saturating_add(nanoseconds(STAY));
            self.stay_with(processor());
        }
        let longer = match () {
            () if is_busy => BUSY,
            () if is_late || self.came >= FLOOD => HURRY,
            () => {
                (self.pinned, self.hurry, self.until, self.came) = (None, None, None, 0);
                return;
            }
        };
        let until = now.saturating_add(nanoseconds(longer));
        self.until = Some(self.until.map_or(until, |before| before.max(until)));
        self.came = 0;
    }

    /// Binds the thread to the processor of the bus, if it is known and permitted.
    fn stay_with(&mut self, processor: Option<usize>) {
        let Some(processor) = processor else { return };
        match &mut self.pinned {
            // If that is not permitted, the thread stays where it is.
            Some(pinned) => {
                let _ = pinned.move_to(processor);
            }
            None => self.pinned = Pinned::to(processor).ok(),
        }
    }

    /// Returns how long to sleep before the next poll; `None` means to wait for the next message.
    pub(super) fn nap(&self) -> Option<Duration> {
        self.looks.nap
    }
}

/// Whether the calling thread had to wait for a processor: it would then be late for the next flood.
#[derive(Debug)]
struct Waits {
    delay: Option<RunDelay>,
    /// The last measured waiting time, and when it was measured.
    before: u64,
    looked: u64,
}

impl Waits {
    fn start(now: u64) -> Waits {
        let delay = RunDelay::of_this_thread().ok();
        let before = delay.as_ref().and_then(|delay| delay.nanoseconds().ok()).unwrap_or(0);
        Waits { delay, before, looked: now }
    }

    /// Measures again if the last measurement is old; returns whether the thread has waited long since then.
    fn has_waited(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.looked) < nanoseconds(WINDOW) {
            return false;
        }
        self.looked = now;
        let Some(delay) = self.delay.as_ref().and_then(|delay| delay.nanoseconds().ok()) else {
            return false;
        };
        delay.saturating_sub(std::mem::replace(&mut self.before, delay)) > nanoseconds(WAITED)
    }
}

/// How often to poll. A reader that is woken for each message of a flood does little else, and neither does the bus that wakes it.
#[derive(Debug)]
struct FloodPolling {
    /// When the present interval began.
    begin: u64,
    bytes: u64,
    messages: u64,
    nap: Option<Duration>,
    /// Whether the rate of bytes fills a socket soon.
    is_torrent: bool,
}

impl FloodPolling {
    fn start(now: u64) -> FloodPolling {
        FloodPolling { begin: now, bytes: 0, messages: 0, nap: None, is_torrent: false }
    }

    fn note(&mut self, came: ReadVolume, now: u64) {
        self.bytes = self.bytes.saturating_add(u64::try_from(came.bytes).unwrap_or(u64::MAX));
        self.messages =
            self.messages.saturating_add(u64::try_from(came.messages).unwrap_or(u64::MAX));
        let time = now.saturating_sub(self.begin);
        if came.bytes >= MUCH {
            // Messages that wait longer are buffered by the bus.
            self.nap = self.nap.map(|nap| nap / 2).filter(|nap| *nap >= SHORTEST);
        } else if time < nanoseconds(WINDOW) {
            return;
        } else {
            self.is_torrent = in_a_second(self.bytes, time) >= BYTES.into();
            let most = self.nap.unwrap_or_default() + STEP;
            self.nap = nap(self.bytes, self.messages, time).map(|nap| nap.min(most));
        }
        (self.begin, self.bytes, self.messages) = (now, 0, 0);
    }
}

/// Returns how long to sleep at the rate of this count in `time` nanoseconds.
fn nap(bytes: u64, messages: u64, time: u64) -> Option<Duration> {
    if in_a_second(bytes, time) < BYTES.into() && in_a_second(messages, time) < MESSAGES.into() {
        return None;
    }
    let until = |part: u64, count: u64| time.saturating_mul(part) / count.max(1);
    let nap = Duration::from_nanos(until(LITTLE, bytes).min(until(FEW, messages))).min(LONGEST);
    (nap >= SHORTEST).then_some(nap)
}

/// Returns the rate per second of a count in `time` nanoseconds.
fn in_a_second(count: u64, time: u64) -> u128 {
    u128::from(count) * 1_000_000_000 / u128::from(time.max(1))
}

/// Returns a time in nanoseconds, at most `u64::MAX` (584 years).
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn one_call_at_a_time_is_seen_message_by_message() {
        assert_eq!(nap(2_000_000, 20_000, SECOND), None);
        assert_eq!(nap(60 << 20, 15_000, SECOND), None);
        assert_eq!(nap(0, 0, 0), None);
    }

    #[test]
    fn in_a_flood_a_socket_is_emptied_before_it_is_full() {
        assert_eq!(nap(20 << 20, 100_000, SECOND), Some(LONGEST));
        assert_eq!(nap(25 << 20, 640_000, SECOND), Some(Duration::from_micros(100)));
        // 300 MiB in a second are 48 KiB in 156 us.
        assert_eq!(nap(300 << 20, 50_000, SECOND), Some(Duration::from_nanos(156_250)));
        // This rate fills the socket within the shortest sleep.
        assert_eq!(nap(4 << 30, 100_000, SECOND), None);
    }

    #[test]
    fn who_was_late_looks_twice_as_often_and_who_was_not_less_often_again() {
        let flood = |looks: &mut FloodPolling, at: u64| {
            looks.note(ReadVolume { bytes: 100 << 10, messages: 500 }, at * 1_000_000);
            looks.nap
        };
        let mut looks = FloodPolling::start(0);
        assert_eq!(flood(&mut looks, 4), Some(STEP));
        assert_eq!(flood(&mut looks, 8), Some(2 * STEP));
        looks.note(ReadVolume { bytes: MUCH, messages: 2 }, 8_100_000);
        assert_eq!(looks.nap, Some(STEP));
        looks.note(ReadVolume { bytes: MUCH, messages: 2 }, 8_200_000);
        assert_eq!(looks.nap, None);
        assert_eq!(flood(&mut looks, 13), Some(STEP));
        // After the flood the next message wakes the thread.
        looks.note(ReadVolume { bytes: 100, messages: 1 }, 2 * SECOND);
        assert_eq!(looks.nap, None);
    }
}
