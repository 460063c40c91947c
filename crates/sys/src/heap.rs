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
