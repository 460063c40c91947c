//! The period that goes on: for how long somebody looked, and what was counted.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::{MOST_NAMES, nanoseconds, unix_ns};
use crate::history::CLOSE_NS;
use crate::model::{GAP_NS, ProgramSteps, StepHistogram, WatchedPeriod};

/// A program whose main loop was not found for so long is told.
const SEARCHED: Duration = Duration::from_secs(10);

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The time of day.
    pub(super) now: SystemTime,
    /// The monotonic clock, in nanoseconds.
    pub(super) at_ns: u64,
}

/// The totals of a period.
#[derive(Debug)]
pub(super) struct PeriodTotals {
    began: Moment,
    /// The last look.
    last: Moment,
    recorder_ns: u64,
    watched_ns: u64,
    programs: BTreeMap<String, ProgramTotals>,
}

/// What was counted of one process since the last time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessCount {
    pub(super) process: u32,
    /// Its steps.
    pub(super) steps: StepHistogram,
    /// For how long it was watched until `at_ns`, in nanoseconds.
    pub(super) watched_ns: u64,
    /// The moment, of the monotonic clock.
    pub(super) at_ns: u64,
    /// For how long it was followed in all, before this period, too.
    pub(super) followed: Duration,
    /// For how long it had run, while the recorder did, when its main loop was known; none as long as that is not known.
    pub(super) late_ns: Option<u64>,
}

/// The totals of the processes of one name.
#[derive(Debug, Default)]
struct ProgramTotals {
    watched_ns: u64,
    steps: StepHistogram,
    /// Since when and until when at least one of them was watched, in order and apart from each other.
    present: Vec<(u64, u64)>,
    /// The processes, with whether a main loop was found.
    processes: BTreeMap<u32, bool>,
    late_ns: u64,
}

impl ProgramTotals {
    fn add(&mut self, count: &ProcessCount) {
        self.watched_ns = self.watched_ns.saturating_add(count.watched_ns);
        self.steps.merge(&count.steps);
        *self.processes.entry(count.process).or_default() |= count.late_ns.is_some();
        self.late_ns = self.late_ns.max(count.late_ns.unwrap_or(0));
        if count.watched_ns > 0 {
            let mut span = (count.at_ns.saturating_sub(count.watched_ns), count.at_ns);
            // One of them is watched while others come and go: few spans are left.
            self.present.retain(|(from_ns, to_ns)| {
                let is_apart = *to_ns < span.0 || *from_ns > span.1;
                if !is_apart {
                    span = (span.0.min(*from_ns), span.1.max(*to_ns));
                }
                is_apart
            });
            self.present.push(span);
            self.present.sort_unstable();
        }
    }

    fn steps_of(self, program: String) -> ProgramSteps {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        ProgramSteps {
            program,
            watched_ns: self.watched_ns,
            present_ns: self.present.iter().map(|(from_ns, to_ns)| to_ns - from_ns).sum(),
            processes: number(self.processes.len()),
            without_loop: number(self.processes.values().filter(|has_loop| !**has_loop).count()),
            late_ns: self.late_ns,
            steps: self.steps,
        }
    }
}

/// What the recorder could not watch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnwatchedCounts {
    pub(super) over_limit: usize,
    pub(super) refused: usize,
    /// Hangs that were seen and not stored.
    pub(super) lost: u32,
}

impl PeriodTotals {
    pub(super) fn begin(now: Moment) -> PeriodTotals {
        PeriodTotals {
            began: now,
            last: now,
            recorder_ns: 0,
            watched_ns: 0,
            programs: BTreeMap::new(),
        }
    }

    /// Returns how long ago it began, in nanoseconds.
    pub(super) fn length_ns(&self) -> u64 {
        self.last.at_ns.saturating_sub(self.began.at_ns)
    }

    /// Returns whether the recorder did anything in it.
    pub(super) fn is_empty(&self) -> bool {
        self.recorder_ns == 0
    }

    /// Counts the time since the last look; the next one was due at `due_ns`. Returns whether the period goes on: it ends at
    /// the last look if the recorder or the machine did not run since, or somebody set the clock. A shorter time in which a
    /// look was due and did not come is not counted.
    #[must_use]
    pub(super) fn goes_on(&mut self, now: Moment, due_ns: u64, is_watching: bool) -> bool {
        let passed_ns = now.at_ns.saturating_sub(self.last.at_ns);
        let difference = match now.now.duration_since(self.last.now) {
            Ok(passed) => nanoseconds(passed).abs_diff(passed_ns),
            Err(error) => nanoseconds(error.duration()).saturating_add(passed_ns),
        };
        if passed_ns.max(difference) > CLOSE_NS {
            return false;
        }
        let late_ns = now.at_ns.saturating_sub(due_ns.max(self.last.at_ns));
        if late_ns < GAP_NS {
            self.recorder_ns += passed_ns;
            self.watched_ns += if is_watching { passed_ns } else { 0 };
        }
        self.last = now;
        true
    }

