//! A temporary home, bus and document for a launcher.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::machine::{Machine, RecentsSyncMode, existing};
use crate::settings::write::installed;
use lab::session::{BenchSession, ServiceProgram, SessionError};
use sys::process::MeasuredProcess;
use sys::scratch::{self, TempDir};
use trace::backend::ProgramToStart;

/// The name of the program that opens the document.
pub(super) const VIEWER: &str = "unjank-viewer";
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Where a launcher runs.
#[derive(Debug)]
pub(super) struct Stage {
    session: BenchSession,
    scratch: TempDir,
    /// The library that is in front of programs of this session.
    preloaded: Option<PathBuf>,
}

impl Stage {
    /// Makes everything in a directory of our own in the user's home, where launchers write as a rule, or in the temporary directory.
    ///
    /// # Errors
    ///
    /// Nothing is left behind.
    pub(super) fn set(machine: &Machine) -> Result<Stage, SessionError> {
        let home = machine.home.as_deref().and_then(existing);
        let scratch = home
            .and_then(|home| scratch::within(home).ok())
            .map_or_else(|| scratch::within(&machine.temp_dir), Ok);
        let prepare = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| SessionError::NotPrepared { path, source }
        };
        let scratch = scratch.map_err(prepare(&machine.temp_dir))?;
        let file = |path: PathBuf, text: &str| {
            let made = OpenOptions::new().write(true).create_new(true).open(&path);
            made.and_then(|mut file| file.write_all(text.as_bytes())).map_err(prepare(&path))
        };
        for dir in ["home", "config", "data", "data/applications", "cache", "state", "run", "tmp"] {
            let path = scratch.path().join(dir);
            DirBuilder::new().mode(0o700).create(&path).map_err(prepare(&path))?;
        }
        let at = |path: &str| scratch.path().join(path);
        file(at("home/document.html"), "<!DOCTYPE html><title>unjank</title><p>text\n")?;
        file(
            at("data/applications/unjank-viewer.desktop"),
            "[Desktop Entry]\nType=Application\nName=Viewer\nExec=/bin/true %f\nMimeType=text/html;\n",
        )?;
        file(
            at("config/mimeapps.list"),
            "[Default Applications]\ntext/html=unjank-viewer.desktop\n",
        )?;
        // Whoever asks for settings gets an empty database.
        let settings = installed(machine)
            .unwrap_or_else(|| ServiceProgram::plain(Path::new("/usr/libexec/dconf-service")));
        // A socket's path is short; the home's may not be.
        let volatile = machine.runtime_dir.as_deref().unwrap_or(&machine.temp_dir);
        let session = BenchSession::start(&settings, scratch.path(), volatile)?;
        let preloaded = match &machine.recents {
            RecentsSyncMode::Relaxed(library) => Some(library.clone()),
            RecentsSyncMode::Usual | RecentsSyncMode::RelaxedNext => None,
        };
        Ok(Stage { session, scratch, preloaded })
    }

    /// Returns the command line that opens the document; what it prints goes nowhere.
    pub(super) fn command(&self, launcher: &Path, arguments: &[&str]) -> ProgramToStart {
        let at = |path: &str| self.scratch.path().join(path).into_os_string();
        // The tracer leaves descriptors alone, so a shell points them elsewhere and becomes the launcher.
        let shell = ["/bin/sh", "-c", "exec \"$@\" </dev/null >/dev/null 2>&1", "sh"];
        let mut words: Vec<OsString> = shell.iter().map(OsString::from).collect();
        words.push(launcher.into());
        words.extend(arguments.iter().map(OsString::from));
        words.push(at("home/document.html"));
        let relaxed = self
            .preloaded
            .iter()
            .flat_map(|library| [("LD_PRELOAD", library.into()), ("UNJANK_RELAX_DIR", at("data"))]);
        let variables = [
            ("PATH", PATH.into()),
            ("LANG", "C.UTF-8".into()),
            ("HOME", at("home")),
            ("TMPDIR", at("tmp")),
            ("XDG_CONFIG_HOME", at("config")),
            ("XDG_DATA_HOME", at("data")),
            ("XDG_CACHE_HOME", at("cache")),
            ("XDG_STATE_HOME", at("state")),
            ("XDG_RUNTIME_DIR", at("run")),
            ("QT_QPA_PLATFORM", "offscreen".into()),
            ("DBUS_SESSION_BUS_ADDRESS", self.session.address().into()),
        ];
        ProgramToStart {
            arguments: words,
            environment: Some(
                variables
                    .into_iter()
                    .chain(relaxed)
                    .map(|(name, value)| (name.into(), value))
                    .collect(),
            ),
            directory: Some(self.scratch.path().join("home")),
            ..ProgramToStart::default()
        }
    }

    /// Ends what a launcher left running: the processes whose home is ours.
    pub(super) fn end_all(&self) {
        let home =
            [b"HOME=", self.scratch.path().join("home").as_os_str().as_encoded_bytes()].concat();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for entry in entries {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let environment = sys::process_file::read(pid, "environ", MOST_ENVIRONMENT);
            let Ok(environment) = environment else { continue };
            if environment.split(|byte| *byte == 0).any(|variable| variable == home) {
                // An error says that it has ended meanwhile.
                let _ = MeasuredProcess::open(pid).and_then(|process| process.kill());
            }
        }
    }
}

/// The most of an environment that is looked at.
const MOST_ENVIRONMENT: u64 = 4 << 20;

impl Drop for Stage {
    fn drop(&mut self) {
        self.end_all();
    }
}
