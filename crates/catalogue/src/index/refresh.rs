//! Making the index current: one process does it for all, readers never wait for it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gvdb::TableWriteError;
use rustix::fs::OFlags;
use store::disk::Disk;
use store::publish::{self, PublishError};

use super::build::{Built, CheckDepth, build};
use super::identity::Identity;
use super::input::IndexPart;
use super::read_ahead::open_ahead;
use super::sources::IndexSources;
use super::{Index, IndexError};
use crate::unread::Unread;

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
    #[error("cannot build the index")]
    NotMade(#[from] TableWriteError),
    /// Something was not read because the machine failed, or had nothing left to read with.
    #[error("cannot read {path:?}")]
    NotRead {
        /// What was not read.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It was made and could not be put in its place.
    #[error("cannot store the index")]
    NotStored(#[from] PublishError),
    /// It was stored, and only its owner may read it.
    #[error("cannot make {path:?} readable for all users")]
    NotShared {
        /// The index's path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It was stored and cannot be read back.
    #[error("cannot use the new index")]
    NotUsable(#[from] IndexError),
    /// The directory for it belongs to somebody else, or others may write to it: whoever can put files there could change answers, and have a link followed.
    #[error("cannot keep an index in {path:?}, {why}")]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// What was done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RefreshOutcome {
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
        /// Whether the old one was damaged; nothing of it was used.
        was_damaged: bool,
    },
}

/// Where the index of some sources is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Location {
    directory: PathBuf,
    /// The name of the index's file.
    name: String,
    sources: IndexSources,
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
    pub fn new(directory: PathBuf, sources: IndexSources, system: Option<PathBuf>) -> Location {
        let name = sources.file_name();
        Location { directory, name, sources, readers: Readers::Owner, system }
    }

    /// Keeps the system's part of `sources` in `directory`, for everybody to begin with.
    #[must_use]
    pub fn of_system(directory: PathBuf, sources: &IndexSources) -> Location {
        let (name, sources) = (sources.system_file_name(), sources.of_system());
        Location { directory, name, sources, readers: Readers::Everyone, system: None }
    }

    /// Returns the sources.
    #[must_use]
    pub fn sources(&self) -> &IndexSources {
        &self.sources
    }

    /// Returns the path of the index's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// Opens the index, stale or not.
    ///
    /// # Errors
    ///
    /// There is none, it is damaged where it begins, or somebody else could have written it.
    pub fn open(&self) -> Result<Index, IndexError> {
        let next =
            || self.sources.places.application_directories().map(|place| place.path).collect();
        let file = open_ahead(&self.path(), next).map_err(IndexError::Unreadable)?;
        trusted(&file)
    }

    /// Opens the index that came with the system: what it knows of directories that are ours, too, need not be read.
    fn system(&self) -> Option<Index> {
        let path = self.system.as_ref()?.join(self.sources.system_file_name());
        let file = open_ahead(&path, Vec::new).ok()?;
        trusted(&file).and_then(whole).ok()
    }

    /// Makes the index current and returns it.
    ///
    /// While another process does so this one waits, and then uses what that one made.
    ///
    /// # Errors
    ///
    /// See [`RefreshError`]; the old index is still there.
    pub fn refresh(
        &self,
        disk: &dyn Disk,
        look: CheckDepth,
    ) -> Result<(Index, RefreshOutcome), RefreshError> {
        let path = self.path();
        let seen = Identity::of(&path);
        let mut own = match self.current(look) {
            Ok(index) => return Ok((index, RefreshOutcome::Current)),
            Err(old) => old,
        };
        let _lock = self.lock()?;
        // Who had the lock before may have made what we want.
        if Identity::of(&path) != seen {
            own = match self.current(look) {
                Ok(index) => return Ok((index, RefreshOutcome::Current)),
                Err(old) => old,
            };
        }
        let was_damaged = matches!(own, Err(IndexError::Damaged));
        let base = own.ok().or_else(|| self.system());
        let mut built = build(&self.sources, base.as_ref(), look)?;
        // What was there before is better, and what lacks this time need not lack the next.
        if let Some((path, unread)) = std::mem::take(&mut built.failures).worst() {
            return Err(not_read(path, unread));
        }
        // What a killed process left: we hold the lock, so nobody is writing. It is in nobody's way if it stays.
        let _ = publish::remove_stale(disk, &path, i128::MAX);
        self.publish(disk, &built.image)?;
        let done = RefreshOutcome::Made {
            plugins: built.plugins,
            applications: built.applications,
            opened: built.opened,
            was_damaged,
        };
        Ok((Index::from_bytes(built.image)?, done))
    }

    /// Opens the index if there is nothing to do; else returns what a new one can begin with, or why with nothing.
    ///
    /// Of one that is current what was read is verified; of what a new one begins with, everything.
    fn current(&self, look: CheckDepth) -> Result<Index, Result<Index, IndexError>> {
        let index = self.open().map_err(Err)?;
        let is_current = look == CheckDepth::Directories && index.stale(&IndexPart::ALL).is_none();
        if is_current && !index.is_damaged() {
            return Ok(index);
        }
        Err(whole(index))
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
    /// There is more than one file can hold, or nothing was left to read files with.
    pub fn make_unstored(&self, look: CheckDepth) -> Result<Index, RefreshError> {
        let own = self.open().and_then(whole).ok();
        let base = own.or_else(|| self.system());
        unstored(build(&self.sources, base.as_ref(), look)?)
    }

    /// Waits for the right to make the index; it ends with the file that is returned, also when the process is killed.
    fn lock(&self) -> Result<File, RefreshError> {
        let path = self.directory.join("index.lock");
        let not_locked = |source| RefreshError::NotLocked { path: path.clone(), source };
        let is_new = !self.directory.exists();
        if is_new {
            // Who may write above it could put a link in its place.
            let above = self.directory.ancestors().skip(1).find(|above| above.exists());
            above.map_or(Ok(()), |above| check_owner(above, not_locked))?;
        }
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
        check_owner(&self.directory, not_locked)?;
        let found = std::fs::metadata(&self.directory).map_err(not_locked)?;
        if found.mode() & OTHERS_WRITE != 0 {
            let path = self.directory.clone();
            return Err(RefreshError::NotOurs { path, why: "to which everybody may write" });
        }
        let options = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut file = OpenOptions::new();
        file.read(true).append(true).create(true).mode(0o600).custom_flags(options);
        let file = file.open(&path).map_err(not_locked)?;
        wait_for(&file).map_err(not_locked)?;
        Ok(file)
    }
}

/// The bit of a mode that lets everybody write.
const OTHERS_WRITE: u32 = 0o002;
/// The bits of a mode that let anybody but the owner write.
const OTHER_WRITERS: u32 = 0o022;

/// How long another process may take to make the index; it takes milliseconds, but on a cold or slow disk.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait between two looks at the lock.
const LOCK_WAIT: Duration = Duration::from_millis(5);

/// Waits until nobody else makes the index; not for ever, because who does may have been stopped.
fn wait_for(lock: &File) -> io::Result<()> {
    for _ in 0..LOCK_LIMIT.as_millis() / LOCK_WAIT.as_millis() {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::park_timeout(LOCK_WAIT),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(ErrorKind::TimedOut, "another process has held it for 5 s"))
}

/// Returns whether somebody else could have made something that belongs to this user.
fn is_others(owner: u32) -> bool {
    owner != 0 && owner != rustix::process::geteuid().as_raw()
}

/// Refuses a directory of somebody else's.
fn check_owner(
    path: &Path,
    not_locked: impl Fn(io::Error) -> RefreshError,
) -> Result<(), RefreshError> {
    let found = std::fs::metadata(path).map_err(not_locked)?;
    if is_others(found.uid()) {
        let path = path.to_owned();
        return Err(RefreshError::NotOurs { path, why: "which belongs to another user" });
    }
    Ok(())
}

/// Maps an index, unless somebody else could have written it: its records name programs that are started.
fn trusted(file: &File) -> Result<Index, IndexError> {
    let found = rustix::fs::fstat(file).map_err(|error| IndexError::Unreadable(error.into()))?;
    if is_others(found.st_uid) || found.st_mode & OTHER_WRITERS != 0 {
        return Err(IndexError::Foreign);
    }
    Index::of(file)
}

/// Makes the index of `sources` in memory; what `base` has and did not change is taken from there.
///
/// # Errors
///
/// There is more than one file can hold, or nothing was left to read files with.
pub fn make_unstored(sources: &IndexSources, base: Option<&Index>) -> Result<Index, RefreshError> {
    unstored(build(sources, base, CheckDepth::Directories)?)
}

/// Takes an index for one answer. What a disk does not give is not there for the asker either; what was not asked of it may be.
fn unstored(mut built: Built) -> Result<Index, RefreshError> {
    match std::mem::take(&mut built.failures).worst() {
        Some((path, unread)) if unread.is_exhaustion() => Err(not_read(path, unread)),
        _ => Ok(Index::from_bytes(built.image)?),
    }
}

fn not_read(path: PathBuf, unread: Unread) -> RefreshError {
    let source = unread.error.map_or_else(|| io::Error::other(unread.reason), io::Error::from);
    RefreshError::NotRead { path, source }
}

/// Verifies an index: one pass over it.
fn whole(index: Index) -> Result<Index, IndexError> {
    if index.is_whole() { Ok(index) } else { Err(IndexError::Damaged) }
}
