//! Tags and texts of XML by their place in a text, and the names that a document gives to the two namespaces.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use quick_xml::escape::unescape;

/// The namespace of groups, applications and icons.
const BOOKMARK: &str = "http://www.freedesktop.org/standards/desktop-bookmarks";
/// The namespace of MIME types.
const MIME: &str = "http://www.freedesktop.org/standards/shared-mime-info";

/// An attribute of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attribute<'a> {
    pub(super) name: &'a str,
    /// As it is written, escaped.
    raw: &'a str,
    /// Where that begins, in the text of the tag.
    at: usize,
}

impl<'a> Attribute<'a> {
    /// Returns the value; `None` if it names an entity that only the document's own declarations explain.
    pub(super) fn value(&self) -> Option<Cow<'a, str>> {
        // Nearly none has an escape.
        if self.raw.contains('&') { plain(self.raw) } else { Some(Cow::Borrowed(self.raw)) }
    }

    /// Returns where the value is in the text of the tag.
    pub(super) fn place(&self) -> Range<usize> {
        self.at..self.at + self.raw.len()
    }
}

/// Returns the attributes of a tag, whose text is given without the angle brackets.
pub(super) fn attributes(tag: &str) -> impl Iterator<Item = Attribute<'_>> {
    let blank = |c: char| c.is_ascii_whitespace();
    let after_blank = move |at: usize| {
        let rest = tag.get(at..)?;
        Some(at + (rest.len() - rest.trim_start_matches(blank).len()))
    };
    let mut at = tag.find(blank).unwrap_or(tag.len());
    std::iter::from_fn(move || {
        loop {
            let start = after_blank(at)?;
            let rest = tag.get(start..)?;
            let len = rest.find(|c: char| blank(c) || c == '=')?;
            let equals = after_blank(start + len)?;
            if !tag.get(equals..)?.starts_with('=') {
                // A name without a value is none of ours.
                at = equals;
                continue;
            }
            let quote_at = after_blank(equals + 1)?;
            let quote = tag.get(quote_at..)?.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            let value_at = quote_at + 1;
            let raw = tag.get(value_at..)?.split(quote).next()?;
            at = value_at + raw.len() + 1;
            return Some(Attribute { name: &tag[start..start + len], raw, at: value_at });
        }
    })
}

/// Returns the name of a tag.
pub(super) fn tag_name(tag: &str) -> &str {
    tag.split(|c: char| c.is_ascii_whitespace()).next().unwrap_or_default()
}

/// Returns whether a tag is made of a name and attributes only: what else there is makes readers refuse the whole file.
pub(super) fn is_sound(tag: &str) -> bool {
    let mut end = tag_name(tag).len();
    for attribute in attributes(tag) {
        let place = attribute.place();
        let before = tag.get(end..place.start).unwrap_or_default();
        let is_named = before.starts_with(|c: char| c.is_ascii_whitespace())
            && before.trim_start().starts_with(attribute.name)
            && !attribute.raw.contains('<');
        if !is_named {
            return false;
        }
        end = place.end + 1;
    }
    tag.get(end..).is_some_and(|rest| rest.trim().is_empty())
}

/// Returns the value of one attribute.
pub(super) fn attribute<'a>(tag: &'a str, name: &str) -> Option<Cow<'a, str>> {
    attributes(tag).find(|attribute| attribute.name == name)?.value()
}

/// Returns the text of an element whose inside is given; `None` if there is more than text.
pub(super) fn text_of(inside: &str) -> Option<Cow<'_, str>> {
    if inside.contains('<') { None } else { plain(inside) }
}

/// Takes the escapes out of a text; `None` if one stands for nothing that we know, or that XML can have.
fn plain(raw: &str) -> Option<Cow<'_, str>> {
    unescape(raw).ok().filter(|text| !text.contains(is_forbidden))
}

/// Returns whether XML cannot have a character as it is.
pub(crate) fn is_forbidden(c: char) -> bool {
    let is_blank = matches!(c, '\t' | '\n' | '\r');
    (c < ' ' && !is_blank) || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Escapes a text for the inside of an element or an attribute; a character that XML cannot have becomes U+FFFD.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    let special = |c: char| matches!(c, '<' | '>' | '&' | '"' | '\'' | '\t' | '\n' | '\r');
    if !text.contains(|c| special(c) || is_forbidden(c)) {
        return Cow::Borrowed(text);
    }
    let mut to = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '&' => to.push_str("&amp;"),
            '"' => to.push_str("&quot;"),
            '\'' => to.push_str("&apos;"),
            '\t' => to.push_str("&#9;"),
            '\n' => to.push_str("&#10;"),
            '\r' => to.push_str("&#13;"),
            c if is_forbidden(c) => to.push(char::REPLACEMENT_CHARACTER),
            c => to.push(c),
        }
    }
    Cow::Owned(to)
}

/// Returns how long a text is at most when it is escaped.
pub(crate) fn escaped_len(text: &str) -> usize {
    let special = |byte: &u8| matches!(byte, b'<' | b'>' | b'&' | b'"' | b'\'' | 0..=0x1f);
    text.len() + 5 * text.bytes().filter(|byte| special(byte)).count()
}

/// Returns whether an entry can be written so that a reader gets this text back.
#[cfg(test)]
pub(super) fn is_writable(text: &str) -> bool {
    unescape(&escape(text)).is_ok_and(|again| again == text)
}

/// What a document calls the namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    bookmark: Box<str>,
    mime: Box<str>,
}

impl Default for Names {
    fn default() -> Names {
        Names { bookmark: "bookmark".into(), mime: "mime".into() }
    }
}

