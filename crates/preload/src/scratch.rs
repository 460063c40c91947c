//! Memory for a path that is no stack's: a signal handler may run on a stack of a few thousand bytes.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest path that is looked at; longer ones are nobody's.
pub const PATH_MAX: usize = 4096;

/// How many threads and handlers find memory at the same time without asking the kernel for it.
const SLOTS: usize = 16;

struct Slot {
    is_taken: AtomicBool,
    bytes: UnsafeCell<[u8; PATH_MAX]>,
}

// SAFETY: the bytes are used by the one who has set the flag, until it takes it back.
unsafe impl Sync for Slot {}

static POOL: [Slot; SLOTS] =
    [const { Slot { is_taken: AtomicBool::new(false), bytes: UnsafeCell::new([0; PATH_MAX]) } };
        SLOTS];

/// Room for a path, of its holder alone.
///
/// A handler that interrupts a holder and jumps out of it (`siglongjmp`) and a child that is forked meanwhile leave one taken; when none is left, the kernel gives others.
#[derive(Debug)]
pub(crate) struct Scratch {
    bytes: *mut u8,
    /// The slot of the pool; `None` is memory that goes back to the kernel.
    slot: Option<usize>,
}

impl Scratch {
    /// Takes room, if there is any. `errno` may change.
    pub(crate) fn take() -> Option<Scratch> {
        for (at, slot) in POOL.iter().enumerate() {
            if !slot.is_taken.swap(true, Ordering::Acquire) {
                return Some(Scratch { bytes: slot.bytes.get().cast(), slot: Some(at) });
            }
        }
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses where, so that nobody's memory is touched.
        let made = unsafe { libc::mmap(std::ptr::null_mut(), PATH_MAX, access, kind, -1, 0) };
        (made != libc::MAP_FAILED).then_some(Scratch { bytes: made.cast(), slot: None })
    }

    pub(crate) fn bytes(&self) -> &[u8; PATH_MAX] {
        // SAFETY: it is so long and initialized, and is this holder's until it is dropped.
        unsafe { &*self.bytes.cast() }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8; PATH_MAX] {
        // SAFETY: as in `bytes`; the holder is borrowed alone.
        unsafe { &mut *self.bytes.cast() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        match self.slot.and_then(|at| POOL.get(at)) {
            Some(slot) => slot.is_taken.store(false, Ordering::Release),
            // SAFETY: it was mapped by `take`, and nobody else has its address.
            None => drop(unsafe { libc::munmap(self.bytes.cast::<c_void>(), PATH_MAX) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_more_than_the_pool_has() {
        let mut all: Vec<Scratch> = (0..SLOTS + 3).map(|_| Scratch::take().unwrap()).collect();
        for (number, scratch) in (0_u8..).zip(&mut all) {
            scratch.bytes_mut().fill(number);
        }
        for (number, scratch) in (0_u8..).zip(&all) {
            assert!(scratch.bytes().iter().all(|byte| *byte == number));
        }
        drop(all);
        assert!(Scratch::take().unwrap().slot.is_some());
    }
}
