//! What a check found, and why it may not be believed.

use serde::Serialize;

use super::{Outcome, Rules};
use crate::bus::model::Model;
use crate::bus::stats::missing;
use crate::report::paragraph::counted;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Whether all rules are kept and nothing speaks against the check itself.
    pub kept: bool,
    /// How many messages were checked.
    pub messages: usize,
    /// Of each rule, in their order; none if nothing was checked.
    pub outcomes: Vec<Outcome>,
    /// How the command ended, if one was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandEnd>,
    /// Why the outcomes are not those of a whole run; none if they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// How a command ended, and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CommandEnd {
    /// The status that it ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// How long it ran, in nanoseconds.
    pub took_ns: u64,
}

/// Why a check is none, or not a whole one.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "fault", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fault {
    /// The record ends early or has places that cannot be read: what is missing may break a rule, or keep one.
    #[error("the record is cut or damaged: {text}")]
    Damaged {
        /// What is missing, and where.
        text: String,
    },
    /// The recorder had no room for messages, and no rule is about that.
    #[error("{} lost by the recorder", counted(usize::try_from(*.count).unwrap_or(usize::MAX), "message"))]
    Lost {
        /// How many.
        count: u64,
    },
    /// The recording ended before the command did.
    #[error("not all of it was recorded: {text}")]
    Recorder {
        /// Why.
        text: String,
    },
    /// The command could not be run or did not succeed.
    #[error("{text}")]
    Command {
        /// What became of it.
        text: String,
    },
    /// The command took longer than it may, and was ended.
    #[error("the command was not done in {limit} and was ended")]
    TimeLimit {
        /// How long it may take.
        limit: String,
    },
    /// Somebody ended the check.
    #[error("interrupted")]
    Interrupted,
}

impl Report {
    /// Holds rules against a complete capture.
    ///
    /// A capture of which a part is missing is not checked; [`Report::faults`] says so.
    #[must_use]
    pub fn of(rules: &Rules, model: &Model) -> Report {
        let mut report = Report { messages: model.len(), ..Report::default() };
        if model.damaged + model.cut > 0 {
            let mut text = missing(model.damaged, model.cut);
            if let Some(first) = &model.first_damage {
                text.push_str(&format!(" ({first})"));
            }
            report.faults.push(Fault::Damaged { text });
            return report;
        }
        report.outcomes = super::check(rules, model);
        let count = model.losses.iter().map(|loss| loss.count).sum();
        if count > 0 && !rules.are_about_losses() {
            report.faults.push(Fault::Lost { count });
        }
        report.judge();
        report
    }

    /// Notes a reason not to believe the outcomes.
    pub fn add_fault(&mut self, fault: Fault) {
        self.faults.push(fault);
        self.judge();
    }

    fn judge(&mut self) {
        self.kept = self.faults.is_empty() && self.outcomes.iter().all(|outcome| outcome.kept);
    }
}
