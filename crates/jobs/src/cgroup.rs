//! The cgroup of a job, if one can be created: it holds and counts all processes of the job.
//!
//! Documentation/admin-guide/cgroup-v2.rst. The freezer and the pressure files need no controller, so a directory that we may make is all it takes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::mounts::Mounts;

/// How often processes are moved out of a cgroup in which some are ending, and how long is waited for those.
const MOVES: usize = 50;
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How long is waited for a change that nobody may tell of: not every kernel wakes whoever waits when a cgroup is removed.
const SECOND: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A cgroup and where its file system is mounted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cgroup {
    root: PathBuf,
    path: PathBuf,
}

/// Whether processes of a cgroup run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freezer {
    /// They do.
    Thawed,
    /// They are stopped where they are, without a signal that anybody sees.
    Frozen,
}

impl Cgroup {
    /// Returns the cgroup that process `pid` is in, in the cgroup2 hierarchy of `mounts`.
    #[must_use]
    pub fn of(mounts: &Mounts, pid: u32) -> Option<Cgroup> {
        let root = mounts.iter().find(|mount| mount.fs_type == "cgroup2")?.point.clone();
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let path = if path.is_empty() { root.clone() } else { root.join(path) };
        // Outside of the cgroup namespace, paths begin with `/..` and are not accessible.
        let seen = !path.components().any(|part| part.as_os_str() == "..");
        (seen && path.is_dir()).then_some(Cgroup { root, path })
    }

    /// Returns the one that holds all others, in the cgroup2 hierarchy of `mounts`.
    #[must_use]
    pub fn top(mounts: &Mounts) -> Option<Cgroup> {
        let root = mounts.iter().find(|mount| mount.fs_type == "cgroup2")?.point.clone();
        Some(Cgroup { path: root.clone(), root })
    }

    /// Returns the cgroup of the unit `name`, as systemd calls its directory: `flatpak-update.service`. The first one is taken where several managers have one.
    #[must_use]
    pub fn of_unit(mounts: &Mounts, name: &str) -> Option<Cgroup> {
        let root = mounts.iter().find(|mount| mount.fs_type == "cgroup2")?.point.clone();
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries.filter_map(Result::ok) {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                if entry.file_name() == name {
                    return Some(Cgroup { root, path: entry.path() });
                }
                directories.push(entry.path());
            }
        }
        None
    }

    /// Makes a cgroup called `name` inside of this one.
    ///
    /// # Errors
    ///
    /// `EACCES`: it was not delegated to this user; nothing was made.
    pub fn make(&self, name: &str) -> io::Result<Cgroup> {
        let path = self.path.join(name);
        fs::create_dir(&path)?;
        let made = Cgroup { root: self.root.clone(), path };
        // It has to be possible to go in and out, too: the common ancestor must be ours.
        let usable = OpenOptions::new().write(true).open(self.path.join("cgroup.procs"));
        match usable.and_then(|_| made.freeze(Freezer::Thawed)) {
            Ok(()) => Ok(made),
            Err(error) => {
                let _ = fs::remove_dir(&made.path);
                Err(error)
            }
        }
    }

    /// Returns the cgroup called `name` inside of this one, if it is there.
    #[must_use]
    pub fn inside(&self, name: &str) -> Option<Cgroup> {
        let path = self.path.join(name);
        path.is_dir().then(|| Cgroup { root: self.root.clone(), path })
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where the cgroup2 file system is mounted.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns whether this is the root cgroup, which can be neither frozen nor removed.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.path == self.root
    }

    /// A directory in the place of a cgroup.
    #[cfg(test)]
    pub(crate) fn imitated_by(directory: &Path) -> Cgroup {
        Cgroup { root: directory.to_owned(), path: directory.to_owned() }
    }

    /// Moves process `pid` into it.
    ///
    /// # Errors
    ///
    /// `EACCES`: the cgroup around this one and the process's own is another user's; `ESRCH`: it has ended.
    pub fn take(&self, pid: u32) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.path.join("cgroup.procs"))?;
        file.write_all(pid.to_string().as_bytes())
    }

    /// Returns `cgroup.procs`, open: a process that writes `0` moves itself into the cgroup.
    ///
    /// # Errors
    ///
    /// As `open(2)`.
    pub fn entrance(&self) -> io::Result<OwnedFd> {
        let file = OpenOptions::new().write(true).open(self.path.join("cgroup.procs"))?;
        Ok(file.into())
    }

    /// Returns whether this user may freeze it; changes nothing.
    ///
    /// # Errors
    ///
    /// `EACCES`: it is another user's; `ENOENT`: it is gone, or there is no freezer (before 5.2).
    pub(crate) fn check_control(&self) -> io::Result<()> {
        self.freezer().map(drop)
    }

    fn freezer(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.path.join("cgroup.freeze"))
    }

    /// Stops all processes, or lets them go on. A process that waits for a disk stops when it has been served.
    ///
    /// # Errors
    ///
    /// As `write(2)`: the cgroup is gone, or there is no freezer (before 5.2).
    pub fn freeze(&self, freezer: Freezer) -> io::Result<()> {
        self.freezer()?.write_all(match freezer {
            Freezer::Thawed => b"0",
            Freezer::Frozen => b"1",
        })
    }

    /// Returns the processes in it and in all cgroups below.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let mut found = Vec::new();
        let mut directories = vec![self.path.clone()];
        while let Some(directory) = directories.pop() {
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            let below = entries.filter_map(|entry| {
                let entry = entry.ok()?;
                entry.file_type().ok()?.is_dir().then(|| entry.path())
            });
            directories.extend(below);
        }
        found
    }

    /// Returns whether process `pid` is in it or below.
    #[must_use]
    pub fn contains(&self, pid: u32) -> bool {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"));
        path.is_some_and(|path| self.root.join(path).starts_with(&self.path))
    }

    /// Returns whether any process is in it or below.
    #[must_use]
    pub fn is_populated(&self) -> bool {
        Events::open(self).is_ok_and(|events| events.is_populated())
    }

    /// Waits until no process is in it or below; returns at once when it is gone.
    pub(crate) fn wait_until_empty(&self) {
        let Ok(events) = Events::open(self) else { return };
        while events.is_populated() {
            events.wait(&SECOND);
        }
    }

    /// Moves all processes into the parent cgroup and removes it: for a job without a keeper and a supervisor.
    ///
    /// # Errors
    ///
    /// `EBUSY`: a process came in meanwhile; the others are outside.
    pub fn dissolve(&self) -> io::Result<()> {
        let around = self.path.parent().ok_or(io::ErrorKind::InvalidInput)?.join("cgroup.procs");
        let mut last = Ok(());
        for _ in 0..MOVES {
            let events = Events::open(self);
            for process in self.processes() {
                // The kernel takes one number at a time; one that has ended is refused.
                let opened = OpenOptions::new().write(true).open(&around);
                let _ = opened.and_then(|mut file| file.write_all(process.to_string().as_bytes()));
            }
            last = self.remove();
            match (&last, events) {
                // One that is ending can no longer be moved, and counts until it has ended.
                (Err(error), Ok(events)) if error.kind() == io::ErrorKind::ResourceBusy => {
                    if events.is_populated() {
                        events.wait(&MOMENT);
                    }
                }
                _ => break,
            }
        }
        last
    }

    /// Removes it when the last process has left, which may be on its way out for some milliseconds after it was seen last.
    ///
    /// # Errors
    ///
    /// `EBUSY`: processes are in it.
    pub(crate) fn remove_soon(&self) -> io::Result<()> {
        for _ in 0..MOVES {
            match self.remove() {
                Ok(()) => return Ok(()),
                // Somebody was quicker.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if self.is_populated() => return Err(error),
                // A signal ends it early, which does no harm.
                Err(_) => drop(rustix::thread::nanosleep(&MOMENT)),
            }
        }
        self.remove()
    }

    /// Removes it, with the empty ones below.
    ///
    /// # Errors
    ///
    /// `EBUSY`: processes are in it.
    pub fn remove(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)?.filter_map(Result::ok) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let below = Cgroup { root: self.root.clone(), path: entry.path() };
                below.remove()?;
            }
        }
        fs::remove_dir(&self.path)
    }
}

