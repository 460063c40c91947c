//! The store on a real disk: bounds, permissions, damage, erasing, two writers, and a writer that is killed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use unjank_hangs::model::{
    CallObject, CallShare, DiskUse, DiskUser, ERASED_PROGRAM, Hang, HangChain, HangHop, HangRecord,
    ObjectKind, ProgramSteps, WatchedPeriod,
};
use unjank_hangs::store::{
    DEFAULT_LIMIT, EraseSelection, HangStore, HangStoreError, erase, lock_recorder, note_erased,
    read,
};

use crate::fuzz_hangs::hang;

fn open(dir: &Path, limit: u64) -> HangStore {
    HangStore::open(store::disk::real(), dir, limit).unwrap()
}

/// When something is erased, where all that is stored was before.
pub(crate) const LATER_NS: u64 = u64::MAX;

fn append_hang(store: &mut HangStore) -> u64 {
    let number = store.take_number();
    store.append(&[HangRecord::Hang(Box::new(hang(number)))]).unwrap();
    number
}

fn numbers(dir: &Path) -> Vec<u64> {
    read(&*store::disk::real(), dir).unwrap().hangs.into_keys().collect()
}

/// Returns the files of the store, but for locks.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|end| end == "hangs")).collect()
}

fn holds(dir: &Path, text: &str) -> bool {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().any(|path| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

#[test]
fn nobody_else_reads_the_store() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("unjank/hangs");
    append_hang(&mut open(&dir, DEFAULT_LIMIT));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{path:?}");
    }
}

#[test]
fn the_oldest_go_when_the_limit_is_reached_and_numbers_go_on() {
    let root = tempfile::tempdir().unwrap();
    let limit = 512 << 10;
    let mut store = open(root.path(), limit);
    let mut last = 0;
    // The newest file is nearly full at the end.
    for _ in 0..6070 {
        last = append_hang(&mut store);
        if last.is_multiple_of(500) {
            let used: u64 =
                files(root.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
            assert!(used <= limit + (128 << 10), "{used} bytes");
        }
    }
    let kept = numbers(root.path());
    assert_eq!(kept.last(), Some(&last));
    assert!(kept[0] > 1 && kept.len() > 400, "{} are kept, from {} on", kept.len(), kept[0]);
    drop(store);
    assert_eq!(open(root.path(), limit).take_number(), last + 1);
}

#[test]
fn damage_costs_the_records_that_it_hits_and_no_other() {
    let root = tempfile::tempdir().unwrap();
    let mut store = open(root.path(), DEFAULT_LIMIT);
    (0..50).for_each(|_| {
        append_hang(&mut store);
    });
    drop(store);
    let path = files(root.path()).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    // In the middle of the records, which take a few hundred bytes each.
    let at = 4096 * 2 + 4000;
    bytes[at..at + 8].fill(0xa5);
    fs::write(&path, &bytes).unwrap();
    let left = numbers(root.path());
    assert!((48..50).contains(&left.len()), "{left:?}");
    // A recorder goes on behind it, and what is left stays.
    let mut store = open(root.path(), DEFAULT_LIMIT);
    let next = append_hang(&mut store);
    assert_eq!(next, 51);
    assert_eq!(numbers(root.path()).len(), left.len() + 1);
    assert!(read(&*store::disk::real(), root.path()).unwrap().damage().is_some());
    // A file that is none of ours stays as it is, and a recorder goes on behind it, too.
    fs::write(root.path().join("00000090.hangs"), "not a journal").unwrap();
    let mut store = open(root.path(), DEFAULT_LIMIT);
    assert_eq!(append_hang(&mut store), 52);
    assert_eq!(read(&*store::disk::real(), root.path()).unwrap().unreadable_files, 1);
}

#[test]
fn erased_records_leave_no_byte_and_the_recorder_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let disk = store::disk::real();
    let mut store = open(root.path(), DEFAULT_LIMIT);
    let mut secret = hang(store.take_number());
    secret.program = "secret-program".to_owned();
    let period = WatchedPeriod { from_ns: 1, to_ns: 2, ..WatchedPeriod::default() };
    let records = [HangRecord::Hang(Box::new(secret)), HangRecord::Watched(period)];
    store.append(&records).unwrap();
    append_hang(&mut store);
    assert!(holds(root.path(), "secret-program"));
    let selection =
        EraseSelection { program: Some("secret-program".to_owned()), ..EraseSelection::default() };
    assert_eq!(erase(&*disk, root.path(), &selection, LATER_NS).unwrap().hangs, 1);
    assert!(!holds(root.path(), "secret-program"));
    assert_eq!(numbers(root.path()), [2]);
    // The recorder still has the old file open.
    assert_eq!(append_hang(&mut store), 3);
    assert_eq!(numbers(root.path()), [2, 3]);
    let from = hang(3).started_ns;
    let selection = EraseSelection { since_ns: Some(from), ..EraseSelection::default() };
    erase(&*disk, root.path(), &selection, LATER_NS).unwrap();
    erase(&*disk, root.path(), &EraseSelection::default(), LATER_NS).unwrap();
    assert!(numbers(root.path()).is_empty());
    assert!(!holds(root.path(), "kate") && !holds(root.path(), "fdatasync"));
    drop(store);
    assert!(open(root.path(), DEFAULT_LIMIT).take_number() > 3, "no number is given twice");
}

