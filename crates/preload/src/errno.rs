//! The `errno` of the calling thread, which a program must find as the call it made left it.

use std::ffi::c_int;

/// What `errno` was; it is that again when this is dropped.
#[derive(Debug)]
pub struct Errno(c_int);

impl Errno {
    /// Remembers it.
    #[must_use]
    pub fn keep() -> Errno {
        // SAFETY: the place is this thread's own while the thread lives.
        Errno(unsafe { *place() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        set(self.0);
    }
}

/// Sets `errno` and returns the -1 that says so.
pub fn fail(number: c_int) -> c_int {
    set(number);
    -1
}

fn set(number: c_int) {
    // SAFETY: as in `keep`.
    unsafe { *place() = number }
}

fn place() -> *mut c_int {
    // SAFETY: the function has no precondition.
    unsafe { libc::__errno_location() }
}
