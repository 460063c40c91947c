//! How the thread that reads shares the processor with those who are watched, and how often it looks in a flood.

use std::time::Duration;

use sys::processor::{Pinned, RunDelay};
use sys::sched::{CpuClass, Hurry};

use super::reader::nanoseconds;

/// So many bytes at once are what a socket holds of long messages: the bus keeps what comes next. Short ones fill it with
/// less, and so slowly that nothing is gained by waking for each.
const MUCH: usize = 1 << 17;
/// How long we do not yield after that.
const HURRY: Duration = Duration::from_secs(1);
/// Who waited for a processor for so long does so where others compute, and would be late for a flood.
const WAITED: Duration = Duration::from_millis(1);
/// How long we do not yield after that.
const BUSY: Duration = Duration::from_secs(10);
/// A bus that has gone to another processor is followed after this at the earliest.
const STAY: Duration = Duration::from_millis(1);
/// So many bytes in that time are a flood still: who hurries finds little at once, however much comes.
const FLOOD: usize = 4 << 20;
/// How long is counted before it is said how much comes.
const WINDOW: Duration = Duration::from_millis(4);
/// From so many messages in a second on, nobody is woken for each: one call at a time makes fewer.
const MESSAGES: u64 = 40_000;
/// From so many bytes in a second on, too.
const BYTES: u64 = 80 << 20;
/// So many messages may come between two looks: a third of what a socket holds.
const FEW: u64 = 64;
/// So many bytes may, likewise; they come in bursts of more.
const LITTLE: u64 = 48 << 10;
/// The longest time between two looks; a message's time is as exact as that in a flood.
const LONGEST: Duration = Duration::from_micros(250);
/// By so much the time between two looks grows, after it was too long.
const STEP: Duration = Duration::from_micros(50);
/// To sleep for less costs more than it spares.
const SHORTEST: Duration = Duration::from_micros(40);

/// How much came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Came {
    pub(super) bytes: usize,
    pub(super) messages: usize,
}

impl std::ops::AddAssign for Came {
    fn add_assign(&mut self, more: Came) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.messages = self.messages.saturating_add(more.messages);
    }
}

/// Lets whoever is being watched finish what it does before the calling thread runs: more is then read at once, and
/// nobody is stopped midway for our sake. Where a processor is idle nothing changes.
pub(super) fn yield_to_others() {
    // Not to be let is no reason not to record.
    let _ = CpuClass::Batch.set(0);
}

