//! What GNOME's file system layer keeps of documents: pages and positions, by path. It tells which documents were opened.
//!
//! `gvfs-metadata` has a tree for the home, one for the root, one for each file system, and a journal beside each. Paths
//! are kept in parts, so that no search for a whole one finds them.

mod journal;
mod tree;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use store::disk::Disk;

use self::journal::Journal;
use self::tree::Tree;
use super::name::DocumentName;
use super::{RememberedDocument, StoreKind, Survey, Trouble, files};
use recents::RecentsFiles;

/// What the service of the trees is called.
const SERVICE: &str = "gvfsd-metadata";

/// Returns all files of the trees and journals.
pub(super) fn files(places: &RecentsFiles) -> Vec<PathBuf> {
    files::regular(&places.data.join("gvfs-metadata"))
}

/// Returns the trees that hold paths of this machine, with the directory that is their root.
fn trees(places: &RecentsFiles) -> Vec<(PathBuf, PathBuf)> {
    let dir = places.data.join("gvfs-metadata");
    let known = [("home", places.home.clone()), ("root", PathBuf::from("/"))];
    let trees = known.into_iter().map(|(name, root)| (dir.join(name), root));
    trees.filter(|(path, _)| path.is_file()).collect()
}

/// A tree with what its journal adds.
fn load(path: &Path) -> Result<Option<(Tree, PathBuf)>, Trouble> {
    let Some(mut tree) = Tree::decode(&files::read(path)?) else { return Ok(None) };
    let log = log_of(path, tree.tag);
    if let Some(journal) = Journal::decode(&files::read(&log)?, tree.tag) {
        journal.apply_to(&mut tree);
    }
    Ok(Some((tree, log)))
}

fn names_of(tree: &Tree, root: &Path) -> Vec<DocumentName> {
    let path = |path: &Vec<u8>| DocumentName::of_path(&root.join(OsStr::from_bytes(path)));
    tree.paths_with_data().iter().map(path).collect()
}

pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    for (file, root) in trees(places) {
        let Some(Some((tree, _))) = survey.read(load(&file)) else { continue };
        survey.items.extend(
            names_of(&tree, &root).into_iter().map(|name| {
                RememberedDocument::in_file(name, StoreKind::Metadata, &file, Vec::new())
            }),
        );
    }
}

/// Returns the documents that a tree names, or a journal whose tree is another one already.
pub(super) fn names(file: &Path, bytes: &[u8], places: &RecentsFiles) -> BTreeSet<DocumentName> {
    let mut found = BTreeSet::new();
    if file.parent() != Some(&*places.data.join("gvfs-metadata")) {
        return found;
    }
    let name = files::file_name(file);
    let root = if name.starts_with("home") { &*places.home } else { Path::new("/") };
    let full = |path: &Vec<u8>| DocumentName::of_path(&root.join(OsStr::from_bytes(path)));
    if let Some(tree) = Tree::decode(bytes) {
        found.extend(tree.all_paths().iter().map(full));
    } else if let Some(journal) = Journal::decode_any(bytes) {
        found.extend(journal.paths().iter().map(full));
    }
    found
}

/// Writes the trees anew without the documents, with empty journals. Whoever has a tree open sees that it was replaced.
pub(super) fn remove(
    places: &RecentsFiles,
    disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    for (file, root) in trees(places) {
        let Some(Some((mut tree, log))) = survey.read(load(&file)) else { continue };
        let is_chosen = |path: &[u8]| {
            chosen.contains(&DocumentName::of_path(&root.join(OsStr::from_bytes(path))))
        };
        if !tree.remove(&is_chosen) {
            continue;
        }
        let before = std::fs::File::options().write(true).open(&file);
        if let Some(pid) = writer_of(&log) {
            survey.troubles.push(Trouble::InUse { path: file, service: SERVICE, pid });
            continue;
        }
        // As the service does it: a new journal, the tree that names it, the word to whoever has the old one open.
        let Some(token) = survey.read(disk.token().map_err(unchanged(&file))) else { continue };
        let [a, b, c, d, ..] = token.to_le_bytes();
        tree.tag = u32::from_le_bytes([a, b, c, d]);
        let new_log = log_of(&file, tree.tag);
        let is_written = survey
            .read(files::replace(disk, &new_log, &Journal::empty(tree.tag)))
            .and_then(|()| survey.read(files::replace(disk, &file, &tree.encode())));
        if is_written.is_none() {
            continue;
        }
        if let Ok(before) = before {
            let told = before.write_all_at(&[0, 0, 0, 1], tree::ROTATED_AT);
            survey.read(told.map_err(unchanged(&file)));
        }
        survey.read(files::remove(disk, &log));
    }
}

/// Returns the service that has a journal open.
fn writer_of(log: &Path) -> Option<u32> {
    let log = log.canonicalize().ok()?;
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        comm.trim_end() == SERVICE && open.any(|path| path == log)
    })
}

fn unchanged(path: &Path) -> impl Fn(std::io::Error) -> Trouble + '_ {
    |error| Trouble::Unchanged { path: path.to_owned(), source: error.into() }
}

fn log_of(tree: &Path, tag: u32) -> PathBuf {
    let mut log = tree.as_os_str().to_owned();
    log.push(format!("-{tag:08x}.log"));
    PathBuf::from(log)
}
