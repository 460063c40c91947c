//! Puts a symlink in the place of a file or directory, and back: at every moment one of the two is there.

use std::io;
use std::path::Path;

use super::resolve::directory_of;
use crate::disk::Disk;

/// Puts a symlink to `target` in the place of what is at `path`, which gets the name `aside`.
///
/// Both happen in one step: a program that uses the name finds the old one or the link. What is at `aside` afterwards is
/// what was in place at that very moment, also if another program has replaced it since its caller looked. Nothing is
/// synced; a power cut leaves all of it or nothing.
///
/// # Errors
///
/// As `symlink(2)` and `renameat2(2)`; what was in place still is. [`io::ErrorKind::AlreadyExists`] if there is something
/// at `aside`.
pub fn put_link(disk: &dyn Disk, target: &Path, path: &Path, aside: &Path) -> io::Result<()> {
    disk.symlink(target, aside)?;
    disk.exchange(aside, path).inspect_err(|_| {
        // A link that stays is found and removed the next time.
        if disk.read_link(aside).is_ok_and(|link| link == target) {
            let _ = disk.remove(aside);
        }
    })
}

/// Gives what is at `aside` the name `path`, durably, and what is there the name `aside`.
///
/// # Errors
///
/// As `renameat2(2)` and `fsync(2)`; they may have exchanged their names or not, and a power cut may take that back.
pub fn exchange(disk: &dyn Disk, path: &Path, aside: &Path) -> io::Result<()> {
    disk.exchange(aside, path)?;
    disk.sync_dir(directory_of(path))
}

/// Gives a file or a directory another name in its directory, without a sync: a file that has the name is replaced.
///
/// # Errors
///
/// As `rename(2)`; it may have either name.
pub fn give_name(disk: &dyn Disk, path: &Path, name: &Path) -> io::Result<()> {
    disk.rename(path, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{SimDisk, explore};

    #[test]
    fn the_name_always_stands_for_the_file_or_for_the_link() {
        let [list, aside] = ["/d/list", "/d/list.aside"].map(Path::new);
        let seeded = || SimDisk::new().with_file(list, b"old").with_file("/run/list", b"old");
        let intact = |disk: &SimDisk, _: &io::Result<()>| match disk.read(list) {
            Ok(bytes) if bytes == b"old" => Ok(()),
            other => Err(format!("{other:?}")),
        };
        let there = |disk: &SimDisk| put_link(disk, Path::new("/run/list"), list, aside);
        explore(seeded, there, intact, intact).unwrap();
        let and_back = |disk: &SimDisk| {
            there(disk)?;
            exchange(disk, list, aside)?;
            disk.remove(aside)
        };
        explore(seeded, and_back, intact, intact).unwrap();
    }
}
