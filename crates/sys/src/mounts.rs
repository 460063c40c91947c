//! Mounted file systems, as `/proc/thread-self/mountinfo` lists them.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// One line of `mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// The mount's number in this namespace.
    pub id: u64,
    /// Major and minor number of the file system; major 0 where it has no block device of its own.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub point: PathBuf,
    /// Options of the mount: `rw`, `noatime`, …
    pub options: Vec<String>,
    /// The type of the file system: `ext4`, `tmpfs`, `fuse.sshfs`, …
    pub fs_type: String,
    /// What is mounted: a device node, a share, or any word.
    pub source: OsString,
    /// Options of the file system: `data=journal`, `compress=zstd:1`, …
    pub fs_options: Vec<String>,
}

impl MountInfo {
    /// Says whether either kind of options holds `name`, alone or as `name=…`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().chain(&self.fs_options).any(|option| {
            option.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
    }

    /// Says whether nothing can be written through this mount.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.has("ro")
    }

    /// Says whether the files live on another machine.
    #[must_use]
    pub fn is_network(&self) -> bool {
        const NETWORK: [&str; 10] = [
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "9p",
            "ceph",
            "afs",
            "glusterfs",
            "fuse.sshfs",
            "fuse.davfs",
        ];
        NETWORK.contains(&&*self.fs_type)
    }

    /// Says whether a program in user space answers every call.
    #[must_use]
    pub fn is_fuse(&self) -> bool {
        self.fs_type == "fuse" || self.fs_type == "fuseblk" || self.fs_type.starts_with("fuse.")
    }

    /// Says whether the files live in memory alone and are gone after a restart.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        matches!(&*self.fs_type, "tmpfs" | "ramfs" | "devtmpfs")
    }
}

/// All mounts of this process's namespace, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<MountInfo>);

impl Mounts {
    /// Reads `/proc/thread-self/mountinfo`: a thread may have mounts of its own.
    ///
    /// # Errors
    ///
    /// As `read(2)`; without `/proc` there is nothing to read.
    pub fn read() -> io::Result<Mounts> {
        std::fs::read("/proc/thread-self/mountinfo").map(|text| Mounts::parse(&text))
    }

    /// Reads those of process `pid`, which may be in another namespace.
    ///
    /// # Errors
    ///
    /// As [`Mounts::read`]; the process has ended, or has other privileges than this one.
    pub fn of_process(pid: u32) -> io::Result<Mounts> {
        std::fs::read(format!("/proc/{pid}/mountinfo")).map(|text| Mounts::parse(&text))
    }

    /// Reads the text of a `mountinfo`; a line that is none is left out.
    #[must_use]
    pub fn parse(text: &[u8]) -> Mounts {
        Mounts(text.split(|&byte| byte == b'\n').filter_map(mount).collect())
    }

    /// Returns all mounts, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = &MountInfo> {
        self.0.iter()
    }

    /// Returns the mount that holds `path`, which must exist.
    #[must_use]
    pub fn holding(&self, path: &Path) -> Option<&MountInfo> {
        let id = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)
            .ok()
            .filter(|stat| stat.stx_mask & StatxFlags::MNT_ID.bits() != 0)
            .map(|stat| stat.stx_mnt_id);
        id.and_then(|id| self.0.iter().find(|mount| mount.id == id))
            .or_else(|| self.above(&path.canonicalize().ok()?))
    }

    /// Returns the mount with this number, as `fdinfo` and `statx` tell it.
    #[must_use]
    pub fn numbered(&self, id: u64) -> Option<&MountInfo> {
        self.0.iter().find(|mount| mount.id == id)
    }

    /// Returns the mount whose point is the longest prefix of `path`; of several the last.
    #[must_use]
    pub fn above(&self, path: &Path) -> Option<&MountInfo> {
        self.0
            .iter()
            .filter(|mount| path.starts_with(&mount.point))
            .max_by_key(|mount| mount.point.as_os_str().len())
    }
}

/// Splits a line: `36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/sda1 rw,data=ordered`.
fn mount(line: &[u8]) -> Option<MountInfo> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = number(fields.next()?)?;
    let _parent = fields.next()?;
    let mut device = fields.next()?.split(|&byte| byte == b':');
    let device = (narrow(number(device.next()?)?)?, narrow(number(device.next()?)?)?);
    let _root = fields.next()?;
    let point = PathBuf::from(unescape(fields.next()?));
    let options = list(fields.next()?);
    fields.find(|field| *field == b"-")?;
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    let fs_options = list(fields.next().unwrap_or_default());
    Some(MountInfo { id, device, point, options, fs_type, source, fs_options })
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn narrow(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

fn list(options: &[u8]) -> Vec<String> {
    options
        .split(|&byte| byte == b',')
        .filter(|option| !option.is_empty())
        .map(|option| String::from_utf8_lossy(option).into_owned())
        .collect()
}

/// Undoes the kernel's escapes of space, tab, newline and backslash: three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = (byte == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,data=journal,discard
30 21 0:27 / /home/an\\040na rw,nosuid - btrfs /dev/sdb rw,ssd,subvol=/home
31 30 0:40 / /home/an\\040na/far ro - nfs4 host:/far rw,vers=4.2
not a mount
32 21 0:41 / /home/an\\040na rw - tmpfs tmpfs rw,size=1k
";

    #[test]
    fn a_line_is_read_whole_and_a_broken_one_is_left_out() {
        let mounts = Mounts::parse(TEXT);
        assert_eq!(mounts.0.len(), 4);
        let root = &mounts.0[0];
        assert_eq!((root.id, root.device, &*root.fs_type), (21, (254, 0), "ext4"));
        assert!(root.has("data") && root.has("discard") && !root.has("dat"));
        assert_eq!(mounts.0[1].point, Path::new("/home/an na"));
        assert!(mounts.0[2].is_network() && mounts.0[2].is_read_only());
    }

    #[test]
    fn the_deepest_and_latest_mount_holds_a_path() {
        let mounts = Mounts::parse(TEXT);
        let found = |path: &str| mounts.above(Path::new(path)).map(|mount| mount.id);
        assert_eq!(found("/etc/passwd"), Some(21));
        assert_eq!(found("/home/an na/x"), Some(32), "the later mount hides the earlier");
        assert_eq!(found("/home/an na/far/x"), Some(31));
        assert_eq!(found("/home/an nax"), Some(21), "a name that only begins alike is not below");
    }

    #[test]
    fn the_mounts_of_this_machine_hold_its_root() {
        let mounts = Mounts::read().unwrap();
        assert_eq!(mounts.holding(Path::new("/proc")).unwrap().fs_type, "proc");
        assert!(mounts.holding(Path::new("/no/such/path")).is_none());
    }
}
