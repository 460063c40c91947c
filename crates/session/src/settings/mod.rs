//! Settings as dconf keeps them: databases, changesets, profiles, locks and notifications.

pub mod blame;
pub mod changeset;
pub mod client;
pub mod compile;
pub mod database;
pub mod earlier;
pub mod effective;
pub mod engine;
pub mod history;
pub mod merge;
pub mod pacing;
pub mod path;
pub mod profile;
pub mod source;
