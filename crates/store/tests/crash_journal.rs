//! Every crash state and every failing call of a journal's life, and planted faults that are caught.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::io;
use std::path::Path;

use unjank_store::disk::{Disk, LogFile};
use unjank_store::journal::{Journal, JournalError};
use unjank_store::sim::{Explored, SimDisk, explore};

fn path() -> &'static Path {
    Path::new("/home/journal")
}

/// A record that takes one sector or, every third, more than two; the tenth does not fit into the file as it was made.
fn record(number: u32) -> Vec<u8> {
    let len = match number {
        9 => 70_000,
        _ if number % 3 == 2 => 1300,
        _ => 60,
    };
    let mut record = number.to_le_bytes().to_vec();
    record.resize(len, number.to_le_bytes()[0] | 0x80);
    record
}

/// One step in a journal's life. Records are numbered in the order in which they are appended.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Appends so many records durably.
    Append(usize),
    /// Appends one record that is not durable yet.
    Cached,
    Sync,
    /// Empties the journal: the records so far are kept elsewhere.
    Reset,
    /// Starts a new file with the last so many records.
    Restart(usize),
    /// Closes the journal and opens it again, as after a kill.
    Reopen,
}

/// What the journal promised.
#[derive(Clone, Debug, Default)]
struct Promise {
    /// How many records were appended, acknowledged or not.
    appended: u32,
    /// How many of them a restart must find.
    acknowledged: u32,
    /// The first record that a restart may find at the least, and at the most: a reset under way leaves two choices.
    first: (u32, u32),
    /// What went wrong although no fault of the disk explains it.
    complaint: Option<String>,
}

/// Lives through `steps` and tries each append that failed once more on a restarted journal.
fn live(disk: &dyn Disk, steps: &[Step]) -> Promise {
    let mut promise = Promise::default();
    if let Err(error) = try_to_live(disk, steps, &mut promise)
        && matches!(error, JournalError::NotAJournal { .. } | JournalError::UnknownVersion { .. })
    {
        promise.complaint = Some(error.to_string());
    }
    promise
}

