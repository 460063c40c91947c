//! A log of host commands that is damaged in any way: no record that is whole is lost, the damage is told with its size, the
//! damaged file is kept, and the log goes on.
//!
//! `LOG_DAMAGES` says how many ways.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "the test stands for bad disks")]

use std::path::Path;
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use unjank_host::log::{
    CommandOutcome, LogContents, LogEntry, LoggedProcess, Writer, read, set_aside,
};

/// Damages a part of a file; says how, and which bytes of before are as they were: those up to the first number, and those
/// from the second on, wherever they are now.
fn damage(bytes: &mut Vec<u8>, used: usize, lot: &mut Rng) -> (String, usize, usize) {
    // The headers are another test's.
    let from = 8192 + lot.usize(..used - 8192);
    let to = (from + 1 + lot.usize(..700)).min(used);
    match lot.usize(..6) {
        0 => {
            bytes[from..to].fill(0);
            (format!("zeros from {from} to {to}"), from, to)
        }
        1 | 2 => {
            bytes[from] ^= 1 << lot.usize(..8);
            (format!("a bit of {from}"), from, from + 1)
        }
        3 => {
            bytes.drain(from..to);
            (format!("{from} to {to} missing"), from, to)
        }
        4 => {
            let junk: Vec<u8> = (0..=lot.usize(..300)).map(|_| lot.u8(..)).collect();
            let len = junk.len();
            bytes.splice(from..from, junk);
            (format!("{len} bytes of junk at {from}"), from, from)
        }
        _ => {
            bytes[from..to].fill(b'x');
            (format!("{from} to {to} overwritten"), from, to)
        }
    }
}

fn entry(id: u64) -> LogEntry {
    LogEntry {
        id,
        time: SystemTime::UNIX_EPOCH + Duration::from_secs(id),
        application: "org.vim.Vim".into(),
        caller: 1,
        exe: None,
        command: vec!["git".into(), "x".repeat(usize::try_from(id * 37 % 400).unwrap())],
        directory: None,
        unrecorded: 0,
        outcome: CommandOutcome::Began(LoggedProcess { pid: 5, began: 6 }),
    }
}

fn ids(recorded: &LogContents) -> Vec<u64> {
    recorded.entries.iter().map(|entry| entry.id).collect()
}

/// Where the frame of each record lies, by its text.
fn places(bytes: &[u8], count: u64) -> Vec<(usize, usize)> {
    let magics: Vec<usize> =
        (8192..bytes.len() - 4).filter(|at| bytes[*at..at + 4] == bytes[8192..8196]).collect();
    assert_eq!(magics.len() as u64, count);
    let length = |at: usize| u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap());
    magics.iter().map(|at| (*at, at + 40 + usize::try_from(length(*at)).unwrap())).collect()
}

fn write(path: &Path, bytes: &[u8]) {
    for name in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        std::fs::remove_file(name.unwrap().path()).unwrap();
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn however_a_log_is_damaged_no_whole_record_is_lost_and_it_is_told() {
    let damages: usize = std::env::var("LOG_DAMAGES").map_or(150, |number| number.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("commands.journal");
    let disk = store::disk::real();
    let mut writer = Writer::new(disk.clone(), path.clone());
    for id in 0..40 {
        writer.begin(&entry(id)).unwrap();
    }
    drop(writer);
    let whole = std::fs::read(&path).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let places = places(&whole, 40);
    assert_eq!(read(&*disk, &path).unwrap().damaged_bytes, None);
    let mut lot = Rng::with_seed(0x5eed);
    let mut told = 0;
    for number in 0..damages {
        let mut bytes = whole.clone();
        let (how, from, to) = damage(&mut bytes, used, &mut lot);
        let how = format!("{number}: {how}");
        write(&path, &bytes);
        let is_whole = |place: &&(usize, (usize, usize))| place.1.1 <= from || place.1.0 >= to;
        let frames: Vec<(usize, (usize, usize))> = places.iter().copied().enumerate().collect();
        let wanted: Vec<u64> = frames.iter().filter(is_whole).map(|(id, _)| *id as u64).collect();
        let found = read(&*disk, &path).unwrap();
        let is_lost = |id: &&u64| !ids(&found).contains(id);
        assert_eq!(wanted.iter().filter(is_lost).collect::<Vec<_>>(), [&0; 0], "{how}");
        // Zeros instead of the last record, or its loss, look like an earlier end.
        let is_prefix = ids(&found).iter().copied().eq(0..found.entries.len() as u64);
        let looks_shorter = is_prefix && bytes.len() >= whole.len() - 700;
        let lost = 40 - found.entries.len();
        match found.damaged_bytes {
            Some(size) => {
                told += 1;
                assert!(size > 0 || how.contains("missing"), "{how}: {size}");
                assert!(size < 3000, "{how}: {size}");
            }
            None => assert!(lost == 0 || lost <= 3 && looks_shorter, "{how}: {lost} lost"),
        }
        // The service goes on, and keeps what it found.
        let mut writer = Writer::new(disk.clone(), path.clone());
        let next = writer.next_id().unwrap();
        writer.begin(&entry(next)).unwrap();
        let after = read(&*disk, &path).unwrap();
        assert_eq!(after.damaged_bytes, None, "{how}");
        assert_eq!(after.entries.len(), found.entries.len() + 1, "{how}");
        let notes = writer.take_notes().concat();
        let aside = set_aside(&*disk, &path);
        match found.damaged_bytes {
            Some(size) => {
                assert!(notes.contains(&format!("{size} bytes of it cannot be read")), "{notes}");
                assert_eq!(aside.len(), 1, "{how}");
                assert_eq!(std::fs::read(&aside[0]).unwrap(), bytes, "{how}");
            }
            None => assert!(notes.is_empty() && aside.is_empty(), "{how}: {notes}"),
        }
    }
    assert!(told * 2 > damages, "{told} of {damages}");
    println!("{damages} damages, {told} of them visible; no whole record lost");
}

#[test]
fn a_log_without_its_header_keeps_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("commands.journal");
    let disk = store::disk::real();
    let mut writer = Writer::new(disk.clone(), path.clone());
    for id in 0..5 {
        writer.begin(&entry(id)).unwrap();
    }
    drop(writer);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..8192].fill(b'#');
    write(&path, &bytes);
    let found = read(&*disk, &path).unwrap();
    assert_eq!(ids(&found), [0, 1, 2, 3, 4]);
    assert!(found.damaged_bytes.is_some());
    let mut writer = Writer::new(disk.clone(), path.clone());
    assert_eq!(writer.next_id().unwrap(), 5);
    assert_eq!(ids(&read(&*disk, &path).unwrap()), [0, 1, 2, 3, 4]);
}

#[test]
fn a_full_log_that_is_damaged_while_it_is_written_keeps_what_is_behind_the_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("commands.journal");
    let disk = store::disk::real();
    let mut writer = Writer::new(disk.clone(), path.clone());
    let long = |id: u64| LogEntry { command: vec!["y".repeat(3000)], ..entry(id) };
    let mut id = 0;
    while std::fs::metadata(&path).map_or(0, |file| file.len()) < 900 << 10 {
        writer.begin(&long(id)).unwrap();
        id += 1;
    }
    // One record in the middle of the file, which the next cut reads.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[700 << 10] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    while writer.take_notes().is_empty() {
        writer.begin(&long(id)).unwrap();
        id += 1;
        assert!(id < 1000, "the damage was not told");
    }
    let kept = ids(&read(&*disk, &path).unwrap());
    assert_eq!(kept.last(), Some(&(id - 1)));
    assert!(kept.len() > 100, "{}", kept.len());
}
