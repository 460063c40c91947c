//! Publishing into files that are made beforehand on a real tmpfs.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]
#![expect(clippy::disallowed_methods, reason = "files that stand there before are made directly")]

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use tempfile::TempDir;
use unjank_store::disk;
use unjank_store::publish::{PreallocatedFile, publish, publish_into};

/// Returns a directory in memory, as every Linux has one.
#[expect(clippy::print_stdout, reason = "it says what is skipped")]
fn in_memory() -> Option<TempDir> {
    let dir = tempfile::tempdir_in("/dev/shm").ok();
    let dir = dir.filter(|dir| disk::real().hold(dir.path()).is_in_memory());
    if dir.is_none() {
        let why = "skipped: /dev/shm is no tmpfs here";
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "{why}");
        println!("{why}");
    }
    dir
}

fn made(path: &Path, len: u64) -> PreallocatedFile {
    PreallocatedFile::make(&*disk::real(), path, len).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn an_image_of_any_length_is_all_that_the_file_holds() {
    let Some(dir) = in_memory() else { return };
    let path = dir.path().join("user");
    publish(&*disk::real(), &path, b"first").unwrap();
    let mut readers: Vec<(File, Vec<u8>)> = Vec::new();
    for (round, len) in
        [0, 1, 4095, 4096, 300_000, 303_000, 310_000, 1_000_000, 7].into_iter().enumerate()
    {
        let file = made(&path, 300_000);
        assert_eq!(names(dir.path()), ["user"], "it has no name");
        let image = vec![u8::try_from(round).unwrap(); len];
        readers.push((File::open(&path).unwrap(), fs::read(&path).unwrap()));
        let stat = publish_into(&*disk::real(), &path, &image, Some(file)).unwrap();
        assert!(fs::read(&path).unwrap() == image, "{len} bytes");
        assert_eq!(stat, disk::real().stat(&path).unwrap());
        assert_eq!(names(dir.path()), ["user"]);
    }
    for (mut file, bytes) in readers {
        let mut now = Vec::new();
        file.read_to_end(&mut now).unwrap();
        assert!(now == bytes, "a published file was written into");
    }
}

#[test]
fn the_memory_is_reserved_before_the_image_is_written_and_freed_with_the_file() {
    let Some(dir) = in_memory() else { return };
    let path = dir.path().join("user");
    publish(&*disk::real(), &path, b"first").unwrap();
    let file = made(&path, 300_000);
    publish_into(&*disk::real(), &path, b"short", Some(file)).unwrap();
    let stat = fs::metadata(&path).unwrap();
    assert_eq!(stat.len(), 5);
    assert!(stat.blocks() * 512 >= 300_000, "{} blocks", stat.blocks());
    publish(&*disk::real(), &path, b"next").unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() * 512 <= 4096);
}

#[test]
fn mode_and_owner_are_those_of_the_file_that_is_replaced_not_of_when_it_was_made() {
    let Some(dir) = in_memory() else { return };
    let path = dir.path().join("user");
    publish(&*disk::real(), &path, b"first").unwrap();
    let file = made(&path, 100);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    // Only root may give a file away; for anybody else the owner stays and the test is of the rest.
    let owned = std::os::unix::fs::chown(&path, Some(1234), Some(1235)).is_ok();
    publish_into(&*disk::real(), &path, b"second", Some(file)).unwrap();
    let stat = fs::metadata(&path).unwrap();
    assert_eq!(stat.mode() & 0o7777, 0o640);
    assert_eq!((stat.uid(), stat.gid()) == (1234, 1235), owned);
}

#[test]
fn a_file_for_another_file_system_or_a_removed_directory_is_dropped() {
    let Some(memory) = in_memory() else { return };
    let disk_dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = made(&memory.path().join("user"), 100);
    let path = disk_dir.path().join("user");
    publish_into(&*disk::real(), &path, b"elsewhere", Some(file)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"elsewhere");
    assert_eq!(names(disk_dir.path()), ["user"]);

    let path = memory.path().join("below/user");
    publish(&*disk::real(), &path, b"first").unwrap();
    let file = made(&path, 100);
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    publish_into(&*disk::real(), &path, b"second", Some(file)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
}

#[test]
fn no_file_is_made_where_there_is_no_memory_or_no_room() {
    let Some(memory) = in_memory() else { return };
    let disk_dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if disk::real().hold(disk_dir.path()).is_in_memory() {
        println!("skipped: the target directory is in memory, too");
    } else {
        let made = PreallocatedFile::make(&*disk::real(), &disk_dir.path().join("user"), 100);
        assert_eq!(made.unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
    let much = PreallocatedFile::make(&*disk::real(), &memory.path().join("user"), 1 << 50);
    much.unwrap_err();
    assert_eq!(names(memory.path()), [""; 0]);
}
