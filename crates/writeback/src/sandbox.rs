//! Programs that lock themselves in: a call that their own filter does not know would be their end, so nothing is done in them any more.

use std::ffi::{c_int, c_long, c_ulong};
use std::sync::atomic::{AtomicBool, Ordering};

use preload::{NextFunction, fail};

/// Whether this process, or one that it comes from, has asked for a seccomp filter.
static CLOSED: AtomicBool = AtomicBool::new(false);

type Prctl = unsafe extern "C-unwind" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
type Syscall =
    unsafe extern "C-unwind" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

// SAFETY: the function takes any number of arguments, of which it looks at five at most; this is how they are passed.
static PRCTL: NextFunction<Prctl> = unsafe { NextFunction::named(c"prctl") };
// SAFETY: the function takes any number of arguments, of which it looks at seven at most; this is how they are passed.
static SYSCALL: NextFunction<Syscall> = unsafe { NextFunction::named(c"syscall") };

pub(crate) fn prepare() {
    PRCTL.prepare();
    SYSCALL.prepare();
    // SAFETY: the call takes a number only. Before the program begins a filter that is there lets it through: it let `exec` through.
    let mode = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_SECCOMP) };
    if mode != 0 {
        CLOSED.store(true, Ordering::Relaxed);
    }
}

/// Says whether nothing is to be done here.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Passes on, and remembers if a filter is asked for.
///
/// # Safety
///
/// As of `prctl(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    if option == libc::PR_SET_SECCOMP {
        CLOSED.store(true, Ordering::Relaxed);
    }
    let Some(next) = PRCTL.get() else { return fail(libc::ENOSYS) };
    // SAFETY: the caller's own arguments go to the function it called; those it did not give are not looked at.
    unsafe { next(option, second, third, fourth, fifth) }
}

/// Passes on, and remembers if a filter is asked for.
///
/// # Safety
///
/// As of `syscall(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    if number == libc::SYS_seccomp {
        CLOSED.store(true, Ordering::Relaxed);
    }
    let Some(next) = SYSCALL.get() else { return c_long::from(fail(libc::ENOSYS)) };
    // SAFETY: the caller's own arguments go to the function it called; those it did not give are not looked at.
    unsafe { next(number, first, second, third, fourth, fifth, sixth) }
}
