//! The KIO worker beside file:, as programs of KDE list directories. `KIO_FILES` says how many files the directory has.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make files that need not last, and read the environment of who tests"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::built::{CRATE, install, run, succeed};

/// Where Debian has the headers that `qmake` and `cmake` would look up.
const INCLUDES: [&str; 2] = ["/usr/include/KF5", "/usr/lib/x86_64-linux-gnu/qt5/mkspecs/linux-g++"];

/// Returns the options for programs with KIO.
fn flags(prefix: &Path) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let packages = ["Qt5Core", "Qt5Network", "Qt5DBus", "Qt5Concurrent", "unjank"];
    let text = succeed(command.args(["--cflags", "--libs"]).args(packages));
    let mut flags: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    for folder in fs::read_dir(INCLUDES[0]).unwrap() {
        flags.push(format!("-I{}", folder.unwrap().path().display()));
    }
    flags.extend(INCLUDES.map(|include| format!("-I{include}")));
    flags.extend(["-lKF5KIOCore", "-lKF5CoreAddons"].map(str::to_owned));
    flags
}

/// Builds the worker where KIO looks for it, without what `cmake` would need.
fn build_worker(prefix: &Path) {
    let source = Path::new(CRATE).join("kio");
    for file in ["unjank.json", "kio_unjank.cpp"] {
        fs::copy(source.join(file), prefix.join(file)).unwrap();
    }
    let plugins = prefix.join("plugins/kf5/kio");
    fs::create_dir_all(&plugins).unwrap();
    let moc = Path::new("/usr/lib/qt5/bin/moc");
    let mut command = Command::new(moc);
    succeed(command.current_dir(prefix).args(["kio_unjank.cpp", "-o", "kio_unjank.moc"]));
    let mut command = Command::new("g++");
    command.current_dir(prefix).args(["-std=c++17", "-O2", "-fPIC", "-shared", "-I."]);
    command.arg("kio_unjank.cpp").arg("-o").arg(plugins.join("unjank.so")).args(flags(prefix));
    succeed(&mut command);
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-O2", "-fPIC", "-o"]).arg(prefix.join("kio"));
    succeed(command.arg(Path::new(CRATE).join("tests/kio.cpp")).args(flags(prefix)));
}

#[test]
fn a_worker_of_kio_lists_and_fails_as_file_does() {
    let Some(files) = std::env::var("KIO_FILES").ok().and_then(|files| files.parse().ok()) else {
        println!("SKIPPED: KIO_FILES says how many files the directory has");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    install(prefix);
    build_worker(prefix);
    let listed = prefix.join("listed");
    fs::create_dir(&listed).unwrap();
    for number in 0..files {
        let number: u32 = number;
        fs::write(listed.join(format!("file {number}.txt")), vec![0; number as usize % 100])
            .unwrap();
    }
    fs::create_dir(listed.join("übung")).unwrap();
    fs::write(listed.join(".hidden #1?"), "x").unwrap();
    for (name, target) in [("link", "file 7.txt"), ("folder", "übung"), ("broken", "nowhere")] {
        symlink(target, listed.join(name)).unwrap();
    }
    let list = |scheme: &str, path: &Path, quiet: &[&str]| {
        let mut command = run(prefix, Path::new("dbus-run-session"));
        command.arg("--").arg(prefix.join("kio")).arg(format!("{scheme}:{}", path.display()));
        command.args(quiet).env("QT_PLUGIN_PATH", prefix.join("plugins"));
        command.env("XDG_RUNTIME_DIR", prefix);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let errors = errors.lines().filter(|line| line.starts_with("error"));
        let errors: Vec<String> = errors.map(str::to_owned).collect();
        (String::from_utf8_lossy(&output.stdout).into_owned(), errors)
    };
    for path in [&listed, &listed.join("übung"), &prefix.join("missing"), &listed.join("link")] {
        let (ours, theirs) = (list("unjank", path, &[]), list("file", path, &[]));
        assert!(ours == theirs, "{}: {ours:.2000?} is not {theirs:.2000?}", path.display());
    }
    let (all, _) = list("unjank", &listed, &[]);
    assert_eq!(all.lines().count(), files as usize + 7);
    for _ in 0..5 {
        for scheme in ["file", "unjank"] {
            print!("{scheme}: {}", list(scheme, &listed, &["quiet"]).0);
        }
    }
    let mut command = run(prefix, Path::new("dbus-run-session"));
    command.args(["--", "kioclient5", "ls"]).arg(format!("unjank:{}", listed.display()));
    command.env("QT_PLUGIN_PATH", prefix.join("plugins")).env("XDG_RUNTIME_DIR", prefix);
    let said = succeed(command.env("QT_QPA_PLATFORM", "offscreen"));
    assert!(said.lines().any(|line| line == "file 7.txt"), "{said:.2000}");
}
