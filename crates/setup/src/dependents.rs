//! Files that stay after an undo and name others of the installation, which therefore stay, too.
//!
//! A service file that somebody has edited names our programs, and a session could not start a service without them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use store::disk::Disk;

use crate::error::SetupError;
use crate::gsettings;
use crate::layout::SetupLayout;
use crate::manifest::RecordedFile;
use crate::part::SetupPart;
use crate::plan;

/// What is at a path after an undo, where that changes it: the bytes of a file, or nothing.
pub(crate) type ChangedPaths = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// Returns a file that is there after an undo and names `file`, whoever has put it there.
pub(crate) fn first_dependent(
    disk: &dyn Disk,
    layout: &SetupLayout,
    file: &RecordedFile,
    changed: &ChangedPaths,
) -> Result<Option<PathBuf>, SetupError> {
    let names = names_of(layout, file);
    if names.is_empty() {
        return Ok(None);
    }
    for directory in [&layout.services, &layout.units, &layout.adopted_units, &layout.environment] {
        for name in names_in(disk, &layout.at(directory))? {
            let path = directory.join(name);
            if !plan::is_our_path(&path) {
                continue;
            }
            let text = match changed.get(&path) {
                Some(text) => text.clone(),
                // What is gone, or no file, names nothing.
                None => disk.read(&layout.at(&path)).ok(),
            };
            let has = |name: &String| {
                let mut parts = text.iter().flat_map(|text| text.windows(name.len()));
                parts.any(|part| part == name.as_bytes())
            };
            if names.iter().any(has) {
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

/// Returns what stands in a file that needs `file`.
fn names_of(layout: &SetupLayout, file: &RecordedFile) -> Vec<String> {
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    let modules = layout.libraries.join(gsettings::DIRECTORY);
    let paths = if file.path.starts_with(&modules) {
        vec![modules]
    } else if file.is_of(SetupPart::Programs) {
        // The programs start each other.
        let libraries = ["libunjank", plan::RECORDER].map(|name| layout.libraries.join(name));
        [layout.programs.join("unjank")].into_iter().chain(libraries).collect()
    } else if file.path.parent() == Some(&layout.units) {
        return vec![format!("SystemdService={name}")];
    } else {
        Vec::new()
    };
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

fn names_in(disk: &dyn Disk, directory: &Path) -> Result<Vec<OsString>, SetupError> {
    match disk.list(directory) {
        Err(error)
            if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) =>
        {
            Ok(Vec::new())
        }
        other => {
            other.map_err(|source| SetupError::NotExamined { path: directory.to_owned(), source })
        }
    }
}
