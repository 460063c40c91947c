//! What unjank does for a session: settings. No D-Bus, no async, no printing, no environment.

pub mod clock;
pub mod collation;
pub mod settings;
