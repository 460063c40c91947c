//! The headers for GLib's main loop, GTK 4 and Qt, by programs without and with a window.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make files that need not last, and read the environment of who tests"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::built::{compile, install, run, succeed};

/// Returns what pkg-config says of a package.
fn flags(package: &str) -> Vec<String> {
    let text = succeed(Command::new("pkg-config").args(["--cflags", "--libs", package]));
    text.split_whitespace().map(str::to_owned).collect()
}

/// Compiles a source of the crate with packages; their headers are not ours to keep free of warnings.
fn compile_with(prefix: &Path, package: &str, source: &str) -> std::path::PathBuf {
    compile_as(prefix, &["gcc", "-std=gnu11", "-Wno-deprecated-declarations"], &[package], source)
}

fn compile_as(
    prefix: &Path,
    compiler: &[&str],
    packages: &[&str],
    source: &str,
) -> std::path::PathBuf {
    let found: Vec<String> = packages.iter().flat_map(|package| flags(package)).collect();
    let found = found.iter().map(|flag| match flag.strip_prefix("-I") {
        Some(directory) => format!("-isystem{directory}"),
        None => flag.clone(),
    });
    let found: Vec<String> = found.collect();
    let mut compiler = compiler.to_vec();
    compiler.push("-g");
    // Libraries follow what needs them.
    compiler.push("-Wl,--no-as-needed");
    compiler.extend(found.iter().map(String::as_str));
    compile(prefix, &compiler, source)
}

fn files(directory: &Path, count: usize) {
    fs::create_dir(directory).unwrap();
    for number in 0..count {
        fs::write(directory.join(format!("file {number}")), vec![0; number % 1000]).unwrap();
    }
}

#[test]
fn a_list_model_says_what_changes_in_a_main_loop() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    install(prefix);
    files(&prefix.join("listed"), 300);
    let program = compile_with(prefix, "gio-2.0", "tests/gio.c");
    let said = succeed(run(prefix, &program).arg(prefix.join("listed")));
    assert_eq!(said, "good\n");
}

#[test]
fn rows_that_a_view_holds_stay_true_while_others_arrive_and_are_in_order_then() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    install(prefix);
    files(&prefix.join("listed"), 4000);
    let program = compile_with(prefix, "gio-2.0", "tests/gio.c");
    for from in ["0", "700"] {
        let mut command = run(prefix, &program);
        let said = succeed(command.arg(prefix.join("listed")).args(["4000", from]));
        assert_eq!(said, "good\n");
    }
}

#[test]
fn a_column_view_of_gtk_shows_a_directory() {
    let has_gtk = Command::new("pkg-config").args(["--exists", "gtk4"]).status();
    if !has_gtk.is_ok_and(|status| status.success()) {
        // Where all must run there is one more package to install: ci/packages names it.
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "libgtk-4-dev is needed");
        println!("SKIPPED: no GTK 4");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    install(prefix);
    files(&prefix.join("listed"), 300);
    let program = compile_with(prefix, "gtk4", "examples/gtk_view.c");
    let mut server = Command::new("Xvfb");
    server.args(["-displayfd", "1", "-screen", "0", "1000x700x24", "-nolisten", "tcp"]);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut display = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut display).unwrap();
    let mut command = run(prefix, &program);
    command.env("DISPLAY", format!(":{}", display.trim())).env("XDG_RUNTIME_DIR", prefix);
    command.env("GDK_BACKEND", "x11").env("GSK_RENDERER", "cairo").env("GTK_A11Y", "none");
    command.env("DBUS_SESSION_BUS_ADDRESS", "disabled:").env("GTK_USE_PORTAL", "0");
    let output = command.arg(prefix.join("listed")).args(["unjank", "0.3"]).output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(" 300 rows "), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns whether a package is there; where all must run it has to be.
fn has_package(package: &str) -> bool {
    let found = Command::new("pkg-config").args(["--exists", package]).status();
    let found = found.is_ok_and(|status| status.success());
    assert!(found || std::env::var_os("REQUIRE_ALL").is_none(), "{package} is needed");
    found
}

#[test]
fn a_model_of_qt_keeps_the_rules_of_item_models() {
    // Qt 5 is there where all must run, for the peers of other tests; Qt 6 where somebody installed it.
    if !has_package("Qt5Widgets") {
        println!("SKIPPED: no Qt");
        return;
    }
    let has_qt_6 = Command::new("pkg-config").args(["--exists", "Qt6Widgets", "Qt6Test"]).status();
    let versions = if has_qt_6.is_ok_and(|status| status.success()) { &[5, 6][..] } else { &[5] };
    for version in versions {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path();
        install(prefix);
        files(&prefix.join("listed"), 300);
        let packages = [format!("Qt{version}Widgets"), format!("Qt{version}Test")];
        let packages = packages.each_ref().map(String::as_str);
        let compiler = ["g++", "-std=c++17", "-fPIC"];
        let program = compile_as(prefix, &compiler, &packages, "tests/qt.cpp");
        let mut command = run(prefix, &program);
        command.env("QT_QPA_PLATFORM", "offscreen").env("LC_ALL", "en_GB.UTF-8");
        command.env("XDG_RUNTIME_DIR", prefix).env("DBUS_SESSION_BUS_ADDRESS", "disabled:");
        assert_eq!(succeed(command.arg(prefix.join("listed")).arg("300")), "good\n");
        let program = compile_as(prefix, &compiler, &packages, "examples/qt_view.cpp");
        let mut command = run(prefix, &program);
        command.env("QT_QPA_PLATFORM", "offscreen").env("XDG_RUNTIME_DIR", prefix);
        command.env("DBUS_SESSION_BUS_ADDRESS", "disabled:");
        // The test before has changed its files.
        files(&prefix.join("viewed"), 300);
        let said = succeed(command.arg(prefix.join("viewed")).args(["unjank", "0.2"]));
        assert!(said.contains(" 300 rows: "), "{said}");
    }
}
