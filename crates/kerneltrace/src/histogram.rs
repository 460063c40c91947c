//! Durations counted in buckets of a quarter octave: percentiles to within a fifth, in bounded memory.

/// How many buckets there are: four for each power of two of a nanosecond, up to 2^40 ns (18 minutes).
pub const BUCKETS: usize = 160;

/// A count of durations by size.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: Box::new([0; BUCKETS]) }
    }
}

/// Returns the bucket of a duration: four times its binary logarithm, and the two bits below its highest.
#[must_use]
pub fn bucket(ns: u64) -> usize {
    let ns = ns.max(4);
    let octave = ns.ilog2();
    let quarter = usize::try_from((ns >> (octave - 2)) & 3).unwrap_or(0);
    (octave as usize * 4 + quarter).min(BUCKETS - 1)
}

/// Returns the shortest duration in a bucket, in nanoseconds.
#[must_use]
pub fn lower_bound(bucket: usize) -> u64 {
    let octave = (bucket.min(BUCKETS - 1) / 4).max(2);
    let quarter = (bucket % 4) as u64;
    (4 + quarter) << (octave - 2)
}

impl Histogram {
    /// Counts a duration.
    pub fn add(&mut self, ns: u64) {
        self.add_many(bucket(ns), 1);
    }

    /// Counts `count` durations of a bucket, as a backend that counts in the kernel has them.
    pub fn add_many(&mut self, bucket: usize, count: u64) {
        let slot = &mut self.counts[bucket.min(BUCKETS - 1)];
        *slot = slot.saturating_add(count);
    }

    /// Adds all counts of another one.
    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, count) in other.counts.iter().enumerate() {
            self.add_many(bucket, *count);
        }
    }

    /// Returns the counts, by bucket.
    #[must_use]
    pub fn counts(&self) -> &[u64; BUCKETS] {
        &self.counts
    }

    /// Returns the duration that `share` (0 to 1) of all do not exceed, in nanoseconds; none without durations.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let total: u64 = self.counts.iter().sum();
        let wanted = (share.clamp(0.0, 1.0) * total as f64).ceil().max(1.0);
        let mut seen = 0_u64;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen as f64 >= wanted
        });
        // The middle of the bucket, so that the error goes both ways.
        found.filter(|_| total > 0).map(|b| lower_bound(b).midpoint(lower_bound(b + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_counted_in_it() {
        for exponent in 2..39 {
            for ns in [1_u64 << exponent, (1 << exponent) + 1, (1 << exponent) * 3 / 2] {
                let bucket = bucket(ns);
                assert!(lower_bound(bucket) <= ns, "{ns}");
                assert!(ns < lower_bound(bucket + 1), "{ns}");
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket(0), bucket(4));
    }

    #[test]
    fn a_percentile_is_within_a_fifth() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(0.5), None);
        for ns in 1..=100_000 {
            histogram.add(ns);
        }
        for (share, truth) in [(0.5, 50_000.0), (0.95, 95_000.0), (0.99, 99_000.0)] {
            let got = histogram.percentile(share).unwrap_or_default() as f64;
            assert!((got / truth - 1.0).abs() < 0.2, "{share}: {got}");
        }
    }
}
