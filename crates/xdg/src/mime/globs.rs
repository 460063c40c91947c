//! Types by name: `weight:type:pattern[:flags]`, a line each.

use std::collections::HashMap;
use std::path::Path;

use crate::pattern::matches;

/// Which names are which types.
#[derive(Clone, Debug, Default)]
pub struct Globs {
    types: Vec<Box<str>>,
    numbers: HashMap<Box<str>, usize>,
    /// Patterns as they are written, for names as they are.
    written: Table,
    /// Patterns and names in lower case, without those where case counts.
    folded: Table,
}

/// Patterns, by how they are looked up.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Whole names: `makefile`.
    names: HashMap<Box<[u8]>, Vec<Pattern>>,
    /// What names end in: `.tar.gz` of `*.tar.gz`.
    endings: HashMap<Box<[u8]>, Vec<Pattern>>,
    /// Anything else: `*.so.[0-9]*`.
    others: Vec<(Box<[u8]>, Pattern)>,
    /// The longest ending.
    longest: usize,
}

/// What a pattern says; the greater of two holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pattern {
    weight: u32,
    length: usize,
    kind: usize,
}

impl Globs {
    /// Reads `globs2` of these directories, the most important first; a file that is not there says nothing.
    #[must_use]
    pub fn read<'a>(directories: impl DoubleEndedIterator<Item = &'a Path>) -> Globs {
        let mut globs = Globs::default();
        for directory in directories.rev() {
            globs.add(&super::contents(&directory.join("globs2")), |_| true);
        }
        globs
    }

    /// Reads what `globs2` of these directories say of one name, in a fraction of the time; other names have no type.
    #[must_use]
    pub fn read_for<'a>(
        directories: impl DoubleEndedIterator<Item = &'a Path>,
        name: &[u8],
    ) -> Globs {
        let mut globs = Globs::default();
        for directory in directories.rev() {
            let file = super::contents(&directory.join("globs2"));
            globs.add(&file, |glob| may_match(glob, name));
        }
        globs
    }

    /// Adds what a more important file says; a line that cannot be read is left out.
    fn add(&mut self, file: &[u8], is_wanted: impl Fn(&[u8]) -> bool) {
        let lines = file.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.starts_with(b"#")) {
            let mut fields = line.split(|byte| *byte == b':');
            let weight = fields.next().and_then(|digits| std::str::from_utf8(digits).ok());
            let Some(Ok(weight)) = weight.map(str::parse) else { continue };
            let Some(Ok(name)) = fields.next().map(std::str::from_utf8) else { continue };
            let Some(glob) = fields.next().filter(|glob| !glob.is_empty()) else { continue };
            if glob != b"__NOGLOBS__" && !is_wanted(glob) {
                continue;
            }
            let flags = fields.next().unwrap_or_default();
            let kind = self.number(name);
            if glob == b"__NOGLOBS__" {
                self.written.forget(kind);
                self.folded.forget(kind);
                continue;
            }
            let pattern = Pattern { weight, length: glob.len(), kind };
            self.written.add(glob, pattern);
            if !flags.split(|byte| *byte == b',').any(|flag| flag == b"cs") {
                self.folded.add(&glob.to_ascii_lowercase(), pattern);
            }
        }
    }

    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.types.push(name.into());
        self.numbers.insert(name.into(), self.types.len() - 1);
        self.types.len() - 1
    }

    /// Returns the type of a file with this name; of several that hold equally, the first of the file.
    #[must_use]
    pub fn type_of(&self, name: &[u8]) -> Option<&str> {
        self.types_of(name).first().copied()
    }

    /// Returns the types of a file with this name that hold equally: the heaviest, and of these the longest pattern.
    #[must_use]
    pub fn types_of(&self, name: &[u8]) -> Vec<&str> {
        let mut found = self.written.find(name);
        if found.is_empty() {
            found = self.folded.find(&name.to_ascii_lowercase());
        }
        let best = found.iter().map(|pattern| (pattern.weight, pattern.length)).max();
        let mut kinds: Vec<usize> = Vec::new();
        for pattern in found {
            let holds = Some((pattern.weight, pattern.length)) == best;
            if holds && !kinds.contains(&pattern.kind) {
                kinds.push(pattern.kind);
            }
        }
        kinds.into_iter().filter_map(|kind| self.types.get(kind).map(|name| &**name)).collect()
    }
}

