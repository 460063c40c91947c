//! Listings on the file systems of this machine, in a worker process: every name as it is, with its attributes.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use crate::fixture;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use fixture::loop_disk::LoopDisk;
use fixture::{in_time, skip};
use listing::{
    AttributeSet, EntryFailure, EntryKind, Listing, ListingRequest, Update, WorkerProgram,
};

fn start(path: &Path, fields: AttributeSet) -> Listing {
    let program = WorkerProgram {
        path: env!("CARGO_BIN_EXE_unjank").into(),
        arguments: vec!["listing-worker".into()],
    };
    Listing::in_worker(&program, &ListingRequest::of(path).with_fields(fields)).unwrap()
}

/// Every byte that a name may have, in names of one, two and 255 bytes.
fn odd_names() -> Vec<Vec<u8>> {
    let bytes = || (1..=255u8).filter(|byte| *byte != b'/');
    let mut names: Vec<Vec<u8>> = bytes().filter(|byte| *byte != b'.').map(|b| vec![b]).collect();
    names.extend(bytes().map(|byte| vec![byte, b'x']));
    names.push(bytes().collect());
    names.push(vec![0xff; 255]);
    names.push(b"-rf".to_vec());
    names.push(b"...".to_vec());
    names
}

/// Fills a directory with odd names, types and times.
fn fill(dir: &Path) {
    for name in odd_names() {
        let path = dir.join(OsStr::from_bytes(&name));
        std::fs::OpenOptions::new().write(true).create_new(true).open(path).unwrap();
    }
    std::fs::create_dir(dir.join("a directory")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.join("a link")).unwrap();
    let old = std::fs::OpenOptions::new().append(true).create(true).open(dir.join("old")).unwrap();
    std::io::Write::write_all(&mut &old, &[7; 5000]).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH - std::time::Duration::new(86_400, 5);
    old.set_modified(long_ago).unwrap();
}

/// Compares a listing with what the standard library reads.
fn compare(place: &str, dir: &Path) {
    let mut listing =
        start(dir, AttributeSet::DEFAULT | AttributeSet::LINKS | AttributeSet::BLOCKS);
    assert_eq!(listing.finish().unwrap(), [], "{place}");
    let mut found = BTreeMap::new();
    for id in 0..listing.len() {
        let again = found.insert(listing.name(id).to_vec(), id);
        assert_eq!(again, None, "{place}: {:?}", listing.name(id).escape_ascii().to_string());
    }
    let entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(Result::unwrap).collect();
    assert_eq!(found.len(), entries.len(), "{place}");
    for entry in entries {
        let name = entry.file_name();
        let metadata = entry.metadata().unwrap();
        let known = listing.attributes(found[name.as_bytes()]).unwrap();
        assert_eq!(u32::from(known.mode), metadata.mode(), "{place} {name:?}");
        assert_eq!(
            (known.size, known.inode),
            (metadata.size(), metadata.ino()),
            "{place} {name:?}"
        );
        assert_eq!((known.user, known.group), (metadata.uid(), metadata.gid()), "{place}");
        assert_eq!((u64::from(known.links), known.blocks), (metadata.nlink(), metadata.blocks()));
        let modified = (known.modified.seconds, i64::from(known.modified.nanoseconds));
        assert_eq!(modified, (metadata.mtime(), metadata.mtime_nsec()), "{place} {name:?}");
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => EntryKind::Directory,
            kind if kind.is_symlink() => EntryKind::Link,
            _ => EntryKind::File,
        };
        assert_eq!(known.kind, kind, "{place} {name:?}");
    }
}

#[test]
fn every_name_comes_through_on_every_file_system() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path());
        compare("the temporary directory", dir.path());
        match tempfile::tempdir_in("/dev/shm") {
            Ok(memory) => {
                fill(memory.path());
                compare("tmpfs", memory.path());
            }
            Err(error) => skip(&format!("no tmpfs at /dev/shm: {error}")),
        }
        for kind in ["ext4", "btrfs", "xfs"] {
            if let Some(disk) = LoopDisk::make(kind) {
                let dir = disk.path().join("dir");
                std::fs::create_dir(&dir).unwrap();
                fill(&dir);
                compare(kind, &dir);
            }
        }
    });
}

/// An overlay of two directories; unmounted when it is dropped.
struct Overlay(tempfile::TempDir);

