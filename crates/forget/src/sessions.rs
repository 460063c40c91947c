//! Sessions of editors as a GVariant dictionary each: `session.gvariant` of GNOME's text editor.

use std::collections::BTreeSet;
use std::path::PathBuf;

use store::disk::Disk;

use super::name::DocumentName;
use super::values::{Pruned, dictionary, each_text, prune};
use super::{RememberedDocument, StoreKind, Survey, files};
use recents::RecentsFiles;

/// Returns the files, one a program.
pub(super) fn files(places: &RecentsFiles) -> Vec<PathBuf> {
    let folders = files::directories(&places.data).into_iter();
    folders.map(|dir| dir.join("session.gvariant")).filter(|path| path.is_file()).collect()
}

pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    for file in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        let Some(session) = dictionary(&bytes) else { continue };
        let program = file.parent().map(files::file_name);
        let mut names = BTreeSet::new();
        each_text(session, &mut |text| names.extend(DocumentName::read(text, &places.home)));
        survey.items.extend(names.into_iter().map(|name| {
            RememberedDocument::in_file(
                name,
                StoreKind::Session,
                &file,
                program.clone().into_iter().collect(),
            )
        }));
    }
}

pub(super) fn remove(
    places: &RecentsFiles,
    disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    let is_chosen = |text: &[u8]| {
        DocumentName::read(text, &places.home).is_some_and(|name| chosen.contains(&name))
    };
    for file in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        match dictionary(&bytes).map(|session| prune(session, &is_chosen)) {
            Some(Pruned::Changed(session)) => {
                survey.read(files::replace(disk, &file, session.view().bytes()));
            }
            Some(Pruned::Gone) => {
                survey.read(files::remove(disk, &file));
            }
            Some(Pruned::Same) | None => {}
        }
    }
}
