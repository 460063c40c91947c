//! Files of programs without the preload, found from outside: open for writing in `/proc/PID/fd`, or closed in a directory where such a file was seen, where such a program works, or that was made in one of those.
//!
//! The job decides what is found here. A file or a directory is named first and looked at when the table of mounts says that the kernel alone will answer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use sys::file_reference::FileReference;

use super::Progress;
use super::file_systems::FileSystems;
use super::gathering::{Gathering, Written};

/// How many directories are watched for files that are closed: the last ones.
const DIRECTORIES: usize = 512;
/// How many entries of a new directory are looked at.
const ENTRIES: usize = 4096;

/// Files of programs without the preload.
pub(super) struct Outside {
    pub(super) inotify: OwnedFd,
    directories: HashMap<i32, PathBuf>,
    watched: HashSet<PathBuf>,
    /// Their numbers, the oldest first.
    order: VecDeque<i32>,
    /// Processes that do it themselves, and those that were looked at and do not.
    preloaded: HashMap<u32, Preload>,
    file_systems: FileSystems,
    gathering: Arc<Gathering>,
    progress: Arc<Progress>,
}

/// Whether a process has our preload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preload {
    Loaded,
    /// Not when it was looked at this many rounds ago: it may have been before its `exec`.
    Missing(u8),
}

