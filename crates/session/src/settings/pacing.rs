//! Pacing: a program that writes without end has its own replies delayed, so that its client library coalesces.
//!
//! libdconf has one request in flight and merges what comes meanwhile into the next one. So a later reply to the
//! chatty program is all it takes; nobody else waits, and the commit that is put off is never made.

use std::collections::HashMap;
use std::time::Duration;

/// When a sender counts as chatty and how long its reply then waits.
///
/// Two leaky buckets per sender, one in commits and one in bytes of image. As long as both hold, nothing is delayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// Commits that a sender may make at once.
    pub burst: u32,
    /// Commits per second that a sender may make for ever.
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
    senders: HashMap<Box<str>, Buckets>,
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

impl Pacer {
    /// Starts with every sender's buckets empty.
    #[must_use]
    pub fn new(pacing: Pacing) -> Pacer {
        Pacer { pacing, senders: HashMap::new() }
    }

    /// Counts a commit of an image of `bytes` bytes and returns how long it is to be put off.
    pub fn charge(&mut self, sender: &str, bytes: usize, now: Duration) -> Duration {
        if self.senders.len() >= MANY {
            let pacing = self.pacing;
            self.senders.retain(|_, buckets| buckets.leak(&pacing, now).commits > 0.0);
        }
        let Pacing { burst, burst_bytes, longest, .. } = self.pacing;
        let mut buckets = self.senders.get(sender).copied().unwrap_or_default();
        buckets = buckets.leak(&self.pacing, now);
        // A sender that has just stopped must not pay for minutes: what it owes is limited.
        let most = longest.as_secs_f64() * 4.0;
        buckets.commits =
            (buckets.commits + 1.0).min(f64::from(burst) + most * self.pacing.per_second + 1.0);
        buckets.bytes = (buckets.bytes + float(bytes as u64))
            .min(float(burst_bytes) + most * self.pacing.bytes_per_second);
        self.senders.insert(sender.into(), buckets);
        self.owed(buckets)
    }

    /// Returns how long a commit of this sender would be put off now, and counts nothing.
    #[must_use]
    pub fn delay(&self, sender: &str, now: Duration) -> Duration {
        let buckets = self.senders.get(sender).copied().unwrap_or_default();
        self.owed(buckets.leak(&self.pacing, now))
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
            now += pacer.charge(sender, image, now) + work;
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
            assert_eq!(pacer.charge(":1.5", 274_000, Duration::ZERO), Duration::ZERO);
        }
        written(&mut pacer, ":1.5", 274_000, Duration::from_millis(1), Duration::from_secs(5));
        assert!(pacer.delay(":1.5", Duration::from_secs(5)) >= Duration::from_millis(50));
        assert_eq!(pacer.charge(":1.6", 274_000, Duration::from_secs(5)), Duration::ZERO);
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
            pacer.charge(&format!(":1.{sender}"), 1000, Duration::from_secs(sender));
        }
        assert!(pacer.senders.len() <= MANY);
    }
}
