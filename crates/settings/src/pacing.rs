//! Pacing: a program that writes without end has its own replies delayed, so that its client library coalesces.
//!
//! libdconf has one request in flight and merges what comes meanwhile into the next one. So a later reply to the
//! chatty program is all it takes; nobody else waits, and the commit that is put off is never made.
//!
//! Merging saves something only where a value replaces one that was written a moment ago, as a slider or a window that
//! stores its size does. So only such commits count: a script that writes a thousand different keys, and waits for
//! each, is never held up.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// When a sender counts as chatty and how long its reply then waits.
///
/// Two leaky buckets per sender, one in commits and one in bytes of image. As long as both hold, nothing is delayed.
/// Only repeated commits go into them: those whose every key is among the last that the sender wrote.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// Repeated commits that a sender may make at once.
    pub burst: u32,
    /// Repeated commits per second that a sender may make for ever.
    pub per_second: f64,
    /// Image bytes that a sender may have written at once.
    pub burst_bytes: u64,
    /// Image bytes per second that a sender may have written for ever.
    pub bytes_per_second: f64,
    /// The shortest delay that is worth a timer.
    pub shortest: Duration,
    /// The longest delay of a reply.
    pub longest: Duration,
}

impl Default for Pacing {
    /// 150 commits or 40 MB at once, then 5 commits or 1 MB a second, with delays of 50 to 200 ms.
    fn default() -> Pacing {
        Pacing {
            burst: 150,
            per_second: 5.0,
            burst_bytes: 40_000_000,
            bytes_per_second: 1_000_000.0,
            shortest: Duration::from_millis(50),
            longest: Duration::from_millis(200),
        }
    }
}

/// Remembers how much each sender had written lately.
#[derive(Debug)]
pub struct Pacer {
    pacing: Pacing,
    senders: HashMap<Box<str>, Account>,
}

/// What is known of a sender.
#[derive(Debug, Default)]
struct Account {
    buckets: Buckets,
    /// Hashes of the paths that it changed last, the oldest first.
    written: VecDeque<u64>,
}

/// What a sender has put into its buckets and what has not leaked out yet.
#[derive(Clone, Copy, Debug, Default)]
struct Buckets {
    commits: f64,
    bytes: f64,
    at: Duration,
}

/// Senders above which those that owe nothing are forgotten.
const MANY: usize = 256;

/// Paths that are remembered per sender.
const WRITTEN: usize = 64;

impl Pacer {
    /// Starts with every sender's buckets empty.
    #[must_use]
    pub fn new(pacing: Pacing) -> Pacer {
        Pacer { pacing, senders: HashMap::new() }
    }

    /// Counts a commit that changes `paths` and writes an image of `bytes` bytes, and returns how long it is to be put off.
    pub(crate) fn charge<P: AsRef<str>>(
        &mut self,
        sender: &str,
        paths: &[P],
        bytes: usize,
        now: Duration,
    ) -> Duration {
        let pacing = self.pacing;
        if self.senders.len() >= MANY {
            self.senders.retain(|_, account| account.buckets.leak(&pacing, now).commits > 0.0);
        }
        let account = self.senders.entry(sender.into()).or_default();
        account.buckets = account.buckets.leak(&pacing, now);
        if !account.repeats(paths) {
            return Duration::ZERO;
        }
        // A sender that has just stopped must not pay for minutes: what it owes is limited.
        let most = pacing.longest.as_secs_f64() * 4.0;
        let buckets = &mut account.buckets;
        buckets.commits =
            (buckets.commits + 1.0).min(f64::from(pacing.burst) + most * pacing.per_second + 1.0);
        buckets.bytes = (buckets.bytes + float(bytes as u64))
            .min(float(pacing.burst_bytes) + most * pacing.bytes_per_second);
        let buckets = *buckets;
        self.owed(buckets)
    }

    /// Returns how long a commit of this sender would be put off now, and counts nothing.
    #[must_use]
    pub fn delay(&self, sender: &str, now: Duration) -> Duration {
        let buckets = self.senders.get(sender).map(|account| account.buckets);
        self.owed(buckets.unwrap_or_default().leak(&self.pacing, now))
    }

