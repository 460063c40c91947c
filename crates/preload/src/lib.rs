//! What a library needs that is preloaded into programs which know nothing of it.
//!
//! Begin with [`NextFunction`], which calls the function that the program meant, and [`SavedErrno`], which keeps its `errno`.
//! README.md has an example.
//!
//! All of it may be called from a signal handler, in a child between `fork` (or `vfork`) and `exec`, and by any number of threads:
//! nothing allocates, locks or formats, stacks may be small, and `errno` is as it was.
//! A function that calls the program's next one is `C-unwind` and calls it plainly, holding nothing: a thread that is cancelled there is unwound through it, and there must be nothing to be done on the way.
#![expect(unsafe_code, reason = "C functions of programs are called, and call us")]

#[cfg(feature = "build-script")]
pub mod build_script;
mod errno;
mod next;
mod path;
mod scratch;
mod system_call;

pub use errno::{SavedErrno, errno, fail, set_errno};
pub use next::NextFunction;
pub use path::{PathBuffer, bytes};
pub use scratch::PATH_MAX;
pub use system_call::{argument, system_call};

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
