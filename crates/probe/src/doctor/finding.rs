//! What a probe found: one shape for all of them.

use std::time::Duration;

pub use crate::report::advice::Advice;
use crate::report::grade::Grade;
use crate::report::paragraph::without_error_numbers;
use crate::report::samples::Samples;

/// One thing that a probe found.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The probe's name: `storage`, `settings`.
    pub probe: &'static str,
    /// The step as a row of the table names it: `sync a file in home`.
    pub name: String,
    /// What was done to find it, so that a reader can do it again.
    pub measured: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it is so, where that is known.
    pub cause: Option<String>,
    /// What would help.
    pub advice: Vec<Advice>,
}

/// What came of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Times of one interactive step in nanoseconds; graded against the frame.
    Time(Samples),
    /// Something worth knowing that is neither good nor bad.
    Note(String),
    /// Something that is broken, whatever time it takes.
    Wrong(String),
    /// Nothing could be measured, and why.
    Skipped(String),
}

impl Finding {
    /// Starts a finding without a cause. What the system said stays without its numbers.
    #[must_use]
    pub fn new(
        probe: &'static str,
        name: impl Into<String>,
        measured: impl Into<String>,
        outcome: Outcome,
    ) -> Finding {
        let outcome = match outcome {
            Outcome::Wrong(text) => Outcome::Wrong(without_error_numbers(&text)),
            Outcome::Skipped(text) => Outcome::Skipped(without_error_numbers(&text)),
            outcome => outcome,
        };
        Finding {
            probe,
            name: name.into(),
            measured: measured.into(),
            outcome,
            cause: None,
            advice: Vec::new(),
        }
    }

    /// Adds why it is so.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Finding {
        self.cause = Some(cause.into());
        self
    }

    /// Adds something to do, without a command.
    #[must_use]
    pub fn advise(mut self, text: impl Into<String>) -> Finding {
        self.advice.push(Advice { text: text.into(), command: None });
        self
    }

    /// Adds something to do and the command that does it.
    #[must_use]
    pub fn advise_command(
        mut self,
        text: impl Into<String>,
        command: impl Into<String>,
    ) -> Finding {
        self.advice.push(Advice { text: text.into(), command: Some(command.into()) });
        self
    }

    /// Returns the grade of a time; other outcomes have none.
    #[must_use]
    pub fn grade(&self, frame: Duration) -> Option<Grade> {
        match &self.outcome {
            Outcome::Time(samples) if !samples.is_empty() => Some(Grade::of(samples, frame)),
            _ => None,
        }
    }

    /// Says whether this finding makes `doctor` exit with 1.
    #[must_use]
    pub fn is_bad(&self, frame: Duration) -> bool {
        matches!(self.outcome, Outcome::Wrong(_)) || self.grade(frame) == Some(Grade::Misses)
    }
}
