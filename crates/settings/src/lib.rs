//! Settings as dconf keeps them: databases, changesets, profiles, locks and notifications.
//!
//! A program begins with [`SettingsProfile::choose`](profile::SettingsProfile::choose), which says where its settings come from,
//! and [`SettingsClient`](client::SettingsClient), which reads, follows and changes them. A [`Changeset`](changeset::Changeset) is a
//! change of many keys at once. A service begins with the [`Engine`](engine::Engine), which owns the databases and writes them.
//!
//! README.md has examples.

pub mod blame;
pub mod changeset;
pub mod client;
pub mod compile;
pub mod database;
pub mod earlier;
pub mod effective;
pub mod engine;
pub mod history;
pub mod inspection;
pub mod merge;
mod names;
pub mod pacing;
pub mod path;
pub mod profile;
pub mod source;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
