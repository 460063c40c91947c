//! One desktop file: what an application is called, what it runs, and what it opens.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use xdg::languages::Languages;

use super::entries::{self, KeyFileEntry, KeyFileLine, StrayLine};

/// The group with the application itself.
const MAIN: &str = "Desktop Entry";

/// The start of the names of its actions' groups.
const ACTION: &str = "Desktop Action ";

/// A desktop file, borrowed from its text.
#[derive(Clone, Debug)]
pub struct DesktopFile<'a> {
    groups: Vec<Group<'a>>,
    /// Where the group of a name is: a file may have hundreds of thousands.
    by_name: HashMap<&'a str, usize>,
}

/// A group of entries.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its entries in the order of the file; of a key that comes twice the last counts.
    pub entries: Vec<KeyFileEntry<'a>>,
}

impl<'a> Group<'a> {
    /// Returns the entry of a key without a locale.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&KeyFileEntry<'a>> {
        self.entries.iter().rev().find(|entry| entry.key == key && entry.locale.is_none())
    }

    /// Returns the entry of a key in the best of the user's languages, else the one without a locale.
    #[must_use]
    pub(crate) fn translated(&self, key: &str, languages: &Languages) -> Option<&KeyFileEntry<'a>> {
        let ranked =
            self.entries.iter().rev().filter(|entry| entry.key == key).filter_map(|entry| {
                let rank =
                    entry.locale.map_or(Some(usize::MAX), |locale| languages.rank(locale))?;
                Some((rank, entry))
            });
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, entry)| entry)
    }

    /// Returns of each key the entry in the best of the user's languages, in the order in which the keys come first.
    #[must_use]
    pub fn best(&self, languages: &Languages) -> Vec<&KeyFileEntry<'a>> {
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut best: Vec<(usize, &KeyFileEntry<'a>)> = Vec::new();
        for entry in &self.entries {
            let rank = entry.locale.map_or(Some(usize::MAX), |locale| languages.rank(locale));
            let Some(rank) = rank else { continue };
            let place = *places.entry(entry.key).or_insert(best.len());
            match best.get_mut(place) {
                Some(known) if rank <= known.0 => *known = (rank, entry),
                Some(_) => {}
                None => best.push((rank, entry)),
            }
        }
        best.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Returns a text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.entry(key).map(KeyFileEntry::text)
    }

    /// Returns the values of a list.
    pub fn list(&self, key: &str) -> impl Iterator<Item = Cow<'a, str>> {
        self.entry(key).into_iter().flat_map(KeyFileEntry::list)
    }

    /// Returns whether a key is true.
    #[must_use]
    pub fn is_true(&self, key: &str) -> bool {
        self.entry(key).is_some_and(KeyFileEntry::is_true)
    }
}

/// Why a text is no desktop file.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DesktopError {
    /// It is no key file.
    #[error(transparent)]
    NotKeyFile(#[from] StrayLine),
    /// Its first group is not `[Desktop Entry]`.
    #[error("no [Desktop Entry] group at its beginning")]
    NoEntry,
}

impl<'a> DesktopFile<'a> {
    /// Reads a desktop file.
    ///
    /// # Errors
    ///
    /// It is no key file, or does not begin with the main group.
    pub fn parse(bytes: &'a [u8]) -> Result<DesktopFile<'a>, DesktopError> {
        DesktopFile::parse_where(bytes, |_| true)
    }

    /// Reads a desktop file without the translations into other languages, which are most of it.
    ///
    /// # Errors
    ///
    /// As [`DesktopFile::parse`].
    pub(crate) fn parse_in(
        bytes: &'a [u8],
        languages: &Languages,
    ) -> Result<DesktopFile<'a>, DesktopError> {
        DesktopFile::parse_where(bytes, |locale| languages.rank(locale).is_some())
    }

    fn parse_where(
        bytes: &'a [u8],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<DesktopFile<'a>, DesktopError> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        let mut by_name = HashMap::new();
        let mut current = None;
        for line in entries::lines(bytes) {
            match line? {
                KeyFileLine::Group(name) => {
                    let at = *by_name.entry(name).or_insert(groups.len());
                    if at == groups.len() {
                        groups.push(Group { name, entries: Vec::new() });
                    }
                    current = Some(at);
                }
                // An entry before the first group belongs to none.
                KeyFileLine::Entry(entry) if entry.locale.is_none_or(&is_wanted) => {
                    if let Some(group) = current.and_then(|at: usize| groups.get_mut(at)) {
                        group.entries.push(entry);
                    }
                }
                KeyFileLine::Entry(_) => {}
            }
        }
        if groups.first().is_none_or(|group| group.name != MAIN) {
            return Err(DesktopError::NoEntry);
        }
        Ok(DesktopFile { groups, by_name })
    }

