//! History: who changed which setting, when, from what to what.

use std::path::PathBuf;
use std::time::Duration;

/// A process as the bus knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Its executable, if it could be read.
    pub exe: Option<PathBuf>,
}

/// What the history keeps, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The most bytes on disk.
    pub bytes: u64,
    /// The oldest entry.
    pub age: Duration,
    /// Patterns of paths whose values are never stored; `*` stands for any text. Case is ignored.
    pub deny: Vec<String>,
}

impl Default for Keep {
    fn default() -> Keep {
        Keep { bytes: 4 << 20, age: Duration::from_secs(90 * 86_400), deny: Vec::new() }
    }
}
