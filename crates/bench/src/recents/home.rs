//! A home of our own with lists of so many documents, in which all programs that are compared live.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use recents::projection::project;
use recents::xbel::XbelDocument;
use recents::{
    Addition, OpeningApplication, Privacy, RecentEntry, RecentTime, Recents, RecentsFiles,
    RememberingProgram, Uri,
};
use sys::clock::{Clock, SystemClock};

use super::cannot;
use crate::lab::BenchError;
use sys::process::MeasuredProcess;
use sys::scratch::{self, TempDir};

/// How much of a file about a process is read.
const FILE_BYTES: u64 = 64 << 10;

/// The directories, below the home.
const DIRS: [&str; 7] = ["data", "config", "cache", "state", "run", "docs", "tmp"];

/// A home; gone when this is.
#[derive(Debug)]
pub(super) struct Home {
    scratch: TempDir,
    program_path: OsString,
    display: Option<String>,
}

impl Home {
    /// Makes one in `parent` whose shared list and journal have `entries` documents.
    pub(super) fn make(
        parent: &Path,
        program_path: &OsString,
        display: Option<String>,
        entries: u32,
    ) -> Result<Home, BenchError> {
        let failed = |error: io::Error| cannot(parent, error);
        // Not a hidden directory: nothing below such is remembered.
        let scratch = scratch::shown_within(parent).map_err(failed)?;
        let home = Home { scratch, program_path: program_path.clone(), display };
        for dir in DIRS {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(home.at(dir));
            made.map_err(failed)?;
        }
        if entries > 0 {
            home.fill(entries)?;
        }
        Ok(home)
    }

    fn fill(&self, entries: u32) -> Result<(), BenchError> {
        let now = RecentTime::of(SystemClock::start().now());
        let (mut additions, mut list) = (Vec::new(), Vec::new());
        for number in 0..entries {
            let addition = self.addition(&format!("docs/old/{number}.txt"), now)?;
            let Addition { uri, mime, groups, application, exec, at, .. } = addition.clone();
            let by = OpeningApplication { name: application, exec, count: 1, modified: at };
            let (title, description) = (None, None);
            let (added, modified, visited) = (at, at, at);
            let (privacy, applications) = (Privacy::Public, vec![by]);
            let entry = RecentEntry {
                uri,
                mime,
                groups,
                title,
                description,
                privacy,
                added,
                modified,
                visited,
                applications,
            };
            list.push(entry);
            additions.push(addition);
        }
        let text = XbelDocument::new().edit(|_| recents::xbel::BookmarkChange::Keep, &list);
        let mut file = OpenOptions::new();
        let file =
            file.write(true).create_new(true).mode(0o600).open(self.at("data/recently-used.xbel"));
        file.and_then(|mut file| file.write_all(text.unwrap_or_default().as_bytes()))
            .map_err(|error| cannot(self.path(), error))?;
        // After the file: on a slow machine it would be written for others while the journal grows.
        let mut recents = self.recents();
        for addition in &additions {
            recents.add(addition).map_err(|error| cannot("our journal", error))?;
        }
        // What the files hold is known from now on, as on a machine where it all grew.
        project(&mut recents).map_err(|error| cannot("our projection", error))?;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        self.scratch.path()
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(super) fn places(&self) -> RecentsFiles {
        RecentsFiles {
            state: self.at("state/unjank/recents"),
            runtime: Some(self.at("run/unjank/recents")),
            xbel: self.at("data/recently-used.xbel"),
            links: self.at("data/RecentDocuments"),
            data: self.at("data"),
            config: self.at("config"),
            config_dirs: Vec::new(),
            cache: self.at("cache"),
            home: self.path().to_owned(),
            temporary: self.at("tmp"),
            dconf: Vec::new(),
        }
    }

    /// Returns the processes that write the lists of this home for a command that has ended.
    pub(super) fn writers(&self) -> Vec<MeasuredProcess> {
        let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
        let pids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let home = self.path().as_os_str().as_bytes();
        let holds = |pid: u32, file, what: &[u8]| {
            let text = sys::process_file::read(pid, file, FILE_BYTES);
            text.is_ok_and(|text| text.windows(what.len()).any(|part| part == what))
        };
        let is_writer =
            |pid: &u32| holds(*pid, "cmdline", b"recent-writer") && holds(*pid, "environ", home);
        pids.filter(is_writer).filter_map(|pid| MeasuredProcess::open(pid).ok()).collect()
    }

    /// Returns the list as a program has it.
    pub(super) fn recents(&self) -> Recents {
        let (disk, clock) = (store::disk::real(), Arc::new(SystemClock::start()));
        Recents::new(self.places(), RememberingProgram::Ordinary, disk, clock)
    }

    /// Returns what a program says when it opens a document.
    pub(super) fn addition(&self, name: &str, at: RecentTime) -> Result<Addition, BenchError> {
        let uri = Uri::of_path(&self.at(name)).map_err(|error| cannot(name, error))?;
        Ok(Addition {
            uri,
            mime: Some("text/plain".into()),
            groups: Vec::new(),
            privacy: Privacy::Public,
            application: "org.unjank.Bench".into(),
            exec: "bench %u".into(),
            at,
        })
    }

    /// Prepares a program that lives here.
    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("PATH", &self.program_path)
            .env("HOME", self.path())
            .env("XDG_DATA_HOME", self.at("data"))
            .env("XDG_STATE_HOME", self.at("state"))
            .env("XDG_CONFIG_HOME", self.at("config"))
            .env("XDG_CACHE_HOME", self.at("cache"))
            .env("XDG_RUNTIME_DIR", self.at("run"))
            .env("XDG_DATA_DIRS", "/usr/local/share:/usr/share")
            .env("TMPDIR", self.at("tmp"))
            .env("QT_QPA_PLATFORM", "offscreen")
            .env("LC_ALL", "C.UTF-8")
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(display) = &self.display {
            command.env("DISPLAY", display);
        }
        command
    }
}