    /// Returns the groups in the order of the file.
    #[must_use]
    pub fn groups(&self) -> &[Group<'a>] {
        &self.groups
    }

    /// Returns a group.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group<'a>> {
        self.groups.get(*self.by_name.get(name)?)
    }

    /// Returns the group with the application itself.
    #[must_use]
    pub fn main(&self) -> &Group<'a> {
        // `parse` lets no file without it through.
        self.group(MAIN).unwrap_or(&self.groups[0])
    }

    /// Returns the actions that the file lists and has, each once, in the order of the list.
    pub fn actions(&self) -> impl Iterator<Item = (Cow<'a, str>, &Group<'a>)> {
        // A short list may name a long group again and again.
        let mut listed = HashSet::new();
        self.main().list("Actions").filter_map(move |id| {
            let group = self.group(&format!("{ACTION}{id}"))?;
            listed.insert(id.clone()).then_some((id, group))
        })
    }
}

/// Returns the identifier of the desktop file at `relative`, its path below an application directory: the slashes become hyphens.
///
/// None for a path that is not UTF-8 or does not end in `.desktop`.
#[must_use]
pub(crate) fn id_of(relative: &Path) -> Option<String> {
    let text = relative.to_str()?;
    text.ends_with(".desktop").then(|| text.replace('/', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"[Desktop Entry]\nType=Application\nName=Files\nName[de]=Dateien\nName[de_AT]=Datein\nMimeType=inode/directory;text/plain;\nActions=new;gone;\n\n[Desktop Action new]\nName=New window\nExec=files --new\n";

    #[test]
    fn the_best_translation_is_found() {
        let file = DesktopFile::parse(FILE).unwrap();
        let name = |locale: &str| {
            file.main().translated("Name", &Languages::of_locale(locale)).unwrap().text()
        };
        assert_eq!(name("de_AT.UTF-8"), "Datein");
        assert_eq!(name("de_DE.UTF-8"), "Dateien");
        assert_eq!(name("sv_SE"), "Files");
        assert_eq!(name("C"), "Files");
        for locale in ["de_AT.UTF-8", "de_DE", "sv_SE", "C"] {
            let languages = Languages::of_locale(locale);
            let best = file.main().best(&languages);
            let keys: Vec<_> = best.iter().map(|entry| entry.key).collect();
            assert_eq!(keys, ["Type", "Name", "MimeType", "Actions"]);
            assert_eq!(best[1].text(), name(locale));
        }
        let austrian = Languages::of_locale("de_AT");
        let file = DesktopFile::parse_in(FILE, &Languages::of_locale("de")).unwrap();
        assert_eq!(file.main().translated("Name", &austrian).unwrap().text(), "Dateien");
    }

    #[test]
    fn actions_are_those_listed_that_are_there() {
        let file = DesktopFile::parse(FILE).unwrap();
        let twice = String::from_utf8(FILE.to_vec()).unwrap().replace("new;gone", "new;gone;new");
        let file_twice = DesktopFile::parse(twice.as_bytes()).unwrap();
        assert_eq!(file_twice.actions().count(), 1);
        let actions: Vec<_> = file.actions().map(|(id, group)| (id, group.text("Exec"))).collect();
        assert_eq!(actions, [("new".into(), Some("files --new".into()))]);
    }

    #[test]
    fn what_is_no_desktop_file_is_refused() {
        let error = |bytes: &'static [u8]| DesktopFile::parse(bytes).unwrap_err();
        assert_eq!(error(b"\xff"), DesktopError::NotKeyFile(StrayLine(1)));
        assert_eq!(error(b"[Desktop Entry]\nName=x\nstray\n"), StrayLine(3).into());
        assert_eq!(error(b"[Other]\nName=x\n"), DesktopError::NoEntry);
        assert_eq!(error(b"[Other]\n[Desktop Entry]\nName=x\n"), DesktopError::NoEntry);
        assert_eq!(error(b""), DesktopError::NoEntry);
    }

    #[test]
    fn an_identifier_has_hyphens_for_slashes() {
        assert_eq!(
            id_of(Path::new("kde/org.kde.kate.desktop")).unwrap(),
            "kde-org.kde.kate.desktop"
        );
        assert_eq!(id_of(Path::new("readme.txt")), None);
    }
}
