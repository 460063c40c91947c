//! The policy as it is in its file now.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use session::host::policy::Policy;

/// The longest policy that is read.
const MOST_BYTES: u64 = 1 << 20;

/// What a file of a policy holds, or why there is one that holds none.
pub(super) type Known = Result<Policy, String>;

/// A policy that follows its file.
#[derive(Debug)]
pub(super) struct Followed {
    path: PathBuf,
    /// What tells one state of the file from another: device, file, size, time.
    seen: Option<(u64, u64, u64, i64, i64)>,
    policy: Arc<Known>,
}

impl Followed {
    /// Follows the file at `path`, which need not exist.
    pub(super) fn new(path: PathBuf) -> Followed {
        Followed { path, seen: None, policy: Arc::new(Ok(Policy::default())) }
    }

    /// Returns the policy as it is now.
    pub(super) fn now(&mut self) -> &Arc<Known> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.seen.take().is_some() || self.policy.is_err() {
                    self.policy = Arc::new(Ok(Policy::default()));
                }
            }
            Err(error) => {
                self.seen = None;
                self.policy = Arc::new(Err(format!("cannot read {:?}: {error}", self.path)));
            }
            Ok(status) => {
                let (time, part) = (status.mtime(), status.mtime_nsec());
                let seen = Some((status.dev(), status.ino(), status.len(), time, part));
                if self.seen != seen {
                    self.policy = Arc::new(read(&self.path));
                    self.seen = seen;
                }
            }
        }
        &self.policy
    }

    /// Says whether anybody is limited by it, or would be if it could be read.
    pub(super) fn limits_anybody(&mut self) -> bool {
        self.now().as_ref().as_ref().map_or(true, Policy::limits_anybody)
    }
}

fn read(path: &Path) -> Known {
    let cannot = |why: &dyn std::fmt::Display| format!("cannot read {path:?}: {why}");
    // What stands there may be a pipe, for which nobody waits.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(file.map_err(|error| cannot(&io::Error::from(error)))?);
    let status = file.metadata().map_err(|error| cannot(&error))?;
    if !status.is_file() {
        return Err(cannot(&"it is no file"));
    }
    if status.len() > MOST_BYTES {
        return Err(cannot(&"it is too long"));
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(|error| cannot(&error))?;
    Policy::parse(&text).map_err(|error| format!("{error} ({path:?})"))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test is the user")]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_what_its_file_says_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host-policy");
        let mut followed = Followed::new(path.clone());
        let nothing = Ok(Policy::default());
        assert!(**followed.now() == nothing && !followed.limits_anybody());
        fs::write(&path, "[a]\nallow git\n").unwrap();
        assert_eq!(followed.now().as_ref().as_ref().unwrap().sections().count(), 1);
        assert!(followed.limits_anybody());
        fs::write(&path, "[a]\nallow git\nand more\n").unwrap();
        assert!(followed.now().as_ref().as_ref().unwrap_err().contains("line 3"));
        assert!(followed.limits_anybody(), "what nobody can read limits everybody");
        fs::remove_file(&path).unwrap();
        assert!(**followed.now() == nothing);
        // A pipe would keep whoever opens it waiting.
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        assert!(followed.now().as_ref().as_ref().unwrap_err().contains("no file"));
    }
}
