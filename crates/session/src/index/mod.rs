//! One mapped file that says which plugins and applications there are: built once, read by all, nothing decoded that is not asked for.
//!
//! A reader maps the current index and answers at once, also when it is stale; making a new one is another process's work.

pub mod app;
mod array;
pub mod build;
mod cold;
pub mod constraint;
mod entries;
pub mod identity;
pub mod input;
pub mod layout;
pub mod opener;
pub mod plugin;
pub mod record;
pub mod refresh;
pub mod sources;
mod walk;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};
use store::table::gvdb::{Layout, Stamp, Table, stamp};
use sys::map::Map;

use self::array::Array;
use self::input::{Inputs, Known, Part};
use self::layout::{AppKey, PluginKey};
use self::record::Record;
use self::sources::Sources;
use crate::apps::associations::{Claim, Reason};

/// Why an index cannot be used; it is then made anew.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// It is not there, or cannot be read.
    #[error("cannot read the index")]
    Unreadable(#[source] io::Error),
    /// It is damaged, or of another version.
    #[error("not an index of this version")]
    NotAnIndex,
}

/// An open index.
#[derive(Debug)]
pub struct Index {
    bytes: Bytes,
    layout: Layout,
    /// Whether it is of this boot, once somebody asked.
    is_of_this_boot: OnceLock<bool>,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Map),
    Held(Vec<u8>),
}

impl Index {
    /// Maps the index at `path`.
    ///
    /// # Errors
    ///
    /// It is not there, or not one.
    pub fn open(path: &Path) -> Result<Index, IndexError> {
        // A pipe in its place does not make us wait.
        let options = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(options).open(path);
        Index::of(&file.map_err(IndexError::Unreadable)?)
    }

    /// Maps an index.
    fn of(file: &File) -> Result<Index, IndexError> {
        let map = Map::of(file).map_err(IndexError::Unreadable)?;
        Index::over(Bytes::Mapped(map))
    }

