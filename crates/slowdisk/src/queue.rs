//! How the queue of a disk is set: its scheduler and the throttling of write-back.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How the queue of a disk is set.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Queue {
    /// The scheduler.
    pub scheduler: String,
    /// The target of write-back throttling in microseconds; 0 is off, `None` leaves what the kernel chooses for the scheduler.
    pub wbt_lat_usec: Option<u64>,
}

impl Queue {
    /// Returns what is in effect on the disk called `disk` in sysfs.
    #[must_use]
    pub fn of(disk: &str) -> Queue {
        let read = |name: &str| fs::read_to_string(file(disk, name)).unwrap_or_default();
        let scheduler = read("scheduler");
        let active = scheduler
            .split_ascii_whitespace()
            .find_map(|word| word.strip_prefix('[').and_then(|word| word.strip_suffix(']')));
        Queue {
            scheduler: active.unwrap_or_default().to_owned(),
            wbt_lat_usec: read("wbt_lat_usec").trim().parse().ok(),
        }
    }

    /// Sets the queue of the disk called `disk` like this, and returns what is in effect then.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the kernel has not that scheduler; `EACCES`: it needs root.
    pub fn set(&self, disk: &str) -> io::Result<Queue> {
        let throttles = file(disk, "wbt_lat_usec").exists();
        if throttles && self.wbt_lat_usec.is_none() {
            // The kernel's own choice: bfq then turns it off.
            put(disk, "scheduler", "none")?;
            put(disk, "wbt_lat_usec", "-1")?;
        }
        put(disk, "scheduler", &self.scheduler)?;
        if let Some(usec) = self.wbt_lat_usec.filter(|_| throttles) {
            // A value that it has already is not taken up again, though bfq has turned it off.
            put(disk, "wbt_lat_usec", &usec.saturating_add(1).to_string())?;
            put(disk, "wbt_lat_usec", &usec.to_string())?;
        }
        Ok(Queue::of(disk))
    }
}

/// Returns a file of the queue of the disk called `disk`.
pub(crate) fn file(disk: &str, name: &str) -> PathBuf {
    Path::new("/sys/block").join(disk).join("queue").join(name)
}

/// Writes a setting of the queue of the disk called `disk`.
pub(super) fn put(disk: &str, name: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(file(disk, name))?.write_all(text.as_bytes())
}
