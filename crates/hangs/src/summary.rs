//! The hangs of a span in a few facts: how many, the longest, the file that most of them waited for, and what mends the most.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::history::{HangGrouping, HangHistory, file_of, group};
use crate::model::{Hang, without_helper};
use crate::remedy::{AppliedRemedies, HangAdvice, count_remedies};

/// The longest hang of a span.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct LongestHang {
    /// Its number.
    pub number: u64,
    /// Its program.
    pub program: String,
    /// Its length, in nanoseconds.
    pub length_ns: u64,
}

/// A file that several hangs waited for.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CommonFile {
    /// Its path.
    pub path: String,
    /// How many hangs waited for it.
    pub hangs: u64,
    /// The devices that it was on.
    pub devices: Vec<String>,
    /// The programs that waited.
    pub programs: Vec<String>,
}

/// What mends hangs of a span.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct SummaryRemedy {
    /// The remedy, and whether it is on.
    #[serde(flatten)]
    pub advice: HangAdvice,
    /// For how many hangs it is one.
    pub hangs: usize,
    /// The command that switches it on, if it is off.
    pub command: Option<String>,
}

/// The hangs of a span in a few facts.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct HangSummary {
    /// How many.
    pub hangs: usize,
    /// For how long programs were watched, in nanoseconds.
    pub watched_ns: u64,
    /// The longest one.
    pub longest: Option<LongestHang>,
    /// The file that most of them waited for, if it was more than one.
    pub file: Option<CommonFile>,
    /// What mends the most of their time.
    pub remedy: Option<SummaryRemedy>,
    /// Whether records of the span were erased.
    pub is_erased: bool,
    /// Whether those of some program were.
    pub has_erased_program: bool,
    /// How many hangs were seen and could not be stored.
    pub lost: u64,
    /// How many programs were there and not followed, or not all of their processes.
    pub not_followed: u64,
    /// What of the store could not be read.
    pub damage: Option<String>,
}

impl HangSummary {
    /// Sums up a history, beside what is on.
    #[must_use]
    pub fn of(history: &HangHistory, applied: &AppliedRemedies) -> HangSummary {
        let longest = history.hangs.first().map(|hang| LongestHang {
            number: hang.number,
            program: hang.program.clone(),
            length_ns: hang.length_ns,
        });
        let remedy = count_remedies(&history.hangs, applied).into_iter().next();
        HangSummary {
            hangs: history.hangs.len(),
            watched_ns: history.coverage.watched_ns,
            longest,
            file: common_file(&history.hangs),
            remedy: remedy.map(|count| SummaryRemedy {
                advice: count.advice,
                hangs: count.hangs,
                command: count.advice.command(),
            }),
            is_erased: history.coverage.erased_before_ns.is_some(),
            has_erased_program: history.has_erased_program(),
            lost: history.coverage.lost,
            not_followed: history.not_followed(),
            damage: history.damage.clone(),
        }
    }
}

/// Returns the file that most of the hangs waited for, if more than one did. What is excluded is none.
fn common_file(hangs: &[Hang]) -> Option<CommonFile> {
    let groups = group(hangs, HangGrouping::File);
    let named = groups.iter().filter(|group| group.name.starts_with('/') && group.count > 1);
    let most = named.max_by_key(|group| (group.count, group.total_ns))?;
    let of_file = || hangs.iter().filter(|hang| file_of(hang) == Some(&most.name));
    let devices: BTreeSet<&str> = of_file()
        .filter_map(|hang| hang.object().map(|object| &*object.device))
        .filter(|device| !device.is_empty())
        .collect();
    let programs: BTreeSet<&str> = of_file().map(|hang| without_helper(&hang.program)).collect();
    let owned = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
    Some(CommonFile {
        path: most.name.clone(),
        hangs: most.count,
        devices: owned(devices),
        programs: owned(programs),
    })
}
