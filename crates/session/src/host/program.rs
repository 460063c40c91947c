//! Which file a command's name means: `PATH` as `execvp` looks it up, without starting anything.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, accessat, fstat, open, openat};

/// Where programs are looked for without a `PATH`.
pub const DEFAULT_SEARCH: &str = "/bin:/usr/bin";

/// A file or directory of one file system, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

/// A program that was looked up. It stays the same file, whatever becomes of its path.
#[derive(Debug)]
pub struct Program {
    /// The path by which it was found; a relative one is below the directory that it was looked for in.
    pub path: PathBuf,
    /// The file, which was executable.
    pub file: OwnedFd,
    /// The file's identity.
    id: FileId,
    /// The directory that holds the entry.
    directory: FileId,
    /// The entry's name: programs that are one file under many names do as their name says.
    name: OsString,
}

impl Program {
    /// Says whether both are the same entry of the same directory, whatever links lead to it.
    #[must_use]
    pub fn is_same_entry(&self, other: &Program) -> bool {
        self.directory == other.directory && self.name == other.name
    }

    /// Says whether both are the same file, perhaps under two names.
    #[must_use]
    pub fn is_same_file(&self, other: &Program) -> bool {
        self.id == other.id
    }

    /// Says whether the entry is in one of the directories of `search`.
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

/// Returns the program that `name` means in `directory` with `search` as `PATH`; a relative path is below `directory`.
///
/// A name with a slash means itself. An empty part of `search` is the directory. A file that is not executable is
/// passed over, as `execvp(3)` does. This may take as long as the file systems on the way do.
///
/// # Errors
///
/// `ENOENT` if there is no such file, `EACCES` if those that there are cannot be executed.
pub fn find(name: &OsStr, search: &OsStr, directory: &Path) -> io::Result<Program> {
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

/// Opens the entry that `path` names in its directory, and then what it leads to: the two belong together.
fn open_program(below: &Path, path: PathBuf) -> io::Result<Program> {
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
    Ok(Program { path, id, directory: identify(parent)?, name, file })
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

impl Program {
    /// Returns the path of the file itself if nobody but root can put another there: then it may be executed by that path,
    /// which shows its name in lists of processes, and to a script.
    #[must_use]
    pub fn fixed_path(&self) -> Option<PathBuf> {
        if rustix::process::geteuid().is_root() {
            // Whoever asks is this user, too.
            return None;
        }
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let path = std::fs::read_link(link).ok()?;
        let belongs_to_root = |part: &Path| {
            let status = rustix::fs::lstat(part).ok()?;
            let kind = FileType::from_raw_mode(status.st_mode);
            let closed = status.st_uid == 0 && status.st_mode & 0o022 == 0;
            (closed && kind != FileType::Symlink).then_some(status)
        };
        let status = belongs_to_root(&path)?;
        let same = FileId { device: status.st_dev, inode: status.st_ino } == self.id;
        let all = path.ancestors().skip(1).all(|part| belongs_to_root(part).is_some());
        (same && all).then_some(path)
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
