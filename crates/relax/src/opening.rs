//! The calls that open, make and remove files.
//!
//! `open` takes its mode only if it makes a file. It is passed on as C passes it, in a register, which holds anything if there is none;
//! then nobody reads it. That holds for the calling conventions of Linux on the processors we build for.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use libc::{AT_FDCWD, mode_t};
use preload::{NextFunction, SavedErrno, bytes, fail};

use crate::lists;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
compile_error!("nobody has looked how this processor passes the mode of `open`");

/// Whether opening with these flags can change anything.
fn writes(flags: c_int) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_CREAT | libc::O_TRUNC) != 0
}

/// Whether opening a name with these flags is refused; `errno` is set then.
fn refuses(at: c_int, name: *const c_char, flags: c_int) -> bool {
    let refuses = writes(flags) && lists::is_guarded_name(at, name);
    if refuses {
        fail(libc::EACCES);
    }
    refuses
}

/// Takes note of the lock, if that was opened. Returns the call's result.
fn opened(name: *const c_char, flags: c_int, result: c_int) -> c_int {
    if result >= 0 {
        let _kept = SavedErrno::keep();
        // SAFETY: the kernel has opened what it names.
        unsafe { lists::made(name, flags) };
    }
    result
}

/// Defines the ways to open, with the directory, the flags and the arguments of each.
macro_rules! opening {
    ($($name:ident($($argument:ident: $kind:ty),*) at $at:expr, $path:ident, flags $flags:expr;)*) => {
        mod next {
            use super::*;
            $(
                #[expect(non_upper_case_globals, reason = "the names are C's")]
                pub(super) static $name: NextFunction<unsafe extern "C-unwind" fn($($kind),*) -> c_int> =
                    // SAFETY: the type is that of `fcntl.h`, or of the C library's own checks of it.
                    unsafe { NextFunction::named($crate::guarded::c_name(concat!(stringify!($name), "\0"))) };
            )*
        }

        fn prepare_opening() {
            $(next::$name.prepare();)*
        }

        $(
            /// Is the C library's function of this name, except for what must not be written.
            ///
            /// # Safety
            ///
            /// As of that function.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
                let Some(next) = next::$name.get() else { return fail(libc::ENOSYS) };
                if refuses($at, $path, $flags) {
                    return -1;
                }
                // SAFETY: the caller's own arguments go to the function it called.
                opened($path, $flags, unsafe { next($($argument),*) })
            }
        )*
    };
}

const CREATES: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
const TEMPORARY: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;

opening! {
    open(path: *const c_char, flags: c_int, mode: mode_t) at AT_FDCWD, path, flags flags;
    open64(path: *const c_char, flags: c_int, mode: mode_t) at AT_FDCWD, path, flags flags;
    openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) at at, path, flags flags;
    openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) at at, path, flags flags;
    __open_2(path: *const c_char, flags: c_int) at AT_FDCWD, path, flags flags;
    __open64_2(path: *const c_char, flags: c_int) at AT_FDCWD, path, flags flags;
    __openat_2(at: c_int, path: *const c_char, flags: c_int) at at, path, flags flags;
    __openat64_2(at: c_int, path: *const c_char, flags: c_int) at at, path, flags flags;
    creat(path: *const c_char, mode: mode_t) at AT_FDCWD, path, flags CREATES;
    creat64(path: *const c_char, mode: mode_t) at AT_FDCWD, path, flags CREATES;
    mkstemp(path: *mut c_char) at AT_FDCWD, path, flags TEMPORARY;
    mkstemp64(path: *mut c_char) at AT_FDCWD, path, flags TEMPORARY;
    mkostemp(path: *mut c_char, flags: c_int) at AT_FDCWD, path, flags flags | TEMPORARY;
    mkostemp64(path: *mut c_char, flags: c_int) at AT_FDCWD, path, flags flags | TEMPORARY;
}

type Fopen = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut c_void;
type Freopen =
    unsafe extern "C-unwind" fn(*const c_char, *const c_char, *mut c_void) -> *mut c_void;
type Unlink = unsafe extern "C-unwind" fn(*const c_char) -> c_int;
type Unlinkat = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int) -> c_int;

// SAFETY: the type is that of `stdio.h`.
static FOPEN: NextFunction<Fopen> = unsafe { NextFunction::named(c"fopen") };
// SAFETY: the type is that of `stdio.h`.
static FOPEN64: NextFunction<Fopen> = unsafe { NextFunction::named(c"fopen64") };
// SAFETY: the type is that of `stdio.h`.
static FREOPEN: NextFunction<Freopen> = unsafe { NextFunction::named(c"freopen") };
// SAFETY: the type is that of `stdio.h`.
static FREOPEN64: NextFunction<Freopen> = unsafe { NextFunction::named(c"freopen64") };
// SAFETY: the type is that of `unistd.h`.
static UNLINK: NextFunction<Unlink> = unsafe { NextFunction::named(c"unlink") };
// SAFETY: the type is that of `unistd.h`.
static UNLINKAT: NextFunction<Unlinkat> = unsafe { NextFunction::named(c"unlinkat") };
// SAFETY: the type is that of `stdio.h`.
static REMOVE: NextFunction<Unlink> = unsafe { NextFunction::named(c"remove") };

