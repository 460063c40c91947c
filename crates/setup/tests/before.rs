//! What was in place before a part was switched on, and in no manifest, is in place after it was taken back.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use store::disk::Disk;
use store::sim::{SimDisk, explore};
use unjank_setup::plan::{PlannedContents, PlannedFile, ProgramSource, files_of};
use unjank_setup::state::{PartActivation, PartState, PartStates};
use unjank_setup::{
    ForeignFiles, Installation, SessionDirectories, SetupError, SetupLayout, SetupPart, StepEffect,
};

use crate::fixture::layout_of_user;

fn installed(prefix: &str) -> ProgramSource {
    let prefix = Path::new(prefix);
    ProgramSource::Installed { programs: prefix.join("bin"), libraries: prefix.join("lib/unjank") }
}

fn file(part: SetupPart, path: &str, contents: PlannedContents) -> PlannedFile {
    PlannedFile { part, path: path.into(), contents, mode: 0o644 }
}

/// Puts on a disk what `files` are to be, as something else than `unjank setup` does.
fn with_all(mut disk: SimDisk, files: &[PlannedFile]) -> SimDisk {
    for file in files {
        disk = match &file.contents {
            PlannedContents::Text(text) => disk.with_file(&file.path, text),
            PlannedContents::Link(target) => disk.with_link(&file.path, target),
            PlannedContents::CopyOf(from) => {
                let bytes = disk.read(from).unwrap();
                disk.with_file(&file.path, &bytes)
            }
        };
    }
    disk
}

type Seen = Vec<(PathBuf, Option<Vec<u8>>, Option<PathBuf>)>;

fn seen(disk: &SimDisk, files: &[PlannedFile]) -> Seen {
    let at = |path: &PathBuf| (path.clone(), disk.read(path).ok(), disk.read_link(path).ok());
    files.iter().map(|file| at(&file.path)).collect()
}

/// Switches on and takes back; returns what the steps were.
fn on_and_off(disk: &SimDisk, layout: &SetupLayout, files: &[PlannedFile]) -> Vec<StepEffect> {
    let mut installation = Installation::open(disk, layout.clone(), 0).unwrap();
    let steps = installation.switch_on(files, ForeignFiles::Refuse).unwrap();
    drop(installation);
    let mut installation = Installation::open(disk, layout.clone(), 0).unwrap();
    let parts: Vec<SetupPart> = files.iter().map(|file| file.part).collect();
    installation.switch_off(&parts).unwrap();
    drop(installation);
    assert!(disk.stat(&layout.manifest).is_err(), "a manifest is left");
    steps.into_iter().map(|step| step.effect).collect()
}

#[test]
fn what_a_package_has_brought_stays_the_packages() {
    let layout = SetupLayout::of_system(Path::new("/usr"));
    let mut files = Vec::new();
    for part in [SetupPart::Settings, SetupPart::Host, SetupPart::Listing, SetupPart::Index] {
        files.extend(files_of(part, &layout, &installed("/usr")).unwrap());
    }
    let disk = with_all(SimDisk::new().with_dir("/var/lib"), &files);
    let before = seen(&disk, &files);
    let steps = on_and_off(&disk, &layout, &files);
    assert!(steps.iter().all(|step| *step == StepEffect::Keep), "{steps:?}");
    assert_eq!(seen(&disk, &files), before);
}

#[test]
fn what_another_command_has_switched_on_stays_on() {
    let of_user = layout_of_user();
    let of_system = SetupLayout::of_system(Path::new("/usr/local"));
    let text = |text: &str| PlannedContents::Text(text.into());
    for (layout, file) in [
        // unjank recent relax --session on
        (
            &of_user,
            file(
                SetupPart::Relax,
                "/h/c/environment.d/60-unjank-relax.conf",
                text("# Written by unjank\n"),
            ),
        ),
        // unjank run --adopt-units
        (
            &of_system,
            file(
                SetupPart::Run,
                "/etc/systemd/system/unjank-run@.service",
                text("# made by unjank run\n"),
            ),
        ),
        // systemctl enable unjank-recorder.socket
        (
            &of_system,
            file(
                SetupPart::Trace,
                "/etc/systemd/system/sockets.target.wants/unjank-recorder.socket",
                PlannedContents::Link("/usr/lib/systemd/system/unjank-recorder.socket".into()),
            ),
        ),
        // cargo install --root ~/.local
        (
            &of_user,
            file(
                SetupPart::Programs,
                "/h/.local/bin/unjankd",
                PlannedContents::CopyOf("/built/unjankd".into()),
            ),
        ),
    ] {
        let files = [file];
        let disk = SimDisk::new().with_dir("/h/s").with_dir("/var/lib");
        let disk = with_all(disk.with_file("/built/unjankd", b"\x7fELF one"), &files);
        let before = seen(&disk, &files);
        assert_eq!(on_and_off(&disk, layout, &files), [StepEffect::Keep]);
        assert_eq!(seen(&disk, &files), before);
    }
}