#[test]
fn hangs_of_others_stay_without_the_name_of_an_erased_program() {
    let root = tempfile::tempdir().unwrap();
    let disk = store::disk::real();
    let mut store = open(root.path(), DEFAULT_LIMIT);
    let call = |kind, name: &str| CallShare {
        call: "recvmsg".to_owned(),
        blocked_ns: 1,
        seen: 1,
        object: Some(CallObject {
            kind,
            name: name.to_owned(),
            file_system: String::new(),
            device: String::new(),
        }),
    };
    let hop = |program: &str, unit: &str| HangHop {
        program: program.to_owned(),
        process: 7,
        unit: unit.to_owned(),
        call: "recvmsg".to_owned(),
        function: String::new(),
        waited_ns: 1,
    };
    let user = |program: &str| DiskUser {
        program: program.to_owned(),
        process: 7,
        read_bytes: 1,
        written_bytes: 1,
    };
    // Each alone, so that none stands for another.
    let mut named = vec![hang(1); 8];
    named[0].calls = vec![call(ObjectKind::Socket, "secret-program at /run/user/0/socket")];
    named[5].calls = vec![call(ObjectKind::Socket, "secret-program (12197) at @socket")];
    named[6].calls = vec![call(ObjectKind::Socket, "secret-program (12197)")];
    // The kernel keeps 15 bytes of the name of a thread.
    named[7].chain = Some(HangChain {
        hops: vec![hop("kate", ""), hop("secret-program-", "")],
        end: "timer".to_owned(),
        end_ns: 1,
        has_losses: false,
    });
    named[1].calls = vec![call(ObjectKind::Child, "secret-program")];
    let hops = vec![hop("kate", ""), hop("secret-program (helper)", "secret-program.service")];
    named[2].chain =
        Some(HangChain { hops, end: "timer".to_owned(), end_ns: 1, has_losses: false });
    let programs = vec![user("secret-program"), user("secret-program-2")];
    let disk_use =
        DiskUse { counted_ns: 1, read_bytes: 9, written_bytes: 9, programs, ..DiskUse::default() };
    named[3].disk_use = Some(disk_use);
    named[4].calls = vec![call(ObjectKind::File, "/home/a/secret-program")];
    for hang in &mut named {
        hang.number = store.take_number();
    }
    let records: Vec<HangRecord> =
        named.iter().map(|hang| HangRecord::Hang(Box::new(hang.clone()))).collect();
    store.append(&records).unwrap();
    let before: Vec<Hang> = read(&*disk, root.path()).unwrap().hangs.into_values().collect();
    let selection =
        EraseSelection { program: Some("secret-program".to_owned()), ..EraseSelection::default() };
    let outcome = erase(&*disk, root.path(), &selection, LATER_NS).unwrap();
    assert_eq!((outcome.hangs, outcome.mentions), (0, 6));
    let after: Vec<Hang> = read(&*disk, root.path()).unwrap().hangs.into_values().collect();
    assert_eq!(after.len(), before.len());
    assert_eq!(after[4], before[4], "the path of a file stays");
    for at in [0, 1, 2, 3, 5, 6] {
        let (after, before) = (&after[at], &before[at]);
        let text = format!("{after:?}").replace("secret-program-2", "");
        assert!(!text.contains("secret-program"), "{text}");
        assert_eq!((after.started_ns, after.length_ns), (before.started_ns, before.length_ns));
    }
    assert_eq!(after[2].chain.as_ref().unwrap().hops.len(), 2);
    let left = &after[3].disk_use.as_ref().unwrap();
    assert_eq!((left.read_bytes, left.programs.len()), (9, 1));
    assert_eq!(
        erase(&*disk, root.path(), &selection, LATER_NS).unwrap().mentions,
        0,
        "there are no more"
    );
    let long = EraseSelection {
        program: Some("secret-program-2".to_owned()),
        ..EraseSelection::default()
    };
    let outcome = erase(&*disk, root.path(), &long, LATER_NS).unwrap();
    assert_eq!(outcome.mentions, 2, "its whole name, and what the kernel keeps of it");
    assert!(!holds(root.path(), "secret-program-"));
    // Another one may be called what the kernel keeps of the name.
    let mut other = hang(store.take_number());
    other.program = "secret-program-".to_owned();
    store.append(&[HangRecord::Hang(Box::new(other))]).unwrap();
    assert_eq!(erase(&*disk, root.path(), &long, LATER_NS).unwrap().hangs, 0);
    assert!(holds(root.path(), "secret-program-"));
}

