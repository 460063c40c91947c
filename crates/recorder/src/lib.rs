//! `recorder`: the system service through which a user who is not root has programs in the kernel for his own processes.
//!
//! Begin with [`service::serve`]. It needs `CAP_BPF` and `CAP_PERFMON` and nothing else, opens no file of a caller and reads
//! no memory of another process. docs/recorder.md says what it promises, and crate `trace` has the protocol and the client.

pub mod access;
mod caller;
pub mod confine;
mod connection;
mod events;
mod polkit;
pub mod program;
mod quota;
pub mod service;
mod shared;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
