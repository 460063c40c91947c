//! Which file a command's name means: `PATH` as `execvp` looks it up, without starting anything.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, statat};

/// Where programs are looked for without a `PATH`.
pub const DEFAULT_SEARCH: &str = "/bin:/usr/bin";

/// Returns the file that `name` means in `directory` with `search` as `PATH`; a relative one is below `directory`.
///
/// A name with a slash means itself. An empty part of `search` is the directory. A file that is not executable is
/// passed over, as `execvp(3)` does.
///
/// # Errors
///
/// `ENOENT` if there is no such file, `EACCES` if those that there are cannot be executed.
pub fn find(name: &OsStr, search: &OsStr, directory: &Path) -> io::Result<PathBuf> {
    let bytes = name.as_bytes();
    if bytes.is_empty() {
        return Err(rustix::io::Errno::NOENT.into());
    }
    if bytes.contains(&b'/') {
        return executable(&directory.join(name)).map(|()| PathBuf::from(name));
    }
    let mut error = rustix::io::Errno::NOENT.into();
    for part in search.as_bytes().split(|&byte| byte == b':') {
        let path = match part {
            b"" => Path::new(".").join(name),
            part => Path::new(OsStr::from_bytes(part)).join(name),
        };
        match executable(&directory.join(&path)) {
            Ok(()) => return Ok(path),
            Err(found) if found.kind() == io::ErrorKind::PermissionDenied => error = found,
            Err(_) => {}
        }
    }
    Err(error)
}

/// Says whether both paths name the same entry of the same directory, whatever links lead to it.
///
/// The entry itself is not followed: programs that are one file under many names do as their name says.
#[must_use]
pub fn same(one: &Path, other: &Path) -> bool {
    one == other || one.file_name() == other.file_name() && parent(one) == parent(other)
}

fn parent(path: &Path) -> Option<PathBuf> {
    path.parent()?.canonicalize().ok()
}

fn executable(path: &Path) -> io::Result<()> {
    let status = statat(CWD, path, AtFlags::empty())?;
    if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
        return Err(rustix::io::Errno::ACCESS.into());
    }
    Ok(accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?)
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
        let find = |name: &str, search: &str| find(name.as_ref(), search.as_ref(), dir.path());
        assert_eq!(find("tool", "one:two").unwrap(), Path::new("two/tool"));
        assert_eq!(find("two/tool", "").unwrap(), Path::new("two/tool"));
        assert_eq!(find("sh", "one:/bin").unwrap(), Path::new("/bin/sh"));
        assert_eq!(find("plain", "one:two").unwrap_err().raw_os_error(), Some(13));
        assert_eq!(find("both", "one:two").unwrap_err().raw_os_error(), Some(13));
        for missing in ["nothing", "", "one/nothing", "two/tool/below"] {
            assert!(find(missing, "one:two").is_err(), "{missing}");
        }
        assert_eq!(find("nothing", "one:two").unwrap_err().raw_os_error(), Some(2));
    }

    #[test]
    fn links_to_a_directory_do_not_hide_a_program() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        file(&dir.path().join("real/tool"), 0o755);
        symlink("tool", dir.path().join("real/other")).unwrap();
        let path = |name: &str| dir.path().join(name);
        assert!(same(&path("real/tool"), &path("link/tool")));
        assert!(!same(&path("real/tool"), &path("real/other")));
    }
}
