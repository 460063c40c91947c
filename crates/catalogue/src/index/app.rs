//! An application's record: its desktop file in one language.

use std::path::Path;

use super::identity::Identity;
use super::record::RecordBuilder;
use crate::apps::desktop::DesktopFile;
use xdg::languages::Languages;

/// The identifier, as `org.kde.kate.desktop`.
pub const ID: &str = ".id";
/// Which application directory it is below, 0 for the one that counts most.
pub const LEVEL: &str = ".level";
/// The actions: of each the identifier, the name and the command, one list.
const ACTIONS: &str = ".actions";

/// Keys of the specification that hold lists.
const LISTS: [&str; 7] =
    ["Categories", "MimeType", "OnlyShowIn", "NotShowIn", "Actions", "Implements", "Keywords"];

/// Keys that hold a truth.
const TRUTHS: [&str; 8] = [
    "Hidden",
    "NoDisplay",
    "Terminal",
    "StartupNotify",
    "DBusActivatable",
    "PrefersNonDefaultGPU",
    "SingleMainWindow",
    "X-KDE-SubstituteUID",
];

/// The key that holds a number: KDE's order of applications.
const NUMBER: &str = "InitialPreference";

/// Makes the record of the desktop file at `path`.
#[must_use]
pub fn record(
    path: &Path,
    id: &str,
    level: u32,
    identity: Identity,
    file: &DesktopFile<'_>,
    languages: &Languages,
) -> Vec<u8> {
    let main = file.main();
    let mut record = RecordBuilder::new(path, identity);
    record.text(ID, id);
    record.whole(LEVEL, level.into());
    for best in main.best(languages) {
        if best.key.is_empty() || best.key.starts_with('.') {
            continue;
        }
        if LISTS.contains(&best.key) {
            let items: Vec<_> = best.list().collect();
            record.whole_list(best.key, items.iter().map(|item| &**item));
        } else if TRUTHS.contains(&best.key) {
            record.truth(best.key, best.is_true());
        } else if let Some(number) = best.text().parse().ok().filter(|_| best.key == NUMBER) {
            record.whole(best.key, number);
        } else {
            record.text(best.key, &best.text());
        }
    }
    let actions = file.actions().flat_map(|(id, group)| {
        let name = group.translated("Name", languages).map(|entry| entry.text());
        [id, name.unwrap_or_default(), group.text("Exec").unwrap_or_default()]
    });
    let actions: Vec<_> = actions.collect();
    record.list(ACTIONS, actions.iter().map(|text| &**text));
    record.build()
}
