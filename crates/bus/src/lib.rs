//! The D-Bus contracts of unjank, both ends; the only crate that names zbus.

pub mod client;
pub mod errors;
mod raw;
pub mod request;
pub mod server;
