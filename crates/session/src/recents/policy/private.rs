//! Private mode: a small file that says until when nothing is remembered.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use store::disk::Disk;
use store::publish::{PublishError, publish};

use super::super::{Places, Timestamp};

/// What the file says when there is no end.
const WITHOUT_END: &str = "until told otherwise";

/// Until when nothing is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {
    /// Until then.
    Until(Timestamp),
    /// Until it is turned off.
    WithoutEnd,
}

impl fmt::Display for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Private::Until(Timestamp(until)) => write!(f, "until {until}"),
            Private::WithoutEnd => f.write_str(WITHOUT_END),
        }
    }
}

impl Private {
    /// Reads whether private mode is on at `now`. A file that cannot be understood means that it is: rather too little
    /// is remembered than too much.
    #[must_use]
    pub fn read(disk: &dyn Disk, places: &Places, now: Timestamp) -> Option<Private> {
        let path = path(places);
        let text = match disk.read(&path) {
            Ok(text) => text,
            // Where we may not even look there is no journal that we could write either.
            Err(_) if disk.stat(&path).is_err() => return None,
            Err(_) => return Some(Private::WithoutEnd),
        };
        let until = std::str::from_utf8(&text).ok().and_then(|t| t.trim().strip_prefix("until "));
        match until.and_then(|until| until.parse().ok()) {
            Some(until) if now < Timestamp(until) => Some(Private::Until(Timestamp(until))),
            Some(_) => None,
            None => Some(Private::WithoutEnd),
        }
    }

    /// Turns private mode on, durably: from now on nothing is remembered, also by programs that run already.
    ///
    /// # Errors
    ///
    /// As [`publish`]; after [`PublishError::NotReplaced`] it is as it was.
    pub fn turn_on(self, disk: &dyn Disk, places: &Places) -> Result<(), PublishError> {
        publish(disk, &path(places), format!("{self}\n").as_bytes()).map(|_| ())
    }

    /// Turns private mode off, and says whether it was on.
    ///
    /// # Errors
    ///
    /// As `unlink(2)`; it stays on.
    pub fn turn_off(disk: &dyn Disk, places: &Places) -> io::Result<bool> {
        match disk.remove(&path(places)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn path(places: &Places) -> PathBuf {
    let dir: &Path = &places.state;
    dir.join("private")
}
