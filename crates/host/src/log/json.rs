//! Entries of the log, for programs.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::{CommandOutcome, EndedBy, LogEntry};

/// One command in the JSON document of `unjank host log`; docs/host.md has the fields.
#[derive(Debug, Default, Serialize)]
pub struct CommandLogRecord {
    id: u64,
    time: String,
    app: String,
    caller: u32,
    exe: Option<PathBuf>,
    command: Vec<String>,
    directory: Option<PathBuf>,
    /// `refused`, `not-started`, `runs`, `unknown`, `ended`.
    outcome: &'static str,
    why: Option<String>,
    /// Refusals of the application before this one that are not in the log.
    unrecorded: u64,
    pid: Option<u32>,
    wait_status: Option<i32>,
    seconds: Option<f64>,
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    memory_bytes: Option<u64>,
    /// `itself`, `caller-gone`, `timeout`.
    ended_by: Option<&'static str>,
}

impl CommandLogRecord {
    /// Returns the record of an entry.
    #[must_use]
    pub fn of(entry: &LogEntry) -> CommandLogRecord {
        let mut line = CommandLogRecord {
            id: entry.id,
            time: jiff::Timestamp::try_from(entry.time).unwrap_or_default().to_string(),
            app: entry.application.clone(),
            caller: entry.caller,
            exe: entry.exe.clone(),
            command: entry.command.clone(),
            directory: entry.directory.clone(),
            unrecorded: entry.unrecorded,
            ..CommandLogRecord::default()
        };
        match &entry.outcome {
            CommandOutcome::Refused(why) => {
                (line.outcome, line.why) = ("refused", Some(why.clone()))
            }
            CommandOutcome::NotStarted(why) => {
                (line.outcome, line.why) = ("not-started", Some(why.clone()))
            }
            CommandOutcome::Began(process) => {
                line.outcome = if process.is_alive() { "runs" } else { "unknown" };
                line.pid = Some(process.pid);
            }
            CommandOutcome::Ended(process, end) => {
                let seconds = |time: Duration| Some(time.as_secs_f64());
                line.outcome = "ended";
                line.pid = Some(process.pid);
                line.wait_status = Some(end.wait_status);
                (line.seconds, line.memory_bytes) = (seconds(end.after), Some(end.memory_bytes));
                (line.user_seconds, line.system_seconds) = (seconds(end.user), seconds(end.system));
                line.ended_by = Some(match end.by {
                    EndedBy::Itself => "itself",
                    EndedBy::CallerGone => "caller-gone",
                    EndedBy::Timeout => "timeout",
                });
            }
        }
        line
    }
}
