//! Checks a recording against a file of rules, for a test run; see docs/bus-expect.md.

mod check;
mod junit;
mod report;
mod rules;
#[cfg(test)]
mod tests;

pub use check::{RuleOutcome, check};
pub use junit::junit;
pub use report::{CheckProblem, CommandEnd, ExpectReport};
pub use rules::{ExpectRuleError, ExpectRules};

/// The name and version of the document.
pub const SCHEMA: &str = "unjank.bus.expect/1";
