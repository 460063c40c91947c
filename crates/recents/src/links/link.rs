//! One link, as KDE Frameworks 5.103 write and read it.

use std::path::{Path, PathBuf};

use crate::{RecentEntry, Uri};

const URL: &str = "URL[$e]";
const OPENED_WITH: &str = "X-KDE-LastOpenedWith";

/// What a link points to. KDE and GLib escape names differently; the file is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    /// A file of this machine.
    Path(PathBuf),
    /// Something elsewhere.
    Uri(Uri),
}

/// A document and the program that opened it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentLink {
    target: LinkTarget,
    uris: Vec<Uri>,
    application: String,
    name: String,
    icon: String,
    /// The URI for people: what need not be escaped is not.
    pretty: String,
}

impl DocumentLink {
    /// Returns the link of a document; `None` if its name is no text, by which KDE would not find the file.
    pub(super) fn of(entry: &RecentEntry, application: &str, home: &Path) -> Option<DocumentLink> {
        let mime = entry.mime.as_deref().unwrap_or("application/octet-stream");
        let icon = mime.replace('/', "-");
        DocumentLink::new(&entry.uri, application, icon, home)
    }

    fn new(uri: &Uri, application: &str, icon: String, home: &Path) -> Option<DocumentLink> {
        let (target, pretty, name) = match uri.to_path() {
            Some(path) => {
                let text = path.to_str()?;
                let (place, inside) = match path.strip_prefix(home) {
                    Ok(inside) if !inside.as_os_str().is_empty() && home.parent().is_some() => {
                        ("file:$HOME/", inside.to_str()?)
                    }
                    _ => ("file://", text),
                };
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                let pretty = format!("{place}{}", escape_path(inside));
                (LinkTarget::Path(path.clone()), pretty, name.unwrap_or_default())
            }
            None => {
                let path = uri.as_str().split(['?', '#']).next().unwrap_or_default();
                let name = decode(path.rsplit('/').next().unwrap_or_default());
                let name = String::from_utf8(name).ok()?;
                let name = name.rsplit('/').next().unwrap_or_default().to_owned();
                (LinkTarget::Uri(uri.clone()), decode_pretty(uri.as_str()).replace('$', "$$"), name)
            }
        };
        if name.contains('\0') {
            return None;
        }
        let mut uris = vec![uri.clone()];
        if let LinkTarget::Path(path) = &target {
            uris.extend(Uri::of_path(path).ok().filter(|clean| clean != uri));
        }
        Some(DocumentLink { target, uris, application: application.to_owned(), name, icon, pretty })
    }

    /// Returns whether both are of one document and one program.
    pub(super) fn is_same(&self, other: &DocumentLink) -> bool {
        self.target == other.target && self.application == other.application
    }

    /// Returns the names that the document may have in a list.
    pub(super) fn uris(&self) -> &[Uri] {
        &self.uris
    }

    /// Returns what it points to.
    #[must_use]
    pub fn target(&self) -> &LinkTarget {
        &self.target
    }

    /// Returns the program that opened it.
    #[must_use]
    pub fn application(&self) -> &str {
        &self.application
    }

    /// Returns the MIME type that its icon says: of `image-png` `image/png`.
    pub(super) fn mime(&self) -> String {
        self.icon.replacen('-', "/", 1)
    }

    /// Returns the name of the file for the `number`th document of its name.
    pub(super) fn file_name(&self, number: usize) -> String {
        let name = if self.name.is_empty() { "unnamed" } else { &self.name };
        if number == 1 { format!("{name}.desktop") } else { format!("{name}[{number}].desktop") }
    }

    /// Returns the text of the file.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "[Desktop Entry]\nIcon={}\nName={}\nType=Link\n{URL}={}\n{OPENED_WITH}={}\n",
            escape_value(&self.icon),
            escape_value(&self.name),
            escape_value(&self.pretty),
            escape_value(&self.application)
        )
    }
}

/// Reads a link; `None` if it is none.
#[must_use]
pub fn read(bytes: &[u8], home: &Path) -> Option<DocumentLink> {
    let text = str::from_utf8(bytes).ok()?;
    // KConfig's keys are not GLib's: `URL[$e]` is none for a key file.
    let heading = |line: &&str| line.starts_with('[') && line.trim_end() != "[Desktop Entry]";
    let lines = text.lines().skip_while(|line| line.trim_end() != "[Desktop Entry]");
    let lines: Vec<&str> = lines.take_while(|line| !heading(line)).collect();
    let get = |key: &str| {
        let mut pairs = lines.iter().filter_map(|line| line.split_once('='));
        pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| unescape_value(value.trim()))
    };
    let url = match (get(URL), get("URL")) {
        (Some(url), _) => expand(&url, home)?,
        (None, Some(url)) => url,
        (None, None) => return None,
    };
    let uri = Uri::parse(url.as_bytes()).ok()?;
    DocumentLink::new(
        &uri,
        &get(OPENED_WITH).unwrap_or_default(),
        get("Icon").unwrap_or_default(),
        home,
    )
}

/// Puts the home in the place of `$HOME`. A `$` of a name is doubled; KDE writes four, reads two again, and then finds no
/// file of that name.
fn expand(text: &str, home: &Path) -> Option<String> {
    let rest = text.strip_prefix("file:$HOME").or_else(|| text.strip_prefix("file:${HOME}"));
    let whole = match rest {
        Some(rest) => format!("file://{}{rest}", escape_path(home.to_str()?)),
        None => text.to_owned(),
    };
    Some(whole.replace("$$", "$"))
}

