//! Aliases and parents of MIME types, as shared-mime-info installs them.
//!
//! Shared MIME-info Database specification 0.21: `mime/aliases` and `mime/subclasses` of each data directory hold two types a line.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// The largest file that is read; the largest real one has 20 KB.
const FILE_MAX: u64 = 4 << 20;

/// The most types that one type is traced through.
const ANCESTORS: usize = 64;

/// What is known of the relations of MIME types.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MimeTypes {
    aliases: HashMap<Box<str>, Box<str>>,
    parents: HashMap<Box<str>, Vec<Box<str>>>,
}

impl MimeTypes {
    /// Reads what the data directories say, the one that counts most first; a file that is not there says nothing.
    #[must_use]
    pub fn read<'a>(data_dirs: impl Iterator<Item = &'a Path>) -> MimeTypes {
        MimeTypes::read_noting(data_dirs).0
    }

    /// Reads what the data directories say as [`MimeTypes::read`] does; returns also the files that are there and could not be read.
    #[must_use]
    pub fn read_noting<'a>(
        data_dirs: impl Iterator<Item = &'a Path>,
    ) -> (MimeTypes, Vec<(PathBuf, io::Error)>) {
        let mut types = MimeTypes::default();
        let mut unread = Vec::new();
        let mut text_at = |path: PathBuf| {
            text_of(&path).unwrap_or_else(|error| {
                unread.push((path, error));
                String::new()
            })
        };
        for dir in data_dirs {
            for (alias, name) in pairs(&text_at(dir.join("mime/aliases"))) {
                types.aliases.entry(alias.into()).or_insert_with(|| name.into());
            }
            for (child, parent) in pairs(&text_at(dir.join("mime/subclasses"))) {
                let parents = types.parents.entry(child.into()).or_default();
                if !parents.iter().any(|known| **known == *parent) {
                    parents.push(parent.into());
                }
            }
        }
        (types, unread)
    }

    /// Returns the name of a type: of an alias the one that it stands for.
    #[must_use]
    pub fn canonical<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.get(name).map_or(name, |name| name)
    }

    /// Returns a type and all that it is a kind of, nearest first, each once.
    #[must_use]
    pub fn lineage(&self, name: &str) -> Vec<String> {
        let mut all = vec![self.canonical(name).to_owned()];
        let mut at = 0;
        while let Some(parents) = all.get(at).map(|child| self.parents.get(&**child)) {
            for parent in parents.into_iter().flatten() {
                if all.len() < ANCESTORS && !all.iter().any(|known| **known == **parent) {
                    all.push(parent.to_string());
                }
            }
            at += 1;
        }
        all
    }

    /// Returns every type that has a parent, with its parents.
    pub fn children(&self) -> impl Iterator<Item = (&str, &[Box<str>])> {
        self.parents.iter().map(|(child, parents)| (&**child, &**parents))
    }

    /// Returns every alias with the type that it stands for.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.aliases.iter().map(|(alias, name)| (&**alias, &**name))
    }
}

/// Reads a file; what is not there, no file of text, or too large says nothing.
fn text_of(path: &Path) -> io::Result<String> {
    let small =
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= FILE_MAX);
    if !small {
        return Ok(String::new());
    }
    match std::fs::read_to_string(path) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) =>
        {
            Ok(String::new())
        }
        read => read,
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lineage_is_by_distance_and_ends_in_a_circle() {
        let home = tempfile::tempdir().unwrap();
        let mime = home.path().join("mime");
        std::fs::create_dir(&mime).unwrap();
        let write = |name: &str, text: &str| {
            let file =
                std::fs::OpenOptions::new().create_new(true).write(true).open(mime.join(name));
            std::io::Write::write_all(&mut file.unwrap(), text.as_bytes()).unwrap();
        };
        write("aliases", "# old names\ntext/x-old text/x-new\n");
        write(
            "subclasses",
            "text/x-new text/x-base\ntext/x-new application/xml\ntext/x-base text/plain\ntext/plain text/x-new\n",
        );
        let types = MimeTypes::read([home.path()].into_iter());
        assert_eq!(
            types.lineage("text/x-old"),
            ["text/x-new", "text/x-base", "application/xml", "text/plain"]
        );
        assert_eq!(types.lineage("image/png"), ["image/png"]);
    }
}
