//! What was watched of settings, and what is other than it was.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use settings::client::SettingsReader;
use sys::watch::{DirectoriesWatch, WatchCompleteness};

use crate::error::CallError;

/// Directories that are watched, behind one descriptor that stays the same.
#[derive(Debug)]
pub(crate) struct WatchedFiles {
    ready: OwnedFd,
    watch: Option<DirectoriesWatch>,
    /// The files whose directories are watched.
    files: BTreeSet<PathBuf>,
    /// The directories that are, some of them above those that are not there yet.
    directories: BTreeSet<PathBuf>,
}

impl WatchedFiles {
    pub(crate) fn new() -> Result<WatchedFiles, CallError> {
        let ready = epoll::create(CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        let (files, directories) = (BTreeSet::new(), BTreeSet::new());
        Ok(WatchedFiles { ready, watch: None, files, directories })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.ready.as_raw_fd()
    }

    /// Watches these files, too.
    pub(crate) fn add(
        &mut self,
        files: impl IntoIterator<Item = PathBuf>,
    ) -> Result<(), CallError> {
        self.files.extend(files);
        self.renew()
    }

    /// Takes what was told; returns whether there was anything.
    pub(crate) fn take(&mut self) -> Result<bool, CallError> {
        let Some(watch) = &self.watch else { return Ok(false) };
        if watch.read()? == WatchCompleteness::Nothing {
            return Ok(false);
        }
        // A directory that was not there may be now.
        self.renew()?;
        Ok(true)
    }

    /// Watches the directories of the files, or what is there of the way to them.
    fn renew(&mut self) -> Result<(), CallError> {
        self.renew_until_settled(&mut || ())
    }

    /// As [`WatchedFiles::renew`]; `before_watching` is called between the look and the watch.
    fn renew_until_settled(&mut self, before_watching: &mut dyn FnMut()) -> Result<(), CallError> {
        // A directory that is made between the look and the watch is told by nobody: one more look, until nothing is new.
        loop {
            let directories = self.nearest();
            if directories == self.directories && self.watch.is_some() {
                return Ok(());
            }
            before_watching();
            let mut watch = DirectoriesWatch::new()?;
            for directory in &directories {
                match watch.add_appended(directory) {
                    // It has gone since, and the next look finds what is above it.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    added => added?,
                }
            }
            let data = EventData::new_u64(0);
            epoll::add(&self.ready, &watch, data, EventFlags::IN).map_err(std::io::Error::from)?;
            self.watch = Some(watch);
            self.directories = directories;
        }
    }

    /// Returns the directories of the files, or the nearest above that are there.
    fn nearest(&self) -> BTreeSet<PathBuf> {
        let nearest =
            |file: &PathBuf| file.ancestors().skip(1).find(|dir| dir.is_dir()).map(Path::to_owned);
        self.files.iter().filter_map(nearest).collect()
    }
}

/// The values of the keys that are watched, as they were told last.
#[derive(Debug, Default)]
pub(crate) struct WatchedKeys {
    paths: BTreeSet<String>,
    known: BTreeMap<String, Vec<u8>>,
}

impl WatchedKeys {
    /// Watches a key, or all keys below a directory.
    pub(crate) fn add(&mut self, reader: &mut SettingsReader, path: &str) {
        if self.paths.insert(path.to_owned()) {
            collect(reader, path, &mut self.known);
        }
    }

    /// Returns the keys whose values are others than at the last call, sorted.
    pub(crate) fn changed(&mut self, reader: &mut SettingsReader) -> BTreeSet<String> {
        let mut now = BTreeMap::new();
        for path in &self.paths {
            collect(reader, path, &mut now);
        }
        let is_other = |(key, value): &(&String, &Vec<u8>)| now.get(*key) != Some(*value);
        let mut changed: BTreeSet<String> =
            self.known.iter().filter(is_other).map(|(key, _)| key.clone()).collect();
        changed.extend(now.keys().filter(|key| !self.known.contains_key(*key)).cloned());
        self.known = now;
        changed
    }
}

/// Adds the values of a key, or of all keys below a directory.
fn collect(reader: &mut SettingsReader, path: &str, into: &mut BTreeMap<String, Vec<u8>>) {
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        if path.ends_with('/') {
            left.extend(reader.list(&path).into_iter().map(|name| format!("{path}{name}")));
        } else if let Some(value) = reader.get(&path) {
            into.insert(path, value.to_variant().as_bytes().to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

    use std::fs;

    use super::*;

    fn is_told(files: &WatchedFiles) -> bool {
        files.watch.as_ref().unwrap().read().unwrap() != WatchCompleteness::Nothing
    }

    #[test]
    fn a_directory_that_is_made_between_the_look_and_the_watch_is_watched() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config/dconf/user");
        // Whoever makes the directories does so one at a time, each in the worst moment.
        let ways = [home.path().join("config"), home.path().join("config/dconf")];
        let mut left = ways.iter();
        let mut files = WatchedFiles::new().unwrap();
        files.files.insert(file.clone());
        files
            .renew_until_settled(&mut || {
                left.next().into_iter().for_each(|way| fs::create_dir(way).unwrap())
            })
            .unwrap();
        assert!(left.next().is_none());
        fs::write(&file, "new").unwrap();
        assert!(is_told(&files), "the file is written in a directory that is watched");
    }

    #[test]
    fn a_directory_that_goes_between_the_look_and_the_watch_is_no_error() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("config");
        fs::create_dir(&directory).unwrap();
        let mut files = WatchedFiles::new().unwrap();
        files.files.insert(directory.join("user"));
        let mut gone = false;
        files
            .renew_until_settled(&mut || {
                if !std::mem::replace(&mut gone, true) {
                    fs::remove_dir(&directory).unwrap();
                }
            })
            .unwrap();
        fs::create_dir(&directory).unwrap();
        assert!(is_told(&files), "that it comes again is told");
        assert!(files.directories.contains(home.path()));
    }
}
