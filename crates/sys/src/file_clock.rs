//! The clock by which the kernel dates changes of files.

use rustix::time::{ClockId, clock_gettime};

/// Returns nanoseconds since 1970 on the clock that gives files their times: it goes on with each tick of the kernel.
///
/// A file whose times are from this tick may change again and keep them.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_is_made_now_is_dated_no_earlier() {
        let before = super::now_ns();
        let made = tempfile::tempfile().unwrap().metadata().unwrap();
        let dated =
            made.ctime().cast_unsigned() * 1_000_000_000 + made.ctime_nsec().cast_unsigned();
        assert!(dated >= before, "{dated} is before {before}");
    }
}
