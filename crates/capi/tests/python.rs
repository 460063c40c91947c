//! The package of Python over the library, by its own tests: the interpreter's modules alone, PyGObject beside us.

use std::path::Path;
use std::process::Command;

use crate::built::{CRATE, is_missing, library, succeed};

/// Runs a file of the package's tests.
fn run(file: &str) {
    if is_missing("python3") {
        return;
    }
    let package = Path::new(CRATE).join("../../python");
    let mut command = Command::new("python3");
    command.args(["-X", "dev", "-W", "error", "-m", "unittest", "discover", "-s", "tests", "-p"]);
    command.arg(file).current_dir(&package).env("PYTHONPATH", package.join("src"));
    command.env("UNJANK_LIBRARY", library()).env("PYTHONDONTWRITEBYTECODE", "1");
    for name in ["UNJANK_PROGRAM", "UNJANK_FRAMES", "UNJANK_MILLION"] {
        command.env_remove(name);
    }
    let home = tempfile::tempdir().unwrap();
    for name in ["HOME", "XDG_RUNTIME_DIR", "TMPDIR"] {
        command.env(name, home.path());
    }
    succeed(&mut command);
}

#[test]
fn python_lists_directories_as_os_scandir_does() {
    run("test_listing.py");
}

#[test]
fn python_survives_threads_forks_signals_and_use_after_close() {
    run("test_misuse.py");
}

#[test]
fn python_reads_and_writes_settings_beside_dconf() {
    run("test_settings.py");
}

#[test]
fn python_finds_documents_applications_and_reports_and_its_page_is_true() {
    run("test_docs.py");
    run("test_documents.py");
    run("test_reports.py");
}

#[test]
fn python_has_the_structures_of_the_header_and_the_values_of_gvariant() {
    run("test_native.py");
    run("test_variants.py");
}

#[test]
fn python_and_pygobject_agree() {
    run("test_peers.py");
}
