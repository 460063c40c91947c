//! The whole document: where its bookmarks are, what each says, and what of a damaged one can still be read.

use std::collections::HashMap;
use std::ops::Range;

use quick_xml::events::Event;
use quick_xml::reader::Reader;

use super::bookmark::{BookmarkFields, Damage, HasInside, Inside};
use super::markup::{Names, attribute, head, is_forbidden, is_sound};
use crate::RecentEntry;

/// The longest file that is read: a hundred thousand documents.
pub const MAX_BYTES: usize = 64 << 20;

/// Of a bookmark that says more than this no entry is made; it is kept as it is.
pub(crate) const MAX_SAID_BYTES: usize = 64 << 10;

/// What is kept of a document that is too long: with our own entries it is short enough to be read again.
const SHORTENED_BYTES: usize = 12 << 20;

/// A bookmark that is longer is dropped from a document that is too long.
const LONGEST_BOOKMARK: usize = 128 << 10;

/// How often a damaged document is read again, in its own length, before the rest is given up.
const MAX_READINGS: usize = 8;

/// A file is longer than [`MAX_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read a list of {0} bytes")]
pub struct TooLarge(pub usize);

/// Whether a document is what its writer meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It is well-formed as far as it was looked at.
    Whole,
    /// A part is lost or cannot be understood: what is not there may have been.
    Damaged,
}

/// `recently-used.xbel`, in memory.
#[derive(Clone, Debug)]
pub struct XbelDocument {
    pub(super) text: String,
    pub(super) names: Names,
    pub(super) bookmarks: Vec<Bookmark>,
    pub(super) frame: Frame,
    condition: Condition,
}

/// A bookmark of a document.
#[derive(Clone, Debug)]
pub struct Bookmark {
    /// Where it is in the text; of a damaged one where that begins.
    pub(super) place: Range<usize>,
    pub(super) source: Source,
    entry: Option<RecentEntry>,
}

/// Where the text of a bookmark comes from when nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// It is as it was read.
    Text,
    /// Only what was read of it is left.
    Entry,
}

/// What stands around the bookmarks.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    /// The tag of the root, without its angle brackets; `None` if there is none.
    pub(super) root: Option<Range<usize>>,
    /// Where new bookmarks go.
    pub(super) end: usize,
    pub(super) closing: Closing,
    /// What cannot be understood, in order, each behind the other; none holds a bookmark whose text is kept.
    pub(super) holes: Vec<Range<usize>>,
}

/// How the root ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Closing {
    /// With a tag of its own.
    Written,
    /// In its only tag.
    Empty,
    /// Not at all.
    #[default]
    Missing,
}

/// What shall become of a bookmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BookmarkChange<'a> {
    /// It stays, byte for byte.
    Keep,
    /// It goes.
    Remove,
    /// It says this from now on; what an entry does not speak of stays.
    Set(&'a RecentEntry),
}

impl Bookmark {
    /// Returns what it says; `None` if that is beyond what an entry can be.
    #[must_use]
    pub fn entry(&self) -> Option<&RecentEntry> {
        self.entry.as_ref()
    }
}

impl XbelDocument {
    /// Returns a document of nothing.
    #[must_use]
    pub fn new() -> XbelDocument {
        let mut text = head();
        let root = text.find("<xbel").map(|at| at + 1..text.len() - 1);
        let end = text.len();
        text.push_str("\n</xbel>\n");
        let frame = Frame { root, end, closing: Closing::Written, holes: Vec::new() };
        XbelDocument {
            text,
            names: Names::default(),
            bookmarks: Vec::new(),
            frame,
            condition: Condition::Whole,
        }
    }

    /// Reads a document. Any bytes give one: of what is damaged all that can be read.
    ///
    /// # Errors
    ///
    /// [`TooLarge`].
    pub fn parse(bytes: Vec<u8>) -> Result<XbelDocument, TooLarge> {
        if bytes.len() > MAX_BYTES {
            return Err(TooLarge(bytes.len()));
        }
        let (text, condition) = match (utf16_text(&bytes), String::from_utf8(bytes)) {
            (Some(text), _) => (text, Condition::Damaged),
            (None, Ok(text)) if is_possible(&text) => (text, Condition::Whole),
            (None, Ok(text)) => (readable(text.as_bytes()), Condition::Damaged),
            (None, Err(error)) => (readable(error.as_bytes()), Condition::Damaged),
        };
        let mut scan = Scan::default();
        scan.prolog(&text);
        scan.body(&text);
        let Scan { names, bookmarks, frame, condition: seen, .. } = scan;
        let condition = if seen == Condition::Damaged { seen } else { condition };
        Ok(XbelDocument { text, names, bookmarks, frame, condition })
    }

