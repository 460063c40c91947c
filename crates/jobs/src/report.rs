//! The report of a job: its time, its bytes, its holds and their causes, and the mechanisms that are effective on its disk.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::pressure::PressureCause;
use super::request_trace::BytesWritten;

/// What the keeper saw, as it tells the supervisor at the end and `unjank jobs` meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Watched {
    /// Whether the job is held now.
    pub held: bool,
    /// Holds so far, by cause: how many and how long together.
    pub holds: Vec<HoldStatistics>,
    /// How long others have waited for disks while the job was there, in milliseconds.
    pub others_waited_ms: f64,
    /// Files whose write-back was started for a program with the preload.
    pub handed_over: u64,
    /// Files whose write-back was started from outside.
    pub found: u64,
    /// Bytes of these files: an estimate, because parts of them may have been clean.
    pub started_bytes: u64,
    /// What was written to the job's disks meanwhile by anybody, by class; `None` where the kernel's trace cannot be read.
    pub issued: Option<BytesWritten>,
    /// Bytes that the job's living processes have read from disks.
    pub read_bytes: u64,
    /// Bytes that they have written or are about to.
    pub written_bytes: u64,
    /// Bytes that they have read in the last second or so, a second.
    pub read_rate: f64,
    /// Bytes that they have written, a second.
    pub write_rate: f64,
}

/// Holds for one cause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct HoldStatistics {
    /// What others waited for.
    pub cause: PressureCause,
    /// How often the job was held for it.
    pub count: u32,
    /// How long together, in milliseconds.
    pub total_ms: f64,
}

impl Watched {
    /// Adds a hold that has begun.
    pub fn hold(&mut self, cause: PressureCause) {
        self.held = true;
        match self.holds.iter_mut().find(|holds| holds.cause == cause) {
            Some(holds) => holds.count += 1,
            None => self.holds.push(HoldStatistics { cause, count: 1, total_ms: 0.0 }),
        }
    }

    /// Adds the length of a hold for `cause` that has ended.
    pub fn release(&mut self, cause: PressureCause, length: Duration) {
        self.held = false;
        if let Some(holds) = self.holds.iter_mut().find(|holds| holds.cause == cause) {
            holds.total_ms += length.as_secs_f64() * 1e3;
        }
    }

    /// Returns how long the job was held altogether, in milliseconds.
    #[must_use]
    pub fn held_ms(&self) -> f64 {
        // From 0.0: the sum of nothing is -0.0.
        self.holds.iter().fold(0.0, |sum, holds| sum + holds.total_ms)
    }
}

/// The disk that a job works on and what can act there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobDisk {
    /// Its name in sysfs.
    pub name: String,
    /// Its device number, major and minor.
    pub number: Option<(u32, u32)>,
    /// The scheduler in effect.
    pub scheduler: Option<String>,
    /// The target of write-back throttling in microseconds; 0 is off.
    pub wbt_lat_usec: Option<u64>,
}

impl JobDisk {
    /// Returns whether the scheduler tells classes apart.
    #[must_use]
    pub fn knows_classes(&self) -> bool {
        matches!(self.scheduler.as_deref(), Some("bfq" | "mq-deadline"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_counted_by_cause() {
        let mut watched = Watched::default();
        watched.hold(PressureCause::Io);
        assert!(watched.held);
        watched.release(PressureCause::Io, Duration::from_millis(5));
        watched.hold(PressureCause::Cpu);
        watched.release(PressureCause::Cpu, Duration::from_millis(1));
        watched.hold(PressureCause::Io);
        watched.release(PressureCause::Io, Duration::from_millis(7));
        let io = HoldStatistics { cause: PressureCause::Io, count: 2, total_ms: 12.0 };
        assert_eq!(watched.holds[0], io);
        assert!((watched.held_ms() - 13.0).abs() < 1e-9);
        assert!(!watched.held);
    }
}
