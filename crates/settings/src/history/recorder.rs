//! Gathers changes on the engine's side; the disk thread writes them after the replies.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use super::writer::{OpenedImage, Writer, Written};
use super::{HistoryEntry, HistoryProcess, Keep};
use crate::names::DatabaseDirectories;

/// How long entries are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);
/// How long a change of another program waits: if another service of this user made it, that service has recorded it by then.
const GATHER_OUTSIDE: Duration = Duration::from_secs(3);
/// The delay before the next attempt while another service writes the history.
const TRY_AGAIN: Duration = Duration::from_millis(50);
/// The time limit for another service when this service ends.
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(1);
/// The most waiting entries; if the disk fails, the oldest are dropped.
const MOST_WAITING: usize = 4096;
/// What those that wait may take in memory, in bytes.
const MOST_WAITING_BYTES: usize = 32 << 20;
/// An entry that takes less is not compared with all that wait, which takes time.
const SMALL_ENTRY: usize = 4 << 10;
/// The most senders whose processes are remembered.
const MOST_PROCESSES: usize = 512;

/// The waiting entries, on the engine's side.
#[derive(Debug)]
pub(crate) struct Recorder {
    waiting: Vec<HistoryEntry>,
    /// Changes from outside, and when each is due.
    outside: Vec<(Duration, HistoryEntry)>,
    /// How many entries were dropped because too many waited.
    dropped: u64,
    opened: Vec<OpenedImage>,
    processes: HashMap<Box<str>, HistoryProcess>,
    /// The disk's side, unless the disk thread has it.
    writer: Option<Writer>,
    due: Option<Duration>,
    /// Since when another service has held the lock of the history.
    busy_since: Option<Duration>,
    is_ending: bool,
}

impl Recorder {
    /// Starts with nothing waiting; the file is opened by the first write.
    pub(crate) fn new(places: &DatabaseDirectories, keep: Keep, started: SystemTime) -> Recorder {
        let writer = Writer::new(places, keep, started);
        Recorder {
            waiting: Vec::new(),
            outside: Vec::new(),
            dropped: 0,
            opened: Vec::new(),
            processes: HashMap::new(),
            writer: Some(writer),
            due: None,
            busy_since: None,
            is_ending: false,
        }
    }

    /// Records the process of a bus name.
    pub(crate) fn identify(&mut self, sender: &str, process: HistoryProcess) {
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

    /// Records a database as it was read first; the next write compares it with the history.
    pub(crate) fn opened(&mut self, image: OpenedImage) {
        self.opened.push(image);
    }

    /// Adds an entry, and sets its number and process.
    pub(crate) fn push(&mut self, mut entry: HistoryEntry, now: Duration) {
        entry.process = self.processes.get(entry.sender.as_str()).cloned();
        if self.outside.len() >= MOST_WAITING {
            self.dropped += self.outside.len() as u64;
            self.outside.clear();
        }
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.drain(..MOST_WAITING / 2);
            self.dropped += (MOST_WAITING / 2) as u64;
        }
        // Whoever changes much and often is ahead of the disk.
        if entry.weight() > SMALL_ENTRY
            && entry.weight() + self.waiting_bytes() > MOST_WAITING_BYTES
        {
            self.dropped += 1;
            return;
        }
        if entry.is_from_outside() {
            let wait = if self.is_ending { Duration::ZERO } else { GATHER_OUTSIDE };
            self.outside.push((now + wait, entry));
        } else {
            self.waiting.push(entry);
            self.due.get_or_insert(now + GATHER);
        }
    }

    fn waiting_bytes(&self) -> usize {
        let outside = self.outside.iter().map(|(_, entry)| entry);
        self.waiting.iter().chain(outside).map(HistoryEntry::weight).sum()
    }

    /// Says whether the disk has the writer.
    pub(crate) fn is_writing(&self) -> bool {
        self.writer.is_none()
    }

    /// Returns when entries should be written.
    pub(crate) fn due(&self) -> Option<Duration> {
        let outside = self.outside.iter().map(|(due, _)| *due);
        outside.chain(self.due).min().filter(|_| self.writer.is_some())
    }

    /// Makes all waiting entries due now.
    pub(crate) fn hurry(&mut self, now: Duration) {
        self.is_ending = true;
        self.due = self.due.map(|due| due.min(now));
        self.outside.iter_mut().for_each(|(due, _)| *due = now.min(*due));
    }

    /// Returns the entries that are due.
    pub(crate) fn take_writer(&mut self, time: SystemTime, now: Duration) -> Option<Writer> {
        let is_due = self.due().is_some_and(|due| due <= now);
        let mut writer = self.writer.take_if(|_| is_due)?;
        self.due = None;
        let later = self.outside.iter().position(|(due, _)| *due > now);
        let due = self.outside.drain(..later.unwrap_or(self.outside.len()));
        self.waiting.extend(due.map(|(_, entry)| entry));
        writer.take_batch(
            std::mem::take(&mut self.waiting),
            std::mem::take(&mut self.opened),
            time,
        );
        Some(writer)
    }

    /// Takes the writer back with its result; returns notices for the log.
    pub(crate) fn return_writer(
        &mut self,
        mut writer: Writer,
        written: Written,
        now: Duration,
    ) -> Option<String> {
        let mut lost = std::mem::take(&mut self.dropped);
        match written {
            Written::All => self.busy_since = None,
            Written::Failed => lost += writer.drop_batch(),
            Written::Busy => {
                let since = *self.busy_since.get_or_insert(now);
                if self.is_ending && now.saturating_sub(since) >= PATIENCE_AT_THE_END {
                    lost += writer.drop_batch();
                } else {
                    let (mut batch, opened) = writer.return_batch();
                    batch.append(&mut self.waiting);
                    self.waiting = batch;
                    self.opened.splice(..0, opened);
                    let again = now + TRY_AGAIN;
                    self.due = Some(self.due.map_or(again, |due| due.min(again)));
                }
            }
        }
        self.writer = Some(writer);
        (lost > 0).then(|| format!("{lost} changes of settings are not in the history"))
    }
}
