//! What unjank does for a session: settings, listings. No D-Bus, no async, no printing, no environment.

pub mod clock;
pub mod collation;
pub mod listing;
pub mod settings;
