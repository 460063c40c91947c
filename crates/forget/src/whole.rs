//! Files that are each about one document, and go as a whole: KDE's links, Gwenview's history, Okular's notes, thumbnails.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use store::disk::Disk;

use super::name::DocumentName;
use super::name_search::plain;
use super::{RememberedDocument, StoreKind, Survey, files, thumbnail};
use recents::{RecentTime, RecentsFiles, volatile};

/// Returns the files with what they are.
pub(super) fn files(places: &RecentsFiles) -> Vec<(PathBuf, StoreKind)> {
    let mut found: Vec<(PathBuf, StoreKind)> = Vec::new();
    let mut add =
        |dir: &Path, kind| found.extend(files::regular(dir).into_iter().map(|file| (file, kind)));
    add(&places.links, StoreKind::Links);
    let [_, copy] = volatile::copies(places);
    add(&copy, StoreKind::Links);
    for program in files::directories(&places.data) {
        // Gwenview's `recentfolders` and `recenturls`.
        for dir in files::directories(&program) {
            if files::file_name(&dir).starts_with("recent") {
                add(&dir, StoreKind::Reading);
            }
        }
        add(&program.join("docdata"), StoreKind::Reading);
    }
    // The second is where they were before the specification said the first.
    let roots = [places.cache.join("thumbnails"), places.home.join(".thumbnails")];
    for size in roots.iter().flat_map(|root| files::directories(root)) {
        add(&size, StoreKind::Thumbnails);
        // Below `fail` there is a folder a program.
        for program in files::directories(&size) {
            add(&program, StoreKind::Thumbnails);
        }
    }
    found
}

/// Returns the files alone.
pub(super) fn all_files(places: &RecentsFiles) -> Vec<PathBuf> {
    files(places).into_iter().map(|(file, _)| file).collect()
}

pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    for (file, kind) in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        let Some(found) = document_of(&bytes, kind, places) else { continue };
        let modified = || file.metadata().map(|about| about.mtime()).ok();
        // The time of a link is when the document was opened; that of a thumbnail is not.
        let at = (kind == StoreKind::Links).then(modified).flatten();
        survey.items.push(RememberedDocument {
            name: found.0,
            uri: None,
            kind,
            applications: found.1.or_else(|| owner(&file, kind)).into_iter().collect(),
            at: at.map(|seconds| RecentTime(seconds.saturating_mul(1_000_000))),
            file,
        });
    }
}

pub(super) fn remove(
    places: &RecentsFiles,
    disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    let thumbnails = thumbnail::file_names(chosen);
    for (file, kind) in files(places) {
        let is_named = || kind == StoreKind::Thumbnails && thumbnail::is_named(&file, &thumbnails);
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        let found = document_of(&bytes, kind, places);
        if found.is_some_and(|(name, _)| chosen.contains(&name)) || is_named() {
            survey.read(files::remove(disk, &file));
        }
    }
}

/// Returns the program in whose folder the file is.
fn owner(file: &Path, kind: StoreKind) -> Option<String> {
    let program = file.parent()?.parent()?;
    (kind == StoreKind::Reading).then(|| files::file_name(program))
}

/// Returns the document that a file is about, and the program that it names.
fn document_of(
    bytes: &[u8],
    kind: StoreKind,
    places: &RecentsFiles,
) -> Option<(DocumentName, Option<String>)> {
    if kind == StoreKind::Thumbnails {
        return Some((DocumentName::read(&thumbnail::uri_of(bytes)?, &places.home)?, None));
    }
    if bytes.starts_with(b"<") {
        let text = String::from_utf8_lossy(bytes);
        let url = text.split("url=\"").nth(1)?.split('"').next()?;
        let url = quick_xml::escape::unescape(url).ok()?;
        return Some((DocumentName::read(url.as_bytes(), &places.home)?, None));
    }
    let value = |key: &[u8]| {
        bytes.split(|b| *b == b'\n').find_map(|line| {
            let equals = line.iter().position(|b| *b == b'=')?;
            let found = line[..equals].trim_ascii();
            let found = found.split(|b| *b == b'[').next()?;
            found.eq_ignore_ascii_case(key).then(|| plain(line[equals + 1..].trim_ascii()))
        })
    };
    // KConfig doubles a dollar in what it expands.
    let url = value(b"URL")?;
    let mut single = Vec::with_capacity(url.len());
    for (at, byte) in url.iter().enumerate() {
        if *byte != b'$' || at == 0 || url[at - 1] != b'$' {
            single.push(*byte);
        }
    }
    let by = value(b"X-KDE-LastOpenedWith").map(|by| String::from_utf8_lossy(&by).into_owned());
    Some((DocumentName::read(&single, &places.home)?, by))
}
