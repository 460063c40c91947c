//! The rules as they are written, a line each.

use crate::bus::filter::{Filter, FilterError, nanoseconds};

/// Rules in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub(super) Vec<Rule>);

/// A line that says something.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// Its number, from 1.
    pub(super) line: usize,
    /// As it was written.
    pub(super) text: String,
    pub(super) wanted: Wanted,
    /// Of which messages.
    pub(super) of: Filter,
}

/// What is wanted of messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wanted {
    /// There is such a call, and each is answered; within this time if one is given.
    Called(Option<u64>),
    /// At most so many.
    AtMost(u64, What, Per),
    /// At least so many.
    AtLeast(u64, What, Per),
}

/// What is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    Messages,
    Calls,
    Signals,
    Errors,
    Unanswered,
    Unowned,
    Refused,
    Lost,
}

/// Over which time it is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Per {
    /// The whole capture.
    Whole,
    /// Any second of it.
    Second,
}

/// Why a file is no set of rules.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A line that says nothing that is known.
    #[error("line {line}: {text:?} is no rule: say called …, no …, at most N … or at least N …")]
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
        /// What is wrong with the filter.
        source: FilterError,
    },
    /// There is no rule at all, which would always be kept.
    #[error("there is no rule")]
    None,
}

impl std::str::FromStr for Rules {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rules, RuleError> {
        let mut rules = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            rules.push(rule(line, text)?);
        }
        if rules.is_empty() { Err(RuleError::None) } else { Ok(Rules(rules)) }
    }
}

impl Rules {
    /// Returns whether one of them counts what the recorder lost.
    #[must_use]
    pub fn are_about_losses(&self) -> bool {
        let is_about_losses = |rule: &Rule| {
            matches!(
                rule.wanted,
                Wanted::AtMost(_, What::Lost, _) | Wanted::AtLeast(_, What::Lost, _)
            )
        };
        self.0.iter().any(is_about_losses)
    }
}

fn rule(line: usize, text: &str) -> Result<Rule, RuleError> {
    let unknown = || RuleError::Unknown { line, text: text.to_owned() };
    let filter =
        |text: &str| text.parse::<Filter>().map_err(|source| RuleError::Filter { line, source });
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
            rule(Wanted::Called(within), filter(&chosen)?)
        }
        ["no", what] => {
            let what = counted(what).ok_or_else(unknown)?;
            rule(Wanted::AtMost(0, what, Per::Whole), filter(of.unwrap_or(""))?)
        }
        ["at", bound @ ("most" | "least"), number, what, rest @ ..] => {
            let number: u64 = number.parse().map_err(|_| unknown())?;
            let what = counted(what).ok_or_else(unknown)?;
            let per = match rest {
                [] => Per::Whole,
                ["a" | "per", "second"] => Per::Second,
                _ => return Err(unknown()),
            };
            let wanted = match *bound {
                "most" => Wanted::AtMost(number, what, per),
                _ => Wanted::AtLeast(number, what, per),
            };
            rule(wanted, filter(of.unwrap_or(""))?)
        }
        _ => Err(unknown()),
    }
}

fn counted(word: &str) -> Option<What> {
    Some(match word {
        "messages" | "message" => What::Messages,
        "calls" | "call" => What::Calls,
        "signals" | "signal" => What::Signals,
        "errors" | "error" => What::Errors,
        "unanswered" => What::Unanswered,
        "unowned" => What::Unowned,
        "refused" => What::Refused,
        "lost" => What::Lost,
        _ => return None,
    })
}
