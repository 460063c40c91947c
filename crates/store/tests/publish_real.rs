//! Publishing on a real file system.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]
#![expect(clippy::disallowed_methods, reason = "files that stand there before are made directly")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use unjank_store::disk;
use unjank_store::publish::{
    InPlace, PublishError, publish, publish_cache, publish_private, publish_volatile, remove_stale,
    wipe,
};

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_new_file_is_private_and_missing_directories_are_made_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/user");
    let stat = publish(&*disk::real(), &path, b"one").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one");
    assert_eq!(stat, disk::real().stat(&path).unwrap());
    assert_eq!(stat.mode & 0o7777, 0o600);
    assert_eq!(fs::metadata(dir.path().join("a")).unwrap().mode() & 0o777, 0o700);
    assert_eq!(names(path.parent().unwrap()), ["user"]);
}

#[test]
fn wiping_a_symlink_removes_the_link_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (target, path) = (dir.path().join("thesis.odt"), dir.path().join("record"));
    fs::write(&target, "years of work").unwrap();
    for to in [&target, &dir.path().join("missing"), &path] {
        symlink(to, &path).unwrap();
        wipe(&*disk::real(), &path).unwrap();
        assert_eq!(names(dir.path()), ["thesis.odt"]);
        assert_eq!(fs::read(&target).unwrap(), b"years of work");
    }
    // A FIFO holds nothing, and has no reader to wait for.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    wipe(&*disk::real(), &path).unwrap();
    // What has another name is overwritten there, too: these are the bytes that were to go.
    fs::write(&path, "a secret").unwrap();
    fs::hard_link(&path, dir.path().join("second")).unwrap();
    wipe(&*disk::real(), &path).unwrap();
    assert_eq!(fs::read(dir.path().join("second")).unwrap(), [0; 8]);
}

#[test]
fn mode_owner_and_attributes_of_the_old_file_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("user");
    fs::write(&path, b"old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    // Only root may give a file away; for anybody else the owner stays and the test is of the rest.
    let owned = std::os::unix::fs::chown(&path, Some(1234), Some(1235)).is_ok();
    let flags = rustix::fs::XattrFlags::empty();
    let tagged = rustix::fs::setxattr(&path, c"user.note", b"kept", flags).is_ok();
    let old = fs::metadata(&path).unwrap();
    publish(&*disk::real(), &path, b"new").unwrap();
    let new = fs::metadata(&path).unwrap();
    assert_ne!(old.ino(), new.ino());
    assert_eq!((old.mode(), old.uid(), old.gid()), (new.mode(), new.uid(), new.gid()));
    assert_eq!(owned, new.uid() == 1234);
    if tagged {
        let mut value = [0; 16];
        let len = rustix::fs::getxattr(&path, c"user.note", &mut value).unwrap();
        assert_eq!(&value[..len], b"kept");
    }
}

#[test]
fn a_chain_of_symlinks_stays_and_its_end_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("dotfiles/user");
    fs::create_dir(dir.path().join("config")).unwrap();
    symlink("../link", dir.path().join("config/user")).unwrap();
    symlink(&real, dir.path().join("link")).unwrap();
    let path = dir.path().join("config/user");
    publish(&*disk::real(), &path, b"made").unwrap();
    assert_eq!(fs::read(&real).unwrap(), b"made", "a dangling link creates its target");
    publish(&*disk::real(), &path, b"replaced").unwrap();
    assert_eq!(fs::read(&real).unwrap(), b"replaced");
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
    assert_eq!(names(&dir.path().join("config")), ["user"]);
    assert_eq!(names(&dir.path().join("dotfiles")), ["user"]);
}

#[test]
fn a_loop_of_symlinks_and_a_directory_are_refused_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    symlink("b", dir.path().join("a")).unwrap();
    symlink("a", dir.path().join("b")).unwrap();
    fs::create_dir(dir.path().join("c")).unwrap();
    for name in ["a", "c"] {
        let error = publish(&*disk::real(), &dir.path().join(name), b"x").unwrap_err();
        assert!(matches!(error, PublishError::NotReplaced { .. }), "{error:?}");
    }
    assert_eq!(names(dir.path()), ["a", "b", "c"]);
}

