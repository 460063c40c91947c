//! The rules as they are written, a line each.

use crate::filter::{Filter, FilterError, nanoseconds};

/// Rules in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub struct ExpectRules(pub(super) Vec<Rule>);

/// A line with a rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// Its number, from 1.
    pub(super) line: usize,
    /// As it was written.
    pub(super) text: String,
    pub(super) wanted: Expectation,
    /// Of which messages.
    pub(super) of: Filter,
}

/// The condition of a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Expectation {
    /// There is such a call, and each is answered; within this time if one is given.
    Called(Option<u64>),
    /// At most so many.
    AtMost(u64, CountedQuantity, CountPeriod),
    /// At least so many.
    AtLeast(u64, CountedQuantity, CountPeriod),
}

/// The messages that a rule counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CountedQuantity {
    Messages,
    Calls,
    Signals,
    Errors,
    Unanswered,
    Unowned,
    Refused,
    Lost,
}

/// The period over which they are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CountPeriod {
    /// The whole capture.
    Whole,
    /// Any second of it.
    Second,
}

/// Why a file is no set of rules.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectRuleError {
    /// A line that is not a rule.
    #[error("line {line}: {text:?} is not a rule; use called …, no …, at most N … or at least N …")]
    Unknown {
        /// Its number, from 1.
        line: usize,
        /// As it was written.
        text: String,
    },
    /// The filter of a line cannot be read.
    #[error("line {line}")]
    Filter {
        /// Its number.
        line: usize,
        /// The error in the filter.
        source: FilterError,
    },
    /// There is no rule at all, which would always be kept.
    #[error("there is no rule")]
    None,
}

impl std::str::FromStr for ExpectRules {
    type Err = ExpectRuleError;

    fn from_str(text: &str) -> Result<ExpectRules, ExpectRuleError> {
        let mut rules = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            rules.push(rule(line, text)?);
        }
        if rules.is_empty() { Err(ExpectRuleError::None) } else { Ok(ExpectRules(rules)) }
    }
}

impl ExpectRules {
    /// Returns whether a rule counts the messages that the recorder dropped.
    #[must_use]
    pub(crate) fn are_about_losses(&self) -> bool {
        let is_about_losses = |rule: &Rule| {
            matches!(
                rule.wanted,
                Expectation::AtMost(_, CountedQuantity::Lost, _)
                    | Expectation::AtLeast(_, CountedQuantity::Lost, _)
            )
        };
        self.0.iter().any(is_about_losses)
    }
}

fn rule(line: usize, text: &str) -> Result<Rule, ExpectRuleError> {
    let unknown = || ExpectRuleError::Unknown { line, text: text.to_owned() };
    let filter = |text: &str| {
        text.parse::<Filter>().map_err(|source| ExpectRuleError::Filter { line, source })
    };
    let (said, of) = match text.split_once(" where ") {
        Some((said, of)) => (said.trim(), Some(of)),
        None => (text, None),
    };
    let words: Vec<&str> = said.split_whitespace().collect();
    let rule = |wanted, of| Ok(Rule { line, text: text.to_owned(), wanted, of });
    match &*words {
        ["called", member, rest @ ..] => {
            let within = match rest {
                [] => None,
                ["within", time @ ..] => Some(nanoseconds(&time.concat()).ok_or_else(unknown)?),
                _ => return Err(unknown()),
            };
            let chosen = format!("type:call and member:{member}");
            let chosen = of.map_or(chosen.clone(), |of| format!("{chosen} and ({of})"));
            rule(Expectation::Called(within), filter(&chosen)?)
        }
        ["no", what] => {
            let what = counted(what).ok_or_else(unknown)?;
            rule(Expectation::AtMost(0, what, CountPeriod::Whole), filter(of.unwrap_or(""))?)
        }
        ["at", bound @ ("most" | "least"), number, what, rest @ ..] => {
            let number: u64 = number.parse().map_err(|_| unknown())?;
            let what = counted(what).ok_or_else(unknown)?;
            let per = match rest {
                [] => CountPeriod::Whole,
                ["a" | "per", "second"] => CountPeriod::Second,
                _ => return Err(unknown()),
            };
            let wanted = match *bound {
                "most" => Expectation::AtMost(number, what, per),
                _ => Expectation::AtLeast(number, what, per),
            };
            rule(wanted, filter(of.unwrap_or(""))?)
        }
        _ => Err(unknown()),
    }
}

fn counted(word: &str) -> Option<CountedQuantity> {
    Some(match word {
        "messages" | "message" => CountedQuantity::Messages,
        "calls" | "call" => CountedQuantity::Calls,
        "signals" | "signal" => CountedQuantity::Signals,
        "errors" | "error" => CountedQuantity::Errors,
        "unanswered" => CountedQuantity::Unanswered,
        "unowned" => CountedQuantity::Unowned,
        "refused" => CountedQuantity::Refused,
        "lost" => CountedQuantity::Lost,
        _ => return None,
    })
}
