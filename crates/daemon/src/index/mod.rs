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
    // What was watched for the last index that could be made.
    let mut watched: Option<DirectoriesWatch> = None;
    loop {
        let index = match refresh(options, look) {
            Ok(index) => index,
            // A program that queries makes it, and reports why it cannot be made. What was the cause may pass: a full disk, a lock that is held.
            Err(error) => {
                if pause == AGAIN.start {
                    tracing::warn!(
                        error = chain(&error),
                        "cannot make the index of plugins and applications"
                    );
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
        let watch = watched.insert(watch(&index)?);
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
                // It went a moment ago: the index is out of date. One that may not be read is not watched.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                    ) => {}
                added => added?,
            }
        }
    }
    Ok(watch)
}
