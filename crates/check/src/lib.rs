//! `check`: judges reports of traced programs.
//!
//! [`limits`] says whether a report keeps to limits, [`baseline`] whether a program waits where it is not allowed to, and
//! [`output`] writes both for people and code hosts, into a [`result_file`]; [`window`] sees when a program's window is shown. [`compare`] says what differs between two reports, and [`ab`] runs a
//! command with and without a change and says whether the difference is significant. README.md has an example.

pub mod ab;
pub mod baseline;
pub mod compare;
mod ending;
#[cfg(test)]
mod example;
pub mod limits;
pub mod output;
pub mod result_file;
pub mod window;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
