//! A home of its own with the programs of KDE and GTK that keep lists of recent documents.
#![allow(dead_code, unreachable_pub, reason = "each test uses the part it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a fixture that cannot be set up fails the test"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::fixture::{parent_of_homes, skip};

pub const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

/// Compiles a program of `crates/bench/peers` once; `None` where its libraries are not installed.
fn compiled(
    name: &str,
    source: &str,
    compiler: &str,
    packages: &[&str],
    more: &[&str],
) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let flags = Command::new("pkg-config").args(["--cflags", "--libs"]).args(packages).output();
    let Some(flags) = flags.ok().filter(|output| output.status.success()) else {
        skip(&format!("{packages:?} are not installed"));
        return None;
    };
    // Compiled under another name, so that tests in other processes never see half a program.
    let made = program.with_extension(std::process::id().to_string());
    let output = Command::new(compiler)
        .args(["-O1", "-w", "-fPIC", "-o"])
        .args([&made, &root.join("crates/bench/peers").join(source)])
        .args(more)
        .args(String::from_utf8(flags.stdout).unwrap().split_whitespace())
        .output()
        .unwrap();
    if !output.status.success() {
        skip(&format!("{source} does not compile: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    fs::rename(&made, &program).unwrap();
    Some(program)
}

/// The program that calls `KRecentDocument`.
pub fn kde() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let modules = ["KIOCore", "KIOWidgets", "KCoreAddons", "KConfigCore", "KService"];
    let mut flags: Vec<String> =
        modules.iter().map(|module| format!("-I/usr/include/KF5/{module}")).collect();
    flags.extend(["-I/usr/include/KF5", "-lKF5KIOCore", "-lKF5CoreAddons"].map(String::from));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let compile = || compiled("recent_kde", "recent_kde.cpp", "g++", &["Qt5Core"], &flags);
    PROGRAM.get_or_init(compile).as_deref()
}

/// The program that calls `GtkRecentManager`; it needs a [`Display`].
pub fn gtk() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || compiled("recent_gtk", "recent_gtk.c", "gcc", &["gtk+-3.0"], &[]);
    PROGRAM.get_or_init(compile).as_deref()
}

/// An X server without a screen; it ends with this.
pub struct Display {
    server: Child,
    pub name: String,
}

impl Display {
    /// Starts one on a number that it finds itself.
    pub fn start() -> Option<Display> {
        let started = Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", "320x200x8", "-nolisten", "tcp"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut server) = started else {
            skip("Xvfb is not installed");
            return None;
        };
        let mut number = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut number).unwrap();
        assert!(!number.is_empty(), "Xvfb ended");
        Some(Display { server, name: format!(":{}", number.trim()) })
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A home with a name that no document but ours has in it, outside of what KDE takes for temporary.
pub struct Home(TempDir);

impl Home {
    pub fn make() -> Home {
        // Not a hidden one: what is below such is not remembered.
        let dir = tempfile::Builder::new().prefix("home").tempdir_in(parent_of_homes());
        let home = Home(dir.unwrap());
        for dir in ["docs", "tmp", ".config", ".cache", ".local/share", "run"] {
            fs::create_dir_all(home.at(dir)).unwrap();
        }
        fs::set_permissions(home.at("run"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
        home
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and the directories above it.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes so many documents `docs/0` and so on.
    pub fn documents(&self, count: usize) -> PathBuf {
        for number in 0..count {
            self.write(&format!("docs/{number}"), "text");
        }
        self.at("docs")
    }

    /// Prepares a program that lives in this home.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("XDG_DATA_HOME", self.at(".local/share"))
            .env("XDG_STATE_HOME", self.at(".local/state"))
            .env("XDG_CONFIG_HOME", self.at(".config"))
            .env("XDG_CACHE_HOME", self.at(".cache"))
            .env("XDG_RUNTIME_DIR", self.at("run"))
            .env("TMPDIR", self.at("tmp"))
            .env("QT_QPA_PLATFORM", "offscreen")
            .env("LC_ALL", "C.UTF-8")
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent");
        command
    }

    /// Runs `unjank` with these arguments.
    pub fn unjank(&self, arguments: &[&str]) -> Output {
        self.command(UNJANK).args(arguments).output().unwrap()
    }

    /// Every file and directory with its contents and times, but for what is in memory only and what is no list.
    pub fn contents(&self) -> BTreeMap<PathBuf, (i64, i64, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut dirs = vec![self.at(".local"), self.at(".config"), self.at(".cache")];
        while let Some(dir) = dirs.pop() {
            let about = fs::metadata(&dir).unwrap();
            found.insert(dir.clone(), (about.mtime(), about.mtime_nsec(), Vec::new()));
            for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
                let about = entry.metadata().unwrap();
                if about.is_dir() {
                    dirs.push(entry.path());
                } else if !about.file_type().is_fifo() {
                    let bytes = fs::read(entry.path()).unwrap_or_default();
                    found.insert(entry.path(), (about.mtime(), about.mtime_nsec(), bytes));
                }
            }
        }
        found
    }

    /// The files, but for the documents themselves, in which these bytes are.
    pub fn naming(&self, bytes: &[u8]) -> Vec<PathBuf> {
        let names = |(path, (.., text)): &(PathBuf, (i64, i64, Vec<u8>))| {
            let in_name = path.file_name().is_some_and(|n| contains(n.as_encoded_bytes(), bytes));
            in_name || contains(text, bytes)
        };
        self.contents().into_iter().filter(names).map(|(path, _)| path).collect()
    }
}

fn contains(text: &[u8], bytes: &[u8]) -> bool {
    text.windows(bytes.len()).any(|part| part == bytes)
}
