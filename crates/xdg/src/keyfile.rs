//! Key files: groups of `key=value` lines with comments, as GLib reads and writes them.

use std::collections::HashMap;

/// A key file that can be changed; comments, blank lines and the order of everything are kept.
///
/// Values are the raw text behind the `=`; no escape is interpreted.
#[derive(Clone, Debug, Default)]
pub struct KeyFile {
    /// Lines before the first group.
    head: Vec<Line>,
    /// Groups in the order of the file; a removed one leaves a gap.
    groups: Vec<Option<Group>>,
    by_name: HashMap<Box<str>, usize>,
}

/// Why a text is no key file, or a name cannot be in one. The words are GLib's, because `dconf` shows them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// A line is no comment, no group and no entry.
    #[error("Key file contains line “{0}” which is not a key-value pair, group, or comment")]
    NotAnEntry(String),
    /// The text between `[` and `]` cannot name a group.
    #[error("Invalid group name: {0}")]
    InvalidGroup(String),
    /// The text before `=` cannot name a key.
    #[error("Invalid key name: {0}")]
    InvalidKey(String),
    /// An entry stands before the first group.
    #[error("Key file does not start with a group")]
    NoGroup,
    /// The first group says that the text is in another encoding.
    #[error("Key file contains unsupported encoding “{0}”")]
    Encoding(String),
    /// A line has bytes that no text has: it is not UTF-8, or has a zero byte.
    #[error("Key file contains bytes that are no text, in line {0}")]
    NotText(usize),
}

#[derive(Clone, Debug)]
struct Group {
    name: Box<str>,
    /// A removed entry leaves a gap, so that the places in `keys` stay right.
    lines: Vec<Line>,
    /// Where the entry is that counts for a key.
    keys: HashMap<Box<str>, usize>,
    has_repeated: bool,
}

#[derive(Clone, Debug)]
enum Line {
    /// A comment or a blank line, as it stood.
    Other(Box<[u8]>),
    /// An entry; `raw` is what to write when the line was not valid UTF-8.
    Entry {
        key: Box<str>,
        value: Box<str>,
        raw: Option<Box<[u8]>>,
    },
    Gap,
}

impl KeyFile {
    /// Returns an empty key file.
    #[must_use]
    pub fn new() -> KeyFile {
        KeyFile::default()
    }

    /// Reads a key file. Repeated groups are joined; of a repeated key the last value counts.
    ///
    /// # Errors
    ///
    /// The first line that cannot be understood.
    pub fn parse(text: &[u8]) -> Result<KeyFile, KeyFileError> {
        let mut file = KeyFile::new();
        let mut current = None;
        let body = text.strip_suffix(b"\n").unwrap_or(text);
        if text.is_empty() {
            return Ok(file);
        }
        let last_has_newline = body.len() != text.len();
        let mut lines = body.split(|&b| b == b'\n').peekable();
        while let Some(line) = lines.next() {
            let ended = lines.peek().is_some() || last_has_newline;
            let line = if ended { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
            file.parse_line(line, &mut current)?;
        }
        Ok(file)
    }

    /// Reads a key file as [`KeyFile::parse`] does, if all of it but comments is text: for what is stored elsewhere, where
    /// bytes that are no text would silently become other ones, or nothing.
    ///
    /// # Errors
    ///
    /// The first line that is no text, or cannot be understood.
    pub fn parse_text(text: &[u8]) -> Result<KeyFile, KeyFileError> {
        let is_text = |line: &[u8]| {
            let is_comment = line.trim_ascii_start().starts_with(b"#");
            is_comment || (!line.contains(&0) && std::str::from_utf8(line).is_ok())
        };
        match text.split(|byte| *byte == b'\n').position(|line| !is_text(line)) {
            Some(line) => Err(KeyFileError::NotText(line + 1)),
            None => KeyFile::parse(text),
        }
    }

    /// Returns the names of the groups, in order.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().flatten().map(|group| &*group.name)
    }