    /// Takes an index that has not been written to a file.
    ///
    /// # Errors
    ///
    /// The bytes are no index of this version.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Index, IndexError> {
        Index::over(Bytes::Held(bytes))
    }

    fn over(bytes: Bytes) -> Result<Index, IndexError> {
        let slice = bytes.slice();
        let table = Table::open(slice).map_err(|_| IndexError::NotAnIndex)?;
        let layout = table.layout();
        let index = Index { bytes, layout, is_of_this_boot: OnceLock::new() };
        if index.value(layout::VERSION_AT) != Some(&layout::VERSION.to_le_bytes()[..]) {
            return Err(IndexError::NotAnIndex);
        }
        Ok(index)
    }

    fn table(&self) -> Option<Table<'_>> {
        self.layout.attach(self.bytes.slice())
    }

    /// Returns the bytes that are kept under a name.
    fn value(&self, name: &str) -> Option<&[u8]> {
        self.table()?.value(name)?.strip_suffix(TYPE)
    }

    fn list(&self, name: &str) -> Array<'_> {
        Array::of(self.value(name).unwrap_or_default())
    }

    /// Returns what is kept under `key` in the list of this name; nothing if there is none.
    fn find(&self, name: &str, key: &str) -> &[u8] {
        self.list(name).find(key).unwrap_or_default()
    }

    /// Says whether it was made of these sources.
    pub(crate) fn is_of(&self, sources: &Sources) -> bool {
        self.value(layout::SOURCES) == Some(sources.file_name().as_bytes())
    }

    /// Says whether every byte is as it was written: one pass over the file.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(stamp(self.bytes.slice()), Stamp::Good { .. })
    }

    /// Returns how large it is, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.slice().len()
    }

    /// Says whether it was made since the machine was started: then no power cut came between, and what is read is what was written.
    #[must_use]
    pub fn is_of_this_boot(&self) -> bool {
        *self
            .is_of_this_boot
            .get_or_init(|| boot_id().is_some_and(|id| self.value(layout::BOOT) == Some(&id)))
    }

    /// Returns what the index was made of, with what each was then.
    pub fn inputs(&self) -> impl Iterator<Item = Known<'_>> {
        Inputs(self.value(layout::INPUTS).unwrap_or_default())
    }

    /// Returns the first file or directory of these parts that is no longer what it was: none means that they are current, but for files that were overwritten in place.
    ///
    /// One system call for each directory and each file with associations.
    #[must_use]
    pub fn stale(&self, parts: &[Part]) -> Option<&Path> {
        input::changed(self.inputs().filter(|input| parts.contains(&input.part)))
    }

    /// Returns the first directory that decides which plugins there are in `namespace` and is no longer what it was: fewer system calls than for all plugins.
    #[must_use]
    pub fn stale_namespace(&self, namespace: &str) -> Option<&Path> {
        let inputs = Inputs(self.value(layout::INPUTS).unwrap_or_default());
        input::changed(input::of_namespace(inputs, namespace))
    }

    /// Returns the first directory that decides which plugin has this identifier, as [`Index::plugin`] returns it, and is no longer what it was: those that count less than the one it is in do not.
    #[must_use]
    pub fn stale_plugin(&self, id: &str) -> Option<&Path> {
        let inputs = Inputs(self.value(layout::INPUTS).unwrap_or_default());
        let found = self.plugin(id).and_then(Record::path).and_then(Path::parent);
        input::changed(input::up_to(inputs, found))
    }

    /// Returns the paths that could not be used, with the reason.
    pub fn faults(&self) -> impl Iterator<Item = (&Path, &str)> {
        let mut rest = self.value(layout::FAULTS).unwrap_or_default();
        std::iter::from_fn(move || {
            Some((path_of(take(&mut rest)?), str::from_utf8(take(&mut rest)?).ok()?))
        })
    }

    /// Returns all plugins, the ones that count most first.
    pub fn plugins(&self) -> impl Iterator<Item = Record<'_>> {
        self.list(layout::PLUGINS).iter().map(Record)
    }

    /// Returns the plugins that are kept under `value`, the one that counts most first.
    pub fn plugins_by(&self, key: PluginKey, value: &str) -> impl Iterator<Item = Record<'_>> {
        let plugins = self.list(layout::PLUGINS);
        self.numbers(key.name(), value).filter_map(move |number| plugins.get(number).map(Record))
    }

    /// Returns the plugin of this identifier; of several the one in the directory that counts most.
    #[must_use]
    pub fn plugin(&self, id: &str) -> Option<Record<'_>> {
        self.plugins_by(PluginKey::Id, id).next()
    }

    /// Returns all desktop files, those of the directory that counts most first; masked and hidden ones too.
    pub fn apps(&self) -> impl Iterator<Item = Record<'_>> {
        self.list(layout::APPS).iter().map(Record)
    }

    /// Returns the desktop files that are kept under `value`.
    pub fn apps_by(&self, key: AppKey, value: &str) -> impl Iterator<Item = Record<'_>> {
        let apps = self.list(layout::APPS);
        self.numbers(key.name(), value).filter_map(move |number| apps.get(number).map(Record))
    }

    /// Returns a MIME type and all that it is a kind of, nearest first.
    #[must_use]
    pub fn lineage<'a>(&'a self, mime_type: &'a str) -> Vec<&'a str> {
        let known = self.list(layout::LINEAGE).find(mime_type);
        known.map_or_else(|| vec![mime_type], |list| texts(list).collect())
    }

    /// Returns the claims on one MIME type.
    pub fn claims(&self, mime_type: &str) -> impl Iterator<Item = Claim<'_>> + use<'_> {
        claims(self.find(layout::OPEN, mime_type))
    }

    /// Returns every type that something is claimed on, with the claims.
    pub fn open_types(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = Claim<'_>>)> {
        self.list(layout::OPEN).iter().filter_map(|mut element| {
            let mime_type = str::from_utf8(take(&mut element)?).ok()?;
            Some((mime_type, claims(element)))
        })
    }

    /// Returns a file with associations, by its number.
    #[must_use]
    pub fn association_file(&self, number: u32) -> Option<&Path> {
        let mut rest = self.value(layout::FILES)?;
        let mut paths = std::iter::from_fn(|| take(&mut rest));
        paths.nth(usize::try_from(number).ok()?).map(path_of)
    }

    /// Returns the GIO modules that implement an extension point.
    pub fn gio_modules(&self, point: &str) -> impl Iterator<Item = &Path> + use<'_> {
        let mut rest = self.find(layout::GIO, point);
        std::iter::from_fn(move || take(&mut rest).map(path_of))
    }

    fn numbers(&self, name: &str, value: &str) -> impl Iterator<Item = u32> + use<'_> {
        self.find(name, value).as_chunks().0.iter().map(|number| u32::from_le_bytes(*number))
    }
}

impl Bytes {
    fn slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map.bytes(),
            Bytes::Held(bytes) => bytes,
        }
    }
}

/// Reads claims, one after another; they end where the bytes stop making sense.
fn claims(mut rest: &[u8]) -> impl Iterator<Item = Claim<'_>> {
    std::iter::from_fn(move || {
        let (reason, after) = rest.split_first()?;
        rest = after;
        let mut number = || {
            let (number, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u32::from_le_bytes(*number))
        };
        let (level, file, line) = (number()?, number()?, number()?);
        let reason = match reason {
            b'd' => Reason::Default,
            b'a' => Reason::Added,
            b'm' => Reason::Declared,
            b'r' => Reason::Removed,
            _ => return None,
        };
        let id = str::from_utf8(take(&mut rest)?).ok()?;
        Some(Claim { id, reason, level: (level != u32::MAX).then_some(level), file, line })
    })
}

/// What stands behind the bytes of a `v` that holds `ay`: a zero and the type.
const TYPE: &[u8] = b"\0ay";

/// Takes a value with its length before it.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk()?;
    let (value, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *rest = after;
    Some(value)
}

/// The length of the identifier of a boot: a UUID as text.
const BOOT_LEN: usize = 36;

/// Returns the identifier that the kernel gave this boot; none without `/proc`.
fn boot_id() -> Option<[u8; BOOT_LEN]> {
    let path = c"/proc/sys/kernel/random/boot_id";
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut id = [0; BOOT_LEN];
    (rustix::io::read(file, &mut id) == Ok(BOOT_LEN)).then_some(id)
}

fn texts(list: &[u8]) -> impl Iterator<Item = &str> {
    let mut rest = list;
    std::iter::from_fn(move || str::from_utf8(take(&mut rest)?).ok())
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
