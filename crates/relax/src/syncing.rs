//! The calls that wait for a disk.

use std::ffi::{c_int, c_uint};

use preload::{NextFunction, fail};

use crate::lists;

type Sync = unsafe extern "C-unwind" fn(c_int) -> c_int;
type SyncRange = unsafe extern "C-unwind" fn(c_int, i64, i64, c_uint) -> c_int;

// SAFETY: the type is that of `unistd.h`.
static FSYNC: NextFunction<Sync> = unsafe { NextFunction::named(c"fsync") };
// SAFETY: the type is that of `unistd.h`.
static FDATASYNC: NextFunction<Sync> = unsafe { NextFunction::named(c"fdatasync") };
// SAFETY: the type is that of `fcntl.h`.
static SYNC_FILE_RANGE: NextFunction<SyncRange> =
    unsafe { NextFunction::named(c"sync_file_range") };

pub(crate) fn prepare() {
    FSYNC.prepare();
    FDATASYNC.prepare();
    SYNC_FILE_RANGE.prepare();
}

/// Syncs, unless the file is one that can be made anew.
///
/// # Safety
///
/// As of `fsync(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fsync(descriptor: c_int) -> c_int {
    if lists::is_relaxed(descriptor) {
        return 0;
    }
    let Some(next) = FSYNC.get() else { return fail(libc::ENOSYS) };
    // SAFETY: the caller's own arguments go to the function it called.
    unsafe { next(descriptor) }
}

/// Syncs the data, unless the file is one that can be made anew.
///
/// # Safety
///
/// As of `fdatasync(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdatasync(descriptor: c_int) -> c_int {
    if lists::is_relaxed(descriptor) {
        return 0;
    }
    let Some(next) = FDATASYNC.get() else { return fail(libc::ENOSYS) };
    // SAFETY: the caller's own arguments go to the function it called.
    unsafe { next(descriptor) }
}

/// Starts or waits for write-back, unless the file is one that can be made anew.
///
/// # Safety
///
/// As of `sync_file_range(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sync_file_range(
    descriptor: c_int,
    offset: i64,
    len: i64,
    flags: c_uint,
) -> c_int {
    if lists::is_relaxed(descriptor) {
        return 0;
    }
    let Some(next) = SYNC_FILE_RANGE.get() else { return fail(libc::ENOSYS) };
    // SAFETY: the caller's own arguments go to the function it called.
    unsafe { next(descriptor, offset, len, flags) }
}
