//! Every crash state and every failing call of publish and of group commit, and planted faults that are caught.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::io;
use std::path::{Path, PathBuf};

use unjank_store::commit::Commit;
use unjank_store::disk::Disk;
use unjank_store::publish::{
    InPlace, PublishError, publish, publish_cache, publish_private, publish_volatile, remove_stale,
};
use unjank_store::sim::{Explored, SimDisk, explore, interleave};

const OLD: &[u8] = b"the old settings";
const NEW: &[u8] = b"the new settings, which are longer";

fn path() -> &'static Path {
    Path::new("/home/.config/dconf/user")
}

/// What a publish of `NEW` came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Acknowledged,
    NotReplaced,
    NotDurable,
    Unknown,
}

fn outcome(result: Result<impl Sized, PublishError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Acknowledged,
        Err(PublishError::NotReplaced { .. }) => Outcome::NotReplaced,
        Err(PublishError::NotDurable { .. }) => Outcome::NotDurable,
        Err(_) => Outcome::Unknown,
    }
}

fn read(disk: &SimDisk, path: &Path) -> Option<Vec<u8>> {
    disk.read(path).ok()
}

/// Checks what readers see after a publish of `NEW` over `old`.
fn readers_see(disk: &SimDisk, outcome: &Outcome, old: &Option<Vec<u8>>) -> Result<(), String> {
    let seen = read(disk, path());
    let (is_old, is_new) = (seen == *old, seen.as_deref() == Some(NEW));
    let right = match outcome {
        Outcome::Acknowledged | Outcome::NotDurable => is_new,
        Outcome::NotReplaced => is_old,
        Outcome::Unknown => is_new || is_old,
    };
    if right { Ok(()) } else { Err(format!("{outcome:?}, but readers see {seen:?}")) }
}

/// Checks a publish of `NEW` over `old`.
fn explore_publish(
    seeded: impl Fn() -> SimDisk,
    old: Option<&'static [u8]>,
    publish: impl Fn(&SimDisk, &Path) -> Outcome,
) -> Result<Explored, String> {
    let old = old.map(<[u8]>::to_vec);
    let is_old = |seen: &Option<Vec<u8>>| *seen == old;
    let is_new = |seen: &Option<Vec<u8>>| seen.as_deref() == Some(NEW);
    explore(
        seeded,
        |disk| publish(disk, path()),
        |disk, outcome| readers_see(disk, outcome, &old),
        |disk, outcome| {
            let found = read(disk, path());
            let right = match outcome {
                Outcome::Acknowledged => is_new(&found),
                Outcome::NotReplaced => is_old(&found),
                Outcome::NotDurable | Outcome::Unknown => is_new(&found) || is_old(&found),
            };
            if right { Ok(()) } else { Err(format!("{outcome:?}, but a restart finds {found:?}")) }
        },
    )
}

fn seeded() -> SimDisk {
    SimDisk::new().with_file(path(), OLD)
}

fn real(disk: &SimDisk, path: &Path) -> Outcome {
    outcome(publish(disk, path, NEW))
}

#[test]
fn every_crash_and_every_failure_leaves_old_or_new_and_the_error_says_which() {
    let explored = explore_publish(seeded, Some(OLD), real).unwrap();
    println!("{explored:?}");
    assert!(explored.runs > 50 && explored.images > 250, "{explored:?}");
}

/// Checks what readers see of a cache that is published over `OLD`; a power cut may leave anything.
fn explore_cache(publish: impl Fn(&SimDisk, &Path) -> Outcome) -> Result<Explored, String> {
    explore(
        seeded,
        |disk| publish(disk, path()),
        |disk, outcome| readers_see(disk, outcome, &Some(OLD.to_vec())),
        |_, _| Ok(()),
    )
}

#[test]
fn readers_of_a_cache_see_old_or_new_and_the_error_says_which() {
    explore_cache(|disk, path| outcome(publish_cache(disk, path, NEW))).unwrap();
}

