//! The library that was built with the tests, installed as a package installs it.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make files that need not last, and read the environment of who tests"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The crate's directory.
pub(crate) const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Returns the library.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libunjank.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    library
}

/// Puts the library, its header and its pkg-config file below a directory.
pub(crate) fn install(prefix: &Path) {
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    fs::create_dir_all(lib.join("pkgconfig")).unwrap();
    fs::create_dir_all(&include).unwrap();
    symlink(library(), lib.join("libunjank.so.0")).unwrap();
    symlink("libunjank.so.0", lib.join("libunjank.so")).unwrap();
    for header in ["unjank.h", "unjank-gio.h", "unjank-qt.h"] {
        fs::copy(Path::new(CRATE).join("include").join(header), include.join(header)).unwrap();
    }
    let template = fs::read_to_string(Path::new(CRATE).join("unjank.pc.in")).unwrap();
    let prefix = prefix.to_str().unwrap();
    let file = template
        .replace("@prefix@", prefix)
        .replace("@libdir@", "${prefix}/lib")
        .replace("@version@", env!("CARGO_PKG_VERSION"));
    assert!(!file.contains('@'), "{file}");
    fs::write(lib.join("pkgconfig/unjank.pc"), file).unwrap();
}

/// Returns what pkg-config says of the library below `prefix`.
pub(crate) fn flags(prefix: &Path) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let text = succeed(command.args(["--cflags", "--libs", "unjank"]));
    text.split_whitespace().map(str::to_owned).collect()
}

/// Compiles a source of the crate with the installed library and returns the program.
pub(crate) fn compile(prefix: &Path, compiler: &[&str], source: &str) -> PathBuf {
    let program = prefix.join(Path::new(source).file_stem().unwrap());
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"]);
    succeed(
        command
            .arg(&program)
            .arg(Path::new(CRATE).join(source))
            .args(flags(prefix))
            .arg("-lpthread"),
    );
    program
}

/// Returns a command that runs a program with the installed library, away from the session of who tests.
pub(crate) fn run(prefix: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LD_LIBRARY_PATH", prefix.join("lib"));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", prefix).env("LC_ALL", "C.UTF-8");
    command
}

/// Runs a command that must succeed and returns what it printed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}: {said}");
    String::from_utf8_lossy(&stdout).into_owned()
}

/// Says that a test cannot run without a program; a failure where all must run.
pub(crate) fn is_missing(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    if found.is_ok_and(|found| found.status.success()) {
        return false;
    }
    assert!(std::env::var_os("REQUIRE_ALL").is_none(), "{program} is needed");
    println!("SKIPPED: no {program}");
    true
}