fn try_to_live(disk: &dyn Disk, steps: &[Step], promise: &mut Promise) -> Result<(), JournalError> {
    let mut journal = Journal::open(disk, path())?.0;
    for step in steps {
        match *step {
            Step::Append(count) => {
                let records: Vec<Vec<u8>> = (promise.appended..).take(count).map(record).collect();
                let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
                promise.appended += u32::try_from(count).unwrap();
                match journal.append(&records) {
                    Ok(()) => {}
                    // The records are certainly not there: the numbers are given again.
                    Err(error @ JournalError::NotAppended { .. }) => {
                        promise.appended -= u32::try_from(count).unwrap();
                        return Err(error);
                    }
                    Err(error) => {
                        restart(disk, &mut journal, promise, promise.first.0)?;
                        return Err(error);
                    }
                }
                promise.acknowledged = promise.appended;
            }
            Step::Cached => {
                promise.appended += 1;
                match journal.append_cached(&[&record(promise.appended - 1)]) {
                    Ok(()) => {}
                    Err(error @ JournalError::NotAppended { .. }) => {
                        promise.appended -= 1;
                        return Err(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            Step::Sync => {
                journal.sync()?;
                promise.acknowledged = promise.appended;
            }
            Step::Reset => {
                promise.first.1 = promise.appended;
                journal.reset(u64::from(promise.appended))?;
                promise.first = (promise.appended, promise.appended);
                // Kept elsewhere, durably: the journal need not hold them.
                promise.acknowledged = promise.appended;
            }
            Step::Restart(kept) => {
                let first = promise.appended - u32::try_from(kept).unwrap();
                restart(disk, &mut journal, promise, first)?;
            }
            Step::Reopen => {
                drop(journal);
                let (opened, replay) = Journal::open(disk, path())?;
                let numbers = numbers_of(&replay.records);
                if replay.damage.is_some() {
                    promise.complaint = Some(format!("damage without a power cut: {replay:?}"));
                }
                // What an open returns is durable, whoever wrote it and whatever was promised then.
                promise.acknowledged = numbers.last().map_or(promise.acknowledged, |last| last + 1);
                promise.appended = promise.acknowledged.max(promise.first.0);
                journal = opened;
            }
        }
    }
    Ok(())
}

/// Moves to a new file that holds the records from `first` on; what was uncertain is certain then.
fn restart(
    disk: &dyn Disk,
    journal: &mut Journal,
    promise: &mut Promise,
    first: u32,
) -> Result<(), JournalError> {
    promise.first.1 = promise.first.1.max(first);
    let kept: Vec<Vec<u8>> = (first..promise.appended).map(record).collect();
    let kept: Vec<&[u8]> = kept.iter().map(Vec::as_slice).collect();
    journal.restart(disk, u64::from(first), &kept)?;
    promise.first = (first, first);
    promise.acknowledged = promise.appended;
    Ok(())
}

/// Returns the numbers of records, and panics if one is not as it was appended.
fn numbers_of(records: &[Vec<u8>]) -> Vec<u32> {
    records
        .iter()
        .map(|bytes| {
            let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            assert_eq!(*bytes, record(number), "a record was misread");
            number
        })
        .collect()
}

type Read = fn(&SimDisk) -> Result<Vec<Vec<u8>>, String>;

fn replay(disk: &SimDisk) -> Result<Vec<Vec<u8>>, String> {
    match Journal::open(disk, path()) {
        Ok((_, replay)) => Ok(replay.records),
        Err(error) => Err(format!("{error}: {error:?}")),
    }
}

/// Checks that what a restart finds is a run of the appended records with all acknowledged ones.
fn check(promise: &Promise, found: Vec<Vec<u8>>) -> Result<(), String> {
    if let Some(complaint) = &promise.complaint {
        return Err(complaint.clone());
    }
    for bytes in &found {
        let number = bytes.get(..4).map(|four| u32::from_le_bytes(four.try_into().unwrap()));
        if number.is_none_or(|number| *bytes != record(number)) {
            return Err(format!("misread {bytes:?}"));
        }
    }
    let numbers = numbers_of(&found);
    let first = numbers.first().copied().unwrap_or(promise.first.1);
    let next = numbers.last().map_or(first, |last| last + 1);
    let run = numbers.iter().copied().eq(first..next);
    let first_is_right = (promise.first.0..=promise.first.1).contains(&first);
    let all_acknowledged = next >= promise.acknowledged || first == promise.acknowledged;
    match run && first_is_right && all_acknowledged && next <= promise.appended {
        true => Ok(()),
        false => Err(format!("found {numbers:?} after {promise:?}")),
    }
}

fn explore_life<D: Disk>(
    steps: &[Step],
    wrap: impl Fn(SimDisk) -> D,
    read: Read,
) -> Result<Explored, String> {
    explore(
        || SimDisk::new().with_dir("/home"),
        |disk| live(&wrap(disk.clone()), steps),
        |disk, promise| match disk.stat(path()) {
            Ok(_) => check(promise, read(disk)?),
            Err(_) => check(promise, Vec::new()),
        },
        |disk, promise| match disk.stat(path()) {
            Ok(_) => check(promise, read(disk)?),
            Err(_) => check(promise, Vec::new()),
        },
    )
}

use Step::{Append, Cached, Reopen, Reset, Restart, Sync};

#[test]
fn acknowledged_records_survive_any_crash_and_any_failure_of_durable_appends() {
    let explored = explore_life(&[Append(1), Append(2), Append(1)], |disk| disk, replay).unwrap();
    println!("{explored:?}");
    assert!(explored.runs > 100, "{explored:?}");
}

#[test]
fn cached_records_are_lost_from_the_end_only_and_a_sync_keeps_them() {
    let steps = [Cached, Cached, Sync, Cached, Append(1), Cached];
    println!("{:?}", explore_life(&steps, |disk| disk, replay).unwrap());
}

#[test]
fn a_reset_leaves_the_old_records_or_none_and_no_old_one_comes_back() {
    let steps = [Append(1), Append(2), Reset, Append(1), Reset, Append(1), Cached];
    println!("{:?}", explore_life(&steps, |disk| disk, replay).unwrap());
}

#[test]
fn a_restart_leaves_the_old_file_or_the_new_one() {
    let steps = [Append(2), Append(1), Restart(2), Append(1), Restart(0), Append(1)];
    println!("{:?}", explore_life(&steps, |disk| disk, replay).unwrap());
}

#[test]
fn what_an_open_returned_survives_even_if_its_writer_was_killed_before_the_sync() {
    let steps = [Append(1), Cached, Cached, Reopen, Append(1), Reopen, Cached];
    println!("{:?}", explore_life(&steps, |disk| disk, replay).unwrap());
}

#[test]
fn a_file_that_grows_keeps_what_it_holds() {
    let steps = [Append(9), Append(1), Append(1)];
    println!("{:?}", explore_life(&steps, |disk| disk, replay).unwrap());
    let steps = [Append(9), Cached, Append(1)];
    println!("{:?}", explore_life(&steps, |disk| disk, replay).unwrap());
    let steps = [Append(8), Cached, Cached, Cached];
    println!("{:?}", explore_life(&steps, |disk| disk, replay).unwrap());
}

/// A disk that leaves something out, to show that the explorer sees it.
#[derive(Debug)]
struct Lying {
    disk: SimDisk,
    lie: Lie,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// A durable log write goes into the cache only.
    LogWrite,
    /// A log sync does nothing.
    LogSync,
    /// Opening a log does not sync what it finds.
    OpenLog,
    /// Syncing a directory does nothing.
    SyncDir,
    /// Every file has the same salt.
    Salt,
}

#[derive(Debug)]
struct LyingLog {
    log: Box<dyn LogFile>,
    lie: Lie,
}

impl LogFile for LyingLog {
    fn block_len(&self) -> usize {
        self.log.block_len()
    }
    fn len(&self) -> u64 {
        self.log.len()
    }
    fn read(&mut self) -> io::Result<Vec<u8>> {
        self.log.read()
    }
    fn read_at(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        self.log.read_at(at, len)
    }
    fn identity(&self) -> (u64, u64) {
        self.log.identity()
    }
    fn extend(&mut self, len: u64) -> io::Result<()> {
        self.log.extend(len)
    }
    fn write_blocks(&mut self, at: u64, blocks: &[u8]) -> io::Result<()> {
        match self.lie {
            Lie::LogWrite => self.log.write_cached(at, blocks),
            _ => self.log.write_blocks(at, blocks),
        }
    }
    fn write_cached(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.log.write_cached(at, bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        if self.lie == Lie::LogSync { Ok(()) } else { self.log.sync() }
    }
}

impl Disk for Lying {
    unjank_store::pass_on!(this, path => this.disk;
        read stat read_link list create_dir create open rename remove remove_abandoned);

    fn open_log(&self, path: &Path) -> io::Result<Box<dyn LogFile>> {
        let log = match self.lie {
            Lie::OpenLog => self.disk.open_log_unsynced(path)?,
            _ => self.disk.open_log(path)?,
        };
        Ok(Box::new(LyingLog { log, lie: self.lie }))
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.lie == Lie::SyncDir { Ok(()) } else { self.disk.sync_dir(dir) }
    }
    fn token(&self) -> io::Result<u64> {
        if self.lie == Lie::Salt { Ok(1) } else { self.disk.token() }
    }
}

fn explore_lie(lie: Lie, steps: &[Step]) -> String {
    explore_life(steps, |disk| Lying { disk, lie }, replay).unwrap_err()
}

#[test]
fn the_explorer_catches_an_append_that_is_not_durable() {
    assert!(explore_lie(Lie::LogWrite, &[Append(1)]).contains("found []"));
}

#[test]
fn the_explorer_catches_a_missing_sync() {
    assert!(explore_lie(Lie::LogSync, &[Cached, Sync]).contains("found []"));
}

#[test]
fn the_explorer_catches_a_missing_directory_sync() {
    assert!(explore_lie(Lie::SyncDir, &[Append(1)]).contains("found []"));
}

#[test]
fn the_explorer_catches_an_open_that_believes_the_page_cache() {
    assert!(explore_lie(Lie::OpenLog, &[Cached, Reopen, Append(1)]).contains("found"));
}

/// The salt and epoch of the frame before, as bytes, and its sequence number.
type Before = (Vec<u8>, u64);

/// Reads frames one behind the other as the format's drawing has them, with a checker's choice of what to trust.
fn naive(
    disk: &SimDisk,
    trust: fn(&[u8], Option<&Before>) -> bool,
) -> Result<Vec<Vec<u8>>, String> {
    let bytes = disk.read(path()).map_err(|error| error.to_string())?;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut at = 8192;
    let mut records = Vec::new();
    let mut before = None;
    while bytes.len() > at + 40 && bytes[at..at + 4] == *b"UJF1" {
        let len = u32_at(at + 4);
        let Some(frame) = bytes.get(at..at + 40 + len) else { break };
        if !trust(frame, before.as_ref()) {
            break;
        }
        let sequence = u64::from_le_bytes(frame[24..32].try_into().unwrap());
        before = Some((frame[8..24].to_vec(), sequence));
        let (mut from, end) = (at + 40, at + 40 + len);
        while from < end {
            let len = u32_at(from);
            records.push(bytes.get(from + 4..from + 4 + len).unwrap_or(&[]).to_vec());
            from += 4 + len.max(1);
        }
        at = (at + 40 + len).next_multiple_of(8);
        while bytes.len() > at + 40 && bytes[at..at + 8] == [0; 8] {
            at += 8;
        }
    }
    Ok(records)
}

fn sum_is_right(frame: &[u8]) -> bool {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&frame[..36]), &frame[40..]);
    frame[36..40] == sum.to_le_bytes()
}

fn follows(frame: &[u8], before: Option<&Before>) -> bool {
    let sequence = u64::from_le_bytes(frame[24..32].try_into().unwrap());
    before.map_or(sequence == 0, |(file, last)| frame[8..24] == file[..] && sequence == last + 1)
}

#[test]
fn the_explorer_accepts_a_plain_reader_that_checks_everything() {
    let careful: Read =
        |disk| naive(disk, |frame, before| sum_is_right(frame) && follows(frame, before));
    explore_life(&[Append(2), Append(1), Append(1)], |disk| disk, careful).unwrap();
}

#[test]
fn the_explorer_catches_a_reader_that_does_not_check_the_sum() {
    let trusting: Read = |disk| naive(disk, follows);
    let fault = explore_life(&[Append(2), Append(1), Append(1)], |disk| disk, trusting);
    assert!(fault.unwrap_err().contains("misread"));
}

#[test]
fn the_explorer_catches_a_reader_that_takes_frames_from_before_a_reset() {
    let forgetful: Read = |disk| naive(disk, |frame, _| sum_is_right(frame));
    let steps = [Append(1), Append(1), Reset, Append(1)];
    let fault = explore_life(&steps, |disk| disk, forgetful);
    assert!(fault.unwrap_err().contains("found"));
}

#[test]
fn the_explorer_catches_files_that_share_their_salt() {
    // The new file's blocks held the old one's bytes: frames of the old life stand behind the new ones.
    let stale = |salt_lies: bool| {
        let disk = SimDisk::new().with_dir("/home");
        let lie = if salt_lies { Lie::Salt } else { Lie::LogSync };
        let lying = Lying { disk: disk.clone(), lie };
        let mut old = Journal::open(&lying, path()).unwrap().0;
        old.append(&[&record(0)]).unwrap();
        old.append(&[&record(1)]).unwrap();
        let old_bytes = disk.read(path()).unwrap();
        let mut new = Journal::open(&lying, Path::new("/home/new")).unwrap().0;
        new.append(&[&record(0)]).unwrap();
        let mut bytes = disk.read(Path::new("/home/new")).unwrap();
        bytes[8192 + 512..8192 + 1024].copy_from_slice(&old_bytes[8192 + 512..8192 + 1024]);
        let mixed = SimDisk::new().with_file(path(), &bytes);
        Journal::open(&mixed, path()).unwrap().1.records.len()
    };
    assert_eq!(stale(false), 1);
    assert_eq!(stale(true), 2, "without its own salt a file takes the old frame for its own");
}
