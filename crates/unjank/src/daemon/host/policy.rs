//! The policy as it is in its file now.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use session::host::command::Request;
use session::host::policy::{Decision, Policy, Wanted};
use session::host::{Application, Caller};

/// The longest policy that is read.
const MOST_BYTES: u64 = 1 << 20;

/// A policy that follows its file.
#[derive(Debug)]
pub(super) struct Followed {
    path: PathBuf,
    /// What tells one state of the file from another: device, file, size, time.
    seen: Option<(u64, u64, u64, i64, i64)>,
    policy: Result<Policy, String>,
}

impl Followed {
    /// Follows the file at `path`, which need not exist.
    pub(super) fn new(path: PathBuf) -> Followed {
        Followed { path, seen: None, policy: Ok(Policy::default()) }
    }

    /// Returns the policy, or why there is a file that holds none.
    pub(super) fn now(&mut self) -> Result<&Policy, &str> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (self.seen, self.policy) = (None, Ok(Policy::default()));
            }
            Err(error) => {
                self.seen = None;
                self.policy = Err(format!("cannot read {:?}: {error}", self.path));
            }
            Ok(status) => {
                let (time, part) = (status.mtime(), status.mtime_nsec());
                let seen = Some((status.dev(), status.ino(), status.len(), time, part));
                if self.seen != seen {
                    self.policy = self.read(status.len());
                    self.seen = seen;
                }
            }
        }
        self.policy.as_ref().map_err(String::as_str)
    }

    fn read(&self, len: u64) -> Result<Policy, String> {
        if len > MOST_BYTES {
            return Err(format!("cannot read {:?}: it is too long", self.path));
        }
        let text = fs::read_to_string(&self.path)
            .map_err(|error| format!("cannot read {:?}: {error}", self.path))?;
        Policy::parse(&text).map_err(|error| format!("{error} ({:?})", self.path))
    }
}

/// Says why `caller` may not run `wanted`, if it may not.
pub(super) fn check(
    policy: &mut Followed,
    caller: &Caller,
    wanted: &Wanted<'_>,
    request: &Request,
) -> Result<(), String> {
    let policy = match policy.now() {
        Ok(policy) => policy,
        // What nobody can read allows nothing, except to those who could run it anyway.
        Err(_) if caller.application == Application::Host => return Ok(()),
        Err(why) => return Err(why.to_owned()),
    };
    match policy.decide(&caller.application, wanted) {
        Decision::Unlimited | Decision::NotDenied => Ok(()),
        Decision::Allowed { line } => {
            // With these any program is any other.
            let loader = request.variables.iter().find(|(name, _)| name.starts_with("LD_"));
            loader.map_or(Ok(()), |(name, _)| {
                Err(format!("line {line} of the policy allows the program, and not {name}"))
            })
        }
        Decision::Denied { line } => Err(format!("line {line} of the policy forbids it")),
        Decision::NotListed => Err("no line of the policy allows it".to_owned()),
    }
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
        assert_eq!(followed.now(), Ok(&Policy::default()));
        fs::write(&path, "[a]\nallow git\n").unwrap();
        assert_eq!(followed.now().unwrap().sections().count(), 1);
        fs::write(&path, "[a]\nallow git\nand more\n").unwrap();
        assert!(followed.now().unwrap_err().contains("line 3"));
        fs::remove_file(&path).unwrap();
        assert_eq!(followed.now(), Ok(&Policy::default()));
    }
}
