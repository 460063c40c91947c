//! Private mode: a small file with the periods in which nothing is recorded.
//!
//! A line is a period: `since MICROSECONDS until MICROSECONDS`, or `until told otherwise`. While it is on, `boot MICROSECONDS
//! ID` follows: for how long which start of the machine had been on when the period began, by which its beginning is known
//! after the clock was set back. One that is over stays for a week: what other programs wrote into their lists meanwhile is
//! known by its time, and taken out when it is found. It ends with `guessed` if its beginning is not known.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use store::disk::Disk;
use store::publish::{PublishError, publish};
use sys::clock::Clock;

use super::super::tombstone::REMEMBERED_AS_FORGOTTEN;
use super::super::{RecentTime, RecentsFiles};

/// What the file says when there is no end.
const TOLD_OTHERWISE: &str = "told otherwise";

/// What the file says of a period whose beginning is not known.
const GUESSED: &str = "guessed";

/// Until when nothing is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {
    /// Until then.
    Until(RecentTime),
    /// Until it is turned off.
    WithoutEnd,
}

impl fmt::Display for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Private::Until(RecentTime(until)) => write!(f, "until {until}"),
            Private::WithoutEnd => write!(f, "until {TOLD_OTHERWISE}"),
        }
    }
}

/// The list of other programs in which something is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignList {
    /// The shared list; it is known what was in it before.
    Shared,
    /// KDE's links. It is not known which were there before, so that one goes only if it is certain when the period began.
    Links,
}

/// What is known of the beginning of a period besides the time.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PeriodStart {
    /// By the time alone.
    TimeOfDay,
    /// For how long which start of the machine had been on.
    Boot(Duration, String),
    /// The time is that of the start of the machine, because the clock was set back.
    Guessed,
}

impl PeriodStart {
    fn read(clock: &dyn Clock) -> PeriodStart {
        PeriodStart::Boot(clock.since_boot(), clock.boot_id())
    }

    fn parse(text: &str) -> PeriodStart {
        let boot = text.strip_prefix("boot ").and_then(|boot| boot.split_once(' '));
        match boot.and_then(|(since_boot, id)| Some((since_boot.parse().ok()?, id))) {
            Some((since_boot, id)) => {
                PeriodStart::Boot(Duration::from_micros(since_boot), id.to_owned())
            }
            None if text == GUESSED => PeriodStart::Guessed,
            None => PeriodStart::TimeOfDay,
        }
    }
}

/// A time in which nothing was or is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Period {
    since: RecentTime,
    until: Private,
    start: PeriodStart,
}

impl Period {
    /// Reads a line of a file that was written at `written`. One that is not understood means that private mode is on:
    /// rather too little is remembered than too much.
    fn parse(line: &str, written: RecentTime) -> Period {
        let line = line.trim();
        let (since, rest) = match line.strip_prefix("since ").and_then(|rest| rest.split_once(' '))
        {
            Some((since, rest)) => (since.parse().ok().map(RecentTime), rest),
            None => (None, line),
        };
        let rest = rest.strip_prefix("until ").unwrap_or_default();
        let (until, start) = match rest.strip_prefix(TOLD_OTHERWISE) {
            Some(start) => (None, start),
            None => {
                let (until, start) = rest.split_once(' ').unwrap_or((rest, ""));
                (until.parse().ok(), start)
            }
        };
        Period {
            since: since.unwrap_or(written),
            until: until.map_or(Private::WithoutEnd, |at| Private::Until(RecentTime(at))),
            start: PeriodStart::parse(start.trim_start()),
        }
    }

    /// Returns whether something in `list` that was used at `time` was used in it.
    fn has(&self, time: RecentTime, now: RecentTime, clock: &dyn Clock, list: ForeignList) -> bool {
        let (RecentTime(since), start) = self.began(now, clock);
        if start == PeriodStart::Guessed && list == ForeignList::Links {
            return false;
        }
        // Other programs write times in milliseconds, without what is behind.
        time.0 >= since - since.rem_euclid(1_000) && self.is_on(time)
    }

