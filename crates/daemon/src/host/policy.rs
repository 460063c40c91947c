//! The present contents of the policy file.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::policy::{ExposurePlaces, HostPolicy, exposures};
use rustix::fs::{Mode, OFlags};

/// The longest policy that is read.
const MOST_BYTES: u64 = 1 << 20;

/// The policy in a file, or the error of a file that has none.
pub(super) type LoadedPolicy = Result<HostPolicy, String>;

/// A policy that is read again when its file changes.
#[derive(Debug)]
pub(super) struct Followed {
    path: PathBuf,
    /// The identity of the file's contents: device, inode, size, time.
    seen: Option<(u64, u64, u64, i64, i64)>,
    policy: Arc<LoadedPolicy>,
    /// The directories in which other writers of the file are searched, if they are to be logged.
    exposure: Option<ExposurePlaces>,
}

impl Followed {
    /// Follows the file at `path`, which need not exist.
    pub(super) fn new(path: PathBuf) -> Followed {
        Followed { path, seen: None, policy: Arc::new(Ok(HostPolicy::default())), exposure: None }
    }

    /// Logs, each time that a policy is read, the parties that can write it although it limits them.
    pub(super) fn warning(self, places: ExposurePlaces) -> Followed {
        Followed { exposure: Some(places), ..self }
    }

    /// Returns the present policy.
    pub(super) fn now(&mut self) -> &Arc<LoadedPolicy> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.seen.take().is_some() || self.policy.is_err() {
                    self.policy = Arc::new(Ok(HostPolicy::default()));
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
                    self.warn_of_exposures();
                }
            }
        }
        &self.policy
    }

    /// Searches other writers of the file on a thread, because the metadata of applications may be on a slow disk.
    fn warn_of_exposures(&self) {
        let Some(places) = self.exposure.clone() else { return };
        let (policy, path) = (Arc::clone(&self.policy), self.path.clone());
        let look = move || {
            let Ok(policy) = policy.as_ref() else { return };
            for exposure in exposures(policy, &path, &places) {
                tracing::warn!("the policy of host commands does not hold: {exposure}");
            }
        };
        if let Err(error) = sys::thread::spawn("host-policy", look) {
            tracing::warn!(%error, "cannot look who can write the policy of host commands");
        }
    }

    /// Returns whether it limits anyone, or cannot be read.
    pub(super) fn limits_anybody(&mut self) -> bool {
        self.now().as_ref().as_ref().map_or(true, HostPolicy::limits_anybody)
    }
}

fn read(path: &Path) -> LoadedPolicy {
    let cannot = |why: &dyn std::fmt::Display| format!("cannot read {path:?}: {why}");
    // The path may be a pipe, which is not read.
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
    HostPolicy::parse(&text).map_err(|error| format!("{error} ({path:?})"))
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
        let nothing = Ok(HostPolicy::default());
        assert!(**followed.now() == nothing && !followed.limits_anybody());
        fs::write(&path, "[a]\nallow git\n").unwrap();
        assert_eq!(followed.now().as_ref().as_ref().unwrap().sections().count(), 1);
        assert!(followed.limits_anybody());
        fs::write(&path, "[a]\nallow git\nand more\n").unwrap();
        assert!(followed.now().as_ref().as_ref().unwrap_err().contains("line 3"));
        assert!(followed.limits_anybody(), "what nobody can read limits everybody");
        fs::remove_file(&path).unwrap();
        assert!(**followed.now() == nothing);
        // Opening a pipe would block.
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        assert!(followed.now().as_ref().as_ref().unwrap_err().contains("no file"));
    }
}
