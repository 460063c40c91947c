//! How many bytes a journal puts on storage. The kernel counts them by thread, too, so that what other tests write is not counted.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "whether a skip is a failure is asked of the environment"
)]

use std::fs;

use unjank_store::disk;
use unjank_store::journal::Journal;

/// Returns how many bytes the kernel says this thread caused to be written to storage.
fn written_bytes() -> u64 {
    let io = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}

/// Returns a record as long as a change of a few settings.
fn record(fill: u8, number: u32) -> Vec<u8> {
    let mut record = vec![fill; 346];
    record.extend_from_slice(&number.to_le_bytes());
    record
}

#[test]
fn a_small_durable_append_writes_a_block_and_not_a_page() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("journal");
    let start = written_bytes();
    let mut journal = Journal::open(&*disk::real(), &path).unwrap().0;
    for number in 0..1000_u32 {
        journal.append(&[&record(7, number)]).unwrap();
    }
    let fresh = written_bytes() - start;
    journal.reset(1).unwrap();
    let start = written_bytes();
    for number in 0..1000_u32 {
        journal.append(&[&record(8, number)]).unwrap();
    }
    let again = written_bytes() - start;
    assert_eq!(Journal::open(&*disk::real(), &path).unwrap().1.records.len(), 1000);
    let block_len = disk::real().open_log(&path).unwrap().block_len();
    if block_len != 512 || fresh == 0 {
        // tmpfs writes nothing, and some file systems and devices have no direct writes of 512 bytes.
        println!("SKIPPED: no 512-byte direct writes to storage under {}", dir.path().display());
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL is set");
        return;
    }
    assert!(again <= 520_000, "1000 appends wrote {again} bytes");
    assert!(fresh <= 1_200_000, "1000 appends to a new journal wrote {fresh} bytes");
}
