//! Lists of documents in files of settings: Okular's and Kate's `[Recent Files]`, VLC's, those of file dialogs of KDE and Qt.
//!
//! Files are taken as lines, so that whatever else they hold stays as it is, byte for byte.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use store::disk::Disk;

use super::name::DocumentName;
use super::name_search::plain;
use super::{RememberedDocument, StoreKind, Survey, files, owner};
use recents::RecentsFiles;

/// A file of settings is no larger than this.
const MOST_BYTES: usize = 8 << 20;

/// How many folders below the configuration files of settings may lie: `GIMP/2.10/gimprc`.
const DEPTH: usize = 3;

/// Returns the files of settings: below the configuration, what KDE keeps as state, and the sessions of its editors.
pub(super) fn files(places: &RecentsFiles) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![places.config.clone(), places.state_home()];
    for _ in 0..DEPTH {
        found.extend(folders.iter().flat_map(|dir| files::regular(dir)));
        folders = folders.iter().flat_map(|dir| files::directories(dir)).collect();
    }
    for program in files::directories(&places.data) {
        found.extend(files::regular(&program.join("sessions")));
        found.extend(files::regular(&program));
    }
    // The session manager of KDE's has a file for each program, under any name.
    let of_session = places.config.join("session");
    found.retain(|path| {
        let name = files::file_name(path);
        let endings = [".conf", "rc", ".ini", SESSION, METADATA];
        name == "kdeglobals"
            || endings.iter().any(|end| name.ends_with(end))
            || path.parent() == Some(&*of_session)
    });
    found.sort();
    found.dedup();
    found
}

/// The end of the names of files in which KDE's editors keep something of each document: a group each.
const METADATA: &str = "metainfos";
/// The end of the names of files with the documents that were open in KDE's editors.
const SESSION: &str = ".katesession";

/// The beginning of the keys of Geany's session.
const FROM_ZERO: &[u8] = b"FILE_NAME_";

/// What the groups of a file are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Groups {
    /// Some are about one document each, which their `URL` names: they go as a whole.
    Documents,
    /// Settings.
    Settings,
}

fn groups_of(file: &Path) -> Groups {
    let name = files::file_name(file);
    let is_kates = name.ends_with(METADATA) || name.ends_with(SESSION);
    if is_kates { Groups::Documents } else { Groups::Settings }
}

pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    for file in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        let groups = groups_of(&file);
        let folder = file.parent().map(files::file_name).filter(|_| groups == Groups::Documents);
        let applications: Vec<String> = owner(&file).into_iter().chain(folder).collect();
        for line in lines(&bytes).iter().filter(|line| line.names_documents(groups)) {
            let names = line
                .elements()
                .into_iter()
                .flat_map(|e| DocumentName::in_element(&plain(e), &places.home));
            survey.items.extend(names.map(|name| {
                RememberedDocument::in_file(name, StoreKind::Settings, &file, applications.clone())
            }));
        }
    }
}

pub(super) fn remove(
    places: &RecentsFiles,
    disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    let is_chosen = |element: &[u8]| {
        DocumentName::in_element(&plain(element), &places.home)
            .iter()
            .any(|name| chosen.contains(name))
    };
    for file in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        if let Some(image) = without(&bytes, groups_of(&file), is_chosen) {
            survey.read(files::replace(disk, &file, &image));
        }
    }
}

/// A line, and the group in which it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// With what ends it.
    pub(super) whole: &'a [u8],
    pub(super) group: &'a [u8],
    /// Without blanks around; empty for a line that is no entry.
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

pub(super) fn lines(bytes: &[u8]) -> Vec<Line<'_>> {
    if bytes.len() > MOST_BYTES {
        return Vec::new();
    }
    let mut group = &bytes[..0];
    let mut lines = Vec::new();
    for whole in bytes.split_inclusive(|b| *b == b'\n') {
        let text = whole.trim_ascii();
        let mut line = Line { whole, group, key: &[], value: &[] };
        if let Some(inside) = text.strip_prefix(b"[") {
            group = inside.strip_suffix(b"]").unwrap_or(inside);
            line.group = group;
        } else if let Some(equals) = text.iter().position(|b| *b == b'=') {
            line.key = text[..equals].trim_ascii();
            line.value = text[equals + 1..].trim_ascii();
        }
        lines.push(line);
    }
    lines
}

impl<'a> Line<'a> {
    /// Whether the entry is one of a list of documents.
    fn is_list(&self) -> bool {
        let says = |text: &[u8], word: &[u8]| {
            text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
        };
        let of_dialog =
            self.group == b"FileDialog" && [&b"history"[..], b"lastVisited"].contains(&self.key);
        // Geany's session, and what FeatherPad, and others of its kind, open again.
        let of_session = self.is_numbered_from_zero() || says(self.key, b"lastfile");
        let is_recent = says(self.group, b"recent") || says(self.key, b"recent");
        !self.key.is_empty() && (is_recent || of_dialog || of_session)
    }