    /// Reads what can be of a document that is longer than [`MAX_BYTES`]: the last bookmarks, without those that are longer
    /// than any that a program would write. It counts as damaged.
    #[must_use]
    pub(crate) fn parse_too_large(bytes: &[u8]) -> XbelDocument {
        let shortened = shorten(bytes);
        let mut document = XbelDocument::parse(shortened).unwrap_or_default();
        document.condition = Condition::Damaged;
        document
    }

    /// Returns the bookmarks in the order of the document.
    #[must_use]
    pub fn bookmarks(&self) -> &[Bookmark] {
        &self.bookmarks
    }

    /// Returns whether something was lost.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.condition
    }
}

impl Default for XbelDocument {
    fn default() -> XbelDocument {
        XbelDocument::new()
    }
}

/// Returns whether XML can have every character of a text.
fn is_possible(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_control = |byte: u8| (byte < 0x20) & (byte != b'\t') & (byte != b'\n') & (byte != b'\r');
    // Without a way out inside, which keeps a processor from taking many at once.
    let has_control =
        |chunk: &[u8]| chunk.iter().fold(false, |found, byte| found | is_control(*byte));
    let has_noncharacter = || bytes.contains(&0xef) && text.contains(['\u{fffe}', '\u{ffff}']);
    !bytes.chunks(4096).any(has_control) && !has_noncharacter()
}

/// Makes a text of bytes that are none: each wrong byte is escaped as a URI has it, and what XML cannot have goes.
fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.extend(chunk.valid().chars().filter(|c| !is_forbidden(*c)));
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Reads a text of two bytes a character, without its declaration, which says so.
fn utf16_text(bytes: &[u8]) -> Option<String> {
    let (unit, rest): (fn([u8; 2]) -> u16, _) = match bytes {
        [0xff, 0xfe, rest @ ..] => (u16::from_le_bytes, rest),
        [0xfe, 0xff, rest @ ..] => (u16::from_be_bytes, rest),
        _ => return None,
    };
    let (units, _) = rest.as_chunks();
    let text = char::decode_utf16(units.iter().copied().map(unit));
    let text: String = text.flatten().filter(|c| !is_forbidden(*c)).collect();
    let declared = text.strip_prefix("<?xml").and_then(|rest| rest.split_once("?>"));
    Some(declared.map_or_else(|| text.clone(), |(_, rest)| rest.trim_start().to_owned()))
}

/// Returns the last bookmarks of a document that is too long, in a root of their own.
fn shorten(bytes: &[u8]) -> Vec<u8> {
    const START: &[u8] = b"<bookmark ";
    let starts: Vec<usize> = (0..bytes.len().saturating_sub(START.len()))
        .filter(|at| bytes[*at] == b'<' && bytes[*at..].starts_with(START))
        .collect();
    let mut kept = Vec::new();
    let (mut end, mut left) = (bytes.len(), SHORTENED_BYTES);
    for start in starts.into_iter().rev() {
        let len = end - start;
        if len <= LONGEST_BOOKMARK {
            let Some(rest) = left.checked_sub(len) else { break };
            left = rest;
            kept.push(start..end);
        }
        end = start;
    }
    let mut short = head().into_bytes();
    for place in kept.into_iter().rev() {
        short.extend_from_slice(&bytes[place]);
    }
    // The end of the last one may be the root's, too; what is behind that is given up.
    short.extend_from_slice(b"\n</xbel>\n");
    short
}

/// A document while it is read.
#[derive(Debug)]
struct Scan {
    names: Names,
    bookmarks: Vec<Bookmark>,
    frame: Frame,
    condition: Condition,
    /// Whether the root says its version.
    is_of_version: bool,
    /// Which bookmark is of which document.
    seen: HashMap<String, usize>,
    /// How far the text is understood.
    at: usize,
    /// Bytes that were read more than once.
    again: usize,
}

impl Default for Scan {
    fn default() -> Scan {
        Scan {
            names: Names::default(),
            bookmarks: Vec::new(),
            frame: Frame::default(),
            condition: Condition::Whole,
            is_of_version: true,
            seen: HashMap::new(),
            at: 0,
            again: 0,
        }
    }
}

