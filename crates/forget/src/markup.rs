//! Lists in XML: the playlist of a session, what an editor keeps of each document.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use store::disk::Disk;

use super::name::DocumentName;
use super::{RememberedDocument, StoreKind, Survey, files, owner};
use recents::RecentsFiles;

/// A list is no larger than this.
const MOST_BYTES: usize = 16 << 20;

/// Elements that are each about one document: what they are called, and where they name it.
const RECORDS: [(&str, Naming); 2] =
    [("track", Naming::Element("location")), ("document", Naming::Attribute("uri"))];

/// Where an element names its document.
#[derive(Clone, Copy)]
enum Naming {
    /// In the text of an element inside.
    Element(&'static str),
    /// In an attribute.
    Attribute(&'static str),
}

/// Returns the files: playlists in the folders of programs, and `gedit-metadata.xml` and its like.
pub(super) fn files(places: &RecentsFiles) -> Vec<PathBuf> {
    let bases = [&places.config, &places.data];
    let folders = bases.into_iter().flat_map(|base| files::directories(base));
    let mut found: Vec<PathBuf> = folders.flat_map(|dir| files::regular(&dir)).collect();
    found.retain(|path| {
        let name = files::file_name(path);
        name.ends_with(".xspf") || name.ends_with("-metadata.xml")
    });
    found
}

pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    for file in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        let Ok(text) = str::from_utf8(&bytes) else { continue };
        let applications: Vec<String> =
            file.parent().map(files::file_name).into_iter().chain(owner(&file)).collect();
        survey.items.extend(records(text, places).into_iter().map(|(name, _)| {
            RememberedDocument::in_file(name, StoreKind::Reading, &file, applications.clone())
        }));
    }
}

pub(super) fn remove(
    places: &RecentsFiles,
    disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    for file in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        let Ok(text) = str::from_utf8(&bytes) else { continue };
        if let Some(image) = without(text, &records(text, places), chosen) {
            survey.read(files::replace(disk, &file, image.as_bytes()));
        }
    }
}

/// Returns the text without the chosen records and the blanks before them; `None` if there are none.
fn without(
    text: &str,
    records: &[(DocumentName, Range<usize>)],
    chosen: &BTreeSet<DocumentName>,
) -> Option<String> {
    let mut image = String::with_capacity(text.len());
    let mut at = 0;
    for (_, place) in records.iter().filter(|(name, _)| chosen.contains(name)) {
        let before = text.get(at..place.start)?;
        image.push_str(before.trim_end());
        at = place.end;
    }
    image.push_str(&text[at..]);
    (at > 0).then_some(image)
}

/// Returns the documents with the places of their elements, in order.
fn records(text: &str, places: &RecentsFiles) -> Vec<(DocumentName, Range<usize>)> {
    let mut found = Vec::new();
    if text.len() > MOST_BYTES {
        return found;
    }
    for (tag, naming) in RECORDS {
        let mut from = 0;
        while let Some(place) = element(text, tag, from) {
            from = place.end;
            let raw = match naming {
                Naming::Attribute(name) => {
                    between(&text[place.clone()], &format!(" {name}=\""), "\"")
                }
                Naming::Element(name) => {
                    between(&text[place.clone()], &format!("<{name}>"), &format!("</{name}>"))
                }
            };
            let value = raw.and_then(|raw| quick_xml::escape::unescape(raw.trim()).ok());
            let name = value.and_then(|value| DocumentName::read(value.as_bytes(), &places.home));
            found.extend(name.map(|name| (name, place)));
        }
    }
    found.sort_by_cached_key(|(_, place)| place.start);
    found
}

/// Finds the next element of this name from a place on, with its end tag.
fn element(text: &str, tag: &str, from: usize) -> Option<Range<usize>> {
    let opening = format!("<{tag}");
    let mut at = from;
    loop {
        let start = at + text.get(at..)?.find(&opening)?;
        at = start + opening.len();
        let rest = &text[at..];
        if !rest.starts_with(|c: char| c.is_ascii_whitespace() || c == '>' || c == '/') {
            continue;
        }
        let head = rest.find('>')?;
        if rest[..head].ends_with('/') {
            return Some(start..at + head + 1);
        }
        let closing = format!("</{tag}>");
        let end = at + rest.find(&closing)? + closing.len();
        return Some(start..end);
    }
}

fn between<'a>(text: &'a str, before: &str, behind: &str) -> Option<&'a str> {
    let start = text.find(before)? + before.len();
    let len = text[start..].find(behind)?;
    Some(&text[start..start + len])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forget(text: &str, path: &str) -> Option<String> {
        let places = RecentsFiles::below("/home/u".as_ref());
        let chosen = [DocumentName::of_path(std::path::Path::new(path))].into();
        without(text, &records(text, &places), &chosen)
    }

    #[test]
    fn a_record_goes_with_all_that_is_in_it() {
        let list = "<playlist>\n <trackList>\n  <track>\n   <location>file:///a%20&amp;.wav</location>\n  </track>\n  <track><location>file:///b</location></track>\n </trackList>\n</playlist>";
        let wanted = "<playlist>\n <trackList>\n  <track><location>file:///b</location></track>\n </trackList>\n</playlist>";
        assert_eq!(forget(list, "/a &.wav").unwrap(), wanted);
        assert_eq!(forget(list, "/a"), None);
        let metadata = "<metadata>\n <document uri=\"file:///a\" atime=\"1\">\n  <entry key=\"x\"/>\n </document>\n <document uri=\"file:///b\" atime=\"1\"/>\n</metadata>\n";
        assert_eq!(
            forget(metadata, "/a").unwrap(),
            "<metadata>\n <document uri=\"file:///b\" atime=\"1\"/>\n</metadata>\n"
        );
        assert_eq!(
            forget(metadata, "/b").unwrap(),
            "<metadata>\n <document uri=\"file:///a\" atime=\"1\">\n  <entry key=\"x\"/>\n </document>\n</metadata>\n"
        );
    }

    #[test]
    fn any_text_is_searched_for_records() {
        for text in
            ["<track", "<track>", "<track/", "<tracks><track><location>", "<document uri=\""]
        {
            assert_eq!(forget(text, "/a"), None, "{text}");
        }
    }
}