    /// Returns the keys of a group, in order; nothing if there is no such group.
    pub fn keys(&self, group: &str) -> impl Iterator<Item = &str> {
        self.entries(group).map(|(key, _)| key)
    }

    /// Returns the keys of a group with their values, in order; a repeated key each time with the value that counts.
    pub fn entries(&self, group: &str) -> impl Iterator<Item = (&str, &str)> {
        self.group(group).into_iter().flat_map(|group| {
            group.lines.iter().filter_map(|line| match line {
                Line::Entry { key, .. } => Some((&**key, group.get(key)?)),
                Line::Other(_) | Line::Gap => None,
            })
        })
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, group: &str, key: &str) -> Option<&str> {
        self.group(group)?.get(key)
    }

    /// Sets a value; a new key goes to the end of its group, a new group to the end of the file after a blank line.
    ///
    /// # Errors
    ///
    /// The group or the key has a name that a reader would not find again; nothing is changed.
    pub fn set(&mut self, group: &str, key: &str, value: &str) -> Result<(), KeyFileError> {
        if !is_group_name(group) {
            return Err(KeyFileError::InvalidGroup(group.to_owned()));
        }
        if !is_key_name(key) {
            return Err(KeyFileError::InvalidKey(key.to_owned()));
        }
        let at = match self.by_name.get(group) {
            Some(&at) => at,
            None => {
                self.separate();
                self.add_group(group)
            }
        };
        if let Some(group) = &mut self.groups[at] {
            group.set(key, value);
        }
        Ok(())
    }

    /// Removes a key and says whether it was there.
    pub fn remove_key(&mut self, group: &str, key: &str) -> bool {
        let Some(group) = self.by_name.get(group).and_then(|&at| self.groups[at].as_mut()) else {
            return false;
        };
        let Some(at) = group.keys.remove(key) else { return false };
        group.lines[at] = Line::Gap;
        if group.has_repeated {
            let repeated = |line: &Line| matches!(line, Line::Entry { key: k, .. } if **k == *key);
            group.lines.iter_mut().filter(|line| repeated(line)).for_each(|line| *line = Line::Gap);
        }
        true
    }

    /// Removes a group with its comments and says whether it was there.
    pub fn remove_group(&mut self, group: &str) -> bool {
        let Some(at) = self.by_name.remove(group) else { return false };
        self.groups[at] = None;
        true
    }

    /// Writes the key file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for line in &self.head {
            line.write(&mut out);
        }
        for group in self.groups.iter().flatten() {
            out.push(b'[');
            out.extend_from_slice(group.name.as_bytes());
            out.extend_from_slice(b"]\n");
            for line in &group.lines {
                line.write(&mut out);
            }
        }
        out
    }

    fn group(&self, name: &str) -> Option<&Group> {
        self.groups[*self.by_name.get(name)?].as_ref()
    }

    fn add_group(&mut self, name: &str) -> usize {
        let at = self.groups.len();
        self.groups.push(Some(Group {
            name: name.into(),
            lines: Vec::new(),
            keys: HashMap::new(),
            has_repeated: false,
        }));
        self.by_name.insert(name.into(), at);
        at
    }

    /// Ends the last group with a blank line, unless there is one or nothing stands before it.
    fn separate(&mut self) {
        let lines = match self.groups.iter_mut().rev().flatten().next() {
            Some(group) => &mut group.lines,
            None if self.head.is_empty() => return,
            None => &mut self.head,
        };
        let last = lines.iter().rev().find(|line| !matches!(line, Line::Gap));
        if !matches!(last, Some(Line::Other(text)) if text.is_empty()) {
            lines.push(Line::Other(Box::default()));
        }
    }

    fn parse_line(&mut self, line: &[u8], current: &mut Option<usize>) -> Result<(), KeyFileError> {
        // GLib works on C strings: what follows a NUL is not there.
        let seen = line.split(|&b| b == 0).next().unwrap_or_default();
        let text = seen.trim_ascii_start();
        if text.is_empty() || text[0] == b'#' {
            let lines = match current.and_then(|at| self.groups[at].as_mut()) {
                Some(group) => &mut group.lines,
                None => &mut self.head,
            };
            lines.push(Line::Other(line.into()));
            return Ok(());
        }
        if let Some(name) = group_of_line(text) {
            let name = String::from_utf8_lossy(name);
            if !is_group_name(&name) {
                return Err(KeyFileError::InvalidGroup(name.into_owned()));
            }
            *current = Some(match self.by_name.get(&*name) {
                Some(&at) => at,
                None => self.add_group(&name),
            });
            return Ok(());
        }
        let Some(equals) = text.iter().position(|&b| b == b'=').filter(|&at| at > 0) else {
            return Err(KeyFileError::NotAnEntry(String::from_utf8_lossy(line).into_owned()));
        };
        let Some(at) = *current else { return Err(KeyFileError::NoGroup) };
        let key = String::from_utf8_lossy(text[..equals].trim_ascii_end());
        if !is_key_name(&key) {
            return Err(KeyFileError::InvalidKey(key.into_owned()));
        }
        let raw_value = text[equals + 1..].trim_ascii_start();
        let value = String::from_utf8_lossy(raw_value);
        if at == 0 && key == "Encoding" && !value.eq_ignore_ascii_case("UTF-8") {
            return Err(KeyFileError::Encoding(value.into_owned()));
        }
        let raw = std::str::from_utf8(text).is_err().then(|| text.into());
        if let Some(group) = &mut self.groups[at] {
            group.push(&key, &value, raw);
        }
        Ok(())
    }
}

