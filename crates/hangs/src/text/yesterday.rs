//! The hangs of a day in a sentence, with which `unjank doctor` begins.

use std::fmt::Write as _;

use report::paragraph::counted;

use super::advice::compare_command;
use super::{HangTextStyle, long_time, time};
use crate::remedy::RemedyState;
use crate::summary::{CommonFile, HangSummary};

impl HangTextStyle<'_> {
    /// Writes the hangs of yesterday in a sentence: how many, on what most of them were and of which programs, and what mends the
    /// most of them.
    #[must_use]
    pub fn yesterday(&self, summary: &HangSummary) -> String {
        let watched = summary.watched_ns;
        let damage = summary.damage.as_ref().map_or(String::new(), |damage| format!(" {damage}"));
        let gaps = gaps(summary) + &damage;
        let watching = match watched {
            0 => String::new(),
            _ => format!(" in {} of watching", long_time(watched)),
        };
        let Some(longest) = &summary.longest else {
            return match watched {
                0 if summary.is_erased => {
                    format!("What was recorded of yesterday's hangs was erased.{gaps}")
                }
                0 => format!("No watching for hangs is recorded of yesterday.{gaps}"),
                _ if summary.lost > 0 || summary.has_erased_program => {
                    format!("Yesterday no hang is recorded{watching}.{gaps}")
                }
                _ => format!("Yesterday no program was seen to hang{watching}.{gaps}"),
            };
        };
        let mut text = format!(
            "Yesterday {}{watching}, the longest {} ({})",
            counted(summary.hangs, "hang"),
            time(longest.length_ns),
            self.others(&longest.program)
        );
        if let Some(file) = &summary.file {
            let _ = write!(text, "; {}", self.common_file(file));
        }
        if let Some(mend) = &summary.remedy {
            let remedy = mend.advice.remedy;
            let _ = match (mend.advice.state, &mend.command, compare_command(remedy)) {
                (RemedyState::Off, Some(command), _) => {
                    write!(text, "; what mends {}: {command}", mend.hangs)
                }
                (RemedyState::OnSince { .. }, _, Some(command)) => {
                    write!(text, "; what mends {} is on since: {command}", mend.hangs)
                }
                (_, _, Some(_)) => write!(
                    text,
                    "; for {} what should mend them is on and did not help: {}",
                    mend.hangs,
                    remedy.part().unwrap_or_default()
                ),
                (_, _, None) => Ok(()),
            };
        }
        text.push_str(". See: unjank hangs --since yesterday.");
        text.push_str(&gaps);
        text
    }

    fn common_file(&self, file: &CommonFile) -> String {
        let devices = match &*file.devices {
            [] => String::new(),
            [device] => format!(" on {}", self.others(device)),
            devices => format!(" on {} disks", devices.len()),
        };
        let programs = match &*file.programs {
            [program] => self.others(program),
            programs => format!("{} programs", programs.len()),
        };
        format!("{} of them on {}{devices} by {programs}", file.hangs, self.path(&file.path))
    }
}

/// Says which hangs may have been there and are not counted.
fn gaps(summary: &HangSummary) -> String {
    let mut text = String::new();
    if summary.lost > 0 {
        let lost = usize::try_from(summary.lost).unwrap_or(usize::MAX);
        let _ = write!(text, " Seen and not stored: {}.", counted(lost, "hang"));
    }
    if summary.has_erased_program {
        text.push_str(" The hangs of a program were erased.");
    }
    if summary.not_followed > 0 {
        let count = usize::try_from(summary.not_followed).unwrap_or(usize::MAX);
        let _ = write!(text, " Not followed: {}.", counted(count, "program"));
    }
    text
}
