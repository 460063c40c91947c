//! What of the command line is in the small program for sandboxes, `unjank-host`: the client of host commands.

mod document;
pub mod host;
mod moment;
mod refusal;
pub(crate) mod screen;
mod service_files;
