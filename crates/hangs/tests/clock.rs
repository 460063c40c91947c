//! The recorders while somebody sets the clock.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use sys::clock::{Clock, SystemClock};
use unjank_hangs::model::{Hang, HangCause};
use unjank_hangs::recorder::ThreadSource;

use crate::kernel::reports;
use crate::recorder::{Interactive, TestRecorder, stored, until};

/// The clock of this machine, after somebody has set it forward by so many seconds.
#[derive(Debug)]
struct SetClock {
    real: SystemClock,
    forward: AtomicI64,
}

impl Clock for SetClock {
    fn now(&self) -> SystemTime {
        let forward = self.forward.load(Ordering::Relaxed);
        let by = Duration::from_secs(forward.unsigned_abs());
        if forward < 0 { self.real.now() - by } else { self.real.now() + by }
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }
}

/// The clock is set in the middle of hangs: each is there once, as long as it was, and nobody watched for a day.
fn set_the_clock_in_hangs(source: ThreadSource) {
    let root = tempfile::tempdir().unwrap();
    let real = SystemClock::start();
    let clock = Arc::new(SetClock { real, forward: AtomicI64::new(0) });
    let began = Instant::now();
    let recorder = TestRecorder::start_by(&root, source, Arc::clone(&clock) as Arc<dyn Clock>);
    let mut program = Interactive::start(&root);
    program.be_noticed(&root);
    let process = program.child.id();
    let hangs_of_lock = || -> Vec<Hang> {
        let hangs = stored(&root).hangs.into_values();
        hangs.filter(|hang| hang.process == process && hang.cause == HangCause::Lock).collect()
    };
    // A day forward, two hours back from there, and back to what it was.
    for (at, forward) in [(1, 24 * 3600), (2, 22 * 3600), (3, 0)] {
        program.wait_until_at_rest();
        let held = File::create(&program.lock).unwrap();
        held.lock().unwrap();
        let from = Instant::now();
        program.begin(b'l');
        until("a hang that goes on to be stored", || {
            hangs_of_lock().iter().any(|hang| hang.goes_on).then_some(())
        });
        clock.forward.store(forward, Ordering::Relaxed);
        drop(held);
        program.finished();
        let most = from.elapsed();
        let hangs = until("the hang to end", || {
            Some(hangs_of_lock()).filter(|hangs| hangs.iter().all(|hang| !hang.goes_on))
        });
        assert_eq!(hangs.len(), at, "{hangs:?}");
        let longest = hangs.iter().map(|hang| hang.length_ns).max().unwrap();
        assert!(Duration::from_nanos(longest) < began.elapsed(), "{hangs:?}");
        let started = |hang: &Hang| SystemTime::UNIX_EPOCH + Duration::from_nanos(hang.started_ns);
        let before = clock.now() - most - Duration::from_secs(60);
        assert!(hangs.iter().any(|hang| started(hang) > before && started(hang) < clock.now()));
    }
    recorder.end();
    let most = began.elapsed() + Duration::from_secs(1);
    let periods = stored(&root).periods;
    let watched: u64 = periods.iter().map(|period| period.recorder_ns).sum();
    assert!(watched > 0 && Duration::from_nanos(watched) < most, "{periods:?}");
    for period in &periods {
        assert!(Duration::from_nanos(period.to_ns - period.from_ns) < most, "{period:?}");
    }
    assert!(
        periods.len() >= 3,
        "one ends where somebody set the clock and a look came after: {periods:?}"
    );
}

#[test]
fn a_clock_that_is_set_makes_no_hang_longer_for_who_samples() {
    set_the_clock_in_hangs(ThreadSource::Sampling);
}

#[test]
fn a_clock_that_is_set_makes_no_hang_longer_for_the_kernels_reports() {
    let Some(reports) = reports() else { return };
    set_the_clock_in_hangs(ThreadSource::Kernel(Box::new(reports)));
}
