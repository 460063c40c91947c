//! Files that are closed: the last moment at which their writer is known.

use std::ffi::c_int;

use preload::{Next, fail};

use crate::handover;

type Close = unsafe extern "C" fn(c_int) -> c_int;
type Fclose = unsafe extern "C" fn(*mut libc::FILE) -> c_int;

// SAFETY: the type is that of `unistd.h`.
static CLOSE: Next<Close> = unsafe { Next::named(c"close") };
// SAFETY: the type is that of `stdio.h`.
static FCLOSE: Next<Fclose> = unsafe { Next::named(c"fclose") };

pub(crate) fn prepare() {
    CLOSE.prepare();
    FCLOSE.prepare();
}

/// Closes a descriptor; what was written to its file is on its way.
///
/// # Safety
///
/// As of `close(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    if handover::is_written(descriptor) {
        handover::hand_over(descriptor);
    }
    // SAFETY: the caller's own argument goes to the function it called.
    CLOSE.get().map_or_else(|| fail(libc::ENOSYS), |next| unsafe { next(descriptor) })
}

/// Closes a stream; what was written to its file is on its way.
///
/// # Safety
///
/// As of `fclose(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn fclose(stream: *mut libc::FILE) -> c_int {
    // SAFETY: the caller says that it is a stream; one in memory has no descriptor, which is -1.
    let descriptor = if stream.is_null() { -1 } else { descriptor_of(stream) };
    // The stream still holds text that goes to the file when it is closed: the file is handed over after that, by a descriptor of our own.
    let own =
        if handover::is_open_for_writing(descriptor) { handover::reopen(descriptor) } else { -1 };
    // SAFETY: the caller's own argument goes to the function it called.
    let closed = FCLOSE.get().map_or_else(|| fail(libc::ENOSYS), |next| unsafe { next(stream) });
    if own >= 0 {
        handover::hand_over_own(own);
    }
    closed
}

fn descriptor_of(stream: *mut libc::FILE) -> c_int {
    let _kept = preload::Errno::keep();
    // SAFETY: `fclose` was promised that it is an open stream.
    unsafe { libc::fileno(stream) }
}
