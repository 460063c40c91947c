//! Totals of calls, and how the programs in the kernel add them up.

use sys::bpf::record::{long, word};

use crate::histogram::{BUCKETS, Histogram};
use crate::layout;

/// Totals of all calls of a kind, including fast ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Total {
    /// How many.
    pub count: u64,
    /// How many of them failed.
    pub errors: u64,
    /// The time from entry to exit, in nanoseconds.
    pub wall_ns: u64,
    /// The time on a CPU, in nanoseconds, if the backend knows it.
    pub cpu_ns: Option<u64>,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
    /// All of them by duration.
    pub histogram: Histogram,
}

impl Total {
    /// Adds one call: whether it failed, its time from entry to exit and, if it is known, its time on a CPU, in nanoseconds.
    pub fn add(&mut self, failed: bool, wall_ns: u64, cpu_ns: Option<u64>) {
        self.count += 1;
        self.errors += u64::from(failed);
        self.wall_ns = self.wall_ns.saturating_add(wall_ns);
        if let Some(cpu) = cpu_ns {
            *self.cpu_ns.get_or_insert(0) += cpu;
        }
        self.longest_ns = self.longest_ns.max(wall_ns);
        self.histogram.add(wall_ns);
    }

    /// Adds other totals.
    pub fn merge(&mut self, other: &Total) {
        self.count += other.count;
        self.errors += other.errors;
        self.wall_ns = self.wall_ns.saturating_add(other.wall_ns);
        if let Some(cpu) = other.cpu_ns {
            *self.cpu_ns.get_or_insert(0) += cpu;
        }
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.histogram.merge(&other.histogram);
    }
}

fn at(offset: i16) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// Reads a total; what is missing is 0.
pub(crate) fn total(bytes: &[u8]) -> Total {
    let number = |offset: i16| long(bytes, offset).unwrap_or(0);
    let mut histogram = Histogram::default();
    for bucket in 0..BUCKETS {
        let count = word(bytes, at(layout::total::HISTOGRAM) + 4 * bucket).unwrap_or(0);
        histogram.add_many(bucket, u64::from(count));
    }
    Total {
        count: number(layout::total::COUNT),
        errors: number(layout::total::ERRORS),
        wall_ns: number(layout::total::WALL),
        cpu_ns: Some(number(layout::total::CPU)),
        longest_ns: number(layout::total::LONGEST),
        histogram,
    }
}

/// Returns the bytes of a total.
pub(crate) fn total_bytes(total: &Total) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(layout::total::SIZE).unwrap_or(0)];
    let mut put = |offset: usize, value: &[u8]| {
        if let Some(room) = bytes.get_mut(offset..).and_then(|rest| rest.get_mut(..value.len())) {
            room.copy_from_slice(value);
        }
    };
    for (offset, value) in [
        (layout::total::COUNT, total.count),
        (layout::total::ERRORS, total.errors),
        (layout::total::WALL, total.wall_ns),
        (layout::total::CPU, total.cpu_ns.unwrap_or(0)),
        (layout::total::LONGEST, total.longest_ns),
    ] {
        put(at(offset), &value.to_ne_bytes());
    }
    for (bucket, count) in total.histogram.counts().iter().enumerate() {
        let count = u32::try_from(*count).unwrap_or(u32::MAX);
        put(at(layout::total::HISTOGRAM) + 4 * bucket, &count.to_ne_bytes());
    }
    bytes
}