pub(crate) fn prepare() {
    prepare_opening();
    for function in [&FOPEN, &FOPEN64] {
        function.prepare();
    }
    for function in [&FREOPEN, &FREOPEN64] {
        function.prepare();
    }
    for function in [&UNLINK, &REMOVE] {
        function.prepare();
    }
    UNLINKAT.prepare();
}

/// Whether a stream of this kind on this file is refused; `errno` is set then.
///
/// # Safety
///
/// The mode is null or ends in NUL.
unsafe fn refuses_stream(path: *const c_char, mode: *const c_char) -> bool {
    // SAFETY: the caller promises it, and the C library reads it as we do.
    let mode = unsafe { bytes(mode) };
    let writes = mode.iter().take_while(|b| **b != b',').any(|b| matches!(b, b'w' | b'a' | b'+'));
    let refuses = writes && lists::is_guarded_name(AT_FDCWD, path);
    if refuses {
        fail(libc::EACCES);
    }
    refuses
}

/// Opens a stream by `next`, unless it would write what must not be written.
///
/// # Safety
///
/// As of `fopen(3)`.
unsafe fn stream(
    next: &NextFunction<Fopen>,
    path: *const c_char,
    mode: *const c_char,
) -> *mut c_void {
    // SAFETY: modes that are passed to the C library end in NUL.
    if unsafe { refuses_stream(path, mode) } {
        return null_mut();
    }
    let Some(next) = next.get() else { return null_mut() };
    // SAFETY: the caller's own arguments go to the function it called.
    unsafe { next(path, mode) }
}

/// As [`stream`], of a stream that is there.
///
/// # Safety
///
/// As of `freopen(3)`.
unsafe fn stream_again(
    next: &NextFunction<Freopen>,
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: modes that are passed to the C library end in NUL.
    if unsafe { refuses_stream(path, mode) } {
        return null_mut();
    }
    let Some(next) = next.get() else { return null_mut() };
    // SAFETY: the caller's own arguments go to the function it called.
    unsafe { next(path, mode, stream) }
}

/// Is the C library's function, except for what must not be written.
///
/// # Safety
///
/// As of `fopen(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void {
    // SAFETY: the caller's own arguments.
    unsafe { stream(&FOPEN, path, mode) }
}

/// Is the C library's function, except for what must not be written.
///
/// # Safety
///
/// As of `fopen(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void {
    // SAFETY: the caller's own arguments.
    unsafe { stream(&FOPEN64, path, mode) }
}

/// Is the C library's function, except for what must not be written.
///
/// # Safety
///
/// As of `freopen(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's own arguments.
    unsafe { stream_again(&FREOPEN, path, mode, stream) }
}

/// Is the C library's function, except for what must not be written.
///
/// # Safety
///
/// As of `freopen(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's own arguments.
    unsafe { stream_again(&FREOPEN64, path, mode, stream) }
}

/// Whether a name may not be removed; `errno` is set then.
///
/// KDE makes room for a link before it makes it: what is not recorded must not push out what was.
fn refuses_removal(at: c_int, name: *const c_char) -> bool {
    let refuses = lists::is_guarded_name(at, name);
    if refuses {
        fail(libc::EACCES);
    }
    refuses
}

/// Takes note of a lock that is gone. Returns the call's result.
fn removed(name: *const c_char, result: c_int) -> c_int {
    if result == 0 {
        let _kept = SavedErrno::keep();
        // SAFETY: the kernel has removed what it names.
        unsafe { lists::removed(name) };
    }
    result
}

/// Is the C library's function, and sees a lock go.
///
/// # Safety
///
/// As of `unlink(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn unlink(path: *const c_char) -> c_int {
    let Some(next) = UNLINK.get() else { return fail(libc::ENOSYS) };
    if refuses_removal(AT_FDCWD, path) {
        return -1;
    }
    // SAFETY: the caller's own argument goes to the function it called.
    removed(path, unsafe { next(path) })
}

/// Is the C library's function, and sees a lock go.
///
/// # Safety
///
/// As of `remove(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn remove(path: *const c_char) -> c_int {
    let Some(next) = REMOVE.get() else { return fail(libc::ENOSYS) };
    if refuses_removal(AT_FDCWD, path) {
        return -1;
    }
    // SAFETY: the caller's own argument goes to the function it called.
    removed(path, unsafe { next(path) })
}

/// Is the C library's function, and sees a lock go.
///
/// # Safety
///
/// As of `unlinkat(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    let Some(next) = UNLINKAT.get() else { return fail(libc::ENOSYS) };
    if refuses_removal(at, path) {
        return -1;
    }
    // SAFETY: the caller's own arguments go to the function it called.
    removed(path, unsafe { next(at, path, flags) })
}
