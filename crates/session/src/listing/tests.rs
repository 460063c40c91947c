//! Listings of real directories.

use super::*;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

fn tree(count: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..count {
        let path = dir.path().join(format!("entry {number}"));
        std::fs::OpenOptions::new().write(true).create_new(true).open(path).unwrap();
    }
    dir
}

#[test]
fn names_and_attributes_are_those_of_the_directory() {
    for count in [0, 1, 63, 3000] {
        let dir = tree(count);
        let mut listing = Listing::in_process(&Request::of(dir.path())).unwrap();
        assert_eq!(listing.finish().unwrap(), []);
        let mut found = BTreeMap::new();
        for id in 0..listing.len() {
            found.insert(listing.name(id).to_vec(), listing.attributes(id).unwrap());
        }
        assert_eq!(found.len(), count);
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            let known = found[entry.file_name().as_encoded_bytes()];
            let metadata = entry.metadata().unwrap();
            assert_eq!(known.kind, Kind::File);
            assert_eq!((known.size, known.inode), (metadata.size(), metadata.ino()));
            assert_eq!(u32::from(known.mode), metadata.mode());
            assert_eq!(known.modified.seconds, metadata.mtime());
            assert_eq!(i64::from(known.modified.nanoseconds), metadata.mtime_nsec());
        }
    }
}

#[test]
fn a_missing_directory_is_told_with_its_path() {
    let mut listing = Listing::in_process(&Request::of(Path::new("/no/such"))).unwrap();
    let failures = listing.finish().unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].step, &*failures[0].path), (Step::Open, Path::new("/no/such")));
    assert_eq!(failures[0].error().kind(), std::io::ErrorKind::NotFound);
}
