//! Every crash state and every failing call of publishing into files in memory that are made beforehand, and planted faults
//! that are caught.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::io;
use std::path::Path;

use unjank_store::disk::{Disk, DiskFile};
use unjank_store::publish::{PreallocatedFile, PreallocationSlot, publish_into};
use unjank_store::sim::{Explored, SimDisk, explore};

/// The images of one life; the second is shorter than the first, as after a reset.
const IMAGES: [&[u8]; 3] = [b"the first settings, which are long", b"the second", b"the third one"];

fn path() -> &'static Path {
    Path::new("/home/dconf/user")
}

/// Where a reader has the file that was in place before the last publish.
fn held() -> &'static Path {
    Path::new("/home/dconf/held")
}

fn in_memory() -> SimDisk {
    SimDisk::new().with_memory("/home").with_file(path(), IMAGES[0])
}

/// What came of a life: the image that was acknowledged last, and those that may be in place.
#[derive(Debug)]
struct Left {
    held: Option<&'static [u8]>,
    may_be_seen: Vec<&'static [u8]>,
}

/// Publishes the images one after the other; each but the first is in place when a reader opens the file.
fn life(
    disk: &SimDisk,
    mut publish: impl FnMut(&SimDisk, &'static [u8]) -> Result<(), bool>,
) -> Left {
    let mut left = Left { held: None, may_be_seen: vec![IMAGES[0]] };
    for image in &IMAGES[1..] {
        let _ = disk.remove(held());
        left.held = disk.link(path(), held()).is_ok().then(|| left.may_be_seen[0]);
        match publish(disk, image) {
            Ok(()) => left.may_be_seen = vec![image],
            Err(was_replaced_perhaps) => {
                left.may_be_seen.extend(was_replaced_perhaps.then_some(*image));
                break;
            }
        }
    }
    left
}

fn explored(
    publish: impl Fn(&SimDisk, &'static [u8]) -> Result<(), bool> + Copy,
) -> Result<Explored, String> {
    explore(
        in_memory,
        |disk| life(disk, publish),
        |disk, left| {
            if let Some(image) = left.held
                && disk.read(held()).unwrap() != image
            {
                return Err("a file that was published was written into".to_owned());
            }
            let seen = disk.read(path()).map_err(|error| error.to_string())?;
            if left.may_be_seen.contains(&&*seen) {
                return Ok(());
            }
            Err(format!("{left:?}, but readers see {seen:?}"))
        },
        |_, _| Ok(()),
    )
}

/// Publishes as the settings service does: the file is made beforehand, and what failed then is no error.
fn real(disk: &SimDisk, image: &'static [u8]) -> Result<(), bool> {
    let file = PreallocatedFile::make(disk, path(), 10).ok();
    match publish_into(disk, path(), image, file) {
        Ok(stat) if disk.stat(path()).is_ok_and(|now| now != stat) => Err(true),
        Ok(_) => Ok(()),
        Err(error) => Err(!error.to_string().starts_with("cannot ")
            || error.to_string().starts_with("cannot tell")),
    }
}

#[test]
fn every_failure_leaves_the_old_image_or_the_new_one_and_old_readers_what_they_have() {
    let explored = explored(real).unwrap();
    println!("{explored:?}");
    assert!(explored.runs > 200, "{explored:?}");
}

/// Publishes by bare steps into `file`, with the fault that is planted in them.
fn by(
    disk: &SimDisk,
    file: io::Result<Box<dyn DiskFile>>,
    image: &[u8],
    steps: &[&str],
) -> Result<(), bool> {
    let Ok(mut file) = file else { return Err(false) };
    let temp = path().with_file_name("temp");
    let mut has_begun = false;
    for step in steps {
        let done = match *step {
            "write" => file.write_at(0, image),
            "name" => file.give_name(&temp),
            "rename" => disk.rename(&temp, path()).inspect(|()| has_begun = true),
            other => panic!("no step {other}"),
        };
        if done.is_err() {
            // As loose as can be, so that only the fault is what the explorer complains of.
            return Err(has_begun || *step == "rename");
        }
    }
    Ok(())
}

fn made(disk: &SimDisk) -> io::Result<Box<dyn DiskFile>> {
    disk.create_in_memory(path().parent().unwrap(), 10)
}

#[test]
fn the_explorer_accepts_the_right_order_of_bare_steps() {
    explored(|disk, image| by(disk, made(disk), image, &["write", "name", "rename"])).unwrap();
}

#[test]
fn the_explorer_catches_a_file_that_gets_its_contents_in_place() {
    let fault = explored(|disk, image| by(disk, made(disk), image, &["name", "rename", "write"]));
    assert!(fault.unwrap_err().contains("but readers see"));
}

#[test]
fn the_explorer_catches_a_published_file_that_is_used_again() {
    let fault = explored(|disk, image| {
        // Its pages are there, too.
        let file = disk.open(path());
        by(disk, file, image, &["write"]).map_err(|_| true)
    });
    assert!(fault.unwrap_err().contains("was written into"));
}

#[test]
fn there_is_no_such_file_on_a_disk_and_a_publish_without_one_is_durable() {
    let disk = SimDisk::new().with_file(path(), IMAGES[0]);
    let error = PreallocatedFile::make(&disk, path(), 10).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    publish_into(&disk, path(), IMAGES[1], None).unwrap();
    for restarted in disk.after_power_cut().unwrap() {
        assert_eq!(restarted.read(path()).unwrap(), IMAGES[1]);
    }
}

#[test]
fn a_file_that_was_made_for_another_file_system_is_dropped() {
    // A symlink of the user's leads from memory to the disk meanwhile.
    let link = Path::new("/link");
    let disk = in_memory().with_file("/disk/user", IMAGES[0]).with_link(link, path());
    let file = PreallocatedFile::make(&disk, link, 10).unwrap();
    disk.remove(link).unwrap();
    disk.symlink(Path::new("/disk/user"), link).unwrap();
    publish_into(&disk, link, IMAGES[1], Some(file)).unwrap();
    for restarted in disk.after_power_cut().unwrap() {
        assert_eq!(restarted.read(Path::new("/disk/user")).unwrap(), IMAGES[1]);
    }
    assert_eq!(disk.list(Path::new("/disk")).unwrap(), ["user"]);
}

#[test]
fn a_slot_gives_its_file_once_and_nobody_waits_for_one_that_is_being_made() {
    let (disk, slot) = (in_memory(), PreallocationSlot::default());
    assert!(slot.take().is_none());
    assert!(slot.begin());
    assert!(!slot.begin(), "somebody makes it");
    assert!(slot.take().is_none(), "it is being made");
    slot.fill(&disk, path(), 10);
    assert!(!slot.begin(), "it is there");
    assert!(slot.take().is_some() && slot.take().is_none());
    assert!(slot.begin());
    slot.fill(&SimDisk::new(), path(), 10);
    assert!(slot.take().is_none(), "it could not be made");
    assert!(slot.begin(), "and is tried again");
}

#[test]
fn a_file_that_is_ready_too_late_for_one_image_is_there_for_the_next() {
    let (disk, slot) = (in_memory(), PreallocationSlot::default());
    let names =
        |disk: &SimDisk| disk.history().iter().filter(|call| call.starts_with("give_name")).count();
    assert!(slot.begin());
    publish_into(&disk, path(), IMAGES[1], slot.take()).unwrap();
    assert_eq!(names(&disk), 0, "it is being made");
    slot.fill(&disk, path(), 10);
    publish_into(&disk, path(), IMAGES[2], slot.take()).unwrap();
    assert_eq!(names(&disk), 1);
    assert_eq!(disk.read(path()).unwrap(), IMAGES[2]);
    assert_eq!(disk.list(path().parent().unwrap()).unwrap(), ["user"]);
}
