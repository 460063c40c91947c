//! Big files: their write-back is started while they are written, so that never more than two MiB wait for the flusher or are on their way.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use preload::NextFunction;

use crate::handover::{self, FailedWriteback};
use crate::sandbox;

/// After how many bytes write-back is started; as many are on their way at a time.
const STEP: u32 = 1 << 20;
/// Descriptors above have no counter: their files are started when they are closed.
const COUNTED: usize = 1024;

static WRITTEN: [AtomicU32; COUNTED] = [const { AtomicU32::new(0) }; COUNTED];

type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, usize) -> isize;
type Pwrite = unsafe extern "C-unwind" fn(c_int, *const c_void, usize, i64) -> isize;
type Writev = unsafe extern "C-unwind" fn(c_int, *const libc::iovec, c_int) -> isize;
type Pwritev = unsafe extern "C-unwind" fn(c_int, *const libc::iovec, c_int, i64) -> isize;
type Sendfile = unsafe extern "C-unwind" fn(c_int, c_int, *mut i64, usize) -> isize;
type CopyRange =
    unsafe extern "C-unwind" fn(c_int, *mut i64, c_int, *mut i64, usize, c_uint) -> isize;

// SAFETY: the type is that of `unistd.h`.
static WRITE: NextFunction<Write> = unsafe { NextFunction::named(c"write") };
// SAFETY: the type is that of `unistd.h`.
static PWRITE: NextFunction<Pwrite> = unsafe { NextFunction::named(c"pwrite") };
// SAFETY: the type is that of `unistd.h`.
static PWRITE64: NextFunction<Pwrite> = unsafe { NextFunction::named(c"pwrite64") };
// SAFETY: the type is that of `sys/uio.h`.
static WRITEV: NextFunction<Writev> = unsafe { NextFunction::named(c"writev") };
// SAFETY: the type is that of `sys/uio.h`.
static PWRITEV: NextFunction<Pwritev> = unsafe { NextFunction::named(c"pwritev") };
// SAFETY: the type is that of `sys/uio.h`.
static PWRITEV64: NextFunction<Pwritev> = unsafe { NextFunction::named(c"pwritev64") };
// SAFETY: the type is that of `sys/sendfile.h`.
static SENDFILE: NextFunction<Sendfile> = unsafe { NextFunction::named(c"sendfile") };
// SAFETY: the type is that of `sys/sendfile.h`.
static SENDFILE64: NextFunction<Sendfile> = unsafe { NextFunction::named(c"sendfile64") };
// SAFETY: the type is that of `unistd.h`.
static COPY_FILE_RANGE: NextFunction<CopyRange> =
    unsafe { NextFunction::named(c"copy_file_range") };

pub(crate) fn prepare() {
    WRITE.prepare();
    PWRITE.prepare();
    PWRITE64.prepare();
    WRITEV.prepare();
    PWRITEV.prepare();
    PWRITEV64.prepare();
    SENDFILE.prepare();
    SENDFILE64.prepare();
    COPY_FILE_RANGE.prepare();
}

/// Counts what a call wrote, and starts write-back when it is much. Returns the call's result, or -1 with the error that an earlier
/// write has met, as write(2) allows.
fn count(descriptor: c_int, result: isize) -> isize {
    let (Ok(written), Ok(at)) = (u32::try_from(result), usize::try_from(descriptor)) else {
        return result;
    };
    let Some(counter) = WRITTEN.get(at) else { return result };
    let before = counter.fetch_add(written.min(STEP), Ordering::Relaxed);
    if before.saturating_add(written) >= STEP {
        counter.store(0, Ordering::Relaxed);
        // A pipe or a socket says that it is none, and nothing more.
        if !sandbox::is_closed()
            && let Err(FailedWriteback(number)) = handover::start(descriptor)
        {
            return failed(number);
        }
    }
    result
}

fn failed(number: c_int) -> isize {
    isize::try_from(preload::fail(number)).unwrap_or(-1)
}

fn missing() -> isize {
    failed(libc::ENOSYS)
}

/// Writes, and starts write-back when much was written.
///
/// # Safety
///
/// As of `write(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn write(descriptor: c_int, from: *const c_void, len: usize) -> isize {
    let Some(next) = WRITE.get() else { return missing() };
    // SAFETY: the caller's own arguments go to the function it called.
    count(descriptor, unsafe { next(descriptor, from, len) })
}

macro_rules! at_offset {
    ($name:ident, $next:ident, $from:ty, $len:ty) => {
        /// Writes at a place, and starts write-back when much was written.
        ///
        /// # Safety
        ///
        /// As of the function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            descriptor: c_int,
            from: *const $from,
            len: $len,
            offset: i64,
        ) -> isize {
            let Some(next) = $next.get() else { return missing() };
            // SAFETY: the caller's own arguments go to the function it called.
            count(descriptor, unsafe { next(descriptor, from, len, offset) })
        }
    };
}

at_offset!(pwrite, PWRITE, c_void, usize);
at_offset!(pwrite64, PWRITE64, c_void, usize);
at_offset!(pwritev, PWRITEV, libc::iovec, c_int);
at_offset!(pwritev64, PWRITEV64, libc::iovec, c_int);

/// Writes several parts, and starts write-back when much was written.
///
/// # Safety
///
/// As of `writev(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn writev(
    descriptor: c_int,
    parts: *const libc::iovec,
    len: c_int,
) -> isize {
    let Some(next) = WRITEV.get() else { return missing() };
    // SAFETY: the caller's own arguments go to the function it called.
    count(descriptor, unsafe { next(descriptor, parts, len) })
}

macro_rules! sending {
    ($name:ident, $next:ident) => {
        /// Copies from one descriptor to another, and starts write-back when much was written.
        ///
        /// # Safety
        ///
        /// As of `sendfile(2)`.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            to: c_int,
            from: c_int,
            at: *mut i64,
            len: usize,
        ) -> isize {
            let Some(next) = $next.get() else { return missing() };
            // SAFETY: the caller's own arguments go to the function it called.
            count(to, unsafe { next(to, from, at, len) })
        }
    };
}

sending!(sendfile, SENDFILE);
sending!(sendfile64, SENDFILE64);

/// Copies from one file to another, and starts write-back when much was written.
///
/// # Safety
///
/// As of `copy_file_range(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn copy_file_range(
    from: c_int,
    from_at: *mut i64,
    to: c_int,
    to_at: *mut i64,
    len: usize,
    flags: c_uint,
) -> isize {
    let Some(next) = COPY_FILE_RANGE.get() else { return missing() };
    // SAFETY: the caller's own arguments go to the function it called.
    count(to, unsafe { next(from, from_at, to, to_at, len, flags) })
}
