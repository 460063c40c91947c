use std::cell::Cell;
use std::ffi::OsString;
use std::path::Path;

use store::disk::Disk;
use store::sim::{SimDisk, explore};

use super::store::{MovableStore, Occupant, StoreShape};

const LIST: &str = "/data/recently-used.xbel";
const IN_MEMORY: &str = "/run/unjank/recents/recently-used.xbel";
const LINKS: &str = "/data/RecentDocuments";
const LINKS_IN_MEMORY: &str = "/run/unjank/recents/RecentDocuments";

fn list(disk: &SimDisk) -> MovableStore<'_> {
    MovableStore { disk, shape: StoreShape::File, name: LIST.into(), memory: IN_MEMORY.into() }
}

fn links(disk: &SimDisk) -> MovableStore<'_> {
    let (name, memory) = (LINKS.into(), LINKS_IN_MEMORY.into());
    MovableStore { disk, shape: StoreShape::Folder, name, memory }
}

/// A machine with a list and a link, and what is in memory gone.
fn seeded() -> SimDisk {
    let disk =
        SimDisk::new().with_file(LIST, b"list").with_file(format!("{LINKS}/a.desktop"), b"a");
    disk.with_file(format!("{LINKS}/theirs.txt"), b"theirs").with_memory("/run")
}

/// The same, and everything is in memory with a copy on the disk.
fn moved() -> SimDisk {
    // A disk whose history is empty: the faults are to hit what is tested.
    let disk = crash_of_moved();
    to_memory(&disk).unwrap();
    disk.with_empty_history()
}

/// The same after a power cut.
fn crash_of_moved() -> SimDisk {
    let disk = seeded();
    to_memory(&disk).unwrap();
    disk.sync_dir(Path::new("/data")).unwrap();
    durable(&disk)
}

fn to_memory(disk: &SimDisk) -> std::io::Result<()> {
    list(disk).move_to_memory()?;
    links(disk).move_to_memory()
}

fn to_disk(disk: &SimDisk) -> std::io::Result<()> {
    list(disk).move_to_disk()?;
    links(disk).move_to_disk()
}

/// Returns the disk with all that was done, as if it had always been there.
fn durable(disk: &SimDisk) -> SimDisk {
    let mut images = disk.after_power_cut().unwrap();
    assert_eq!(images.len(), 1, "everything is synced");
    images.remove(0)
}

/// Whether a program that reads both finds what was there.
fn holds(disk: &SimDisk, content: &[u8]) -> Result<(), String> {
    for (path, expected) in [(LIST.to_owned(), content), (format!("{LINKS}/a.desktop"), b"a")] {
        match disk.read(Path::new(&path)) {
            Ok(bytes) if bytes == expected => {}
            other => return Err(format!("{path}: {other:?}")),
        }
    }
    Ok(())
}

/// Whether what is there after a crash is whole when somebody has looked, wherever the lists are to be.
fn recovers(disk: &SimDisk, content: &[u8]) -> Result<(), String> {
    for end in [to_memory, to_disk] {
        let disk = disk.fork();
        end(&disk).map_err(|error| format!("cannot go on: {error}"))?;
        holds(&disk, content)?;
        // And once more, which changes nothing.
        end(&disk).map_err(|error| format!("cannot go on again: {error}"))?;
        holds(&disk, content)?;
    }
    let disk = disk.fork();
    to_memory(&disk).and_then(|()| to_disk(&disk)).map_err(|error| error.to_string())?;
    holds(&disk, content)?;
    let left = disk.list(Path::new("/data")).map_err(|error| error.to_string())?;
    // What an interrupted publisher has left is removed when it is old.
    let is_temporary = |name: &OsString| name.to_string_lossy().starts_with('.');
    if left.iter().filter(|name| !is_temporary(name)).count() != 2 {
        return Err(format!("left beside the lists: {left:?}"));
    }
    match list(&disk).occupant(Path::new(LIST)) {
        Ok(Occupant::Store) => Ok(()),
        other => Err(format!("the list is not on the disk: {other:?}")),
    }
}

fn recovers_after_power_cut(disk: &SimDisk, content: &[u8]) -> Result<(), String> {
    recovers(disk, content)
}

#[test]
fn wherever_a_move_to_memory_is_interrupted_nothing_is_lost() {
    let explored = explore(
        seeded,
        to_memory,
        |disk, _| holds(disk, b"list").and_then(|()| recovers(disk, b"list")),
        |disk, _| recovers_after_power_cut(disk, b"list"),
    );
    let explored = explored.unwrap();
    assert!(explored.runs > 100, "{explored:?}");
}

