//! The finding of a probe.

use std::time::Duration;

use super::remedy::Remedy;
use report::grade::Grade;
use report::paragraph::{capital, without_error_numbers};
use report::samples::Samples;

/// One thing that a probe found.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The probe's name: `storage`, `settings`.
    pub probe: &'static str,
    /// The step as a row of the table names it: `sync a file in home`.
    pub name: String,
    /// The method of the measurement, so that a reader can repeat it.
    pub measured: String,
    /// The result.
    pub outcome: MeasurementOutcome,
    /// The cause, if it is known.
    pub cause: Option<String>,
    /// The remedies, the best first.
    pub help: Vec<Help>,
    /// Whether it is measured for comparison only: then it is shown and not judged.
    pub is_comparison: bool,
}

/// Something that helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Help {
    /// A command does it.
    Remedy(Remedy),
    /// A person has to.
    Hint(String),
}

/// What came of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum MeasurementOutcome {
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
        outcome: MeasurementOutcome,
    ) -> Finding {
        let outcome = match outcome {
            MeasurementOutcome::Note(text) => {
                MeasurementOutcome::Note(without_error_numbers(&text))
            }
            MeasurementOutcome::Wrong(text) => {
                MeasurementOutcome::Wrong(without_error_numbers(&text))
            }
            MeasurementOutcome::Skipped(text) => {
                MeasurementOutcome::Skipped(without_error_numbers(&text))
            }
            outcome => outcome,
        };
        Finding {
            probe,
            name: name.into(),
            measured: measured.into(),
            outcome,
            cause: None,
            help: Vec::new(),
            is_comparison: false,
        }
    }

    /// Adds why it is so.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Finding {
        self.cause = Some(cause.into());
        self
    }

    /// Adds something that a person can do, in a sentence without a full stop.
    #[must_use]
    pub fn hint(mut self, text: impl Into<String>) -> Finding {
        self.help.push(Help::Hint(text.into()));
        self
    }

    /// Adds something that a command does.
    #[must_use]
    pub fn remedy(mut self, remedy: Remedy) -> Finding {
        self.help.push(Help::Remedy(remedy));
        self
    }

    /// Takes it as measured for comparison alone.
    #[must_use]
    pub fn compared(mut self) -> Finding {
        self.is_comparison = true;
        self
    }

    /// Returns whether it is neither good nor bad.
    #[must_use]
    pub fn is_note(&self) -> bool {
        matches!(self.outcome, MeasurementOutcome::Note(_) | MeasurementOutcome::Skipped(_))
    }

    /// Returns what was seen in a sentence, with the cause and what a person can do.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let mut text = match &self.outcome {
            MeasurementOutcome::Note(what) => format!("{}: {what}", self.name),
            MeasurementOutcome::Skipped(why) => format!("{}: not measured: {why}", self.name),
            MeasurementOutcome::Time(_) | MeasurementOutcome::Wrong(_) => return None,
        };
        if let Some(cause) = &self.cause {
            text.push_str(&format!(": {cause}"));
        }
        for help in &self.help {
            if let Help::Hint(hint) = help {
                text.push_str(&format!(". {}", capital(hint)));
            }
        }
        Some(text)
    }

    /// Returns the grade of a time; other outcomes have none.
    #[must_use]
    pub fn grade(&self, frame: Duration) -> Option<Grade> {
        match &self.outcome {
            MeasurementOutcome::Time(samples) if !samples.is_empty() => {
                Some(Grade::of(samples, frame))
            }
            _ => None,
        }
    }

    /// Returns whether this finding makes `doctor` exit with 1: it is in effect, and misses its frame or is broken.
    #[must_use]
    pub fn is_bad(&self, frame: Duration) -> bool {
        let is_wrong = matches!(self.outcome, MeasurementOutcome::Wrong(_));
        !self.is_comparison && (is_wrong || self.grade(frame) == Some(Grade::Misses))
    }
}
