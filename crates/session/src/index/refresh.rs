//! Making the index current: one process does it for all, readers never wait for it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use store::disk::Disk;
use store::publish::{self, PublishError};
use store::table::gvdb::WriteError;

use super::build::{Look, build};
use super::cold::open_ahead;
use super::identity::Identity;
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
    /// It was stored, and only its owner may read it.
    #[error("cannot let everybody read {path:?}")]
    NotShared {
        /// The index's path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
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
    /// The name of the index's file.
    name: String,
    sources: Sources,
    readers: Readers,
    /// The directory with the index that came with the system.
    system: Option<PathBuf>,
}

/// Who reads an index.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Readers {
    Owner,
    Everyone,
}

impl Location {
    /// Keeps the index of `sources` in `directory`; `system` is where a package manager may have made one.
    #[must_use]
    pub fn new(directory: PathBuf, sources: Sources, system: Option<PathBuf>) -> Location {
        let name = sources.file_name();
        Location { directory, name, sources, readers: Readers::Owner, system }
    }

    /// Keeps the system's part of `sources` in `directory`, for everybody to begin with.
    #[must_use]
    pub fn of_system(directory: PathBuf, sources: &Sources) -> Location {
        let (name, sources) = (sources.system_file_name(), sources.of_system());
        Location { directory, name, sources, readers: Readers::Everyone, system: None }
    }

    /// Returns the sources.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Returns the path of the index's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// Opens the index, stale or not; one that was made before the machine was started is verified.
    ///
    /// # Errors
    ///
    /// There is none, or it is damaged.
    pub fn open(&self) -> Result<Index, IndexError> {
        let next =
            || self.sources.places.application_directories().map(|place| place.path).collect();
        let file = open_ahead(&self.path(), next).map_err(IndexError::Unreadable)?;
        let index = Index::of(&file)?;
        if index.is_of_this_boot() { Ok(index) } else { whole(index) }
    }

    /// Opens the index that came with the system: what it knows of directories that are ours, too, need not be read.
    fn system(&self) -> Option<Index> {
        let path = self.system.as_ref()?.join(self.sources.system_file_name());
        Index::open(&path).and_then(whole).ok()
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
        let seen = Identity::of(&path);
        let mut own = match self.current(look) {
            Ok(index) => return Ok((index, Done::Current)),
            Err(old) => old,
        };
        let _lock = self.lock()?;
        // Who had the lock before may have made what we want.
        if Identity::of(&path) != seen {
            own = match self.current(look) {
                Ok(index) => return Ok((index, Done::Current)),
                Err(old) => old,
            };
        }
        let base = own.or_else(|| self.system());
        let built = build(&self.sources, base.as_ref(), look)?;
        // What a killed process left: we hold the lock, so nobody is writing. It is in nobody's way if it stays.
        let _ = publish::remove_stale(disk, &path, i128::MAX);
        self.publish(disk, &built.image)?;
        let done = Done::Made {
            plugins: built.plugins,
            applications: built.applications,
            opened: built.opened,
        };
        Ok((Index::from_bytes(built.image)?, done))
    }

    /// Opens the index if there is nothing to do; else returns what a new one can begin with.
    ///
    /// One of this boot that is current is believed, as readers do; what a new one begins with is verified.
    fn current(&self, look: Look) -> Result<Index, Option<Index>> {
        let index = Index::open(&self.path()).map_err(|_| None)?;
        if look == Look::Directories && is_current(&index) {
            return Ok(index);
        }
        Err(whole(index).ok())
    }

    /// Puts an index in its place. Nobody waits for the disk: a file that a power cut took is noticed by its checksum and made again.
    fn publish(&self, disk: &dyn Disk, image: &[u8]) -> Result<(), RefreshError> {
        let path = self.path();
        match self.readers {
            Readers::Owner => publish::publish_cache(disk, &path, image)?,
            // This one keeps the mode of the old file: others may read it at any time.
            Readers::Everyone => publish::publish_volatile(disk, &path, image)?,
        };
        if self.readers == Readers::Everyone {
            let everyone = std::fs::Permissions::from_mode(0o644);
            let shared = std::fs::set_permissions(&path, everyone);
            shared.map_err(|source| RefreshError::NotShared { path, source })?;
        }
        Ok(())
    }

    /// Makes a current index for one who asks where none can be stored: without a home, on a full or read-only disk.
    ///
    /// # Errors
    ///
    /// There is more than one file can hold.
    pub fn make_unstored(&self) -> Result<Index, RefreshError> {
        let own = Index::open(&self.path()).and_then(whole).ok();
        let base = own.or_else(|| self.system());
        make_unstored(&self.sources, base.as_ref())
    }

    /// Waits for the right to make the index; it ends with the file that is returned, also when the process is killed.
    fn lock(&self) -> Result<File, RefreshError> {
        let path = self.directory.join("index.lock");
        let not_locked = |source| RefreshError::NotLocked { path: path.clone(), source };
        let is_new = !self.directory.exists();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(if self.readers == Readers::Everyone { 0o755 } else { 0o700 })
            .create(&self.directory)
            .map_err(not_locked)?;
        if is_new && self.readers == Readers::Everyone {
            // Whatever the mask of a package manager is.
            let everyone = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&self.directory, everyone).map_err(not_locked)?;
        }
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path);
        let file = file.map_err(not_locked)?;
        file.lock().map_err(not_locked)?;
        Ok(file)
    }
}

/// Makes the index of `sources` in memory; what `base` has and did not change is taken from there.
///
/// # Errors
///
/// There is more than one file can hold.
pub fn make_unstored(sources: &Sources, base: Option<&Index>) -> Result<Index, RefreshError> {
    let built = build(sources, base, Look::Directories)?;
    Ok(Index::from_bytes(built.image)?)
}

/// Says whether nothing has changed since an index was made; one of another boot is made again, so that the next reader need not verify it.
fn is_current(index: &Index) -> bool {
    index.is_of_this_boot() && index.stale(&Part::ALL).is_none()
}

/// Verifies an index: one pass over it.
fn whole(index: Index) -> Result<Index, IndexError> {
    if index.is_whole() { Ok(index) } else { Err(IndexError::NotAnIndex) }
}
