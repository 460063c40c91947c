//! Host commands: who may run what, what becomes of it, and what is left of it when nobody wants it any more.
//!
//! A sandboxed program asks a service outside to run a command. `docs/host-service.md` says what is promised.

pub mod admission;
pub mod command;
pub mod environment;
pub mod identity;
pub mod keeper;
pub mod log;
pub mod monitor;
pub mod policy;
pub mod process;
pub mod program;
pub mod start;

pub use identity::{Application, Caller};