/// An element that has a meaning here, by its local name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementKind {
    MimeType,
    Groups,
    Group,
    Applications,
    Application,
    Private,
    Icon,
    Other,
}

impl Names {
    /// Takes the names from the tag of the root.
    pub(super) fn of(root: &str) -> Names {
        let mut names = Names::default();
        for attribute in attributes(root) {
            if let (Some(prefix), Some(value)) =
                (attribute.name.strip_prefix("xmlns:"), attribute.value())
            {
                match &*value {
                    BOOKMARK => names.bookmark = prefix.into(),
                    MIME => names.mime = prefix.into(),
                    _ => {}
                }
            }
        }
        names
    }

    /// Returns the declarations that the tag of the root lacks: without them what we write means nothing to a reader.
    pub(super) fn missing(root: &str) -> String {
        let declares = |namespace: &str| {
            attributes(root).any(|attribute| {
                attribute.name.starts_with("xmlns:")
                    && attribute.value().is_some_and(|value| value == namespace)
            })
        };
        let mut missing = String::new();
        for (name, namespace) in [("bookmark", BOOKMARK), ("mime", MIME)] {
            if !declares(namespace) {
                missing.push_str(&format!(" xmlns:{name}=\"{namespace}\""));
            }
        }
        missing
    }

    /// Returns declarations for the names of namespaces that elements of a text have and nobody declares: readers refuse
    /// the whole file for one.
    pub(super) fn unbound(text: &str) -> String {
        let is_name = |c: char| c.is_alphanumeric() || "._-".contains(c);
        let mut names = BTreeSet::new();
        for (at, _) in text.match_indices('<') {
            let rest = &text[at + 1..];
            let len = rest.find(|c| !is_name(c)).unwrap_or_default();
            if len > 0 && rest[len..].starts_with(':') {
                names.insert(&rest[..len]);
            }
        }
        names.retain(|name| !text.contains(&format!("xmlns:{name}=")));
        let declare = |name: &&str| match *name {
            "bookmark" => format!(" xmlns:bookmark=\"{BOOKMARK}\""),
            "mime" => format!(" xmlns:mime=\"{MIME}\""),
            name => format!(" xmlns:{name}=\"urn:unknown:{name}\""),
        };
        names.iter().map(declare).collect()
    }

    /// Returns what an element is, by its name as it is written.
    pub(super) fn kind(&self, name: &str) -> ElementKind {
        let Some((prefix, local)) = name.split_once(':') else { return ElementKind::Other };
        if *prefix == *self.bookmark {
            match local {
                "applications" => ElementKind::Applications,
                "application" => ElementKind::Application,
                "groups" => ElementKind::Groups,
                "group" => ElementKind::Group,
                "private" => ElementKind::Private,
                "icon" => ElementKind::Icon,
                _ => ElementKind::Other,
            }
        } else if *prefix == *self.mime && local == "mime-type" {
            ElementKind::MimeType
        } else {
            ElementKind::Other
        }
    }

    /// Returns the prefix of the bookmark specification's elements.
    pub(super) fn bookmark(&self) -> &str {
        &self.bookmark
    }

    /// Returns the prefix of MIME types.
    pub(super) fn mime(&self) -> &str {
        &self.mime
    }
}

/// The start of a document of nothing, up to the end of the root's tag.
pub(super) fn head() -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<xbel version=\"1.0\"\n      xmlns:bookmark=\"{BOOKMARK}\"\n      xmlns:mime=\"{MIME}\"\n>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(tag: &str) -> Vec<(&str, String)> {
        attributes(tag).map(|a| (a.name, a.value().unwrap_or_default().into_owned())).collect()
    }

    #[test]
    fn attributes_are_found_with_their_places() {
        let tag = "bookmark href=\"a&amp;b\" \n added = 'x\"y' visited=\"\" ";
        assert_eq!(
            pairs(tag),
            [("href", "a&b".into()), ("added", "x\"y".into()), ("visited", String::new())]
        );
        for attribute in attributes(tag) {
            assert_eq!(&tag[attribute.place()], attribute.raw);
        }
        assert_eq!(attribute("a x=\"&own;\"", "x"), None);
        assert!(is_sound("a") && is_sound("a b=\"c\" d = 'e' "));
        for tag in ["a b", "a b=\"c\"d=\"e\"", "a b: c='d'", "a b='<'", "a b='c' d='", "a b='c' d"]
        {
            assert!(!is_sound(tag), "{tag}");
        }
        assert_eq!(pairs("a b: c d=\"e\""), [("d", "e".into())]);
        for tag in ["", "a", "a b", "a b=", "a b=c", "a b=\"", "a =\"", "ä ö=\"ü"] {
            assert!(attributes(tag).count() <= 1, "{tag}");
        }
    }

    #[test]
    fn texts_survive_the_escape_unless_xml_cannot_have_them() {
        for text in ["", "plain", "<a & \"b\" 'c'>", "a\tb\nc\r", "ä\u{85}"] {
            assert!(is_writable(text), "{text:?}");
        }
        assert_eq!(escape("a\0b\u{1}\u{ffff}"), "a\u{fffd}b\u{fffd}\u{fffd}");
        assert_eq!(text_of("a<b/>"), None);
    }

    #[test]
    fn namespaces_may_have_other_names() {
        let root = format!("xbel xmlns:b='{BOOKMARK}'");
        let names = Names::of(&root);
        assert_eq!(names.kind("b:application"), ElementKind::Application);
        assert_eq!(names.kind("bookmark:application"), ElementKind::Other);
        assert_eq!(names.kind("mime:mime-type"), ElementKind::MimeType);
        assert_eq!(Names::missing(&root), format!(" xmlns:mime=\"{MIME}\""));
        assert_eq!(Names::missing(&head()[39..]), "");
    }
}
