//! Programs that write settings without end, as the history of our own service knows them.

use report::error::chain;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use settings::engine::DatabaseDirectories;
use settings::history::{HistoryEntry, file, read};

use super::NAME;
use crate::StepContext;
use crate::finding::{Finding, MeasurementOutcome};
use crate::machine::Machine;
use crate::remedy::Remedy;
use report::paragraph::counted;

/// How far we look back.
const DAY: Duration = Duration::from_secs(86_400);
/// Fewer changes in a day than this are what a person makes.
const MANY: usize = 200;
/// The most programs that are named.
const NAMED: usize = 3;

/// Names the programs that changed settings most in the last day.
pub(super) fn look(machine: &Machine, tools: &StepContext<'_>) -> Vec<Finding> {
    let Some(state) = &machine.state_home else { return Vec::new() };
    let places = DatabaseDirectories {
        config: PathBuf::new(),
        flags: PathBuf::new(),
        volatile: PathBuf::new(),
        state: state.join("unjank/settings"),
    };
    let how = format!("read {}", machine.short(&file(&places)));
    if !file(&places).exists() {
        let why = "only unjankd keeps a history of changes, and it has none here yet".to_owned();
        return vec![Finding::new(NAME, "chatty programs", how, MeasurementOutcome::Skipped(why))];
    }
    match read(&*store::disk::real(), &places) {
        Ok(recorded) => vec![judge(&recorded.entries, tools.clock.now(), how)],
        Err(error) => {
            vec![Finding::new(
                NAME,
                "chatty programs",
                how,
                MeasurementOutcome::Skipped(chain(&error)),
            )]
        }
    }
}

/// What one program did.
#[derive(Debug, Default)]
struct Work {
    changes: usize,
    /// How often it changed each key.
    keys: BTreeMap<String, usize>,
}

fn judge(entries: &[HistoryEntry], now: SystemTime, how: String) -> Finding {
    let young = |entry: &&HistoryEntry| now.duration_since(entry.time).is_ok_and(|age| age < DAY);
    let mut programs: BTreeMap<String, Work> = BTreeMap::new();
    for entry in entries.iter().filter(young).filter(|entry| !entry.is_from_outside()) {
        let exe = entry.process.as_ref().and_then(|process| process.exe.as_ref());
        let name = exe.map_or("an unknown program".to_owned(), |exe| exe.display().to_string());
        let work = programs.entry(name).or_default();
        work.changes += 1;
        for key in &entry.keys {
            *work.keys.entry(key.path.clone()).or_default() += 1;
        }
    }
    let mut chatty: Vec<(String, Work)> =
        programs.into_iter().filter(|(_, work)| work.changes >= MANY).collect();
    chatty.sort_by_cached_key(|(_, work)| std::cmp::Reverse(work.changes));
    let finding =
        |text: String| Finding::new(NAME, "chatty programs", how, MeasurementOutcome::Note(text));
    if chatty.is_empty() {
        return finding(format!("none changed settings {MANY} times in the last day"));
    }
    let told: Vec<String> = chatty
        .iter()
        .take(NAMED)
        .map(|(name, work)| {
            let most = work.keys.iter().max_by_key(|(_, times)| **times);
            let most = most.map_or(String::new(), |(key, _)| format!(", most often {key}"));
            format!("{name} ({} in the last day{most})", counted(work.changes, "change"))
        })
        .collect();
    finding(told.join("; "))
        .because("each change rewrites the database unless the service holds the program back")
        .remedy(Remedy::ShowHistory)
}

#[cfg(test)]
mod tests {
    use settings::engine::{DatabaseId, DatabaseKind};
    use settings::history::{HistoryProcess, HistoryValue, KeyChange};

    use super::*;

    fn entry(id: u64, time: SystemTime, exe: &str) -> HistoryEntry {
        HistoryEntry {
            id,
            time,
            database: DatabaseId::new(DatabaseKind::User, "user").unwrap(),
            sender: ":1.1".to_owned(),
            process: Some(HistoryProcess { pid: 1, exe: Some(exe.into()) }),
            tag: String::new(),
            generation: 1,
            left_out: 0,
            keys: vec![KeyChange {
                path: "/a/size".to_owned(),
                old: HistoryValue::Unset,
                new: HistoryValue::Hidden,
            }],
        }
    }

    #[test]
    fn a_program_that_changes_settings_all_day_is_named_with_its_key() {
        let now = SystemTime::UNIX_EPOCH + 10 * DAY;
        let mut entries: Vec<HistoryEntry> =
            (0..300).map(|id| entry(id, now - DAY / 2, "/usr/bin/chatty")).collect();
        entries.push(entry(300, now, "/usr/bin/calm"));
        let finding = judge(&entries, now, String::new());
        let MeasurementOutcome::Note(text) = &finding.outcome else { panic!("{finding:?}") };
        assert_eq!(text, "/usr/bin/chatty (300 changes in the last day, most often /a/size)");
    }

    #[test]
    fn what_was_long_ago_does_not_count() {
        let now = SystemTime::UNIX_EPOCH + 10 * DAY;
        let entries: Vec<HistoryEntry> =
            (0..300).map(|id| entry(id, now - 2 * DAY, "/usr/bin/chatty")).collect();
        assert!(judge(&entries, now, String::new()).cause.is_none());
    }
}
