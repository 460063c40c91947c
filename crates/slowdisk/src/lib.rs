//! Slow disks that are the same on every machine: a real file system on a loop device, whose requests take the time that a disk of that kind would.
//!
//! Begin with [`DiskProfile`], which says how long requests take, and [`ModelDisk`], which mounts such a disk. README.md has an example.
//!
//! Below the loop device is one file of a file system in user space, which answers each request when the model says so. The scheduler under test sits on the loop device
//! and sees the true classes; the file's side of the kernel is told to hold nothing back. Everything is in a mount namespace of our own, and the loop device goes with its last user:
//! a program that is killed leaves nothing behind.

mod disk;
mod fuse;
pub mod mount;
mod profile;
pub(crate) mod queue;
pub mod service;
mod text;

pub use disk::{ModelDisk, ModelError, mounted, unmount_left};
pub use fuse::Traffic;
pub use profile::{DiskProfile, DiskRequest, RequestOrder};
pub use queue::Queue;
pub use text::ProfileError;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
