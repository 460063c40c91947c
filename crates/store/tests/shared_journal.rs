//! A journal of many writers: every crash state and failing call of its life, threads that race, and faults that are caught.
#![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use unjank_store::disk::{self, Disk};
use unjank_store::journal::shared::{Appender, Flaw, JournalReader, News, Owner, salvage};
use unjank_store::sim::{SimDisk, explore, interleave};

fn log() -> &'static Path {
    Path::new("/home/log")
}

fn records_of(disk: &dyn Disk, path: &Path) -> Vec<String> {
    let (News::All(records) | News::More(records)) = JournalReader::new(path).read(disk).unwrap();
    records.into_iter().map(|record| String::from_utf8(record).unwrap()).collect()
}

/// A disk with a journal that holds `first`, durably.
fn seeded() -> SimDisk {
    let disk = SimDisk::new().with_dir("/home");
    let mut owner = Owner::of(&disk, log()).unwrap().unwrap();
    owner.read(&disk).unwrap();
    owner.replace(&disk, &[b"first"]).unwrap();
    let image = disk.read(log()).unwrap();
    SimDisk::new().with_file(log(), &image)
}

/// Two appends, the journal replaced by one record for what was there before the second, and another; returns what was
/// acknowledged.
fn life(disk: &dyn Disk) -> Vec<&'static str> {
    let acknowledged = Mutex::new(vec!["first"]);
    live(disk, &acknowledged);
    acknowledged.into_inner().unwrap()
}

fn live(disk: &dyn Disk, acknowledged: &Mutex<Vec<&'static str>>) {
    let Ok(mut writer) = Appender::open(disk, log()) else { return };
    let mut append = |record: &'static str| {
        if writer.append(disk, record.as_bytes()).is_ok() {
            acknowledged.lock().unwrap().push(record);
        }
    };
    append("one");
    let owner = Owner::of(disk, log());
    let mut owner = owner.ok().flatten();
    let read = owner.as_mut().and_then(|owner| owner.read(disk).ok());
    append("two");
    if let (Some(owner), Some(records)) = (&mut owner, read) {
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        // Whether it was replaced or not, nothing is lost.
        let _ = owner.replace(disk, &records);
    }
    append("three");
}

/// Checks that everything promised is there once, and nothing that nobody wrote.
fn check(disk: &SimDisk, promised: &[&str]) -> Result<(), String> {
    let all = ["first", "one", "two", "three"];
    let look = |when: &str| {
        let found = records_of(disk, log());
        let wrong = found.iter().any(|found| !all.contains(&&**found));
        let twice = all.iter().any(|one| found.iter().filter(|found| found == one).count() > 1);
        let lost = promised.iter().any(|one| !found.iter().any(|found| found == one));
        if wrong || twice || lost {
            return Err(format!("{when}: {promised:?} were acknowledged, {found:?} are found"));
        }
        Ok(())
    };
    look("at once")?;
    Owner::of(disk, log()).map_err(|error| format!("{error:?}"))?;
    look("after a new owner")?;
    let left = disk.list(Path::new("/home")).unwrap();
    if left.iter().any(|name| name.to_string_lossy().ends_with(".old")) {
        return Err(format!("{left:?} is left"));
    }
    Ok(())
}

#[test]
fn what_was_acknowledged_outlives_its_writer_and_its_owner_and_what_was_durable_a_power_cut() {
    let explored = explore(
        seeded,
        |disk| life(disk),
        |disk, acknowledged| check(disk, acknowledged),
        |disk, _| check(disk, &["first"]),
    )
    .unwrap();
    assert!(explored.runs > 500 && explored.images > explored.runs, "{explored:?}");
}

/// Whoever reads finds what was acknowledged before, and nothing twice, wherever the owner and the writer are.
#[test]
fn a_reader_misses_nothing_whatever_happens_between_its_calls() {
    let follow = |disk: &SimDisk, acknowledged: &Mutex<Vec<&'static str>>| {
        let (mut reader, mut seen) = (JournalReader::new(log()), Vec::new());
        for _ in 0..2 {
            let promised = acknowledged.lock().unwrap().clone();
            match reader.read(disk).map_err(|error| format!("{error:?}"))? {
                News::All(records) => seen = records,
                News::More(records) => seen.extend(records),
            }
            let times = |one: &str| seen.iter().filter(|seen| *seen == one.as_bytes()).count();
            let wrong = ["first", "one", "two", "three"].iter().any(|one| times(one) > 1);
            if wrong || promised.iter().any(|one| times(one) == 0) {
                return Err(format!("{promised:?} were acknowledged, {seen:?} is seen"));
            }
        }
        Ok(())
    };
    let orders = interleave(
        || (seeded(), Mutex::new(vec!["first"])),
        |disk, acknowledged| live(disk, acknowledged),
        follow,
        |_, _, (), seen| seen.clone(),
    )
    .unwrap();
    assert!(orders > 5000, "{orders}");
}