impl Overlay {
    fn make() -> Option<Overlay> {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for name in ["lower", "upper", "work", "merged"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        fill(&dir.path().join("lower"));
        let of = |name: &str| dir.path().join(name).display().to_string();
        let options =
            format!("lowerdir={},upperdir={},workdir={}", of("lower"), of("upper"), of("work"));
        let mounted = Command::new("mount")
            .args(["-t", "overlay", "-o", &options, "overlay", &of("merged")])
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Overlay(dir));
        }
        skip("an overlay cannot be mounted here");
        None
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path().join("merged")).status();
    }
}

#[test]
fn an_overlay_is_listed_as_one_directory() {
    in_time(|| {
        let Some(overlay) = Overlay::make() else { return };
        let merged = overlay.0.path().join("merged");
        std::fs::remove_file(merged.join("old")).unwrap();
        std::fs::create_dir(merged.join("old")).unwrap();
        std::fs::remove_dir(merged.join("a directory")).unwrap();
        compare("overlay", &merged);
    });
}

#[test]
fn proc_is_listed_although_it_changes_all_the_time() {
    in_time(|| {
        let mut listing = start(Path::new("/proc"), AttributeSet::DEFAULT);
        assert_eq!(listing.finish().unwrap(), []);
        let own = std::process::id().to_string();
        let mut names: Vec<_> = (0..listing.len()).map(|id| listing.name(id)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for wanted in [own.as_bytes(), b"self", b"mounts", b"sys"] {
            assert!(names.binary_search(&wanted).is_ok(), "{}", wanted.escape_ascii());
        }
        for id in 0..listing.len() {
            let failure = listing.entries().failure(id);
            assert!(
                listing.attributes(id).is_some() || failure == Some(EntryFailure::Vanished),
                "{:?}",
                failure
            );
        }
    });
}

#[test]
fn a_directory_that_may_not_be_searched_tells_each_name() {
    in_time(|| {
        if !rustix::process::geteuid().is_root() {
            return; // The rest of the test becomes somebody else.
        }
        let dir = tempfile::tempdir().unwrap();
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(dir.path(), mode(0o755)).unwrap();
        let closed = dir.path().join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::create_dir(closed.join("inside")).unwrap();
        std::fs::set_permissions(&closed, mode(0o744)).unwrap();
        // A copy that anybody can start, wherever this one is.
        let program = dir.path().join("unjank");
        fixture::copy_program(env!("CARGO_BIN_EXE_unjank"), &program);
        let nobody = WorkerProgram {
            path: "/usr/bin/setpriv".into(),
            arguments: ["--reuid=65534", "--regid=65534", "--clear-groups"]
                .map(Into::into)
                .into_iter()
                .chain([program.into(), "listing-worker".into()])
                .collect(),
        };
        let mut listing = Listing::in_worker(&nobody, &ListingRequest::of(&closed)).unwrap();
        assert_eq!(listing.finish().unwrap(), []);
        assert_eq!((listing.name(0), listing.kind(0)), (&b"inside"[..], EntryKind::Directory));
        assert_eq!(listing.entries().failure(0), Some(EntryFailure::Denied));
        std::fs::set_permissions(&closed, mode(0o700)).unwrap();
        let mut listing = Listing::in_worker(&nobody, &ListingRequest::of(&closed)).unwrap();
        let failures = listing.finish().unwrap();
        assert_eq!(failures[0].error().kind(), std::io::ErrorKind::PermissionDenied);
        assert_eq!(failures[0].path, closed);
    });
}

#[test]
fn access_lists_are_told_on_demand() {
    in_time(|| {
        if !fixture::has(&["setfacl"]) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["with", "without"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let lists = ["-m", "u:12345:r,d:u:12345:r"];
        let set = Command::new("setfacl").args(lists).arg(dir.path().join("with")).output();
        if !set.is_ok_and(|output| output.status.success()) {
            skip("the temporary directory keeps no access lists");
            return;
        }
        let mut listing = start(dir.path(), AttributeSet::NONE);
        listing.finish().unwrap();
        listing.ask_details(&[0, 1, 77]).unwrap();
        for _ in 0..2 {
            let Some(Update::Details(found)) = listing.next(None).unwrap() else { panic!() };
            let with = listing.name(found.id) == b"with";
            assert_eq!((found.has_access_list, found.has_default_list), (with, with));
            assert_eq!((found.is_hidden, &*found.mime_type), (None, "inode/directory"));
        }
    });
}
