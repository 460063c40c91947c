//! The file system that a path or a descriptor of a traced process is on.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use sys::device::Device;
use sys::mounts::Mounts;

use crate::recorder::TraceRecorder;
use crate::recording::RecordedMount;

/// The most mounts that are remembered.
const MOUNTS: usize = 65_536;

/// File systems that answer without a server, and can have named pipes.
const LOCAL: [&str; 8] = ["ext2", "ext3", "ext4", "btrfs", "xfs", "f2fs", "tmpfs", "zfs"];

/// The most directories above a path that are tried when it does not exist.
const ABOVE: usize = 64;

/// File systems by the number that the kernel gives their mounts. It gives the number of one that is gone to the next one.
#[derive(Debug, Default)]
pub(super) struct MountTable {
    known: HashMap<u64, Option<u32>>,
    /// The list of mounts of this process, which tells when it has changed.
    changes: Option<File>,
}

impl MountTable {
    /// Forgets what is known if mounts were made or have gone since the last time. Those in a namespace of other processes alone
    /// are not announced.
    fn forget_old(&mut self) {
        let has_changed = match &self.changes {
            // Without an answer nothing that is known can be relied on.
            Some(list) => {
                let mut polled = [PollFd::new(list, PollFlags::PRI)];
                poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
            }
            None => {
                self.changes = File::open("/proc/self/mountinfo").ok();
                true
            }
        };
        if has_changed || self.known.len() >= MOUNTS {
            self.known.clear();
        }
    }

    /// Returns the mount with this number, as `process` sees it.
    pub(super) fn numbered(
        &mut self,
        process: u32,
        id: u64,
        recorder: &mut TraceRecorder,
    ) -> Option<u32> {
        self.forget_old();
        if let Some(known) = self.known.get(&id) {
            return *known;
        }
        let found = std::fs::read(format!("/proc/{process}/mountinfo")).ok().and_then(|text| {
            let mounts = Mounts::parse(&text);
            mounts.numbered(id).map(|mount| recorder.mount(described(mount)))
        });
        self.known.insert(id, found);
        found
    }

    /// Returns the mount of an open descriptor.
    pub(super) fn of_descriptor(
        &mut self,
        process: u32,
        descriptor: i32,
        recorder: &mut TraceRecorder,
    ) -> Option<u32> {
        let id = number_of(&format!("/proc/{process}/fdinfo/{descriptor}"))?;
        self.numbered(process, id, recorder)
    }

    /// Returns the mount of `path`, or of the nearest directory above that exists.
    ///
    /// No file system is asked: its server may not answer, or be a program that this one has stopped.
    pub(super) fn of_path(
        &mut self,
        process: u32,
        path: &[u8],
        recorder: &mut TraceRecorder,
    ) -> Option<u32> {
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let root = root_of(process)?;
        let id = match find_cached(root.as_fd(), path.strip_prefix("/").ok()?) {
            CachedMount::Certain(id) => Some(id),
            CachedMount::Above(above) => number_by_name(process, path, above),
        }?;
        self.numbered(process, id, recorder)
    }
}

/// The mount of a path, as far as the kernel remembers names.
enum CachedMount {
    /// The number of that of the path, or of the nearest directory above that exists.
    Certain(u64),
    /// That of a directory above, and how many bytes of the path lead there; what is below is not remembered.
    Above(Option<(u64, usize)>),
}

/// Opens the root of a process for look-ups; `None` if it has ended.
fn root_of(process: u32) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, format!("/proc/{process}/root"), flags, Mode::empty()).ok()
}

