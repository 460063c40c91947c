//! The file system that a path or a descriptor of a traced process is on.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
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
        let text = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{descriptor}")).ok()?;
        let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
        self.numbered(process, id.trim().parse().ok()?, recorder)
    }

    /// Returns the mount of `path`, or of the nearest directory above that exists.
    pub(super) fn of_path(
        &mut self,
        process: u32,
        path: &[u8],
        recorder: &mut TraceRecorder,
    ) -> Option<u32> {
        let path = Path::new(std::ffi::OsStr::from_bytes(path)).strip_prefix("/").ok()?;
        let root = std::path::PathBuf::from(format!("/proc/{process}/root"));
        let id = path.ancestors().take(ABOVE).find_map(|path| number_of(&root.join(path)))?;
        self.numbered(process, id, recorder)
    }
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

/// Returns the number of the mount that a path is on.
fn number_of(path: &Path) -> Option<u64> {
    let stat = statx(CWD, path, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID).ok()?;
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// Returns the number of the mount of our own root.
pub(super) fn of_root() -> Option<u64> {
    number_of(Path::new("/"))
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
