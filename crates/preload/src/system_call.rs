//! System calls without the C library's functions around them: those may be ours or somebody's, and many are points where a thread may be cancelled (pthreads(7)).

use std::ffi::{c_int, c_long};

/// Makes a system call. All arguments are as wide as a register: what the C library passes on is.
///
/// # Safety
///
/// As of the call of this number.
pub unsafe fn system_call(number: c_long, arguments: [usize; 6]) -> c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the caller promises it.
    unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) }
}

/// Returns a number as an argument: a negative one stays so.
#[must_use]
pub const fn argument(number: c_int) -> usize {
    // The lower half of a register, and the sign in all of the upper one.
    (number as isize).cast_unsigned()
}