    /// Returns from when on things are taken to be used in it, and whether that is certain.
    ///
    /// If the clock was set back since it began, that is the time by the clock as it is now. In a later start of the machine
    /// nobody knows it: while the period is on and seems to be still to come, all since this start counts.
    fn began(&self, now: RecentTime, clock: &dyn Clock) -> (RecentTime, PeriodStart) {
        if !self.is_on(now) {
            return (self.since, self.start.clone());
        }
        match &self.start {
            PeriodStart::Boot(then, boot) if !boot.is_empty() && *boot == clock.boot_id() => {
                let began = now.before(clock.since_boot().saturating_sub(*then));
                (self.since.min(began), PeriodStart::TimeOfDay)
            }
            _ if now < self.since => (now.before(clock.since_boot()), PeriodStart::Guessed),
            start => (self.since, start.clone()),
        }
    }

    fn is_on(&self, time: RecentTime) -> bool {
        match self.until {
            Private::Until(until) => time < until,
            Private::WithoutEnd => true,
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "since {} {}", self.since.0, self.until)?;
        match &self.start {
            PeriodStart::TimeOfDay => Ok(()),
            PeriodStart::Boot(since_boot, boot) => {
                write!(f, " boot {} {boot}", since_boot.as_micros())
            }
            PeriodStart::Guessed => write!(f, " {GUESSED}"),
        }
    }
}

impl Private {
    /// Reads whether private mode is on at `now`. A file that cannot be understood means that it is: rather too little
    /// is remembered than too much.
    #[must_use]
    pub fn read(disk: &dyn Disk, places: &RecentsFiles, now: RecentTime) -> Option<Private> {
        let periods = periods(disk, places, now);
        periods.iter().find(|period| period.is_on(now)).map(|period| period.until)
    }

    /// Returns whether something in `list` that was used at `used` was used in private mode, now or in the last week.
    #[must_use]
    pub(crate) fn covering(
        disk: &dyn Disk,
        places: &RecentsFiles,
        used: RecentTime,
        clock: &dyn Clock,
        list: ForeignList,
    ) -> Option<Private> {
        let now = RecentTime::of(clock.now());
        let mut periods = periods(disk, places, now).into_iter();
        periods.find(|period| period.has(used, now, clock, list)).map(|period| period.until)
    }

    /// Turns private mode on, durably: from now on nothing is remembered, also by programs that run already.
    ///
    /// # Errors
    ///
    /// As [`publish`]; after [`PublishError::NotReplaced`] it is as it was.
    pub fn turn_on(
        self,
        disk: &dyn Disk,
        places: &RecentsFiles,
        clock: &dyn Clock,
    ) -> Result<(), PublishError> {
        let now = RecentTime::of(clock.now());
        let (on, over): (Vec<_>, Vec<_>) =
            periods(disk, places, now).into_iter().partition(|period| period.is_on(now));
        // One that goes on has begun when it did.
        let first = on.into_iter().min_by_key(|period| period.began(now, clock).0);
        let new = || Period { since: now, until: self, start: PeriodStart::read(clock) };
        let mut periods = ended(over, now, clock);
        periods.push(Period { until: self, ..first.unwrap_or_else(new) });
        write(disk, places, &periods)
    }

    /// Turns private mode off, and returns whether it was on.
    ///
    /// # Errors
    ///
    /// As [`publish`]; it stays on.
    pub fn turn_off(
        disk: &dyn Disk,
        places: &RecentsFiles,
        clock: &dyn Clock,
    ) -> Result<bool, PublishError> {
        let now = RecentTime::of(clock.now());
        let before = periods(disk, places, now);
        if !before.iter().any(|period| period.is_on(now)) {
            return Ok(false);
        }
        write(disk, places, &ended(before, now, clock)).map(|()| true)
    }
}

/// Returns the periods, those that are on ended now, without those that were over a week ago.
fn ended(periods: Vec<Period>, now: RecentTime, clock: &dyn Clock) -> Vec<Period> {
    let ended = periods.into_iter().map(|period| match period.is_on(now) {
        true => {
            let (since, start) = period.began(now, clock);
            // A later start of the machine does not ask for the clock any more.
            let is_guessed = start == PeriodStart::Guessed;
            let start = if is_guessed { start } else { PeriodStart::TimeOfDay };
            Period { since, until: Private::Until(now), start }
        }
        false => period,
    });
    let oldest = now.before(REMEMBERED_AS_FORGOTTEN);
    ended.filter(|period| period.is_on(oldest)).collect()
}

