//! The stores: what reads and cleans each, and where they are.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use store::disk::Disk;

use super::{
    DocumentName, StoreKind, Survey, activities, copies, databases, dconf, files, markup, metadata,
    office, sessions, settings, whole, xbel,
};
use recents::RecentsFiles;

/// Takes documents out of the stores of a format.
type Remove = fn(&RecentsFiles, &dyn Disk, &BTreeSet<DocumentName>, &mut Survey);

/// A format in which programs keep documents.
struct Format {
    /// Returns the files that are there.
    files: fn(&RecentsFiles) -> Vec<PathBuf>,
    look: fn(&RecentsFiles, &mut Survey),
    remove: Remove,
}

/// All formats but those of our own journal and of dconf's databases, which their service writes.
static FORMATS: [Format; 11] = [
    Format { files: xbel::files, look: xbel::look, remove: xbel::remove },
    Format { files: whole::all_files, look: whole::look, remove: whole::remove },
    Format { files: activities::files, look: activities::look, remove: activities::remove },
    Format { files: settings::files, look: settings::look, remove: settings::remove },
    Format { files: dconf::files, look: dconf::look, remove: dconf::remove },
    Format { files: copies::files, look: copies::look, remove: copies::remove },
    Format { files: office::files, look: office::look, remove: office::remove },
    Format { files: sessions::files, look: sessions::look, remove: sessions::remove },
    Format { files: markup::files, look: markup::look, remove: markup::remove },
    Format { files: databases::files, look: databases::look, remove: databases::remove },
    Format { files: metadata::files, look: metadata::look, remove: metadata::remove },
];

/// Returns the places of the user and of each program that Flatpak keeps apart.
pub(super) fn all_places(places: &RecentsFiles) -> Vec<RecentsFiles> {
    let mut all = vec![places.clone()];
    for program in files::directories(&places.home.join(".var/app")) {
        let data = program.join("data");
        all.push(RecentsFiles {
            state: program.join(".local/state/unjank/recents"),
            runtime: None,
            xbel: data.join("recently-used.xbel"),
            links: data.join("RecentDocuments"),
            data,
            config: program.join("config"),
            cache: program.join("cache"),
            dconf: Vec::new(),
            ..places.clone()
        });
    }
    all
}

/// Looks into all stores but our own journal.
pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    for places in &all_places(places) {
        FORMATS.iter().for_each(|format| (format.look)(places, survey));
    }
}

/// Takes documents out of all stores but our own journal and dconf's databases.
pub(super) fn remove(
    places: &RecentsFiles,
    disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    for places in &all_places(places) {
        FORMATS.iter().for_each(|format| (format.remove)(places, disk, chosen, survey));
    }
}

/// Returns the files of all stores, our own too: their logs, locks, backups and leftovers.
pub(super) fn searched(places: &RecentsFiles) -> BTreeSet<PathBuf> {
    let mut found: BTreeSet<PathBuf> = ours(places).into_iter().collect();
    for places in &all_places(places) {
        found.extend(FORMATS.iter().flat_map(|format| (format.files)(places)));
    }
    found
}

/// Returns our own files: on the disk, and in memory.
fn ours(places: &RecentsFiles) -> Vec<PathBuf> {
    let dirs = std::iter::once(&places.state).chain(&places.runtime);
    let with_inner = dirs.flat_map(|dir| {
        let inner = files::directories(dir);
        std::iter::once(dir.clone()).chain(inner)
    });
    with_inner.flat_map(|dir| files::regular(&dir)).collect()
}

/// How much a kind of store keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The kind.
    pub kind: StoreKind,
    /// How many files it has.
    pub files: usize,
    /// How large they are together.
    pub bytes: u64,
    /// Those that others than the user may read, unless a directory above keeps them out.
    pub open_to_others: Vec<PathBuf>,
}

/// Returns how much each kind of store keeps that has any file. Of settings those count that have a list.
#[must_use]
pub fn stores(places: &RecentsFiles) -> Vec<Store> {
    let mut files: Vec<(PathBuf, StoreKind)> = whole::files(places);
    let mut add =
        |found: Vec<PathBuf>, kind| files.extend(found.into_iter().map(|file| (file, kind)));
    add(files::regular(&places.state), StoreKind::Journal);
    add(xbel::files(places), StoreKind::Xbel);
    add(activities::files(places), StoreKind::Activities);
    add(office::files(places), StoreKind::Office);
    add(sessions::files(places), StoreKind::Session);
    add(metadata::files(places), StoreKind::Metadata);
    for look in [settings::look, dconf::look, copies::look, markup::look, databases::look] {
        let mut survey = Survey::default();
        look(places, &mut survey);
        let listed: BTreeSet<(PathBuf, StoreKind)> =
            survey.items.into_iter().map(|item| (item.file, item.kind)).collect();
        files.extend(listed);
    }
    let mut stores: BTreeMap<StoreKind, Store> = BTreeMap::new();
    for (file, kind) in files {
        let Ok(about) = file.metadata() else { continue };
        let empty = Store { kind, files: 0, bytes: 0, open_to_others: Vec::new() };
        let store = stores.entry(kind).or_insert(empty);
        store.files += 1;
        store.bytes = store.bytes.saturating_add(about.len());
        if about.mode() & 0o044 != 0 && !is_behind_a_closed_directory(&file) {
            store.open_to_others.push(file);
        }
    }
    stores.into_values().collect()
}

/// Whether a directory above lets nobody else through.
fn is_behind_a_closed_directory(file: &Path) -> bool {
    let mut above = file.ancestors().skip(1);
    above.any(|dir| dir.metadata().is_ok_and(|about| about.mode() & 0o011 == 0))
}
