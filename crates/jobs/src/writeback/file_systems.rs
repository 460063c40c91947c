//! Which file systems may hold a file whose write-back is started here.
//!
//! A file system in user space or on another machine may never answer, and a call to it then never returns.
//! So no call is made on a file before the mount table says that the kernel itself answers.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::file_reference::{FileAttributes, mount_of_descriptor};
use sys::mounts::{MountInfo, Mounts};

/// File systems inside the kernel whose pages are written back to a disk of this machine, or to none.
const WRITTEN_BACK: [&str; 21] = [
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfs", "hfsplus", "jfs", "minix",
    "msdos", "nilfs2", "ntfs3", "overlay", "ramfs", "reiserfs", "tmpfs", "udf", "vfat", "xfs",
];
/// Other file systems inside the kernel, which may be part of the path to a file.
const ANSWERED_BY_THE_KERNEL: [&str; 8] =
    ["cgroup", "cgroup2", "devtmpfs", "erofs", "iso9660", "rootfs", "squashfs", "sysfs"];

fn is_written_back(mount: &MountInfo) -> bool {
    WRITTEN_BACK.contains(&&*mount.fs_type)
}

/// The present mounts of this process.
#[derive(Debug)]
pub(super) struct FileSystems {
    mounts: Mounts,
    /// The mount table, which becomes readable when it changes.
    table: Option<File>,
}

impl FileSystems {
    /// Reads the mount table.
    pub(super) fn new() -> FileSystems {
        // It is opened first: a change between the two calls is noticed at the next check.
        let table = File::open("/proc/self/mountinfo").ok();
        FileSystems { mounts: Mounts::read().unwrap_or_default(), table }
    }

    /// Returns whether the kernel alone answers for descriptor `number` of process `pid`: it may be opened by `O_PATH` then.
    ///
    /// # Errors
    ///
    /// The process has no such descriptor, or other privileges than this process.
    pub(super) fn accept_descriptor(&mut self, pid: u32, number: u32) -> io::Result<bool> {
        self.refresh();
        let mount = mount_of_descriptor(pid, number)?;
        if let Some(mount) = self.mounts.numbered(mount) {
            return Ok(is_written_back(mount));
        }
        // The process is in another mount namespace.
        Ok(Mounts::of_process(pid)?.numbered(mount).is_some_and(is_written_back))
    }

    /// Returns whether write-back of a file may be started: it is a regular file, and the kernel itself writes it.
    pub(super) fn accept(&mut self, about: &FileAttributes) -> bool {
        about.is_regular() && self.holder_is_written_back(about)
    }

    /// Returns whether a directory may be read.
    pub(super) fn accept_directory(&mut self, about: &FileAttributes) -> bool {
        about.is_directory() && self.holder_is_written_back(about)
    }

    /// Returns whether the kernel alone answers for the lookup of `path`, which is absolute and without symbolic links.
    pub(super) fn accept_way(&mut self, path: &Path) -> bool {
        self.refresh();
        let is_known = |mount: &MountInfo| {
            is_written_back(mount) || ANSWERED_BY_THE_KERNEL.contains(&&*mount.fs_type)
        };
        path.is_absolute()
            && self.mounts.iter().filter(|mount| path.starts_with(&mount.point)).all(is_known)
    }

    fn holder_is_written_back(&mut self, about: &FileAttributes) -> bool {
        self.refresh();
        // A mount in another mount namespace has another number, but the same device.
        let numbered = about.mount.and_then(|number| self.mounts.numbered(number));
        let holder =
            numbered.or_else(|| self.mounts.iter().find(|mount| mount.device == about.device));
        holder.is_some_and(is_written_back)
    }

    /// Reads the table again if it has changed, because mount numbers are reused.
    fn refresh(&mut self) {
        let Some(table) = &self.table else { return };
        let mut polled = [PollFd::new(table, PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&now)).is_ok_and(|changed| changed > 0) {
            self.mounts = Mounts::read().unwrap_or_default();
        }
    }

    #[cfg(test)]
    fn of(table: &str) -> FileSystems {
        FileSystems { mounts: Mounts::parse(table.as_bytes()), table: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 0:5 / /dev rw - devtmpfs none rw
23 22 0:6 / /dev/shm rw - tmpfs none rw
24 21 0:40 / /mnt/user rw - fuse.sshfs there: rw
25 21 0:41 / /mnt/net rw - nfs4 there:/ rw
26 24 8:2 / /mnt/user/disk rw - xfs /dev/sdb rw
27 21 8:3 / /mnt/windows rw - fuseblk /dev/sdc rw
28 21 0:42 / /mnt/vm rw - 9p share rw
29 21 0:43 / /mnt/auto rw - autofs there rw
";

    fn file(mount: Option<u64>, device: (u32, u32)) -> FileAttributes {
        FileAttributes { mount, device, inode: 2, length: 1, links: 1, mode: 0o100_600, owner: 0 }
    }

    #[test]
    fn files_that_the_kernel_writes_itself_are_accepted_and_no_others() {
        let mut known = FileSystems::of(TABLE);
        for (mount, device, wanted) in [
            (21, (8, 1), true),
            (23, (0, 6), true),
            (26, (8, 2), true),
            (24, (0, 40), false),
            (25, (0, 41), false),
            (27, (8, 3), false),
            (28, (0, 42), false),
            // In another mount namespace, of a device that is known here, and of none.
            (99, (8, 1), true),
            (99, (0, 40), false),
            (99, (0, 77), false),
        ] {
            assert_eq!(known.accept(&file(Some(mount), device)), wanted, "{mount} {device:?}");
        }
        // The number of the mount decides: a device is foreign as soon as one mount of it is.
        assert!(!known.accept(&file(Some(24), (8, 1))));
        assert!(known.accept(&file(None, (8, 1))));
        let directory = FileAttributes { mode: 0o040_700, ..file(Some(21), (8, 1)) };
        assert!(!known.accept(&directory) && known.accept_directory(&directory));
    }

    #[test]
    fn a_way_leads_through_file_systems_of_the_kernel_alone() {
        let mut known = FileSystems::of(TABLE);
        for (path, wanted) in [
            ("/home/me/a", true),
            ("/dev/shm/a", true),
            ("/mnt/user/a", false),
            ("/mnt/user/disk/a", false),
            ("/mnt/users/a", true),
            ("/mnt/auto/x", false),
            ("a", false),
        ] {
            assert_eq!(known.accept_way(Path::new(path)), wanted, "{path}");
        }
    }
}
