//! A home, caches and a directory of plugins of our own, around the machine's plugins and applications.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cannot;
use crate::lab::BenchError;
use sys::scratch::{self, TempDir};

const ENTRY: &[u8] =
    b"[Desktop Entry]\nType=Application\nName=Bench\nExec=true\nMimeType=text/html;\n";

/// The application that is always there to be asked for, without the ending of its file.
pub const APP: &str = "org.unjank.Bench";

/// Where everything is while we measure; gone afterwards.
#[derive(Debug)]
pub struct BenchTree {
    scratch: TempDir,
    program_path: OsString,
}

impl BenchTree {
    /// Makes it in `parent`; programs are looked for in `program_path`.
    ///
    /// # Errors
    ///
    /// The directory cannot be written to.
    pub fn make(parent: &Path, program_path: OsString) -> io::Result<BenchTree> {
        let world = BenchTree { scratch: scratch::within(parent)?, program_path };
        for name in
            ["cache", "config", "data/applications", "peer/applications", "plugins/kf5", "runtime"]
        {
            DirBuilder::new().recursive(true).mode(0o700).create(world.at(name))?;
        }
        let applications = world.at("data/applications");
        create(&applications.join(format!("{APP}.desktop")), ENTRY)?;
        let cache = format!("[MIME Cache]\ntext/html={APP}.desktop;\n");
        create(&applications.join("mimeinfo.cache"), cache.as_bytes())?;
        Ok(world)
    }

    /// Returns where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Prepares a program whose caches are ours and which sees the machine's plugins and applications.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", &self.program_path)
            .env("HOME", self.path())
            .env("XDG_CACHE_HOME", self.at("cache"))
            .env("XDG_CONFIG_HOME", self.at("config"))
            .env("XDG_DATA_HOME", self.at("data"))
            .env("XDG_RUNTIME_DIR", self.at("runtime"))
            .env("XDG_CURRENT_DESKTOP", "KDE")
            .env("QT_PLUGIN_PATH", self.at("plugins"))
            .env("LC_ALL", "C.UTF-8")
            // Nobody starts a bus to tell others that a cache is new.
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// Takes every cache and index away.
    pub(super) fn forget_caches(&self) -> Result<(), BenchError> {
        let cache = self.at("cache");
        let again = || {
            std::fs::remove_dir_all(&cache)?;
            DirBuilder::new().mode(0o700).create(&cache)
        };
        again().map_err(|error| cannot(&cache, error))
    }

    /// Returns the directories of data that a peer sees to which applications are added; ours does not see them.
    pub(super) fn data_dirs_of_peer(&self) -> OsString {
        let mut dirs = self.at("peer").into_os_string();
        dirs.push(":/usr/local/share:/usr/share");
        dirs
    }

    /// Adds a desktop file for the peer or takes it away again.
    pub(super) fn switch_application(&self, number: usize) -> Result<(), BenchError> {
        let path = self.at("peer/applications/unjank-bench.desktop");
        let text =
            b"[Desktop Entry]\nType=Application\nName=Bench\nExec=true\nMimeType=text/plain;\n";
        if number.is_multiple_of(2) { create(&path, text) } else { std::fs::remove_file(&path) }
            .map_err(|error| cannot(&path, error))
    }

    /// Adds a plugin or takes it away again.
    pub(super) fn switch_plugin(&self, number: usize, bytes: &[u8]) -> Result<(), BenchError> {
        let path = self.at("plugins/kf5/unjank_bench.so");
        if number.is_multiple_of(2) { create(&path, bytes) } else { std::fs::remove_file(&path) }
            .map_err(|error| cannot(&path, error))
    }

    /// Returns the size of the largest file below the caches whose name begins so.
    pub(super) fn cached_bytes(&self, directory: &str, start: &str) -> Result<f64, BenchError> {
        let directory = self.at("cache").join(directory);
        let entries = std::fs::read_dir(&directory).map_err(|error| cannot(&directory, error))?;
        let sizes = entries.flatten().filter_map(|entry| {
            let is_it = entry.file_name().to_string_lossy().starts_with(start);
            entry.metadata().ok().filter(|found| is_it && found.is_file()).map(|found| found.len())
        });
        #[expect(clippy::cast_precision_loss, reason = "a cache has no 2^52 bytes")]
        let largest = sizes.max().map(|bytes| bytes as f64);
        largest.ok_or_else(|| cannot(&directory, format!("there is no {start}…")))
    }
}

pub(super) fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    (&file).write_all(bytes)
}
