//! Gathering what changed and writing it behind the replies.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use store::disk::Disk;
use store::journal::{Journal, JournalError};

use super::{Entry, Keep, Process, is_denied, record};
use crate::settings::engine::Places;

/// How long entries are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);
/// The most entries that wait; when the disk takes none, the oldest are dropped.
const MOST_WAITING: usize = 4096;
/// The most senders whose processes are remembered.
const MOST_PROCESSES: usize = 512;

/// What waits to be written, on the engine's side.
#[derive(Debug)]
pub(crate) struct Recorder {
    keep: Keep,
    waiting: Vec<Entry>,
    processes: HashMap<Box<str>, Process>,
    /// The disk's side, unless the disk thread has it.
    writer: Option<Writer>,
    due: Option<Duration>,
}

impl Recorder {
    /// Starts with nothing waiting; the file is opened by the first write.
    pub(crate) fn new(places: &Places, keep: Keep) -> Recorder {
        let writer = Writer {
            path: super::file(places),
            keep: keep.clone(),
            journal: None,
            next_id: 0,
            batch: Vec::new(),
            now: SystemTime::UNIX_EPOCH,
        };
        let (waiting, processes) = (Vec::new(), HashMap::new());
        Recorder { keep, waiting, processes, writer: Some(writer), due: None }
    }

    /// Learns who is behind a bus name.
    pub(crate) fn identify(&mut self, sender: &str, process: Process) {
        if self.processes.len() >= MOST_PROCESSES {
            self.processes.clear();
        }
        for entry in &mut self.waiting {
            if entry.sender == sender {
                entry.process.get_or_insert_with(|| process.clone());
            }
        }
        self.processes.insert(sender.into(), process);
    }

    /// Says whether the values of a key are never stored.
    pub(crate) fn hides(&self, path: &str) -> bool {
        is_denied(&self.keep.deny, path)
    }

    /// Takes an entry, whose number and process are filled in here.
    pub(crate) fn push(&mut self, mut entry: Entry, now: Duration) {
        entry.process = self.processes.get(entry.sender.as_str()).cloned();
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.drain(..MOST_WAITING / 2);
        }
        self.waiting.push(entry);
        self.due.get_or_insert(now + GATHER);
    }

    /// Returns when entries should be written.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.due.filter(|_| self.writer.is_some())
    }

    /// Makes what waits due now.
    pub(crate) fn hurry(&mut self, now: Duration) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// Hands out what is due for writing.
    pub(crate) fn take_writer(&mut self, time: SystemTime, now: Duration) -> Option<Writer> {
        self.due.take_if(|due| *due <= now)?;
        let mut writer = self.writer.take()?;
        writer.batch = std::mem::take(&mut self.waiting);
        writer.now = time;
        Some(writer)
    }

    /// Takes the writer back.
    pub(crate) fn return_writer(&mut self, writer: Writer) {
        self.writer = Some(writer);
    }
}

/// The disk's side.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    keep: Keep,
    journal: Option<Journal>,
    next_id: u64,
    batch: Vec<Entry>,
    now: SystemTime,
}

impl Writer {
    /// Writes the batch and drops what is too old or too much. After an error the batch is lost.
    ///
    /// The records survive the end of the process, and a power cut as soon as the kernel writes them: a history is
    /// not worth a sync.
    pub(crate) fn write(&mut self, disk: &dyn Disk) -> Result<(), JournalError> {
        let mut batch = std::mem::take(&mut self.batch);
        let mut journal = match self.journal.take() {
            Some(journal) => journal,
            None => self.open(disk)?,
        };
        for entry in &mut batch {
            entry.id = self.next_id;
            self.next_id += 1;
        }
        let records = record::pack(&batch);
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        journal.append_cached(&records)?;
        if journal.used_bytes() > self.keep.bytes {
            let kept = self.kept(disk)?;
            let kept: Vec<&[u8]> = kept.iter().map(Vec::as_slice).collect();
            journal.restart(disk, self.next_id, &kept)?;
        }
        self.journal = Some(journal);
        Ok(())
    }

    /// Opens the journal; what cannot be read of it is dropped.
    fn open(&mut self, disk: &dyn Disk) -> Result<Journal, JournalError> {
        let (mut journal, replay) = Journal::open(disk, &self.path)?;
        let entries = replay.records.iter().flat_map(|bytes| record::unpack(bytes));
        let next = entries.map(|entry| entry.id + 1).max().unwrap_or(0);
        self.next_id = self.next_id.max(next).max(replay.base);
        if journal.is_spent() {
            let kept: Vec<&[u8]> = replay.records.iter().map(Vec::as_slice).collect();
            journal.restart(disk, self.next_id, &kept)?;
        }
        Ok(journal)
    }

    /// Returns the newest records that are young enough and take no more than half of the room.
    fn kept(&self, disk: &dyn Disk) -> Result<Vec<Vec<u8>>, JournalError> {
        let mut records = Journal::read(disk, &self.path)?.records;
        let oldest = self.now.checked_sub(self.keep.age);
        let mut room = self.keep.bytes / 2;
        let first = records
            .iter()
            .rposition(|bytes| {
                let fits = room >= bytes.len() as u64;
                room = room.saturating_sub(bytes.len() as u64);
                let entries = record::unpack(bytes);
                let young = entries.last().is_some_and(|entry| Some(entry.time) >= oldest);
                !(fits && young)
            })
            .map_or(0, |last_dropped| last_dropped + 1);
        records.drain(..first);
        Ok(records)
    }
}