    fn owed(&self, buckets: Buckets) -> Duration {
        let commits = (buckets.commits - f64::from(self.pacing.burst)) / self.pacing.per_second;
        let bytes = (buckets.bytes - float(self.pacing.burst_bytes)) / self.pacing.bytes_per_second;
        let owed = commits.max(bytes);
        if owed <= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(owed.min(self.pacing.longest.as_secs_f64()))
            .max(self.pacing.shortest)
    }
}

impl Account {
    /// Remembers that the sender changed these paths, and says whether it had changed all of them before.
    fn repeats<P: AsRef<str>>(&mut self, paths: &[P]) -> bool {
        let mut repeated = true;
        for path in paths {
            let mut hasher = DefaultHasher::new();
            path.as_ref().hash(&mut hasher);
            let hash = hasher.finish();
            if self.written.contains(&hash) {
                continue;
            }
            repeated = false;
            if self.written.len() == WRITTEN {
                self.written.pop_front();
            }
            self.written.push_back(hash);
        }
        repeated
    }
}

impl Buckets {
    fn leak(self, pacing: &Pacing, now: Duration) -> Buckets {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        Buckets {
            commits: (self.commits - passed * pacing.per_second).max(0.0),
            bytes: (self.bytes - passed * pacing.bytes_per_second).max(0.0),
            at: now,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a bucket need not be exact beyond 2^53 bytes")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes in a loop, each write after the reply to the last and `work` later, and returns the number of writes.
    fn written(
        pacer: &mut Pacer,
        sender: &str,
        image: usize,
        work: Duration,
        until: Duration,
    ) -> usize {
        let (mut now, mut writes) = (Duration::ZERO, 0);
        while now < until {
            now += pacer.charge(sender, &["/slider"], image, now) + work;
            writes += 1;
        }
        writes
    }

    #[test]
    fn a_loop_of_ten_seconds_costs_a_twentieth() {
        for (image, work_ms) in [(1_000, 2), (274_000, 2), (274_000, 1), (1_000_000, 2)] {
            let mut pacer = Pacer::new(Pacing::default());
            let (work, until) = (Duration::from_millis(work_ms), Duration::from_secs(10));
            let writes = written(&mut pacer, ":1.5", image, work, until);
            let unpaced = 10_000 / usize::try_from(work_ms).unwrap();
            assert!(writes * 20 <= unpaced, "{writes} of {unpaced} at {image}");
        }
    }

    #[test]
    fn the_first_writes_and_other_senders_are_never_delayed() {
        let mut pacer = Pacer::new(Pacing::default());
        for _ in 0..140 {
            assert_eq!(pacer.charge(":1.5", &["/slider"], 274_000, Duration::ZERO), Duration::ZERO);
        }
        written(&mut pacer, ":1.5", 274_000, Duration::from_millis(1), Duration::from_secs(5));
        assert!(pacer.delay(":1.5", Duration::from_secs(5)) >= Duration::from_millis(50));
        assert_eq!(
            pacer.charge(":1.6", &["/slider"], 274_000, Duration::from_secs(5)),
            Duration::ZERO
        );
    }

    #[test]
    fn a_script_that_writes_different_keys_is_never_delayed() {
        let mut pacer = Pacer::new(Pacing::default());
        for key in 0..10_000 {
            let paths = [format!("/a/{key}"), "/a/last".into()];
            assert_eq!(pacer.charge(":1.5", &paths, 1 << 20, Duration::ZERO), Duration::ZERO);
        }
        let remembered = pacer.senders.values().map(|account| account.written.len()).sum::<usize>();
        assert!(remembered <= WRITTEN);
    }

    #[test]
    fn a_pause_is_enough_to_be_forgiven() {
        let mut pacer = Pacer::new(Pacing::default());
        written(&mut pacer, ":1.5", 274_000, Duration::from_millis(1), Duration::from_secs(60));
        assert_eq!(pacer.delay(":1.5", Duration::from_secs(62)), Duration::ZERO);
    }

    #[test]
    fn forgotten_senders_take_no_memory() {
        let mut pacer = Pacer::new(Pacing::default());
        for sender in 0..10_000_u64 {
            for _ in 0..2 {
                let now = Duration::from_secs(sender);
                pacer.charge(&format!(":1.{sender}"), &["/a"], 1000, now);
            }
        }
        assert!(pacer.senders.len() <= MANY);
    }
}
