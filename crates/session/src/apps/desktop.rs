//! One desktop file: what an application is called, what it runs, and what it opens.

use std::borrow::Cow;
use std::path::Path;

use crate::languages::Languages;

use super::entries::{self, Entry, Line};

/// The group with the application itself.
const MAIN: &str = "Desktop Entry";

/// The start of the names of its actions' groups.
const ACTION: &str = "Desktop Action ";

/// A desktop file, borrowed from its text.
#[derive(Clone, Debug)]
pub struct DesktopFile<'a> {
    groups: Vec<Group<'a>>,
}

/// A group of entries.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its entries in the order of the file; of a key that comes twice the last counts.
    pub entries: Vec<Entry<'a>>,
}

impl<'a> Group<'a> {
    /// Returns the entry of a key without a locale.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&Entry<'a>> {
        self.entries.iter().rev().find(|entry| entry.key == key && entry.locale.is_none())
    }

    /// Returns the entry of a key in the best of the user's languages, else the one without a locale.
    #[must_use]
    pub fn translated(&self, key: &str, languages: &Languages) -> Option<&Entry<'a>> {
        let ranked =
            self.entries.iter().rev().filter(|entry| entry.key == key).filter_map(|entry| {
                let rank =
                    entry.locale.map_or(Some(usize::MAX), |locale| languages.rank(locale))?;
                Some((rank, entry))
            });
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, entry)| entry)
    }

    /// Returns a text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.entry(key).map(Entry::text)
    }

    /// Returns the values of a list.
    pub fn list(&self, key: &str) -> impl Iterator<Item = Cow<'a, str>> {
        self.entry(key).into_iter().flat_map(Entry::list)
    }

    /// Says whether a key is true.
    #[must_use]
    pub fn is_true(&self, key: &str) -> bool {
        self.entry(key).is_some_and(Entry::is_true)
    }
}

/// Why a text is no desktop file.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DesktopError {
    /// It is not UTF-8 text.
    #[error("not UTF-8 text")]
    NotText,
    /// It has no `[Desktop Entry]`.
    #[error("no [Desktop Entry] group")]
    NoEntry,
}

impl<'a> DesktopFile<'a> {
    /// Reads a desktop file.
    ///
    /// # Errors
    ///
    /// It is not text, or has no main group.
    pub fn parse(bytes: &'a [u8]) -> Result<DesktopFile<'a>, DesktopError> {
        let text = str::from_utf8(bytes).map_err(|_| DesktopError::NotText)?;
        let mut groups: Vec<Group<'a>> = Vec::new();
        let mut current = None;
        for line in entries::lines(text) {
            match line {
                Line::Group(name) => {
                    let known = groups.iter().position(|group| group.name == name);
                    current = Some(known.unwrap_or_else(|| {
                        groups.push(Group { name, entries: Vec::new() });
                        groups.len() - 1
                    }));
                }
                // An entry before the first group belongs to none.
                Line::Entry(entry) => {
                    if let Some(group) = current.and_then(|at: usize| groups.get_mut(at)) {
                        group.entries.push(entry);
                    }
                }
            }
        }
        let file = DesktopFile { groups };
        if file.group(MAIN).is_none() {
            return Err(DesktopError::NoEntry);
        }
        Ok(file)
    }

    /// Returns the groups in the order of the file.
    #[must_use]
    pub fn groups(&self) -> &[Group<'a>] {
        &self.groups
    }

    /// Returns a group.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group<'a>> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Returns the group with the application itself.
    #[must_use]
    pub fn main(&self) -> &Group<'a> {
        // `parse` lets no file without it through.
        self.group(MAIN).unwrap_or(&self.groups[0])
    }

    /// Returns the actions that the file lists and has, in the order of the list.
    pub fn actions(&self) -> impl Iterator<Item = (Cow<'a, str>, &Group<'a>)> {
        self.main().list("Actions").filter_map(|id| {
            let found =
                self.groups.iter().find(|group| group.name.strip_prefix(ACTION) == Some(&*id));
            found.map(|group| (id, group))
        })
    }
}

/// Returns the identifier of the desktop file at `relative`, its path below an application directory: the slashes become hyphens.
///
/// None for a path that is not UTF-8 or does not end in `.desktop`.
#[must_use]
pub fn id_of(relative: &Path) -> Option<String> {
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
    }

    #[test]
    fn actions_are_those_listed_that_are_there() {
        let file = DesktopFile::parse(FILE).unwrap();
        let actions: Vec<_> = file.actions().map(|(id, group)| (id, group.text("Exec"))).collect();
        assert_eq!(actions, [("new".into(), Some("files --new".into()))]);
    }

    #[test]
    fn what_is_no_desktop_file_is_refused() {
        assert_eq!(DesktopFile::parse(b"\xff").unwrap_err(), DesktopError::NotText);
        assert_eq!(DesktopFile::parse(b"Name=x\n[Other]\n").unwrap_err(), DesktopError::NoEntry);
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
