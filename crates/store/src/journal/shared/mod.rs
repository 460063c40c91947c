//! A journal that many processes append to at once, without a lock and without waiting for one another.
//!
//! An append is one write at the end of the file, and a look whether the file is still the one that has the name: if it
//! was replaced meanwhile, the record is appended again to the new one, under the same id, by which readers know it.
//! Whoever replaces the file ([`Owner`]) gives the old one a second name first and carries over what was appended to it
//! behind their back, so that their end at any point loses nothing either. Records that are appended while the file is
//! replaced may change places.
//!
//! A record survives the end of its writer as soon as it was appended, and a power cut once the system wrote it back or
//! the file was replaced: nothing here waits for the medium but [`Owner::replace`].

mod format;
mod owner;
mod read;

use std::io;
use std::path::{Path, PathBuf};

use super::{JournalError, too_long};
use crate::disk::{AppendFile, Disk};
use crate::publish::{directory_of, make_parents, publish_volatile, temporary_name};
use format::{Header, KNOWN_IDS, Start, WRITTEN_ONCE};

pub use owner::Owner;
pub use read::{Extent, Flaw, JournalReader, News, salvage};

/// How often an append follows a journal that is replaced under its hands.
const ATTEMPTS: usize = 64;

/// An open journal to append to.
#[derive(Debug)]
pub struct Appender {
    path: PathBuf,
    file: Box<dyn AppendFile>,
    identity: (u64, u64),
    salt: u64,
}

impl Appender {
    /// Opens the journal at `path`, or makes an empty one and the directories above it (0700).
    ///
    /// # Errors
    ///
    /// [`JournalError::NotOpened`]; [`JournalError::NotAJournal`] if its start is damaged: an [`Owner`] can replace it by
    /// what is left; [`JournalError::UnknownVersion`]. What is there stays as it is.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Appender, JournalError> {
        let not_opened = |source| JournalError::NotOpened { path: path.to_owned(), source };
        for _ in 0..ATTEMPTS {
            let file = match disk.open_append(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    create(disk, path).map_err(not_opened)?;
                    continue;
                }
                Err(error) => return Err(not_opened(error)),
            };
            let identity = file.stat().map_err(not_opened)?.identity;
            match Header::decode(&file.read_start(format::FRAMES_AT).map_err(not_opened)?) {
                Start::Header(Header { salt, .. }) => {
                    return Ok(Appender { path: path.to_owned(), file, identity, salt });
                }
                Start::Foreign(version) => {
                    return Err(JournalError::UnknownVersion { path: path.to_owned(), version });
                }
                Start::Broken => match disk.stat(path) {
                    Ok(stat) if stat.identity == identity => {
                        return Err(JournalError::NotAJournal { path: path.to_owned() });
                    }
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(not_opened(error));
                    }
                    // It was replaced since it was opened, and its bytes overwritten.
                    Ok(_) | Err(_) => {}
                },
            }
        }
        Err(not_opened(io::ErrorKind::ResourceBusy.into()))
    }

    /// Appends a record. On `Ok` it is found by every later reader, whatever becomes of this process.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotAppended`]: it is too long. [`JournalError::Unknown`]: it may be found or not, as after a disk
    /// that is full. The errors of [`Appender::open`]: the journal was replaced by something else. Others' records are
    /// not touched, and the appender can be used again.
    pub fn append(&mut self, disk: &dyn Disk, record: &[u8]) -> Result<(), JournalError> {
        let unknown = |source| JournalError::Unknown { path: self.path.clone(), source };
        let id = disk.token().map_err(unknown)?.clamp(WRITTEN_ONCE + 1, KNOWN_IDS - 1);
        for _ in 0..ATTEMPTS {
            let mut frame = Vec::with_capacity(record.len() + 64);
            if !format::push_frame(&mut frame, self.salt, id, record) {
                return Err(too_long(&self.path));
            }
            let unknown = |source| JournalError::Unknown { path: self.path.clone(), source };
            self.file.append(&frame).map_err(unknown)?;
            match disk.stat(&self.path) {
                Ok(stat) if stat.identity == self.identity => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(unknown(error));
                }
                // It was replaced, or removed by hand. The new one may have our record already, or not.
                Ok(_) | Err(_) => *self = Appender::open(disk, &self.path)?,
            }
        }
        let source = io::ErrorKind::ResourceBusy.into();
        Err(JournalError::Unknown { path: self.path.clone(), source })
    }

    /// Returns where the journal is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes an empty journal unless somebody else does.
fn create(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    make_parents(disk, path, crate::publish::Promise::Process)?;
    let header = Header { salt: disk.token()?, covered_salt: 0, covered_len: 0 }.encode();
    let temp = temporary_name(path, disk.token()?)?;
    let written = disk.create(&temp, 0o600).and_then(|mut file| file.write_at(0, &header));
    // A second name is given whole, and to one file only.
    let linked = written.and_then(|()| disk.link(&temp, path));
    // A temporary file that stays is found by `remove_stale` later.
    let _ = disk.remove(&temp);
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if cannot_link(&error) => match publish_volatile(disk, path, &header) {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::new(error.cause().kind(), error)),
        },
        other => other,
    }
}

/// Tells whether files have one name each here, as on FAT and on some network file systems.
fn cannot_link(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), Unsupported | PermissionDenied | CrossesDevices | TooManyLinks)
}

/// Returns a name beside the journal's.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    directory_of(path).join(name)
}