fn periods(disk: &dyn Disk, places: &RecentsFiles, now: RecentTime) -> Vec<Period> {
    let path = path(places);
    // Where we may not even look there is no journal that we could write either.
    let Ok(stat) = disk.stat(&path) else { return Vec::new() };
    let written = i64::try_from(stat.mtime_ns / 1000).map_or(now, RecentTime);
    let text = disk.read(&path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    // Even an empty one was written by somebody who wanted it to be on.
    let lines = if lines.is_empty() { vec![""] } else { lines };
    lines.into_iter().map(|line| Period::parse(line, written)).collect()
}

fn write(disk: &dyn Disk, places: &RecentsFiles, periods: &[Period]) -> Result<(), PublishError> {
    let path = path(places);
    if periods.is_empty() {
        match disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {}
            _ => return Ok(()),
        }
    }
    let text: String = periods.iter().map(|period| format!("{period}\n")).collect();
    publish(disk, &path, text.as_bytes()).map(|_| ())
}

fn path(places: &RecentsFiles) -> PathBuf {
    let dir: &Path = &places.state;
    dir.join("private")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::SystemTime;

    use super::*;

    const SECOND: i64 = 1_000_000;

    /// A machine that was started 2000 seconds before the first time that it is set to.
    #[derive(Debug)]
    struct Machine(Mutex<(i64, u64, u32)>);

    impl Machine {
        fn at(seconds: i64) -> Machine {
            Machine(Mutex::new((seconds, 2_000, 1)))
        }

        fn pass(&self, seconds: u32) -> &Machine {
            let mut times = self.0.lock().unwrap();
            times.0 += i64::from(seconds);
            times.1 += u64::from(seconds);
            drop(times);
            self
        }

        fn set(&self, seconds: i64) -> &Machine {
            self.0.lock().unwrap().0 = seconds;
            self
        }

        fn restart(&self) -> &Machine {
            let mut times = self.0.lock().unwrap();
            (times.1, times.2) = (0, times.2 + 1);
            drop(times);
            self
        }
    }

    impl Clock for Machine {
        fn now(&self) -> SystemTime {
            let seconds = u64::try_from(self.0.lock().unwrap().0).unwrap();
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
        }
        fn monotonic(&self) -> Duration {
            self.since_boot()
        }
        fn since_boot(&self) -> Duration {
            Duration::from_secs(self.0.lock().unwrap().1)
        }
        fn boot_id(&self) -> String {
            self.0.lock().unwrap().2.to_string()
        }
    }

    struct PrivateMode {
        _dir: tempfile::TempDir,
        disk: Arc<dyn Disk>,
        places: RecentsFiles,
    }

    impl PrivateMode {
        fn new() -> PrivateMode {
            let dir = tempfile::tempdir().unwrap();
            let places = RecentsFiles::below(dir.path());
            PrivateMode { _dir: dir, disk: store::disk::real(), places }
        }

        fn turn_on(&self, mode: Private, clock: &Machine) {
            mode.turn_on(&*self.disk, &self.places, clock).unwrap();
        }

        fn turn_off(&self, clock: &Machine) -> bool {
            Private::turn_off(&*self.disk, &self.places, clock).unwrap()
        }

        fn is_on(&self, now: i64) -> bool {
            Private::read(&*self.disk, &self.places, RecentTime(now * SECOND)).is_some()
        }

        /// Whether it covers what was used then, in the shared list and as a link.
        fn covers(&self, used: i64, clock: &Machine) -> (bool, bool) {
            let in_list = |list| {
                let used = RecentTime(used * SECOND);
                Private::covering(&*self.disk, &self.places, used, clock, list).is_some()
            };
            (in_list(ForeignList::Shared), in_list(ForeignList::Links))
        }
    }

    const BOTH: (bool, bool) = (true, true);
    const NONE: (bool, bool) = (false, false);
    const LIST_ONLY: (bool, bool) = (true, false);

    #[test]
    fn a_clock_that_is_set_back_does_not_move_the_beginning() {
        for step in [30, 3_600, 1_000_000] {
            let (mode, clock) = (PrivateMode::new(), Machine::at(2_000_000));
            mode.turn_on(Private::WithoutEnd, &clock);
            clock.pass(10).set(2_000_010 - step);
            let began = 2_000_000 - step;
            for pass in [0, 5, 5_000] {
                clock.pass(pass);
                assert_eq!(mode.covers(began - 1, &clock), NONE, "before, {step} {pass}");
                assert_eq!(mode.covers(began, &clock), BOTH, "{step} {pass}");
                assert_eq!(mode.covers(2_000_001, &clock), BOTH, "by the old clock, {step} {pass}");
            }
            // Turned on again it goes on, and it ends by the clock of now.
            mode.turn_on(Private::WithoutEnd, &clock);
            assert_eq!((mode.covers(began - 1, &clock), mode.covers(began, &clock)), (NONE, BOTH));
            assert!(mode.turn_off(&clock));
            let ended = began + 10 + 5_005;
            clock.restart().pass(100);
            assert_eq!((mode.covers(began - 1, &clock), mode.covers(began, &clock)), (NONE, BOTH));
            assert_eq!((mode.covers(ended - 1, &clock), mode.covers(ended, &clock)), (BOTH, NONE));
        }
    }

    #[test]
    fn no_link_goes_where_it_is_not_known_when_private_mode_began() {
        let written_before = "since 2000000000000 until told otherwise\n";
        for is_of_an_earlier_version in [false, true] {
            let (mode, clock) = (PrivateMode::new(), Machine::at(2_000_000));
            if is_of_an_earlier_version {
                let path = path(&mode.places);
                publish(&*mode.disk, &path, written_before.as_bytes()).unwrap();
            } else {
                mode.turn_on(Private::WithoutEnd, &clock);
                clock.restart();
            }
            assert_eq!(mode.covers(2_000_000, &clock), BOTH);
            clock.set(1_000_000).restart().pass(50);
            assert_eq!(mode.covers(999_999, &clock), NONE, "before the machine was started");
            assert_eq!(mode.covers(1_000_000, &clock), LIST_ONLY);
            // That it goes on, or ends, makes it no more certain.
            mode.turn_on(Private::WithoutEnd, &clock);
            assert_eq!(mode.covers(1_000_000, &clock), LIST_ONLY);
            assert!(mode.turn_off(&clock));
            assert_eq!(mode.covers(1_000_000, &clock), LIST_ONLY);
            assert_eq!(mode.covers(1_000_051, &clock), NONE);
        }
    }

    #[test]
    fn what_was_used_in_private_mode_is_known_afterwards() {
        let (mode, clock) = (PrivateMode::new(), Machine::at(100));
        let covers = |used, now: i64| mode.covers(used, clock.set(now)) == BOTH;
        mode.turn_on(Private::Until(RecentTime(200 * SECOND)), &clock);
        assert!(mode.is_on(150) && !mode.is_on(200));
        assert!(covers(100, 150) && covers(199, 300));
        assert!(!covers(99, 150) && !covers(200, 300));
        // Turned on again it goes on, turned off it ends there.
        mode.turn_on(Private::WithoutEnd, clock.set(150));
        assert!(covers(120, 1_000) && mode.is_on(1_000));
        assert!(mode.turn_off(clock.set(1_000)));
        assert!(!mode.is_on(1_000) && !mode.turn_off(clock.set(1_001)));
        assert!(covers(999, 2_000) && !covers(1_000, 2_000));
        // A second one leaves the first known; after a week nothing is known any more.
        let week = i64::try_from(REMEMBERED_AS_FORGOTTEN.as_secs()).unwrap();
        mode.turn_on(Private::WithoutEnd, clock.set(3_000));
        assert!(covers(999, 3_000) && !covers(2_999, 3_000) && covers(3_000, 3_000));
        mode.turn_off(clock.set(4_000 + week));
        assert!(!covers(999, 4_000 + week) && covers(3_500, 4_000 + week));
        // Milliseconds of a time that was written without what is behind them.
        let since = RecentTime(9_000_000_999);
        let until = Private::WithoutEnd;
        let period = Period { since, until, start: PeriodStart::TimeOfDay };
        let written = RecentTime(9_000_000_000);
        assert!(period.has(written, since, &clock, ForeignList::Shared));
    }

    #[test]
    fn a_period_is_read_as_it_was_written() {
        for until in [Private::WithoutEnd, Private::Until(RecentTime(7))] {
            let boot = PeriodStart::Boot(Duration::from_micros(5), "9c-3f".to_owned());
            for start in [PeriodStart::TimeOfDay, boot, PeriodStart::Guessed] {
                let period = Period { since: RecentTime(3), until, start };
                assert_eq!(Period::parse(&period.to_string(), RecentTime(1)), period);
            }
        }
        let unknown = Period::parse("until whenever", RecentTime(1));
        assert_eq!((unknown.since, unknown.until), (RecentTime(1), Private::WithoutEnd));
    }
}
