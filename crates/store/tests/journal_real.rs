//! Journals on a real file system.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]
#![expect(clippy::disallowed_methods, reason = "damage is done to the file directly")]

use std::fs;
use std::path::Path;

use unjank_store::disk::{self, Disk};
use unjank_store::journal::{Journal, JournalError, Replay};

fn record(number: u32) -> Vec<u8> {
    let mut record = number.to_le_bytes().to_vec();
    record.resize(40 + usize::try_from(number % 7).unwrap() * 300, 0xa5);
    record
}

fn filled(path: &Path, count: u32) {
    let mut journal = Journal::open(&*disk::real(), path).unwrap().0;
    for number in 0..count {
        match number % 3 {
            0 => journal.append(&[&record(number)]).unwrap(),
            _ => journal.append_cached(&[&record(number)]).unwrap(),
        }
    }
    journal.sync().unwrap();
}

fn replayed(path: &Path) -> Replay {
    Journal::open(&*disk::real(), path).unwrap().1
}

#[test]
fn records_are_found_again_in_order_and_the_file_grows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b.journal");
    filled(&path, 300);
    let replay = replayed(&path);
    assert_eq!(replay.records, (0..300).map(record).collect::<Vec<_>>());
    assert_eq!(replay.damage, None);
    let mut journal = Journal::open(&*disk::real(), &path).unwrap().0;
    journal.append(&[b"more", b"", b"yet more"]).unwrap();
    let records = replayed(&path).records;
    assert_eq!(records[300..], [b"more".to_vec(), Vec::new(), b"yet more".to_vec()]);
}

#[test]
fn a_reset_empties_the_journal_in_place_and_keeps_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut journal = Journal::open(&*disk::real(), &path).unwrap().0;
    let identity = disk::real().stat(&path).unwrap().identity;
    for round in 0..5 {
        // Each round leaves longer frames behind than the next one writes.
        for number in 0..20 - round {
            journal.append(&[&record(number)]).unwrap();
        }
        journal.reset(u64::from(round) + 100).unwrap();
        assert_eq!(journal.used_bytes(), 0);
        let replay = replayed(&path);
        assert_eq!((replay.base, replay.records.len()), (u64::from(round) + 100, 0));
        assert_eq!(replay.damage, None);
    }
    journal.append(&[b"last"]).unwrap();
    assert_eq!(replayed(&path).records, [b"last"]);
    assert_eq!(disk::real().stat(&path).unwrap().identity, identity);
}

#[test]
fn a_restart_keeps_what_it_is_given_in_a_new_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let disk = disk::real();
    let mut journal = Journal::open(&*disk, &path).unwrap().0;
    journal.append(&[b"old", b"kept"]).unwrap();
    journal.restart(&*disk, 7, &[b"kept"]).unwrap();
    journal.append(&[b"new"]).unwrap();
    let replay = replayed(&path);
    assert_eq!((replay.base, &replay.records[..]), (7, &[b"kept".to_vec(), b"new".to_vec()][..]));
}

#[test]
fn no_cut_and_no_flip_makes_a_wrong_record_and_intact_ones_are_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    filled(&path, 12);
    let good = fs::read(&path).unwrap();
    let all: Vec<Vec<u8>> = (0..12).map(record).collect();
    let used = good.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for at in (0..used).step_by(37) {
        let mut flipped = good.clone();
        flipped[at] ^= 0x40;
        fs::write(&path, &flipped).unwrap();
        let Replay { records, damage, .. } = replayed(&path);
        assert_eq!(records, all[..records.len()], "flip at {at}");
        let salvaged = damage.map_or(Vec::new(), |damage| damage.salvaged);
        assert!(all.ends_with(&salvaged), "flip at {at}");
        assert!(records.len() + salvaged.len() >= 11, "flip at {at}: more than one record lost");
        fs::write(&path, &good[..at]).unwrap();
        match Journal::open(&*disk::real(), &path) {
            Ok((_, replay)) => {
                assert_eq!(replay.records, all[..replay.records.len()], "cut at {at}");
                assert_eq!(replay.damage, None, "cut at {at}");
            }
            Err(error) => {
                assert!(matches!(error, JournalError::NotAJournal { .. }), "{error:?}");
                assert!(at < 40, "cut at {at}");
            }
        }
    }
}