/// How the thread that reads shares the processor. It yields, unless the bus sends so much that it had to keep it for us,
/// or others compute so much that it would have to.
#[derive(Debug)]
pub(super) struct Pace {
    /// Until when we do not yield, if we do not.
    until: Option<u64>,
    hurry: Option<Hurry>,
    /// Where the bus runs, while we hurry: it cannot run ahead of who has its processor, and a kernel that is busy on
    /// another one (a long system call is not interrupted) is not waited for.
    pinned: Option<Pinned>,
    /// Until when it is not asked again where that is.
    stays_until: u64,
    waits: Waits,
    /// How many bytes came since that was decided.
    came: usize,
    looks: Looks,
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
            looks: Looks::start(now),
        }
    }

    /// Notes how much came at once; `processor` says where the bus that sent most of it runs.
    pub(super) fn keep(&mut self, came: Came, now: u64, processor: impl FnOnce() -> Option<usize>) {
        self.looks.note(came, now);
        self.came = self.came.saturating_add(came.bytes);
        let is_busy = self.waits.has_waited(now);
        // Where so much comes, the bus has to keep it as soon as anybody else is chosen to run.
        let is_late = came.bytes >= MUCH || self.looks.is_torrent;
        if self.until.is_none() && (is_late || is_busy) {
            self.hurry = Hurry::begin().ok();
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

    /// Goes to where the bus runs, if that is known and allowed.
    fn stay_with(&mut self, processor: Option<usize>) {
        let Some(processor) = processor else { return };
        match &mut self.pinned {
            // It stays where it is if it may not go there.
            Some(pinned) => {
                let _ = pinned.move_to(processor);
            }
            None => self.pinned = Pinned::to(processor).ok(),
        }
    }

    /// Returns how long to sleep before looking again; none is to wait for the next message.
    pub(super) fn nap(&self) -> Option<Duration> {
        self.looks.nap
    }
}

/// Whether the calling thread had to wait for a processor: then the next flood would begin without it.
#[derive(Debug)]
struct Waits {
    delay: Option<RunDelay>,
    /// What it was when it was looked at last, and when that was.
    before: u64,
    looked: u64,
}

impl Waits {
    fn start(now: u64) -> Waits {
        let delay = RunDelay::of_this_thread().ok();
        let before = delay.as_ref().and_then(|delay| delay.nanoseconds().ok()).unwrap_or(0);
        Waits { delay, before, looked: now }
    }

    /// Looks, if the last time was long ago; says whether it had to wait for long since then.
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

/// How often to look. Who is woken for each message of a flood does little else, and neither does who wakes him.
#[derive(Debug)]
struct Looks {
    /// When the counting began.
    begin: u64,
    bytes: u64,
    messages: u64,
    nap: Option<Duration>,
    /// Whether it was so many bytes that a socket is full soon.
    is_torrent: bool,
}

impl Looks {
    fn start(now: u64) -> Looks {
        Looks { begin: now, bytes: 0, messages: 0, nap: None, is_torrent: false }
    }

    fn note(&mut self, came: Came, now: u64) {
        self.bytes = self.bytes.saturating_add(u64::try_from(came.bytes).unwrap_or(u64::MAX));
        self.messages =
            self.messages.saturating_add(u64::try_from(came.messages).unwrap_or(u64::MAX));
        let time = now.saturating_sub(self.begin);
        if came.bytes >= MUCH {
            // What waits longer is kept by the bus.
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

/// Returns how long to sleep where so much came in `time` nanoseconds.
fn nap(bytes: u64, messages: u64, time: u64) -> Option<Duration> {
    if in_a_second(bytes, time) < BYTES.into() && in_a_second(messages, time) < MESSAGES.into() {
        return None;
    }
    let until = |part: u64, count: u64| time.saturating_mul(part) / count.max(1);
    let nap = Duration::from_nanos(until(LITTLE, bytes).min(until(FEW, messages))).min(LONGEST);
    (nap >= SHORTEST).then_some(nap)
}

/// Returns how many are in a second if so many come in `time` nanoseconds.
fn in_a_second(count: u64, time: u64) -> u128 {
    u128::from(count) * 1_000_000_000 / u128::from(time.max(1))
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
        // So much fills it before anybody has slept.
        assert_eq!(nap(4 << 30, 100_000, SECOND), None);
    }

    #[test]
    fn who_was_late_looks_twice_as_often_and_who_was_not_less_often_again() {
        let flood = |looks: &mut Looks, at: u64| {
            looks.note(Came { bytes: 100 << 10, messages: 500 }, at * 1_000_000);
            looks.nap
        };
        let mut looks = Looks::start(0);
        assert_eq!(flood(&mut looks, 4), Some(STEP));
        assert_eq!(flood(&mut looks, 8), Some(2 * STEP));
        looks.note(Came { bytes: MUCH, messages: 2 }, 8_100_000);
        assert_eq!(looks.nap, Some(STEP));
        looks.note(Came { bytes: MUCH, messages: 2 }, 8_200_000);
        assert_eq!(looks.nap, None);
        assert_eq!(flood(&mut looks, 13), Some(STEP));
        // When the flood is over, the next message wakes.
        looks.note(Came { bytes: 100, messages: 1 }, 2 * SECOND);
        assert_eq!(looks.nap, None);
    }
}
