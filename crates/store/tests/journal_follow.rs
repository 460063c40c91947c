//! Journals that are read while they are written.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]
#![expect(clippy::disallowed_methods, reason = "damage is done to the file directly")]

use std::path::Path;

use proptest::prelude::*;
use unjank_store::disk;
use unjank_store::journal::{Journal, JournalError, JournalFollower, JournalNews};

/// Returns what a look finds: the base where it begins anew, and the records.
fn looked(follower: &mut JournalFollower, path: &Path) -> (Option<u64>, Vec<Vec<u8>>) {
    let (mut begun, mut records) = (None, Vec::new());
    follower
        .look(&*disk::real(), path, &mut |news| match news {
            JournalNews::Begun { base } => begun = Some(base),
            JournalNews::Record(bytes) => records.push(bytes.to_vec()),
        })
        .unwrap();
    (begun, records)
}

/// What happens to a journal.
#[derive(Clone, Debug)]
enum Op {
    Append(Vec<usize>),
    AppendCached(Vec<usize>),
    Sync,
    Reset(u64),
    Restart(u64, Vec<usize>),
    OpenAgain,
    Look,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Longer than what is read at a time, too.
    let lengths = || prop::collection::vec(prop_oneof![0_usize..400, 60_000_usize..140_000], 0..4);
    let op = prop_oneof![
        3 => lengths().prop_map(Op::Append),
        6 => lengths().prop_map(Op::AppendCached),
        1 => Just(Op::Sync),
        1 => (0_u64..99).prop_map(Op::Reset),
        1 => (0_u64..99, lengths()).prop_map(|(base, lengths)| Op::Restart(base, lengths)),
        1 => Just(Op::OpenAgain),
        4 => Just(Op::Look),
    ];
    prop::collection::vec(op, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn each_record_is_given_once_and_in_order(ops in ops()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let disk = disk::real();
        let mut journal = Journal::open(&*disk, &path).unwrap().0;
        let mut follower = JournalFollower::new(1 << 20);
        let (mut begun, mut expected, mut number) = (Some(0), Vec::new(), 0_u8);
        let mut make = |lengths: &[usize]| -> Vec<Vec<u8>> {
            let mut one = |length: &usize| {
                number = number.wrapping_add(1);
                vec![number; *length]
            };
            lengths.iter().map(&mut one).collect()
        };
        for op in ops.into_iter().chain([Op::Look]) {
            match op {
                Op::Append(lengths) | Op::AppendCached(lengths) if lengths.is_empty() => {}
                Op::Append(lengths) => {
                    let records = make(&lengths);
                    let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
                    journal.append(&slices).unwrap();
                    expected.extend(records);
                }
                Op::AppendCached(lengths) => {
                    let records = make(&lengths);
                    let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
                    journal.append_cached(&slices).unwrap();
                    expected.extend(records);
                }
                Op::Sync => journal.sync().unwrap(),
                Op::Reset(base) => {
                    journal.reset(base).unwrap();
                    (begun, expected) = (Some(base), Vec::new());
                }
                Op::Restart(base, lengths) => {
                    let records = make(&lengths);
                    let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
                    journal.restart(&*disk, base, &slices).unwrap();
                    (begun, expected) = (Some(base), records);
                }
                Op::OpenAgain => {
                    drop(journal);
                    journal = Journal::open(&*disk, &path).unwrap().0;
                }
                Op::Look => {
                    let found = looked(&mut follower, &path);
                    prop_assert_eq!(found.0, begun.take());
                    prop_assert!(found.1 == expected, "{} for {}", found.1.len(), expected.len());
                    expected = Vec::new();
                }
            }
        }
    }

    #[test]
    fn a_frame_that_is_written_in_part_is_given_when_it_is_whole(cut in 0_usize..5000) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = Journal::open(&*disk::real(), &path).unwrap().0;
        journal.append_cached(&[b"first"]).unwrap();
        let before = std::fs::read(&path).unwrap();
        journal.append_cached(&[&[7; 4800]]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let changed = whole.iter().zip(&before).position(|(now, then)| now != then).unwrap();
        let mut part = before.clone();
        let end = (changed + cut).min(whole.len()).min(part.len());
        part[changed..end].copy_from_slice(&whole[changed..end]);
        std::fs::write(&path, &part).unwrap();
        let mut follower = JournalFollower::new(1 << 20);
        let mut records = looked(&mut follower, &path).1;
        std::fs::write(&path, &whole).unwrap();
        records.extend(looked(&mut follower, &path).1);
        prop_assert_eq!(records, [b"first".to_vec(), vec![7; 4800]]);
    }
}

#[test]
fn records_behind_damage_are_given_and_long_ones_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut journal = Journal::open(&*disk::real(), &path).unwrap().0;
    for length in [10, 20, 3000, 30] {
        journal.append(&[&vec![7; length]]).unwrap();
    }
    let mut bytes = std::fs::read(&path).unwrap();
    // In the second frame: each durable one has blocks of its own.
    bytes[8192 + 512 + 44] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let mut follower = JournalFollower::new(2999);
    assert_eq!(looked(&mut follower, &path), (Some(0), vec![vec![7; 10], vec![7; 30]]));
    assert_eq!(looked(&mut follower, &path), (None, Vec::new()));
}

#[test]
fn what_is_no_journal_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut follower = JournalFollower::new(100);
    let mut look = || follower.look(&*disk::real(), &path, &mut |_| {}).unwrap_err();
    assert!(matches!(look(), JournalError::NotOpened { .. }));
    std::fs::write(&path, [0xa5; 20_000]).unwrap();
    assert!(matches!(look(), JournalError::NotAJournal { .. }));
    assert!(!follower.has_begun());
}

#[test]
fn a_frame_that_begins_everywhere_takes_no_time_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut journal = Journal::open(&*disk::real(), &path).unwrap().0;
    journal.append(&[b"first"]).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let header = bytes[8192..8192 + 40].to_vec();
    bytes.truncate(8192 + 512);
    for place in 0..100_000_u32 {
        let mut frame = header.clone();
        frame[4..8].copy_from_slice(&(40 * (99_999 - place)).to_le_bytes());
        frame[24] = 1;
        bytes.extend(frame);
    }
    std::fs::write(&path, &bytes).unwrap();
    // To read the rest for each would take minutes.
    let mut follower = JournalFollower::new(100);
    assert_eq!(looked(&mut follower, &path).1, [b"first"]);
}