    /// Adds what was counted of a process of a program. One whose main loop was not found is there without time, once it was
    /// looked for.
    pub(super) fn add(&mut self, name: &str, count: &ProcessCount) {
        let ProcessCount { watched_ns, steps, followed, .. } = count;
        if *watched_ns == 0 && *steps == StepHistogram::default() && *followed < SEARCHED {
            return;
        }
        let is_known = self.programs.contains_key(name);
        let name = if is_known || self.programs.len() < MOST_NAMES { name } else { "others" };
        self.programs.entry(name.to_owned()).or_default().add(count);
    }

    /// Returns the period from its begin to the last look; the interval is that of looks at threads at rest, or 0.
    pub(super) fn finish(self, unwatched: UnwatchedCounts, interval_ns: u64) -> WatchedPeriod {
        let from_ns = unix_ns(self.began.now);
        let programs = self.programs.into_iter().map(|(name, totals)| totals.steps_of(name));
        WatchedPeriod {
            from_ns,
            // A clock that was set back a little must not make a period end before it begins.
            to_ns: unix_ns(self.last.now).max(from_ns),
            recorder_ns: self.recorder_ns,
            watched_ns: self.watched_ns,
            interval_ns,
            programs: programs.collect(),
            over_limit: u32::try_from(unwatched.over_limit).unwrap_or(u32::MAX),
            refused: u32::try_from(unwatched.refused).unwrap_or(u32::MAX),
            lost: unwatched.lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A moment at so many seconds of the time of day and of the monotonic clock.
    fn moment(day_s: u64, monotonic_ms: u64) -> Moment {
        Moment {
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(day_s),
            at_ns: monotonic_ms * 1_000_000,
        }
    }

    /// Looks for ten seconds from 1000 s on, five times a second.
    fn ten_seconds() -> PeriodTotals {
        let mut period = PeriodTotals::begin(moment(1000, 0));
        for at_ms in (0..=10_000).step_by(200) {
            let now = moment(1000 + at_ms / 1000, at_ms);
            assert!(period.goes_on(now, now.at_ns, true));
        }
        period
    }

    #[test]
    fn a_period_ends_where_nobody_looked_or_the_clock_was_set() {
        for (what, later) in [
            ("the recorder was stopped for a minute", moment(1070, 70_000)),
            ("the machine slept for an hour", moment(4610, 10_200)),
            ("the clock was set forward", moment(9000, 10_200)),
            ("the clock was set back", moment(400, 10_200)),
        ] {
            let mut period = ten_seconds();
            assert!(!period.goes_on(later, 10_200_000_000, true), "{what}");
            let period = period.finish(UnwatchedCounts::default(), 0);
            let second = 1_000_000_000;
            assert_eq!((period.from_ns, period.to_ns), (1000 * second, 1010 * second), "{what}");
            assert_eq!((period.recorder_ns, period.watched_ns), (10 * second, 10 * second));
        }
    }

    /// A process that was watched for so long until a moment; one that never was has no loop.
    fn count(process: u32, watched_ns: u64, at_ns: u64) -> ProcessCount {
        let steps = StepHistogram::default();
        let late_ns = (watched_ns > 0).then_some(u64::from(process));
        ProcessCount { process, steps, watched_ns, at_ns, followed: Duration::ZERO, late_ns }
    }

    #[test]
    fn processes_of_one_name_are_told_apart_in_what_is_counted_of_them() {
        let mut period = ten_seconds();
        // Two of them at a time, one later, and one in which no main loop is found.
        for of in [count(1, 60, 100), count(2, 40, 110), count(1, 10, 110), count(3, 5, 300)] {
            period.add("notes", &of);
        }
        period.add("notes", &ProcessCount { followed: SEARCHED, ..count(4, 0, 300) });
        let programs = period.finish(UnwatchedCounts::default(), 0).programs;
        let [notes] = &*programs else { panic!("{programs:?}") };
        assert_eq!((notes.watched_ns, notes.present_ns), (115, 75), "{notes:?}");
        assert_eq!((notes.processes, notes.without_loop, notes.late_ns), (4, 1, 3), "{notes:?}");
    }

    #[test]
    fn a_program_without_a_main_loop_is_there_once_it_was_looked_for() {
        let mut period = ten_seconds();
        let none = count(1, 0, 0);
        let followed = SEARCHED - Duration::from_nanos(1);
        period.add("starts", &ProcessCount { followed, ..none });
        period.add("has none", &ProcessCount { followed: SEARCHED, ..none });
        period.add("rests", &count(2, 7, 7));
        let programs = period.finish(UnwatchedCounts::default(), 0).programs;
        let told = programs.iter().map(|of| (&*of.program, of.watched_ns));
        assert_eq!(told.collect::<Vec<_>>(), [("has none", 0), ("rests", 7)]);
    }

    #[test]
    fn a_short_time_without_a_look_is_not_counted_and_ends_nothing() {
        let mut period = ten_seconds();
        assert!(period.goes_on(moment(1012, 12_000), 10_050_000_000, true));
        assert_eq!(period.finish(UnwatchedCounts::default(), 0).recorder_ns, 10_000_000_000);
    }

    #[test]
    fn a_time_in_which_no_look_was_due_is_counted() {
        let mut period = ten_seconds();
        assert!(period.goes_on(moment(1011, 11_001), 11_000_000_000, true));
        let period = period.finish(UnwatchedCounts::default(), 0);
        assert_eq!((period.recorder_ns, period.watched_ns), (11_001_000_000, 11_001_000_000));
    }
}
