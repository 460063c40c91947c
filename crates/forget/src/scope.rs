//! Which files are searched for what was forgotten, and which are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use recents::RecentsFiles;

/// How much is searched at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// The largest file in bytes.
    pub file: u64,
    /// All files together, in bytes.
    pub total: u64,
    /// Whether the documents themselves are searched, too: what is in the home and not hidden.
    pub documents: SearchDocuments,
}

/// Whether what is in the home and not hidden is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchDocuments {
    /// It is.
    Yes,
    /// It is not: a document may well name another.
    No,
}

impl Default for SearchLimits {
    /// Files of up to 64 MiB, 2 GiB in all, no documents: a few seconds.
    fn default() -> SearchLimits {
        SearchLimits { file: 64 << 20, total: 2 << 30, documents: SearchDocuments::No }
    }
}

impl SearchLimits {
    /// Returns those for every file of the home and the runtime directory.
    #[must_use]
    pub fn everything() -> SearchLimits {
        SearchLimits { file: u64::MAX, total: u64::MAX, documents: SearchDocuments::Yes }
    }
}

/// Why something was not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotSearched {
    /// It is a document, or a folder of documents.
    Documents,
    /// The file is too large.
    TooLarge,
    /// Enough was searched before it.
    BeyondTotal,
    /// It may not be read.
    Unreadable,
    /// Another file system is mounted there, which may be remote, or make its contents up.
    OtherFileSystem,
}

impl NotSearched {
    /// Returns why, as people say it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            NotSearched::Documents => "documents",
            NotSearched::TooLarge => "too large",
            NotSearched::BeyondTotal => "more than is searched at once",
            NotSearched::Unreadable => "not readable",
            NotSearched::OtherFileSystem => "another file system",
        }
    }
}

/// A file, or what is below a folder, that was not searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsearched {
    /// The file or the folder.
    pub path: PathBuf,
    /// Why.
    pub reason: NotSearched,
    /// How many files it is.
    pub files: u64,
    /// How large they are together, in bytes.
    pub bytes: u64,
}

/// The files to search, and those not to.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub(super) files: Vec<(PathBuf, u64)>,
    unsearched: BTreeMap<(PathBuf, NotSearched), (u64, u64)>,
}

/// The deepest folder that is looked into.
const DEPTH: usize = 64;

impl Scope {
    /// Finds the files: below the user's configuration, data, state, cache and runtime directory, then what else is
    /// hidden in the home. `first` are searched whatever the limits say.
    pub(super) fn of(
        places: &RecentsFiles,
        first: BTreeSet<PathBuf>,
        limits: SearchLimits,
    ) -> Scope {
        let mut scope = Scope::default();
        let mut seen = BTreeSet::new();
        let mut total = 0;
        let mut walk = Walk { scope: &mut scope, seen: &mut seen, total: &mut total, limits };
        for file in first {
            walk.add_whatever_the_limits_say(file);
        }
        // What has a limit of its own is smaller: the first of these hold the lists.
        let runtime = places.runtime.as_deref().and_then(|dir| dir.ancestors().nth(2));
        let roots = [
            Some(&*places.config),
            Some(&*places.state_home()),
            runtime,
            Some(&*places.data),
            Some(&*places.cache),
        ]
        .map(|root| root.map(Path::to_owned));
        for root in roots.iter().flatten() {
            walk.folder(root, root, 0);
        }
        let home = fs::read_dir(&places.home).into_iter().flatten().flatten();
        let mut rest: Vec<PathBuf> = home.map(|entry| entry.path()).collect();
        rest.sort();
        let is_hidden =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
        let (hidden, documents): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_hidden);
        for path in hidden {
            walk.path(&path, &path, 0);
        }
        for path in documents {
            match limits.documents {
                SearchDocuments::Yes => walk.path(&path, &path, 0),
                SearchDocuments::No => walk.leave(&path, &places.home, NotSearched::Documents),
            }
        }
        scope
    }

    /// Returns what is not searched, the largest first.
    pub(super) fn unsearched(&self) -> Vec<Unsearched> {
        let all = self.unsearched.iter();
        let mut all: Vec<Unsearched> = all
            .map(|((path, reason), (files, bytes))| Unsearched {
                path: path.clone(),
                reason: *reason,
                files: *files,
                bytes: *bytes,
            })
            .collect();
        all.sort_by_cached_key(|one| std::cmp::Reverse(one.bytes));
        all
    }

    fn note(&mut self, path: &Path, reason: NotSearched, bytes: u64) {
        let known = self.unsearched.entry((path.to_owned(), reason)).or_default();
        known.0 += 1;
        known.1 = known.1.saturating_add(bytes);
    }
}

