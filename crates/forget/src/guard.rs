//! What a program must not write that runs privately: everything in which it, or its toolkit, would say what it opened.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{StoreKind, Survey, files, office, settings};
use recents::RecentsFiles;

/// Settings in which programs keep lists of what they opened, whether the list is there yet or not.
const SETTINGS: [&str; 14] = [
    "QtProject.conf",
    "arkrc",
    "dolphinrc",
    "dragonplayerrc",
    "gwenviewrc",
    "katemetainfos",
    "katepartrc",
    "katerc",
    "kdeveloprc",
    "kolourpaintrc",
    "kwriterc",
    "okularpartrc",
    "okularrc",
    "vlc/vlc-qt-interface.conf",
];

/// Folders in the data directory in which a file is about one document, or names them.
const DATA: [&str; 7] = [
    "gwenview/recentfolders",
    "gwenview/recenturls",
    "kate/anonymous.katesession",
    "kate/metainfos",
    "kate/sessions",
    "okular/docdata",
    "kactivitymanagerd",
];

/// Returns the files, and the folders with all that is in them, that a private program must not write.
///
/// Each is given as programs name it and, where that differs, as the kernel does.
#[must_use]
pub fn guarded(places: &RecentsFiles) -> BTreeSet<PathBuf> {
    let mut found: BTreeSet<PathBuf> = [places.xbel.clone(), places.links.clone()].into();
    found.insert(places.cache.join("thumbnails"));
    let state = places.state_home();
    for name in SETTINGS {
        found.insert(places.config.join(name));
        if let Some(program) = name.strip_suffix("rc") {
            found.insert(state.join(format!("{program}staterc")));
        }
    }
    found.extend(DATA.iter().map(|name| places.data.join(name)));
    // Lists of programs that nobody has named here.
    let mut survey = Survey::default();
    settings::look(places, &mut survey);
    office::look(places, &mut survey);
    let listed = survey.items.into_iter().filter(|item| item.kind != StoreKind::Xbel);
    found.extend(listed.map(|item| item.file));
    for program in files::directories(&places.data) {
        found.insert(program.join("recently-used.xbel"));
    }
    let real: Vec<_> = found.iter().filter_map(|path| as_the_kernel(path)).collect();
    found.extend(real);
    found
}

/// Returns the path without symbolic links in its directories; of what is not there yet as far as it is.
fn as_the_kernel(path: &Path) -> Option<PathBuf> {
    let parent =
        path.ancestors().skip(1).find_map(|parent| Some((parent, parent.canonicalize().ok()?)));
    let (parent, real) = parent?;
    Some(real.join(path.strip_prefix(parent).ok()?))
}
