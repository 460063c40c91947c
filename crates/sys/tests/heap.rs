//! An image takes the pages of the one before. In a process of its own: what other tests free changes when the heap gives pages back.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

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
    unjank_sys::heap::keep_freed(4 << 20, 8 << 20);
    make_and_drop_images();
    let kept = make_and_drop_images();
    assert!(kept < 1_000, "{kept} page faults");
}
