//! The log of commands, written by a thread of its own: a disk that hangs delays no command, and fills no memory.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use host::log::{CommandOutcome, End, LogEntry, LoggedProcess, Writer};

/// The most entries that wait for the disk; further ones are dropped, which is logged.
const MOST_WAITING: usize = 4096;
/// The number of refusals of one application that are recorded at once.
const BURST: u32 = 32;
/// After that, one refusal in this time: a caller in a loop fills neither the disk nor the log.
const PACE: Duration = Duration::from_millis(250);
/// How long an entry waits for others before the thread is woken.
const LINGER: Duration = Duration::from_millis(20);
/// Applications whose refusals are counted.
const MOST_COUNTED: usize = 256;

/// The sending side.
#[derive(Debug)]
pub(super) struct Log {
    lines: Option<SyncSender<Line>>,
    /// Entries that were not sent to the thread yet.
    held: Vec<Line>,
    /// When they are sent.
    due: Option<Duration>,
    next: u64,
    refusals: Refusals,
    /// How many entries were dropped since that was logged.
    lost: u64,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Line {
    Begin(LogEntry),
    End(u64, End),
}

impl Log {
    /// Starts the thread, which ends when this is dropped.
    pub(super) fn start(writer: Writer) -> Log {
        let (lines, taken) = sync_channel(MOST_WAITING);
        let thread = sys::thread::spawn("host-log", move || write(writer, &taken));
        if let Err(error) = &thread {
            tracing::warn!(%error, "cannot log host commands");
        }
        Log {
            lines: Some(lines),
            held: Vec::new(),
            due: None,
            next: 0,
            refusals: Refusals::default(),
            lost: 0,
            thread: thread.ok(),
        }
    }

    /// Records a request and returns its number, which counts from the start of the service; it is written a little later.
    pub(super) fn begin(&mut self, mut entry: LogEntry) -> u64 {
        entry.id = self.next;
        self.next += 1;
        let id = entry.id;
        if self.refusals.may_be_recorded(&mut entry) {
            self.held.push(Line::Begin(entry));
        }
        id
    }

    /// Records the end of a command; it is written a little later.
    pub(super) fn end(&mut self, id: u64, end: End) {
        self.held.push(Line::End(id, end));
    }

    /// Returns when waiting entries are to be written, if there are any.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let due = self.due.unwrap_or(Duration::ZERO);
        (!self.held.is_empty()).then_some(due)
    }

    /// Sends the waiting entries to the thread when they are due.
    pub(super) fn flush_if_due(&mut self, now: Duration) {
        if self.held.is_empty() {
            return;
        }
        let due = *self.due.get_or_insert(now + LINGER);
        if now >= due || self.held.len() >= MOST_WAITING / 4 {
            self.flush();
        }
    }

    /// Sends the waiting entries to the thread.
    fn flush(&mut self) {
        self.due = None;
        for line in self.held.drain(..) {
            // Without a thread there is no log, which was logged at the start.
            let Some(lines) = self.lines.as_ref().filter(|_| self.thread.is_some()) else {
                continue;
            };
            match lines.try_send(line) {
                Ok(()) if self.lost > 0 => {
                    tracing::warn!(
                        self.lost,
                        "records of host commands are lost: the disk is slow"
                    );
                    self.lost = 0;
                }
                Ok(()) => {}
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.lost += 1,
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // The thread writes everything before this returns.
        self.flush();
        drop(self.lines.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How many refusals of each application were recorded lately.
#[derive(Debug, Default)]
struct Refusals(HashMap<String, Recorded>);

#[derive(Debug)]
struct Recorded {
    /// How many may be recorded at once.
    left: u32,
    /// Until when the count is valid.
    since: SystemTime,
    unrecorded: u64,
}

impl Refusals {
    /// Returns whether an entry is to be recorded. A recorded refusal has the number of earlier ones that were not.
    fn may_be_recorded(&mut self, entry: &mut LogEntry) -> bool {
        if !matches!(entry.outcome, CommandOutcome::Refused(_)) {
            return true;
        }
        if self.0.len() >= MOST_COUNTED && !self.0.contains_key(&entry.application) {
            self.0.clear();
        }
        let recorded = self.0.entry(entry.application.clone()).or_insert_with(|| Recorded {
            left: BURST,
            since: entry.time,
            unrecorded: 0,
        });
        let passed = entry.time.duration_since(recorded.since).unwrap_or_default();
        let earned = passed.as_millis() / PACE.as_millis();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            recorded.left = recorded.left.saturating_add(earned).min(BURST);
            recorded.since = entry.time;
        }
        if recorded.left == 0 {
            recorded.unrecorded += 1;
            return false;
        }
        recorded.left -= 1;
        entry.unrecorded = std::mem::take(&mut recorded.unrecorded);
        true
    }
}

fn write(mut writer: Writer, lines: &Receiver<Line>) {
    let first = writer.next_id().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot log host commands");
        0
    });
    tell_notes(&mut writer);
    let mut fails = false;
    while let Ok(line) = lines.recv() {
        let written = match line {
            Line::Begin(mut entry) => {
                entry.id += first;
                if let CommandOutcome::Began(process) = &mut entry.outcome {
                    *process = LoggedProcess::of(process.pid);
                }
                writer.begin(&entry)
            }
            Line::End(id, end) => writer.end(id + first, &end),
        };
        // It is logged once each time that writing begins to fail.
        if let Err(error) = &written
            && !fails
        {
            tracing::warn!(%error, "cannot log host commands");
        }
        fails = written.is_err();
        tell_notes(&mut writer);
    }
}

fn tell_notes(writer: &mut Writer) {
    for note in writer.take_notes() {
        tracing::warn!("{note}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::command::CommandRequest;

    #[test]
    fn whoever_is_refused_in_a_loop_is_counted_and_not_recorded_each_time() {
        let mut refusals = Refusals::default();
        let at = |millis: u64, application: &str| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000 + millis);
            let entry = LogEntry::asked(time, &CommandRequest::default());
            LogEntry { application: application.into(), ..entry }
        };
        let recorded = (0..1000)
            .filter(|millis| refusals.may_be_recorded(&mut at(*millis / 10, "org.loud.One")))
            .count();
        assert_eq!(recorded, 32);
        assert!(refusals.may_be_recorded(&mut at(100, "org.quiet.One")));
        let mut later = at(400, "org.loud.One");
        assert!(refusals.may_be_recorded(&mut later));
        assert_eq!(later.unrecorded, 968);
        let mut next = at(401, "org.loud.One");
        assert!(!refusals.may_be_recorded(&mut next));
        let ran = CommandOutcome::Began(LoggedProcess { pid: 1, began: 1 });
        assert!(refusals.may_be_recorded(&mut LogEntry { outcome: ran, ..next }), "it ran");
    }
}
