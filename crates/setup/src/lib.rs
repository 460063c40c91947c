//! Switches the parts of unjank on for one user or for all, and takes back exactly what was done.
//!
//! Begin with [`SetupLayout`], which says where files belong, and [`plan::files_of`], which says what a part consists of.
//! [`Installation`] writes each step to a [`manifest`] before it is made; [`Installation::switch_off`] reads it.
//! README.md has an example.

mod dependents;
pub mod environment;
mod error;
pub mod gsettings;
mod installation;
mod layout;
pub mod manifest;
mod observe;
mod part;
pub mod plan;
mod planned;
pub mod session;
pub mod state;
mod text;

pub use error::SetupError;
pub use installation::{
    AppliedStep, ForeignFiles, Installation, ReturnedStep, StepEffect, UndoOutcome,
};
pub use layout::{SessionDirectories, SetupLayout, SetupScope};
pub use part::{SetupPart, hang_exactness};

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
