//! Hangs as they are stored, for whoever looks on.
//!
//! Only what is appended is read: a full store takes several times its 64 MiB once it is decoded, and changes each minute.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use store::disk::Disk;
use store::journal::{JournalFollower, JournalNews};
use sys::dir::OpenDirectory;
use sys::watch::{DirectoryChange, DirectoryWatch, Ready, WatchScope, pause};

use crate::codec;
use crate::model::{Hang, HangRecord};
use crate::store::{HangStoreError, follow_segment, segments};

/// How often the store is looked at where the kernel does not announce its changes: it is not there yet, or the user has no
/// watches left.
const INTERVAL: Duration = Duration::from_secs(2);
/// The most hangs that are known to go on, or to have ended, the newest: a recorder that was killed leaves some that never end.
const MOST_KNOWN: usize = 4096;

/// What is new about a hang that was stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HangNews {
    /// It is told for the first time.
    New,
    /// It was told, and still goes on.
    GoesOn,
    /// It was told while it went on, and has ended.
    Ended,
}

/// Looks at a store that a recorder writes.
#[derive(Debug)]
pub struct HangWatcher {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// The newest file, with its number.
    current: Option<(u64, JournalFollower)>,
    /// The number, the identity, the length and the time of the last change of the newest file.
    stamp: Option<(u64, (u64, u64), u64, i128)>,
    known: KnownHangs,
}

/// What was told of hangs.
#[derive(Debug, Default)]
struct KnownHangs {
    /// The highest number.
    highest: u64,
    /// The numbers of those that went on when they were stored last.
    going_on: BTreeSet<u64>,
    /// The numbers of the latest that had ended: a write that failed may have stored one, and the next one does so again.
    ended: BTreeSet<u64>,
}

impl KnownHangs {
    /// Notes a hang and returns what is new about it. `is_again`: records come that may have been read before, since somebody erased others.
    fn note(&mut self, hang: &Hang, is_again: bool) -> Option<HangNews> {
        let number = hang.number;
        let went_on = self.going_on.contains(&number);
        let was_told = self.ended.contains(&number) || is_again && number <= self.highest;
        self.highest = self.highest.max(number);
        if was_told && !went_on {
            return None;
        }
        let (into, from) = match hang.goes_on {
            true => (&mut self.going_on, &mut self.ended),
            false => (&mut self.ended, &mut self.going_on),
        };
        from.remove(&number);
        into.insert(number);
        if into.len() > MOST_KNOWN {
            into.pop_first();
        }
        Some(match (went_on, hang.goes_on) {
            (false, _) => HangNews::New,
            (true, true) => HangNews::GoesOn,
            (true, false) => HangNews::Ended,
        })
    }

    /// Forgets numbers that are given again, as those of a store that was removed are.
    fn begin_again(&mut self, next: u64) {
        self.highest = self.highest.min(next.saturating_sub(1));
        self.going_on.split_off(&next);
        self.ended.split_off(&next);
    }
}

impl HangWatcher {
    /// Begins to look; what is stored already is not told.
    ///
    /// # Errors
    ///
    /// [`HangStoreError`]: the store cannot be read.
    pub fn begin(disk: Arc<dyn Disk>, dir: PathBuf) -> Result<HangWatcher, HangStoreError> {
        let known = KnownHangs::default();
        let mut watcher = HangWatcher { disk, dir, current: None, stamp: None, known };
        let newest = watcher.segments()?.pop();
        if let Some((number, path)) = newest {
            watcher.stamp = watcher.stamp_of(number, &path);
            watcher.follow(number, &path, &mut |_, _| {});
        }
        Ok(watcher)
    }

    fn segments(&self) -> Result<Vec<(u64, PathBuf)>, HangStoreError> {
        segments(&*self.disk, &self.dir)
            .map_err(|source| HangStoreError::Unusable { path: self.dir.clone(), source })
    }

    fn stamp_of(&self, number: u64, path: &Path) -> Option<(u64, (u64, u64), u64, i128)> {
        let stat = self.disk.stat(path).ok()?;
        Some((number, stat.identity, stat.len, stat.mtime_ns))
    }

    /// Gives `each` the hangs that were stored since the last look, those that go on each time that they were.
    ///
    /// # Errors
    ///
    /// [`HangStoreError`]: the store cannot be read.
    pub fn look(&mut self, each: &mut dyn FnMut(Hang, HangNews)) -> Result<(), HangStoreError> {
        let mut found = self.segments()?;
        let Some((newest, path)) = found.last() else {
            // There is none any more: another one begins with its own numbers.
            (self.current, self.stamp, self.known) = (None, None, KnownHangs::default());
            return Ok(());
        };
        let stamp = self.stamp_of(*newest, path);
        if stamp.is_some() && stamp == self.stamp {
            return Ok(());
        }
        self.stamp = stamp;
        let newest = *newest;
        let from = self.current.as_ref().map_or(0, |(number, _)| *number).min(newest);
        found.retain(|(number, _)| *number >= from);
        for (number, path) in found {
            self.follow(number, &path, each);
        }
        Ok(())
    }

    /// Reads on in a file of records. One that cannot be read is left out, as [`crate::store::read`] leaves it out, too.
    fn follow(&mut self, number: u64, path: &Path, each: &mut dyn FnMut(Hang, HangNews)) {
        let (mut follower, was_read) = match self.current.take() {
            Some((latest, follower)) if latest == number => {
                let was_read = follower.has_begun();
                (follower, was_read)
            }
            // A file of a lower number than the one before it is no next one.
            other => {
                (JournalFollower::new(codec::MAX_RECORD), other.is_some_and(|(of, _)| number < of))
            }
        };
        let (known, mut is_again) = (&mut self.known, false);
        // What was read of it until it failed counts.
        let _ = follow_segment(&*self.disk, path, &mut follower, &mut |news| match news {
            // It was written anew.
            JournalNews::Begun { base } if was_read => {
                is_again = true;
                known.begin_again(base.max(1));
            }
            JournalNews::Begun { .. } => {}
            JournalNews::Record(bytes) => {
                let Ok(HangRecord::Hang(hang)) = codec::decode(bytes) else { return };
                if let Some(news) = known.note(&hang, is_again) {
                    each(*hang, news);
                }
            }
        });
        self.current = Some((number, follower));
    }

    /// Gives each hang to `each` until the other end of `end` is closed or `each` fails. Nothing runs while nothing is stored.
    ///
    /// # Errors
    ///
    /// Those of `each` and of reading, as one of the input and output.
    pub fn run(
        &mut self,
        end: impl AsFd,
        each: &mut dyn FnMut(&Hang, HangNews) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut watch = None;
        loop {
            // Made before the look, so that no change falls between the two.
            let announced = match watch.take() {
                Some(watch) => Some(watch),
                None => self.announced(),
            };
            let mut told = Ok(());
            let looked = self.look(&mut |hang, news| {
                if told.is_ok() {
                    told = each(&hang, news);
                }
            });
            looked.map_err(io::Error::other)?;
            told?;
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
