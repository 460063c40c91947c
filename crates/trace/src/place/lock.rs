//! Finds the holder of the lock for which a thread waits.

use super::memory;

/// The value that a waiter of a plain mutex passes: locked, with waiters.
const CONTENDED: u32 = 2;

/// The bits of the owner's number in a futex that the kernel hands over, and in a robust one.
const OWNER: u32 = 0x3fff_ffff;

/// Returns the thread that holds the futex at `address` for which `waiter` waits with operation `operation`.
///
/// Only a consistent glibc mutex is accepted, because condition variables and other futexes have no owner.
pub(super) fn owner(process: u32, waiter: u32, address: u64, operation: u64) -> Option<u32> {
    let value = memory::word(process, address)?;
    let owner = match operation & 0x7f {
        // LOCK_PI, WAIT_REQUEUE_PI, LOCK_PI2: the kernel itself needs the owner in the word.
        6 | 11 | 13 => value & OWNER,
        // WAIT, WAIT_BITSET.
        0 | 9 => {
            // struct __pthread_mutex_s: lock, count, owner, nusers, kind.
            let bytes = memory::bytes(process, address, 20)?;
            let field =
                |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
            let (count, owner, users, kind) = (field(4)?, field(8)?, field(12)?, field(16)?);
            let is_robust = kind & 0x10 != 0 && value & OWNER == owner;
            let is_plain = value == CONTENDED && kind & 0x7f <= 3;
            // Recursion is rare and never deep; a large count is something else's bytes.
            if !(is_robust || is_plain) || count > 1 << 16 || users == 0 || users > 1 << 16 {
                return None;
            }
            owner
        }
        _ => return None,
    };
    let is_thread = || std::path::Path::new(&format!("/proc/{process}/task/{owner}")).exists();
    (owner != 0 && owner != waiter && is_thread()).then_some(owner)
}
