//! A report: a recording with names, small enough to be mailed, and the same for screen, page and program.

pub mod account;
mod advice;
mod answers;
mod arguments;
mod build;
pub mod chains;
pub mod data;
#[cfg(test)]
mod example;
mod followed;
pub mod names;
pub mod operations;
pub mod page;
mod paths;
mod ring_waits;
pub mod schema;
mod short_calls;
pub mod spelling;
mod stalls;
mod symbolized;
#[cfg(test)]
mod tests;
pub mod text;
mod timing;
pub mod verdict;
pub mod view;

pub use self::build::{ReportOptions, build};
pub use self::schema::{SCHEMA, TraceReport};

#[cfg(test)]
pub(crate) use self::example::report as example_report;
