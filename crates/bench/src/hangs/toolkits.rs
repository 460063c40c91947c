//! The programs of toolkits in which hangs are planted, compiled here.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::causes::{LATE, SERVICE};
use super::files::write_new;
use crate::lab::{BenchError, cannot};

const SOURCES: [(&str, &str); 7] = [
    ("hangs_plants.h", include_str!("../../peers/hangs_plants.h")),
    ("hangs_gtk.c", include_str!("../../peers/hangs_gtk.c")),
    ("hangs_qt.cpp", include_str!("../../peers/hangs_qt.cpp")),
    ("hangs_x.c", include_str!("../../peers/hangs_x.c")),
    ("hangs_service.c", include_str!("../../peers/hangs_service.c")),
    ("hangs_late.c", include_str!("../../peers/hangs_late.c")),
    ("hangs_ticks.c", include_str!("../../peers/hangs_ticks.c")),
];

/// A toolkit, and the display to which its program connects.
#[derive(Debug, PartialEq, Eq)]
pub struct Toolkit {
    /// The name by which `--toolkit` chooses it.
    pub id: &'static str,
    /// What it is.
    pub about: &'static str,
    pub(super) source: &'static str,
    pub(super) packages: &'static [&'static str],
    pub(super) display: DisplayKind,
}

/// A kind of display server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum DisplayKind {
    /// Xvfb.
    X,
    /// Weston without a screen.
    Wayland,
}

/// All toolkits.
pub const TOOLKITS: &[Toolkit] = &[
    Toolkit {
        id: "gtk3",
        about: "GTK 3 on X11",
        source: "hangs_gtk.c",
        packages: &["gtk+-3.0", "gio-unix-2.0"],
        display: DisplayKind::X,
    },
    Toolkit {
        id: "gtk4",
        about: "GTK 4 on X11",
        source: "hangs_gtk.c",
        packages: &["gtk4", "gio-unix-2.0"],
        display: DisplayKind::X,
    },
    Toolkit {
        id: "qt5",
        about: "Qt 5 on X11",
        source: "hangs_qt.cpp",
        packages: &["Qt5Widgets", "Qt5DBus", "glib-2.0"],
        display: DisplayKind::X,
    },
    Toolkit {
        id: "x",
        about: "Xlib with a loop of its own",
        source: "hangs_x.c",
        packages: &["x11", "dbus-1"],
        display: DisplayKind::X,
    },
    Toolkit {
        id: "gtk4-wayland",
        about: "GTK 4 on Wayland (needs weston)",
        source: "hangs_gtk.c",
        packages: &["gtk4", "gio-unix-2.0"],
        display: DisplayKind::Wayland,
    },
];

impl Toolkit {
    /// The name of its program's file, by which a record names it.
    pub(super) fn program(&self) -> String {
        format!("hangs_{}", self.id)
    }
}

/// Writes the sources into `dir`.
pub(super) fn unpack(dir: &Path) -> Result<(), BenchError> {
    for (name, text) in SOURCES {
        let path = dir.join(name);
        write_new(&path, text.as_bytes()).map_err(|error| cannot(&path, error))?;
    }
    Ok(())
}

/// Compiles the program of a toolkit from the sources in `dir`.
pub(super) fn compile(dir: &Path, toolkit: &Toolkit) -> Result<PathBuf, BenchError> {
    build(dir, &toolkit.program(), toolkit.source, toolkit.packages)
}

/// Compiles the service of the bus, the neighbours and the resolver.
pub(super) fn compile_service(dir: &Path) -> Result<PathBuf, BenchError> {
    build(dir, SERVICE, "hangs_service.c", &["dbus-1"])
}

/// Compiles the file system that answers late.
pub(super) fn compile_late(dir: &Path) -> Result<PathBuf, BenchError> {
    build(dir, LATE, "hangs_late.c", &[])
}

/// Compiles the frame counter that is preloaded into programs.
pub(super) fn compile_ticks(dir: &Path) -> Result<PathBuf, BenchError> {
    let path = dir.join("hangs_ticks.so");
    let made = Command::new("cc")
        .args(["-O1", "-g", "-fPIC", "-w", "-shared", "-pthread", "-o"])
        .arg(&path)
        .arg(dir.join("hangs_ticks.c"))
        .output();
    succeeded("cc", made)?;
    Ok(path)
}

fn build(
    dir: &Path,
    program: &str,
    source: &str,
    packages: &[&str],
) -> Result<PathBuf, BenchError> {
    let path = dir.join(program);
    let mut flags = String::new();
    if !packages.is_empty() {
        let asked = Command::new("pkg-config").args(["--cflags", "--libs"]).args(packages).output();
        flags = succeeded(&format!("pkg-config {}", packages.join(" ")), asked)?;
    }
    let compiler = if source.ends_with(".cpp") { "g++" } else { "cc" };
    let made = Command::new(compiler)
        // The functions that hang are to be on the stack.
        .args(["-O1", "-g", "-fPIC", "-w", "-fno-optimize-sibling-calls", "-pthread", "-o"])
        .arg(&path)
        .arg(dir.join(source))
        .args(flags.split_ascii_whitespace())
        .arg("-lresolv")
        .output();
    succeeded(compiler, made)?;
    Ok(path)
}

/// Returns what a program printed, or the first line of what was wrong.
fn succeeded(program: &str, output: io::Result<Output>) -> Result<String, BenchError> {
    let output = output.map_err(|error| cannot(program, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(cannot(program, said.lines().next().unwrap_or_default()))
}
