//! `unjank hangs export`, which runs `unjank-export` of another package.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panics")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

/// Runs `unjank hangs export` with these arguments where programs are found in `programs`.
fn export(programs: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(UNJANK);
    command.args(["hangs", "export"]).args(arguments);
    command.env_clear().env("PATH", programs).env("HOME", programs).output().unwrap()
}

#[test]
fn all_arguments_are_those_of_unjank_export_and_so_is_the_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("unjank-export");
    fs::write(&program, "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for arguments in [
        &["--store", "/x", "parquet", "--to", "a b", "--", "--help"][..],
        &["--help"],
        &["-h", "--json", "--since"],
        &[],
    ] {
        let output = export(dir.path(), arguments);
        let joined: Vec<String> = arguments.iter().map(|word| format!("<{word}>")).collect();
        let expected = if arguments.is_empty() { "<>".to_owned() } else { joined.concat() };
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
        assert_eq!(output.status.code(), Some(7));
    }
}

#[test]
fn without_the_package_the_error_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let output = export(dir.path(), &["parquet", "--to", "lake"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("unjank-export") && said.contains("install the package"), "{said}");
}

#[test]
fn a_program_of_a_relative_directory_is_not_meant_and_one_that_cannot_be_started_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("unjank-export");
    fs::write(&program, "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for path in ["", ".", ":", "./"] {
        let mut command = Command::new(UNJANK);
        command.args(["hangs", "export"]).current_dir(dir.path()).env_clear().env("PATH", path);
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]), "{path:?}");
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    let output = export(dir.path(), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said.contains(&*program.to_string_lossy()), "{said}");
}