/// Returns the locale of a translated key: `de` of `Name[de]`.
///
/// GLib leaves out entries whose locale is not one of the session's when it only reads a file.
#[must_use]
pub fn translation(key: &str) -> Option<&str> {
    let inside = &key[key.rfind('[')? + 1..];
    let locale = &inside[..inside.len().saturating_sub(1)];
    (!locale.is_empty()).then_some(locale)
}

impl Group {
    fn get(&self, key: &str) -> Option<&str> {
        match self.lines.get(*self.keys.get(key)?)? {
            Line::Entry { value, .. } => Some(value),
            Line::Other(_) | Line::Gap => None,
        }
    }

    /// Adds an entry as it was read; it counts from now on.
    fn push(&mut self, key: &str, value: &str, raw: Option<Box<[u8]>>) {
        self.has_repeated |= self.keys.insert(key.into(), self.lines.len()).is_some();
        self.lines.push(Line::Entry { key: key.into(), value: value.into(), raw });
    }

    /// Replaces the entry that counts, or adds one.
    fn set(&mut self, key: &str, value: &str) {
        let entry = Line::Entry { key: key.into(), value: value.into(), raw: None };
        if let Some(&at) = self.keys.get(key) {
            self.lines[at] = entry;
            return;
        }
        let at = self.place_of_new_entry();
        self.keys.insert(key.into(), at);
        self.lines.insert(at, entry);
    }

    /// Blank lines at the end separate this group from the next one: a new entry goes before them.
    fn place_of_new_entry(&self) -> usize {
        let blank = |line: &Line| match line {
            Line::Other(text) => text.is_empty(),
            Line::Gap => true,
            Line::Entry { .. } => false,
        };
        self.lines.iter().rposition(|line| !blank(line)).map_or(0, |last| last + 1)
    }
}

impl Line {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Line::Gap => return,
            Line::Other(text) => out.extend_from_slice(text),
            Line::Entry { raw: Some(raw), .. } => out.extend_from_slice(raw),
            Line::Entry { key, value, raw: None } => {
                out.extend_from_slice(key.as_bytes());
                out.push(b'=');
                out.extend_from_slice(value.as_bytes());
            }
        }
        out.push(b'\n');
    }
}

/// Returns what stands between `[` and the first `]` if only blanks follow it.
#[must_use]
pub fn group_of_line(text: &[u8]) -> Option<&[u8]> {
    let inside = text.strip_prefix(b"[")?;
    let end = inside.iter().position(|&b| b == b']')?;
    inside[end + 1..].iter().all(|&b| b == b' ' || b == b'\t').then_some(&inside[..end])
}