#[test]
fn the_explorer_catches_a_rename_after_an_exchange() {
    let steps = &["write", "exchange", "rename"];
    let fault = explore_cache(faulty(steps));
    assert!(fault.unwrap_err().contains("Acknowledged, but readers see"));
}

#[test]
fn a_first_publish_into_missing_directories_is_nothing_or_whole() {
    let explored = explore_publish(|| SimDisk::new().with_dir("/home"), None, real).unwrap();
    println!("{explored:?}");
}

#[test]
fn a_publish_through_symlinks_is_old_or_new_behind_them() {
    let linked = || {
        SimDisk::new()
            .with_file("/home/dotfiles/user", OLD)
            .with_link("/home/link", "dotfiles/user")
            .with_link(path(), "../../link")
    };
    explore_publish(linked, Some(OLD), real).unwrap();
    let dangling = || SimDisk::new().with_dir("/home/d").with_link(path(), "/home/d/e/user");
    explore_publish(dangling, None, real).unwrap();
}

#[test]
fn a_publish_that_is_tried_again_is_as_durable_as_the_first() {
    let twice = |disk: &SimDisk, path: &Path| match real(disk, path) {
        Outcome::Acknowledged => Outcome::Acknowledged,
        first => match (first, real(disk, path)) {
            // What the first put in place stays, whatever became of the second.
            (Outcome::NotDurable, Outcome::NotReplaced) => Outcome::NotDurable,
            (Outcome::Unknown, Outcome::NotReplaced) => Outcome::Unknown,
            (_, second) => second,
        },
    };
    explore_publish(|| SimDisk::new().with_dir("/home"), None, twice).unwrap();
    explore_publish(seeded, Some(OLD), twice).unwrap();
}

/// A publish with one step left out or moved, to show that the explorer sees it.
fn faulty(steps: &'static [&'static str]) -> impl Fn(&SimDisk, &Path) -> Outcome {
    move |disk, path| {
        let temp = path.with_file_name("temp");
        let Ok(mut file) = disk.create(&temp, 0o600) else { return Outcome::NotReplaced };
        let mut replaced = false;
        for step in steps {
            let done = match *step {
                "write" => file.write_at(0, NEW),
                "sync" => file.sync(),
                "exchange" => disk.exchange(&temp, path),
                "rename" => disk.rename(&temp, path).inspect(|()| replaced = true),
                "sync_dir" => disk.sync_dir(path.parent().unwrap()),
                "acknowledge" => return Outcome::Acknowledged,
                other => panic!("no step {other}"),
            };
            if done.is_err() {
                // As loose as can be, so that only the fault is what the explorer complains of.
                return if replaced { Outcome::NotDurable } else { Outcome::Unknown };
            }
        }
        Outcome::Acknowledged
    }
}

#[test]
fn the_explorer_accepts_the_right_order_of_bare_steps() {
    explore_publish(seeded, Some(OLD), faulty(&["write", "sync", "rename", "sync_dir"])).unwrap();
}

#[test]
fn the_explorer_catches_a_missing_sync() {
    let fault = explore_publish(seeded, Some(OLD), faulty(&["write", "rename", "sync_dir"]));
    assert!(fault.unwrap_err().contains("a restart finds"));
}

#[test]
fn the_explorer_catches_a_missing_directory_sync() {
    let fault = explore_publish(seeded, Some(OLD), faulty(&["write", "sync", "rename"]));
    assert!(fault.unwrap_err().contains("Acknowledged, but a restart finds"));
}

#[test]
fn the_explorer_catches_a_rename_before_the_sync() {
    let fault =
        explore_publish(seeded, Some(OLD), faulty(&["write", "rename", "sync", "sync_dir"]));
    assert!(fault.unwrap_err().contains("a restart finds"));
}

