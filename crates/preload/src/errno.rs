//! The `errno` of the calling thread, which a program must find as the call it made left it.

use std::ffi::c_int;

/// What `errno` was; it is that again when this is dropped.
#[derive(Debug)]
pub struct SavedErrno(c_int);

impl SavedErrno {
    /// Remembers it.
    #[must_use]
    pub fn keep() -> SavedErrno {
        SavedErrno(errno())
    }
}

/// Returns it. A guard would have to be given back where the thread is cancelled.
#[must_use]
pub fn errno() -> c_int {
    // SAFETY: the place is this thread's own while the thread lives.
    unsafe { *place() }
}

impl Drop for SavedErrno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

/// Sets `errno` and returns the -1 that says so.
pub fn fail(number: c_int) -> c_int {
    set_errno(number);
    -1
}

/// Sets it.
pub fn set_errno(number: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *place() = number }
}

fn place() -> *mut c_int {
    // SAFETY: the function has no precondition.
    unsafe { libc::__errno_location() }
}
