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

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[cfg(test)]
mod tests {
    use super::keep_freed;

    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(7).unwrap().parse().unwrap()
    }

    /// Makes and drops a hundred times what a commit needs at once: 512 pages.
    fn make_and_drop_images() -> u64 {
        let before = faults();
        for byte in 0..100 {
            let images = [(); 4].map(|()| std::hint::black_box(vec![byte | 1_u8; 512 << 10]));
            assert_eq!(images.iter().map(Vec::len).sum::<usize>(), 2 << 20);
        }
        faults() - before
    }

    #[test]
    fn an_image_takes_the_pages_of_the_one_before() {
        let fresh = make_and_drop_images();
        assert!(fresh > 10_000, "the heap keeps its pages anyway: {fresh} page faults");
        keep_freed(4 << 20, 8 << 20);
        make_and_drop_images();
        let kept = make_and_drop_images();
        assert!(kept < 1_000, "{kept} page faults");
    }
}
