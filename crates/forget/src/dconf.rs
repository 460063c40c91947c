//! Lists in GSettings: in dconf's databases, which only their service may write, and in the key file of sandboxed programs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gvdb::GvdbTable;
use gvdb::gvariant::{Variant, VariantView};
use store::disk::Disk;

use super::name::DocumentName;
use super::settings::lines;
use super::values::{Pruned, each_text, prune};
use super::{RememberedDocument, StoreKind, Survey, Trouble, files};
use recents::RecentsFiles;
use settings::changeset::Changeset;

/// Changes settings through the service that alone may write a database.
pub trait SettingsService {
    /// Makes all the changes to the user's database of this name, durably.
    ///
    /// # Errors
    ///
    /// Nothing was changed, or the cause says what was.
    fn change(
        &mut self,
        database: &str,
        changes: &Changeset,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

/// Parts of the paths of keys that are lists, or the last element of one, of what was opened.
const LISTS: [&str; 10] = [
    "recent",
    "session",
    "history",
    "last-",
    "opened",
    "open-files",
    "documents",
    "tabs",
    "previous",
    "virtual-root",
];

/// Returns the user's databases.
pub(super) fn databases(places: &RecentsFiles) -> Vec<PathBuf> {
    files::regular(&places.config.join("dconf"))
}

/// Returns the key file in which programs in a sandbox keep their settings.
fn key_file(places: &RecentsFiles) -> PathBuf {
    places.config.join("glib-2.0/settings/keyfile")
}

pub(super) fn files(places: &RecentsFiles) -> Vec<PathBuf> {
    let mut files = databases(places);
    files.extend(Some(key_file(places)).filter(|file| file.is_file()));
    files
}

/// Tells by its path whether a key is a list of what was opened.
pub(super) fn is_list(key: &str) -> bool {
    let key = key.to_lowercase();
    LISTS.iter().any(|word| key.contains(word))
}

/// Returns what the parts of a key's path say of the program: `mousepad` of `/org/xfce/mousepad/state/session`.
pub(super) fn owners(key: &str) -> Vec<String> {
    key.split('/').skip(2).take(3).map(str::to_owned).collect()
}

fn names_in(value: VariantView<'_>, home: &Path) -> BTreeSet<DocumentName> {
    let mut names = BTreeSet::new();
    each_text(value, &mut |text| names.extend(DocumentName::in_element(text, home)));
    names
}

pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    let mut take = |file: &Path, key: &str, names: BTreeSet<DocumentName>| {
        survey.items.extend(names.into_iter().map(|name| RememberedDocument {
            name,
            uri: None,
            kind: StoreKind::Dconf,
            file: file.to_owned(),
            applications: owners(key),
            at: None,
        }));
    };
    let mut troubles = Vec::new();
    for file in databases(places) {
        let bytes = files::read(&file).unwrap_or_else(|trouble| {
            troubles.push(trouble);
            Vec::new()
        });
        for (key, name) in names_in_lists(&bytes, places) {
            take(&file, &key, [name].into());
        }
    }
    let file = key_file(places);
    match files::read(&file) {
        Ok(bytes) => {
            for (key, value) in key_file_values(&bytes) {
                take(&file, &key, names_in(value.view(), &places.home));
            }
        }
        Err(trouble) => troubles.push(trouble),
    }
    survey.troubles.extend(troubles);
}

/// Returns the documents that the lists of a database name, each with its key.
pub(super) fn names_in_lists(bytes: &[u8], places: &RecentsFiles) -> Vec<(String, DocumentName)> {
    let Ok(table) = GvdbTable::open(bytes) else { return Vec::new() };
    let lists = table.entries().filter(|(key, _)| is_list(key));
    let names = lists.flat_map(|(key, value)| {
        let names = names_in(VariantView::inside(value, table.order()), &places.home);
        names.into_iter().map(move |name| (key.clone(), name))
    });
    names.collect()
}

/// Returns the lists of a key file with their keys' paths.
fn key_file_values(bytes: &[u8]) -> Vec<(String, Variant)> {
    let values = lines(bytes).into_iter().filter_map(|line| {
        let (group, key) = (str::from_utf8(line.group).ok()?, str::from_utf8(line.key).ok()?);
        let path = format!("/{group}/{key}");
        let value = Variant::parse(None, str::from_utf8(line.value).ok()?).ok()?;
        (!key.is_empty() && is_list(&path)).then_some((path, value))
    });
    values.collect()
}

/// Returns what says of a text whether it names one of the documents.
pub(super) fn is_chosen<'a>(
    places: &'a RecentsFiles,
    chosen: &'a BTreeSet<DocumentName>,
) -> impl Fn(&[u8]) -> bool + 'a {
    |text| DocumentName::in_element(text, &places.home).iter().any(|name| chosen.contains(name))
}

/// Cleans the key file, which belongs to no service.
pub(super) fn remove(
    places: &RecentsFiles,
    disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    let file = key_file(places);
    let Some(bytes) = survey.read(files::read(&file)) else { return };
    let is_chosen = is_chosen(places, chosen);
    let mut image = Vec::with_capacity(bytes.len());
    for line in lines(&bytes) {
        let path = format!("/{}/", String::from_utf8_lossy(line.group))
            + &String::from_utf8_lossy(line.key);
        let value = str::from_utf8(line.value).ok().filter(|_| !line.key.is_empty());
        let value = value.and_then(|text| Variant::parse(None, text).ok());
        match value.filter(|_| is_list(&path)).map(|value| prune(value.view(), &is_chosen)) {
            Some(Pruned::Gone) => {}
            Some(Pruned::Changed(value)) => {
                image.extend_from_slice(line.key);
                image.push(b'=');
                image.extend_from_slice(value.print().as_bytes());
                image.push(b'\n');
            }
            Some(Pruned::Same) | None => image.extend_from_slice(line.whole),
        }
    }
    if image != bytes {
        survey.read(files::replace(disk, &file, &image));
    }
}

/// Has the service of the settings take the documents out of the lists in its databases.
pub(super) fn remove_from_databases(
    places: &RecentsFiles,
    service: &mut dyn SettingsService,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    let is_chosen = is_chosen(places, chosen);
    for path in databases(places) {
        let Some(bytes) = survey.read(files::read(&path)) else { continue };
        let Ok(table) = GvdbTable::open(&bytes) else { continue };
        let mut changes = Changeset::default();
        for (key, value) in table.entries().filter(|(key, _)| is_list(key)) {
            match prune(VariantView::inside(value, table.order()), &is_chosen) {
                Pruned::Same => {}
                Pruned::Changed(value) => changes.change(&key, Some(value)),
                Pruned::Gone => changes.change(&key, None),
            }
        }
        let name = files::file_name(&path);
        if !changes.is_empty()
            && let Err(source) = service.change(&name, &changes)
        {
            survey.troubles.push(Trouble::Unchanged { path, source });
        }
    }
}

/// Returns the keys of a database whose values name one of the documents.
pub(super) fn keys_naming(
    bytes: &[u8],
    places: &RecentsFiles,
    chosen: &BTreeSet<DocumentName>,
) -> Vec<String> {
    let Ok(table) = GvdbTable::open(bytes) else { return Vec::new() };
    let is_found = |value: &[u8]| {
        let names = names_in(VariantView::inside(value, table.order()), &places.home);
        names.iter().any(|name| chosen.contains(name))
    };
    table.entries().filter(|(_, value)| is_found(value)).map(|(key, _)| key).collect()
}