/// `cgroup.events`, which says whether any process is in a cgroup, and changes.
struct Events(File);

impl Events {
    fn open(cgroup: &Cgroup) -> io::Result<Events> {
        File::open(cgroup.path.join("cgroup.events")).map(Events)
    }

    /// Returns whether any process is in the cgroup or below; not when it is gone.
    fn is_populated(&self) -> bool {
        // On this descriptor, from the start: until it has been read, poll(2) says that there is something new.
        let mut text = [0; 256];
        let read = self.0.read_at(&mut text, 0).unwrap_or(0);
        text[..read].split(|byte| *byte == b'\n').any(|line| line == b"populated 1")
    }

    /// Waits until the file changes after the last [`Events::is_populated`], but no longer than `limit`.
    fn wait(&self, limit: &Timespec) {
        // A signal ends it early, which does no harm.
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::PRI)], Some(limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a cgroup of this process's own to make others in, where this user may.
    fn own() -> Option<Cgroup> {
        let mounts = Mounts::read().unwrap();
        let own = Cgroup::of(&mounts, std::process::id())?;
        let name = format!("unjank-test-{}-{:p}", std::process::id(), &raw const mounts);
        own.make(&name).ok()
    }

    #[test]
    fn a_frozen_program_goes_on_when_it_is_thawed() {
        let Some(group) = own() else {
            eprintln!("SKIPPED: no cgroup can be made here");
            return;
        };
        let mut command = std::process::Command::new("cat");
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let manners = sys::sched::ExecScheduling {
            io: sys::sched::IoClass::Idle,
            cpu: sys::sched::CpuClass::Normal,
            cgroup: Some(group.entrance().unwrap()),
            mask: None,
            orphaned: sys::sched::Orphaned::Killed,
        };
        sys::sched::before_exec(&mut command, manners);
        let mut cat = command.spawn().unwrap();
        assert_eq!(group.processes(), [cat.id()]);
        assert!(group.is_populated());
        assert!(group.contains(cat.id()) && !group.contains(std::process::id()));
        group.freeze(Freezer::Frozen).unwrap();
        let mut stdin = cat.stdin.take().unwrap();
        stdin.write_all(b"said while frozen").unwrap();
        drop(stdin);
        assert!(cat.try_wait().unwrap().is_none());
        group.freeze(Freezer::Thawed).unwrap();
        let output = cat.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"said while frozen");
        while group.is_populated() {
            std::thread::yield_now();
        }
        group.remove().unwrap();
        assert!(!group.path().exists());
    }
}
