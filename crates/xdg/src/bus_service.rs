//! D-Bus service files, which say how a bus starts the owner of a name.

use std::path::PathBuf;

use super::keyfile::KeyFile;

/// Finds the file by which a bus that searches `directories` in this order starts the owner of `name`; returns also the command line.
///
/// Files that cannot be read are skipped, as a bus skips them.
#[must_use]
pub fn find(directories: &[PathBuf], name: &str) -> Option<(PathBuf, String)> {
    let command_line = |path: &PathBuf| {
        let file = KeyFile::parse(&std::fs::read(path).ok()?).ok()?;
        let value = |key| file.get("D-BUS Service", key).map(str::to_owned);
        (value("Name")? == name).then(|| value("Exec"))?
    };
    directories.iter().find_map(|dir| {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        // Opening a pipe would wait for somebody who writes into it.
        files.retain(|path| path.extension().is_some_and(|it| it == "service") && path.is_file());
        files.sort();
        files.into_iter().find_map(|path| command_line(&path).map(|line| (path, line)))
    })
}
