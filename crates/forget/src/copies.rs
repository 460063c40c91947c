//! What our own settings service keeps of earlier settings: copies of databases, and the history of changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gvdb::gvariant::{Variant, VariantView};
use gvdb::{GvdbTable, Image, Stamp, stamp, write};
use store::disk::Disk;

use super::name::DocumentName;
use super::values::{Pruned, each_text, prune};
use super::{RememberedDocument, StoreKind, Survey, Trouble, dconf, files};
use recents::RecentsFiles;
use settings::history;

/// Returns the copies.
fn copies(places: &RecentsFiles) -> Vec<PathBuf> {
    files::regular(&places.state_home().join("unjank/settings/snapshots"))
}

pub(super) fn files(places: &RecentsFiles) -> Vec<PathBuf> {
    let mut found = files::regular(&places.state_home().join("unjank/settings"));
    found.extend(copies(places));
    found
}

pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    for file in copies(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        let names = dconf::names_in_lists(&bytes, places);
        survey.items.extend(names.into_iter().map(|(key, name)| {
            RememberedDocument::in_file(name, StoreKind::Dconf, &file, dconf::owners(&key))
        }));
    }
}

/// Writes the copies anew without the documents. Each keeps its generation.
pub(super) fn remove(
    places: &RecentsFiles,
    disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    for file in copies(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        match without(&bytes, places, chosen) {
            Ok(Some(image)) => {
                survey.read(files::replace(disk, &file, &image));
            }
            Ok(None) => {}
            Err(source) => survey.troubles.push(Trouble::Unchanged { path: file, source }),
        }
    }
}

fn without(
    bytes: &[u8],
    places: &RecentsFiles,
    chosen: &BTreeSet<DocumentName>,
) -> Result<Option<Vec<u8>>, Box<dyn std::error::Error + Send + Sync>> {
    let (Ok(table), Stamp::Good { generation }) = (GvdbTable::open(bytes), stamp(bytes)) else {
        return Ok(None);
    };
    let is_chosen = dconf::is_chosen(places, chosen);
    let mut entries: Vec<(String, Variant)> = Vec::new();
    let mut is_changed = false;
    for (key, value) in table.entries() {
        let value = VariantView::inside(value, table.order());
        let pruned = if dconf::is_list(&key) { prune(value, &is_chosen) } else { Pruned::Same };
        is_changed |= pruned != Pruned::Same;
        match pruned {
            Pruned::Same => entries.push((key, value.to_variant())),
            Pruned::Changed(value) => entries.push((key, value)),
            Pruned::Gone => {}
        }
    }
    if !is_changed {
        return Ok(None);
    }
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    let entries = entries.iter().map(|(key, value)| (&**key, value.as_bytes()));
    Ok(Some(write(entries, &Image { locks: &[], generation: Some(generation) })?))
}

/// Returns the documents that the history names, whose records are packed.
pub(super) fn names_in_history(
    file: &Path,
    bytes: &[u8],
    places: &RecentsFiles,
) -> BTreeSet<DocumentName> {
    let mut names = BTreeSet::new();
    if files::file_name(file).starts_with("history.journal") {
        history::each_value(bytes, &mut |value| {
            each_text(value.view(), &mut |text| {
                names.extend(DocumentName::in_element(text, &places.home));
            });
        });
    }
    names
}
