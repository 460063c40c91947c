//! What we say of plugins and applications is what Qt, GLib, `xdg-mime` and KDE say of them.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::print_stderr, reason = "a skip is said aloud")]
#![expect(clippy::disallowed_methods, reason = "a test makes its own files")]

mod apps;
mod plugins;
mod trader;

use std::path::{Path, PathBuf};
use std::process::Command;

fn skip(why: &str) {
    assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL is set, and: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Says whether programs are there; says so if they are not.
fn has(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&&str| std::env::split_paths(&path).any(|dir| dir.join(name).exists());
    let missing: Vec<_> = programs.iter().filter(|name| !is_there(name)).collect();
    if !missing.is_empty() {
        skip(&format!("no {missing:?}"));
    }
    missing.is_empty()
}

/// Compiles a program of Qt 5 into `dir`.
fn compiled(source: &str, more: &[&str], dir: &Path) -> PathBuf {
    let flags =
        Command::new("pkg-config").args(["--cflags", "--libs", "Qt5Core"]).output().unwrap();
    let flags = String::from_utf8(flags.stdout).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let program = dir.join("peer");
    let mut compiler = Command::new("g++");
    compiler.args(["-O1", "-std=c++17", "-fPIC", "-w", "-o"]).args([&program, &source]);
    let output = compiler.args(more).args(flags.split_ascii_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}
