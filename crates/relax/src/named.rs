//! The calls that give a file a name: a new version of a list comes into place with one of them.

use std::ffi::{c_char, c_int, c_uint};

use libc::{AT_FDCWD, mode_t};

use crate::guarded::guarded;

guarded! {
    rename(from: *const c_char, to: *const c_char) unless AT_FDCWD, to;
    renameat(from_at: c_int, from: *const c_char, at: c_int, to: *const c_char) unless at, to;
    renameat2(from_at: c_int, from: *const c_char, at: c_int, to: *const c_char, flags: c_uint) unless at, to;
    link(from: *const c_char, to: *const c_char) unless AT_FDCWD, to;
    linkat(from_at: c_int, from: *const c_char, at: c_int, to: *const c_char, flags: c_int) unless at, to;
    symlink(target: *const c_char, path: *const c_char) unless AT_FDCWD, path;
    symlinkat(target: *const c_char, at: c_int, path: *const c_char) unless at, path;
    mkdir(path: *const c_char, mode: mode_t) unless AT_FDCWD, path;
    mkdirat(at: c_int, path: *const c_char, mode: mode_t) unless at, path;
}