impl Outside {
    pub(super) fn new(gathering: Arc<Gathering>, progress: Arc<Progress>) -> io::Result<Outside> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Outside {
            inotify,
            directories: HashMap::new(),
            watched: HashSet::new(),
            order: VecDeque::new(),
            preloaded: HashMap::new(),
            file_systems: FileSystems::new(),
            gathering,
            progress,
        })
    }

    /// Looks for files that `processes` have open for writing.
    pub(super) fn scan(&mut self, processes: &[u32]) {
        self.preloaded.retain(|pid, _| processes.contains(pid));
        for &pid in processes {
            if self.does_it_itself(pid) {
                continue;
            }
            self.watch(&working_directory(pid));
            for (path, number) in written(pid) {
                if !self.file_systems.accept_descriptor(pid, number).unwrap_or(false) {
                    continue;
                }
                let Ok(file) = FileReference::of_descriptor(pid, number) else { continue };
                if self.take(file)
                    && let Some(directory) = path.parent()
                {
                    self.watch(directory);
                }
            }
        }
    }

    /// Has all that was found and handed over started soon, and `asking` closed then.
    pub(super) fn finish(&self, asking: OwnedFd) {
        self.gathering.finish(asking);
    }

    /// Takes a file on, if the kernel alone answers for it. Says whether it does.
    fn take(&mut self, file: FileReference) -> bool {
        let Ok(about) = file.attributes() else { return false };
        if !self.file_systems.accept(&about) {
            return false;
        }
        if about.length > 0 && self.gathering.add_found(Written::new(file, &about)) {
            self.progress.found.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    fn does_it_itself(&mut self, pid: u32) -> bool {
        let known = self.preloaded.entry(pid).or_insert(Preload::Missing(0));
        match *known {
            Preload::Loaded => return true,
            // Looked at again from time to time: it may have become another program.
            Preload::Missing(rounds) if rounds > 1 && rounds % 16 != 0 => {
                *known = Preload::Missing(rounds.wrapping_add(1).max(2));
                return false;
            }
            Preload::Missing(rounds) => *known = Preload::Missing(rounds.wrapping_add(1)),
        }
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        // With an underscore where it was built, with a hyphen where it is installed.
        let name = [b"unjank_writeback.so".as_slice(), b"unjank-writeback.so".as_slice()];
        if maps.windows(name[0].len()).any(|part| name.contains(&part)) {
            *known = Preload::Loaded;
        }
        *known == Preload::Loaded
    }

    pub(super) fn watch(&mut self, directory: &Path) {
        if self.watched.contains(directory) {
            return;
        }
        while self.order.len() >= DIRECTORIES {
            let Some(oldest) = self.order.pop_front() else { break };
            // It is gone already.
            let _ = inotify::remove_watch(&self.inotify, oldest);
            if let Some(path) = self.directories.remove(&oldest) {
                self.watched.remove(&path);
            }
        }
        let Some(reference) = self.directory(directory) else { return };
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::CREATE | WatchFlags::ONLYDIR;
        // Without a watch, files that are closed between two rounds are the flusher's.
        if let Ok(number) = inotify::add_watch(&self.inotify, reference.link(), flags) {
            if self.directories.insert(number, directory.to_owned()).is_none() {
                self.order.push_back(number);
            }
            self.watched.insert(directory.to_owned());
        }
    }

    /// Names a directory, if the kernel alone answers for it and for the way to it.
    fn directory(&mut self, path: &Path) -> Option<FileReference> {
        let reference = self.file(path)?;
        let about = reference.attributes().ok()?;
        self.file_systems.accept_directory(&about).then_some(reference)
    }

    /// Names what is at `path`, if the kernel alone answers for the way to it.
    fn file(&mut self, path: &Path) -> Option<FileReference> {
        if !self.file_systems.accept_way(path) {
            return None;
        }
        FileReference::at(path).ok()
    }

    /// Watches a directory that has just been made, and takes on what came into it before.
    fn enter(&mut self, directory: PathBuf) {
        let mut new = vec![directory];
        let mut left = ENTRIES;
        while let Some(directory) = new.pop() {
            self.watch(&directory);
            let Some(reference) = self.directory(&directory) else { continue };
            let Ok(entries) = fs::read_dir(reference.link()) else { continue };
            for entry in entries.filter_map(Result::ok) {
                if left == 0 {
                    return;
                }
                left -= 1;
                let path = directory.join(entry.file_name());
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => new.push(path),
                    Ok(kind) if kind.is_file() => self.take_closed(&path),
                    Ok(_) | Err(_) => (),
                }
            }
        }
    }

    /// Takes a file on that was closed.
    fn take_closed(&mut self, path: &Path) {
        if let Some(file) = self.file(path) {
            self.take(file);
        }
    }

    /// Takes on files that were closed in watched directories.
    pub(super) fn closed(&mut self) {
        let mut space = [std::mem::MaybeUninit::uninit(); 8192];
        let mut events = Vec::new();
        let mut reader = inotify::Reader::new(&self.inotify, &mut space);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::IGNORED) {
                if let Some(gone) = self.directories.remove(&event.wd()) {
                    self.watched.remove(&gone);
                }
                continue;
            }
            let (Some(directory), Some(name)) =
                (self.directories.get(&event.wd()), event.file_name())
            else {
                continue;
            };
            use std::os::unix::ffi::OsStrExt;
            let path = directory.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            if !event.events().contains(ReadFlags::CREATE) {
                events.push(DirectoryEvent::Closed(path));
            } else if event.events().contains(ReadFlags::ISDIR) {
                events.push(DirectoryEvent::Made(path));
            }
        }
        for event in events {
            match event {
                DirectoryEvent::Closed(path) => self.take_closed(&path),
                DirectoryEvent::Made(path) => self.enter(path),
            }
        }
    }
}

/// What happened in a watched directory.
enum DirectoryEvent {
    Closed(PathBuf),
    Made(PathBuf),
}

/// Returns where process `pid` works; where that is not shown, because it has gained privileges, where its job was started.
fn working_directory(pid: u32) -> PathBuf {
    let link = fs::read_link(format!("/proc/{pid}/cwd"));
    link.or_else(|_| fs::read_link("/proc/self/cwd")).unwrap_or_default()
}

/// Returns what process `pid` has open for writing: paths, as the kernel calls them, and descriptors.
fn written(pid: u32) -> Vec<(PathBuf, u32)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let files = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        // Pipes and sockets have no path; devices are none of ours.
        if !target.is_absolute() || target.starts_with("/dev") || target.starts_with("/proc") {
            return None;
        }
        // The link has the owner's write bit if it is open for writing (proc(5)).
        if fs::symlink_metadata(entry.path()).ok()?.mode() & 0o200 == 0 {
            return None;
        }
        Some((target, entry.file_name().to_str()?.parse().ok()?))
    });
    files.collect()
}
