//! Measuring without the kernel's caches, which only root may drop.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use super::lab::BenchError;

/// Whether figures without caches are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cold {
    /// The kernel's caches are dropped before each round.
    Measured,
    /// They are not: we may not, or the user does not want it.
    LeftOut,
}

/// Drops what the kernel has in caches, of the file system of `dir` and of all others.
///
/// # Errors
///
/// We may not.
pub fn forget(dir: &Path) -> Result<(), BenchError> {
    let drop_caches = || {
        // What is not on the disk yet cannot be dropped.
        rustix::fs::syncfs(File::open(dir)?)?;
        OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches")?.write_all(b"3")
    };
    drop_caches().map_err(|error: std::io::Error| BenchError::Peer {
        program: "/proc/sys/vm/drop_caches".to_owned(),
        cause: error.to_string(),
    })
}
