//! Everything is to be written: what the keeper has gathered goes first, in his class, or the flusher would find it.

use std::ffi::c_int;

use preload::{NextFunction, fail};

use crate::handover;

type Sync = unsafe extern "C-unwind" fn();
type Syncfs = unsafe extern "C-unwind" fn(c_int) -> c_int;

// SAFETY: the type is that of `unistd.h`.
static SYNC: NextFunction<Sync> = unsafe { NextFunction::named(c"sync") };
// SAFETY: the type is that of `unistd.h`.
static SYNCFS: NextFunction<Syncfs> = unsafe { NextFunction::named(c"syncfs") };

pub(crate) fn prepare() {
    SYNC.prepare();
    SYNCFS.prepare();
}

/// Writes all file systems, what was handed over first.
///
/// # Safety
///
/// As of `sync(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sync() {
    handover::wait_for_all();
    if let Some(next) = SYNC.get() {
        // SAFETY: it has no arguments.
        unsafe { next() };
    }
}

/// Writes the file system that `descriptor` is on, what was handed over first.
///
/// # Safety
///
/// As of `syncfs(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syncfs(descriptor: c_int) -> c_int {
    handover::wait_for_all();
    let Some(next) = SYNCFS.get() else { return fail(libc::ENOSYS) };
    // SAFETY: the caller's own argument goes to the function it called.
    unsafe { next(descriptor) }
}
