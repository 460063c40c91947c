//! What traffic is expected to be: rules in a file, held against a capture, for a test run. docs/bus-expect.md.

mod check;
mod junit;
mod report;
mod rules;
#[cfg(test)]
mod tests;

pub use check::{Outcome, check};
pub use junit::junit;
pub use report::{CommandEnd, Fault, Report};
pub use rules::{RuleError, Rules};

/// The name and version of the document.
pub const SCHEMA: &str = "unjank.bus.expect/1";