/// Looks a path, relative to `root`, up among the names that the kernel remembers, which waits for nothing. What the program has
/// just used is remembered.
fn find_cached(root: BorrowedFd<'_>, path: &Path) -> CachedMount {
    let mut is_certain = true;
    for above in path.ancestors().take(ABOVE) {
        let name = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::CACHED | ResolveFlags::IN_ROOT;
        match openat2(root, name, flags, Mode::empty(), resolve) {
            Ok(found) => {
                let id = number_of(&format!("/proc/self/fdinfo/{}", found.as_raw_fd()));
                return match id {
                    Some(id) if is_certain => CachedMount::Certain(id),
                    // With the slash that the path begins with.
                    id => CachedMount::Above(id.map(|id| (id, 1 + above.as_os_str().len()))),
                };
            }
            // It is remembered that there is no such file.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            // Not remembered, not allowed, or a kernel before Linux 5.12, which cannot look up in this way.
            Err(_) => is_certain = false,
        }
    }
    CachedMount::Above(None)
}

/// Returns the number of the mount of a path by the names of the mounts, unless that of a directory `above` it says as much.
fn number_by_name(process: u32, path: &Path, above: Option<(u64, usize)>) -> Option<u64> {
    let mounts = Mounts::of_process(process).unwrap_or_default();
    let named = mounts.above(path);
    let is_deeper = |point: &Path| above.is_none_or(|(_, len)| point.as_os_str().len() > len);
    let named = named.filter(|mount| is_deeper(&mount.point)).map(|mount| mount.id);
    named.or(above.map(|(id, _)| id))
}

