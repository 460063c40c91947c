//! Cgroups in which a program is frozen or has little memory; they are gone afterwards, and the program is where it was.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jobs::cgroup::{Cgroup, Freezer};
use sys::mounts::Mounts;

/// How much memory a program has that is to touch more: less than the file that it maps.
const MEMORY: &str = "16777216";

/// A cgroup with a freezer.
#[derive(Debug)]
pub(super) struct FreezingGroup(Cgroup);

impl FreezingGroup {
    /// Makes one inside of our own; the name tells it from others of this process.
    pub(super) fn make(name: &str) -> io::Result<FreezingGroup> {
        let process = std::process::id();
        let own = Cgroup::of(&Mounts::read()?, process).ok_or(io::ErrorKind::NotFound)?;
        let group = FreezingGroup(own.make(&format!("unjank-bench-{process}-{name}"))?);
        // One that has no freezer says so here.
        group.0.freeze(Freezer::Thawed)?;
        Ok(group)
    }

    /// Takes a process in, which stays.
    pub(super) fn take(&self, process: u32) -> io::Result<()> {
        self.0.take(process)
    }

    /// Freezes or thaws what is in it.
    pub(super) fn freeze(&self, freezer: Freezer) -> io::Result<()> {
        self.0.freeze(freezer)
    }
}

impl Drop for FreezingGroup {
    fn drop(&mut self) {
        // What is frozen could not be ended.
        let _ = self.0.freeze(Freezer::Thawed);
        let _ = self.0.dissolve();
    }
}

/// A cgroup with little memory.
#[derive(Debug)]
pub(super) struct SmallMemory {
    group: PathBuf,
    around: PathBuf,
}

impl SmallMemory {
    /// Makes one inside of our own.
    pub(super) fn make(name: &str) -> io::Result<SmallMemory> {
        let table = fs::read_to_string("/proc/self/cgroup")?;
        let (around, limit) = memory_group(&table).ok_or(io::ErrorKind::NotFound)?;
        let group = around.join(format!("unjank-bench-{}-{name}", std::process::id()));
        fs::create_dir(&group)?;
        let small = SmallMemory { group, around };
        put(&small.group.join(limit), MEMORY)?;
        Ok(small)
    }

    /// Takes a process in.
    pub(super) fn take(&self, process: u32) -> io::Result<()> {
        put(&self.group.join("cgroup.procs"), &process.to_string())
    }

    /// Puts a process back to where it was.
    pub(super) fn put_back(&self, process: u32) -> io::Result<()> {
        put(&self.around.join("cgroup.procs"), &process.to_string())
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        let inside = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for process in inside.lines().filter_map(|line| line.parse().ok()) {
            let _ = self.put_back(process);
        }
        let _ = fs::remove_dir(&self.group);
    }
}

/// Returns the directory of our own cgroup that accounts for memory, and the file with its limit.
fn memory_group(table: &str) -> Option<(PathBuf, &'static str)> {
    let of = |controller: &str| {
        table.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let has = controllers.split(',').any(|name| name == controller);
            has.then(|| path.trim_start_matches('/').to_owned())
        })
    };
    if let Some(path) = of("memory") {
        return Some((Path::new("/sys/fs/cgroup/memory").join(path), "memory.limit_in_bytes"));
    }
    let group = Path::new("/sys/fs/cgroup").join(of("")?);
    let children = fs::read_to_string(group.join("cgroup.subtree_control")).ok()?;
    children.split_whitespace().any(|name| name == "memory").then_some((group, "memory.high"))
}

fn put(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_kind_of_cgroups_is_found_by_its_controller() {
        let table = "9:name=systemd:/\n4:cpu,memory:/user/a\n0::/\n";
        let found = memory_group(table).unwrap();
        assert_eq!(found.0, Path::new("/sys/fs/cgroup/memory/user/a"));
        assert_eq!(found.1, "memory.limit_in_bytes");
    }
}
