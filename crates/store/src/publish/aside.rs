//! Keeps a damaged file as evidence, under the names that dconf gives: `<file>~0`, `<file>~1` and so on.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::Disk;

/// How many damaged files may lie about before no more is kept.
const MOST_KEPT: u32 = 1000;

/// Copies a damaged file to the first free `<file>~<n>`, and returns that path.
///
/// # Errors
///
/// As [`Disk::copy`]; the damaged file is as it was, and part of a copy may be left.
pub fn copy_aside(disk: &dyn Disk, path: &Path) -> io::Result<PathBuf> {
    aside(path, |to| disk.copy(path, to))
}

/// Renames a file that is of no use to the first free `<file>~<n>`, and returns that path.
///
/// # Errors
///
/// As `rename(2)`; the file is where it was.
pub fn move_aside(disk: &dyn Disk, path: &Path) -> io::Result<PathBuf> {
    aside(path, |to| match disk.stat(to) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk.rename(path, to),
        Err(error) => Err(error),
    })
}

fn aside(path: &Path, keep: impl Fn(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
    for number in 0..MOST_KEPT {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("~{number}"));
        let to = PathBuf::from(name);
        match keep(&to) {
            Ok(()) => return Ok(to),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    #[test]
    fn earlier_evidence_is_kept() {
        let disk = SimDisk::new()
            .with_dir("/d")
            .with_file("/d/user", b"third")
            .with_file("/d/user~0", b"first")
            .with_file("/d/user~1", b"second");
        let path = Path::new("/d/user");
        assert_eq!(copy_aside(&disk, path).unwrap(), Path::new("/d/user~2"));
        assert_eq!(move_aside(&disk, path).unwrap(), Path::new("/d/user~3"));
        for (name, bytes) in [
            ("user~0", &b"first"[..]),
            ("user~1", b"second"),
            ("user~2", b"third"),
            ("user~3", b"third"),
        ] {
            assert_eq!(disk.read(&Path::new("/d").join(name)).unwrap(), bytes);
        }
        disk.read(path).unwrap_err();
    }
}
