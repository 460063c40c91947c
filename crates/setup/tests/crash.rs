//! Whatever a crash or a failing call leaves, `switch_off` takes it back, and `switch_on` completes it.

use std::path::{Path, PathBuf};

use store::disk::Disk;
use store::sim::{SimDisk, explore};
use unjank_setup::plan::{PlannedContents, PlannedFile};
use unjank_setup::{ForeignFiles, Installation, SetupError, SetupPart, UndoOutcome};

use crate::fixture::layout_of_user;

fn service() -> PathBuf {
    "/h/d/dbus-1/services/ca.desrt.dconf.service".into()
}

fn files(text: &str) -> Vec<PlannedFile> {
    let file = |path: &Path, contents| PlannedFile {
        part: SetupPart::Settings,
        path: path.to_owned(),
        contents,
        mode: 0o644,
    };
    vec![
        file(&service(), PlannedContents::Text(format!("[D-BUS Service]\n#{text}").into())),
        file(
            Path::new("/h/d/systemd/user/unjank-dconf.service"),
            PlannedContents::Link("/usr/lib/x".into()),
        ),
    ]
}

fn on(disk: &SimDisk, text: &str, foreign: ForeignFiles) -> Result<(), SetupError> {
    let mut installation = Installation::open(disk, layout_of_user(), 0)?;
    installation.switch_on(&files(text), foreign).map(drop)
}

fn off(disk: &SimDisk) -> Result<(), SetupError> {
    let mut installation = Installation::open(disk, layout_of_user(), 0)?;
    installation.switch_off(&[SetupPart::Settings]).map(drop)
}

/// What is at the two paths, and whether a manifest is left.
fn seen(disk: &SimDisk) -> (Option<Vec<u8>>, Option<PathBuf>, bool) {
    (
        disk.read(&service()).ok(),
        disk.read_link(Path::new("/h/d/systemd/user/unjank-dconf.service")).ok(),
        disk.stat(Path::new("/h/s/unjank/setup.json")).is_ok(),
    )
}

fn empty() -> SimDisk {
    SimDisk::new()
        .with_dir("/h/s/unjank")
        .with_dir("/h/d/dbus-1/services")
        .with_dir("/h/d/systemd/user")
}

fn with_foreign() -> SimDisk {
    empty().with_file(service(), b"theirs")
}

/// Whatever is found is taken back to what there was.
fn returns_to(wanted: Option<&'static [u8]>) -> impl Fn(&SimDisk) -> Result<(), String> {
    move |disk| {
        off(disk).map_err(|error| format!("undo: {error:?}"))?;
        let (file, link, manifest) = seen(disk);
        if file.as_deref() == wanted && link.is_none() && !manifest {
            return Ok(());
        }
        Err(format!("{file:?} {link:?} {manifest}"))
    }
}

#[test]
fn every_crash_while_a_part_is_switched_on_can_be_taken_back() {
    let check = returns_to(None);
    let explored = explore(
        empty,
        |disk| on(disk, "one", ForeignFiles::Refuse).is_ok(),
        |disk, _| check(disk),
        |disk, _| check(disk),
    );
    let explored = explored.unwrap();
    assert!(explored.runs > 100, "{explored:?}");
}

#[test]
fn what_was_replaced_comes_back_after_every_crash() {
    let check = returns_to(Some(b"theirs"));
    explore(
        with_foreign,
        |disk| on(disk, "one", ForeignFiles::Replace).is_ok(),
        |disk, _| check(disk),
        |disk, _| check(disk),
    )
    .unwrap();
}

#[test]
fn every_crash_while_a_part_is_taken_back_can_be_completed() {
    let seeded = || {
        let disk = with_foreign();
        on(&disk, "one", ForeignFiles::Replace).unwrap();
        disk.with_empty_history()
    };
    let check = returns_to(Some(b"theirs"));
    explore(seeded, |disk| off(disk).is_ok(), |disk, _| check(disk), |disk, _| check(disk))
        .unwrap();
}

#[test]
fn every_crash_of_an_upgrade_can_be_taken_back_and_completed() {
    let seeded = || {
        let disk = empty();
        on(&disk, "one", ForeignFiles::Refuse).unwrap();
        disk.with_empty_history()
    };
    let upgrade = |disk: &SimDisk| on(disk, "two", ForeignFiles::Refuse).is_ok();
    let check = |disk: &SimDisk, _: &bool| {
        on(disk, "two", ForeignFiles::Refuse).map_err(|error| format!("again: {error:?}"))?;
        let text = seen(disk).0;
        if text.as_deref() != Some(b"[D-BUS Service]\n#two") {
            return Err(format!("{text:?}"));
        }
        returns_to(None)(disk)
    };
    explore(seeded, upgrade, check, check).unwrap();
}

#[test]
fn the_explorer_catches_a_step_that_is_made_before_it_is_recorded() {
    let planted = |disk: &SimDisk| {
        store::publish::publish(disk, &service(), b"ours").is_ok()
            && on(disk, "one", ForeignFiles::Replace).is_ok()
    };
    let check = returns_to(None);
    explore(empty, planted, |disk, _| check(disk), |disk, _| check(disk)).unwrap_err();
}

#[test]
fn a_file_that_somebody_else_changed_is_left_and_said_until_it_is_gone() {
    let disk = empty();
    on(&disk, "one", ForeignFiles::Refuse).unwrap();
    store::publish::publish(&disk, &service(), b"edited").unwrap();
    for _ in 0..2 {
        let mut installation = Installation::open(&disk, layout_of_user(), 0).unwrap();
        let steps = installation.switch_off(&[SetupPart::Settings]).unwrap();
        let changed = steps.iter().find(|step| step.path == service()).unwrap();
        assert_eq!(changed.outcome, UndoOutcome::Changed);
        assert!(installation.is_on(SetupPart::Settings));
    }
    assert_eq!(seen(&disk), (Some(b"edited".to_vec()), None, true));
    let error = on(&disk, "one", ForeignFiles::Refuse).unwrap_err();
    assert!(matches!(error, SetupError::ChangedFile { .. }), "{error:?}");
    disk.remove(&service()).unwrap();
    off(&disk).unwrap();
    assert_eq!(seen(&disk), (None, None, false));
}

#[test]
fn a_foreign_file_is_refused_before_anything_is_changed() {
    let disk = with_foreign();
    let error = on(&disk, "one", ForeignFiles::Refuse).unwrap_err();
    assert!(matches!(error, SetupError::ForeignFile { .. }), "{error:?}");
    assert_eq!(seen(&disk), (Some(b"theirs".to_vec()), None, false));
}
