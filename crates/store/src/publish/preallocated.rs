//! A temporary file in memory that is made before it is needed, so that a publish need not wait for its pages.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::resolve::{self, directory_of};
use crate::disk::{Disk, DiskFile};

/// What is reserved beyond the expected length, in bytes: a change makes an image a little longer.
const SLACK: u64 = 4096;

/// An empty file without a name in whose memory the next image of a file is written.
///
/// Taking new pages costs most of the time of writing a small image to tmpfs. The file is used for one publish at most, and
/// nobody else has ever opened it; without a name it is gone when it is dropped or its process ends.
#[derive(Debug)]
pub struct PreallocatedFile {
    pub(super) file: Box<dyn DiskFile>,
}

impl PreallocatedFile {
    /// Makes one for an image of about `len` bytes of the file at `path`, in its directory, which has to exist.
    ///
    /// # Errors
    ///
    /// As [`Disk::create_in_memory`], above all [`io::ErrorKind::Unsupported`] if the directory is not in memory: there the
    /// pages would not be new ones later, or the bytes would be written twice. Nothing is left.
    pub fn make(disk: &dyn Disk, path: &Path, len: u64) -> io::Result<PreallocatedFile> {
        let target = resolve::target(disk, path)?;
        let file = disk.create_in_memory(directory_of(&target), len.saturating_add(SLACK))?;
        Ok(PreallocatedFile { file })
    }
}

/// The file for the next image of one file, which one thread makes and another uses. Clones are the same slot.
#[derive(Clone, Debug, Default)]
pub struct PreallocationSlot(Arc<Mutex<SlotState>>);

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Empty,
    BeingMade,
    Ready(PreallocatedFile),
}

impl PreallocationSlot {
    /// Says whether a file is to be made: there is none, and nobody else was told to make one. Then call
    /// [`PreallocationSlot::fill`].
    #[must_use]
    pub fn begin(&self) -> bool {
        let mut state = self.lock();
        let is_empty = matches!(*state, SlotState::Empty);
        if is_empty {
            *state = SlotState::BeingMade;
        }
        is_empty
    }

    /// Makes the file for an image of about `len` bytes at `path`. Without it the next image is written as usual.
    pub fn fill(&self, disk: &dyn Disk, path: &Path, len: u64) {
        let made = PreallocatedFile::make(disk, path, len);
        *self.lock() = made.map_or(SlotState::Empty, SlotState::Ready);
    }

    /// Takes the file, if it is ready; nobody waits for one that is being made.
    #[must_use]
    pub fn take(&self) -> Option<PreallocatedFile> {
        let mut state = self.lock();
        match std::mem::take(&mut *state) {
            SlotState::Ready(file) => Some(file),
            other => {
                *state = other;
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        // No state is half-way when a thread panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