#[test]
fn a_recorder_that_runs_stores_nothing_that_was_erased_while_it_had_it_in_its_memory() {
    let root = tempfile::tempdir().unwrap();
    let disk = store::disk::real();
    let mut store = open(root.path(), DEFAULT_LIMIT);
    let _recorder = lock_recorder(&*disk, root.path()).unwrap();
    let steps = |program: &str| ProgramSteps {
        program: program.to_owned(),
        watched_ns: 5,
        ..ProgramSteps::default()
    };
    let mut of = |program: &str, started_ns| {
        let mut hang = hang(store.take_number());
        (hang.program, hang.started_ns) = (program.to_owned(), started_ns);
        HangRecord::Hang(Box::new(hang))
    };
    let begun = [
        of("secret-program", 1000),
        of("secret-program (helper)", 1000),
        of("kate", 1000),
        HangRecord::Watched(WatchedPeriod {
            from_ns: 900,
            to_ns: 2000,
            programs: vec![steps("secret-program"), steps("kate")],
            ..WatchedPeriod::default()
        }),
    ];
    let later = of("secret-program", 1600);
    let selection =
        EraseSelection { program: Some("secret-program".to_owned()), ..EraseSelection::default() };
    erase(&*disk, root.path(), &selection, 1500).unwrap();
    assert!(
        !holds(root.path(), "secret-program"),
        "not where it is noted that it was erased, either"
    );
    store.append(&begun).unwrap();
    assert!(!holds(root.path(), "secret-program"));
    assert_eq!(numbers(root.path()), [3], "of another program");
    let stored = read(&*disk, root.path()).unwrap();
    assert_eq!(stored.periods.len(), 1);
    // That hangs of a program are missing is told, and not of which one.
    let erased = ProgramSteps { program: ERASED_PROGRAM.to_owned(), ..ProgramSteps::default() };
    assert_eq!(stored.periods[0].programs, [steps("kate"), erased]);
    store.append(&[later]).unwrap();
    assert_eq!(numbers(root.path()), [3, 4], "what began later was not meant");
    // A span of time, of all programs.
    let selection = EraseSelection { until_ns: Some(1100), ..EraseSelection::default() };
    erase(&*disk, root.path(), &selection, 3000).unwrap();
    store.append(&begun).unwrap();
    assert_eq!(numbers(root.path()), [4]);
    // Whoever begins has nothing in its memory.
    drop(store);
    let orders = || fs::read_to_string(root.path().join("forgotten")).unwrap_or_default();
    assert_eq!(orders().lines().count(), 2);
    let mut store = open(root.path(), DEFAULT_LIMIT);
    assert_eq!(orders(), "");
    store.append(&begun[2..3]).unwrap();
    assert_eq!(numbers(root.path()), [3, 4]);
}

