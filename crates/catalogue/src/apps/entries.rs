//! The lines of a desktop file, a `mimeapps.list` or a `mimeinfo.cache`: groups and entries, borrowed, with their line numbers.
//!
//! Desktop Entry Specification 1.5, chapters 3 and 4, read as GLib does, so that the same files count: a line that is neither a group, an entry nor a comment makes the whole file no key file. Only what is asked for has to be text: comments and other entries may have any bytes, and a value that is no text is an empty one.

use std::borrow::Cow;
use std::collections::HashMap;

use xdg::keyfile::{group_of_line, is_group_name, is_key_name};

/// The largest file that is read: the largest real one has 120 KB, and somebody's program of 207 MB was once named `*.desktop`.
pub const FILE_MAX: u64 = 4 << 20;

/// A line that says something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyFileLine<'a> {
    /// The start of a group.
    Group(&'a str),
    /// An entry of the group before it.
    Entry(KeyFileEntry<'a>),
}

/// An entry: `key[locale]=value`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeyFileEntry<'a> {
    /// The key without its locale.
    pub key: &'a str,
    /// The locale, of a translated one.
    pub locale: Option<&'a str>,
    /// The value as it stands, escapes and all.
    pub raw: &'a str,
    /// Its line, from 1.
    pub line: u32,
}

impl<'a> KeyFileEntry<'a> {
    /// Returns the value as a text: `\s \n \t \r \\` stand for what they say; any other escape stays as it is.
    #[must_use]
    pub fn text(&self) -> Cow<'a, str> {
        unescaped(self.raw)
    }

    /// Returns the values of a list, between semicolons; `\;` is a semicolon in a value. Empty ones are left out.
    pub fn list(&self) -> impl Iterator<Item = Cow<'a, str>> + use<'a> {
        let mut rest = self.raw;
        let parts = std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let end = list_end(rest);
            let part = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            Some(part)
        });
        parts.map(|part| unescaped_list_part(part.trim())).filter(|part| !part.is_empty())
    }

    /// Returns whether the value is true; anything but `true` (and the old `1`) is not.
    #[must_use]
    pub fn is_true(&self) -> bool {
        matches!(self.raw.trim_end(), "true" | "1")
    }
}

/// Returns where the first value of a list ends.
fn list_end(list: &str) -> usize {
    let bytes = list.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b';' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn unescaped_list_part(part: &str) -> Cow<'_, str> {
    if part.contains("\\;") {
        Cow::Owned(unescaped(&part.replace("\\;", ";")).into_owned())
    } else {
        unescaped(part)
    }
}

/// Returns a text without its escapes.
fn unescaped(raw: &str) -> Cow<'_, str> {
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    let mut text = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('s') => text.push(' '),
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('\\') => text.push('\\'),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    Cow::Owned(text)
}

/// The number of a line that is no group, entry or comment, or not where it may be.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {0} is no group, entry or comment of a key file")]
pub struct StrayLine(pub u32);

/// Reads the lines of a key file that say something.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = Result<KeyFileLine<'_>, StrayLine>> {
    // Most files are text as a whole, and are looked at once.
    let text = str::from_utf8(bytes).ok();
    let has_zero = bytes.contains(&0);
    let mut at = 0;
    let mut place = Place::Start;
    bytes.split(|byte| *byte == b'\n').zip(1_u32..).filter_map(move |(line, number)| {
        let start = at;
        at += line.len() + 1;
        // What follows a zero is not there for GLib.
        let line = match has_zero {
            true => line.split(|byte| *byte == 0).next().unwrap_or_default(),
            false => line,
        };
        let said = match text {
            Some(text) => text.get(start..start + line.len()),
            None => str::from_utf8(line).ok(),
        };
        let read = match said {
            Some(line) => line_of(line, number, &mut place),
            None => line_of_bytes(line, number, &mut place),
        };
        read.transpose()
    })
}

/// What comes before a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// No group.
    Start,
    /// The first group.
    First,
    /// A later one.
    Later,
}

impl Place {
    fn next(self) -> Place {
        if self == Place::Start { Place::First } else { Place::Later }
    }
}

/// Reads a line of text; none if it says nothing.
fn line_of<'a>(
    line: &'a str,
    number: u32,
    place: &mut Place,
) -> Result<Option<KeyFileLine<'a>>, StrayLine> {
    let stray = || StrayLine(number);
    let line = line.strip_suffix('\r').unwrap_or(line).trim_ascii_start();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    if let Some(name) = group_of_line(line.as_bytes()) {
        let name = line.get(1..=name.len()).filter(|name| is_group_name(name));
        *place = place.next();
        return Ok(Some(KeyFileLine::Group(name.ok_or_else(stray)?)));
    }
    let (name, raw) = line.split_once('=').ok_or_else(stray)?;
    let (name, raw) = (name.trim_ascii_end(), raw.trim_ascii_start());
    if *place == Place::Start || !is_key_name(name) {
        return Err(stray());
    }
    if *place == Place::First && name == "Encoding" && !raw.eq_ignore_ascii_case("UTF-8") {
        return Err(stray());
    }
    let (key, locale) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
        Some((key, locale)) => (key, Some(locale)),
        None => (name, None),
    };
    Ok(Some(KeyFileLine::Entry(KeyFileEntry { key, locale, raw, line: number })))
}

