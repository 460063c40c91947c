//! Each name once, although a directory changes while it is read.
//!
//! A name that is removed and made again behind the place that was read comes a second time. File systems of this
//! machine do that only if the directory changed, which its times tell; of others (network, FUSE, overlays, `/proc`)
//! nothing is assumed. So names are remembered only where the directory changed, or could have.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use sys::dir::{OpenDirectory, StatxFlags, StatxTimestamp};

use super::entry::{EntryId, EntryKind};

/// File systems that change the times of a directory before a change can be read, and repeat no name without one.
const TRUSTED: [u64; 5] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0xf2f5_2010, // f2fs
];
/// A directory that changed this short a time ago may change again without another time: older kernels count in ticks.
const TICK: Duration = Duration::from_millis(50);

/// The times of a directory.
type Stamp = [(i64, u32); 2];

/// Tells names that came before.
#[derive(Debug)]
pub(super) struct Repeats {
    /// The times when nothing had changed yet; `None` if they say nothing.
    unchanged: Option<Stamp>,
    seen: Option<SeenNames>,
}

/// The names that came, by two independent hashes: for ten million names, the chance that any two are taken for one
/// is below 1 in 10^24.
#[derive(Debug, Default)]
struct SeenNames {
    first: RandomState,
    second: RandomState,
    ids: HashMap<(u64, u64), (EntryId, EntryKind)>,
}

/// What is known of a name that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// It is new.
    New,
    /// It is this entry, of the same type.
    Known,
    /// It is this entry, which had another type.
    OtherKind(EntryId),
}

impl Repeats {
    /// Looks at the directory before its first names are read.
    pub(super) fn of(directory: &OpenDirectory, now: SystemTime) -> Repeats {
        let trusted = directory.file_system().is_ok_and(|magic| TRUSTED.contains(&magic));
        let unchanged = stamp(directory).filter(|stamp| trusted && is_settled(stamp, now));
        let seen = unchanged.is_none().then(SeenNames::default);
        Repeats { unchanged, seen }
    }

    /// Checks whether names must be told apart from now on, after some were read. Says `true` the first time: then
    /// [`Repeats::add`] wants all names that came before those.
    pub(super) fn begin(&mut self, directory: &OpenDirectory) -> bool {
        if self.seen.is_some() || stamp(directory) == self.unchanged {
            return false;
        }
        self.seen = Some(SeenNames::default());
        true
    }

    /// Returns whether names are told apart.
    pub(super) fn is_watching(&self) -> bool {
        self.seen.is_some()
    }

    /// Remembers a name that would be the entry `id`, and returns whether it came before.
    pub(super) fn add(&mut self, name: &[u8], kind: EntryKind, id: EntryId) -> Name {
        let Some(seen) = &mut self.seen else { return Name::New };
        let key = (seen.first.hash_one(name), seen.second.hash_one(name));
        let mut came = Name::New;
        seen.ids
            .entry(key)
            .and_modify(|(id, known)| {
                came = if *known == kind { Name::Known } else { Name::OtherKind(*id) };
                *known = kind;
            })
            .or_insert((id, kind));
        came
    }
}

fn stamp(directory: &OpenDirectory) -> Option<Stamp> {
    let wanted = StatxFlags::MTIME | StatxFlags::CTIME;
    let status = directory.own_status(wanted).ok()?;
    let time = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
    (status.stx_mask & wanted.bits() == wanted.bits())
        .then(|| [time(status.stx_mtime), time(status.stx_ctime)])
}

/// Whether a change after `now` would be seen in the times.
fn is_settled(stamp: &Stamp, now: SystemTime) -> bool {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let before = |(seconds, nanoseconds): (i64, u32)| {
        let time = Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds);
        time.checked_add(TICK).is_some_and(|end| end < now)
    };
    stamp.iter().copied().all(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_new_once_and_its_type_may_change() {
        let mut repeats = Repeats { unchanged: None, seen: Some(SeenNames::default()) };
        assert_eq!(repeats.add(b"a", EntryKind::File, 0), Name::New);
        assert_eq!(repeats.add(b"b", EntryKind::File, 1), Name::New);
        assert_eq!(repeats.add(b"a", EntryKind::File, 2), Name::Known);
        assert_eq!(repeats.add(b"a", EntryKind::Directory, 2), Name::OtherKind(0));
        assert_eq!(repeats.add(b"a", EntryKind::Directory, 2), Name::Known);
    }

    #[test]
    fn names_are_remembered_where_the_directory_changes_or_just_did() {
        let dir = tempfile::tempdir().unwrap();
        let directory = OpenDirectory::open(dir.path()).unwrap();
        let made = std::fs::metadata(dir.path()).unwrap().modified().unwrap();
        assert!(Repeats::of(&directory, made).is_watching(), "it could change in the same tick");
        let later = made + Duration::from_secs(1);
        let mut repeats = Repeats::of(&directory, later);
        if repeats.is_watching() {
            return; // The temporary directory is on a file system of which nothing is assumed.
        }
        assert!(!repeats.begin(&directory));
        std::fs::create_dir(dir.path().join("new")).unwrap();
        assert!(repeats.begin(&directory));
        assert!(!repeats.begin(&directory), "once");
        let proc = OpenDirectory::open(std::path::Path::new("/proc")).unwrap();
        assert!(Repeats::of(&proc, later).is_watching());
    }
}
