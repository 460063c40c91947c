//! Replaces a file as a whole: readers see the old one or the new one, and so does a restart.

mod aside;
mod exchange;
mod preallocated;
mod resolve;
mod stale;
mod wipe;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskFile, FileStat};

pub(crate) use resolve::{directory_of, make_parents, target as final_target};
pub(crate) use wipe::overwrite;

pub use aside::{copy_aside, move_aside};
pub use exchange::{exchange, give_name, put_link};
pub use preallocated::{PreallocatedFile, PreallocationSlot};
pub use stale::{remove_all_stale, remove_stale};
pub use wipe::{is_link, wipe};

/// Why a publish did not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Readers still see the old file, and so will a restart.
    #[error("cannot {step} {path:?}")]
    NotReplaced {
        /// What was being done: `create`, `write`, `sync`, `replace` and so on.
        step: &'static str,
        /// The file that was to be replaced.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// Readers see the new file; after a power cut either may be found.
    #[error("{path:?} was replaced but may not survive a power cut")]
    NotDurable {
        /// The file that was replaced.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// Another program has replaced or changed the file meanwhile: readers see what it wrote.
    #[error("cannot replace {path:?}: another program has written it meanwhile")]
    Overtaken {
        /// The file that was to be replaced.
        path: PathBuf,
        /// That it is another file now.
        source: io::Error,
    },
    /// The rename failed and so did the look whether it had happened: readers see the old file or the new one.
    #[error("cannot tell whether {path:?} was replaced")]
    Unknown {
        /// The file that was to be replaced.
        path: PathBuf,
        /// What the disk said to the rename.
        source: io::Error,
    },
}

impl PublishError {
    /// Returns what the disk said.
    #[must_use]
    pub fn cause(&self) -> &io::Error {
        match self {
            PublishError::NotReplaced { source, .. }
            | PublishError::NotDurable { source, .. }
            | PublishError::Overtaken { source, .. }
            | PublishError::Unknown { source, .. } => source,
        }
    }
}

/// Replaces the file at `path` with `image`, and returns what `stat` says of the new one.
///
/// On `Ok` readers see the new image and it survives a power cut. A symlink stays a symlink: its target is
/// replaced, in the target's directory. Mode, owner, ACL and extended attributes are kept; a new file gets 0600.
/// Missing directories are made (0700) and synced.
///
/// # Errors
///
/// The variant says which file is in place. Nothing is retried on the same file after a failed sync, because the
/// kernel may have dropped the pages: publish again, which writes a new one.
pub fn publish(disk: &dyn Disk, path: &Path, image: &[u8]) -> Result<FileStat, PublishError> {
    replace(disk, path, Contents::Image(image), Promise::PowerCut)
}

/// Replaces the file at `path` as [`publish`] does, by way of a file that was made for it, if there is one.
///
/// With one the directory is in memory, where a sync makes nothing durable, so that there is none. A file that cannot be
/// used after all, because the directory is another one now or its memory is gone, is dropped and another one is made.
///
/// # Errors
///
/// As [`publish`].
pub fn publish_into(
    disk: &dyn Disk,
    path: &Path,
    image: &[u8],
    preallocated: Option<PreallocatedFile>,
) -> Result<FileStat, PublishError> {
    let terms =
        Terms { promise: Promise::PowerCut, manner: Manner::Kept, expected: InPlace::Anything };
    replace_by(disk, path, Contents::Image(image), terms, preallocated)
}

/// Replaces the file at `path` as [`publish`] does, but without a sync: for files on a runtime directory, which a
/// power cut takes away in any case.
///
/// # Errors
///
/// As [`publish`]; never [`PublishError::NotDurable`].
pub fn publish_volatile(
    disk: &dyn Disk,
    path: &Path,
    image: &[u8],
) -> Result<FileStat, PublishError> {
    replace(disk, path, Contents::Image(image), Promise::Process)
}

/// Replaces the file at `path`, which only its owner may read, with one that can be made again: a cache.
///
/// Where the file system can, the two files exchange their names and the old one is removed. A rename over the old file
/// has ext4 write the new one's data out first (`auto_da_alloc`), which takes longer than all the rest. A power cut may
/// therefore leave an empty or damaged file: readers must see that by its checksum.
///
/// # Errors
///
/// As [`publish_volatile`].
pub fn publish_cache(disk: &dyn Disk, path: &Path, image: &[u8]) -> Result<FileStat, PublishError> {
    let terms =
        Terms { promise: Promise::Readers, manner: Manner::Private, expected: InPlace::Anything };
    replace_on(disk, path, Contents::Image(image), terms)
}

/// What must be in place when a file is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// Whatever there is.
    Anything,
    /// What `stat` said of the file that was read, or that there was none.
    Still(Option<FileStat>),
}

