//! What a file names that stays after an undo stays, too, and goes when that file has gone.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::path::{Path, PathBuf};

use store::disk::Disk;
use store::publish::publish;
use store::sim::SimDisk;
use unjank_setup::plan::{PlannedContents, PlannedFile, ProgramSource, files_of};
use unjank_setup::{ForeignFiles, Installation, ReturnedStep, SetupPart, UndoOutcome};

use crate::fixture::layout_of_user;

const PROGRAM: &str = "/h/.local/bin/unjankd";
const LIBRARY: &str = "/h/.local/lib/unjank/libunjank-relax.so";
const MODULE: &str = "/h/.local/lib/unjank/gio-modules/libgiounjank.so";
const SERVICE: &str = "/h/d/dbus-1/services/ca.desrt.dconf.service";
const UNIT: &str = "/h/d/systemd/user/unjank-dconf.service";
const RELAX: &str = "/h/c/environment.d/60-unjank-relax.conf";
const GSETTINGS: &str = "/h/c/environment.d/60-unjank-gsettings.conf";
const RECENTS: &str = "/h/c/systemd/user/unjank-recents.service";

/// A disk on which settings, gsettings and relax were switched on from a build.
fn switched_on() -> SimDisk {
    let disk = SimDisk::new().with_dir("/h/s").with_file("/built", b"\x7fELF");
    let copy = |part, path: &str| PlannedFile {
        part,
        path: path.into(),
        contents: PlannedContents::CopyOf("/built".into()),
        mode: 0o755,
    };
    let mut files = vec![
        copy(SetupPart::Programs, PROGRAM),
        copy(SetupPart::Programs, LIBRARY),
        copy(SetupPart::Gsettings, MODULE),
    ];
    let source = ProgramSource::Built("/built".into());
    for part in [SetupPart::Settings, SetupPart::Relax] {
        files.extend(files_of(part, &layout_of_user(), &source).unwrap());
    }
    files.push(PlannedFile {
        part: SetupPart::Gsettings,
        path: GSETTINGS.into(),
        contents: PlannedContents::Text(
            b"GIO_EXTRA_MODULES=/h/.local/lib/unjank/gio-modules$X\n".to_vec(),
        ),
        mode: 0o644,
    });
    let mut installation = Installation::open(&disk, layout_of_user(), 0).unwrap();
    installation.switch_on(&files, ForeignFiles::Refuse).unwrap();
    drop(installation);
    disk
}

/// Takes everything back, as the preview has said.
fn off(disk: &SimDisk) -> Vec<ReturnedStep> {
    let mut installation = Installation::open(disk, layout_of_user(), 0).unwrap();
    let parts = installation.parts();
    let preview = installation.preview_off(&parts).unwrap();
    let steps = installation.switch_off(&parts).unwrap();
    assert_eq!(steps, preview);
    steps
}

fn there(disk: &SimDisk) -> Vec<&'static str> {
    let all = [PROGRAM, LIBRARY, MODULE, SERVICE, UNIT, RELAX, GSETTINGS, RECENTS];
    all.into_iter().filter(|path| disk.stat(Path::new(path)).is_ok()).collect()
}

fn append(disk: &SimDisk, path: &str, text: &str) {
    let old = disk.read(Path::new(path)).unwrap_or_default();
    publish(disk, Path::new(path), &[&old, text.as_bytes()].concat()).unwrap();
}

#[test]
fn whatever_stays_and_names_others_keeps_them_until_it_has_gone() {
    for (edited, text, kept) in [
        // The bus starts the unit, and the unit the program.
        (SERVICE, "# mine\n", &[PROGRAM, LIBRARY, SERVICE, UNIT][..]),
        (UNIT, "# mine\n", &[PROGRAM, LIBRARY, UNIT]),
        (RELAX, "# mine\n", &[PROGRAM, LIBRARY, RELAX]),
        (GSETTINGS, "# mine\n", &[MODULE, GSETTINGS]),
        // What `unjank recent volatile on` has written is in no manifest.
        (
            RECENTS,
            "[Service]\nExecStart=\"/h/.local/bin/unjankd\" --names session\n",
            &[PROGRAM, LIBRARY, RECENTS],
        ),
    ] {
        let disk = switched_on();
        append(&disk, edited, text);
        for _ in 0..2 {
            let steps = off(&disk);
            assert_eq!(there(&disk), kept, "{edited}");
            let needed: Vec<&PathBuf> = steps.iter().filter_map(|s| s.needed_by.as_ref()).collect();
            assert!(needed.contains(&&PathBuf::from(edited)), "{steps:?}");
            assert!(steps.iter().all(|step| {
                step.is_left() == kept.contains(&step.path.to_str().unwrap())
                    || step.outcome == UndoOutcome::WasGone
            }));
        }
        disk.remove(Path::new(edited)).unwrap();
        off(&disk);
        assert_eq!(there(&disk), [""; 0], "{edited}");
        assert!(disk.stat(&layout_of_user().manifest).is_err());
    }
}

#[test]
fn a_file_that_stays_and_names_nothing_of_ours_keeps_nothing() {
    let disk = switched_on();
    publish(&disk, Path::new(SERVICE), b"[D-BUS Service]\nExec=/bin/other\n").unwrap();
    let steps = off(&disk);
    assert!(steps.iter().all(|step| step.needed_by.is_none()), "{steps:?}");
    assert_eq!(there(&disk), [SERVICE]);
}

#[test]
fn programs_are_not_taken_from_parts_that_stay_on() {
    let disk = switched_on();
    let mut installation = Installation::open(&disk, layout_of_user(), 0).unwrap();
    for parts in [&[SetupPart::Programs][..], &[SetupPart::Programs, SetupPart::Settings]] {
        let steps = installation.switch_off(parts).unwrap();
        let programs = steps.iter().filter(|step| step.part == SetupPart::Programs.name());
        assert!(programs.clone().count() > 0 && programs.clone().all(ReturnedStep::is_left));
        assert!(there(&disk).starts_with(&[PROGRAM, LIBRARY]));
    }
    assert!(!there(&disk).contains(&SERVICE));
    let parts = [SetupPart::Programs, SetupPart::Relax, SetupPart::Gsettings];
    installation.switch_off(&parts).unwrap();
    assert_eq!(there(&disk), [""; 0]);
}
