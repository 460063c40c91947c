//! The index of plugins and applications in the daemon: it is rebuilt when a directory changes, before a program needs it.
//!
//! It shares no state with other parts, so it has a thread of its own, which waits for inotify only.
//! Queries work without it. With it, files that are overwritten in place are noticed, and no query waits for a new index.

pub mod places;
pub mod program;

use report::error::chain;
use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use catalogue::index::Index;
use catalogue::index::build::CheckDepth;
use catalogue::index::input::IndexPart;
use catalogue::index::refresh::{Location, RefreshOutcome};
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
    loop {
        let Some(index) = refresh(options, look) else {
            // A program that queries makes it, and reports why it cannot be made.
            return Ok(());
        };
        let watch = watch(&index)?;
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
            match settled(&watch, stopped)? {
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

/// Updates the index; `None` if it cannot be made.
fn refresh(options: &IndexServiceOptions, look: CheckDepth) -> Option<Index> {
    match options.location.refresh(&*options.disk, look) {
        Ok((index, RefreshOutcome::Made { plugins, applications, opened, was_damaged })) => {
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
            Some(index)
        }
        Ok((index, RefreshOutcome::Current)) => Some(index),
        Err(error) => {
            tracing::warn!(
                error = chain(&error),
                "cannot make the index of plugins and applications"
            );
            None
        }
    }
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
            watch.add(
                path,
                if own { WatchCompleteness::Written } else { WatchCompleteness::Names },
            )?;
        }
    }
    Ok(watch)
}