impl Table {
    fn add(&mut self, glob: &[u8], pattern: Pattern) {
        let is_plain = |text: &[u8]| !text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['));
        if is_plain(glob) {
            return self.names.entry(glob.into()).or_default().push(pattern);
        }
        match glob.split_first() {
            Some((b'*', ending)) if is_plain(ending) && !ending.is_empty() => {
                self.longest = self.longest.max(ending.len());
                self.endings.entry(ending.into()).or_default().push(pattern);
            }
            _ => self.others.push((glob.into(), pattern)),
        }
    }

    fn forget(&mut self, kind: usize) {
        for patterns in self.names.values_mut().chain(self.endings.values_mut()) {
            patterns.retain(|pattern| pattern.kind != kind);
        }
        self.others.retain(|(_, pattern)| pattern.kind != kind);
    }

    fn find(&self, name: &[u8]) -> Vec<Pattern> {
        let mut found = self.names.get(name).cloned().unwrap_or_default();
        for start in name.len().saturating_sub(self.longest)..name.len() {
            found.extend(self.endings.get(&name[start..]).into_iter().flatten());
        }
        let others = self.others.iter().filter(|(glob, _)| matches(glob, name));
        found.extend(others.map(|(_, pattern)| *pattern));
        found
    }
}

/// Says whether a pattern could match a name in small or capital letters; one that is not simple could.
fn may_match(glob: &[u8], name: &[u8]) -> bool {
    let is_plain = |text: &[u8]| !text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['));
    match glob.split_first() {
        _ if is_plain(glob) => glob.eq_ignore_ascii_case(name),
        Some((b'*', ending)) if is_plain(ending) => name
            .len()
            .checked_sub(ending.len())
            .is_some_and(|start| name[start..].eq_ignore_ascii_case(ending)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(files: &[&str]) -> Globs {
        let mut globs = Globs::default();
        files.iter().for_each(|file| globs.add(file.as_bytes(), |_| true));
        globs
    }

    #[test]
    fn weight_then_length_then_case_decide() {
        let globs = globs(&["# comment\n80:text/html:*.html\n50:application/gzip:*.gz\n\
             50:application/x-tar-gz:*.tar.gz\n50:text/x-c:*.c\n50:text/x-c++:*.C:cs\n\
             50:text/x-makefile:makefile\n50:text/x-makefile:makefile.*\n10:text/x-readme:readme*\n\
             60:application/x-lib:*.so.[0-9]*\n50:text/x-objc:*.m\n50:text/x-matlab:*.m\n\
             50:image/gif:*.gif\nnonsense\n50:\n"]);
        let cases = [
            ("a.HTML", Some("text/html")),
            ("a.tar.gz", Some("application/x-tar-gz")),
            ("a.gz", Some("application/gzip")),
            ("a.c", Some("text/x-c")),
            ("a.C", Some("text/x-c++")),
            ("IMAGE.GIF", Some("image/gif")),
            ("Makefile", Some("text/x-makefile")),
            ("makefile.am", Some("text/x-makefile")),
            ("README", Some("text/x-readme")),
            ("libc.so.6", Some("application/x-lib")),
            ("libc.so.", None),
            ("", None),
            ("html", None),
        ];
        for (name, expected) in cases {
            assert_eq!(globs.type_of(name.as_bytes()), expected, "{name}");
        }
        assert_eq!(globs.types_of(b"a.m"), ["text/x-objc", "text/x-matlab"]);
        assert_eq!(globs.type_of(b"\xff\xfe.html"), Some("text/html"));
    }

    #[test]
    fn a_more_important_file_can_take_back() {
        let globs = globs(&[
            "50:text/x-a:*.a\n50:text/x-b:*.b",
            "50:text/x-a:__NOGLOBS__\n50:text/x-a:*.aa",
        ]);
        assert_eq!((globs.type_of(b"x.a"), globs.type_of(b"x.aa")), (None, Some("text/x-a")));
        assert_eq!(globs.type_of(b"x.b"), Some("text/x-b"));
    }

    #[test]
    fn what_is_read_for_one_name_says_the_same_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let text = "80:text/html:*.html\n50:a/gz:*.gz\n50:a/tgz:*.tar.gz\n50:text/c:*.c\n50:text/cpp:*.C:cs\n\
             50:text/make:makefile\n10:text/so:*.so.[0-9]*\n50:text/none:__NOGLOBS__\n";
        let file = std::fs::OpenOptions::new()
            .create_new(true)
            .write(true)
            .open(dir.path().join("globs2"));
        std::io::Write::write_all(&mut file.unwrap(), text.as_bytes()).unwrap();
        let all = Globs::read([dir.path()].into_iter());
        for name in ["x.HTML", "x.tar.gz", ".gz", "x.c", "x.C", "Makefile", "libx.so.6", "none", ""]
        {
            let one = Globs::read_for([dir.path()].into_iter(), name.as_bytes());
            assert_eq!(one.types_of(name.as_bytes()), all.types_of(name.as_bytes()), "{name}");
        }
    }
}
