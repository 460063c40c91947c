//! Programs that use settings in a session of their own, with the real bus and the real service.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::built::{compile, install, is_missing, run, succeed};

/// Makes the directories of a session below `prefix`.
fn session(prefix: &Path) {
    for directory in ["run", "home"] {
        fs::create_dir_all(prefix.join(directory)).unwrap();
    }
}

/// Has a command run in that session.
fn within<'c>(command: &'c mut Command, prefix: &Path) -> &'c mut Command {
    command.env("HOME", prefix.join("home")).env("XDG_RUNTIME_DIR", prefix.join("run"))
}

#[test]
fn settings_are_read_without_a_bus_and_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    install(prefix);
    session(prefix);
    let program = compile(prefix, &["gcc", "-std=c11", "-g"], "tests/settings.c");
    let said = succeed(within(&mut run(prefix, &program), prefix).arg("nobus"));
    assert_eq!(said, "good\n");
}

#[test]
fn settings_are_written_watched_and_read_beside_dconf() {
    if is_missing("dbus-run-session") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    install(prefix);
    session(prefix);
    let program = compile(prefix, &["gcc", "-std=c11", "-g"], "tests/settings.c");
    let mut command = run(prefix, Path::new("dbus-run-session"));
    let said = succeed(within(&mut command, prefix).arg("--").arg(&program).arg("bus"));
    assert_eq!(said, "good\n");
    if is_missing("valgrind") {
        return;
    }
    fs::remove_dir_all(prefix.join("home")).unwrap();
    session(prefix);
    let mut command = run(prefix, Path::new("dbus-run-session"));
    within(&mut command, prefix).args(["--", "valgrind", "-q", "--error-exitcode=9"]);
    command.args(["--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]);
    let said = succeed(command.arg(&program).arg("bus"));
    assert_eq!(said, "good\n");
}

#[test]
fn recent_documents_and_applications_are_found_without_a_bus() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    install(prefix);
    let program = compile(prefix, &["gcc", "-std=c11", "-g"], "tests/documents.c");
    session(prefix);
    let said = succeed(within(&mut run(prefix, &program), prefix).arg(prefix));
    assert_eq!(said, "good\n");
    if is_missing("valgrind") {
        return;
    }
    for used in ["home", "share", "run"] {
        fs::remove_dir_all(prefix.join(used)).unwrap();
    }
    session(prefix);
    let mut command = run(prefix, Path::new("valgrind"));
    within(&mut command, prefix).args(["-q", "--error-exitcode=9", "--leak-check=full"]);
    command.arg("--errors-for-leak-kinds=definite,indirect");
    assert_eq!(succeed(command.arg(&program).arg(prefix)), "good\n");
}