#[test]
fn no_order_to_forget_is_left_for_a_recorder_that_has_ended() {
    let root = tempfile::tempdir().unwrap();
    let disk = store::disk::real();
    let store = open(root.path(), DEFAULT_LIMIT);
    let recorder = lock_recorder(&*disk, root.path()).unwrap();
    let of = |program: &str| EraseSelection {
        program: Some(program.to_owned()),
        ..EraseSelection::default()
    };
    let orders = || fs::read_to_string(root.path().join("forgotten")).unwrap_or_default();
    for program in ["kate", "notes"] {
        erase(&*disk, root.path(), &of(program), 1500).unwrap();
    }
    assert_eq!(orders().lines().count(), 2);
    // Everything is more than what was ordered before: hashes of names are not kept for nothing.
    erase(&*disk, root.path(), &EraseSelection::default(), 1600).unwrap();
    assert_eq!(orders().lines().count(), 1);
    assert!(orders().ends_with(" *\n"), "{}", orders());
    store.end();
    assert_eq!(orders(), "");
    // One that was killed leaves them to the next order.
    erase(&*disk, root.path(), &of("kate"), 1700).unwrap();
    drop(recorder);
    assert_eq!(orders().lines().count(), 1);
    erase(&*disk, root.path(), &EraseSelection::default(), 1800).unwrap();
    assert_eq!(orders(), "");
}

#[test]
fn records_are_stored_once_where_the_next_file_cannot_be_made() {
    let root = tempfile::tempdir().unwrap();
    let mut store = open(root.path(), 512 << 10);
    append_hang(&mut store);
    let next = files(root.path())[0].with_file_name("00000002.hangs");
    fs::create_dir(&next).unwrap();
    let mut last = 0;
    // Each call says what is so: all of these are stored.
    while !root.path().join("00000003.hangs").exists() {
        last = append_hang(&mut store);
        assert!(last < 10_000, "no other file was begun");
    }
    assert_eq!(numbers(root.path()).last(), Some(&last));
}

#[test]
fn a_period_that_was_stored_twice_is_counted_once() {
    let root = tempfile::tempdir().unwrap();
    let mut store = open(root.path(), DEFAULT_LIMIT);
    let period = |from_ns| {
        HangRecord::Watched(WatchedPeriod {
            from_ns,
            to_ns: from_ns + 60,
            recorder_ns: 60,
            ..WatchedPeriod::default()
        })
    };
    // A write that failed was done all the same, and is done again with all that has come since.
    for backlog in 1..4 {
        let records: Vec<HangRecord> = (0..backlog).map(|number| period(number * 60)).collect();
        store.append(&records).unwrap();
    }
    let periods = read(&*store::disk::real(), root.path()).unwrap().periods;
    assert_eq!(periods.iter().map(|period| period.from_ns).collect::<Vec<_>>(), [0, 60, 120]);
}

#[test]
fn the_numbers_of_hangs_that_a_later_version_wrote_are_not_given_again() {
    let root = tempfile::tempdir().unwrap();
    let disk = store::disk::real();
    let mut store = open(root.path(), DEFAULT_LIMIT);
    assert_eq!(append_hang(&mut store), 1);
    drop(store);
    let (mut journal, _) = store::journal::Journal::open(&*disk, &files(root.path())[0]).unwrap();
    journal.append_cached(&[b"a hang", b"of a", b"later version"]).unwrap();
    drop(journal);
    assert!(append_hang(&mut open(root.path(), DEFAULT_LIMIT)) >= 5, "they may be 2, 3 and 4");
    // A whole file of a later version, in which any number may be.
    let file = files(root.path()).pop().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    for slot in [0, 4096] {
        let header = &mut bytes[slot..slot + 40];
        header[8] += 1;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..]);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(&file, bytes).unwrap();
    let damage = read(&*disk, root.path()).unwrap().damage().unwrap();
    assert!(damage.contains("of the later version 2"), "{damage}");
    assert!(append_hang(&mut open(root.path(), DEFAULT_LIMIT)) > 50_000);
}

#[test]
fn a_record_that_cannot_be_read_is_told_when_not_everything_is_erased() {
    let root = tempfile::tempdir().unwrap();
    let disk = store::disk::real();
    append_hang(&mut open(root.path(), DEFAULT_LIMIT));
    let (mut journal, _) = store::journal::Journal::open(&*disk, &files(root.path())[0]).unwrap();
    journal.append_cached(&[b"a record of a later version"]).unwrap();
    drop(journal);
    let selection =
        EraseSelection { program: Some("kate".to_owned()), ..EraseSelection::default() };
    assert_eq!(erase(&*disk, root.path(), &selection, LATER_NS).unwrap().kept_records, 1);
    assert!(holds(root.path(), "a later version"));
    assert_eq!(
        erase(&*disk, root.path(), &EraseSelection::default(), LATER_NS).unwrap().kept_records,
        0
    );
    assert!(!holds(root.path(), "a later version"));
}