/// An owner who comes before the first writer, and replaces what a writer is busy with twice.
#[test]
fn what_is_appended_beside_an_owner_is_there_once_also_where_there_was_no_journal() {
    let replace_twice = |disk: &SimDisk, (): &()| {
        let mut owner = Owner::of(disk, log()).unwrap().unwrap();
        for _ in 0..2 {
            let records = owner.read(disk).unwrap();
            let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
            owner.replace(disk, &records).unwrap();
        }
    };
    let append = |disk: &SimDisk, (): &()| {
        let mut writer = Appender::open(disk, log()).unwrap();
        writer.append(disk, b"one").unwrap();
    };
    for seeded in [|| (SimDisk::new().with_dir("/home"), ()), || (seeded(), ())] {
        let orders = interleave(seeded, append, replace_twice, |disk, (), (), ()| {
            let found = records_of(disk, log());
            let times = found.iter().filter(|record| *record == "one").count();
            if times == 1 { Ok(()) } else { Err(format!("{found:?} are found")) }
        });
        let orders = orders.unwrap_or_else(|complaint| panic!("{complaint}"));
        assert!(orders > 1000, "{orders}");
    }
}

#[test]
fn a_journal_in_which_a_frame_begins_everywhere_is_read_without_reading_the_rest_for_each() {
    let mut bytes = seeded().read(log()).unwrap();
    let whole = bytes.len() + (4 << 20);
    while bytes.len() < whole {
        let rest = u32::try_from(whole.saturating_sub(bytes.len() + 28)).unwrap_or_default();
        bytes.extend(b"UJS1");
        bytes.extend(rest.to_le_bytes());
    }
    let begin = Instant::now();
    assert_eq!(salvage(&bytes), [b"first"]);
    // It took a minute.
    let length = begin.elapsed();
    assert!(length < Duration::from_secs(20), "{length:?}");
}

/// A disk on which files have one name each.
#[derive(Debug)]
struct OneName(SimDisk);

impl Disk for OneName {
    unjank_store::pass_on!(this, path => this.0;
        read stat read_link list create_dir create open open_log open_append rename remove remove_abandoned sync_dir token);
}

#[test]
fn the_explorer_catches_an_owner_that_dies_and_left_no_second_name() {
    let complaint = explore(
        seeded,
        |disk| life(&OneName(disk.clone())),
        |disk, acknowledged| check(disk, acknowledged),
        |_, _| Ok(()),
    )
    .unwrap_err();
    assert!(complaint.contains("are found"), "{complaint}");
}

#[test]
fn where_files_have_one_name_each_everything_works_but_that() {
    let disk = OneName(SimDisk::new().with_dir("/home"));
    assert_eq!(life(&disk), ["first", "one", "two", "three"]);
    assert_eq!(records_of(&disk, log()), ["one", "two", "three"]);
}

#[test]
fn the_first_owner_may_come_before_the_first_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/log");
    let disk = disk::real();
    let mut owner = Owner::of(&*disk, &path).unwrap().unwrap();
    assert_eq!(owner.read(&*disk).unwrap(), Vec::<Vec<u8>>::new());
    owner.replace(&*disk, &[b"first"]).unwrap();
    assert_eq!(records_of(&*disk, &path), ["first"]);
}

#[test]
fn a_symlink_in_the_place_of_the_second_name_is_removed_and_its_target_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (path, target) = (dir.path().join("log"), dir.path().join("thesis.odt"));
    std::fs::write(&target, "years of work").unwrap();
    let disk = disk::real();
    Appender::open(&*disk, &path).unwrap().append(&*disk, b"one").unwrap();
    for to in [target.clone(), dir.path().join("missing")] {
        let old = dir.path().join("log.old");
        std::os::unix::fs::symlink(to, &old).unwrap();
        let mut owner = Owner::of(&*disk, &path).unwrap().unwrap();
        let records = owner.read(&*disk).unwrap();
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        owner.replace(&*disk, &records).unwrap();
        drop(owner);
        assert!(std::fs::symlink_metadata(old).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"years of work");
        assert_eq!(records_of(&*disk, &path), ["one"]);
    }
}

