//! The C library's heap.

/// Keeps memory that was freed, up to `kept_bytes` at the top of the heap, and serves blocks up to
/// `largest_bytes` from the heap instead of from mappings of their own.
///
/// A program that makes and drops a large image again and again otherwise gets fresh pages from the
/// kernel for each one, which costs more than filling them. Does nothing where the C library is not glibc.
pub fn keep_freed(kept_bytes: i32, largest_bytes: i32) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const M_TRIM_THRESHOLD: i32 = -1;
        const M_MMAP_THRESHOLD: i32 = -3;
        unsafe extern "C" {
            fn mallopt(parameter: i32, value: i32) -> i32;
        }
        // SAFETY: mallopt(3) takes any value, refuses what it does not like, and locks the heap itself.
        unsafe { mallopt(M_TRIM_THRESHOLD, kept_bytes) };
        // SAFETY: as above.
        unsafe { mallopt(M_MMAP_THRESHOLD, largest_bytes) };
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = (kept_bytes, largest_bytes);
}

/// Gives the pages of freed memory back to the system, wherever in the heap they are.
///
/// Otherwise they stay with the process, because something that is still in use lies behind them. Does nothing where the C
/// library is not glibc.
pub fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: malloc_trim(3) takes any value and locks the heap itself.
        unsafe { malloc_trim(0) };
    }
}
