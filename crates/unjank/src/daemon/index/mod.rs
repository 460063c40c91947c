//! The index of plugins and applications in the daemon: it is made anew when a directory changes, before anybody asks.
//!
//! It shares no state with anything else, so it has a thread of its own, which waits for inotify and for nothing else.
//! Who asks does not need it: what it adds is that files which are overwritten in place are noticed, and that nobody waits for a new index.

pub mod places;
pub mod program;

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use session::index::Index;
use session::index::build::Look;
use session::index::input::Part;
use session::index::refresh::{Done, Location};
use store::disk::Disk;
use sys::watch::{Directories, Ready, Seen};

/// What the service depends on.
#[derive(Debug)]
pub struct Options {
    /// Where the index is, and of what it is made.
    pub location: Location,
    /// What is written to.
    pub disk: Arc<dyn Disk>,
}

/// The running service. Dropping it ends the watch.
#[derive(Debug)]
pub struct Service {
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Packages are installed file by file: an index is made when nothing has come for this long.
const QUIET: Duration = Duration::from_millis(300);
/// How often an index is made again that was not current when it was made.
const TRIES: usize = 5;
/// However much comes, one is made after so many waits.
const WAITS: usize = 20;

impl Service {
    /// Starts the thread, which makes the index current and then watches.
    ///
    /// # Errors
    ///
    /// There is no thread or no descriptor left.
    pub fn start(options: Options) -> io::Result<Service> {
        let (stop, stopped) = sys::socket::pair()?;
        let serve = move || {
            if let Err(error) = serve(&options, &stopped) {
                tracing::warn!(%error, "cannot watch plugins and applications");
            }
        };
        let thread = thread::Builder::new().name("index".to_owned()).spawn(serve)?;
        Ok(Service { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has logged why, if it did not end well.
            let _ = thread.join();
        }
    }
}

fn serve(options: &Options, stopped: &OwnedFd) -> io::Result<()> {
    let mut look = Look::Directories;
    let mut tries = 0;
    loop {
        let Some(index) = refresh(options, look) else {
            // Who asks makes it, and says why it cannot be made.
            return Ok(());
        };
        let watch = watch(&index)?;
        // What changed before it was watched; what never stays the same is left to those who ask.
        if index.stale(&Part::ALL).is_some() && tries < TRIES {
            if watch.wait(stopped, Some(QUIET))? == Ready::HungUp {
                return Ok(());
            }
            look = Look::Directories;
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
                Some(Seen::Written) => {
                    look = Look::Files;
                    break;
                }
                // Some other file came beside those that count.
                Some(Seen::Names) if index.stale(&Part::ALL).is_none() => {}
                Some(Seen::Names) => {
                    look = Look::Directories;
                    break;
                }
                Some(Seen::Nothing) => {}
            }
        }
    }
}

/// Waits until nothing comes any more, and returns what came; `None` if the daemon ends.
fn settled(watch: &Directories, stopped: &OwnedFd) -> io::Result<Option<Seen>> {
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

/// Makes the index current; `None` if it cannot be made.
fn refresh(options: &Options, look: Look) -> Option<Index> {
    match options.location.refresh(&*options.disk, look) {
        Ok((index, Done::Made { plugins, applications, opened, was_damaged })) => {
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
        Ok((index, Done::Current)) => Some(index),
        Err(error) => {
            let error = super::program::chain(&error);
            tracing::warn!(%error, "cannot make the index of plugins and applications");
            None
        }
    }
}

/// Watches everything that an index was made of: directories themselves, files by the directory that they are in, and what is not there by the nearest directory that is.
fn watch(index: &Index) -> io::Result<Directories> {
    let mut watch = Directories::new()?;
    let mut watched: HashSet<PathBuf> = HashSet::new();
    for input in index.inputs() {
        let is_directory = matches!(input.part, Part::Plugins | Part::Applications);
        let first = if is_directory { Some(input.path()) } else { input.path().parent() };
        let nearest = first.into_iter().flat_map(Path::ancestors).find(|path| path.is_dir());
        if let Some(path) = nearest
            && watched.insert(path.to_owned())
        {
            let own = is_directory && path == input.path();
            watch.add(path, if own { Seen::Written } else { Seen::Names })?;
        }
    }
    Ok(watch)
}