struct Walk<'a> {
    scope: &'a mut Scope,
    /// Files and folders by device and number.
    seen: &'a mut BTreeSet<(u64, u64)>,
    total: &'a mut u64,
    limits: SearchLimits,
}

impl Walk<'_> {
    fn is_new(&mut self, about: &Metadata) -> bool {
        self.seen.insert((about.dev(), about.ino()))
    }

    fn add_whatever_the_limits_say(&mut self, file: PathBuf) {
        let Ok(about) = fs::metadata(&file) else { return };
        if about.is_file() && self.is_new(&about) {
            *self.total = self.total.saturating_add(about.len());
            self.scope.files.push((file, about.len()));
        }
    }

    /// Takes a file or a folder; `root` is what people are told of.
    fn path(&mut self, path: &Path, root: &Path, depth: usize) {
        // Links lead to what is searched where it is, or to what is elsewhere.
        let Ok(about) = fs::symlink_metadata(path) else { return };
        if about.is_dir() {
            self.folder(path, root, depth);
        } else if about.is_file() && self.is_new(&about) {
            self.file(path, root, about.len());
        }
    }

    fn file(&mut self, path: &Path, root: &Path, bytes: u64) {
        if bytes > self.limits.file {
            self.scope.note(path, NotSearched::TooLarge, bytes);
        } else if self.total.saturating_add(bytes) > self.limits.total {
            self.scope.note(root, NotSearched::BeyondTotal, bytes);
        } else {
            *self.total += bytes;
            self.scope.files.push((path.to_owned(), bytes));
        }
    }

    fn folder(&mut self, path: &Path, root: &Path, depth: usize) {
        let Ok(about) = fs::metadata(path) else { return };
        if !about.is_dir() || !self.is_new(&about) {
            return;
        }
        let above = path.parent().and_then(|above| fs::metadata(above).ok());
        if depth > 0 && above.is_some_and(|above| above.dev() != about.dev()) {
            return self.scope.note(path, NotSearched::OtherFileSystem, 0);
        }
        let Ok(entries) = fs::read_dir(path) else {
            return self.scope.note(path, NotSearched::Unreadable, 0);
        };
        if depth >= DEPTH {
            return self.scope.note(path, NotSearched::BeyondTotal, 0);
        }
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for inside in paths {
            // What is said of a folder in a root names the folder.
            let told = if depth == 0 { inside.clone() } else { root.to_owned() };
            self.path(&inside, &told, depth + 1);
        }
    }

    /// Counts what is there and not searched.
    fn leave(&mut self, path: &Path, told: &Path, reason: NotSearched) {
        let mut folders = vec![path.to_owned()];
        let device = fs::metadata(told).map(|about| about.dev()).ok();
        while let Some(path) = folders.pop() {
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if about.is_dir() && Some(about.dev()) == device && self.is_new(&about) {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                folders.extend(entries.map(|entry| entry.path()));
            } else if about.is_file() && self.is_new(&about) {
                self.scope.note(told, reason, about.len());
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test stands for other programs")]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_searched_is_told_with_how_much_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let write = |name: &str, len: usize| {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), vec![b'x'; len]).unwrap();
        };
        write(".config/a/b", 10);
        write(".local/share/large", 200);
        write(".local/share/game/1", 60);
        write(".local/share/game/2/3", 60);
        write(".bash_history", 5);
        write("docs/1", 1000);
        write("docs/2", 1000);
        std::os::unix::fs::symlink(at("docs/1"), at(".config/link")).unwrap();
        let places = RecentsFiles::below(dir.path());
        let limits = SearchLimits { file: 100, total: 100, documents: SearchDocuments::No };
        let scope = Scope::of(&places, BTreeSet::new(), limits);
        let files: Vec<&Path> = scope.files.iter().map(|(path, _)| &**path).collect();
        assert_eq!(files, [at(".config/a/b"), at(".local/share/game/1"), at(".bash_history")],);
        let unsearched: Vec<_> = scope
            .unsearched()
            .into_iter()
            .map(|one| (one.path, one.reason, one.files, one.bytes))
            .collect();
        assert_eq!(
            unsearched,
            [
                (dir.path().to_owned(), NotSearched::Documents, 2, 2000),
                (at(".local/share/large"), NotSearched::TooLarge, 1, 200),
                (at(".local/share/game"), NotSearched::BeyondTotal, 1, 60),
            ],
        );
        let all = Scope::of(&places, BTreeSet::new(), SearchLimits::everything());
        assert_eq!((all.files.len(), all.unsearched().len()), (7, 0));
        let first = Scope::of(&places, [at("docs/1")].into(), limits);
        assert_eq!(first.files[0].0, at("docs/1"));
    }
}
