//! Operations of `io_uring` that the recorder service records for a user.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernelwork::kernel::WorkRecord;
use trace::backend::bpf::served::ServedHangSession;

/// A session in the recorder service that can record operations of `io_uring`.
#[derive(Debug)]
pub struct ServedOperations {
    session: Arc<Mutex<ServedHangSession>>,
}

impl ServedOperations {
    pub(super) fn of_session(session: Arc<Mutex<ServedHangSession>>) -> ServedOperations {
        ServedOperations { session }
    }

    /// Has operations of marked processes recorded, or not any more.
    ///
    /// # Errors
    ///
    /// The service does not do it, or as `bpf(2)`: nothing is recorded.
    pub(crate) fn follow(&self, is_on: bool) -> io::Result<()> {
        locked(&self.session).follow_operations(is_on)
    }

    /// Gives what was recorded since the last time to `each`.
    pub(crate) fn take(&self, mut each: impl FnMut(WorkRecord<'_>)) {
        // A session that is over is noticed elsewhere, and has nothing to tell.
        let _ = locked(&self.session).take_operations(|bytes| {
            if let Some(record) = WorkRecord::read(bytes) {
                each(record);
            }
        });
    }
}

/// Uses the session alone.
pub(super) fn locked(session: &Mutex<ServedHangSession>) -> MutexGuard<'_, ServedHangSession> {
    // A connection in whatever state a panic left it in answers or fails.
    session.lock().unwrap_or_else(PoisonError::into_inner)
}
