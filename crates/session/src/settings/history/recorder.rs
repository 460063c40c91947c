//! Gathering what changed, on the engine's side; the disk thread writes it behind the replies.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use store::table::gvariant::Variant;

use super::writer::{Writer, Written};
use super::{Entry, Keep, LONGEST_VALUE_BYTES, Process, Value, is_denied};
use crate::settings::engine::{DatabaseId, Places};

/// How long entries are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);
/// How long a change from outside waits: if another service of this user made it, that one has recorded it by then.
const GATHER_OUTSIDE: Duration = Duration::from_secs(3);
/// When to try again while another service writes the history.
const TRY_AGAIN: Duration = Duration::from_millis(50);
/// How long another service may take when this one ends.
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(1);
/// The most entries that wait; when the disk takes none, the oldest are dropped.
const MOST_WAITING: usize = 4096;
/// The most senders whose processes are remembered.
const MOST_PROCESSES: usize = 512;

/// The image of a database as it was found when it was read first.
#[derive(Debug)]
pub(crate) struct OpenedImage {
    /// The database.
    pub(crate) id: DatabaseId,
    /// The generation that the image says it has; 0 if it says nothing.
    pub(crate) generation: u64,
    /// The image.
    pub(crate) bytes: Vec<u8>,
    /// When it was read.
    pub(crate) time: SystemTime,
}

/// What waits to be written, on the engine's side.
#[derive(Debug)]
pub(crate) struct Recorder {
    keep: Keep,
    waiting: Vec<Entry>,
    /// Changes from outside, and when each is due.
    outside: Vec<(Duration, Entry)>,
    /// How many entries were dropped because too many waited.
    dropped: u64,
    opened: Vec<OpenedImage>,
    processes: HashMap<Box<str>, Process>,
    /// The disk's side, unless the disk thread has it.
    writer: Option<Writer>,
    due: Option<Duration>,
    /// Since when another service has kept us from writing.
    busy_since: Option<Duration>,
    is_ending: bool,
}

impl Recorder {
    /// Starts with nothing waiting; the file is opened by the first write.
    pub(crate) fn new(places: &Places, keep: Keep, started: SystemTime) -> Recorder {
        let writer = Writer::new(places, keep.clone(), started);
        Recorder {
            keep,
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

    /// Returns what is stored of the value of a key.
    pub(crate) fn value(&self, path: &str, value: Option<&Variant>) -> Value {
        value_of(&self.keep, path, value)
    }

    /// Learns what a database was when it was read first; the next write compares it with what the history knows.
    pub(crate) fn opened(&mut self, image: OpenedImage) {
        self.opened.push(image);
    }

    /// Takes an entry, whose number and process are filled in here.
    pub(crate) fn push(&mut self, mut entry: Entry, now: Duration) {
        entry.process = self.processes.get(entry.sender.as_str()).cloned();
        if self.outside.len() >= MOST_WAITING {
            self.dropped += self.outside.len() as u64;
            self.outside.clear();
        }
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.drain(..MOST_WAITING / 2);
            self.dropped += (MOST_WAITING / 2) as u64;
        }
        if entry.is_from_outside() {
            let wait = if self.is_ending { Duration::ZERO } else { GATHER_OUTSIDE };
            self.outside.push((now + wait, entry));
        } else {
            self.waiting.push(entry);
            self.due.get_or_insert(now + GATHER);
        }
    }

    /// Returns when entries should be written.
    pub(crate) fn due(&self) -> Option<Duration> {
        let outside = self.outside.iter().map(|(due, _)| *due);
        outside.chain(self.due).min().filter(|_| self.writer.is_some())
    }

    /// Makes what waits due now.
    pub(crate) fn hurry(&mut self, now: Duration) {
        self.is_ending = true;
        self.due = self.due.map(|due| due.min(now));
        self.outside.iter_mut().for_each(|(due, _)| *due = now.min(*due));
    }

    /// Hands out what is due for writing.
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

    /// Takes the writer back, with what it did; returns what the log should say.
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

/// Returns what is stored of the value of a key.
pub(super) fn value_of(keep: &Keep, path: &str, value: Option<&Variant>) -> Value {
    match value {
        None => Value::Unset,
        Some(_) if is_denied(&keep.deny, path) => Value::Hidden,
        Some(value) if value.as_bytes().len() > LONGEST_VALUE_BYTES => {
            Value::TooLong(value.as_bytes().len() as u64)
        }
        Some(value) => Value::Set(value.clone()),
    }
}
