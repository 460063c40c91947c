//! What a library needs that is preloaded into programs which know nothing of it.
//!
//! All of it may be called from a signal handler, in a child between `fork` (or `vfork`) and `exec`, and by any number of threads:
//! nothing allocates, locks or formats, and `errno` is as it was.
#![expect(unsafe_code, reason = "C functions of programs are called, and call us")]

mod errno;
mod next;
mod path;

pub use errno::{Errno, errno, fail, set_errno};
pub use next::Next;
pub use path::{PATH_MAX, PathBuffer, bytes};
