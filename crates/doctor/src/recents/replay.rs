//! The system calls by which programs of KDE and GTK add a document, repeated in a directory of our own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What one link and one lock hold, as KDE writes them.
const SMALL: [u8; 130] = [b'x'; 130];

fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Whether a program waits for the syncs of its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syncs {
    Waited,
    /// The relax library answers them at once.
    Relaxed,
}

impl Syncs {
    fn of(self, file: &File, sync: fn(&File) -> io::Result<()>) -> io::Result<()> {
        if self == Syncs::Waited { sync(file) } else { Ok(()) }
    }
}

/// Writes a lock as `QLockFile` does, and waits for the disk.
fn lock(path: &Path, syncs: Syncs) -> io::Result<()> {
    let mut file = make(path)?;
    file.write_all(&SMALL)?;
    syncs.of(&file, File::sync_data)
}

/// Writes a new version beside `path`, waits for the disk, and puts it into its place.
fn replace(
    path: &Path,
    bytes: &[u8],
    syncs: Syncs,
    sync: fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = make(&new)?;
    file.write_all(bytes)?;
    syncs.of(&file, sync)?;
    #[expect(clippy::disallowed_methods, reason = "what programs of others do is measured")]
    fs::rename(&new, path)
}

/// Adds as `KRecentDocument` of KDE Frameworks 5.103: two locks and two files, a sync each.
pub(super) fn kde(dir: &Path, list: &[u8], syncs: Syncs) -> io::Result<()> {
    for (name, bytes) in [("recently-used.xbel", list), ("link.desktop", &SMALL[..])] {
        let (path, held) = (dir.join(name), dir.join(format!("{name}.lock")));
        lock(&held, syncs)?;
        read(&path)?;
        replace(&path, bytes, syncs, File::sync_data)?;
        fs::remove_file(held)?;
    }
    Ok(())
}

/// Adds as `GtkRecentManager` of GTK 3.24: the file and its directory are synced. The directory may hold other names, so its sync is never relaxed.
pub(super) fn gtk(dir: &Path, list: &[u8], syncs: Syncs) -> io::Result<()> {
    let path = dir.join("recently-used.xbel");
    read(&path)?;
    replace(&path, list, syncs, File::sync_all)?;
    File::open(dir)?.sync_all()
}

fn read(path: &Path) -> io::Result<()> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(mut file) => file.read_to_end(&mut bytes).map(drop),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_can_be_repeated() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            for syncs in [Syncs::Waited, Syncs::Relaxed] {
                kde(dir.path(), b"list", syncs).unwrap();
                gtk(dir.path(), b"list", syncs).unwrap();
            }
        }
        assert_eq!(fs::read(dir.path().join("recently-used.xbel")).unwrap(), b"list");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
