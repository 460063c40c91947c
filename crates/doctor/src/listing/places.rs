//! The directories that a user and their programs open: home, downloads and the like, thumbnails, trash, applications.

use std::path::{Path, PathBuf};

use crate::machine::Machine;

/// What a directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectoryPurpose {
    /// The user's own files.
    Folder,
    Thumbnails,
    Trash,
    /// Desktop files.
    Applications,
}

/// A directory that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CandidateDirectory {
    pub(super) path: PathBuf,
    pub(super) kind: DirectoryPurpose,
}

/// The sizes of thumbnails, as the freedesktop specification has them.
const SIZES: [&str; 5] = ["normal", "large", "x-large", "xx-large", "fail"];

/// Returns the directories, each once; whether they exist is not looked at.
pub(super) fn of(machine: &Machine) -> Vec<CandidateDirectory> {
    let mut places: Vec<CandidateDirectory> = Vec::new();
    let mut add = |path: PathBuf, kind| {
        if !places.iter().any(|place| place.path == path) {
            places.push(CandidateDirectory { path, kind });
        }
    };
    if let Some(home) = &machine.home {
        add(home.clone(), DirectoryPurpose::Folder);
        let file = machine.config_home.as_ref().map(|config| config.join("user-dirs.dirs"));
        // Without the file, xdg-user-dirs has not run, and these two are what it would make.
        let named = file.and_then(|file| std::fs::read_to_string(file).ok());
        let named = named.map_or_else(
            || vec![home.join("Downloads"), home.join("Desktop")],
            |text| user_dirs(&text, home),
        );
        named.into_iter().for_each(|path| add(path, DirectoryPurpose::Folder));
    }
    if let Some(cache) = &machine.cache_home {
        SIZES.iter().for_each(|size| {
            add(cache.join("thumbnails").join(size), DirectoryPurpose::Thumbnails)
        });
    }
    if let Some(data) = &machine.data_home {
        add(data.join("Trash/files"), DirectoryPurpose::Trash);
    }
    for data in machine.data_home.iter().chain(&machine.data_dirs) {
        add(data.join("applications"), DirectoryPurpose::Applications);
    }
    places
}

/// Reads `user-dirs.dirs`: lines as `XDG_DOWNLOAD_DIR="$HOME/Downloads"`, or with an absolute path.
fn user_dirs(text: &str, home: &Path) -> Vec<PathBuf> {
    let path = |line: &str| {
        let (name, value) = line.trim().split_once('=')?;
        if !(name.starts_with("XDG_") && name.ends_with("_DIR")) {
            return None;
        }
        let value = value.trim().strip_prefix('"')?.strip_suffix('"')?;
        // The specification has a backslash before what a shell would take for something else.
        let value = value.replace('\\', "");
        match value.strip_prefix("$HOME") {
            Some(rest) => Some(home.join(rest.trim_start_matches('/'))),
            None => Some(PathBuf::from(value)).filter(|path| path.is_absolute()),
        }
    };
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_directories_are_those_of_the_file() {
        let text = "# a comment\nXDG_DOWNLOAD_DIR=\"$HOME/In\"\nXDG_MUSIC_DIR=\"/srv/music\"\nXDG_TEMPLATES_DIR=\"$HOME/\"\nXDG_X_DIR=relative\n";
        assert_eq!(
            user_dirs(text, Path::new("/home/ana")),
            ["/home/ana/In", "/srv/music", "/home/ana/"].map(PathBuf::from)
        );
    }

    #[test]
    fn each_directory_is_named_once() {
        let machine = Machine {
            home: Some("/h".into()),
            data_home: Some("/h/d".into()),
            data_dirs: vec!["/h/d".into(), "/usr/share".into()],
            cache_home: Some("/h/c".into()),
            ..Machine::default()
        };
        let paths: Vec<PathBuf> = of(&machine).into_iter().map(|place| place.path).collect();
        let applications =
            paths.iter().filter(|path| path.ends_with("applications")).collect::<Vec<_>>();
        assert_eq!(applications.len(), 2);
        assert!(
            paths.contains(&"/h/Downloads".into())
                && paths.contains(&"/h/c/thumbnails/fail".into())
        );
    }
}
