//! The clock by which the kernel dates changes of files.

/// Returns the nanoseconds of a clock.
///
/// By the C library: what rustix does reads the kernel's page of code itself, which valgrind takes away from programs.
fn nanoseconds(clock: libc::clockid_t) -> i128 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a place that is there; the clocks below exist since Linux 2.6.32.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

/// Returns nanoseconds since 1970 on the clock that gives files their times: it goes on with each tick of the kernel.
///
/// A file whose times are from this tick may change again and keep them.
#[must_use]
pub fn now_ns() -> u64 {
    u64::try_from(nanoseconds(libc::CLOCK_REALTIME_COARSE)).unwrap_or(0)
}

/// Waits until this clock has passed the present moment: what has changed by now has earlier times than what changes later.
///
/// A tick is not enough, for the clock may be one behind the finer times that newer kernels give to files. A clock that
/// is set back is waited for no longer than a second.
pub fn wait_until_later() {
    let begun = nanoseconds(libc::CLOCK_MONOTONIC);
    let present = nanoseconds(libc::CLOCK_REALTIME);
    let is_late = || nanoseconds(libc::CLOCK_MONOTONIC) - begun > 1_000_000_000;
    while nanoseconds(libc::CLOCK_REALTIME_COARSE) <= present && !is_late() {
        std::thread::yield_now();
    }
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

    #[test]
    fn what_changed_before_has_an_earlier_time_than_the_clock_has_then() {
        for _ in 0..20 {
            let made = tempfile::tempfile().unwrap().metadata().unwrap();
            let dated =
                made.ctime().cast_unsigned() * 1_000_000_000 + made.ctime_nsec().cast_unsigned();
            super::wait_until_later();
            assert!(dated < super::now_ns());
        }
    }
}