/// Replaces the file at `path` as [`publish_volatile`] does, with a file that only its owner may read, whatever the old
/// one was like, and not if the file in place is not `expected`: for files that others replace without a lock.
///
/// The two files exchange their names, where the file system can, so that whoever replaces the file between the look at it
/// and the exchange is seen, too: his file is put back. If the power or this process ends in the microseconds between these
/// two, his changes are lost. On other file systems the look is the last thing before the rename, and he is not seen.
///
/// # Errors
///
/// As [`publish_volatile`], and [`PublishError::Overtaken`].
pub fn publish_private(
    disk: &dyn Disk,
    path: &Path,
    image: &[u8],
    expected: InPlace,
) -> Result<FileStat, PublishError> {
    let terms = Terms { promise: Promise::Process, manner: Manner::Private, expected };
    replace_on(disk, path, Contents::Image(image), terms)
}

/// What [`publish_new`] puts into a file.
#[derive(Clone, Copy, Debug)]
pub enum NewFile<'a> {
    /// These bytes.
    Image(&'a [u8]),
    /// The contents of another file, of any length.
    CopyOf(&'a Path),
}

/// Puts a new file in the place of what is at `path`, durably: it has the permission bits `mode`, as far as the umask leaves
/// them, and nothing of the old file, as an installation does it. A directory that is missing gets 0700.
///
/// # Errors
///
/// As [`publish`], and [`PublishError::Overtaken`] if the file in place is not `expected`.
pub fn publish_new(
    disk: &dyn Disk,
    path: &Path,
    contents: NewFile<'_>,
    mode: u32,
    expected: InPlace,
) -> Result<FileStat, PublishError> {
    let contents = match contents {
        NewFile::Image(image) => Contents::Image(image),
        NewFile::CopyOf(from) => Contents::Copied(from),
    };
    let terms = Terms { promise: Promise::PowerCut, manner: Manner::New(mode), expected };
    replace_on(disk, path, contents, terms)
}

/// How a file is replaced.
#[derive(Clone, Copy, Debug)]
struct Terms {
    promise: Promise,
    manner: Manner,
    expected: InPlace,
}

/// What the new file is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// As the old one.
    Kept,
    /// Its owner's alone.
    Private,
    /// With these permission bits.
    New(u32),
}

/// Makes a directory (0700), and those above it, without a sync.
///
/// # Errors
///
/// As `mkdir(2)`; some of them may have been made.
pub fn make_directory(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    make_parents(disk, &dir.join("file"), Promise::Process)
}

/// What the new file holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contents<'a> {
    /// These bytes.
    Image(&'a [u8]),
    /// The contents of another file, sharing its blocks; fails where the file system cannot.
    Shared(&'a Path),
    /// The contents of another file.
    Copied(&'a Path),
}

/// What a finished replacement survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// A power cut.
    PowerCut,
    /// The end of this process, and on common file systems a power cut but for the last moments.
    Process,
    /// The end of this process; what a power cut leaves may be neither the old file nor the new one.
    Readers,
}

/// Replaces the file at `path`: temporary file, sync, rename, sync of the directory.
pub(crate) fn replace(
    disk: &dyn Disk,
    path: &Path,
    contents: Contents<'_>,
    promise: Promise,
) -> Result<FileStat, PublishError> {
    let terms = Terms { promise, manner: Manner::Kept, expected: InPlace::Anything };
    replace_on(disk, path, contents, terms)
}

fn replace_on(
    disk: &dyn Disk,
    path: &Path,
    contents: Contents<'_>,
    terms: Terms,
) -> Result<FileStat, PublishError> {
    replace_by(disk, path, contents, terms, None)
}

fn replace_by(
    disk: &dyn Disk,
    path: &Path,
    contents: Contents<'_>,
    terms: Terms,
    preallocated: Option<PreallocatedFile>,
) -> Result<FileStat, PublishError> {
    let target = resolve::target(disk, path).map_err(|source| PublishError::NotReplaced {
        step: "follow the symlink",
        path: path.to_owned(),
        source,
    })?;
    let attempt = Attempt { disk, target: &target, terms };
    let old = attempt.old()?;
    if let Some(PreallocatedFile { mut file }) = preallocated {
        // A name in the same file system is in memory, too, where a sync makes nothing durable.
        let terms = Terms { promise: Promise::Process, ..terms };
        let attempt = Attempt { terms, ..attempt };
        if let Ok((temp, identity)) = attempt.fill_and_name(&mut *file, contents, old) {
            return attempt.put_in_place(&temp, &*file, identity);
        }
    }
    let (temp, mut file) = attempt.create()?;
    match attempt.fill(&mut *file, contents, old) {
        Ok(identity) => attempt.put_in_place(&temp, &*file, identity),
        Err(error) => {
            attempt.discard(&temp);
            Err(error)
        }
    }
}

/// One replacement of one target.
struct Attempt<'a> {
    disk: &'a dyn Disk,
    target: &'a Path,
    terms: Terms,
}

