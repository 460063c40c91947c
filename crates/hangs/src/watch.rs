//! Hangs as they are stored, for whoever looks on.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, Timespec, poll};
use store::disk::Disk;

use crate::model::Hang;
use crate::store::{HangStoreError, read, segments};

/// How often the store is looked at.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };

/// Looks at a store that a recorder writes.
#[derive(Debug)]
pub struct HangWatcher {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// The number, the length and the time of the last change of the newest file.
    stamp: Option<(u64, u64, i128)>,
    /// The lengths at which hangs were told, and whether they went on then.
    told: BTreeMap<u64, bool>,
}

impl HangWatcher {
    /// Begins to look; what is stored already is not told.
    ///
    /// # Errors
    ///
    /// [`HangStoreError`]: the store cannot be read.
    pub fn begin(disk: Arc<dyn Disk>, dir: PathBuf) -> Result<HangWatcher, HangStoreError> {
        let mut watcher = HangWatcher { disk, dir, stamp: None, told: BTreeMap::new() };
        watcher.look()?;
        Ok(watcher)
    }

    /// Returns the hangs that were stored, or have ended, since the last look.
    ///
    /// # Errors
    ///
    /// [`HangStoreError`]: the store cannot be read.
    pub fn look(&mut self) -> Result<Vec<Hang>, HangStoreError> {
        let found = segments(&*self.disk, &self.dir)
            .map_err(|source| HangStoreError::Unusable { path: self.dir.clone(), source })?;
        let newest = found.last().and_then(|(number, path)| {
            let stat = self.disk.stat(path).ok()?;
            Some((*number, stat.len, stat.mtime_ns))
        });
        if newest == self.stamp {
            return Ok(Vec::new());
        }
        self.stamp = newest;
        let stored = read(&*self.disk, &self.dir)?;
        let mut new = Vec::new();
        for (number, hang) in stored.hangs {
            if self.told.insert(number, hang.goes_on) != Some(hang.goes_on) {
                new.push(hang);
            }
        }
        Ok(new)
    }

    /// Gives each hang to `each` until `stop` is set or `each` fails.
    ///
    /// # Errors
    ///
    /// Those of `each` and of reading, as one of the input and output.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        each: &mut dyn FnMut(&Hang) -> io::Result<()>,
    ) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            for hang in self.look().map_err(io::Error::other)? {
                each(&hang)?;
            }
            let nothing: &mut [PollFd<'_>] = &mut [];
            match poll(nothing, Some(&INTERVAL)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