#[test]
fn a_damaged_journal_takes_nothing_until_it_is_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    filled(&path, 6);
    let mut bytes = fs::read(&path).unwrap();
    bytes[8192 + 50] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let disk = disk::real();
    let (mut journal, replay) = Journal::open(&*disk, &path).unwrap();
    let damage = replay.damage.unwrap();
    assert_eq!((damage.offset, damage.salvaged.len()), (8192, 5));
    assert!(matches!(journal.append(&[b"x"]), Err(JournalError::Spent { .. })));
    let kept: Vec<&[u8]> = damage.salvaged.iter().map(Vec::as_slice).collect();
    journal.restart(&*disk, 0, &kept).unwrap();
    journal.append(&[b"x"]).unwrap();
    assert_eq!(replayed(&path).records.len(), 6);
}

#[test]
fn another_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    for contents in [&b""[..], b"GVariant", &[0; 100_000], &[0xff; 9000]] {
        fs::write(&path, contents).unwrap();
        let error = Journal::open(&*disk::real(), &path).unwrap_err();
        assert!(matches!(error, JournalError::NotAJournal { .. }), "{error:?}");
        assert_eq!(fs::read(&path).unwrap(), contents);
    }
}

#[test]
fn a_writer_notices_every_way_in_which_another_one_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, path) = (disk::real(), dir.path().join("journal"));
    let open = || Journal::open(&*disk, &path).unwrap().0;
    type Act = fn(&mut Journal, &dyn Disk);
    let others: [(&str, Act); 4] = [
        ("an append", |other, _| other.append(&[b"theirs"]).unwrap()),
        ("a cached append", |other, _| other.append_cached(&[b"theirs"]).unwrap()),
        ("a reset", |other, _| other.reset(7).unwrap()),
        ("a restart", |other, disk| other.restart(disk, 7, &[]).unwrap()),
    ];
    for (what, act) in others {
        for ours_before in 0..4 {
            let mut ours = open();
            for number in 0..ours_before {
                // Synced and not, so that the next frame is at the next block or right behind.
                match number % 2 {
                    0 => ours.append(&[b"ours"]).unwrap(),
                    _ => ours.append_cached(&[b"ours"]).unwrap(),
                }
                assert!(ours.is_current(&*disk).unwrap(), "our own append");
            }
            act(&mut open(), &*disk);
            assert!(!ours.is_current(&*disk).unwrap(), "{what} after {ours_before} of ours");
            assert!(open().is_current(&*disk).unwrap(), "{what}");
        }
    }
    let mut ours = open();
    ours.append(&[b"one"]).unwrap();
    ours.append(&[b"two"]).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let first = bytes.windows(3).position(|three| three == b"one").unwrap();
    bytes[first] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let ours = open();
    assert!(ours.is_spent() && ours.is_current(&*disk).unwrap(), "damage is no other writer");
    std::fs::remove_file(&path).unwrap();
    assert!(!ours.is_current(&*disk).unwrap(), "a removed file");
}

#[test]
fn a_writer_whose_append_failed_tells_its_own_frame_from_those_of_others() {
    let sim = unjank_store::sim::SimDisk::new().with_dir("/d");
    let path = Path::new("/d/journal");
    let mut ours = Journal::open(&sim, path).unwrap().0;
    ours.append(&[b"first"]).unwrap();
    for effect in [unjank_store::sim::FaultEffect::Nothing, unjank_store::sim::FaultEffect::Whole] {
        sim.fail_call(sim.calls(), 5, effect);
        ours.append(&[b"unsure"]).unwrap_err();
        sim.heal();
        assert!(ours.is_spent() && ours.is_current(&sim).unwrap(), "{effect:?}");
        let mut other = Journal::open(&sim, path).unwrap().0;
        other.append(&[b"theirs"]).unwrap();
        assert!(!ours.is_current(&sim).unwrap(), "{effect:?}");
        ours.restart(&sim, 0, &[b"first"]).unwrap();
    }
}
