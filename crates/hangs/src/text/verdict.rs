//! The sentence at the top of a list of hangs, and what was not watched.

use report::paragraph::counted;

use super::{HangTextStyle, long_time, time};
use crate::history::{CLOSE_NS, HangHistory, TimeSpan, WatchCoverage};

/// That a program was not watched for so long after its start is told, in nanoseconds.
const LATE_NS: u64 = 3_000_000_000;
/// Where the end of a span that is not counted yet is longer than this part of what was watched, it is told.
const NOT_COUNTED: u64 = 10;
/// The most gaps that are named.
const GAPS: usize = 3;

impl HangTextStyle<'_> {
    /// Writes the sentence at the top, and what was not watched.
    #[must_use]
    pub fn verdict(&self, history: &HangHistory, span: TimeSpan, when: &str) -> Vec<String> {
        let WatchCoverage { watched_ns, recorder_ns, interval_ns, lost, .. } = history.coverage;
        let WatchCoverage { over_limit, refused, .. } = history.coverage;
        let without_loop = history.without_loop();
        let unfollowed = history.not_followed() > 0;
        let mut lines = Vec::new();
        let program = history.program.as_deref().map(|program| self.others(program));
        // What cannot be read may be a hang, or a time in which somebody watched.
        let as_far = match history.damage {
            Some(_) => ", as far as the records can be read",
            None => "",
        };
        let watched = match watched_ns {
            0 => String::new(),
            watched => format!(" in {} of watching", long_time(watched)),
        };
        let total =
            history.hangs.iter().fold(0_u64, |sum, hang| sum.saturating_add(hang.length_ns));
        match history.hangs.first() {
            Some(worst) => {
                lines.push(format!(
                    "{} {when}{watched}, {} in all; the longest took {}.",
                    counted(history.hangs.len(), "hang"),
                    time(total),
                    time(worst.length_ns)
                ));
                if watched_ns == 0 {
                    lines.push(
                        "For how long was watched is not known: it is stored each minute, and lost if the recorder is killed."
                            .to_owned(),
                    );
                }
                if watched_ns > 0 && history.uncounted.0 > 0 {
                    lines.push(format!(
                        "{} of them began in a time whose watching is not counted: it is stored each minute, and lost if the recorder is killed.",
                        history.uncounted.0
                    ));
                }
            }
            None if watched_ns > 0 => {
                let of = match program {
                    Some(program) => format!(" of {program}"),
                    None if unfollowed => " of the programs that were followed".to_owned(),
                    None => String::new(),
                };
                lines.push(format!("No hang of 100 ms or more{of} {when}{watched}{as_far}."));
            }
            None if recorder_ns > 0 => {
                let nobody = match program {
                    Some(program) => format!("{program} was not watched"),
                    None if unfollowed => "no interactive program could be watched".to_owned(),
                    None => "no interactive program did".to_owned(),
                };
                lines.push(format!(
                    "Nothing to tell {when}: the recorder ran for {}, and {nobody}{as_far}.",
                    long_time(recorder_ns)
                ));
            }
            None if history.damage.is_none() && history.coverage.erased_before_ns.is_some() => {
                lines.push(format!("No record of hangs {when}."));
            }
            None if history.damage.is_some() => {
                lines.push(format!(
                    "Nothing can be told {when}: there are records that cannot be read."
                ));
            }
            None => lines.push(format!(
                "Nothing is recorded {when}: the recorder did not run, ended in its first minute, or its records were erased."
            )),
        }
        lines.extend(history.coverage.erased_before_ns.map(|before_ns| self.erased(before_ns)));
        lines.extend(history.damage.clone());
        let gaps = &history.coverage.gaps;
        for TimeSpan { from_ns, to_ns } in gaps.iter().take(GAPS) {
            lines.push(format!(
                "Not watched: {}, from {} to {}.",
                long_time(to_ns - from_ns),
                self.moment((*from_ns).max(span.from_ns)),
                self.moment((*to_ns).min(span.to_ns))
            ));
        }
        if gaps.len() > GAPS {
            lines.push(format!("Not watched: {} more gaps.", gaps.len() - GAPS));
        }
        let not_counted_ns = history.coverage.not_counted_ns;
        if not_counted_ns.saturating_mul(NOT_COUNTED) > watched_ns && not_counted_ns >= CLOSE_NS {
            lines.push(format!(
                "Not counted yet: the last {}. A recorder stores each minute what it has watched.",
                time(not_counted_ns)
            ));
        }
        let stalled_ns = history.coverage.stalled_ns;
        if stalled_ns > 0 {
            lines.push(format!(
                "The recorder itself did not run for {} of this time: it was stopped, the machine was too busy, or the clock was set. Hangs in it may be missing.",
                time(stalled_ns)
            ));
        }
        let programs = |count| counted(usize::try_from(count).unwrap_or(0), "program");
        if over_limit > 0 {
            lines.push(format!(
                "Not watched: {} beyond the most that a recorder follows.",
                programs(over_limit)
            ));
        }
        if let [first, others @ ..] = &*without_loop {
            let name = |(name, part): &(&str, Option<(u32, u32)>)| match part {
                None => self.others(name),
                Some((count, of)) => format!("{count} of {of} processes of {}", self.others(name)),
            };
            let first = name(first);
            let names = match others {
                [] => format!("{first}, in whose first thread"),
                [second] => format!("{first} and {}, in whose first threads", name(second)),
                [..] => format!("{first} and {} others, in whose first threads", others.len()),
            };
            lines.push(format!("Not watched: {names} no wait of a main loop was found."));
        }
        if let Some((program, late_ns)) =
            history.latest().filter(|(_, late_ns)| *late_ns >= LATE_NS)
        {
            lines.push(format!(
                "Not watched: the first moments of programs, at most {} ({}).",
                time(late_ns),
                self.others(program)
            ));
        }
        if refused > 0 {
            lines.push(format!(
                "Not watched: {} that the kernel did not let this recorder watch: by its rules (kernel.yama.ptrace_scope above 0 is one), or for want of memory.",
                programs(refused)
            ));
        }
        if history.has_erased_program() {
            lines.push("Erased: the hangs of a program that was watched.".to_owned());
        }
        if lost > 0 {
            lines.push(format!(
                "Seen and not stored: {lost} hangs, because the disk took no records, they came faster than they were read, or the recorder service ended."
            ));
        }
        if interval_ns > 0 && watched_ns > 0 {
            let sampled_ns = history.coverage.sampled_ns;
            // Of the rest the kernel has reported each step.
            let part = match sampled_ns < recorder_ns / 100 * 99 {
                true => format!(" for {} of the time", time(sampled_ns)),
                false => String::new(),
            };
            lines.push(format!(
                "Sampled from outside{part} every {}: lengths are right within about half of that, and of shorter steps only a part is counted.",
                time(interval_ns)
            ));
        }
        lines
    }

    pub(super) fn erased(&self, before_ns: u64) -> String {
        format!("Erased: everything that was recorded before {}.", self.moment(before_ns))
    }
}
