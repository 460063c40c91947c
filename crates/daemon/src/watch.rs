//! Detects that another program replaced or rewrote a database, with inotify.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use settings::engine::{DatabaseId, DatabaseKind};
use tokio::io::unix::AsyncFd;

/// The watched directories of the databases. Directories, because a database is replaced by a rename.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: Inotify,
    dirs: HashMap<i32, PathBuf>,
    files: Vec<(PathBuf, DatabaseId)>,
    version: Option<u64>,
    incomplete: bool,
}

/// The state of the inotify descriptor.
#[derive(Debug)]
enum Inotify {
    /// The kernel gave no descriptor.
    Missing,
    /// Each event wakes the owner.
    Awake(AsyncFd<OwnedFd>),
    /// Events accumulate, and the owner is not woken before this monotonic time.
    Asleep(OwnedFd, Duration),
}

impl Inotify {
    /// Lets events wake the owner.
    #[expect(
        deprecated,
        reason = "the unsafe successor is for descriptors that may change; this one is owned and never replaced"
    )]
    fn awake(fd: OwnedFd) -> Inotify {
        AsyncFd::new(fd).map_or_else(|error| Inotify::missing(&error), Inotify::Awake)
    }

    /// Continues without a watch: a change by another program is still noticed at the next write.
    fn missing(error: &io::Error) -> Inotify {
        tracing::warn!(%error, "cannot watch for edits by other programs");
        Inotify::Missing
    }
}

/// How long events accumulate after a write of ours: a commit causes several, and each would wake the owner while a program
/// waits for its answer. Each write checks the file in any case.
const SLEEP: Duration = Duration::from_millis(20);

impl Watch {
    /// Starts with nothing to watch. Must be called inside the runtime.
    pub(super) fn new() -> Watch {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        let inotify = match fd {
            Ok(fd) => Inotify::awake(fd),
            Err(error) => Inotify::missing(&error.into()),
        };
        Watch { inotify, dirs: HashMap::new(), files: Vec::new(), version: None, incomplete: false }
    }

    /// Returns whether `files` of [`Watch::follow`] are to be given again.
    pub(super) fn is_behind(&self, version: u64) -> bool {
        self.version != Some(version) || self.incomplete
    }

    /// Watches exactly these files.
    pub(super) fn follow(&mut self, version: u64, files: Vec<(PathBuf, DatabaseId)>) {
        self.version = Some(version);
        self.files = files;
        self.incomplete = false;
        let inotify = match &self.inotify {
            Inotify::Missing => return,
            Inotify::Awake(inotify) => inotify.get_ref(),
            Inotify::Asleep(inotify, _) => inotify,
        };
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
                // The directory is made with its first database; `is_behind` causes another attempt.
                Err(rustix::io::Errno::NOENT) => self.incomplete = true,
                Err(error) => {
                    tracing::warn!(?dir, %error, "cannot watch for edits by other programs");
                }
            }
        }
    }

    /// Returns whether a file of a database of this kind is watched.
    pub(super) fn has(&self, kind: DatabaseKind) -> bool {
        self.files.iter().any(|(_, id)| id.kind() == kind)
    }

    /// Lets events accumulate for a while before a write of ours, because most of them will be our own.
    pub(super) fn sleep(&mut self, now: Duration) {
        self.inotify = match std::mem::replace(&mut self.inotify, Inotify::Missing) {
            // Events that have accumulated are not delayed again and again.
            Inotify::Awake(inotify) => Inotify::Asleep(inotify.into_inner(), now + SLEEP),
            other => other,
        };
    }

    /// Returns the monotonic time at which [`Watch::wake`] is due, if events accumulate.
    pub(super) fn asleep_until(&self) -> Option<Duration> {
        match self.inotify {
            Inotify::Asleep(_, until) => Some(until),
            Inotify::Missing | Inotify::Awake(_) => None,
        }
    }

    /// Reports accumulated events if their time has come, and each further event at once. Must be called inside the runtime.
    pub(super) fn wake(&mut self, now: Duration) {
        if self.asleep_until().is_some_and(|until| until <= now)
            && let Inotify::Asleep(inotify, _) =
                std::mem::replace(&mut self.inotify, Inotify::Missing)
        {
            self.inotify = Inotify::awake(inotify);
        }
    }

    /// Waits for changes and returns the databases that they concern, perhaps none. Dropping the future loses no change.
    pub(super) async fn next(&mut self) -> Vec<DatabaseId> {
        let Inotify::Awake(inotify) = &self.inotify else { return std::future::pending().await };
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
        DatabaseId::new(DatabaseKind::User, "user").unwrap()
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

    #[expect(clippy::disallowed_methods, reason = "the test is the other program")]
    #[test]
    fn events_that_gather_during_a_sleep_are_told_after_it_in_one_go() {
        within_a_runtime(async || {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("user");
            let mut watch = Watch::new();
            watch.follow(1, vec![(file.clone(), user())]);
            let start = Duration::from_secs(7);
            watch.sleep(start);
            std::fs::write(&file, "x").unwrap();
            std::fs::remove_file(&file).unwrap();
            watch.sleep(start + SLEEP / 2);
            assert_eq!(watch.asleep_until(), Some(start + SLEEP), "it was put off");
            watch.wake(start + SLEEP / 2);
            let told = tokio::time::timeout(SLEEP, watch.next()).await;
            assert!(told.is_err(), "it is asleep");

            watch.wake(start + SLEEP);
            assert_eq!(watch.asleep_until(), None);
            assert_eq!(watch.next().await, [user()]);
            let told = tokio::time::timeout(SLEEP, watch.next()).await;
            assert!(told.is_err(), "it was told once");
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
