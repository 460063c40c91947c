//! One bookmark, read as an entry.

use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::markup::{Attribute, ElementKind, Names, attribute, attributes, text_of};
use super::stamp;
use crate::{OpeningApplication, Privacy, RecentEntry, RecentTime, Uri};

/// Who writes what the specification describes; metadata of others are theirs.
pub(super) const OWNER: &str = "http://freedesktop.org";

/// The most groups, and the most applications, that an entry takes of a bookmark.
const MOST: usize = 1000;

/// The text of a document cannot be understood from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage;

/// What is known of a bookmark.
#[derive(Clone, Debug, Default)]
pub(super) struct BookmarkFields {
    href: Option<Uri>,
    /// Whether there is a `href` at all.
    named: bool,
    added: Option<RecentTime>,
    modified: Option<RecentTime>,
    visited: Option<RecentTime>,
    mime: Option<String>,
    groups: Vec<String>,
    title: Option<String>,
    description: Option<String>,
    privacy: Privacy,
    applications: Vec<OpeningApplication>,
    /// Whether its tag says what GLib refuses the whole file for.
    is_refused: bool,
}

impl BookmarkFields {
    /// Starts with the tag of a bookmark.
    pub(super) fn of(tag: &str) -> BookmarkFields {
        let mut known = BookmarkFields::default();
        for attribute in attributes(tag) {
            let time = || stamp::read(&attribute.value()?);
            known.is_refused |= match attribute.name {
                "href" => false,
                "added" | "modified" | "visited" => !is_taken_time(&attribute),
                _ => true,
            };
            match attribute.name {
                "href" => {
                    known.named = true;
                    known.href = attribute.value().and_then(|value| Uri::exact(value).ok());
                }
                "added" => known.added = time(),
                "modified" => known.modified = time(),
                "visited" => known.visited = time(),
                _ => {}
            }
        }
        known
    }

    /// Returns whether it has a `href`, without which GLib refuses the whole file.
    pub(super) fn is_named(&self) -> bool {
        self.named
    }

    /// Returns whether its tag says what GLib refuses the whole file for.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns how long all texts are together.
    pub(super) fn said_bytes(&self) -> usize {
        let texts = [&self.mime, &self.title, &self.description];
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let applications = self.applications.iter();
        texts.into_iter().map(length).sum::<usize>()
            + self.groups.iter().map(String::len).sum::<usize>()
            + applications.map(|one| one.name.len() + one.exec.len()).sum::<usize>()
    }

    /// Makes an entry of it; `None` if its name cannot be an entry's.
    pub(super) fn into_entry(self) -> Option<RecentEntry> {
        let uri = self.href.filter(|uri| !uri.as_str().is_empty())?;
        // A time that is not there is no time at which something happened: one that is stands for it.
        let last = self.applications.iter().map(|application| application.modified).max();
        let modified = self.modified.or(self.visited).or(self.added).or(last).unwrap_or_default();
        Some(RecentEntry {
            uri,
            mime: self.mime,
            groups: self.groups,
            title: self.title,
            description: self.description,
            privacy: self.privacy,
            added: self.added.unwrap_or(modified),
            modified,
            visited: self.visited.unwrap_or(modified),
            applications: self.applications,
        })
    }
}

/// Reads the inside of elements of a text.
pub(super) struct Inside<'t, 'r> {
    /// What the reader reads.
    pub(super) text: &'t str,
    pub(super) reader: &'r mut Reader<&'t [u8]>,
    pub(super) names: &'r Names,
    /// Where the tag that was read last begins.
    tag_at: usize,
    /// Whether something was met for which GLib refuses the whole file.
    is_refused: bool,
}

impl<'t, 'r> Inside<'t, 'r> {
    pub(super) fn new(text: &'t str, reader: &'r mut Reader<&'t [u8]>, names: &'r Names) -> Self {
        Inside { text, reader, names, tag_at: 0, is_refused: false }
    }

