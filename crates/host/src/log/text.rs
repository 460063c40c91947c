//! Entries of the log, for people.

use jiff::{Timestamp, Zoned};
use report::figure::{Quantity, duration};
use report::quoting::quoted;
use report::table::{Align, TableCell, TextTable, cut};
use report::text::{Charset, visible};

use super::{CommandOutcome, EndedBy, LogEntry};
use crate::process::CommandExit;

/// The most columns of a command line.
const COMMAND_COLUMNS: usize = 40;
/// The most columns of what became of it.
const END_COLUMNS: usize = 60;

/// Returns a table with a row for each entry; times are in the time zone of `now`.
#[must_use]
pub fn table(entries: &[&LogEntry], now: &Zoned) -> TextTable {
    let mut table = TextTable::new(&[
        ("when", Align::Text),
        ("application", Align::Text),
        ("command", Align::Text),
        ("end", Align::Text),
        ("took", Align::Point),
        ("processor", Align::Point),
        ("memory", Align::Point),
    ]);
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
        cut(&visible(&words.join(" "), Charset::Unicode), COMMAND_COLUMNS).into(),
        cut(&visible(&how(entry), Charset::Unicode), END_COLUMNS).into(),
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

/// Returns in a few words what became of a command.
fn how(entry: &LogEntry) -> String {
    match &entry.outcome {
        CommandOutcome::Refused(why) if entry.unrecorded > 0 => {
            format!("refused, and {} before it: {why}", entry.unrecorded)
        }
        CommandOutcome::Refused(why) => format!("refused: {why}"),
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
