//! What an index is made of: the directories of plugins and applications, and the language of its texts.

use std::borrow::Cow;
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::apps::place::ApplicationDirectories;
use xdg::languages::Languages;

/// The places that an index is made of, as the environment says them; two programs with the same ones share an index.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IndexSources {
    /// Directories below which plugins of Qt are, the one that counts most first.
    pub plugin_roots: Vec<PathBuf>,
    /// Directories with GIO modules.
    pub gio_dirs: Vec<PathBuf>,
    /// Where applications and associations are.
    pub places: ApplicationDirectories,
    /// The locale of the texts, as POSIX spells it.
    pub locale: String,
}

/// A hash that is the same in every program and version (FNV-1a).
struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    fn part(&mut self, part: &[u8]) {
        // Lengths first, so that no two lists of parts look alike.
        self.write(&(part.len() as u64).to_le_bytes());
        self.write(part);
    }
}

impl Fnv {
    /// Returns the name of a file. Made by hand: to format it is more code to bring into memory than all else of a first question.
    fn named(&self, kind: &str) -> String {
        let mut name = String::with_capacity(kind.len() + 21);
        name.push_str(kind);
        let digits = self.0.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        name.extend(digits.map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
        name.push_str(".gvdb");
        name
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl IndexSources {
    /// Returns the name of the index's file: other sources have another one.
    #[must_use]
    pub fn file_name(&self) -> String {
        let mut hash = Fnv::new();
        self.parts().iter().for_each(|part| hash.part(part));
        hash.named("index-")
    }

    /// Returns the name of the file of the system's index: one for each language, because a package manager knows no session's desktop and directories.
    #[must_use]
    pub(crate) fn system_file_name(&self) -> String {
        let mut hash = Fnv::new();
        let languages = Languages::of_locale(&self.locale);
        languages.spellings().for_each(|spelling| hash.part(spelling.as_bytes()));
        hash.named("system-")
    }

    /// Returns everything that tells these sources from others.
    fn parts(&self) -> Vec<Cow<'_, [u8]>> {
        fn list(paths: &[PathBuf]) -> impl Iterator<Item = Cow<'_, [u8]>> {
            paths.iter().map(|path| path.as_os_str().as_bytes()).chain([&b""[..]]).map(Cow::from)
        }
        fn one(path: Option<&PathBuf>) -> Cow<'_, [u8]> {
            path.map_or(&b""[..], |path| path.as_os_str().as_bytes()).into()
        }
        let places = &self.places;
        let mut parts: Vec<Cow<'_, [u8]>> =
            list(&self.plugin_roots).chain(list(&self.gio_dirs)).collect();
        parts.extend([one(places.config_home.as_ref()), one(places.data_home.as_ref())]);
        parts.extend(list(&places.config_dirs).chain(list(&places.data_dirs)));
        // Files are called by desktops in lower case.
        let desktops =
            places.desktops.iter().map(|desktop| desktop.to_ascii_lowercase().into_bytes());
        parts.extend(desktops.map(Cow::from));
        parts.push(self.locale.as_bytes().into());
        parts
    }

    /// Returns the sources that belong to the machine and not to a user: of these a package manager makes the system's index.
    #[must_use]
    pub fn of_system(&self) -> IndexSources {
        let is_homely = |path: &Path| path.starts_with("/home") || path.starts_with("/root");
        let keep =
            |paths: &[PathBuf]| paths.iter().filter(|path| !is_homely(path)).cloned().collect();
        let places = ApplicationDirectories {
            config_home: None,
            data_home: None,
            config_dirs: keep(&self.places.config_dirs),
            data_dirs: keep(&self.places.data_dirs),
            desktops: self.places.desktops.clone(),
            path: self.places.path.clone(),
        };
        IndexSources {
            plugin_roots: keep(&self.plugin_roots),
            gio_dirs: keep(&self.gio_dirs),
            places,
            locale: self.locale.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_written_with_all_its_digits() {
        assert_eq!(Fnv(0x0123_4567_89ab_cdef).named("index-"), "index-0123456789abcdef.gvdb");
        assert_eq!(Fnv(0xf).named("system-"), "system-000000000000000f.gvdb");
    }
}
