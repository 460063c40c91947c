//! The lines of a desktop file, a `mimeapps.list` or a `mimeinfo.cache`: groups and entries, borrowed, with their line numbers.
//!
//! Desktop Entry Specification 1.5, chapters 3 and 4. What is neither a group, an entry nor a comment is passed over, as GLib and KDE do for the groups that they read.

use std::borrow::Cow;
use std::collections::HashMap;

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

/// Reads the lines of `text` that say something.
pub fn lines(text: &str) -> impl Iterator<Item = KeyFileLine<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.split('\n').zip(1_u32..).filter_map(|(line, number)| {
        let line = line.strip_suffix('\r').unwrap_or(line).trim_start();
        if let Some(group) = line.strip_prefix('[') {
            let name = group.trim_end().strip_suffix(']')?;
            return Some(KeyFileLine::Group(name));
        }
        if line.starts_with('#') {
            return None;
        }
        let (key, raw) = line.split_once('=')?;
        let key = key.trim_end();
        let (key, locale) = match key.strip_suffix(']').and_then(|key| key.split_once('[')) {
            Some((key, locale)) => (key, Some(locale)),
            None => (key, None),
        };
        Some(KeyFileLine::Entry(KeyFileEntry { key, locale, raw: raw.trim_start(), line: number }))
    })
}

/// Reads the entries of one group, each as often as it is there; a group that comes twice is one.
pub fn group<'a>(text: &'a str, name: &str) -> impl Iterator<Item = KeyFileEntry<'a>> {
    let mut inside = false;
    lines(text).filter_map(move |line| match line {
        KeyFileLine::Group(group) => {
            inside = group == name;
            None
        }
        KeyFileLine::Entry(entry) => inside.then_some(entry),
    })
}

/// Returns the entries of one group without a locale as GLib and KDE read them: of a key that comes several times the last one counts, at the place of the first.
pub(crate) fn last_of_each<'a>(text: &'a str, name: &str) -> Vec<KeyFileEntry<'a>> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut last: Vec<KeyFileEntry<'a>> = Vec::new();
    for entry in group(text, name).filter(|entry| entry.locale.is_none()) {
        let place = *places.entry(entry.key).or_insert(last.len());
        match last.get_mut(place) {
            Some(known) => *known = entry,
            None => last.push(entry),
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_entries_and_locales_are_told_apart() {
        let text = "\u{feff}# c\n[A]\r\nName=x\nName[de_DE@euro] = y \nbroken\n=z\n[B ]\nA=1;2\\;3;;4\n[A]\nLast=1";
        let found: Vec<_> = group(text, "A").map(|e| (e.key, e.locale, e.raw, e.line)).collect();
        assert_eq!(
            found,
            [
                ("Name", None, "x", 3),
                ("Name", Some("de_DE@euro"), "y ", 4),
                ("", None, "z", 6),
                ("Last", None, "1", 10)
            ]
        );
        let list: Vec<_> =
            group(text, "B ").flat_map(|entry| entry.list().collect::<Vec<_>>()).collect();
        assert_eq!(list, ["1", "2;3", "4"]);
    }

    #[test]
    fn escapes_are_what_the_specification_says() {
        let entry = KeyFileEntry { key: "k", locale: None, raw: r"a\sb\n\\s\q\", line: 1 };
        assert_eq!(entry.text(), "a b\n\\s\\q\\");
    }
}