#[test]
fn the_explorer_catches_a_write_after_the_rename() {
    let fault =
        explore_publish(seeded, Some(OLD), faulty(&["rename", "write", "sync", "sync_dir"]));
    assert!(fault.unwrap_err().contains("a restart finds"));
}

#[test]
fn the_explorer_catches_an_answer_before_the_sync() {
    let steps = &["write", "sync", "rename", "acknowledge"];
    let fault = explore_publish(seeded, Some(OLD), faulty(steps));
    assert!(fault.unwrap_err().contains("Acknowledged, but a restart finds"));
}

#[test]
fn the_explorer_catches_a_sync_that_is_tried_again_on_the_same_file() {
    let fault = explore_publish(seeded, Some(OLD), |disk, path| {
        let temp = path.with_file_name("temp");
        let Ok(mut file) = disk.create(&temp, 0o600) else { return Outcome::NotReplaced };
        let written = file.write_at(0, NEW).and_then(|()| file.sync().or_else(|_| file.sync()));
        if written.is_err() || disk.rename(&temp, path).is_err() {
            return Outcome::Unknown;
        }
        match disk.sync_dir(path.parent().unwrap()) {
            Ok(()) => Outcome::Acknowledged,
            Err(_) => Outcome::NotDurable,
        }
    });
    assert!(fault.unwrap_err().contains("Acknowledged, but a restart finds"));
}

#[test]
fn the_explorer_catches_an_error_that_names_the_wrong_state() {
    let fault = explore_publish(seeded, Some(OLD), |disk, path| match real(disk, path) {
        Outcome::NotDurable => Outcome::NotReplaced,
        other => other,
    });
    assert!(fault.unwrap_err().contains("NotReplaced, but readers see"));
}

/// Five changes in two batches; each image says how many changes it holds.
fn two_batches(disk: &SimDisk, early: bool) -> (u8, u8) {
    let mut commit = Commit::new();
    let (mut memory, mut acknowledged) = (0, 0);
    for arrivals in [2, 3] {
        for _ in 0..arrivals {
            memory += 1;
            commit.submit(memory);
        }
        if early {
            acknowledged = memory;
        }
        assert!(commit.start());
        let published = publish(disk, path(), &[memory; 40]);
        let waiters = commit.finish();
        match published {
            Ok(_) => acknowledged = waiters.into_iter().max().unwrap(),
            Err(_) => break,
        }
    }
    (acknowledged, memory)
}

fn explore_commit(early: bool) -> Result<Explored, String> {
    let check = |disk: &SimDisk, (acknowledged, submitted): &(u8, u8)| {
        let image = read(disk, path()).unwrap_or_default();
        let held = image.first().copied().unwrap_or(0);
        let whole = image.is_empty() || image == [held; 40];
        match whole && (*acknowledged..=*submitted).contains(&held) && [0, 2, 5].contains(&held) {
            true => Ok(()),
            false => Err(format!("{acknowledged} acknowledged, found {image:?}")),
        }
    };
    explore(|| SimDisk::new().with_dir("/home"), |disk| two_batches(disk, early), check, check)
}

#[test]
fn whoever_was_answered_is_in_the_image_after_any_crash_between_two_batches() {
    println!("{:?}", explore_commit(false).unwrap());
}

#[test]
fn the_explorer_catches_a_batch_that_is_answered_before_its_publish() {
    assert!(explore_commit(true).unwrap_err().contains("acknowledged, found"));
}

#[test]
fn what_a_dead_writer_left_is_removed_after_any_crash_and_nothing_else() {
    explore(
        seeded,
        |disk| real(disk, path()),
        |_, _| Ok(()),
        |disk, _| {
            let late = i128::MAX;
            remove_stale(disk, path(), late).map_err(|error| error.to_string())?;
            let dir = disk.list(path().parent().unwrap()).unwrap();
            let left: Vec<PathBuf> = dir.into_iter().map(PathBuf::from).collect();
            if left == [PathBuf::from("user")] { Ok(()) } else { Err(format!("left {left:?}")) }
        },
    )
    .unwrap();
}

