//! The programs that are compared with: KDE's and GTK's, of our own sources, and those that the user names.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::cannot;
use crate::lab::BenchError;

const KDE: &str = include_str!("../../peers/recent_kde.cpp");
const GTK: &str = include_str!("../../peers/recent_gtk.c");
/// Where KDE Frameworks 5 installs headers; it has no files for `pkg-config`.
const KDE_FLAGS: [&str; 8] = [
    "-I/usr/include/KF5",
    "-I/usr/include/KF5/KIOCore",
    "-I/usr/include/KF5/KIOWidgets",
    "-I/usr/include/KF5/KCoreAddons",
    "-I/usr/include/KF5/KConfigCore",
    "-I/usr/include/KF5/KService",
    "-lKF5KIOCore",
    "-lKF5CoreAddons",
];

/// A program that the user names: `{dir}` is the directory of the documents, `{count}` how many are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentsPeer {
    /// What it is called in the table.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// Why a peer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give a name and a command, for example 'mine=add-recent {{dir}} {{count}}'")]
pub struct PeerError;

impl RecentsPeer {
    /// Reads `name=command`; the command is split at spaces, and no shell sees it.
    ///
    /// # Errors
    ///
    /// It is not of that form, or does not say where the documents go.
    pub fn parse(text: &str) -> Result<RecentsPeer, PeerError> {
        let (name, command) = text.split_once('=').ok_or(PeerError)?;
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let has_place = command.iter().any(|word| word.contains("{dir}"));
        if name.is_empty() || !has_place {
            return Err(PeerError);
        }
        Ok(RecentsPeer { name: name.to_owned(), command })
    }

    /// Returns the program and its arguments for so many documents.
    pub(super) fn words(&self, dir: &Path, count: usize) -> Vec<OsString> {
        let dir = dir.display().to_string();
        let place =
            |word: &String| word.replace("{dir}", &dir).replace("{count}", &count.to_string());
        self.command.iter().map(|word| place(word).into()).collect()
    }
}

/// What was compiled, and why not.
#[derive(Debug)]
pub struct Programs {
    /// Calls `KRecentDocument`.
    pub kde: Result<PathBuf, String>,
    /// Calls `GtkRecentManager`; wants a display.
    pub gtk: Result<PathBuf, String>,
}

impl Programs {
    /// Compiles both in `dir`.
    #[must_use]
    pub fn compile(dir: &Path) -> Programs {
        let text = |error: BenchError| error.to_string();
        let kde = compile(dir, "recent_kde.cpp", KDE, "g++", "Qt5Core", &KDE_FLAGS);
        let gtk = compile(dir, "recent_gtk.c", GTK, "gcc", "gtk+-3.0", &[]);
        Programs { kde: kde.map_err(text), gtk: gtk.map_err(text) }
    }
}

fn compile(
    dir: &Path,
    name: &str,
    source: &str,
    compiler: &str,
    package: &str,
    flags: &[&str],
) -> Result<PathBuf, BenchError> {
    let (source_path, program) = (dir.join(name), dir.join(name).with_extension(""));
    let file = OpenOptions::new().write(true).create_new(true).open(&source_path);
    file.and_then(|mut file| file.write_all(source.as_bytes()))
        .map_err(|error| cannot(&source_path, error))?;
    let succeeded = |program: &str, output: io::Result<std::process::Output>| {
        let output = output.map_err(|error| cannot(program, error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(cannot(program, said.lines().next().unwrap_or_default()))
    };
    let asked = Command::new("pkg-config").args(["--cflags", "--libs", package]).output();
    let more = succeeded(&format!("pkg-config {package}"), asked)?;
    let made = Command::new(compiler)
        .args(["-O2", "-fPIC", "-w", "-o"])
        .args([&program, &source_path])
        .args(flags)
        .args(more.split_ascii_whitespace())
        .output();
    succeeded(compiler, made)?;
    Ok(program)
}

/// An X server without a screen, which GTK wants; it ends with this.
#[derive(Debug)]
pub struct Display {
    server: Child,
    /// How programs name it.
    pub name: String,
}

impl Display {
    /// Starts one on a number that it finds itself; `None` where there is no Xvfb.
    #[must_use]
    pub fn start() -> Option<Display> {
        let mut server = Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", "320x200x8", "-nolisten", "tcp"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut number = String::new();
        let read = server.stdout.take().map(|out| BufReader::new(out).read_line(&mut number));
        let name = format!(":{}", number.trim());
        let display = Display { server, name };
        matches!(read, Some(Ok(1..))).then_some(display)
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_name_and_a_command_with_a_place() {
        let peer = RecentsPeer::parse("mine=add {dir}/x {count}").unwrap();
        assert_eq!(peer.words(Path::new("/d"), 3), ["add", "/d/x", "3"]);
        for wrong in ["add {dir}", "=add {dir}", "mine=add", "mine="] {
            assert_eq!(RecentsPeer::parse(wrong), Err(PeerError), "{wrong}");
        }
    }
}