    /// Whether the entry is one of Geany's session, which is read up to the first number that is missing.
    fn is_numbered_from_zero(&self) -> bool {
        self.key.starts_with(FROM_ZERO)
    }

    /// Whether the entry says which document its group is about.
    fn is_document(&self, groups: Groups) -> bool {
        groups == Groups::Documents && self.key == b"URL"
    }

    /// Whether the entry may name documents: in a file about documents every one does.
    fn names_documents(&self, groups: Groups) -> bool {
        !self.key.is_empty() && (groups == Groups::Documents || self.is_list())
    }

    /// Returns the document in the name of the group: `MainWindow0-ViewSpace 0 file:///a`.
    fn named_in_group(&self, groups: Groups) -> Option<&'a [u8]> {
        let start = self.group.windows(6).position(|part| part == b"file:/")?;
        (groups == Groups::Documents).then(|| &self.group[start..])
    }

    /// Returns the number of a key such as `File3[$e]`.
    fn number(&self) -> Option<&'a [u8]> {
        let end = self.key.iter().position(|b| *b == b'[').unwrap_or(self.key.len());
        let key = &self.key[..end];
        let digits = key.iter().rposition(|b| !b.is_ascii_digit())? + 1;
        (digits < key.len()).then(|| &key[digits..])
    }

    /// Returns the parts of the value, as they are written; the whole of one that is no list.
    fn elements(&self) -> Vec<&'a [u8]> {
        if self.number().is_some() { vec![self.value] } else { split(self.value) }
    }
}