impl Attempt<'_> {
    fn not_replaced(&self, step: &'static str) -> impl FnOnce(io::Error) -> PublishError {
        let path = self.target.to_owned();
        move |source| PublishError::NotReplaced { step, path, source }
    }

    /// Describes the file in place; makes its directory if there is none.
    fn old(&self) -> Result<Option<FileStat>, PublishError> {
        match self.disk.stat(self.target) {
            Ok(stat) if stat.is_dir() => {
                Err(self.not_replaced("replace")(io::ErrorKind::IsADirectory.into()))
            }
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                resolve::make_parents(self.disk, self.target, self.terms.promise)
                    .map_err(self.not_replaced("make the directory of"))?;
                Ok(None)
            }
            Err(error) => Err(self.not_replaced("look at")(error)),
        }
    }

    /// Creates the temporary file in the target's own directory.
    fn create(&self) -> Result<(PathBuf, Box<dyn DiskFile>), PublishError> {
        let temp = self.temporary_name()?;
        let mode = match self.terms.manner {
            Manner::New(mode) => mode,
            Manner::Kept | Manner::Private => 0o600,
        };
        match self.disk.create(&temp, mode) {
            Ok(file) => Ok((temp, file)),
            Err(error) => Err(self.not_created(&temp, error)),
        }
    }

    /// Chooses a name for a temporary file.
    fn temporary_name(&self) -> Result<PathBuf, PublishError> {
        let token = self.disk.token().map_err(self.not_replaced("create"))?;
        temporary_name(self.target, token).map_err(self.not_replaced("create"))
    }

    /// Removes what a failed call may have left at `temp`.
    fn not_created(&self, temp: &Path, error: io::Error) -> PublishError {
        // A name that was there before is somebody else's; after any other error it may be ours.
        if error.kind() != io::ErrorKind::AlreadyExists {
            self.discard(temp);
        }
        self.not_replaced("create")(error)
    }

    /// Writes a file that has no name and gives it one; returns its name and which file it is.
    fn fill_and_name(
        &self,
        file: &mut dyn DiskFile,
        contents: Contents<'_>,
        old: Option<FileStat>,
    ) -> Result<(PathBuf, FileStat), PublishError> {
        let identity = self.fill(file, contents, old)?;
        let temp = self.temporary_name()?;
        match file.give_name(&temp) {
            Ok(()) => Ok((temp, identity)),
            Err(error) => Err(self.not_created(&temp, error)),
        }
    }

    /// Writes the new file and makes it durable; returns which file it is.
    fn fill(
        &self,
        file: &mut dyn DiskFile,
        contents: Contents<'_>,
        old: Option<FileStat>,
    ) -> Result<FileStat, PublishError> {
        if let Some(old) = old.filter(|old| old.is_file() && self.terms.manner == Manner::Kept) {
            file.copy_attributes(self.target, &old)
                .map_err(self.not_replaced("keep the attributes of"))?;
        }
        match contents {
            // A file system that finds no room only when it writes back says so to the sync, before the rename.
            Contents::Image(image) => file.write_at(0, image),
            Contents::Shared(from) => file.share_from(from),
            Contents::Copied(from) => file.copy_from(from),
        }
        .map_err(self.not_replaced("write"))?;
        if self.terms.promise == Promise::PowerCut {
            file.sync().map_err(self.not_replaced("sync"))?;
        }
        file.stat().map_err(self.not_replaced("look at"))
    }

    /// Renames the new file over the old one and makes the name durable.
    fn put_in_place(
        &self,
        temp: &Path,
        file: &dyn DiskFile,
        new: FileStat,
    ) -> Result<FileStat, PublishError> {
        if let InPlace::Still(expected) = self.terms.expected
            && self.disk.stat(self.target).ok() != expected
        {
            self.discard(temp);
            return Err(self.overtaken());
        }
        let renamed = match self.terms.expected {
            InPlace::Still(expected) if self.terms.promise == Promise::Process => {
                self.put_in_place_of(temp, file, new, expected)?
            }
            InPlace::Still(_) | InPlace::Anything => self.rename(temp),
        };
        if let Err(source) = renamed {
            // A network file system may have renamed and lost the answer.
            match self.disk.stat(self.target) {
                // After an exchange the old file is left.
                Ok(stat) if stat.identity == new.identity => self.discard(temp),
                // A temporary file that is still there to be removed was not renamed, unless it is the old one.
                Err(error)
                    if error.kind() != io::ErrorKind::NotFound
                        && (self.terms.promise == Promise::Readers
                            || self.disk.remove(temp).is_err()) =>
                {
                    return Err(PublishError::Unknown { path: self.target.to_owned(), source });
                }
                Ok(_) | Err(_) => {
                    self.discard(temp);
                    return Err(self.not_replaced("replace")(source));
                }
            }
        }
        if self.terms.promise == Promise::PowerCut {
            self.disk.sync_dir(resolve::directory_of(self.target)).map_err(|source| {
                PublishError::NotDurable { path: self.target.to_owned(), source }
            })?;
        }
        // The rename changes the inode's ctime. Without the later look a caller that compares takes its own
        // file for an outside edit once, and reads it again: no harm.
        Ok(file.stat().unwrap_or(new))
    }

    fn overtaken(&self) -> PublishError {
        let source = io::Error::other("it is another file now");
        PublishError::Overtaken { path: self.target.to_owned(), source }
    }

    /// Gives the new file the name of `expected` and of no other file, as far as the file system can; returns what the disk
    /// said to it.
    fn put_in_place_of(
        &self,
        temp: &Path,
        file: &dyn DiskFile,
        new: FileStat,
        expected: Option<FileStat>,
    ) -> Result<io::Result<()>, PublishError> {
        let Some(expected) = expected else {
            return match self.disk.link(temp, self.target) {
                Ok(()) => {
                    self.discard(temp);
                    Ok(Ok(()))
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.discard(temp);
                    Err(self.overtaken())
                }
                Err(_) => Ok(self.disk.rename(temp, self.target)),
            };
        };
        // As ext4 does it before a rename over another file; an exchange begins to write nothing.
        file.start_writeback();
        // The file in place comes first: whoever watches the directory sees the new file's arrival last.
        match self.disk.exchange(self.target, temp) {
            Ok(()) => {}
            // Somebody has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.discard(temp);
                return Err(self.overtaken());
            }
            Err(error) if is_no_exchange(&error) => {
                return Ok(self.disk.rename(temp, self.target));
            }
            Err(error) => return Ok(Err(error)),
        }
        let unknown = |source| PublishError::Unknown { path: self.target.to_owned(), source };
        let came = match self.disk.stat(temp) {
            // The exchange itself changes the ctime.
            Ok(stat) if FileStat { ctime_ns: expected.ctime_ns, ..stat } == expected => None,
            // Who tidies up has removed it, and leaves new files alone.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other.map_err(unknown)?.identity),
        };
        let Some(mut held) = came else {
            self.discard(temp);
            return Ok(Ok(()));
        };
        // What came is put back, unless others have replaced the file once more: then theirs stays.
        let mut in_place = new.identity;
        loop {
            self.disk.exchange(self.target, temp).map_err(unknown)?;
            let came = self.disk.stat(temp).map_err(unknown)?.identity;
            if came == in_place {
                break;
            }
            (in_place, held) = (held, came);
        }
        self.discard(temp);
        Err(self.overtaken())
    }

    /// Gives the new file the old one's name, in one step.
    fn rename(&self, temp: &Path) -> io::Result<()> {
        if self.terms.promise == Promise::Readers {
            match self.disk.exchange(temp, self.target) {
                Ok(()) => {
                    // What has the temporary name now is the old file.
                    self.discard(temp);
                    return Ok(());
                }
                Err(error) if is_no_exchange(&error) || error.kind() == io::ErrorKind::NotFound => {
                }
                // It may have happened: a rename would put the old file back.
                Err(error) => return Err(error),
            }
        }
        self.disk.rename(temp, self.target)
    }

    /// Removes the temporary file of a failed attempt. One that stays is found by [`remove_stale`] later.
    fn discard(&self, temp: &Path) {
        match self.disk.remove(temp) {
            Ok(()) | Err(_) => {}
        }
    }
}

/// Returns whether two files cannot exchange their names on this file system, or where system calls are filtered.
fn is_no_exchange(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), Unsupported | InvalidInput | PermissionDenied | CrossesDevices)
}

/// Returns the name of a temporary file for `target`: hidden, so that nothing takes it for a database.
pub(crate) fn temporary_name(target: &Path, token: u64) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temp = OsString::from(".");
    temp.push(name);
    temp.push(format!("{}{token:016x}", stale::MARK));
    Ok(target.with_file_name(temp))
}