/// Lets the others end when one of them panics.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn four_writers_lose_nothing_while_the_journal_is_replaced_under_their_hands() {
    const EACH: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/log");
    let disk = disk::real();
    let done = AtomicBool::new(false);
    let replaced = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (disk, path, replaced, done) = (&*disk, &path, &replaced, &done);
                scope.spawn(move || {
                    let _alarm = Alarm(done);
                    let mut journal = Appender::open(disk, path).unwrap();
                    for number in 0..EACH {
                        let record = format!("{writer}.{number}");
                        journal.append(disk, record.as_bytes()).unwrap();
                        // Nobody gets away before the journal was replaced a few times.
                        while replaced.load(Ordering::Relaxed) < number / 40
                            && !done.load(Ordering::Relaxed)
                        {
                            std::thread::park_timeout(std::time::Duration::from_millis(1));
                        }
                    }
                })
            })
            .collect();
        // Two who want to replace it, and one who follows.
        let owners: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let _alarm = Alarm(&done);
                    while !done.load(Ordering::Relaxed) {
                        let Some(mut owner) = Owner::of(&*disk, &path).unwrap() else { continue };
                        let records = owner.read(&*disk).unwrap();
                        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
                        owner.replace(&*disk, &records).unwrap();
                        replaced.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let follower = scope.spawn(|| {
            let _alarm = Alarm(&done);
            let (mut reader, mut seen) = (JournalReader::new(&path), Vec::new());
            loop {
                let is_last = done.load(Ordering::Relaxed);
                match reader.read(&*disk).unwrap() {
                    News::All(records) => seen = records,
                    News::More(records) => seen.extend(records),
                }
                if is_last {
                    return seen;
                }
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        owners.into_iter().for_each(|owner| owner.join().unwrap());
        let mut seen = follower.join().unwrap();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 4 * EACH, "the follower saw each");
    });
    let mut found = records_of(&*disk, &path);
    assert_eq!(found.len(), 4 * EACH, "each once");
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 4 * EACH);
    let mode = disk.stat(&path).unwrap().mode;
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_a_killed_writer_left_half_is_skipped_and_never_read_as_something_else() {
    let disk = seeded();
    let image = disk.read(log()).unwrap();
    let mut writer = Appender::open(&disk, log()).unwrap();
    writer.append(&disk, b"inner").unwrap();
    let inner = disk.read(log()).unwrap()[image.len()..].to_vec();
    // A record of another file that holds a whole frame, itself cut off.
    let foreign = seeded_with_salt(77);
    let mut outer = Appender::open(&foreign, log()).unwrap();
    outer.append(&foreign, &inner).unwrap();
    for cut in 1..inner.len() {
        let torn = SimDisk::new().with_file(log(), &[&image[..], &inner[..cut]].concat());
        assert_eq!(records_of(&torn, log()), ["first"], "cut at {cut}");
        assert_eq!(flaw_of(&torn), Some(Flaw::HalfRecord), "cut at {cut}");
        let mut next = Appender::open(&torn, log()).unwrap();
        next.append(&torn, b"second").unwrap();
        assert_eq!(records_of(&torn, log()), ["first", "second"], "cut at {cut}");
        assert_eq!(flaw_of(&torn), None, "a writer was killed, at {cut}");
    }
    let whole = foreign.read(log()).unwrap();
    let torn = SimDisk::new().with_file(log(), &whole[..whole.len() - 1]);
    assert_eq!(records_of(&torn, log()), ["first"], "a frame inside of a record is none");
}

fn flaw_of(disk: &SimDisk) -> Option<Flaw> {
    let mut reader = JournalReader::new(log());
    reader.read(disk).unwrap();
    reader.flaw()
}

