//! The result of a check, and the reasons why it may be incomplete.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use serde::Serialize;

use super::{ExpectRules, RuleOutcome};
use crate::model::Model;
use crate::stats::missing;
use report::paragraph::counted;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExpectReport {
    /// Whether all rules are kept and nothing speaks against the check itself.
    pub kept: bool,
    /// How many messages were checked.
    pub messages: usize,
    /// The match rules by which messages were chosen before they were checked; none if all were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matched: Vec<String>,
    /// Of each rule, in their order; none if nothing was checked.
    pub outcomes: Vec<RuleOutcome>,
    /// How the command ended, if one was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandEnd>,
    /// Why the outcomes are not those of a whole run; none if they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<CheckProblem>,
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

impl CommandEnd {
    /// Takes what the kernel says of the end, if it is known.
    #[must_use]
    pub fn of(status: Option<ExitStatus>, took: Duration) -> CommandEnd {
        CommandEnd {
            status: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            took_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Returns how the command failed by itself; nothing if it did not, or that is not known.
    #[must_use]
    pub fn failure(&self) -> Option<CheckProblem> {
        let text = match (self.status, self.signal) {
            (Some(0), _) | (None, None) => return None,
            (Some(code), _) => format!("the command failed with status {code}"),
            (None, Some(signal)) => format!("the command was ended by signal {signal}"),
        };
        Some(CheckProblem::Command { text })
    }
}

/// Why a check is none, or not a whole one.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "fault", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CheckProblem {
    /// The recording is truncated or damaged: the missing part may break a rule, or keep one.
    #[error("the recording is truncated or damaged: {text}")]
    Damaged {
        /// The missing parts and their positions.
        text: String,
    },
    /// The recorder had no room for messages, and no rule is about that.
    #[error("{} lost by the recorder", counted(usize::try_from(*.count).unwrap_or(usize::MAX), "message"))]
    Lost {
        /// How many.
        count: u64,
    },
    /// The recording holds only messages that match rules which were not given for the check: the others may break a rule.
    #[error("the recording holds only messages that match {}", rules.join(" or "))]
    Matched {
        /// The match rules.
        rules: Vec<String>,
    },
    /// The recording ended before the command did.
    #[error("the recording is incomplete: {text}")]
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
    #[error("the command was ended after {limit}")]
    TimeLimit {
        /// How long it may take.
        limit: String,
    },
    /// The user ended the check.
    #[error("interrupted")]
    Interrupted,
}

impl ExpectReport {
    /// Holds rules against a complete capture. `matched` are the match rules by which messages may have been chosen, none for all messages.
    ///
    /// An incomplete recording is not checked; [`ExpectReport::faults`] contains the reason.
    #[must_use]
    pub fn of(rules: &ExpectRules, model: &Model, matched: &[String]) -> ExpectReport {
        let mut report = ExpectReport {
            messages: model.len(),
            matched: model.matched.clone(),
            ..ExpectReport::default()
        };
        if model.damaged + model.cut > 0 {
            let mut text = missing(model.damaged, model.cut);
            if let Some(first) = &model.first_damage {
                text.push_str(&format!(" ({first})"));
            }
            report.faults.push(CheckProblem::Damaged { text });
            return report;
        }
        report.outcomes = super::check(rules, model);
        let count = model.losses.iter().map(|loss| loss.count).sum();
        if count > 0 && !rules.are_about_losses() {
            report.faults.push(CheckProblem::Lost { count });
        }
        if !model.matched.is_empty() && model.matched != matched {
            report.faults.push(CheckProblem::Matched { rules: model.matched.clone() });
        }
        report.judge();
        report
    }

    /// Records a reason not to believe the outcomes.
    pub fn add_fault(&mut self, fault: CheckProblem) {
        self.faults.push(fault);
        self.judge();
    }

    fn judge(&mut self) {
        self.kept = self.faults.is_empty() && self.outcomes.iter().all(|outcome| outcome.kept);
    }
}