/// Returns whether a group may have this name.
#[must_use]
pub fn is_group_name(name: &str) -> bool {
    !name.is_empty() && !name.bytes().any(|b| b == b'[' || b == b']' || b.is_ascii_control())
}

/// Returns whether a key may have this name, with its locale in brackets if there is one.
#[must_use]
pub fn is_key_name(name: &str) -> bool {
    let end = name.find(['=', '[', ']']).unwrap_or(name.len());
    let (base, rest) = name.split_at(end);
    if base.is_empty() || base.starts_with(' ') || base.ends_with(' ') {
        return false;
    }
    let is_locale = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    match rest.strip_prefix('[') {
        None => rest.is_empty(),
        Some(locale) => {
            locale.strip_suffix(']').is_some_and(|locale| locale.chars().all(is_locale))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(file: &KeyFile) -> String {
        String::from_utf8(file.to_bytes()).unwrap()
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_where_they_would_be_stored() {
        for bad in
            [&b"\xff"[..], b"\0", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"\xf5\x80\x80\x80"]
        {
            let lines: [(&[&[u8]], _); 5] = [
                (&[b"[/]\nk='", bad, b"'\n"], Some(2)),
                (&[b"[/]\n", bad, b"=1"], Some(2)),
                (&[b"[", bad, b"]\nk=1\n"], Some(1)),
                (&[b"[/]\nk=1\n\n", bad, b"\n"], Some(4)),
                (&[b" # ", bad, b"\n[/]\nk=1\n"], None),
            ];
            for (parts, line) in lines {
                let refused = KeyFile::parse_text(&parts.concat()).err();
                assert_eq!(refused, line.map(KeyFileError::NotText), "{parts:?}");
            }
        }
        assert!(KeyFile::parse_text("[/ü]\nk='\u{fffe}\u{1}'\n".as_bytes()).is_ok());
    }

    #[test]
    fn a_file_that_nobody_changes_is_written_as_it_was() {
        let before = "# head\n\n[a]\nx=1\n# about y\n\ny='z'\n\n[b/c]\nk=@as []\n";
        let file = KeyFile::parse(before.as_bytes()).unwrap();
        assert_eq!(text(&file), before);
        assert_eq!(file.groups().collect::<Vec<_>>(), ["a", "b/c"]);
        assert_eq!(file.keys("a").collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(file.get("a", "y"), Some("'z'"));
        assert_eq!(file.get("a", "k"), None);
        assert_eq!(file.get("n", "k"), None);
    }

    #[test]
    fn blanks_and_line_ends_are_read_as_glib_reads_them() {
        let file = KeyFile::parse(b"  [a] \t\r\n  x  =  1 2  \r\ny=\r\nz=1\r").unwrap();
        assert_eq!(file.get("a", "x"), Some("1 2  "));
        assert_eq!(file.get("a", "y"), Some(""));
        assert_eq!(file.get("a", "z"), Some("1\r"), "only a carriage return before a newline goes");
    }

    #[test]
    fn repeated_groups_are_joined_and_the_last_value_counts() {
        let file = KeyFile::parse(b"[a]\nx=1\n[b]\nx=2\n[a]\nx=3\ny=4\n").unwrap();
        assert_eq!(file.groups().collect::<Vec<_>>(), ["a", "b"]);
        let entries: Vec<_> = file.entries("a").collect();
        assert_eq!(entries, [("x", "3"), ("x", "3"), ("y", "4")], "as often as they are there");
        assert_eq!(file.get("a", "x"), Some("3"));
        let mut changed = file.clone();
        changed.set("a", "x", "5").unwrap();
        assert_eq!(text(&changed), "[a]\nx=1\nx=5\ny=4\n[b]\nx=2\n");
        assert!(changed.remove_key("a", "x"));
        assert_eq!(text(&changed), "[a]\ny=4\n[b]\nx=2\n", "a removed key does not come back");
    }

    #[test]
    fn what_is_no_key_file_is_refused_in_the_words_of_glib() {
        let said = |text: &[u8]| KeyFile::parse(text).unwrap_err().to_string();
        assert_eq!(said(b"x=1\n"), "Key file does not start with a group");
        assert_eq!(
            said(b"[a]\n  nonsense\n"),
            "Key file contains line “  nonsense” which is not a key-value pair, group, or comment"
        );
        assert_eq!(
            said(b"[a]\n=1\n"),
            "Key file contains line “=1” which is not a key-value pair, group, or comment"
        );
        assert_eq!(said(b"[a\x01]\n"), "Invalid group name: a\u{1}");
        assert_eq!(said(b"[]\n"), "Invalid group name: ");
        assert_eq!(said(b"[a]\nb]=1\n"), "Invalid key name: b]");
        assert_eq!(
            said(b"[a]\nEncoding=latin1\n"),
            "Key file contains unsupported encoding “latin1”"
        );
        assert!(KeyFile::parse(b"[a]\nEncoding=utf-8\n[b]\nEncoding=latin1\n").is_ok());
    }

    #[test]
    fn setting_and_removing_change_only_what_they_name() {
        let mut file = KeyFile::parse(b"# h\n[a]\n# c\nx=1\ny=2\n").unwrap();
        file.set("a", "x", "3").unwrap();
        file.set("b", "k", "4").unwrap();
        assert!(file.remove_key("a", "y"));
        assert!(!file.remove_key("a", "y"));
        assert_eq!(text(&file), "# h\n[a]\n# c\nx=3\n\n[b]\nk=4\n");
        assert!(file.remove_group("a"));
        assert!(!file.remove_group("a"));
        assert_eq!(text(&file), "# h\n[b]\nk=4\n");
        file.set("a", "n", "5").unwrap();
        file.set("b", "l", "6").unwrap();
        assert_eq!(text(&file), "# h\n[b]\nk=4\nl=6\n\n[a]\nn=5\n");
    }

    #[test]
    fn a_new_file_has_a_blank_line_between_groups() {
        let mut file = KeyFile::new();
        file.set("/", "a", "1").unwrap();
        file.set("b", "c", "2").unwrap();
        assert_eq!(text(&file), "[/]\na=1\n\n[b]\nc=2\n");
    }

    #[test]
    fn a_name_that_would_not_be_found_again_is_refused() {
        let mut file = KeyFile::new();
        for key in ["", " a", "a ", "a=b", "a[b", "a]", "a[b]c"] {
            assert!(file.set("g", key, "1").is_err(), "{key:?}");
        }
        for group in ["", "a[", "a]", "a\nb"] {
            assert!(file.set(group, "k", "1").is_err(), "{group:?}");
        }
        file.set("g", "a[de]", "1").unwrap();
        assert_eq!(text(&file), "[g]\na[de]=1\n");
    }

    #[test]
    fn bytes_that_are_no_text_survive_in_lines_that_nobody_changes() {
        let before = b"[a]\n# caf\xe9\nx='\xe9'\ny=1\n";
        let mut file = KeyFile::parse(before).unwrap();
        assert_eq!(file.to_bytes(), before);
        file.set("a", "x", "2").unwrap();
        assert_eq!(file.to_bytes(), b"[a]\n# caf\xe9\nx=2\ny=1\n");
    }

    #[test]
    fn a_translated_key_tells_its_locale() {
        assert_eq!(translation("a[de]"), Some("de"));
        assert_eq!(translation("a[]"), None);
        assert_eq!(translation("a"), None);
    }

    #[test]
    fn any_bytes_give_a_file_or_an_error() {
        for seed in 0..2000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let bytes: Vec<u8> =
                (0..40).map(|_| b"[]=#ab \n\r\0\xe9"[random.usize(..11)]).collect();
            if let Ok(file) = KeyFile::parse(&bytes) {
                let again = KeyFile::parse(&file.to_bytes()).unwrap();
                assert!(again.groups().eq(file.groups()));
            }
        }
    }
}
