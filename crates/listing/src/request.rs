//! What is listed, and how.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::fields::AttributeSet;

/// A request for one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingRequest {
    /// The directory. A relative path is taken from where the one who lists was started: give absolute ones.
    pub path: PathBuf,
    /// What is asked for beside names and types.
    pub fields: AttributeSet,
    /// Directories with shared-mime-info's `globs2` and `magic`, the most important first:
    /// `~/.local/share/mime`, `/usr/share/mime`. Read only if the MIME type is asked for.
    pub mime_directories: Vec<PathBuf>,
    /// What ends a listing that does not end by itself.
    pub limits: ListingLimits,
    /// How many threads read attributes.
    pub threads: ThreadCount,
    /// Whether it goes on when everything was read.
    pub following: Following,
}

/// Whether a listing goes on when everything was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Following {
    /// It is as it was read.
    #[default]
    Never,
    /// What changes in the directory arrives until it is cancelled.
    Changes,
}

/// What a listing may grow to before it is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingLimits {
    /// Names.
    pub entries: u32,
    /// Bytes of memory with names and attributes.
    pub bytes: u64,
}

impl Default for ListingLimits {
    /// 20 million names in 2 GiB.
    fn default() -> ListingLimits {
        ListingLimits { entries: 20_000_000, bytes: 2 << 30 }
    }
}

/// How many threads read attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadCount {
    /// One, more for many entries or a slow file system.
    #[default]
    Adaptive,
    /// That many, once there are names for all.
    Exactly(NonZeroUsize),
}

impl ListingRequest {
    /// Asks for the names and [`AttributeSet::DEFAULT`] of the directory at `path`.
    #[must_use]
    pub fn of(path: &Path) -> ListingRequest {
        ListingRequest {
            path: path.to_owned(),
            fields: AttributeSet::DEFAULT,
            mime_directories: Vec::new(),
            limits: ListingLimits::default(),
            threads: ThreadCount::Adaptive,
            following: Following::Never,
        }
    }

    /// Asks for what changes too.
    #[must_use]
    pub fn followed(mut self) -> ListingRequest {
        self.following = Following::Changes;
        self
    }

    /// Asks for other fields.
    #[must_use]
    pub fn with_fields(mut self, fields: AttributeSet) -> ListingRequest {
        self.fields = fields;
        self
    }
}

/// The program that lists in another process: `unjank listing-worker`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerProgram {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments. The socket is its standard input.
    pub arguments: Vec<OsString>,
}
