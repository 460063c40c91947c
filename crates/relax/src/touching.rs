//! The calls that change a file which has a name already: KDE notes that a file was opened again by the time of its link.

use std::ffi::{c_char, c_int, c_void};

use libc::AT_FDCWD;

use crate::guarded::guarded;

guarded! {
    truncate(path: *const c_char, len: i64) unless AT_FDCWD, path;
    truncate64(path: *const c_char, len: i64) unless AT_FDCWD, path;
    utime(path: *const c_char, times: *const c_void) unless AT_FDCWD, path;
    utimes(path: *const c_char, times: *const c_void) unless AT_FDCWD, path;
    lutimes(path: *const c_char, times: *const c_void) unless AT_FDCWD, path;
    futimes(file: c_int, times: *const c_void) unless , file file;
    futimens(file: c_int, times: *const c_void) unless , file file;
}

/// The names and the descriptor of `utimensat`, whose name may be null: then it is about the descriptor.
mod at {
    use super::*;

    type Utimensat =
        unsafe extern "C-unwind" fn(c_int, *const c_char, *const c_void, c_int) -> c_int;
    // SAFETY: the type is that of `sys/stat.h`.
    static UTIMENSAT: preload::NextFunction<Utimensat> =
        unsafe { preload::NextFunction::named(c"utimensat") };

    /// Is the C library's function of this name, except for what must not be written.
    ///
    /// # Safety
    ///
    /// As of `utimensat(2)`.
    #[unsafe(no_mangle)]
    unsafe extern "C-unwind" fn utimensat(
        at: c_int,
        path: *const c_char,
        times: *const c_void,
        flags: c_int,
    ) -> c_int {
        let is_of_descriptor = path.is_null() || flags & libc::AT_EMPTY_PATH != 0;
        let is_guarded = (is_of_descriptor && crate::lists::is_guarded_file(at))
            || (!path.is_null() && crate::lists::is_guarded_name(at, path));
        if is_guarded {
            return preload::fail(libc::EACCES);
        }
        let Some(next) = UTIMENSAT.get() else { return preload::fail(libc::ENOSYS) };
        // SAFETY: the caller's own arguments go to the function it called.
        unsafe { next(at, path, times, flags) }
    }
}
