//! Counts the system calls of processes by programs in the kernel, and reports slow ones with stack, files and sockets.
//!
//! A [`session::BpfSession`] loads the programs; a [`served::ServedSession`] is one that the recorder service has for a user
//! who may not load them; [`kernel_session::KernelSession`] is either. README.md has an example.

pub mod fields;
pub mod histogram;
pub mod kernel_session;
pub mod layout;
pub mod programs;
pub mod record;
pub mod served;
pub mod session;
pub mod totals;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