#[test]
fn a_text_like_ours_comes_back_and_a_program_is_not_replaced() {
    let layout = layout_of_user();
    let own = installed("/h/.local");
    for part in [SetupPart::Settings, SetupPart::Host, SetupPart::Relax, SetupPart::Hangs] {
        let files = files_of(part, &layout, &own).unwrap();
        let texts: Vec<PlannedFile> = files
            .into_iter()
            .filter(|file| matches!(file.contents, PlannedContents::Text(_)))
            .collect();
        // The same with an option of somebody's own.
        let mut own = texts.clone();
        for file in &mut own {
            let PlannedContents::Text(text) = &mut file.contents else { panic!("{file:?}") };
            text.extend(b"# mine\n");
        }
        let disk = with_all(SimDisk::new().with_dir("/h/s"), &own);
        let before = seen(&disk, &texts);
        let steps = on_and_off(&disk, &layout, &texts);
        assert!(steps.iter().all(|step| *step == StepEffect::Replace), "{steps:?}");
        assert_eq!(seen(&disk, &texts), before, "{part:?}");
    }

    let program = [file(
        SetupPart::Programs,
        "/h/.local/bin/unjank",
        PlannedContents::CopyOf("/built/unjank".into()),
    )];
    let large = [b"\x7fELF".to_vec(), vec![0; 2 << 20]].concat();
    let disk = SimDisk::new().with_dir("/h/s").with_file("/built/unjank", b"\x7fELF newer");
    let disk = disk.with_file("/h/.local/bin/unjank", &large);
    let before = seen(&disk, &program);
    for foreign in [ForeignFiles::Refuse, ForeignFiles::Replace] {
        let mut installation = Installation::open(&disk, layout.clone(), 0).unwrap();
        let error = installation.switch_on(&program, foreign).unwrap_err();
        let is_right = match foreign {
            ForeignFiles::Refuse => matches!(error, SetupError::ForeignFile { .. }),
            // A program is larger than what is kept.
            ForeignFiles::Replace => matches!(error, SetupError::Unkeepable { .. }),
        };
        assert!(is_right, "{error:?}");
        assert_eq!(seen(&disk, &program), before);
    }
}

#[test]
fn every_crash_while_a_text_like_ours_is_replaced_can_be_taken_back() {
    let layout = layout_of_user();
    let files = files_of(SetupPart::Settings, &layout, &installed("/usr")).unwrap();
    let other = files_of(SetupPart::Settings, &layout, &installed("/opt")).unwrap();
    let disk = with_all(SimDisk::new().with_dir("/h/s/unjank"), &other);
    let before = seen(&disk, &files);
    let on = |disk: &SimDisk| {
        Installation::open(disk, layout.clone(), 0)
            .and_then(|mut installation| installation.switch_on(&files, ForeignFiles::Refuse))
            .is_ok()
    };
    let check = |disk: &SimDisk, _: &bool| {
        let mut installation = Installation::open(disk, layout.clone(), 0)
            .map_err(|error| format!("cannot be opened: {error:?}"))?;
        let steps = installation.switch_off(&[SetupPart::Settings]);
        let steps = steps.map_err(|error| format!("undo: {error:?}"))?;
        drop(installation);
        let is_right = seen(disk, &files) == before && disk.stat(&layout.manifest).is_err();
        is_right.then_some(()).ok_or_else(|| format!("{steps:?}"))
    };
    explore(|| disk.fork().with_empty_history(), on, check, check).unwrap();
}

#[test]
fn the_first_of_two_files_that_were_replaced_comes_back() {
    let layout = layout_of_user();
    let files = files_of(SetupPart::Settings, &layout, &installed("/usr")).unwrap();
    let path = &files[1].path;
    let disk = SimDisk::new().with_dir("/h/s").with_file(path, b"first");
    let on = |foreign| {
        Installation::open(&disk, layout.clone(), 0).unwrap().switch_on(&files, foreign).map(drop)
    };
    on(ForeignFiles::Replace).unwrap();
    store::publish::publish(&disk, path, b"second").unwrap();
    assert!(matches!(on(ForeignFiles::Refuse), Err(SetupError::ChangedFile { .. })));
    let before = seen(&disk, &files);
    assert!(matches!(on(ForeignFiles::Replace), Err(SetupError::AlreadyKept { .. })));
    assert_eq!(seen(&disk, &files), before, "the second one is not lost either");
    // The way out that the hint names.
    disk.remove(path).unwrap();
    on(ForeignFiles::Refuse).unwrap();
    let mut installation = Installation::open(&disk, layout.clone(), 0).unwrap();
    installation.switch_off(&[SetupPart::Settings]).unwrap();
    assert_eq!(disk.read(path).unwrap(), b"first");
}

