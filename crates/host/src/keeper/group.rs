//! A control group for one command, where the service manager has delegated the service's group.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The group of a command, in which all its descendants are created.
#[derive(Debug)]
pub(super) struct Group {
    parent: PathBuf,
    path: PathBuf,
}

impl Group {
    /// Creates a group below that of this process and enters it; `None` if that group is not delegated.
    pub(super) fn enter(name: &str) -> Option<Group> {
        let parent = own()?;
        let path = parent.join(name);
        fs::create_dir(&path).ok()?;
        let group = Group { parent, path };
        put(&group.path).ok()?;
        Some(group)
    }

    /// Leaves the group, in which the command stays.
    pub(super) fn leave(&self) -> io::Result<()> {
        put(&self.parent)
    }

    /// Returns the processes in it, without those of groups below it.
    pub(super) fn members(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Kills everything in it and below it at once.
    pub(super) fn kill(&self) {
        // Before Linux 5.14 there is no such file, and each process is ended by itself.
        let _ = write(&self.path.join("cgroup.kill"), "1");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Daemons that a command left stay in it; the service manager removes it together with the service.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Returns the directory of the service's group if the service manager has delegated it.
fn own() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().map(|root| Path::new(root).join(path)).find(
        |dir| {
            let mut value = [0; 8];
            let given = rustix::fs::getxattr(dir, "user.delegate", &mut value);
            given == Ok(1) && value[0] == b'1'
        },
    )
}

/// Puts this process into the group at `path`.
fn put(path: &Path) -> io::Result<()> {
    write(&path.join("cgroup.procs"), "0")
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
