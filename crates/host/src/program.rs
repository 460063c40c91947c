//! Looks up the program of a command's name in `PATH` as `execvp` does, without starting it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, accessat, fstat, open, openat};
use store::trust::{self, ProgramOwner};

/// The search path without a `PATH` variable.
pub const DEFAULT_SEARCH: &str = "/bin:/usr/bin";

/// The identity of a file or directory, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

/// A program that was looked up. It stays the same file, even if its path changes.
#[derive(Debug)]
pub struct FoundProgram {
    /// The path at which it was found; a relative one is below the directory of the lookup.
    pub path: PathBuf,
    /// The open file, which was executable.
    pub file: OwnedFd,
    /// The file's identity.
    id: FileId,
    /// The directory of the entry.
    directory: FileId,
    /// The entry's name: a program that is one file under several names depends on it.
    name: OsString,
}

impl FoundProgram {
    /// Returns whether both are the same entry of the same directory, also through symlinks.
    #[must_use]
    pub(crate) fn is_same_entry(&self, other: &FoundProgram) -> bool {
        self.directory == other.directory && self.name == other.name
    }

    /// Returns whether both are the same file, perhaps under two names.
    #[must_use]
    pub fn is_same_file(&self, other: &FoundProgram) -> bool {
        self.id == other.id
    }

    /// Returns whether the entry is in one of the directories of `search`.
    #[must_use]
    pub fn is_in(&self, search: &OsStr) -> bool {
        let mut parts =
            search.as_bytes().split(|&byte| byte == b':').filter(|part| !part.is_empty());
        parts.any(|part| {
            let path = Path::new(OsStr::from_bytes(part));
            open_directory(path).and_then(identify).is_ok_and(|id| id == self.directory)
        })
    }
}

/// Returns the program of `name` in `directory` with `search` as `PATH`; a relative path is below `directory`.
///
/// A name with a slash is a path. An empty part of `search` is the directory. A file that is not executable is
/// skipped, as by `execvp(3)`. This may block as long as the file systems of the path do.
///
/// # Errors
///
/// `ENOENT` if there is no such file, `EACCES` if all such files are not executable.
pub fn find(name: &OsStr, search: &OsStr, directory: &Path) -> io::Result<FoundProgram> {
    let bytes = name.as_bytes();
    if bytes.is_empty() {
        return Err(rustix::io::Errno::NOENT.into());
    }
    if bytes.contains(&b'/') {
        return open_program(directory, PathBuf::from(name));
    }
    let mut error = rustix::io::Errno::NOENT.into();
    for part in search.as_bytes().split(|&byte| byte == b':') {
        let path = match part {
            b"" => Path::new(".").join(name),
            part => Path::new(OsStr::from_bytes(part)).join(name),
        };
        match open_program(directory, path) {
            Ok(program) => return Ok(program),
            Err(found) if found.kind() == io::ErrorKind::PermissionDenied => error = found,
            Err(_) => {}
        }
    }
    Err(error)
}

/// Opens the entry of `path` in its directory, and then its target, so that the two belong together.
fn open_program(below: &Path, path: PathBuf) -> io::Result<FoundProgram> {
    let whole = below.join(&path);
    let (parent, name) = match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name)) if !ends_with_slash(&whole) => (parent, name.to_owned()),
        // The root, or a path that ends with `..` or a slash: a directory, or nothing.
        _ => {
            rustix::fs::stat(&whole)?;
            return Err(rustix::io::Errno::ACCESS.into());
        }
    };
    let parent = open_directory(parent)?;
    let file = openat(&parent, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let status = fstat(&file)?;
    if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
        return Err(rustix::io::Errno::ACCESS.into());
    }
    accessat(&parent, &name, Access::EXEC_OK, AtFlags::EACCESS)?;
    let id = FileId { device: status.st_dev, inode: status.st_ino };
    Ok(FoundProgram { path, id, directory: identify(parent)?, name, file })
}

fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

fn identify(directory: OwnedFd) -> io::Result<FileId> {
    let status = fstat(&directory)?;
    Ok(FileId { device: status.st_dev, inode: status.st_ino })
}

impl FoundProgram {
    /// Returns the path of the file itself if only root can replace it: then it may be executed by that path,
    /// which is visible in process lists and to a script.
    #[must_use]
    pub(crate) fn fixed_path(&self) -> Option<PathBuf> {
        if rustix::process::geteuid().is_root() {
            // The caller runs as this user, too.
            return None;
        }
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let path = std::fs::read_link(link).ok()?;
        // Its symlinks are resolved; the path may lead to another file now.
        let status = rustix::fs::lstat(&path).ok()?;
        let same = FileId { device: status.st_dev, inode: status.st_ino } == self.id;
        trust::check(&path, ProgramOwner::ROOT).ok().filter(|found| same && *found == path)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests are other programs")]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn file(path: &Path, mode: u32) {
        std::fs::write(path, "").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_first_executable_of_the_path_is_found() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["one", "two", "two/both"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        file(&dir.path().join("one/tool"), 0o644);
        file(&dir.path().join("two/tool"), 0o755);
        file(&dir.path().join("two/plain"), 0o644);
        let find = |name: &str, search: &str| {
            find(name.as_ref(), search.as_ref(), dir.path()).map(|program| program.path)
        };
        assert_eq!(find("tool", "one:two").unwrap(), Path::new("two/tool"));
        assert_eq!(find("two/tool", "").unwrap(), Path::new("two/tool"));
        assert_eq!(find("sh", "one:/bin").unwrap(), Path::new("/bin/sh"));
        assert_eq!(find("plain", "one:two").unwrap_err().raw_os_error(), Some(13));
        assert_eq!(find("both", "one:two").unwrap_err().raw_os_error(), Some(13));
        for directory in ["/", "/tmp", "/tmp/", "two/..", "./two"] {
            assert_eq!(find(directory, "").unwrap_err().raw_os_error(), Some(13), "{directory}");
        }
        for missing in ["nothing", "", "one/nothing", "two/tool/below", "two/tool/"] {
            assert!(find(missing, "one:two").is_err(), "{missing}");
        }
        assert_eq!(find("nothing", "one:two").unwrap_err().raw_os_error(), Some(2));
    }

    #[test]
    fn an_entry_is_the_same_by_any_way_and_no_other_of_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        file(&dir.path().join("real/tool"), 0o755);
        symlink("tool", dir.path().join("real/other")).unwrap();
        let find = |name: &str| find(name.as_ref(), "".as_ref(), dir.path()).unwrap();
        let (tool, by_link, other) = (find("real/tool"), find("link/tool"), find("real/other"));
        assert!(tool.is_same_entry(&by_link));
        assert!(!tool.is_same_entry(&other) && tool.is_same_file(&other));
        let real = dir.path().join("real");
        assert!(tool.is_in(real.as_ref()) && by_link.is_in(real.as_ref()));
        assert!(!tool.is_in(dir.path().as_ref()) && !tool.is_in("".as_ref()));
    }

    #[test]
    fn a_program_stays_the_file_that_was_found() {
        let dir = tempfile::tempdir().unwrap();
        file(&dir.path().join("one"), 0o755);
        file(&dir.path().join("two"), 0o755);
        let link = dir.path().join("link");
        symlink("one", &link).unwrap();
        let find = |name: &str| find(name.as_ref(), "".as_ref(), dir.path()).unwrap();
        let found = find("./link");
        std::fs::remove_file(&link).unwrap();
        symlink("two", &link).unwrap();
        assert!(found.is_same_file(&find("./one")) && !found.is_same_file(&find("./link")));
        assert_eq!(found.fixed_path(), None, "it may be replaced by whoever runs this test");
    }
}