/// Reads a line that is no text as a whole: of its entry the key may be, and its value counts as an empty one.
fn line_of_bytes<'a>(
    line: &'a [u8],
    number: u32,
    place: &mut Place,
) -> Result<Option<KeyFileLine<'a>>, StrayLine> {
    let shown = String::from_utf8_lossy(line);
    // Only whether it is a line of a key file is asked of this text.
    let read = line_of(&shown, number, place)?;
    let Some(KeyFileLine::Entry(entry)) = read else {
        // No group that is asked for has such a name.
        return Ok(read.map(|_| KeyFileLine::Group("\u{fffd}")));
    };
    let end = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
    let name = str::from_utf8(&line[..end]).ok().map(|name| name.trim_ascii());
    let Some(name) = name else { return Ok(None) };
    let (key, locale) = match entry.locale {
        Some(_) => name.strip_suffix(']').and_then(|name| name.split_once('[')).unzip(),
        None => (Some(name), None),
    };
    let entry = KeyFileEntry { key: key.unwrap_or(name), locale, raw: "", line: number };
    Ok(Some(KeyFileLine::Entry(entry)))
}

/// Reads the entries of one group, each as often as it is there; a group that comes twice is one.
///
/// # Errors
///
/// It is no key file.
pub fn group<'a>(bytes: &'a [u8], name: &str) -> Result<Vec<KeyFileEntry<'a>>, StrayLine> {
    let mut inside = false;
    let mut entries = Vec::new();
    for line in lines(bytes) {
        match line? {
            KeyFileLine::Group(group) => inside = group == name,
            KeyFileLine::Entry(entry) if inside => entries.push(entry),
            KeyFileLine::Entry(_) => {}
        }
    }
    Ok(entries)
}

/// Returns the entries of one group without a locale as GLib and KDE read them: of a key that comes several times the last one counts, at the place of the first.
///
/// # Errors
///
/// It is no key file.
pub(crate) fn last_of_each<'a>(
    bytes: &'a [u8],
    name: &str,
) -> Result<Vec<KeyFileEntry<'a>>, StrayLine> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut last: Vec<KeyFileEntry<'a>> = Vec::new();
    for entry in group(bytes, name)?.into_iter().filter(|entry| entry.locale.is_none()) {
        let place = *places.entry(entry.key).or_insert(last.len());
        match last.get_mut(place) {
            Some(known) => *known = entry,
            None => last.push(entry),
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_entries_and_locales_are_told_apart() {
        let text =
            "# c\n[A]\r\nName=x\nName[de_DE@euro] = y \n\t#\n \n[B ]\nA=1;2\\;3;;4\n[A]\nLast=1";
        let found = group(text.as_bytes(), "A").unwrap();
        let found: Vec<_> = found.iter().map(|e| (e.key, e.locale, e.raw, e.line)).collect();
        assert_eq!(
            found,
            [
                ("Name", None, "x", 3),
                ("Name", Some("de_DE@euro"), "y ", 4),
                ("Last", None, "1", 10)
            ]
        );
        let found = group(text.as_bytes(), "B ").unwrap();
        let list: Vec<_> = found.iter().flat_map(KeyFileEntry::list).collect();
        assert_eq!(list, ["1", "2;3", "4"]);
    }

    #[test]
    fn a_line_that_glib_does_not_take_makes_it_no_key_file() {
        for (stray, line) in [
            (&b"[A]\nbroken\n"[..], 2),
            (b"[A]\n=z\n", 2),
            (b"x=1\n[A]\n", 1),
            (b"[A]\nx=1\na[de=1\n", 3),
            (b"[A] b\nx=1\n", 1),
            (b"[]\n", 1),
            (b"\xef\xbb\xbf[A]\n", 1),
            (b"\xef\xbb\xbf# c\n[A]\n", 1),
            (b"[A]\n\xe9\n", 2),
            (b"[A]\na[\xe9]=1\n", 2),
            (b"[A]\nbro\0ken=\n", 2),
            (b"[A]\nEncoding=Legacy\n", 2),
        ] {
            assert_eq!(group(stray, "A"), Err(StrayLine(line)), "{}", stray.escape_ascii());
        }
    }

    #[test]
    fn only_what_is_asked_for_has_to_be_text() {
        let bytes = b"# caf\xe9\n[\xe9]\nx=1\n[A]\n\xe9=1\nName[fr]=caf\xe9\n Exec = \xe9\nx=1\0\xe9\nEncoding=utf-8\n";
        let found = group(bytes, "A").unwrap();
        let found: Vec<_> = found.iter().map(|e| (e.key, e.locale, e.raw)).collect();
        let expected = [
            ("Name", Some("fr"), ""),
            ("Exec", None, ""),
            ("x", None, "1"),
            ("Encoding", None, "utf-8"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn escapes_are_what_the_specification_says() {
        let entry = KeyFileEntry { key: "k", locale: None, raw: r"a\sb\n\\s\q\", line: 1 };
        assert_eq!(entry.text(), "a b\n\\s\\q\\");
    }
}
