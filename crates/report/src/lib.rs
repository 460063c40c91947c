//! Output for people: figures, grades, tables, charts and pages, and text of others that is safe to print.
//!
//! Begin with [`text::visible`] for names that others made, [`TextTable`](table::TextTable) for rows that fit a terminal, and
//! [`Samples`](samples::Samples) for quantiles. Nothing here prints; README.md has an example.

pub mod advice;
pub mod chart;
pub mod duration;
pub mod error;
pub mod escape;
pub mod figure;
pub mod grade;
pub mod guard;
pub mod moment;
pub mod page;
pub mod page_file;
pub mod paint;
pub mod paragraph;
pub mod provenance;
pub mod quoting;
pub mod samples;
pub mod table;
pub mod text;
pub mod time_zone;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
