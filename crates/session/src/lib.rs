//! What unjank does for a session: settings, listings, plugins and applications. No D-Bus, no async, no printing, no environment.

pub mod apps;
pub mod clock;
pub mod collation;
pub mod host;
pub mod index;
pub mod jobs;
pub mod keyfile;
pub mod languages;
pub mod linking;
pub mod listing;
pub mod mime;
pub mod mime_types;
pub mod plugins;
pub mod recents;
pub mod settings;
