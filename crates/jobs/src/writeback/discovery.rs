//! Finds files of programs without the preload: open for writing in `/proc/PID/fd`, or closed in a directory where such a file was seen, where such a program works, or that was made in one of those.
//!
//! The job controls these paths. A file or directory is opened by `O_PATH` first, and is examined when the mount table says that the kernel alone answers.

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

use super::WritebackProgress;
use super::file_systems::FileSystems;
use super::gathering::{FileCollector, FlushCandidate};

/// The most directories that are watched for closed files: the most recent ones.
const DIRECTORIES: usize = 512;
/// The most bytes that are read of the mappings of a process.
const MOST_MAPS: u64 = 32 << 20;
/// The most entries of a new directory that are examined.
const ENTRIES: usize = 4096;

/// The search for files of programs without the preload.
pub(super) struct OutsideObserver {
    pub(super) inotify: OwnedFd,
    directories: HashMap<i32, PathBuf>,
    watched: HashSet<PathBuf>,
    /// The watches, the oldest first.
    order: VecDeque<i32>,
    /// Processes that have the preload, and examined ones that have not.
    preloaded: HashMap<u32, Preload>,
    file_systems: FileSystems,
    gathering: Arc<FileCollector>,
    progress: Arc<WritebackProgress>,
}

/// Whether a process has the preload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preload {
    Loaded,
    /// It had not this many rounds ago, perhaps before its `exec`.
    Missing(u8),
}

impl OutsideObserver {
    pub(super) fn new(
        gathering: Arc<FileCollector>,
        progress: Arc<WritebackProgress>,
    ) -> io::Result<OutsideObserver> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(OutsideObserver {
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

    /// Finds the files that `processes` have open for writing.
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

    /// Has all files started soon, then `asking` closed.
    pub(super) fn finish(&self, asking: OwnedFd) {
        self.gathering.finish(asking);
    }

    /// Adds a file if the kernel alone answers for it. Returns whether it does.
    fn take(&mut self, file: FileReference) -> bool {
        let Ok(about) = file.attributes() else { return false };
        if !self.file_systems.accept(&about) {
            return false;
        }
        if about.length > 0 && self.gathering.add_found(FlushCandidate::new(file, &about)) {
            self.progress.found.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    fn does_it_itself(&mut self, pid: u32) -> bool {
        let known = self.preloaded.entry(pid).or_insert(Preload::Missing(0));
        match *known {
            Preload::Loaded => return true,
            // It is examined again from time to time, because it may execute another program.
            Preload::Missing(rounds) if rounds > 1 && rounds % 16 != 0 => {
                *known = Preload::Missing(rounds.wrapping_add(1).max(2));
                return false;
            }
            Preload::Missing(rounds) => *known = Preload::Missing(rounds.wrapping_add(1)),
        }
        let maps = sys::process_file::read(pid, "maps", MOST_MAPS).unwrap_or_default();
        // The name has an underscore in a build directory, and a hyphen when it is installed.
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
            // It fails if the watch is gone already.
            let _ = inotify::remove_watch(&self.inotify, oldest);
            if let Some(path) = self.directories.remove(&oldest) {
                self.watched.remove(&path);
            }
        }
        let Some(reference) = self.directory(directory) else { return };
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::CREATE | WatchFlags::ONLYDIR;
        // Without a watch, the flusher writes the files that are closed between two rounds.
        if let Ok(number) = inotify::add_watch(&self.inotify, reference.link(), flags) {
            if self.directories.insert(number, directory.to_owned()).is_none() {
                self.order.push_back(number);
            }
            self.watched.insert(directory.to_owned());
        }
    }

    /// Opens a directory by `O_PATH`, if the kernel alone answers for it and for its path.
    fn directory(&mut self, path: &Path) -> Option<FileReference> {
        let reference = self.file(path)?;
        let about = reference.attributes().ok()?;
        self.file_systems.accept_directory(&about).then_some(reference)
    }

    /// Opens `path` by `O_PATH`, if the kernel alone answers for its lookup.
    fn file(&mut self, path: &Path) -> Option<FileReference> {
        if !self.file_systems.accept_way(path) {
            return None;
        }
        FileReference::at(path).ok()
    }

    /// Watches a new directory, and adds the files that were made in it before.
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

    /// Adds a file that was closed.
    fn take_closed(&mut self, path: &Path) {
        if let Some(file) = self.file(path) {
            self.take(file);
        }
    }

    /// Adds files that were closed in watched directories.
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

/// An event in a watched directory.
enum DirectoryEvent {
    Closed(PathBuf),
    Made(PathBuf),
}

/// Returns the working directory of process `pid`, or that of the job if the process has gained privileges.
fn working_directory(pid: u32) -> PathBuf {
    let link = fs::read_link(format!("/proc/{pid}/cwd"));
    link.or_else(|_| fs::read_link("/proc/self/cwd")).unwrap_or_default()
}

/// Returns the files that process `pid` has open for writing: their paths in `/proc`, and their descriptors.
fn written(pid: u32) -> Vec<(PathBuf, u32)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let files = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        // Pipes and sockets have no path; devices are not written back here.
        if !target.is_absolute() || target.starts_with("/dev") || target.starts_with("/proc") {
            return None;
        }
        // The link has the owner's write bit if the file is open for writing (proc(5)).
        if fs::symlink_metadata(entry.path()).ok()?.mode() & 0o200 == 0 {
            return None;
        }
        Some((target, entry.file_name().to_str()?.parse().ok()?))
    });
    files.collect()
}
