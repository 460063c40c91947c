//! Settings as dconf keeps them: databases, changesets, profiles, locks and notifications.

pub mod changeset;
pub mod path;
