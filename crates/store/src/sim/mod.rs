//! A simulated disk that explores every crash state and every failing call.
//!
//! What readers see and what the medium holds are kept apart. A write, a new name or a rename is seen at once and
//! *pending* until a sync; a power cut leaves any subset of what was pending. See `docs/durability.md` for what the
//! model takes for granted.

mod disk;
mod explore;
mod file;
mod interleave;
mod pass_on;
mod state;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use explore::{Explored, explore, explore_every};
pub use interleave::{interleave, interleave_every};

use crate::disk::LogFile;
use interleave::Turn;
use state::{CallExtent, Plan, State};

/// How much of a call takes place although it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// None of it. A sync drops what was pending: readers still see it, and no later sync writes it.
    Nothing,
    /// A part: half the bytes, half of what was pending.
    Partial,
    /// All of it; only the answer is wrong.
    Whole,
}

/// A disk in memory. Clones share it; [`SimDisk::fork`] copies it.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    /// Whose calls these are, where the order of calls is planned.
    turn: Option<Turn>,
}

impl SimDisk {
    /// Returns an empty disk that fails nothing.
    #[must_use]
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// Puts a durable file with mode 0600 at `path`, and directories above it.
    #[must_use]
    pub fn with_file(self, path: impl AsRef<Path>, contents: &[u8]) -> SimDisk {
        self.lock().seed_file(path.as_ref(), contents);
        self
    }

    /// Puts a durable directory at `path`, and those above it.
    #[must_use]
    pub fn with_dir(self, path: impl AsRef<Path>) -> SimDisk {
        self.lock().seed_dir(path.as_ref());
        self
    }

    /// Puts a directory at `path` that is in memory, as a runtime directory is: a power cut empties it. There is one.
    #[must_use]
    pub fn with_memory(self, path: impl AsRef<Path>) -> SimDisk {
        let number = self.lock().seed_dir(path.as_ref());
        self.lock().memory = Some(number);
        self
    }

    /// Puts a durable symlink at `path` that points to `target`.
    #[must_use]
    pub fn with_link(self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> SimDisk {
        self.lock().seed_link(path.as_ref(), target.as_ref());
        self
    }

    /// Lets files share blocks, as btrfs and xfs do.
    #[must_use]
    pub fn with_sharing(self) -> SimDisk {
        self.lock().shares = true;
        self
    }

    /// Makes call number `call` (the first since the disk was made is 0) fail with `errno`, and those after it work.
    pub fn fail_call(&self, call: u64, errno: i32, effect: FaultEffect) {
        self.lock().plan.fail = Some((call, errno, effect));
    }

    /// Makes call number `call` and all after it fail with `errno`. That call is still under way when a power cut
    /// comes: any part of it may have reached the medium.
    pub(crate) fn stop_at(&self, call: u64, errno: i32) {
        self.lock().plan.stop = Some((call, errno));
    }

    /// Makes all calls work from now on.
    pub fn heal(&self) {
        self.lock().plan = Plan::default();
    }

    /// Returns how many calls were made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.lock().history.len() as u64
    }

    /// Returns the calls that were made, as text.
    #[must_use]
    pub fn history(&self) -> Vec<String> {
        self.lock().history.clone()
    }

    /// Forgets the calls that were made, so that the next one is the first.
    #[must_use]
    pub fn with_empty_history(self) -> SimDisk {
        self.lock().history.clear();
        self
    }

    /// Returns a copy that has its own life, with what readers see, what is pending and what is planned.
    #[must_use]
    pub fn fork(&self) -> SimDisk {
        SimDisk::of(self.lock().clone())
    }

    /// Returns every disk that may be found after a power cut now.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::OutOfMemory`] if they are more than 100,000: make the protocol smaller.
    pub fn after_power_cut(&self) -> io::Result<Vec<SimDisk>> {
        let images = self.lock().after_power_cut().ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(images.into_iter().map(SimDisk::of).collect())
    }

    /// Opens a log without what [`Disk::open_log`](crate::disk::Disk::open_log) has to do first: a fault to be caught.
    ///
    /// # Errors
    ///
    /// As `open(2)`.
    pub fn open_log_unsynced(&self, path: &Path) -> io::Result<Box<dyn LogFile>> {
        let number = self.call("open_log_unsynced", path, |state, _| state.find(path))?;
        Ok(Box::new(file::SimLog::new(self.clone(), number, path)))
    }

    fn of(state: State) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(state)), turn: None }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked in another thread has failed in any case.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and lets as much of it happen as is planned.
    fn call<T>(
        &self,
        what: &str,
        path: &Path,
        apply: impl FnOnce(&mut State, CallExtent) -> io::Result<T>,
    ) -> io::Result<T> {
        // Kept until the call is over, so that calls happen in the order of the turns.
        let _turn = self.turn.as_ref().map(Turn::wait);
        let mut state = self.lock();
        let (how, error) = state.step(format!("{what} {}", path.display()));
        let result = apply(&mut state, how);
        // What a failed call returns is dropped, and may be a lock, which needs the state to be let go.
        drop(state);
        match error {
            Some(error) => Err(error),
            None => result,
        }
    }
}