#[test]
fn damage_behind_in_and_between_records_is_noticed_also_by_a_reader_that_follows() {
    let disk = seeded();
    let mut writer = Appender::open(&disk, log()).unwrap();
    for record in ["second", "third", "fourth"] {
        writer.append(&disk, record.as_bytes()).unwrap();
    }
    let whole = disk.read(log()).unwrap();
    assert_eq!(flaw_of(&disk), None);
    let damaged = |bytes: Vec<u8>| flaw_of(&SimDisk::new().with_file(log(), &bytes));
    for at in 64..=whole.len() {
        let junk = [&whole[..at], b"junk", &whole[at..]].concat();
        assert_eq!(damaged(junk), Some(Flaw::Damaged), "junk at {at}");
        let mut zeros = whole.clone();
        zeros[at.saturating_sub(9).max(64)..at].fill(0);
        let flaw = damaged(zeros.clone());
        assert!(zeros == whole || flaw == Some(Flaw::Damaged), "zeros before {at}");
    }
    assert_eq!(damaged([&whole[..], &[0; 4096]].concat()), Some(Flaw::Damaged));
    // One who has read it before sees what is behind that.
    let mut reader = JournalReader::new(log());
    reader.read(&disk).unwrap();
    disk.open_append(log()).unwrap().append(b"junk").unwrap();
    reader.read(&disk).unwrap();
    assert_eq!(reader.flaw(), Some(Flaw::Damaged));
    writer.append(&disk, b"fifth").unwrap();
    reader.read(&disk).unwrap();
    assert_eq!(reader.flaw(), Some(Flaw::Damaged), "it does not go away");
}

#[test]
fn a_reader_that_follows_notices_that_the_journal_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let disk = disk::real();
    let mut writer = Appender::open(&*disk, &path).unwrap();
    writer.append(&*disk, b"first").unwrap();
    let len = disk.stat(&path).unwrap().len;
    writer.append(&*disk, b"second").unwrap();
    let mut reader = JournalReader::new(&path);
    reader.read(&*disk).unwrap();
    assert_eq!(reader.flaw(), None);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
    writer.append(&*disk, b"third, which is longer than what was cut off").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
    assert_eq!(reader.read(&*disk).unwrap(), News::All(vec![b"first".to_vec()]));
    assert_eq!(reader.flaw(), Some(Flaw::Damaged));
}

fn seeded_with_salt(tokens: u64) -> SimDisk {
    let disk = SimDisk::new().with_dir("/home");
    for _ in 0..tokens {
        disk.token().unwrap();
    }
    let mut owner = Owner::of(&disk, log()).unwrap().unwrap();
    owner.read(&disk).unwrap();
    owner.replace(&disk, &[b"first"]).unwrap();
    disk
}

#[test]
fn a_damaged_journal_gives_what_is_left_and_can_be_replaced() {
    let disk = seeded();
    let mut writer = Appender::open(&disk, log()).unwrap();
    writer.append(&disk, b"second").unwrap();
    writer.append(&disk, b"third").unwrap();
    let whole = disk.read(log()).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        assert!(salvage(&bytes).len() >= 2 || at / 4 == 2, "at {at}");
        let damaged = SimDisk::new().with_file(log(), &bytes);
        let Some(mut owner) = Owner::of(&damaged, log()).unwrap() else { panic!("nobody else") };
        let Ok(records) = owner.read(&damaged) else { continue };
        assert!(records.len() >= 2, "at {at}: {records:?}");
        assert!(owner.flaw().is_some(), "the damage at {at} is noticed");
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        owner.replace(&damaged, &records).unwrap();
        Appender::open(&damaged, log()).unwrap().append(&damaged, b"fourth").unwrap();
        assert_eq!(records_of(&damaged, log()).len(), records.len() + 1);
    }
    let empty = SimDisk::new().with_file(log(), &[0; 4096]);
    Appender::open(&empty, log()).unwrap_err();
    assert!(records_of(&empty, log()).is_empty());
    let other = SimDisk::new().with_file(log(), b"somebody's text");
    JournalReader::new(log()).read(&other).unwrap_err();
}

#[test]
fn the_bytes_of_a_replaced_journal_are_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let disk = disk::real();
    let mut writer = Appender::open(&*disk, &path).unwrap();
    writer.append(&*disk, b"secret").unwrap();
    // Another name keeps the blocks, as an undelete would find them.
    std::fs::hard_link(&path, dir.path().join("kept")).unwrap();
    let mut owner = Owner::of(&*disk, &path).unwrap().unwrap();
    owner.read(&*disk).unwrap();
    owner.replace(&*disk, &[b"other"]).unwrap();
    let kept = std::fs::read(dir.path().join("kept")).unwrap();
    assert!(!kept.is_empty() && kept.iter().all(|byte| *byte == 0));
    writer.append(&*disk, b"later").unwrap();
    assert_eq!(records_of(&*disk, &path), ["other", "later"]);
    drop(owner);
    let mut names: Vec<_> = disk.list(dir.path()).unwrap();
    names.sort();
    assert_eq!(names, ["kept", "log", "log.lock"]);
}
