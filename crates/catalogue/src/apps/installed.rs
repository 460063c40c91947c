//! Which applications are installed: the desktop files below the application directories, and whether each can be started.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::associations::{Apps, read_bounded};
use super::desktop::{DesktopFile, Group, id_of};
use super::place::ApplicationDirectories;

/// How deep directories are followed: a link may lead upwards.
const DEPTH: usize = 8;

/// A desktop file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InstalledFile {
    /// Its identifier, as `org.kde.kate.desktop`.
    pub id: String,
    /// Its path.
    pub path: PathBuf,
    /// Which application directory it is below, 0 for the one that counts most.
    pub level: u32,
}

/// All desktop files of the application directories, by identifier.
#[derive(Clone, Debug, Default)]
pub struct Installed {
    /// By identifier, the one that counts most first.
    by_id: HashMap<String, Vec<InstalledFile>>,
    program_path: Vec<PathBuf>,
}

/// Whether an application can be started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Usable {
    /// It can.
    Yes,
    /// It is no application, or not a desktop file.
    NotAnApplication,
    /// It says that it is deleted (`Hidden`).
    Hidden,
    /// The program that it names is not there.
    NoProgram,
}

impl Installed {
    /// Looks at the application directories of `places`; names only, no file is opened.
    #[must_use]
    pub fn scan(places: &ApplicationDirectories) -> Installed {
        let mut installed = Installed { by_id: HashMap::new(), program_path: places.path.clone() };
        for (directory, level) in places.application_directories().zip(0_u32..) {
            installed.scan_below(&directory.path, Path::new(""), level, DEPTH);
        }
        installed
    }

    fn scan_below(&mut self, root: &Path, below: &Path, level: u32, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        // A directory that is not there has no applications.
        let Ok(entries) = std::fs::read_dir(root.join(below)) else { return };
        for entry in entries.flatten() {
            let relative = below.join(entry.file_name());
            if let Some(id) = id_of(&relative) {
                let found = InstalledFile { id: id.clone(), path: root.join(&relative), level };
                self.by_id.entry(id).or_default().push(found);
            } else if is_directory(&entry) {
                self.scan_below(root, &relative, level, depth);
            }
        }
    }

    /// Returns the desktop files of this identifier, the one that counts most first.
    #[must_use]
    pub fn all(&self, id: &str) -> &[InstalledFile] {
        self.by_id.get(id).map_or(&[], Vec::as_slice)
    }

    /// Returns every identifier with its files.
    pub fn ids(&self) -> impl Iterator<Item = (&str, &[InstalledFile])> {
        self.by_id.iter().map(|(id, found)| (&**id, &**found))
    }

    /// Returns the file that is used for this identifier: the first that can be started, unless one before it says that the application is deleted.
    #[must_use]
    pub fn usable(&self, id: &str) -> Option<&InstalledFile> {
        let states = self.all(id).iter().map(|found| (found, self.state(found)));
        let mut left = states.take_while(|(_, state)| *state != Usable::Hidden);
        left.find(|(_, state)| *state == Usable::Yes).map(|(found, _)| found)
    }

    /// Returns whether the application in a file can be started.
    #[must_use]
    pub fn state(&self, found: &InstalledFile) -> Usable {
        let Ok(Some(bytes)) = read_bounded(&found.path) else { return Usable::NotAnApplication };
        match DesktopFile::parse(&bytes) {
            Ok(file) => usable(file.main(), &self.program_path),
            Err(_) => Usable::NotAnApplication,
        }
    }
}

impl Apps for Installed {
    fn is_usable(&self, id: &str) -> bool {
        self.usable(id).is_some()
    }

    fn is_masked(&self, id: &str, level: u32) -> bool {
        self.all(id).iter().any(|found| found.level < level)
    }
}

fn is_directory(entry: &std::fs::DirEntry) -> bool {
    match entry.file_type() {
        Ok(kind) if kind.is_symlink() => entry.path().is_dir(),
        Ok(kind) => kind.is_dir(),
        Err(_) => false,
    }
}

/// What a desktop file says of how its application is started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start<'a> {
    /// `Type`.
    pub kind: Option<&'a str>,
    /// Whether it says that it is deleted.
    pub hidden: bool,
    /// `Path`, in which it is started.
    pub directory: Option<&'a str>,
    /// `TryExec`.
    pub try_exec: Option<&'a str>,
    /// `Exec`.
    pub command: Option<&'a str>,
}

/// Returns whether the application that `main` describes can be started, with programs looked for in `program_path`.
#[must_use]
pub fn usable(main: &Group<'_>, program_path: &[PathBuf]) -> Usable {
    let texts = ["Type", "Path", "TryExec", "Exec"].map(|key| main.text(key));
    let [kind, directory, try_exec, command] = texts.each_ref().map(Option::as_deref);
    let hidden = main.is_true("Hidden");
    Start { kind, hidden, directory, try_exec, command }.usable(program_path)
}

impl Start<'_> {
    /// Returns whether the application can be started, with programs looked for in `program_path`.
    #[must_use]
    pub fn usable(self, program_path: &[PathBuf]) -> Usable {
        let given = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        // What is deleted need not say what it was.
        if self.hidden {
            return Usable::Hidden;
        }
        if self.kind != Some("Application") {
            return Usable::NotAnApplication;
        }
        let directory = given(self.directory).map(PathBuf::from);
        let there = |program: &str| is_program(program, directory.as_deref(), program_path);
        if given(self.try_exec).is_some_and(|program| !there(&program)) {
            return Usable::NoProgram;
        }
        let Some(command) = given(self.command) else { return Usable::Yes };
        match shell_words::split(&command) {
            Ok(words) if words.first().is_some_and(|program| there(program)) => Usable::Yes,
            Ok(_) => Usable::NoProgram,
            Err(_) => Usable::NotAnApplication,
        }
    }
}

/// Where most programs are.
const USUAL: &str = "/usr/bin";

/// Returns whether `program` is a file that can be run: as a path, else in the directories of `program_path`.
fn is_program(program: &str, directory: Option<&Path>, program_path: &[PathBuf]) -> bool {
    let runs = |path: &Path| {
        std::fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let path = Path::new(OsStr::new(program));
        return runs(&directory.map_or_else(|| path.to_owned(), |directory| directory.join(path)));
    }
    // Whether it is anywhere has nothing to do with the order, and each directory costs a look.
    let is_usual = |dir: &&PathBuf| dir.as_os_str() == USUAL;
    let usual = program_path.iter().filter(is_usual);
    usual
        .chain(program_path.iter().filter(|dir| !is_usual(dir)))
        .any(|dir| runs(&dir.join(program)))
}
