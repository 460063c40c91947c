//! Making the index current: one process does it for all, readers never wait for it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use store::disk::Disk;
use store::publish::{self, PublishError};
use store::table::gvdb::WriteError;

use super::build::{Look, build};
use super::input::Part;
use super::sources::Sources;
use super::{Index, IndexError};

/// Why the index could not be made current. The old one, if there was one, is still in its place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefreshError {
    /// The lock that keeps others from doing the same cannot be taken.
    #[error("cannot lock {path:?}")]
    NotLocked {
        /// The lock's path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is more than one file can hold.
    #[error("cannot make the index")]
    NotMade(#[from] WriteError),
    /// It was made and could not be put in its place.
    #[error("cannot store the index")]
    NotStored(#[from] PublishError),
    /// It was stored and cannot be read back.
    #[error("cannot use the index that was made")]
    NotUsable(#[from] IndexError),
}

/// What was done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Done {
    /// Nothing had changed.
    Current,
    /// A new index is in its place.
    Made {
        /// How many plugins there are.
        plugins: usize,
        /// How many desktop files there are.
        applications: usize,
        /// How many files were opened for it.
        opened: usize,
    },
}

/// Where the index of some sources is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Location {
    directory: PathBuf,
    sources: Sources,
    /// The directory with the index that came with the system.
    system: Option<PathBuf>,
}

impl Location {
    /// Keeps the index of `sources` in `directory`; `system` is where a package manager may have made one.
    #[must_use]
    pub fn new(directory: PathBuf, sources: Sources, system: Option<PathBuf>) -> Location {
        Location { directory, sources, system }
    }

    /// Returns the sources.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Returns the path of the index's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.sources.file_name())
    }

    /// Opens the index, stale or not; one that was made before the machine was started is verified.
    ///
    /// # Errors
    ///
    /// There is none, or it is damaged.
    pub fn open(&self) -> Result<Index, IndexError> {
        let index = Index::open(&self.path())?;
        if index.is_of_this_boot() { Ok(index) } else { whole(index) }
    }

    /// Opens the index that came with the system, whose directories are the same.
    fn system(&self) -> Option<Index> {
        let name = self.sources.of_system().file_name();
        Index::open(&self.system.as_ref()?.join(name)).and_then(whole).ok()
    }

    /// Makes the index current and returns it.
    ///
    /// While another process does so this one waits, and then uses what that one made.
    ///
    /// # Errors
    ///
    /// See [`RefreshError`]; the old index is still there.
    pub fn refresh(&self, disk: &dyn Disk, look: Look) -> Result<(Index, Done), RefreshError> {
        let path = self.path();
        let _lock = self.lock()?;
        let mut own = Index::open(&path).and_then(whole).ok();
        let current = own.take_if(|index| {
            look == Look::Directories
                && index.is_of_this_boot()
                && index.stale(&Part::ALL).is_none()
        });
        if let Some(index) = current {
            return Ok((index, Done::Current));
        }
        let base = own.or_else(|| self.system());
        let built = build(&self.sources, base.as_ref(), look)?;
        // Nobody waits for the disk: a file that a power cut took is noticed by its checksum and made again.
        publish::publish_volatile(disk, &path, &built.image)?;
        let done = Done::Made {
            plugins: built.plugins,
            applications: built.applications,
            opened: built.opened,
        };
        Ok((Index::from_bytes(built.image)?, done))
    }

    /// Waits for the right to make the index; it ends with the file that is returned, also when the process is killed.
    fn lock(&self) -> Result<File, RefreshError> {
        let path = self.directory.join("index.lock");
        let not_locked = |source| RefreshError::NotLocked { path: path.clone(), source };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)
            .map_err(not_locked)?;
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path);
        let file = file.map_err(not_locked)?;
        file.lock().map_err(not_locked)?;
        Ok(file)
    }
}

/// Verifies an index: one pass over it.
fn whole(index: Index) -> Result<Index, IndexError> {
    if index.is_whole() { Ok(index) } else { Err(IndexError::NotAnIndex) }
}