impl Scan {
    /// Reads up to the tag of the root.
    fn prolog(&mut self, text: &str) {
        let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut has_junk = false;
        let mut reader = Reader::from_str(&text[start..]);
        loop {
            let from = start + position(&reader);
            let event = reader.read_event();
            self.at = start + position(&reader);
            let is_root = matches!(&event,
                Ok(Event::Start(tag) | Event::Empty(tag)) if tag.name().0 == "xbel");
            if is_root && has_junk {
                self.condition = Condition::Damaged;
                self.frame.holes.push(0..from);
            }
            match event {
                Ok(Event::Text(_) | Event::CData(_) | Event::GeneralRef(_))
                    if !text[from..self.at].trim().is_empty() =>
                {
                    has_junk = true;
                }
                Ok(Event::Start(tag)) if tag.name().0 == "xbel" => {
                    self.frame.root = Some(from + 1..self.at - 1);
                    self.names = Names::of(&tag);
                    self.frame.end = self.at;
                    self.is_of_version = attribute(&tag, "version").is_some();
                    return;
                }
                Ok(Event::Empty(tag)) if tag.name().0 == "xbel" => {
                    self.frame.root = Some(from + 1..self.at - 2);
                    self.names = Names::of(&tag);
                    self.frame.end = self.at;
                    self.frame.closing = Closing::Empty;
                    return;
                }
                Ok(Event::Start(_) | Event::Empty(_) | Event::End(_) | Event::Eof) | Err(_) => {
                    // Another kind of file, or the start is lost: bookmarks may still be in it.
                    self.at = 0;
                    self.hole(text, 0);
                    return;
                }
                Ok(_) => {}
            }
        }
    }

    /// Reads what is inside of the root.
    fn body(&mut self, text: &str) {
        while self.frame.closing == Closing::Missing && self.at < text.len() {
            let start = self.at;
            let mut reader = Reader::from_str(&text[start..]);
            let config = reader.config_mut();
            // The root was opened elsewhere.
            config.allow_unmatched_ends = true;
            let names = self.names.clone();
            let mut inside = Inside::new(&text[start..], &mut reader, &names);
            if let Err(from) = self.children(&mut inside, start) {
                self.again += (start + inside.position()).saturating_sub(from);
                self.hole(text, from);
            }
        }
        if self.frame.closing == Closing::Missing {
            self.condition = Condition::Damaged;
        } else if !is_epilogue(&text[self.at..]) {
            // Readers refuse the whole file for it.
            self.condition = Condition::Damaged;
            self.frame.holes.push(self.at..text.len());
        }
        if !self.is_of_version && !self.bookmarks.is_empty() {
            // Readers know no bookmarks in such a root.
            self.condition = Condition::Damaged;
        }
        if !Names::unbound(text).is_empty() {
            // Readers refuse the whole file for that, too; they are declared when it is written.
            self.condition = Condition::Damaged;
        }
    }

    /// Reads children of the root until it ends; else says where the text stops being understood.
    fn children(&mut self, inside: &mut Inside<'_, '_>, start: usize) -> Result<(), usize> {
        loop {
            let from = start + inside.position();
            let event = inside.reader.read_event();
            let to = start + inside.position();
            let has_inside =
                if matches!(event, Ok(Event::Start(_))) { HasInside::Yes } else { HasInside::No };
            match event {
                Ok(Event::Start(tag) | Event::Empty(tag)) if tag.name().0 == "bookmark" => {
                    let mut known = BookmarkFields::of(&tag);
                    let read = match has_inside {
                        HasInside::Yes => inside.bookmark(&mut known),
                        HasInside::No => Ok(()),
                    };
                    let read = if is_sound(&tag) { read } else { Err(Damage) };
                    let place = from..start + inside.position();
                    if read.is_ok() && (inside.take_refused() | known.is_refused()) {
                        self.refused(place, known);
                        self.drop_second();
                    } else {
                        let taken = self.bookmark(place, known, read);
                        self.drop_second();
                        taken.map_err(|Damage| from)?;
                    }
                }
                Ok(Event::Start(ref tag) | Event::Empty(ref tag)) => {
                    inside.skip(has_inside).map_err(|Damage| from)?;
                    let is_known = matches!(tag.name().0, "title" | "desc");
                    if inside.take_refused() | !is_known {
                        self.condition = Condition::Damaged;
                        self.frame.holes.push(from..start + inside.position());
                    }
                }
                Ok(Event::End(tag)) if tag.name().0 == "xbel" => {
                    self.at = to;
                    self.frame.closing = Closing::Written;
                    self.frame.end = from;
                    return Ok(());
                }
                Ok(Event::Eof) => {
                    self.at = to;
                    self.frame.end = to;
                    return Ok(());
                }
                Ok(Event::End(_)) | Err(_) => return Err(from),
                Ok(_) => {}
            }
            self.frame.end = start + inside.position();
        }
    }

