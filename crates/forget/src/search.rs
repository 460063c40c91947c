//! The search for what is left: through the bytes of every file in which programs keep something.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::scope::{Scope, SearchLimits, Unsearched};
use super::{
    DocumentName, Search, Survey, Trouble, copies, dconf, files, metadata, stores, thumbnail,
};
use recents::RecentsFiles;

/// A file in which a forgotten document is still named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemainingFile {
    /// The file.
    pub file: PathBuf,
    /// How many of the documents.
    pub documents: usize,
    /// Where in it, if that can be said: the keys of a database of settings.
    pub places: Vec<String>,
    /// What kind of file it is, if that is known, and how it is cleaned.
    pub known: Option<&'static UncleanedFileType>,
}

/// A kind of file that names documents and is not cleaned.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UncleanedFileType {
    /// A part of its path.
    part: &'static str,
    /// What it is.
    pub title: &'static str,
    /// What cleans it, as a command or a sentence.
    pub hint: Option<&'static str>,
}

const fn known(
    part: &'static str,
    title: &'static str,
    hint: Option<&'static str>,
) -> UncleanedFileType {
    UncleanedFileType { part, title, hint }
}

/// Files that name documents and are no lists of what was opened, or belong to the person.
static KNOWN: [UncleanedFileType; 18] = [
    known("/tracker3/", "GNOME's index of files", Some("tracker3 reset --filesystem")),
    known("/share/baloo/", "KDE's index of files", Some("balooctl disable && balooctl purge")),
    known("/share/Trash/", "the trash", Some("empty it")),
    known("user-places.xbel", "bookmarks of folders", None),
    known("gtk-3.0/bookmarks", "bookmarks of folders", None),
    known("gtk-4.0/bookmarks", "bookmarks of folders", None),
    known("_history", "a history of command lines", None),
    known(".histfile", "a history of command lines", None),
    known("fish_history", "a history of command lines", None),
    known("/.viminfo", "an editor's history", None),
    known("/nvim/", "an editor's history", None),
    known("recentf", "an editor's history", None),
    known("/.mozilla/", "a browser's data", Some("clear its history")),
    known("/chromium/", "a browser's data", Some("clear its history")),
    known("/google-chrome/", "a browser's data", Some("clear its history")),
    known("/unjank/settings/snapshots", "a copy of earlier settings", None),
    known(
        "/unjank/settings/",
        "the history of settings",
        Some("end unjankd, and remove the file; what is in it goes after 90 days"),
    ),
    known("/klipper/", "the clipboard's history", Some("clear it")),
];

/// What a search found.
#[derive(Debug, Default)]
pub struct SearchReport {
    /// Where documents are still named.
    pub remaining: Vec<RemainingFile>,
    /// How many files were searched.
    pub files: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What was not searched.
    pub unsearched: Vec<Unsearched>,
    /// What could not be searched.
    pub troubles: Vec<Trouble>,
}

/// Searches the bytes of every store, our own too, and of what else programs keep, for documents that were forgotten.
///
/// What is still remembered on purpose, in `staying`, is no find where its name begins with that of another.
/// `progress` is told how many bytes of how many have been searched.
#[must_use]
pub fn search(
    places: &RecentsFiles,
    chosen: &BTreeSet<DocumentName>,
    staying: &BTreeSet<DocumentName>,
    limits: SearchLimits,
    progress: &mut dyn FnMut(u64, u64),
) -> SearchReport {
    let staying = staying.iter().filter(|name| !chosen.contains(*name));
    let search = Search::new(chosen, staying, places.home.as_os_str().as_bytes());
    let thumbnails = thumbnail::file_names(chosen);
    let scope = Scope::of(places, stores::searched(places), limits);
    let all = scope.files.iter().map(|(_, bytes)| *bytes).sum();
    let mut report = SearchReport { unsearched: scope.unsearched(), ..SearchReport::default() };
    let mut survey = Survey::default();
    for (file, _) in &scope.files {
        let Some(bytes) = survey.read(files::read_within(file, limits.file)) else { continue };
        report.files += 1;
        report.bytes += bytes.len() as u64;
        progress(report.bytes, all);
        let mut found = search.found(&bytes);
        found.extend(hidden(&bytes, file, places, chosen));
        let is_named = file.extension().is_some_and(|end| end == "png")
            && thumbnail::is_named(file, &thumbnails);
        let documents = found.len().max(usize::from(is_named));
        if documents > 0 {
            let text = file.to_string_lossy();
            report.remaining.push(RemainingFile {
                file: file.clone(),
                documents,
                places: dconf::keys_naming(&bytes, places, chosen),
                known: KNOWN.iter().find(|known| text.contains(known.part)),
            });
        }
    }
    report.troubles = survey.troubles;
    report
}

/// Returns the documents that a file names in a way that no search through its bytes finds: packed, or in parts.
fn hidden(
    bytes: &[u8],
    file: &Path,
    places: &RecentsFiles,
    chosen: &BTreeSet<DocumentName>,
) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::new();
    if let Some(uri) = thumbnail::uri_of(bytes) {
        names.extend(DocumentName::read(&uri, &places.home));
    }
    names.extend(metadata::names(file, bytes, places));
    names.extend(copies::names_in_history(file, bytes, places));
    names.retain(|name| chosen.contains(name));
    names.into_iter().map(|name| name.written().to_vec()).collect()
}
