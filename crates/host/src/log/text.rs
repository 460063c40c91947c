//! Entries of the log, for people.

use std::ops::RangeInclusive;

use jiff::{Timestamp, Zoned};
use report::figure::{Quantity, duration};
use report::paragraph::wrap;
use report::quoting::quoted;
use report::table::{Align, TableCell, TextTable, cut};
use report::text::{Charset, visible};

use super::{CommandOutcome, EndedBy, LogEntry};
use crate::process::CommandExit;

/// The most columns of a command line, and how far it is cut before other columns go.
const COMMAND_COLUMNS: RangeInclusive<usize> = 16..=40;
/// The place of the command among the columns.
const COMMAND: usize = 3;

/// Returns a table with a row for each entry; times are in the time zone of `now`. Why commands were not run is in
/// [`reasons`].
#[must_use]
pub fn table(entries: &[&LogEntry], now: &Zoned) -> TextTable {
    let mut table = TextTable::new(&[
        ("when", Align::Text),
        ("application", Align::Text),
        ("end", Align::Text),
        ("command", Align::Text),
        ("took", Align::Point),
        ("processor", Align::Point),
        ("memory", Align::Point),
    ]);
    table.cut_first(COMMAND, *COMMAND_COLUMNS.start());
    for entry in entries {
        table.row(row(entry, now));
    }
    table
}

fn row(entry: &LogEntry, now: &Zoned) -> Vec<TableCell> {
    let when = Timestamp::try_from(entry.time).unwrap_or_default();
    let when = when.to_zoned(now.time_zone().clone());
    let format = if when.date() == now.date() { "%H:%M:%S" } else { "%F %H:%M" };
    let words: Vec<String> = entry.command.iter().map(|word| quoted(word)).collect();
    let mut cells: Vec<TableCell> = vec![
        when.strftime(format).to_string().into(),
        visible(&entry.application, Charset::Unicode).into_owned().into(),
        how(entry).into(),
        cut(&visible(&words.join(" "), Charset::Unicode), *COMMAND_COLUMNS.end()).into(),
    ];
    match &entry.outcome {
        CommandOutcome::Ended(_, end) => {
            cells.push(duration(end.after).into());
            cells.push(duration(end.user + end.system).into());
            cells.push(Quantity::Size.show(bytes(end.memory_bytes)).into());
        }
        _ => cells.extend(["", "", ""].map(TableCell::from)),
    }
    cells
}

/// Returns a paragraph that says why commands were not run, each reason once, the latest last; nothing if all were.
#[must_use]
pub fn reasons(entries: &[&LogEntry], width: usize) -> String {
    let mut reasons: Vec<String> = Vec::new();
    for entry in entries.iter().rev() {
        let reason = match &entry.outcome {
            CommandOutcome::Refused(why) => format!("refused to {}: {why}", entry.application),
            CommandOutcome::NotStarted(why) => {
                format!("not started for {}: {why}", entry.application)
            }
            CommandOutcome::Began(_) | CommandOutcome::Ended(..) => continue,
        };
        let reason = wrap(&reason, width, "- ");
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    if !reasons.is_empty() {
        reasons.push("\nNot run:\n".to_owned());
    }
    reasons.into_iter().rev().collect()
}

/// Returns in a few words what became of a command.
fn how(entry: &LogEntry) -> String {
    match &entry.outcome {
        CommandOutcome::Refused(_) if entry.unrecorded > 0 => {
            format!("refused, and {} before it", entry.unrecorded)
        }
        CommandOutcome::Refused(_) => "refused".to_owned(),
        CommandOutcome::NotStarted(_) => "not started".to_owned(),
        CommandOutcome::Began(process) if process.is_alive() => format!("runs ({})", process.pid),
        CommandOutcome::Began(_) => "unknown".to_owned(),
        CommandOutcome::Ended(_, end) => {
            let how = match CommandExit::of(u32::from_ne_bytes(end.wait_status.to_ne_bytes())) {
                CommandExit::Code(code) => code.to_string(),
                CommandExit::Signal(number) => format!("signal {number}"),
                CommandExit::Unknown => "unknown".to_owned(),
            };
            match end.by {
                EndedBy::Itself => how,
                EndedBy::CallerGone => format!("{how}, caller gone"),
                EndedBy::Timeout => format!("{how}, took too long"),
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a size that is shown with three digits")]
fn bytes(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use jiff::tz::TimeZone;
    use report::paint::Paint;

    use super::super::{End, LoggedProcess};
    use super::*;

    #[test]
    fn on_eighty_columns_it_stands_how_each_command_ended() {
        let end = End {
            wait_status: 9,
            after: Duration::from_millis(1500),
            user: Duration::from_millis(3),
            system: Duration::ZERO,
            memory_bytes: 5 << 20,
            by: EndedBy::Timeout,
        };
        let entry = |command: &[&str], outcome| LogEntry {
            id: 1,
            time: SystemTime::UNIX_EPOCH,
            application: "org.libreoffice.LibreOffice".into(),
            caller: 12,
            exe: None,
            command: command.iter().map(|&word| word.into()).collect(),
            directory: None,
            outcome,
            unrecorded: 0,
        };
        let refused = || CommandOutcome::Refused("line 3 of the policy forbids it".into());
        let entries = [
            entry(
                &["git", "commit", "--message=something of some length", "--all"],
                CommandOutcome::Ended(LoggedProcess { pid: 7, began: 1 }, end),
            ),
            entry(&["git", "push"], refused()),
            entry(&["git", "push", "--force"], refused()),
            entry(&["make"], CommandOutcome::NotStarted("no such file".into())),
        ];
        let entries: Vec<&LogEntry> = entries.iter().collect();
        let now = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
        let shown = table(&entries, &now).render(80, Paint::Off);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].ends_with("  signal 9, took too long  git comm…' --all"), "{shown}");
        assert!(lines[2].ends_with("  refused                  git push"), "{shown}");
        assert_eq!(lines[5], "(no room for took, processor and memory)");
        assert!(lines.iter().all(|line| report::text::columns(line) <= 80), "{shown}");
        let expected = "\nNot run:\n\
            - refused to org.libreoffice.LibreOffice: line 3 of the policy forbids it\n\
            - not started for org.libreoffice.LibreOffice: no such file\n";
        assert_eq!(reasons(&entries, 80), expected);
        assert_eq!(reasons(&entries[..1], 80), "");
    }
}