    /// Takes a bookmark that was read, perhaps not to its end.
    fn bookmark(
        &mut self,
        place: Range<usize>,
        known: BookmarkFields,
        read: Result<(), Damage>,
    ) -> Result<(), Damage> {
        let read = if known.is_named() { read } else { Err(Damage) };
        let entry = if known.said_bytes() > MAX_SAID_BYTES { None } else { known.into_entry() };
        match read {
            Ok(()) => self.bookmarks.push(Bookmark { place, source: Source::Text, entry }),
            Err(Damage) if entry.is_some() => self.bookmarks.push(Bookmark {
                place: place.start..place.start,
                source: Source::Entry,
                entry,
            }),
            Err(Damage) => {}
        }
        read
    }

    /// Takes a bookmark that is well-formed and has in it what GLib refuses the whole file for: what an entry has of it stays.
    fn refused(&mut self, place: Range<usize>, known: BookmarkFields) {
        self.condition = Condition::Damaged;
        let at = place.start..place.start;
        let is_kept = known.is_named() && known.said_bytes() <= MAX_SAID_BYTES;
        if let Some(entry) = known.into_entry().filter(|_| is_kept) {
            self.bookmarks.push(Bookmark { place: at, source: Source::Entry, entry: Some(entry) });
        }
        self.frame.holes.push(place);
    }

    /// Takes the second bookmark of a document out, for which GLib refuses the whole file; what the newer one says stays.
    fn drop_second(&mut self) {
        let Some(last) = self.bookmarks.len().checked_sub(1) else { return };
        let Some(entry) = self.bookmarks[last].entry.as_ref() else { return };
        let first = *self.seen.entry(entry.uri.as_str().to_owned()).or_insert(last);
        if first == last {
            return;
        }
        let Some(second) = self.bookmarks.pop() else { return };
        self.condition = Condition::Damaged;
        self.hide(&second);
        let is_newer = |bookmark: &Bookmark| {
            bookmark.entry.as_ref().map(|entry| entry.modified)
                < second.entry.as_ref().map(|entry| entry.modified)
        };
        if self.bookmarks.get(first).is_some_and(is_newer) {
            let before = self.bookmarks[first].clone();
            self.hide(&before);
            let at = before.place.start..before.place.start;
            self.bookmarks[first] =
                Bookmark { place: at, source: Source::Entry, entry: second.entry };
        }
    }

    /// Takes the text of a bookmark out of what is written, where it is not out already.
    fn hide(&mut self, bookmark: &Bookmark) {
        if bookmark.source == Source::Text {
            let holes = &mut self.frame.holes;
            let at = holes.partition_point(|hole| hole.start < bookmark.place.start);
            holes.insert(at, bookmark.place.clone());
        }
    }

    /// Gives the text up from `from` to where the next bookmark, or the end of the root, begins.
    fn hole(&mut self, text: &str, from: usize) {
        self.condition = Condition::Damaged;
        let rest = if self.again > MAX_READINGS * text.len() { "" } else { &text[from..] };
        let next = next_start(rest).map_or(text.len(), |at| from + at);
        self.frame.holes.push(from..next);
        self.at = next;
        self.frame.end = next;
    }
}

/// Returns whether a text may stand behind the root: comments and instructions.
fn is_epilogue(text: &str) -> bool {
    let mut reader = Reader::from_str(text);
    loop {
        let from = position(&reader);
        match reader.read_event() {
            Ok(Event::Eof) => return true,
            Ok(Event::Comment(_) | Event::PI(_)) => {}
            Ok(Event::Text(_)) if text[from..position(&reader)].trim().is_empty() => {}
            Ok(_) | Err(_) => return false,
        }
    }
}

/// Finds the next place behind the first byte where a bookmark or the end of the root begins.
fn next_start(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == b'<')?;
        let tag = &bytes[at + 1..];
        let rest = tag.strip_prefix(b"bookmark").or_else(|| tag.strip_prefix(b"/xbel"));
        let after = rest.and_then(|rest| rest.first());
        if after.is_some_and(|byte| byte.is_ascii_whitespace() || *byte == b'>') {
            return Some(at);
        }
        at += 1;
    }
}

fn position(reader: &Reader<&[u8]>) -> usize {
    // A text in memory is no longer than a `usize` counts.
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}
