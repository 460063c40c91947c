//! Damage to the journal: its length when it was last intact, and copies of damaged journals.

use std::io;
use std::path::{Path, PathBuf};

use store::disk::Disk;
use store::journal::shared::Extent;
use store::publish::{InPlace, PublishError, copy_aside, move_aside, publish_private, wipe};

/// How many damaged journals are kept, the last.
const MOST_KEPT: usize = 8;

/// What was wrong with the journal. What could be read of it is in the list; what was in the shared list comes back from
/// there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalDamage {
    /// The journal.
    pub journal: PathBuf,
    /// The unchanged copy; `None` as long as the journal was not replaced.
    pub kept: Option<PathBuf>,
}

/// Returns the file with the length of a journal.
fn extent_path(journal: &Path) -> PathBuf {
    beside(journal, ".extent")
}

fn beside(journal: &Path, ending: &str) -> PathBuf {
    let mut name = journal.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Returns whether the journal went further once, which no writer undoes.
pub(super) fn was_cut(disk: &dyn Disk, journal: &Path, now: Option<Extent>) -> bool {
    let before = disk.read(&extent_path(journal)).ok().and_then(|bytes| parse(&bytes));
    match (before, now) {
        (Some(before), Some(now)) => before.salt == now.salt && now.end < before.end,
        _ => false,
    }
}

/// Takes down how far the journal goes, unless that is known.
pub(super) fn write_extent(
    disk: &dyn Disk,
    journal: &Path,
    extent: Extent,
) -> Result<(), PublishError> {
    let (path, text) = (extent_path(journal), format!("{:016x} {}\n", extent.salt, extent.end));
    if disk.read(&path).is_ok_and(|known| known == text.as_bytes()) {
        return Ok(());
    }
    publish_private(disk, &path, text.as_bytes(), InPlace::Anything).map(|_| ())
}

fn parse(bytes: &[u8]) -> Option<Extent> {
    let (salt, end) = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?.split_once(' ')?;
    Some(Extent { salt: u64::from_str_radix(salt, 16).ok()?, end: end.parse().ok()? })
}

/// Whether the damaged journal stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aside {
    Copy,
    Move,
}

/// Keeps a damaged journal beside itself; of many only the last.
pub(super) fn keep(disk: &dyn Disk, journal: &Path, aside: Aside) -> io::Result<PathBuf> {
    let mut kept = kept(disk, journal);
    kept.sort_by_key(|path| disk.stat(path).map_or(0, |stat| stat.mtime_ns));
    for path in kept.iter().take((kept.len() + 1).saturating_sub(MOST_KEPT)) {
        wipe(disk, path)?;
    }
    match aside {
        Aside::Copy => copy_aside(disk, journal),
        Aside::Move => move_aside(disk, journal),
    }
}

/// Returns the damaged journals that are kept.
pub(super) fn kept(disk: &dyn Disk, journal: &Path) -> Vec<PathBuf> {
    let Some((dir, name)) = journal.parent().zip(journal.file_name()) else { return Vec::new() };
    let start = [name.as_encoded_bytes(), b"~"].concat();
    let names = disk.list(dir).unwrap_or_default();
    let kept = names.into_iter().filter(|name| name.as_encoded_bytes().starts_with(&start));
    kept.map(|name| dir.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::sim::SimDisk;

    #[test]
    fn a_journal_that_goes_less_far_than_before_was_cut() {
        let disk = SimDisk::new().with_dir("/d").with_file("/d/journal", b"x");
        let journal = Path::new("/d/journal");
        let extent = |salt, end| Some(Extent { salt, end });
        assert!(!was_cut(&disk, journal, extent(7, 0)));
        write_extent(&disk, journal, Extent { salt: 7, end: 100 }).unwrap();
        assert!(was_cut(&disk, journal, extent(7, 99)));
        for whole in [extent(7, 100), extent(7, 101), extent(8, 1), None] {
            assert!(!was_cut(&disk, journal, whole));
        }
        for damaged in ["", "7 100", "7", "g 1\n", "7 -1\n", "7 1 1\n"] {
            assert_eq!(parse(damaged.as_bytes()), None, "{damaged:?}");
        }
    }

    #[test]
    fn only_the_last_damaged_journals_are_kept() {
        let disk = SimDisk::new().with_dir("/d");
        let journal = Path::new("/d/journal");
        for number in 0..20_u8 {
            let mut file = disk.create(journal, 0o600).unwrap();
            file.write_at(0, &[number]).unwrap();
            let path = keep(&disk, journal, Aside::Move).unwrap();
            assert_eq!(disk.read(&path).unwrap(), [number]);
            assert!(kept(&disk, journal).len() <= MOST_KEPT);
        }
        assert_eq!(kept(&disk, journal).len(), MOST_KEPT);
    }
}
