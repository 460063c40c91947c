//! `recently-used.xbel`, what lies beside it with its name in front, and the files of single programs that look like it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use store::disk::Disk;

use super::name::DocumentName;
use super::{RememberedDocument, Search, StoreKind, Survey, files};
use recents::xbel::{BookmarkChange, XbelDocument};
use recents::{RecentTime, RecentsFiles, Uri};

const NAME: &str = "recently-used.xbel";
/// What every list begins with.
const ELEMENT: &[u8] = b"<xbel";

/// Returns the lists: the shared one first, then copies of it, then those of programs.
pub(super) fn files(places: &RecentsFiles) -> Vec<PathBuf> {
    let mut found = vec![places.xbel.clone()];
    let beside = places.xbel.parent().map(files::regular).unwrap_or_default();
    found.extend(beside.into_iter().filter(|path| {
        let name = files::file_name(path);
        // GLib and Qt write a new version beside it, GTK before 2.12 hid it, ours is hidden while it is written.
        *path != places.xbel && (name.starts_with(NAME) || name.contains(&format!(".{NAME}")))
    }));
    found.extend(files::directories(&places.data).into_iter().map(|dir| dir.join(NAME)));
    found.retain(|path| path.is_file());
    found
}

pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    for file in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        let Ok(document) = XbelDocument::parse(bytes) else { continue };
        let entries = document.bookmarks().iter().filter_map(|bookmark| bookmark.entry());
        survey.items.extend(entries.map(|entry| RememberedDocument {
            name: DocumentName::of_uri(&entry.uri),
            uri: Some(entry.uri.clone()),
            kind: StoreKind::Xbel,
            file: file.clone(),
            applications: entry.applications.iter().map(|by| by.name.clone()).collect(),
            at: Some(entry.last_used()).filter(|at| *at != RecentTime::default()),
        }));
    }
}

pub(super) fn remove(
    places: &RecentsFiles,
    disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    for file in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        let Ok(document) = XbelDocument::parse(bytes.clone()) else { continue };
        let is_chosen = |uri: &Uri| chosen.contains(&DocumentName::of_uri(uri));
        let is_copy = file != places.xbel && file.parent() == places.xbel.parent();
        let home = std::os::unix::ffi::OsStrExt::as_bytes(places.home.as_os_str());
        let mut entries = document.bookmarks().iter().filter_map(|bookmark| bookmark.entry());
        let names_one = entries.any(|entry| is_chosen(&entry.uri))
            || !Search::new(chosen, &BTreeSet::new(), home).found(&bytes).is_empty();
        // What has such a name and is no list is somebody's file, or the lock of KDE's programs.
        if !names_one || (is_copy && !is_list(&bytes)) {
            continue;
        }
        let edited = document.edit(
            |bookmark| match bookmark.entry() {
                Some(entry) if is_chosen(&entry.uri) => BookmarkChange::Remove,
                _ => BookmarkChange::Keep,
            },
            [],
        );
        let is_changed = edited.is_some();
        let image = edited.map_or(bytes, String::into_bytes);
        // A copy that nobody reads and that cannot be cleaned goes as a whole: the list itself has what could be saved.
        let staying = staying(&image, chosen);
        if is_copy && !Search::new(chosen, &staying, home).found(&image).is_empty() {
            survey.read(files::remove(disk, &file));
        } else if is_changed {
            survey.read(files::replace(disk, &file, &image));
        }
    }
}

/// Returns whether bytes are a list, or the beginning of one.
fn is_list(bytes: &[u8]) -> bool {
    bytes.windows(ELEMENT.len()).any(|part| part == ELEMENT)
}

/// Returns the documents that a list has besides those that are forgotten.
fn staying(image: &[u8], chosen: &BTreeSet<DocumentName>) -> BTreeSet<DocumentName> {
    let Ok(document) = XbelDocument::parse(image.to_vec()) else { return BTreeSet::new() };
    let entries = document.bookmarks().iter().filter_map(|bookmark| bookmark.entry());
    let names = entries.map(|entry| DocumentName::of_uri(&entry.uri));
    names.filter(|name| !chosen.contains(name)).collect()
}
