//! Host commands: the policy, their start, their supervision, and the log.
//!
//! A sandboxed program asks a service outside to run a command. Begin with [`Caller`], the identity of that program, [`HostPolicy`](policy::HostPolicy),
//! the commands that it may run, and [`start`], which runs one. README.md has an example; `docs/host-service.md` of the repository has the guarantees.

pub mod activation;
pub mod admission;
pub mod client;
pub mod command;
pub mod environment;
pub mod identity;
pub mod keeper;
mod keys;
pub mod log;
pub mod monitor;
pub mod policy;
pub mod process;
pub mod program;
pub mod relay;
pub mod shims;
pub mod start;

pub use identity::{Caller, CallerKind};

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