#[test]
fn the_moment_of_erasing_is_read_again_and_nothing_is_read_or_written_behind_a_symlink() {
    let root = tempfile::tempdir().unwrap();
    let disk = store::disk::real();
    let erased_before = || read(&*disk, root.path()).unwrap().erased_before_ns;
    assert_eq!(erased_before(), None);
    note_erased(&*disk, root.path(), 17).unwrap();
    note_erased(&*disk, root.path(), 1_800_000_000_000_000_000).unwrap();
    assert_eq!(erased_before(), Some(1_800_000_000_000_000_000));
    let path = root.path().join("erased-before");
    let long = [b'1'; 1 << 20];
    for damaged in [
        &b""[..],
        b"-1\n",
        b"+1\n",
        b" 1\n",
        b"1\n\n",
        b"1 \n",
        b"18446744073709551616\n",
        b"99999999999999999999999\n",
        b"\xff",
        &long,
    ] {
        fs::write(&path, damaged).unwrap();
        assert_eq!(erased_before(), None, "{damaged:?}");
    }
    let target = root.path().join("target");
    fs::write(&target, "5\n").unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&target, &path).unwrap();
    assert_eq!(erased_before(), None);
    note_erased(&*disk, root.path(), 7).unwrap();
    assert_eq!((erased_before(), &*fs::read(&target).unwrap()), (Some(7), &b"5\n"[..]));
}

#[test]
fn a_symlink_named_as_a_store_file_is_removed_and_its_target_stays() {
    for name in ["00000001.hangs", "00000007.hangs", "00000001.hangs.erased"] {
        for everything in [true, false] {
            let root = tempfile::tempdir().unwrap();
            let (dir, disk) = (root.path().join("hangs"), store::disk::real());
            let others = ["thesis.odt", "empty", "missing"].map(|name| root.path().join(name));
            fs::write(&others[0], "years of work").unwrap();
            fs::write(&others[1], "").unwrap();
            // A store of somebody else is none of this one either.
            let foreign = root.path().join("foreign");
            append_hang(&mut open(&foreign, DEFAULT_LIMIT));
            let record = files(&foreign).remove(0);
            let before = fs::read(&record).unwrap();
            for target in [&others[0], &others[1], &others[2], &record] {
                fs::create_dir_all(&dir).unwrap();
                symlink(target, dir.join(name)).unwrap();
                assert!(numbers(&dir).is_empty(), "{name}");
                let program = (!everything).then(|| "kate".to_owned());
                let selection = EraseSelection { program, ..EraseSelection::default() };
                erase(&*disk, &dir, &selection, LATER_NS).unwrap();
                let is_kept = !everything && !name.ends_with("erased");
                let is_there = fs::symlink_metadata(dir.join(name)).is_ok();
                assert_eq!(is_there, is_kept, "{name} to {target:?}");
                // A recorder writes beside it.
                append_hang(&mut open(&dir, DEFAULT_LIMIT));
                assert_eq!(numbers(&dir), [1], "{name} to {target:?}");
                fs::remove_dir_all(&dir).unwrap();
                assert_eq!(fs::read(&others[0]).unwrap(), b"years of work");
                assert_eq!(fs::read(&others[1]).unwrap(), b"");
                assert!(!others[2].exists());
                assert_eq!(fs::read(&record).unwrap(), before, "{name}");
            }
        }
    }
}

#[test]
fn a_file_that_cannot_be_opened_costs_only_itself() {
    let root = tempfile::tempdir().unwrap();
    let disk = store::disk::real();
    append_hang(&mut open(root.path(), DEFAULT_LIMIT));
    // Permissions do not stop root, and nobody can read a directory as a file.
    let second = root.path().join("00000002.hangs");
    if rustix::process::geteuid().is_root() {
        fs::create_dir(&second).unwrap();
    } else {
        fs::write(&second, "").unwrap();
        fs::set_permissions(&second, PermissionsExt::from_mode(0o000)).unwrap();
    }
    let stored = read(&*disk, root.path()).unwrap();
    assert_eq!(stored.hangs.keys().collect::<Vec<_>>(), [&1]);
    let damage = stored.damage().unwrap();
    assert!(damage.contains("00000002.hangs: "), "{damage}");
    // A recorder goes on behind it, with numbers that the file cannot hold.
    let mut store = open(root.path(), DEFAULT_LIMIT);
    let next = append_hang(&mut store);
    assert!(next > 50_000, "{next}");
    assert_eq!(numbers(root.path()), [1, next]);
    // What can be erased is erased, and what cannot is named.
    let outcome = erase(&*disk, root.path(), &EraseSelection::default(), LATER_NS).unwrap();
    assert_eq!((outcome.hangs, outcome.not_erased.len()), (2, 1));
    assert!(outcome.not_erased[0].to_string().contains("00000002.hangs"));
    assert!(numbers(root.path()).is_empty() && second.exists());
}