#[test]
fn wherever_a_move_back_is_interrupted_nothing_is_lost() {
    let explored = explore(
        moved,
        to_disk,
        |disk, _| holds(disk, b"list").and_then(|()| recovers(disk, b"list")),
        |disk, _| recovers_after_power_cut(disk, b"list"),
    );
    let explored = explored.unwrap();
    assert!(explored.runs > 100, "{explored:?}");
}

#[test]
fn wherever_a_restoration_is_interrupted_nothing_is_lost() {
    explore(
        crash_of_moved,
        to_memory,
        |disk, _| recovers(disk, b"list"),
        |disk, _| recovers_after_power_cut(disk, b"list"),
    )
    .unwrap();
}

#[test]
fn wherever_a_copy_is_interrupted_the_list_or_the_copy_before_is_found() {
    let changed = || {
        let disk = moved();
        store::publish::publish(&disk, Path::new(IN_MEMORY), b"new").unwrap();
        disk.with_empty_history()
    };
    let copy = |disk: &SimDisk| list(disk).save();
    let either = |disk: &SimDisk, done: &std::io::Result<()>| {
        recovers_after_power_cut(disk, b"new").or_else(|complaint| match done {
            Ok(()) => Err(complaint),
            Err(_) => recovers_after_power_cut(disk, b"list"),
        })
    };
    explore(changed, copy, |disk, _| recovers(disk, b"new"), either).unwrap();
}

#[test]
fn what_a_program_puts_in_the_place_of_the_link_goes_to_memory() {
    // A GTK program has written its list.
    let replaced = || {
        let disk = moved();
        let new = Path::new("/data/recently-used.xbel.A1B2C3");
        disk.create(new, 0o600).unwrap().write_at(0, b"gtk's").unwrap();
        disk.open(new).unwrap().sync().unwrap();
        disk.rename(new, Path::new(LIST)).unwrap();
        disk.sync_dir(Path::new("/data")).unwrap();
        disk.with_empty_history()
    };
    explore(
        replaced,
        to_memory,
        |disk, _| holds(disk, b"gtk's").and_then(|()| recovers(disk, b"gtk's")),
        |disk, _| recovers_after_power_cut(disk, b"gtk's"),
    )
    .unwrap();
    let disk = replaced();
    to_memory(&disk).unwrap();
    assert_eq!(disk.read(Path::new(IN_MEMORY)).unwrap(), b"gtk's");
    assert_eq!(disk.read(&list(&disk).copy()).unwrap(), b"gtk's");
}

/// The fault of removing the symlink before the exchange is durable.
#[test]
fn the_explorer_catches_a_missing_sync_of_the_exchange() {
    let faulty = |disk: &SimDisk| {
        let list = list(disk);
        list.save()?;
        disk.exchange(&list.name, &list.copy())?;
        disk.remove(&list.copy())
    };
    let caught =
        explore(moved, faulty, |_, _| Ok(()), |disk, _| recovers_after_power_cut(disk, b"list"));
    caught.unwrap_err();
}

#[test]
fn somebody_elses_link_is_left_alone() {
    for target in ["/elsewhere/list", "/elsewhere/gone"] {
        let disk = SimDisk::new().with_file("/elsewhere/list", b"mine").with_memory("/run");
        let disk = disk.with_link(LIST, target).with_link(LINKS, "/elsewhere");
        to_memory(&disk).unwrap();
        to_disk(&disk).unwrap();
        assert_eq!(disk.read_link(Path::new(LIST)).unwrap(), Path::new(target));
        assert_eq!(disk.read_link(Path::new(LINKS)).unwrap(), Path::new("/elsewhere"));
        assert_eq!(disk.read(Path::new("/elsewhere/list")).unwrap(), b"mine");
    }
}

#[test]
fn a_list_of_an_earlier_runtime_directory_is_restored_in_the_new_one() {
    let disk = crash_of_moved();
    let later = MovableStore {
        memory: "/run/user/7/unjank/recents/recently-used.xbel".into(),
        ..list(&disk)
    };
    later.move_to_memory().unwrap();
    assert_eq!(disk.read_link(Path::new(LIST)).unwrap(), later.memory);
    assert_eq!(disk.read(Path::new(LIST)).unwrap(), b"list");
}

#[test]
fn programs_that_watch_the_name_are_told_by_a_new_link_and_a_list_of_theirs_stays() {
    let disk = moved();
    list(&disk).announce().unwrap();
    holds(&disk, b"list").unwrap();
    assert!(list(&disk).is_in_memory().unwrap());
    let calls = Cell::new(0);
    explore(
        moved,
        |disk| {
            calls.set(calls.get() + 1);
            list(disk).announce()
        },
        |disk, _| holds(disk, b"list").and_then(|()| recovers(disk, b"list")),
        |disk, _| recovers_after_power_cut(disk, b"list"),
    )
    .unwrap();
    assert!(calls.get() > 1);
}
