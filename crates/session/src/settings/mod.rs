//! Settings as dconf keeps them: databases, changesets, profiles, locks and notifications.

pub mod blame;
pub mod changeset;
pub mod engine;
pub mod history;
pub mod pacing;
pub mod path;
