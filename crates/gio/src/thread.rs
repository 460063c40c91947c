//! Threads of the module in a program that knows nothing of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::boundary::enter;
use crate::glib;

/// What wakes a thread.
#[derive(Debug)]
pub(crate) struct ThreadWake {
    event: OwnedFd,
    /// Whether the program closed its descriptors, so that another thread is in its place.
    is_replaced: AtomicBool,
}

impl ThreadWake {
    /// Makes one that has woken its thread already.
    ///
    /// # Errors
    ///
    /// There are no descriptors left.
    pub(crate) fn new() -> io::Result<ThreadWake> {
        let event = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(ThreadWake { event, is_replaced: AtomicBool::new(false) })
    }

    /// Wakes the thread. Says no if the program closed the descriptor: the thread must be replaced, and this forgotten.
    pub(crate) fn wake(&self) -> bool {
        // It is full only if the thread has been woken more often than can be counted.
        let is_open = rustix::io::write(&self.event, &1_u64.to_ne_bytes()) != Err(Errno::BADF);
        if !is_open {
            self.is_replaced.store(true, Ordering::Release);
        }
        is_open
    }

    /// Takes that the thread was woken. Says no if the program closed the descriptor: the thread ends, and forgets its
    /// descriptors, whose numbers may be somebody else's.
    pub(crate) fn take(&self) -> bool {
        // Once another thread is in place of this one, the number may be its.
        let mut count = [0; 8];
        !self.is_replaced.load(Ordering::Acquire)
            && rustix::io::read(&self.event, &mut count) != Err(Errno::BADF)
    }
}

impl AsFd for ThreadWake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Starts a thread that receives no signals, lets no panic out, and is not taken for one that may run the program's functions.
///
/// # Errors
///
/// The kernel refused the thread.
pub(crate) fn start(name: &'static str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let blocked = BlockedSignals::new();
    let thread = sys::thread::spawn(name, move || {
        enter((), || {
            own_context();
            body();
        });
    });
    drop(blocked);
    thread.map(|_| ())
}

/// Gives this thread a main context of its own: GLib would otherwise call functions of the program in it.
fn own_context() {
    // SAFETY: the context is new.
    let context = unsafe { glib::g_main_context_new() };
    // SAFETY: the context is one, and belongs to this thread from now on.
    unsafe { glib::g_main_context_push_thread_default(context) };
}

/// All signals blocked in this thread, so that one that it starts receives none: handlers are the program's.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn new() -> BlockedSignals {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set is written and nothing else.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: the first set is filled, the second is written.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: it was written, and zeros would be a set, too.
        BlockedSignals(unsafe { before.assume_init() })
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was in force before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}
