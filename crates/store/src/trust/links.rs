//! Links that another user could have laid out for us.
//!
//! In a directory that everybody may write to, such as `/tmp`, a link leads where its maker wants. The kernel refuses to
//! follow it for others (`fs.protected_symlinks`), unless that is switched off; a program that follows links by itself,
//! as a publish does to replace what a link points to, has to refuse it on its own.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, FileType, Stat};

/// As many symlinks as the kernel follows.
const MAX_LINKS: usize = 40;
/// Everybody may write.
const WRITABLE_BY_ALL: u32 = 0o002;

/// Refuses a symlink that another user placed in a directory that everybody may write to.
pub(crate) fn check_link(link: &Path) -> io::Result<()> {
    let dir = match link.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    check(link, &fs::lstat(link)?, &fs::stat(dir)?)
}

/// Refuses a path of which another user placed a part in a directory that everybody may write to.
pub(crate) fn check_path(path: &Path) -> io::Result<()> {
    let mut at = PathBuf::from(".");
    let mut left: VecDeque<OsString> = names(path);
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        if name == "/" {
            at = PathBuf::from("/");
            continue;
        }
        let next = at.join(&name);
        let stat = match fs::lstat(&next) {
            // Nobody has placed anything yet.
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            other => other?,
        };
        check(&next, &stat, &fs::stat(&at)?)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            links += 1;
            if links > MAX_LINKS {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many symlinks"));
            }
            let target = fs::readlink(&next, Vec::new())?.into_bytes();
            for name in names(Path::new(&OsString::from_vec(target))).into_iter().rev() {
                left.push_front(name);
            }
        } else {
            at = next;
        }
    }
    Ok(())
}

/// Refuses what is of neither us nor the owner of the directory, if everybody may write to that.
fn check(path: &Path, stat: &Stat, dir: &Stat) -> io::Result<()> {
    let us = rustix::process::geteuid().as_raw();
    if dir.st_mode & WRITABLE_BY_ALL == 0 || stat.st_uid == us || stat.st_uid == dir.st_uid {
        return Ok(());
    }
    let text = format!(
        "{} belongs to another user (uid {}), in a directory that everybody may write to",
        path.display(),
        stat.st_uid
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Takes a path apart; the first name of an absolute one is `/`.
fn names(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.map(|part| part.as_os_str().to_owned()).collect()
}
