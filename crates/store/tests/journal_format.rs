//! The bytes of a journal: the golden file of version 1, and bytes from anywhere.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use unjank_store::disk::Disk;
use unjank_store::journal::{Journal, Replay};
use unjank_store::sim::SimDisk;

/// A journal as version 1 writes it, without the zeros at its end.
const GOLDEN: &[u8] = include_bytes!("golden/journal-1/two-epochs.bin");

/// Makes the journal that the golden file holds.
fn make() -> Vec<u8> {
    let disk = SimDisk::new().with_dir("/j");
    let path = Path::new("/j/journal");
    let mut journal = Journal::open(&disk, path).unwrap().0;
    journal.append(&[b"of the epoch before, and longer than what comes after"]).unwrap();
    journal.append(&[b"of the epoch before"]).unwrap();
    journal.reset(42).unwrap();
    journal.append(&[b"one", b"", b"three"]).unwrap();
    journal.append_cached(&[b"cached"]).unwrap();
    journal.append_cached(&[b"cached too"]).unwrap();
    journal.sync().unwrap();
    let mut bytes = disk.read(path).unwrap();
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
    bytes
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
fn a_file_in_which_a_frame_begins_everywhere_is_read_without_reading_the_rest_for_each() {
    let mut bytes = make();
    let all = Replay::of(&bytes).unwrap();
    let whole = bytes.len() + (4 << 20);
    while bytes.len() < whole {
        let rest = u32::try_from(whole.saturating_sub(bytes.len() + 48)).unwrap_or_default();
        bytes.extend(b"UJF1");
        bytes.extend(rest.to_le_bytes());
    }
    let begin = Instant::now();
    assert_eq!(Replay::of(&bytes).unwrap().records, all.records);
    // It took a minute.
    let length = begin.elapsed();
    assert!(length < Duration::from_secs(20), "{length:?}");
}

#[test]
fn version_1_is_written_and_read_as_ever() {
    // Run with UPDATE_GOLDEN=1 once when a new version is made, never for an old one.
    #[expect(clippy::disallowed_methods, reason = "a developer asks for a new golden file")]
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/journal-1/two-epochs.bin");
        std::fs::write(path, make()).unwrap();
    }
    assert!(make() == GOLDEN, "the bytes of version 1 have changed");
    let replay = Replay::of(GOLDEN).unwrap();
    assert_eq!(replay.base, 42);
    assert_eq!(replay.records, [&b"one"[..], b"", b"three", b"cached", b"cached too"]);
    assert_eq!(replay.damage, None);
}

#[test]
fn a_later_version_is_refused_and_left_alone() {
    let mut later = GOLDEN.to_vec();
    for slot in [0, 4096] {
        later[slot + 8] = 2;
        let sum = crc32c::crc32c(&later[slot..slot + 12]);
        let sum = crc32c::crc32c_append(sum, &later[slot + 16..slot + 40]);
        later[slot + 12..slot + 16].copy_from_slice(&sum.to_le_bytes());
    }
    assert_eq!(Replay::of(&later), None);
    let disk = SimDisk::new().with_file("/j/journal", &later);
    let error = Journal::open(&disk, Path::new("/j/journal")).unwrap_err();
    assert_eq!(error.to_string(), "journal \"/j/journal\" has the unknown version 2");
    assert_eq!(disk.read(Path::new("/j/journal")).unwrap(), later);
}

#[test]
fn a_lost_header_of_the_newer_epoch_never_brings_the_older_one_back() {
    let mut bytes = GOLDEN.to_vec();
    bytes[4096] ^= 1;
    let Replay { records, damage, .. } = Replay::of(&bytes).unwrap();
    assert_eq!(records, Vec::<Vec<u8>>::new());
    assert_eq!(damage.unwrap().salvaged.len(), 5, "all records of the newer epoch");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        let _ = Replay::of(&bytes);
    }

    #[test]
    fn damage_anywhere_makes_no_wrong_record(
        changes in prop::collection::vec((0..GOLDEN.len(), any::<u8>()), 1..6),
        cut in 0..=GOLDEN.len(),
    ) {
        let mut bytes = GOLDEN.to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(cut);
        let all = Replay::of(GOLDEN).unwrap().records;
        if let Some(Replay { records, damage, .. }) = Replay::of(&bytes) {
            let salvaged = damage.map_or(Vec::new(), |damage| damage.salvaged);
            let before = [
                b"of the epoch before, and longer than what comes after".to_vec(),
                b"of the epoch before".to_vec(),
            ];
            for record in records.iter().chain(&salvaged) {
                prop_assert!(all.contains(record) || before.contains(record));
            }
        }
    }
}
