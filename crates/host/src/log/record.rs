//! Entries as bytes: each record is a JSON object with short names, a beginning or an end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{CommandOutcome, End, EndedBy, LogEntry, LoggedProcess};

/// The version of the records that this program writes.
const VERSION: u32 = 1;
/// The most bytes of a command line that are kept.
const MOST_COMMAND: usize = 4096;

/// A record as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// Version.
    v: u32,
    id: u64,
    #[serde(flatten)]
    what: RecordedEvent,
}

#[derive(Debug, Serialize, Deserialize)]
enum RecordedEvent {
    #[serde(rename = "b")]
    Begin(Begin),
    #[serde(rename = "e")]
    End(StoredEnd),
}

#[derive(Debug, Serialize, Deserialize)]
struct Begin {
    /// Milliseconds since 1970.
    t: u64,
    app: String,
    by: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exe: Option<String>,
    cmd: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dir: Option<String>,
    /// Refusals that were not recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    more: u64,
    #[serde(flatten)]
    became: Became,
}

#[derive(Debug, Serialize, Deserialize)]
enum Became {
    #[serde(rename = "refused")]
    Refused(String),
    #[serde(rename = "failed")]
    NotStarted(String),
    /// Number and beginning.
    #[serde(rename = "pid")]
    Began((u32, u64)),
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredEnd {
    status: i32,
    /// Milliseconds.
    ms: u64,
    /// Microseconds.
    user: u64,
    system: u64,
    /// Bytes.
    mem: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<Ender>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ender {
    Gone,
    Timeout,
}

/// Encodes the request of a command, and whether it began. Its end is a record of its own.
pub(super) fn beginning(entry: &LogEntry) -> Vec<u8> {
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    let since = entry.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let became = match &entry.outcome {
        CommandOutcome::Refused(why) => Became::Refused(why.clone()),
        CommandOutcome::NotStarted(why) => Became::NotStarted(why.clone()),
        CommandOutcome::Began(process) | CommandOutcome::Ended(process, _) => {
            Became::Began((process.pid, process.began))
        }
    };
    let begin = Begin {
        t: millis(since),
        app: entry.application.clone(),
        by: entry.caller,
        exe: entry.exe.as_ref().map(text),
        cmd: entry.command.clone(),
        dir: entry.directory.as_ref().map(text),
        more: entry.unrecorded,
        became,
    };
    encode(entry.id, RecordedEvent::Begin(begin))
}

/// Encodes the end of command `id`.
pub(super) fn end(id: u64, end: &End) -> Vec<u8> {
    let by = match end.by {
        EndedBy::Itself => None,
        EndedBy::CallerGone => Some(Ender::Gone),
        EndedBy::Timeout => Some(Ender::Timeout),
    };
    let stored = StoredEnd {
        status: end.wait_status,
        ms: millis(end.after),
        user: micros(end.user),
        system: micros(end.system),
        mem: end.memory_bytes,
        by,
    };
    encode(id, RecordedEvent::End(stored))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn encode(id: u64, what: RecordedEvent) -> Vec<u8> {
    serde_json::to_vec(&Stored { v: VERSION, id, what }).unwrap_or_default()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns words as text; of a long command line only its beginning.
pub(super) fn cut(command: &[Vec<u8>]) -> Vec<String> {
    let mut room = MOST_COMMAND;
    let mut kept = Vec::new();
    for word in command {
        let text = String::from_utf8_lossy(word.get(..room).unwrap_or(word));
        if room <= text.len() || word.len() > room {
            let end = (0..=room.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
            kept.push(format!("{}…", text.get(..end.unwrap_or(0)).unwrap_or_default()));
            break;
        }
        room -= text.len() + 1;
        kept.push(text.into_owned());
    }
    kept
}

/// Returns the number of a record; `None` if it is invalid.
pub(super) fn id(record: &[u8]) -> Option<u64> {
    decode(record).map(|stored| stored.id)
}

/// What a record describes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// It begins a command of this application.
    Runs(String),
    /// A command of this application was refused.
    Refused(String),
    /// The end of the command with this number.
    EndOf(u64),
    /// An invalid record.
    Nobody,
}

/// Says whose a record is.
pub(super) fn owner(record: &[u8]) -> Owner {
    match decode(record) {
        None => Owner::Nobody,
        Some(Stored { id, what: RecordedEvent::End(_), .. }) => Owner::EndOf(id),
        Some(Stored { what: RecordedEvent::Begin(begin), .. }) => match begin.became {
            Became::Refused(_) => Owner::Refused(begin.app),
            Became::NotStarted(_) | Became::Began(_) => Owner::Runs(begin.app),
        },
    }
}

/// Combines records into entries; an end whose beginning was dropped is left out.
pub(super) fn entries(records: impl Iterator<Item = Vec<u8>>) -> Vec<LogEntry> {
    let mut entries = BTreeMap::new();
    for Stored { id, what, .. } in records.filter_map(|record| decode(&record)) {
        match what {
            RecordedEvent::Begin(begin) => {
                entries.extend(entry(id, begin).map(|entry| (id, entry)));
            }
            RecordedEvent::End(end) => {
                if let Some(LogEntry { outcome, .. }) = entries.get_mut(&id)
                    && let CommandOutcome::Began(process) = *outcome
                {
                    *outcome = CommandOutcome::Ended(process, read_end(&end));
                }
            }
        }
    }
    entries.into_values().collect()
}

fn decode(record: &[u8]) -> Option<Stored> {
    serde_json::from_slice(record).ok().filter(|stored: &Stored| stored.v == VERSION)
}

fn entry(id: u64, begin: Begin) -> Option<LogEntry> {
    Some(LogEntry {
        id,
        time: SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(begin.t))?,
        application: begin.app,
        caller: begin.by,
        exe: begin.exe.map(PathBuf::from),
        command: begin.cmd,
        directory: begin.dir.map(PathBuf::from),
        unrecorded: begin.more,
        outcome: match begin.became {
            Became::Refused(why) => CommandOutcome::Refused(why),
            Became::NotStarted(why) => CommandOutcome::NotStarted(why),
            Became::Began((pid, began)) => CommandOutcome::Began(LoggedProcess { pid, began }),
        },
    })
}

fn read_end(end: &StoredEnd) -> End {
    End {
        wait_status: end.status,
        after: Duration::from_millis(end.ms),
        user: Duration::from_micros(end.user),
        system: Duration::from_micros(end.system),
        memory_bytes: end.mem,
        by: match end.by {
            None => EndedBy::Itself,
            Some(Ender::Gone) => EndedBy::CallerGone,
            Some(Ender::Timeout) => EndedBy::Timeout,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(in crate::log) fn example(id: u64, outcome: CommandOutcome) -> LogEntry {
        LogEntry {
            id,
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            application: "org.vim.Vim".into(),
            caller: 12,
            exe: Some("/app/bin/vim".into()),
            command: vec!["git".into(), "log".into()],
            directory: Some("/home/ann".into()),
            outcome,
            unrecorded: id,
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let process = LoggedProcess { pid: 7, began: 1234 };
        let ended = End {
            wait_status: 139,
            after: Duration::from_millis(1500),
            user: Duration::from_micros(1_000_001),
            system: Duration::from_micros(3),
            memory_bytes: 5 << 20,
            by: EndedBy::CallerGone,
        };
        let written = [
            example(1, CommandOutcome::Refused("the policy".into())),
            example(2, CommandOutcome::NotStarted("no such file".into())),
            example(3, CommandOutcome::Began(process)),
            example(4, CommandOutcome::Ended(process, ended)),
        ];
        let mut records: Vec<Vec<u8>> = written.iter().map(beginning).collect();
        records.push(end(4, &ended));
        records.push(end(99, &ended));
        records.push(b"{\"v\":2,\"id\":5,\"e\":{}}".to_vec());
        assert_eq!(entries(records.into_iter()), written);
    }

    #[test]
    fn a_long_command_is_cut_between_characters() {
        let command = cut(&["é".repeat(3000).into_bytes(), b"more".to_vec()]);
        assert_eq!(command.len(), 1);
        assert!(command[0].ends_with("é…") && command[0].len() < 4100, "{}", command[0].len());
        // One byte of many becomes three, and there are many words.
        let command = cut(&vec![vec![0xff; 100]; 1000]);
        assert!(command.iter().map(String::len).sum::<usize>() < 4100 && command.len() < 20);
        assert_eq!(cut(&[b"git".to_vec(), b"a\xff".to_vec()]), ["git", "a\u{fffd}"]);
        let full = cut(&[vec![b'x'; MOST_COMMAND], b"y".to_vec()]);
        assert_eq!(full.len(), 1);
    }
}
