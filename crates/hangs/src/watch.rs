//! Hangs as they are stored, for whoever looks on.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use store::disk::Disk;
use sys::dir::OpenDirectory;
use sys::watch::{DirectoryChange, DirectoryWatch, Ready, WatchScope, pause};

use crate::model::Hang;
use crate::store::{HangStoreError, read, segments};

/// How often the store is looked at where the kernel does not announce its changes: it is not there yet, or the user has no
/// watches left.
const INTERVAL: Duration = Duration::from_secs(2);

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

    /// Gives each hang to `each` until the other end of `end` is closed or `each` fails. Nothing runs while nothing is stored.
    ///
    /// # Errors
    ///
    /// Those of `each` and of reading, as one of the input and output.
    pub fn run(
        &mut self,
        end: impl AsFd,
        each: &mut dyn FnMut(&Hang) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut watch = None;
        loop {
            // Made before the look, so that no change falls between the two.
            let announced = match watch.take() {
                Some(watch) => Some(watch),
                None => self.announced(),
            };
            for hang in self.look().map_err(io::Error::other)? {
                each(&hang)?;
            }
            let Some(changes) = announced else {
                match pause(&end, INTERVAL)? {
                    Ready::HungUp => return Ok(()),
                    Ready::Changes | Ready::Nothing => continue,
                }
            };
            if changes.wait(&end, None)? == Ready::HungUp {
                return Ok(());
            }
            let mut is_there = true;
            changes.read(|change| is_there &= change != DirectoryChange::Gone)?;
            watch = is_there.then_some(changes);
        }
    }

    /// Has the kernel announce what changes in the store.
    fn announced(&self) -> Option<DirectoryWatch> {
        let directory = OpenDirectory::open(&self.dir).ok()?;
        DirectoryWatch::of(&directory, WatchScope::Attributes).ok()
    }
}
