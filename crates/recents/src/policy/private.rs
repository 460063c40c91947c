//! Private mode: a small file with the periods in which nothing is recorded.
//!
//! A line is a period: `since MICROSECONDS until MICROSECONDS`, or `until told otherwise`. One that is over stays for a
//! week: what other programs wrote into their lists meanwhile is known by its time, and taken out when it is found.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use store::disk::Disk;
use store::publish::{PublishError, publish};
use sys::clock::since_boot;

use super::super::tombstone::REMEMBERED_AS_FORGOTTEN;
use super::super::{RecentTime, RecentsFiles};

/// What the file says when there is no end.
const WITHOUT_END: &str = "until told otherwise";

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
            Private::WithoutEnd => f.write_str(WITHOUT_END),
        }
    }
}

/// A time in which nothing was or is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Period {
    since: RecentTime,
    until: Private,
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
        let until = rest.strip_prefix("until ").and_then(|until| until.parse().ok());
        Period {
            since: since.unwrap_or(written),
            until: until.map_or(Private::WithoutEnd, |at| Private::Until(RecentTime(at))),
        }
    }

    /// Returns whether something that was used at `time` was used in it.
    fn has(&self, time: RecentTime, now: RecentTime) -> bool {
        // Other programs write times in milliseconds, without what is behind.
        let RecentTime(since) = self.start(now);
        time.0 >= since - since.rem_euclid(1_000) && self.is_on(time)
    }

    /// Returns from when on things are taken to be used in it. While it is on and seems to be still to come, the clock was set
    /// back, nobody knows when: all since the start of the machine counts.
    fn start(&self, now: RecentTime) -> RecentTime {
        match now < self.since && self.is_on(now) {
            true => now.before(since_boot()),
            false => self.since,
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
        write!(f, "since {} {}", self.since.0, self.until)
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

    /// Returns whether something that was used at `used` was used in private mode, now or in the last week.
    #[must_use]
    pub fn covering(
        disk: &dyn Disk,
        places: &RecentsFiles,
        used: RecentTime,
        now: RecentTime,
    ) -> Option<Private> {
        let mut periods = periods(disk, places, now).into_iter();
        periods.find(|period| period.has(used, now)).map(|period| period.until)
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
        now: RecentTime,
    ) -> Result<(), PublishError> {
        let (on, over): (Vec<_>, Vec<_>) =
            periods(disk, places, now).into_iter().partition(|period| period.is_on(now));
        // One that goes on has begun when it did.
        let since = on.iter().map(|period| period.start(now)).min().unwrap_or(now);
        let mut periods = ended(over, now);
        periods.push(Period { since, until: self });
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
        now: RecentTime,
    ) -> Result<bool, PublishError> {
        let before = periods(disk, places, now);
        if !before.iter().any(|period| period.is_on(now)) {
            return Ok(false);
        }
        write(disk, places, &ended(before, now)).map(|()| true)
    }
}

/// Returns the periods, those that are on ended now, without those that were over a week ago.
fn ended(periods: Vec<Period>, now: RecentTime) -> Vec<Period> {
    let ended = periods.into_iter().map(|period| match period.is_on(now) {
        true => Period { since: period.start(now), until: Private::Until(now) },
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
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn what_is_used_after_the_clock_was_set_back_is_used_in_private_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, places) = (store::disk::real(), RecentsFiles::below(dir.path()));
        let at = |seconds: i64| RecentTime((2_000_000_000 + seconds) * SECOND);
        let covers = |used, now| Private::covering(&*disk, &places, at(used), at(now)).is_some();
        Private::WithoutEnd.turn_on(&*disk, &places, at(3_600)).unwrap();
        assert!(covers(3_600, 3_601) && !covers(0, 3_601));
        assert!(covers(0, 0) && covers(3_601, 1), "used before and after the clock was set");
        assert!(!covers(-1_900_000_000, 1), "used before the machine was started");
        // It goes on, and ends, from then on.
        Private::WithoutEnd.turn_on(&*disk, &places, at(1)).unwrap();
        assert!(covers(1, 2));
        assert!(Private::turn_off(&*disk, &places, at(3)).unwrap());
        assert!(covers(1, 4) && covers(2, 5_000) && !covers(3, 4));
    }

    #[test]
    fn what_was_used_in_private_mode_is_known_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, places) = (store::disk::real(), RecentsFiles::below(dir.path()));
        let at = |seconds: i64| RecentTime(seconds * SECOND);
        let on = |now| Private::read(&*disk, &places, at(now)).is_some();
        let covers = |used, now| Private::covering(&*disk, &places, at(used), at(now)).is_some();
        Private::Until(at(200)).turn_on(&*disk, &places, at(100)).unwrap();
        assert!(on(150) && !on(200));
        assert!(covers(100, 150) && covers(199, 300));
        assert!(!covers(99, 150) && !covers(200, 300));
        // Turned on again it goes on, turned off it ends there.
        Private::WithoutEnd.turn_on(&*disk, &places, at(150)).unwrap();
        assert!(covers(120, 1_000) && on(1_000));
        assert!(Private::turn_off(&*disk, &places, at(1_000)).unwrap());
        assert!(!on(1_000) && !Private::turn_off(&*disk, &places, at(1_001)).unwrap());
        assert!(covers(999, 2_000) && !covers(1_000, 2_000));
        // A second one leaves the first known; after a week nothing is known any more.
        let week = i64::try_from(REMEMBERED_AS_FORGOTTEN.as_secs()).unwrap();
        Private::WithoutEnd.turn_on(&*disk, &places, at(3_000)).unwrap();
        assert!(covers(999, 3_000) && !covers(2_999, 3_000) && covers(3_000, 3_000));
        Private::turn_off(&*disk, &places, at(4_000 + week)).unwrap();
        assert!(!covers(999, 4_000 + week) && covers(3_500, 4_000 + week));
        // Milliseconds of a time that was written without what is behind them.
        Private::WithoutEnd.turn_on(&*disk, &places, RecentTime(9_000_000_999)).unwrap();
        let written = RecentTime(9_000_000_000);
        assert!(Private::covering(&*disk, &places, written, written).is_some());
    }
}
