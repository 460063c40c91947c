//! Files that are closed: the last moment at which their writer is known.

use std::ffi::c_int;

use preload::{NextFunction, fail};

use crate::handover::{self, FailedWriteback};

type Close = unsafe extern "C-unwind" fn(c_int) -> c_int;
type Stream = unsafe extern "C-unwind" fn(*mut libc::FILE) -> c_int;
type Pending = unsafe extern "C-unwind" fn(*mut libc::FILE) -> usize;

// SAFETY: the type is that of `unistd.h`.
static CLOSE: NextFunction<Close> = unsafe { NextFunction::named(c"close") };
// SAFETY: the type is that of `stdio.h`.
static FCLOSE: NextFunction<Stream> = unsafe { NextFunction::named(c"fclose") };
// SAFETY: the type is that of `stdio.h`.
static FFLUSH: NextFunction<Stream> = unsafe { NextFunction::named(c"fflush") };
// SAFETY: the type is that of `stdio_ext.h`.
static PENDING: NextFunction<Pending> = unsafe { NextFunction::named(c"__fpending") };

pub(crate) fn prepare() {
    CLOSE.prepare();
    for function in [&FCLOSE, &FFLUSH] {
        function.prepare();
    }
    PENDING.prepare();
}

/// Closes a descriptor; what was written to its file is on its way.
///
/// # Safety
///
/// As of `close(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(descriptor: c_int) -> c_int {
    let file = handover::written(descriptor);
    let started = file.map_or(Ok(()), |file| handover::hand_over(descriptor, file));
    let Some(next) = CLOSE.get() else { return fail(libc::ENOSYS) };
    // SAFETY: the caller's own argument goes to the function it called.
    let closed = unsafe { next(descriptor) };
    match started {
        Ok(()) => closed,
        Err(FailedWriteback(number)) => fail(number),
    }
}

/// Closes a stream; what was written to its file is on its way.
///
/// # Safety
///
/// As of `fclose(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fclose(stream: *mut libc::FILE) -> c_int {
    // SAFETY: the caller says that it is an open stream.
    let flushed = if stream.is_null() { Ok(()) } else { unsafe { hand_over_stream(stream) } };
    let Some(next) = FCLOSE.get() else { return fail(libc::ENOSYS) };
    // SAFETY: the caller's own argument goes to the function it called.
    let closed = unsafe { next(stream) };
    match flushed {
        Ok(()) => closed,
        // What could not be written is lost: `fclose` would have said so.
        Err(Unwritten(number)) => fail(number),
    }
}

/// What a stream held could not be written, for this reason.
struct Unwritten(c_int);

/// Hands over the file of a stream that is about to be closed, with what it still holds.
///
/// # Safety
///
/// It is an open stream, and this thread's to close.
unsafe fn hand_over_stream(stream: *mut libc::FILE) -> Result<(), Unwritten> {
    // SAFETY: the caller promises it.
    let descriptor = unsafe { descriptor_of(stream) };
    if !handover::is_open_for_writing(descriptor) {
        return Ok(());
    }
    let (Some(pending), Some(flush)) = (PENDING.get(), FFLUSH.get()) else { return Ok(()) };
    // SAFETY: the caller promises it.
    if unsafe { pending(stream) } > 0 {
        let before = preload::errno();
        // SAFETY: the caller promises it. The thread may be cancelled in it: nothing is held here that would have to be given back.
        if unsafe { flush(stream) } != 0 {
            return Err(Unwritten(preload::errno()));
        }
        preload::set_errno(before);
    }
    let file = handover::written(descriptor);
    let started = file.map_or(Ok(()), |file| handover::hand_over(descriptor, file));
    started.map_err(|FailedWriteback(number)| Unwritten(number))
}

/// Returns the descriptor of a stream; one in memory has none, which is -1.
///
/// # Safety
///
/// It is an open stream.
unsafe fn descriptor_of(stream: *mut libc::FILE) -> c_int {
    let _kept = preload::SavedErrno::keep();
    // SAFETY: the caller promises it.
    unsafe { libc::fileno(stream) }
}
