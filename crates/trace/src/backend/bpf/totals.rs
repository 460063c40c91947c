//! A total as the programs in the kernel add it up.

use super::layout;
use crate::histogram::{BUCKETS, Histogram};
use crate::recording::Total;

fn at(offset: i16) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// Reads a total; what is missing is 0.
pub(super) fn total(bytes: &[u8]) -> Total {
    let long = |offset: i16| layout::long(bytes, at(offset)).unwrap_or(0);
    let mut histogram = Histogram::default();
    for bucket in 0..BUCKETS {
        let count = layout::word(bytes, at(layout::total::HISTOGRAM) + 4 * bucket).unwrap_or(0);
        histogram.add_many(bucket, u64::from(count));
    }
    Total {
        count: long(layout::total::COUNT),
        errors: long(layout::total::ERRORS),
        wall_ns: long(layout::total::WALL),
        cpu_ns: Some(long(layout::total::CPU)),
        longest_ns: long(layout::total::LONGEST),
        histogram,
    }
}

/// Returns the bytes of a total.
pub(super) fn total_bytes(total: &Total) -> Vec<u8> {
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
