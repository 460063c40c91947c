//! Linux as unjank needs it: the only floor, apart from the C boundary, with unsafe code.
//!
//! Begin with [`OpenDirectory`](dir::OpenDirectory), [`Map`](map::Map), [`ProgramToStart`](spawn::ProgramToStart) and
//! [`SystemClock`](clock::SystemClock); each module is one thing of the kernel. README.md has an example.

#![allow(unsafe_code, reason = "this is the crate where unsafe code may be")]

pub mod account;
pub mod bpf;
pub mod clock;
pub mod deferred_close;
pub mod descriptor;
pub mod device;
pub mod dir;
pub mod disposition;
pub mod extents;
pub mod file_clock;
pub mod file_reference;
pub mod file_worker;
pub mod heap;
pub mod launch;
pub mod locks;
pub mod loop_device;
pub mod map;
pub mod memfd;
pub mod memory;
pub mod message;
pub mod mounts;
pub mod namespace;
pub mod peer;
pub mod perf;
pub mod pidfd;
pub mod private_dir;
pub mod process;
pub mod process_file;
pub mod processor;
pub mod ptrace;
pub mod regular_file;
pub mod remote;
pub mod sched;
pub mod scratch;
pub mod seccomp;
pub mod shared;
pub mod sheltered;
pub mod signals;
pub mod socket;
pub mod spawn;
pub mod sqlite;
pub mod stream;
pub mod supervise;
pub mod syscall;
pub mod syscall_set;
pub mod terminal;
pub mod thread;
pub mod tick;
pub mod unix_sockets;
pub mod usage;
pub mod watch;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