/// Escapes a path as Qt shows URLs: what a URL could be misread for.
fn escape_path(path: &str) -> String {
    let mut to = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            '\0'..='\u{1f}'
            | '\u{7f}'
            | '%'
            | '#'
            | '?'
            | '\\'
            | '"'
            | '<'
            | '>'
            | '^'
            | '`'
            | '{'
            | '|'
            | '}' => to.push_str(&format!("%{:02X}", u32::from(c))),
            '$' => to.push_str("$$"),
            c => to.push(c),
        }
    }
    to
}

/// Takes escapes out that a URL does not need.
fn decode_pretty(uri: &str) -> String {
    let mut to = String::with_capacity(uri.len());
    let mut rest = uri;
    while let Some(at) = rest.find('%') {
        to.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut run = 0;
        while rest[run..].starts_with('%')
            && rest
                .get(run + 1..run + 3)
                .is_some_and(|two| two.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            run += 3;
        }
        if run == 0 {
            to.push('%');
            rest = &rest[1..];
            continue;
        }
        let bytes = decode(&rest[..run]);
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    ' ' | '!'..='~' if is_plain(c) => to.push(c),
                    c if !c.is_ascii() && !c.is_control() => to.push(c),
                    c => c
                        .encode_utf8(&mut [0; 4])
                        .bytes()
                        .for_each(|b| to.push_str(&format!("%{b:02X}"))),
                }
            }
            chunk.invalid().iter().for_each(|b| to.push_str(&format!("%{b:02X}")));
        }
        rest = &rest[run..];
    }
    to.push_str(rest);
    to
}

/// Returns whether a character means nothing in a URL.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || " -._~!$'()*,".contains(c)
}

/// Returns the bytes of a text with escapes.
fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut to = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let two = (byte == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        let value = two
            .and_then(|two| str::from_utf8(two).ok())
            .filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        to.push(value.unwrap_or(byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    to
}

/// Escapes a value as KConfig does.
fn escape_value(text: &str) -> String {
    let mut to = String::with_capacity(text.len());
    let last = text.chars().count().saturating_sub(1);
    for (at, c) in text.chars().enumerate() {
        match c {
            ' ' if at == 0 || at == last => to.push_str("\\s"),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            c if c.is_ascii_control() => to.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => to.push(c),
        }
    }
    to
}

/// Reads a value as KConfig does.
fn unescape_value(text: &str) -> String {
    let mut to = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            to.push(c);
            continue;
        }
        match rest.next() {
            Some('s') => to.push(' '),
            Some('n') => to.push('\n'),
            Some('r') => to.push('\r'),
            Some('t') => to.push('\t'),
            Some('x') => {
                let digits: String = rest.by_ref().take(2).collect();
                let value = u8::from_str_radix(&digits, 16).map_or('\u{fffd}', char::from);
                to.push(value);
            }
            Some(c) => to.push(c),
            None => to.push('\\'),
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> PathBuf {
        PathBuf::from("/home/u")
    }

    fn url_of(uri: &str) -> String {
        let link = DocumentLink::new(
            &Uri::exact(uri).unwrap(),
            "org.kde.kate",
            "text-plain".into(),
            &home(),
        );
        link.unwrap().pretty
    }

    #[test]
    fn links_are_written_as_kde_writes_them() {
        let uri = Uri::exact("file:///home/u/docs/%20a%24b%23%25.txt").unwrap();
        let link = DocumentLink::new(&uri, "org.kde.kate", "text-plain".into(), &home()).unwrap();
        assert_eq!(
            link.text(),
            "[Desktop Entry]\nIcon=text-plain\nName=\\sa$b#%.txt\nType=Link\nURL[$e]=file:$HOME/docs/ a$$b%23%25.txt\nX-KDE-LastOpenedWith=org.kde.kate\n"
        );
        assert_eq!(link.file_name(1), " a$b#%.txt.desktop");
        assert_eq!(link.file_name(3), " a$b#%.txt[3].desktop");
        for (uri, url) in [
            ("file:///usr/bin/ls", "file:///usr/bin/ls"),
            ("file:///home/u/back%5Cslash%09tab", "file:$HOME/back%5Cslash%09tab"),
            ("http://example.org/a%2Fb%20c", "http://example.org/a%2Fb c"),
            ("http://ex.org/%C3%A9?q=a%20b#f", "http://ex.org/é?q=a b#f"),
            ("file:///home/u/%5B2%5D.txt", "file:$HOME/[2].txt"),
        ] {
            assert_eq!(url_of(uri), url);
        }
        assert_eq!(
            DocumentLink::new(&Uri::exact("file:///%FF").unwrap(), "x", String::new(), &home()),
            None
        );
    }

    #[test]
    fn a_link_is_read_as_it_was_written() {
        for uri in [
            "file:///home/u/docs/%20a%24b%23%25.txt%20",
            "file:///home/u/a%0Ab%5C%C3%A9",
            "http://example.org/",
            "http://example.org/a%2Fb%20c",
            "sftp://u@h/x/$",
            "file:///",
            "file:///home/u",
        ] {
            let uri = Uri::exact(uri).unwrap();
            let link = DocumentLink::new(&uri, "a b ", "x".into(), &home()).unwrap();
            let again = read(link.text().as_bytes(), &home()).unwrap();
            assert!(link.is_same(&again), "{link:?} {again:?}");
        }
        for text in ["", "[Desktop Entry]\n", "[Desktop Entry]\nURL=nothing\n", "\u{0}"] {
            assert_eq!(read(text.as_bytes(), &home()), None);
        }
    }
}
