//! The list model of GLib for languages with GObject introspection, by programs in Python and JavaScript.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make files that need not last, and read the environment of who tests"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::built::{CRATE, is_missing, library, run, succeed};

/// The interpreter for which the distribution has PyGObject.
const PYTHON: &str = "/usr/bin/python3";

/// Builds the library of the types and its description, and returns false where that cannot be done.
fn build(prefix: &Path) -> bool {
    if is_missing("g-ir-scanner") || is_missing("gcc") {
        return false;
    }
    let lib = prefix.join("lib");
    fs::create_dir_all(&lib).unwrap();
    std::os::unix::fs::symlink(library(), lib.join("libunjank.so.0")).unwrap();
    let script = Path::new(CRATE).join("gir/build");
    succeed(Command::new(script).arg(library()).arg(&lib));
    true
}

/// A directory as the programs want it.
fn listed(prefix: &Path) -> std::path::PathBuf {
    let directory = prefix.join("listed");
    fs::create_dir_all(directory.join("a directory")).unwrap();
    for number in 0..300 {
        fs::write(directory.join(format!("file {number}.txt")), vec![b'a'; number]).unwrap();
    }
    fs::write(directory.join(".hidden"), "").unwrap();
    directory
}

/// A program of an interpreter that finds the description.
fn program(prefix: &Path, interpreter: &str, source: &str) -> Command {
    let mut command = run(prefix, Path::new(interpreter));
    command.env("GI_TYPELIB_PATH", prefix.join("lib"));
    command.arg(Path::new(CRATE).join("tests").join(source)).arg(listed(prefix));
    command
}

#[test]
fn python_and_javascript_get_the_list_model_by_introspection() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    if !build(prefix) {
        return;
    }
    let has_gi = Command::new(PYTHON).args(["-c", "import gi"]).status();
    if has_gi.is_ok_and(|status| status.success()) {
        assert_eq!(succeed(&mut program(prefix, PYTHON, "gir.py")), "good\n");
    } else {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "python3-gi is needed");
        println!("SKIPPED: no python3-gi");
    }
    // GJS brings an engine of 30 MB, and is tried where it is installed.
    let has_gjs = Command::new("gjs").arg("--version").output();
    if has_gjs.is_ok_and(|found| found.status.success()) {
        let said = succeed(&mut program(prefix, "gjs", "gir.js"));
        assert!(said.starts_with("true 30") && said.ends_with(" a directory true\n"), "{said}");
    } else {
        println!("not tried: no gjs");
    }
}
