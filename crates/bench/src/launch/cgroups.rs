//! The cgroups of a measurement: one for what is launched, one for the background, beside one another.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use jobs::cgroup::Cgroup;
use sys::mounts::Mounts;

use super::guardian::{Guardian, Resource};
use super::teardown::{clear, end};
use super::{LaunchError, step};

/// Both cgroups, in one.
#[derive(Debug)]
pub(super) struct Groups {
    around: Cgroup,
    pub(super) foreground: Cgroup,
    pub(super) background: Cgroup,
}

impl Groups {
    /// Makes them inside of the cgroup that this process is in.
    pub(super) fn make(mounts: &Mounts, guardian: &mut Guardian) -> Result<Groups, LaunchError> {
        let process = std::process::id();
        let own = Cgroup::of(mounts, process)
            .ok_or(io::ErrorKind::NotFound.into())
            .map_err(step("find a cgroup2 file system"))?;
        let name = format!("unjank-bench-{process}");
        let told = guardian.tell(&Resource::Cgroup(own.path().join(&name)));
        told.map_err(step("talk to the guardian"))?;
        let cannot = || step(format!("make a cgroup in {}", own.path().display()));
        let around = own.make(&name).map_err(cannot())?;
        Ok(Groups {
            foreground: around.make("foreground").map_err(cannot())?,
            background: around.make("background").map_err(cannot())?,
            around,
        })
    }

    /// Returns how long what is in the foreground has waited for disks so far, in milliseconds.
    pub(super) fn waited_ms(&self) -> Option<f64> {
        let text = fs::read_to_string(self.foreground.path().join("io.pressure")).ok()?;
        let line = text.lines().find(|line| line.starts_with("some "))?;
        let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
        total.parse::<f64>().ok().map(|micros| micros / 1e3)
    }

    /// Returns the directory of the cgroup that both are in.
    pub(super) fn path(&self) -> &Path {
        self.around.path()
    }

    /// Ends all that runs in the background, and gives those who watch over it time to tidy up.
    pub(super) fn end_background(&self) {
        end(self.background.path(), Duration::from_secs(5));
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        clear(self.around.path(), Duration::from_secs(5));
    }
}

#[cfg(test)]
mod tests {
    use jobs::pressure::OtherCgroups;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "whether a skip is a failure is said there")]
    fn a_job_in_the_background_watches_what_is_launched() {
        let mounts = Mounts::read().unwrap();
        let mut guardian = Guardian::start(&["cat".to_owned()]).unwrap();
        let Ok(groups) = Groups::make(&mounts, &mut guardian) else {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "no cgroup can be made");
            println!("SKIPPED: no cgroup can be made");
            return;
        };
        let job = groups.background.path().join("unjank-run-1");
        assert!(!OtherCgroups::beside(groups.background.root(), &job).is_empty());
    }
}
