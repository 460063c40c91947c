//! Notices when a program other than us replaces or rewrites a database.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use session::settings::engine::{DatabaseId, Kind};
use tokio::io::unix::AsyncFd;

/// The directories of the watched files. Directories, because a database is replaced by a rename.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: Option<AsyncFd<OwnedFd>>,
    dirs: HashMap<i32, PathBuf>,
    files: Vec<(PathBuf, DatabaseId)>,
    version: Option<u64>,
    incomplete: bool,
}

impl Watch {
    /// Starts with nothing to watch. Must be called inside the runtime.
    #[expect(
        deprecated,
        reason = "the unsafe successor is for descriptors that may change; this one is owned and never replaced"
    )]
    pub(super) fn new() -> Watch {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
            .map_err(io::Error::from)
            .and_then(AsyncFd::new);
        let inotify = match fd {
            Ok(fd) => Some(fd),
            Err(error) => {
                // An edit from outside is still noticed when the next change is made.
                tracing::warn!(%error, "cannot watch for edits by other programs");
                None
            }
        };
        Watch { inotify, dirs: HashMap::new(), files: Vec::new(), version: None, incomplete: false }
    }

    /// Says whether `files` of [`Watch::follow`] are to be given again.
    pub(super) fn is_behind(&self, version: u64) -> bool {
        self.version != Some(version) || self.incomplete
    }

    /// Watches these files and no others.
    pub(super) fn follow(&mut self, version: u64, files: Vec<(PathBuf, DatabaseId)>) {
        self.version = Some(version);
        self.files = files;
        self.incomplete = false;
        let Some(inotify) = &self.inotify else { return };
        let wanted = WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        for dir in self.files.iter().filter_map(|(file, _)| file.parent()) {
            if self.dirs.values().any(|watched| watched == dir) {
                continue;
            }
            match inotify::add_watch(inotify, dir, wanted) {
                Ok(number) => {
                    self.dirs.insert(number, dir.to_owned());
                }
                // It is made with the first database in it; `is_behind` has it tried again.
                Err(rustix::io::Errno::NOENT) => self.incomplete = true,
                Err(error) => {
                    tracing::warn!(?dir, %error, "cannot watch for edits by other programs");
                }
            }
        }
    }

    /// Says whether a file of a database of this kind is watched.
    pub(super) fn has(&self, kind: Kind) -> bool {
        self.files.iter().any(|(_, id)| id.kind() == kind)
    }

    /// Waits for changes and returns the databases they concern, perhaps none. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Vec<DatabaseId> {
        let Some(inotify) = &self.inotify else { return std::future::pending().await };
        let Ok(mut ready) = inotify.readable().await else { return std::future::pending().await };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        let mut changed = Vec::new();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => {
                    ready.clear_ready();
                    break;
                }
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                changed.extend(self.files.iter().map(|(_, id)| id.clone()));
                continue;
            }
            if event.events().contains(ReadFlags::IGNORED) {
                // The directory is gone, and the kernel's watch with it.
                self.dirs.remove(&event.wd());
                self.incomplete = true;
                continue;
            }
            let (Some(dir), Some(name)) = (self.dirs.get(&event.wd()), event.file_name()) else {
                continue;
            };
            let path = dir.join(OsStr::from_bytes(name.to_bytes()));
            changed.extend(
                self.files.iter().filter(|(file, _)| *file == path).map(|(_, id)| id.clone()),
            );
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within_a_runtime<F: Future>(test: impl FnOnce() -> F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(std::time::Duration::from_secs(30), test()).await.unwrap()
        })
    }

    fn user() -> DatabaseId {
        DatabaseId::new(Kind::User, "user").unwrap()
    }

    async fn first_change(watch: &mut Watch) -> Vec<DatabaseId> {
        loop {
            let changed = watch.next().await;
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the test is the other program")]
    #[test]
    fn a_file_that_is_replaced_or_rewritten_is_noticed() {
        within_a_runtime(async || {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("user");
            let mut watch = Watch::new();
            watch.follow(1, vec![(file.clone(), user())]);
            assert!(!watch.is_behind(1));
            assert!(watch.is_behind(2));

            std::fs::write(dir.path().join("other"), "x").unwrap();
            std::fs::rename(dir.path().join("other"), &file).unwrap();
            assert_eq!(first_change(&mut watch).await, [user()]);

            std::fs::write(&file, "y").unwrap();
            assert_eq!(first_change(&mut watch).await, [user()]);

            std::fs::remove_file(&file).unwrap();
            assert_eq!(first_change(&mut watch).await, [user()]);
        });
    }

    #[test]
    fn a_directory_that_is_made_later_is_watched_then() {
        within_a_runtime(async || {
            let dir = tempfile::tempdir().unwrap();
            let below = dir.path().join("dconf");
            let files = vec![(below.join("user"), user())];
            let mut watch = Watch::new();
            watch.follow(1, files.clone());
            assert!(watch.is_behind(1), "there is nothing to watch yet");
            std::fs::create_dir(&below).unwrap();
            watch.follow(1, files);
            assert!(!watch.is_behind(1));
            std::fs::remove_dir(&below).unwrap();
            watch.next().await;
            assert!(watch.is_behind(1), "the directory is gone");
        });
    }
}