#[test]
fn it_is_known_since_when_a_part_is_on_and_of_one_that_was_on_before_it_is_not() {
    let layout = layout_of_user();
    let disk = SimDisk::new().with_dir("/h/s");
    let files = |part| files_of(part, &layout, &installed("/usr")).unwrap();
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let open = || Installation::open(&disk, layout.clone(), 0).unwrap();
    let on = |installation: Installation<'_>, part| {
        let mut installation = installation;
        installation.switch_on(&files(part), ForeignFiles::Refuse).unwrap();
    };
    let since = |part| Installation::read(&disk, layout.clone(), 0).unwrap().since(part);
    // As a version did that recorded no moments.
    on(open(), SetupPart::Settings);
    on(open().dated(at(100)), SetupPart::Host);
    open().dated(at(150)).record_switch(SetupPart::Recents, "volatile", false).unwrap();
    assert_eq!(since(SetupPart::Settings), None);
    assert_eq!(since(SetupPart::Host), Some(at(100)));
    assert_eq!(since(SetupPart::Recents), Some(at(150)));
    // Once more, as after an upgrade.
    on(open().dated(at(200)), SetupPart::Settings);
    on(open().dated(at(200)), SetupPart::Host);
    assert_eq!((since(SetupPart::Settings), since(SetupPart::Host)), (None, Some(at(100))));
    // One that is switched on still keeps its moment, and one that somebody has switched off meanwhile has a new one.
    open().dated(at(210)).record_switch(SetupPart::Recents, "volatile", true).unwrap();
    assert_eq!(since(SetupPart::Recents), Some(at(150)));
    open().dated(at(220)).record_switch(SetupPart::Recents, "volatile", false).unwrap();
    assert_eq!(since(SetupPart::Recents), Some(at(220)));
    let switches = open().switches(SetupPart::Recents);
    assert!(switches.len() == 1 && !switches[0].before, "{switches:?}");
    open().switch_off(&[SetupPart::Host]).unwrap();
    open().forget_switches(SetupPart::Recents).unwrap();
    assert_eq!((since(SetupPart::Host), since(SetupPart::Recents)), (None, None));
    on(open().dated(at(300)), SetupPart::Host);
    assert_eq!(since(SetupPart::Host), Some(at(300)));
}

#[test]
fn a_part_that_was_on_before_setup_ran_is_not_on_since_then() {
    let layout = layout_of_user();
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let (foreign, mut recorded) = (ForeignFiles::Refuse, 0);
    for part in SetupPart::ALL {
        let Ok(files) = files_of(part, &layout, &installed("/usr")) else { continue };
        let Some(first) = files.first() else { continue };
        let disk = with_all(SimDisk::new().with_dir("/h/s"), &files);
        let open = || Installation::open(&disk, layout.clone(), 0).unwrap();
        open().dated(at(100)).switch_on(&files, foreign).unwrap();
        assert_eq!(open().since(part), None, "{part:?}");
        recorded += u32::from(open().is_on(part));
        open().switch_off(&[part]).unwrap();
        // Where a file lacked, it is.
        let disk = with_all(SimDisk::new().with_dir("/h/s"), &files);
        disk.remove(&first.path).unwrap();
        let open = || Installation::open(&disk, layout.clone(), 0).unwrap();
        open().dated(at(100)).switch_on(&files, foreign).unwrap();
        assert_eq!(open().since(part), Some(at(100)), "{part:?}");
    }
    assert!(recorded > 0, "no part has a file that setup alone makes");
    let disk = SimDisk::new().with_dir("/h/s");
    let open = || Installation::open(&disk, layout.clone(), 0).unwrap();
    open().dated(at(100)).record_switch(SetupPart::Recents, "volatile", true).unwrap();
    let installation = open();
    assert!(installation.is_on(SetupPart::Recents));
    assert_eq!(installation.since(SetupPart::Recents), None);
}

#[test]
fn the_lists_of_recent_documents_are_on_while_they_are_in_memory() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let directories = SessionDirectories {
        home: home.path().to_owned(),
        config: at("c"),
        data: at("d"),
        state: at("s"),
    };
    let states = |are_lists_volatile| {
        let directories = Some(directories.clone());
        PartStates { directories, service_directories: Vec::new(), are_lists_volatile }
    };
    let state = |states: &PartStates| {
        let mut all = states.all().into_iter();
        (
            all.find(|(part, _)| *part == SetupPart::Recents).unwrap().1,
            states.on_since(SetupPart::Recents),
        )
    };
    assert_eq!(state(&states(false)), (PartState::Off, PartActivation::Off));
    assert_eq!(state(&states(true)), (PartState::Elsewhere, PartActivation::OnUnknown));
    let (disk, owner) = (store::disk::real(), rustix::process::geteuid().as_raw());
    let on = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
    std::fs::create_dir(at("s")).unwrap();
    let mut installation =
        Installation::open(&*disk, SetupLayout::of_user(&directories), owner).unwrap().dated(on);
    installation.record_switch(SetupPart::Recents, "volatile", false).unwrap();
    drop(installation);
    assert_eq!(state(&states(true)), (PartState::User, PartActivation::OnSince(on)));
    // After `unjank recent volatile off`.
    assert_eq!(state(&states(false)), (PartState::Off, PartActivation::Off));
}
