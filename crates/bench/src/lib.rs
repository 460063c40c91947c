//! `bench`: our parts beside the programs that a user would run instead, in one run.
//!
//! Begin with [`Figure`](run::Figure), what is measured, [`run::measure`], and [`text::render`], which shows a [`Run`](run::Run).
//! README.md has an example.

pub mod bus;
pub mod cold;
pub mod hangs;
pub mod host;
pub mod json;
pub mod lab;
pub mod launch;
pub mod listing;
pub mod names;
pub mod page;
pub mod paired;
pub mod plugins;
pub mod recents;
pub mod row;
pub mod run;
pub mod settings;
pub mod text;
pub mod trace;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
