//! Owner, mode, ACL and extended attributes carried from a file to the one that replaces it.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{self, Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;

use super::FileStat;
use super::opened::stat_of;

/// Gives `file` the attributes of the file at `from`, which is `stat`, as far as we may.
pub(super) fn copy(from: &Path, stat: &FileStat, file: &File) -> io::Result<()> {
    let ours = stat_of(file)?;
    let (uid, gid) = stat.owner;
    if ours.owner.0 != uid {
        allowed(fs::fchown(file, Some(Uid::from_raw(uid)), None))?;
    }
    let group_kept =
        ours.owner.1 == gid || allowed(fs::fchown(file, None, Some(Gid::from_raw(gid))))?;
    // Set-id bits are never carried over. What the old group could do must not become what another group can.
    let mut mode = stat.mode & 0o777;
    if !group_kept {
        mode = (mode & !0o070) | ((mode & 0o007) << 3);
    }
    if ours.mode & 0o7777 != mode {
        fs::fchmod(file, Mode::from_raw_mode(mode))?;
    }
    // After the mode, which an ACL's mask is part of.
    copy_extended(from, file, group_kept)
}

/// Copies the ACL, the user's attributes and the SELinux label.
fn copy_extended(from: &Path, to: &File, group_kept: bool) -> io::Result<()> {
    let mut names = Vec::with_capacity(65536);
    match fs::listxattr(from, rustix::buffer::spare_capacity(&mut names)) {
        Ok(_) => {}
        Err(error) => return allowed(Err(error)).map(|_| ()),
    }
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        let bytes = name.to_bytes();
        // An ACL names the owning group's rights, which belong to the group that could not be kept.
        let wanted = bytes.starts_with(b"user.")
            || bytes == b"security.selinux"
            || (bytes == b"system.posix_acl_access" && group_kept);
        if !wanted {
            continue;
        }
        let mut value = Vec::with_capacity(65536);
        match fs::getxattr(from, name, rustix::buffer::spare_capacity(&mut value)) {
            Ok(_) => {}
            // Removed in between: then there is nothing to copy.
            Err(Errno::NODATA) => continue,
            Err(error) => {
                allowed(Err(error))?;
                continue;
            }
        }
        allowed(fs::fsetxattr(to, name, &value, XattrFlags::empty()))?;
    }
    Ok(())
}

/// Tells whether a call was allowed; lack of privilege or support is an answer, anything else an error.
fn allowed(result: Result<(), Errno>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