#[test]
fn a_file_that_is_far_too_long_is_named_and_not_loaded_and_the_recorder_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let first = append_hang(&mut open(dir.path(), DEFAULT_LIMIT));
    let file = fs::File::options().write(true).open(&files(dir.path())[0]).unwrap();
    file.set_len(512 << 20).unwrap();
    let stored = read(&*store::disk::real(), dir.path()).unwrap();
    assert_eq!((stored.hangs.len(), stored.unreadable_files), (0, 1));
    let why = stored.unreadable.unwrap();
    assert!(why.starts_with("00000001.hangs: ") && why.contains("too large"), "{why}");
    let second = append_hang(&mut open(dir.path(), DEFAULT_LIMIT));
    assert!(second > first, "its numbers are not given again");
    assert_eq!(numbers(dir.path()), [second]);
}

#[test]
fn damage_at_the_end_of_a_file_that_is_not_the_newest_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), 1 << 20);
    while files(dir.path()).len() < 2 {
        append_hang(&mut store);
    }
    append_hang(&mut store);
    let stored = || read(&*store::disk::real(), dir.path()).unwrap();
    let (all, mut paths) = (stored(), files(dir.path()));
    assert_eq!(all.damage(), None);
    paths.sort();
    let whole = fs::read(&paths[0]).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let mut flipped = whole.clone();
    flipped[end - 30] ^= 0xff;
    for damaged in [&flipped[..], &whole[..end - 30]] {
        fs::write(&paths[0], damaged).unwrap();
        let part = stored();
        assert_eq!(part.hangs.len(), all.hangs.len() - 1);
        assert!(part.damage().is_some_and(|said| said.contains("damaged")), "{part:?}");
    }
}

#[test]
fn a_second_recorder_is_told_of_the_first() {
    let root = tempfile::tempdir().unwrap();
    let disk = store::disk::real();
    let first = lock_recorder(&*disk, root.path()).unwrap();
    let error = lock_recorder(&*disk, root.path()).unwrap_err();
    assert!(matches!(error, HangStoreError::RecorderRuns { .. }), "{error}");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    drop(first);
    lock_recorder(&*disk, root.path()).unwrap();
}

/// The variable that makes this program a writer that is to be killed.
const WRITER: &str = "UNJANK_HANGS_TEST_WRITER";

#[test]
fn nothing_that_was_told_is_lost_when_the_writer_is_killed() {
    if let Some(dir) = std::env::var_os(WRITER) {
        let mut store = open(Path::new(&dir), 1 << 20);
        let mut out = std::io::stdout();
        loop {
            let number = append_hang(&mut store);
            writeln!(out, "told {number}").unwrap();
            out.flush().unwrap();
        }
    }
    let rounds = std::env::var("HANGS_KILLS").ok().and_then(|rounds| rounds.parse().ok());
    let root = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 0..rounds.unwrap_or(8_u64) {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "store_real::nothing_that_was_told_is_lost_when_the_writer_is_killed",
            ])
            .args(["--nocapture", "--test-threads=1"])
            .env(WRITER, root.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        // Some are killed while the first record is written, others while a file is replaced.
        let wanted = round % 4 * 70 + 1;
        let mut told = Vec::new();
        while told.len() < usize::try_from(wanted).unwrap() {
            let line = lines.next().expect("a writer tells").unwrap();
            told.extend(line.split("told ").nth(1).and_then(|number| number.parse::<u64>().ok()));
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        for line in lines {
            let line = line.unwrap();
            told.extend(line.split("told ").nth(1).and_then(|number| number.parse::<u64>().ok()));
        }
        let stored = numbers(root.path());
        for number in told {
            assert!(stored.contains(&number), "hang {number} was told in round {round}");
            assert!(number > last, "number {number} was given twice");
            last = number;
        }
    }
}
