//! The index of plugins and applications in the daemon: it is rebuilt when a directory changes, before a program needs it.
//!
//! It shares no state with other parts, so it has a thread of its own, which waits for inotify only.
//! Queries work without it. With it, files that are overwritten in place are noticed, and no query waits for a new index.

pub mod places;
pub mod program;

use report::error::chain;
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use catalogue::index::Index;
use catalogue::index::build::CheckDepth;
use catalogue::index::input::IndexPart;
use catalogue::index::refresh::{Location, RefreshError, RefreshOutcome};
use rustix::io::Errno;
use store::disk::Disk;
use sys::watch::{DirectoriesWatch, Ready, WatchCompleteness};

/// The options and dependencies of the service.
#[derive(Debug)]
pub struct IndexServiceOptions {
    /// The path of the index, and the directories that it covers.
    pub location: Location,
    /// The file systems that are written to.
    pub disk: Arc<dyn Disk>,
}

/// The running service. Dropping it ends the watch.
#[derive(Debug)]
pub struct IndexService {
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Packages are installed file by file: the index is rebuilt when no event has come for this long.
const QUIET: Duration = Duration::from_millis(300);
/// How often an index is rebuilt that was outdated when it was finished.
const TRIES: usize = 5;
/// When an index is tried again that could not be made, unless something changes before: each time after twice the time.
const AGAIN: Range<Duration> = Duration::from_secs(60)..Duration::from_secs(60 * 60);
/// The most waits before an index is rebuilt although events still come.
const WAITS: usize = 20;

impl IndexService {
    /// Starts the thread, which updates the index and then watches.
    ///
    /// # Errors
    ///
    /// The thread or a descriptor could not be made.
    pub fn start(options: IndexServiceOptions) -> io::Result<IndexService> {
        let (stop, stopped) = sys::socket::pair()?;
        let serve = move || {
            if let Err(error) = serve(&options, &stopped) {
                tracing::warn!(%error, "cannot watch plugins and applications");
            }
        };
        let thread = thread::Builder::new().name("index".to_owned()).spawn(serve)?;
        Ok(IndexService { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for IndexService {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has logged the reason if it failed.
            let _ = thread.join();
        }
    }
}

fn serve(options: &IndexServiceOptions, stopped: &OwnedFd) -> io::Result<()> {
    let mut look = CheckDepth::Directories;
    let mut tries = 0;
    let mut pause = AGAIN.start;
    // What was watched for the last index that could be made, and be watched.
    let mut watched: Option<DirectoriesWatch> = None;
    loop {
        let (index, watch) = match make_and_watch(options, look) {
            Ok(made) => made,
            // A program that queries makes it, and reports why it cannot be made. What was the cause may pass: a full disk, a lock that is held, watches that other programs use.
            Err(error) => {
                if pause == AGAIN.start {
                    let error = chain(&error);
                    tracing::warn!(error, "plugins and applications are looked at again later");
                }
                if matches!(error, NotCurrent::NotWatched(_)) {
                    // Nobody may have seen what is written meanwhile.
                    look = CheckDepth::Files;
                }
                match wait_to_try_again(watched.as_ref(), pause, stopped)? {
                    Ready::HungUp => return Ok(()),
                    Ready::Changes => look = CheckDepth::Files,
                    Ready::Nothing => {}
                }
                pause = (pause * 2).min(AGAIN.end);
                continue;
            }
        };
        pause = AGAIN.start;
        let watch = watched.insert(watch);
        // Changes from before the watch began. A directory that changes all the time is left to the programs that query.
        if index.stale(&IndexPart::ALL).is_some() && tries < TRIES {
            if watch.wait(stopped, Some(QUIET))? == Ready::HungUp {
                return Ok(());
            }
            look = CheckDepth::Directories;
            tries += 1;
            continue;
        }
        tries = 0;
        loop {
            if watch.wait(stopped, None)? == Ready::HungUp {
                return Ok(());
            }
            match settled(watch, stopped)? {
                None => return Ok(()),
                Some(WatchCompleteness::Written) => {
                    look = CheckDepth::Files;
                    break;
                }
                // The event concerned another file.
                Some(WatchCompleteness::Names) if index.stale(&IndexPart::ALL).is_none() => {}
                Some(WatchCompleteness::Names) => {
                    look = CheckDepth::Directories;
                    break;
                }
                Some(WatchCompleteness::Nothing) => {}
            }
        }
    }
}

/// Why the index is not kept current for a while.
#[derive(Debug, thiserror::Error)]
enum NotCurrent {
    /// Programs that query make it, or say why that is impossible.
    #[error("cannot make the index of plugins and applications")]
    NotMade(#[source] RefreshError),
    /// It is current now, and nobody notices when it is not any more.
    #[error("cannot watch plugins and applications")]
    NotWatched(#[source] io::Error),
}

/// Updates the index, and watches what it covers.
fn make_and_watch(
    options: &IndexServiceOptions,
    look: CheckDepth,
) -> Result<(Index, DirectoriesWatch), NotCurrent> {
    let index = refresh(options, look).map_err(NotCurrent::NotMade)?;
    let watch = watch(&index).map_err(NotCurrent::NotWatched)?;
    Ok((index, watch))
}

/// Waits until something changes, or for some time.
fn wait_to_try_again(
    watched: Option<&DirectoriesWatch>,
    most: Duration,
    stopped: &OwnedFd,
) -> io::Result<Ready> {
    let Some(watch) = watched else { return sys::watch::pause(stopped, most) };
    match watch.wait(stopped, Some(most))? {
        Ready::Changes => Ok(settled(watch, stopped)?.map_or(Ready::HungUp, |_| Ready::Changes)),
        other => Ok(other),
    }
}

/// Waits until no event comes any more, and returns the events; `None` if the daemon ends.
fn settled(watch: &DirectoriesWatch, stopped: &OwnedFd) -> io::Result<Option<WatchCompleteness>> {
    let mut seen = watch.read()?;
    for _ in 0..WAITS {
        match watch.wait(stopped, Some(QUIET))? {
            Ready::HungUp => return Ok(None),
            Ready::Nothing => break,
            Ready::Changes => seen = seen.max(watch.read()?),
        }
    }
    Ok(Some(seen))
}

/// Updates the index.
fn refresh(options: &IndexServiceOptions, look: CheckDepth) -> Result<Index, RefreshError> {
    let (index, done) = options.location.refresh(&*options.disk, look)?;
    if let RefreshOutcome::Made { plugins, applications, opened, was_damaged } = done {
        if was_damaged {
            let path = options.location.path();
            tracing::warn!(path = %path.display(), "the index was damaged; a new one was made");
        }
        tracing::info!(
            plugins,
            applications,
            opened,
            "the index of plugins and applications is new"
        );
    }
    Ok(index)
}

/// Watches everything that an index covers: directories themselves, files by their directory, and missing paths by the nearest existing directory.
fn watch(index: &Index) -> io::Result<DirectoriesWatch> {
    let mut watch = DirectoriesWatch::new()?;
    let mut watched: HashSet<PathBuf> = HashSet::new();
    for input in index.inputs() {
        let is_directory = matches!(input.part, IndexPart::Plugins | IndexPart::Applications);
        let first = if is_directory { Some(input.path()) } else { input.path().parent() };
        let nearest = first.into_iter().flat_map(Path::ancestors).find(|path| path.is_dir());
        if let Some(path) = nearest
            && watched.insert(path.to_owned())
        {
            let own = is_directory && path == input.path();
            let what = if own { WatchCompleteness::Written } else { WatchCompleteness::Names };
            match watch.add(path, what) {
                Err(error) if is_not_to_be_watched(&error) => {}
                added => added?,
            }
        }
    }
    Ok(watch)
}

/// Returns whether an error says that a path is no directory any more, upon which the index is out of date, or is one that may not be read.
fn is_not_to_be_watched(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    error.is_some_and(|error| {
        matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "the test is the other program")]
    #[test]
    fn what_is_no_directory_any_more_is_not_watched_and_other_errors_count() {
        let dir = tempfile::tempdir().unwrap();
        let (gone, file, link) =
            (dir.path().join("gone"), dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&link, &link).unwrap();
        let mut watch = DirectoriesWatch::new().unwrap();
        for path in [gone, file.join("below"), file, link] {
            let error = watch.add(&path, WatchCompleteness::Names).unwrap_err();
            assert!(is_not_to_be_watched(&error), "{}: {error}", path.display());
        }
        for error in [Errno::NOSPC, Errno::NOMEM, Errno::MFILE] {
            assert!(!is_not_to_be_watched(&error.into()), "{error}");
        }
    }
}