/// Splits a value at its commas, or at its semicolons where one ends it, as GLib writes lists; not at `\,`, nor inside of
/// quotes.
fn split(value: &[u8]) -> Vec<&[u8]> {
    let separator = separator_of(value);
    let (mut parts, mut start, mut is_quoted, mut at) = (Vec::new(), 0, false, 0);
    while at < value.len() {
        match value[at] {
            b'\\' => at += 1,
            b'"' => is_quoted = !is_quoted,
            byte if byte == separator && !is_quoted => {
                parts.push(value[start..at].trim_ascii());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(value[start..].trim_ascii());
    parts
}

/// Returns what stands between the elements of a value.
fn separator_of(value: &[u8]) -> u8 {
    if value.ends_with(b";") { b';' } else { b',' }
}

/// Returns the file without what is chosen of its lists; `None` if nothing is.
fn without(bytes: &[u8], groups: Groups, is_chosen: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let lines = lines(bytes);
    let of_documents: BTreeSet<&[u8]> = lines
        .iter()
        .filter(|line| {
            (line.is_document(groups) && is_chosen(line.value))
                || line.named_in_group(groups).is_some_and(&is_chosen)
        })
        .map(|line| line.group)
        .collect();
    // Of an entry with a number, others of its group with that number say more: `Name3` of `File3`.
    let mut numbers = BTreeSet::new();
    // Of an element of a list, others in its group at the same place do: `times` of `list`.
    let mut places = Vec::new();
    for line in lines.iter().filter(|line| line.names_documents(groups)) {
        let elements = line.elements();
        let chosen: Vec<usize> =
            (0..elements.len()).filter(|at| is_chosen(elements[*at])).collect();
        match line.number() {
            Some(number) if !chosen.is_empty() => {
                numbers.insert((line.group, number));
            }
            None if !chosen.is_empty() => {
                places.push((line.group, line.key, elements.len(), chosen))
            }
            _ => {}
        }
    }
    if numbers.is_empty() && places.is_empty() && of_documents.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut next_from_zero = 0;
    for line in lines.iter().filter(|line| !of_documents.contains(line.group)) {
        if line.key.is_empty() {
            out.extend_from_slice(line.whole);
            continue;
        }
        if line.number().is_some_and(|number| numbers.contains(&(line.group, number))) {
            continue;
        }
        if line.is_numbered_from_zero() {
            let equals = line.whole.iter().position(|b| *b == b'=').unwrap_or_default();
            out.extend_from_slice(FROM_ZERO);
            out.extend_from_slice(next_from_zero.to_string().as_bytes());
            out.extend_from_slice(&line.whole[equals..]);
            next_from_zero += 1;
            continue;
        }
        let elements = line.elements();
        let meant = places.iter().find(|(group, key, count, _)| {
            let is_same = *group == line.group && *key == line.key;
            let is_beside =
                *group == line.group && line.key == b"times" && *count == elements.len();
            is_same || is_beside
        });
        let Some((.., removed)) = meant else {
            out.extend_from_slice(line.whole);
            continue;
        };
        let kept: Vec<&[u8]> =
            (0..elements.len()).filter(|at| !removed.contains(at)).map(|at| elements[at]).collect();
        if kept.iter().all(|element| element.is_empty()) {
            continue;
        }
        let separator: &[u8] = match separator_of(line.value) {
            b',' if line.value.windows(2).any(|two| two == b", ") => b", ",
            b',' => b",",
            _ => b";",
        };
        let start = line.whole.iter().position(|b| *b == b'=').map_or(0, |equals| equals + 1);
        out.extend_from_slice(&line.whole[..start]);
        out.extend_from_slice(&kept.join(separator));
        let end =
            line.whole.iter().rposition(|b| !b.is_ascii_whitespace()).map_or(0, |last| last + 1);
        out.extend_from_slice(&line.whole[end..]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forget(text: &str, paths: &[&str]) -> Option<String> {
        forget_in(Groups::Settings, text, paths)
    }

    fn forget_in(groups: Groups, text: &str, paths: &[&str]) -> Option<String> {
        let chosen: Vec<DocumentName> =
            paths.iter().map(|path| DocumentName::of_path(Path::new(path))).collect();
        let is_chosen = |element: &[u8]| {
            let names = DocumentName::in_element(&plain(element), Path::new("/home/u"));
            names.iter().any(|name| chosen.contains(name))
        };
        without(text.as_bytes(), groups, is_chosen).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn a_numbered_entry_goes_with_its_name() {
        let text = "# mine\n[Recent Files]\nFile1[$e]=$HOME/a, b.pdf\nFile2[$e]=/tmp/c.pdf\nName1[$e]=a, b.pdf\nName2[$e]=c.pdf\n\n[Other]\nFile1=/home/u/a, b.pdf\n";
        let wanted = "# mine\n[Recent Files]\nFile2[$e]=/tmp/c.pdf\nName2[$e]=c.pdf\n\n[Other]\nFile1=/home/u/a, b.pdf\n";
        assert_eq!(forget(text, &["/home/u/a, b.pdf"]).unwrap(), wanted);
        assert_eq!(forget(text, &["/home/u/none"]), None);
    }

    #[test]
    fn an_element_goes_out_of_a_list_and_so_does_what_is_beside_it() {
        let text = "[RecentsMRL]\nlist=file:///home/u/a%20b.mp4, file:///c.mp4, \"file:///d,e.mp4\"\ntimes=1, 2, 3\r\n";
        let wanted = "[RecentsMRL]\nlist=file:///c.mp4, \"file:///d,e.mp4\"\ntimes=2, 3\r\n";
        assert_eq!(forget(text, &["/home/u/a b.mp4"]).unwrap(), wanted);
        let last = forget(wanted, &["/c.mp4", "/d,e.mp4"]).unwrap();
        assert_eq!(last, "[RecentsMRL]\n");
        let dialog =
            "[FileDialog]\nhistory=file:///a, file:///b\nlastVisited=file:///b\nqtVersion=5";
        assert_eq!(
            forget(dialog, &["/b"]).unwrap(),
            "[FileDialog]\nhistory=file:///a\nqtVersion=5"
        );
        let kde = "[KFileDialog Settings]\nRecent URLs[$e]=file:$HOME/x,file:///y\\,z\nOther=file:///y,z\n";
        assert_eq!(
            forget(kde, &["/y,z"]).unwrap(),
            "[KFileDialog Settings]\nRecent URLs[$e]=file:$HOME/x\nOther=file:///y,z\n"
        );
    }

    #[test]
    fn geanys_lists_forget_and_stay_readable() {
        let text = "[files]\nrecent_files=/a b;/c,d;\nrecent_projects=\ncurrent_page=0\nFILE_NAME_0=22;None;0;EUTF-8;0;1;0;%2Fa%20b;0;2\nFILE_NAME_1=0;C;0;EUTF-8;0;1;0;%2Fc%2Cd;0;2\n";
        let wanted = "[files]\nrecent_files=/c,d;\nrecent_projects=\ncurrent_page=0\nFILE_NAME_0=0;C;0;EUTF-8;0;1;0;%2Fc%2Cd;0;2\n";
        assert_eq!(forget(text, &["/a b"]).unwrap(), wanted);
        assert_eq!(
            forget(wanted, &["/c,d"]).unwrap(),
            "[files]\nrecent_projects=\ncurrent_page=0\n"
        );
    }

    #[test]
    fn a_group_about_a_document_goes_as_a_whole() {
        let text = "[Document 0]\nMode=Normal\nURL=file:///a%20b\n\n[Document 1]\nURL=file:///c\n\n[View]\nActive=file:///a%20b\nx=1\n[View 0 file:///a%20b]\nCursor=1\n";
        let wanted = "[Document 1]\nURL=file:///c\n\n[View]\nx=1\n";
        assert_eq!(forget_in(Groups::Documents, text, &["/a b"]).unwrap(), wanted);
        assert_eq!(forget(text, &["/a b"]), None, "elsewhere it is a setting like any");
    }

    #[test]
    fn any_bytes_are_a_file_of_settings() {
        for text in ["", "=", "[", "[Recent", "[Recent]\n=\nx=\\", "[Recent]\n1=/a\n\0=\"/b,"] {
            forget(text, &["/a", "/b"]);
        }
    }
}