/// A disk on which no two files can exchange their names, and what it says to it.
#[derive(Debug)]
struct NoExchange(SimDisk, io::ErrorKind);

impl Disk for NoExchange {
    unjank_store::pass_on!(this, path => this.0;
        read stat read_link list create_dir create open open_log rename remove remove_abandoned sync_dir token);

    fn exchange(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(self.1.into())
    }
}

/// Adds a line to the file as it is, and begins again where another program has replaced it meanwhile.
fn add_ours(disk: &dyn Disk) {
    for _ in 0..8 {
        let expected = InPlace::Still(disk.stat(path()).ok());
        let mut text = disk.read(path()).unwrap_or_default();
        text.extend_from_slice(b"ours\n");
        match publish_private(disk, path(), &text, expected) {
            Err(PublishError::Overtaken { .. }) => {}
            other => {
                other.unwrap();
                return;
            }
        }
    }
    panic!("it was replaced eight times by one who replaces it once");
}

/// Adds a line as a program does that knows no lock.
fn add_theirs(disk: &SimDisk) {
    let mut text = disk.read(path()).unwrap_or_default();
    text.extend_from_slice(b"theirs\n");
    publish_volatile(disk, path(), &text).unwrap();
}

/// Checks that what another program has added is there.
fn check_theirs(disk: &SimDisk) -> Result<(), String> {
    let text = String::from_utf8(disk.read(path()).unwrap()).unwrap();
    let left = disk.list(path().parent().unwrap()).unwrap();
    match text.contains("theirs\n") && left.len() == 1 {
        true => Ok(()),
        false => Err(format!("{text:?} in {left:?}")),
    }
}

#[test]
fn who_replaces_a_file_at_any_point_of_ours_loses_nothing() {
    for seeded in [|| SimDisk::new().with_file(path(), OLD), || SimDisk::new().with_dir("/home")] {
        let ours = |disk: &SimDisk, (): &()| add_ours(disk);
        let theirs = |disk: &SimDisk, (): &()| add_theirs(disk);
        let check = |disk: &SimDisk, (): &(), (): &(), (): &()| check_theirs(disk);
        let orders = interleave(|| (seeded(), ()), ours, theirs, check);
        let orders = orders.unwrap_or_else(|complaint| panic!("{complaint}"));
        assert!(orders > 300, "{orders}");
    }
}

#[test]
fn one_who_is_replaced_between_the_look_and_the_rename_is_noticed_by_the_explorer() {
    for seeded in [|| SimDisk::new().with_file(path(), OLD), || SimDisk::new().with_dir("/home")] {
        let ours = |disk: &SimDisk, (): &()| {
            add_ours(&NoExchange(disk.clone(), io::ErrorKind::Unsupported))
        };
        let theirs = |disk: &SimDisk, (): &()| add_theirs(disk);
        let check = |disk: &SimDisk, (): &(), (): &(), (): &()| check_theirs(disk);
        let complaint = interleave(|| (seeded(), ()), ours, theirs, check).unwrap_err();
        assert!(complaint.contains("ours"), "{complaint}");
    }
}

#[test]
fn where_files_cannot_exchange_their_names_one_is_renamed_over_the_other() {
    use io::ErrorKind::{CrossesDevices, InvalidInput, PermissionDenied, Unsupported};
    for kind in [CrossesDevices, InvalidInput, PermissionDenied, Unsupported] {
        let disk = NoExchange(SimDisk::new().with_file(path(), OLD), kind);
        add_ours(&disk);
        assert_eq!(disk.read(path()).unwrap(), [OLD, b"ours\n"].concat(), "{kind}");
        assert_eq!(disk.list(path().parent().unwrap()).unwrap().len(), 1, "{kind}");
        publish_cache(&disk, path(), NEW).unwrap();
        assert_eq!(disk.read(path()).unwrap(), NEW, "{kind}");
    }
}