#[test]
fn a_private_file_is_its_owners_alone_and_replaces_only_what_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("list");
    let disk = disk::real();
    let none = InPlace::Still(None);
    let first = publish_private(&*disk, &path, b"1", none).unwrap();
    let refused = publish_private(&*disk, &path, b"2", none).unwrap_err();
    assert!(matches!(refused, PublishError::Overtaken { .. }), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), b"1");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    publish_private(&*disk, &path, b"3", InPlace::Still(Some(first))).unwrap_err();
    let now = disk.stat(&path).unwrap();
    publish_private(&*disk, &path, b"4", InPlace::Still(Some(now))).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"4");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(names(dir.path()), ["list"]);
}

#[test]
fn a_reader_never_sees_half_a_file_and_nothing_is_left_behind() {
    for publish in [publish_volatile, publish_cache] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("user");
        let disk = disk::real();
        publish(&*disk, &path, &[0; 100_000]).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 1..=100_u8 {
                    let image = vec![round; 100_000 + usize::from(round)];
                    publish(&*disk, &path, &image).unwrap();
                }
            });
            while !writer.is_finished() {
                let bytes = fs::read(&path).unwrap();
                assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                assert_eq!(bytes.len(), 100_000 + usize::from(bytes[0]));
            }
        });
        assert_eq!(names(dir.path()), ["user"]);
    }
}

#[test]
fn a_cache_is_its_owners_alone_and_an_open_one_stays_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    let disk = disk::real();
    publish_cache(&*disk, &path, b"one").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let open = fs::File::open(&path).unwrap();
    let stat = publish_cache(&*disk, &path, b"two").unwrap();
    assert_eq!(stat, disk.stat(&path).unwrap());
    assert_eq!(stat.mode & 0o7777, 0o600);
    assert_eq!(std::io::read_to_string(open).unwrap(), "one");
    assert_eq!(fs::read(&path).unwrap(), b"two");
}

#[test]
fn stale_files_of_dead_writers_go_and_all_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("user");
    let disk = disk::real();
    let keep = ["user", "user.backup", "user.txt", "user.BACKUP", "user~0", "other.5TNF9Z"];
    let stale = ["user.5TNF9Z", ".user.unjank-0123456789abcdef"];
    for name in keep.iter().chain(&stale) {
        fs::write(dir.path().join(name), b"x").unwrap();
    }
    let live = dir.path().join(".user.unjank-00000000000000ff");
    let writer = disk.create(&live, 0o600).unwrap();
    let start = disk.stat(&live).unwrap().mtime_ns + 1;
    assert_eq!(remove_stale(&*disk, &path, 0).unwrap(), Vec::<PathBuf>::new(), "too young");
    assert_eq!(remove_stale(&*disk, &path, start).unwrap().len(), 2);
    for name in stale {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
    for name in keep {
        assert!(dir.path().join(name).exists(), "{name}");
    }
    assert!(live.exists(), "its writer lives");
    drop(writer);
    assert_eq!(remove_stale(&*disk, &path, start).unwrap(), [live]);
    assert!(remove_stale(&*disk, &dir.path().join("none/user"), start).unwrap().is_empty());
}

#[test]
fn reading_refuses_what_is_no_regular_file_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, 0o600.into(), 0).unwrap();
    let disk = disk::real();
    assert_eq!(disk.read(&fifo).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(disk.read(dir.path()).unwrap_err().kind(), std::io::ErrorKind::IsADirectory);
}

#[test]
fn a_held_file_knows_whether_it_is_in_memory() {
    let disk = disk::real();
    let memory = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    assert!(disk.hold(memory.path()).is_in_memory());
    // Of what is on a file system that has no device either, and of what is not there, it is not known.
    assert!(!disk.hold(Path::new("/proc/version")).is_in_memory());
    assert!(!disk.hold(Path::new("/dev/shm/not there")).is_in_memory());
}
