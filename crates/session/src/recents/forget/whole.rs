//! Files that are each about one document, and go as a whole: KDE's links, Gwenview's history, Okular's notes, thumbnails.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use store::disk::Disk;

use super::super::{Places, Timestamp};
use super::name::Name;
use super::search::plain;
use super::{Item, Kind, Survey, files};

/// A thumbnail that is larger is none.
const MOST_THUMBNAIL: usize = 16 << 20;

/// Returns the files with what they are.
pub(super) fn files(places: &Places) -> Vec<(PathBuf, Kind)> {
    let mut found: Vec<(PathBuf, Kind)> = Vec::new();
    let mut add =
        |dir: &Path, kind| found.extend(files::regular(dir).into_iter().map(|file| (file, kind)));
    add(&places.links, Kind::Links);
    for program in files::directories(&places.data) {
        // Gwenview's `recentfolders` and `recenturls`.
        for dir in files::directories(&program) {
            if files::file_name(&dir).starts_with("recent") {
                add(&dir, Kind::Reading);
            }
        }
        add(&program.join("docdata"), Kind::Reading);
    }
    for size in files::directories(&places.cache.join("thumbnails")) {
        add(&size, Kind::Thumbnails);
        // Below `fail` there is a folder a program.
        for program in files::directories(&size) {
            add(&program, Kind::Thumbnails);
        }
    }
    found
}

pub(super) fn look(places: &Places, survey: &mut Survey) {
    for (file, kind) in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        let Some(found) = document_of(&bytes, kind, places) else { continue };
        let modified = || file.metadata().map(|about| about.mtime()).ok();
        // The time of a link is when the document was opened; that of a thumbnail is not.
        let at = (kind == Kind::Links).then(modified).flatten();
        survey.items.push(Item {
            name: found.0,
            uri: None,
            kind,
            applications: found.1.or_else(|| owner(&file, kind)).into_iter().collect(),
            at: at.map(|seconds| Timestamp(seconds.saturating_mul(1_000_000))),
            file,
        });
    }
}

pub(super) fn remove(
    places: &Places,
    disk: &dyn Disk,
    chosen: &BTreeSet<Name>,
    survey: &mut Survey,
) {
    for (file, kind) in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        if document_of(&bytes, kind, places).is_some_and(|(name, _)| chosen.contains(&name)) {
            survey.read(files::remove(disk, &file));
        }
    }
}

/// Returns the program in whose folder the file is.
fn owner(file: &Path, kind: Kind) -> Option<String> {
    let program = file.parent()?.parent()?;
    (kind == Kind::Reading).then(|| files::file_name(program))
}

/// Returns the document that a file is about, and the program that it names.
fn document_of(bytes: &[u8], kind: Kind, places: &Places) -> Option<(Name, Option<String>)> {
    if kind == Kind::Thumbnails {
        return Some((Name::read(thumbnail_of(bytes)?, &places.home)?, None));
    }
    if bytes.starts_with(b"<") {
        let text = String::from_utf8_lossy(bytes);
        let url = text.split("url=\"").nth(1)?.split('"').next()?;
        let url = quick_xml::escape::unescape(url).ok()?;
        return Some((Name::read(url.as_bytes(), &places.home)?, None));
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
    Some((Name::read(&single, &places.home)?, by))
}

/// Returns the address that a thumbnail is of: the text `Thumb::URI` of its PNG file.
fn thumbnail_of(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n")?;
    if bytes.len() > MOST_THUMBNAIL {
        return None;
    }
    loop {
        let len = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?);
        let len = usize::try_from(len).ok()?;
        let (kind, data) = (rest.get(4..8)?, rest.get(8..)?.get(..len)?);
        if kind == b"tEXt"
            && let Some(uri) = data.strip_prefix(b"Thumb::URI\0")
        {
            return Some(uri);
        }
        rest = rest.get(12usize.checked_add(len)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(kind: &[u8], data: &[u8]) -> Vec<u8> {
        let len = u32::try_from(data.len()).unwrap().to_be_bytes();
        [&len[..], kind, data, &[0; 4]].concat()
    }

    #[test]
    fn a_thumbnail_names_its_document_and_a_damaged_one_none() {
        let whole = [
            b"\x89PNG\r\n\x1a\n".to_vec(),
            chunk(b"IHDR", &[0; 13]),
            chunk(b"tEXt", b"Software\0x"),
            chunk(b"tEXt", b"Thumb::URI\0file:///a%20b"),
        ]
        .concat();
        assert_eq!(thumbnail_of(&whole), Some(&b"file:///a%20b"[..]));
        for len in 0..whole.len() - 4 {
            assert_eq!(thumbnail_of(&whole[..len]), None, "{len}");
        }
        let endless = [&whole[..8], &[0xff; 30]].concat();
        assert_eq!(thumbnail_of(&endless), None);
    }
}