/// Returns whether a descriptor that is open is a named pipe, which has a program at its other end and no disk below it. A file system
/// that asks a server is not asked.
pub(super) fn is_named_pipe(
    process: u32,
    descriptor: i32,
    mount: Option<u32>,
    recorder: &mut TraceRecorder,
) -> bool {
    let mounts = &recorder.recording().mounts;
    let mount = mount.and_then(|at| mounts.get(usize::try_from(at).ok()?));
    let path = format!("/proc/{process}/fd/{descriptor}");
    mount.is_some_and(|mount| LOCAL.contains(&&*mount.kind))
        && std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Returns the number of the mount of an open file, by its file in `fdinfo`.
fn number_of(fdinfo: &str) -> Option<u64> {
    let text = std::fs::read_to_string(fdinfo).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// Returns the number of the mount of our own root.
pub(super) fn of_root() -> Option<u64> {
    let root = root_of(std::process::id())?;
    number_of(&format!("/proc/self/fdinfo/{}", root.as_raw_fd()))
}

/// Describes a mount and the device that it is on.
fn described(mount: &sys::mounts::MountInfo) -> RecordedMount {
    let device = Device::under(mount);
    let options = mount.options.iter().chain(&mount.fs_options);
    let mut seen: Vec<&str> = Vec::new();
    for option in options {
        if !seen.contains(&&**option) {
            seen.push(option);
        }
    }
    RecordedMount {
        point: mount.point.as_os_str().as_bytes().to_vec(),
        kind: mount.fs_type.clone(),
        options: seen.join(","),
        source: mount.source.as_bytes().to_vec(),
        rotational: device.as_ref().and_then(|device| device.rotational),
        scheduler: device.and_then(|device| device.scheduler),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Backend;
    use std::process::Command;

    /// A file system in memory that is gone when this is dropped.
    struct Mounted<'a>(&'a Path);

    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(self.0).status();
        }
    }

    fn mounted<'a>(dir: &'a Path, source: &str) -> Option<Mounted<'a>> {
        let done = Command::new("mount").args(["-t", "tmpfs", source]).arg(dir).status();
        done.is_ok_and(|status| status.success()).then_some(Mounted(dir))
    }

    #[test]
    fn a_mount_that_took_the_number_of_another_one_is_not_taken_for_it() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: mounting needs root");
        }
        let dir = tempfile::tempdir().unwrap();
        let now = std::time::SystemTime::UNIX_EPOCH;
        let mut recorder = TraceRecorder::new(Backend::Peek, Vec::new(), now);
        let mut table = MountTable::default();
        let own = std::process::id();
        for source in ["first", "second", "third"] {
            let Some(_mount) = mounted(dir.path(), source) else {
                return eprintln!("SKIPPED: nothing can be mounted here");
            };
            for _ in 0..2 {
                let path = dir.path().as_os_str().as_bytes();
                let at = table.of_path(own, path, &mut recorder).unwrap();
                let mounts = &recorder.recording().mounts;
                assert_eq!(mounts[usize::try_from(at).unwrap()].source, source.as_bytes());
            }
        }
    }

    /// Reads a link until the kernel has noted that it was read after it was made; where it notes that at all.
    fn use_link(link: &Path) {
        use std::os::unix::fs::MetadataExt;
        let mounts = Mounts::read().unwrap();
        let is_noted = || {
            let stat = std::fs::symlink_metadata(link).unwrap();
            (stat.atime(), stat.atime_nsec()) > (stat.ctime(), stat.ctime_nsec())
        };
        while !is_noted() && !mounts.above(link).unwrap().has("noatime") {
            std::fs::read_link(link).unwrap();
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_path_has_the_mount_that_it_leads_to() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: mounting needs root");
        }
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        std::fs::create_dir(&below).unwrap();
        let Some(_mount) = mounted(&below, "below") else {
            return eprintln!("SKIPPED: nothing can be mounted here");
        };
        std::fs::create_dir(below.join("folder")).unwrap();
        std::os::unix::fs::symlink(below.join("folder"), dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink(dir.path(), below.join("back")).unwrap();
        [dir.path().join("link"), below.join("back")].iter().for_each(|link| use_link(link));
        let now = std::time::SystemTime::UNIX_EPOCH;
        let mut recorder = TraceRecorder::new(Backend::Peek, Vec::new(), now);
        let mut table = MountTable::default();
        let own = std::process::id();
        for (path, is_below) in [
            ("below", true),
            ("below/folder", true),
            ("below/none/at/all", true),
            ("link", true),
            ("link/none", true),
            ("below/..", false),
            ("below/back", false),
            ("below/back/none", false),
            ("none", false),
        ] {
            let path = dir.path().join(path);
            // As the program does that is traced.
            let _ = path.metadata();
            let path = path.as_os_str().as_bytes();
            let at = table.of_path(own, path, &mut recorder).unwrap();
            let mounts = &recorder.recording().mounts;
            let source = &mounts[usize::try_from(at).unwrap()].source;
            assert_eq!(source == b"below", is_below, "{}", String::from_utf8_lossy(path));
        }
        let point = dir.path().join("below");
        let id = Mounts::of_process(own).unwrap();
        let id = id.above(&point).unwrap().id;
        let len = dir.path().as_os_str().len();
        // Where the kernel remembers less, or cannot be asked, the names of the mounts tell.
        for above in [None, Some((1, len))] {
            assert_eq!(number_by_name(own, &point.join("folder/x"), above), Some(id));
        }
        let above = Some((7, point.as_os_str().len()));
        assert_eq!(number_by_name(own, &point.join("folder/x"), above), Some(7));
    }

    #[test]
    fn a_named_pipe_is_told_from_a_file() {
        use std::os::fd::AsRawFd;
        let dir = tempfile::tempdir().unwrap();
        let [pipe, file] = ["pipe", "file"].map(|name| dir.path().join(name));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let mut recorder =
            TraceRecorder::new(Backend::Peek, Vec::new(), std::time::SystemTime::UNIX_EPOCH);
        let mut table = MountTable::default();
        let own = std::process::id();
        for (path, is_pipe) in [(&pipe, true), (&file, false)] {
            let opened =
                File::options().read(true).write(true).create(true).truncate(false).open(path);
            let opened = opened.unwrap();
            let descriptor = opened.as_raw_fd();
            let mount = table.of_descriptor(own, descriptor, &mut recorder);
            let at = usize::try_from(mount.unwrap()).unwrap();
            let is_local = LOCAL.contains(&&*recorder.recording().mounts[at].kind);
            let found = is_named_pipe(own, descriptor, mount, &mut recorder);
            assert_eq!(found, is_pipe && is_local);
            assert!(!is_named_pipe(own, descriptor, None, &mut recorder), "nobody may be asked");
        }
    }
}
