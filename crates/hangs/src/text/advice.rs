//! What mends hangs, in words: the command where it is off, and what is to be said where it is on.

use std::fmt::Write as _;

use report::paint::Tone;
use report::paragraph::{counted, wrap};

use super::{HangTextStyle, time};
use crate::model::Hang;
use crate::remedy::{HangAdvice, HangRemedy, RemedyCount, RemedyState, advise, count_remedies};

/// Returns what a remedy that is on is called.
fn name(remedy: HangRemedy) -> &'static str {
    match remedy {
        HangRemedy::SystemRun => "run (for the system)",
        other => other.part().unwrap_or("unjank run"),
    }
}

/// Says what may be wrong where a part is on and did not help.
fn in_vain(remedy: HangRemedy) -> String {
    let name = name(remedy);
    match remedy.begins_at_login() {
        true => format!(
            "{name} is on and did not help: only programs have it that were started after the next login"
        ),
        false => format!("{name} is on and did not help"),
    }
}

impl HangTextStyle<'_> {
    /// Returns the command that mends a hang, where one does that is not on.
    #[must_use]
    pub fn command(&self, hang: &Hang) -> Option<String> {
        advise(hang, self.applied)?.command()
    }

    /// Writes what mends a hang, with its command on a line of its own.
    pub(super) fn advice(&self, hang: &Hang) -> Option<String> {
        let HangAdvice { remedy, state } = advise(hang, self.applied)?;
        let does = remedy.advice().text;
        let (sentence, command) = match state {
            RemedyState::Off => (format!("What mends it: {does}"), remedy.advice().command),
            RemedyState::OnSince { since_unix_ns } => {
                let (name, since) = (name(remedy), self.moment(since_unix_ns));
                let sentence = format!("What mends it is on since {since}, {name}: {does}");
                (sentence, compare_command(remedy))
            }
            RemedyState::InVain => (format!("What should mend it: {}", in_vain(remedy)), None),
        };
        let mut text = wrap(&sentence, self.width, "");
        if let Some(command) = command {
            let _ = writeln!(text, "  {}", self.paint.set(Tone::Strong, &command));
        }
        Some(text)
    }

    /// Writes what mends hangs of a list, for how many, and what is on.
    pub(super) fn remedies(&self, hangs: &[Hang]) -> String {
        let mut text = String::new();
        for RemedyCount { advice, hangs, total_ns } in count_remedies(hangs, self.applied) {
            let count = format!("{} ({})", counted(hangs, "hang"), time(total_ns));
            let HangAdvice { remedy, state } = advice;
            let (line, command) = match state {
                RemedyState::Off => {
                    (format!("{count}: {}", remedy.advice().text), remedy.advice().command)
                }
                RemedyState::OnSince { since_unix_ns } => {
                    let (name, since) = (name(remedy), self.moment(since_unix_ns));
                    let line = format!("{count} before {name} was switched on at {since}");
                    (line, compare_command(remedy))
                }
                RemedyState::InVain => (format!("{count}: {}", in_vain(remedy)), None),
            };
            text.push_str(&wrap(&line, self.width, ""));
            if let Some(command) = command {
                let _ = writeln!(text, "  {}", self.paint.set(Tone::Strong, &command));
            }
        }
        text
    }
}

/// Returns the command that shows what a remedy has brought.
pub(super) fn compare_command(remedy: HangRemedy) -> Option<String> {
    remedy.part().map(|part| format!("unjank hangs compare {part}"))
}