    /// Returns where the tag begins that was read last.
    pub(super) fn tag_at(&self) -> usize {
        self.tag_at
    }

    /// Returns how far the reader is.
    pub(super) fn position(&self) -> usize {
        // A text in memory is no longer than a `usize` counts.
        usize::try_from(self.reader.buffer_position()).unwrap_or(self.text.len())
    }

    /// Returns whether something was met, since this was asked last, for which GLib refuses the whole file.
    pub(super) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.is_refused)
    }

    /// Reads over an element that GLib does not know in this place.
    fn refuse(&mut self, has_inside: HasInside) -> Result<(), Damage> {
        self.is_refused = true;
        self.skip(has_inside)
    }

    /// Reads a bookmark to its end. What was read before a damage stays in `known`.
    pub(super) fn bookmark(&mut self, known: &mut BookmarkFields) -> Result<(), Damage> {
        while let Some((tag, has_inside)) = self.child()? {
            match (tag.name().0, has_inside) {
                // The end of the one before is lost.
                ("bookmark", _) => return Err(Damage),
                ("info", HasInside::Yes) => self.info(known)?,
                ("title", HasInside::Yes) => known.title = self.text()?,
                ("desc", HasInside::Yes) => known.description = self.text()?,
                ("info" | "title" | "desc", HasInside::No) => {}
                _ => self.refuse(has_inside)?,
            }
        }
        Ok(())
    }

    fn info(&mut self, known: &mut BookmarkFields) -> Result<(), Damage> {
        while let Some((tag, has_inside)) = self.child()? {
            match (tag.name().0, has_inside) {
                ("bookmark", _) => return Err(Damage),
                ("metadata", HasInside::Yes)
                    if attribute(&tag, "owner").is_some_and(|owner| owner == OWNER) =>
                {
                    self.metadata(known)?;
                }
                // Of others' it takes the tag, and nothing inside.
                ("metadata", _) => self.skip(has_inside)?,
                _ => self.refuse(has_inside)?,
            }
        }
        Ok(())
    }

    fn metadata(&mut self, known: &mut BookmarkFields) -> Result<(), Damage> {
        while let Some((tag, has_inside)) = self.child()? {
            if tag.name().0 == "bookmark" {
                return Err(Damage);
            }
            match self.names.kind(tag.name().0) {
                ElementKind::MimeType => {
                    known.mime = attribute(&tag, "type").map(String::from).or(known.mime.take());
                    self.skip(has_inside)?;
                }
                ElementKind::Private => {
                    known.privacy = Privacy::Private;
                    self.skip(has_inside)?;
                }
                ElementKind::Groups if has_inside == HasInside::Yes => self.groups(known)?,
                ElementKind::Applications if has_inside == HasInside::Yes => {
                    self.applications(known)?
                }
                ElementKind::Groups | ElementKind::Applications => {}
                ElementKind::Icon => {
                    self.is_refused |= attribute(&tag, "href").is_none();
                    self.skip(has_inside)?;
                }
                ElementKind::Group | ElementKind::Application | ElementKind::Other => {
                    self.refuse(has_inside)?
                }
            }
        }
        Ok(())
    }

    fn groups(&mut self, known: &mut BookmarkFields) -> Result<(), Damage> {
        while let Some((tag, has_inside)) = self.child()? {
            let is_group = self.names.kind(tag.name().0) == ElementKind::Group;
            self.is_refused |= !is_group;
            if is_group && has_inside == HasInside::Yes {
                let group = self.text()?;
                known
                    .groups
                    .extend(group.filter(|group| {
                        known.groups.len() < MOST && !known.groups.contains(group)
                    }));
            } else {
                self.skip(has_inside)?;
            }
        }
        Ok(())
    }

    fn applications(&mut self, known: &mut BookmarkFields) -> Result<(), Damage> {
        while let Some((tag, has_inside)) = self.child()? {
            let is_application = self.names.kind(tag.name().0) == ElementKind::Application;
            self.is_refused |= !is_application || !is_taken_application(&tag);
            if is_application
                && let Some(application) = application(&tag)
                && known.applications.len() < MOST
            {
                match known.applications.iter_mut().find(|other| other.name == application.name) {
                    Some(other) if other.modified > application.modified => {}
                    Some(other) => *other = application,
                    None => known.applications.push(application),
                }
            }
            self.skip(has_inside)?;
        }
        Ok(())
    }

    /// Reads on to the next child; `None` at the end of the element.
    pub(super) fn child(&mut self) -> Result<Option<(BytesStart<'t>, HasInside)>, Damage> {
        loop {
            self.tag_at = self.position();
            match self.reader.read_event() {
                Ok(Event::Start(tag)) => return Ok(Some((tag, HasInside::Yes))),
                Ok(Event::Empty(tag)) => return Ok(Some((tag, HasInside::No))),
                Ok(Event::End(_)) => return Ok(None),
                Ok(Event::Eof) | Err(_) => return Err(Damage),
                Ok(_) => {}
            }
        }
    }

    /// Reads to the end of an element, however deep it is.
    pub(super) fn skip(&mut self, has_inside: HasInside) -> Result<(), Damage> {
        let mut depth = match has_inside {
            HasInside::Yes => 1_usize,
            HasInside::No => return Ok(()),
        };
        while depth > 0 {
            self.tag_at = self.position();
            match self.reader.read_event() {
                Ok(Event::Start(tag)) if tag.name().0 != "bookmark" => {
                    self.is_refused = true;
                    depth += 1;
                }
                Ok(Event::End(_)) => depth -= 1,
                Ok(Event::Empty(_)) => self.is_refused = true,
                Ok(Event::Start(_) | Event::Eof) | Err(_) => return Err(Damage),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Reads the text of an element to its end; `None` if there is none or it cannot be read.
    fn text(&mut self) -> Result<Option<String>, Damage> {
        let from = self.position();
        self.skip(HasInside::Yes)?;
        let inside = self.text.get(from..self.tag_at);
        Ok(inside.and_then(text_of).filter(|text| !text.is_empty()).map(String::from))
    }
}

/// Returns whether GLib takes a time: ISO 8601 with its zone.
fn is_taken_time(attribute: &Attribute<'_>) -> bool {
    attribute.value().is_some_and(|value| value.parse::<jiff::Timestamp>().is_ok())
}

/// Returns whether GLib takes the tag of an application, which must have a name and a command line.
fn is_taken_application(tag: &str) -> bool {
    let (mut has_name, mut has_exec, mut is_sound) = (false, false, true);
    for attribute in attributes(tag) {
        match attribute.name {
            "name" => has_name = true,
            "exec" => has_exec = true,
            "modified" => is_sound &= is_taken_time(&attribute),
            _ => {}
        }
    }
    has_name && has_exec && is_sound
}

/// Whether an element is written with a tag at each end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasInside {
    Yes,
    No,
}

/// Reads the tag of an application; `None` if it has no name.
fn application(tag: &str) -> Option<OpeningApplication> {
    let mut read = OpeningApplication {
        name: String::new(),
        exec: String::new(),
        count: 1,
        modified: RecentTime::default(),
    };
    for attribute in attributes(tag) {
        match (attribute.name, attribute.value()) {
            ("name", Some(value)) => read.name = value.into_owned(),
            ("exec", Some(value)) => read.exec = value.into_owned(),
            ("count", Some(value)) => read.count = value.trim().parse().unwrap_or(1),
            ("modified", Some(value)) => {
                read.modified = stamp::read(&value).unwrap_or(read.modified);
            }
            // Seconds since 1970, as GLib wrote them before 2.66.
            ("timestamp", Some(value)) if read.modified == RecentTime::default() => {
                let seconds: i64 = value.trim().parse().unwrap_or_default();
                read.modified = RecentTime(seconds.saturating_mul(1_000_000));
            }
            _ => {}
        }
    }
    (!read.name.is_empty()).then_some(read)
}
