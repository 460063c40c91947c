//! One mapped file that says which plugins and applications there are: built once, read by all, nothing decoded that is not asked for.
//!
//! A reader maps the current index and answers at once, also when it is stale; making a new one is another process's work.

pub mod app;
mod array;
pub mod build;
mod checksum;
pub mod constraint;
mod entries;
pub mod identity;
pub mod input;
pub mod json;
pub mod layout;
mod new_files;
pub mod opener;
pub mod plugin;
pub mod query;
mod read_ahead;
pub mod record;
pub mod refresh;
mod sections;
pub mod sources;
pub mod state;
mod walk;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use gvdb::GvdbTable;
use rustix::fs::OFlags;
use sys::map::Map;

use self::array::Array;
use self::identity::Identity;
use self::input::{BorrowedInput, IndexPart, Inputs};
use self::layout::{AppKey, PluginKey, Section};
use self::record::IndexRecord;
use self::sections::{RecordList, Sections};
use self::sources::IndexSources;
use crate::apps::associations::{AssociationClaim, AssociationReason};

/// Why an index cannot be used; it is then made anew.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// It is not there, or cannot be read.
    #[error("cannot read the index")]
    Unreadable(#[source] io::Error),
    /// Another version of unjank made it.
    #[error("an index of another version")]
    OtherVersion,
    /// It is not as it was written.
    #[error("a damaged index")]
    Damaged,
    /// Another user owns it or may write to it.
    #[error("another user could have written the index")]
    Foreign,
}

/// An open index.
///
/// Whatever its bytes are, asking it does not panic; [`Index::is_damaged`] says afterwards whether an answer rests on damage.
#[derive(Debug)]
pub struct Index {
    bytes: Bytes,
    sections: Sections,
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

    /// Takes an index whose parts are given the sums of the bytes that they have: for tests of what reads them.
    ///
    /// # Errors
    ///
    /// The bytes are no index of this version.
    #[doc(hidden)]
    pub fn from_resealed(mut bytes: Vec<u8>) -> Result<Index, IndexError> {
        sections::reseal(&mut bytes);
        Index::over(Bytes::Held(bytes))
    }

    fn over(bytes: Bytes) -> Result<Index, IndexError> {
        let slice = bytes.slice();
        let table = GvdbTable::open(slice).map_err(|_| IndexError::Damaged)?;
        let version = table.value(layout::VERSION_AT.name);
        // The first versions had no sums.
        let is_unsummed = version.is_some_and(|version| version.len() == VERSION_LEN + TYPE.len());
        let index = Index { sections: Sections::new(table.layout()), bytes };
        match index.section(layout::VERSION_AT).try_into().map(u32::from_le_bytes) {
            Ok(layout::VERSION) => Ok(index),
            Ok(_) => Err(IndexError::OtherVersion),
            Err(_) if is_unsummed => Err(IndexError::OtherVersion),
            Err(_) => Err(IndexError::Damaged),
        }
    }

    fn section(&self, section: Section) -> &[u8] {
        self.sections.section(self.bytes.slice(), section)
    }

    fn list(&self, section: Section) -> Array<'_> {
        Array::of(self.section(section))
    }

    /// Returns what is kept under `key` in a list; nothing if there is none.
    fn find(&self, section: Section, key: &str) -> &[u8] {
        self.list(section).find(key).unwrap_or_default()
    }

    fn record(&self, list: RecordList, number: u32) -> Option<IndexRecord<'_>> {
        self.sections.record(self.bytes.slice(), list, number)
    }

    fn records(&self, list: RecordList) -> impl Iterator<Item = IndexRecord<'_>> {
        let count = self.sections.count(self.bytes.slice(), list);
        (0..count).filter_map(move |number| self.record(list, number))
    }

    /// Returns whether it was made of these sources.
    pub(crate) fn is_of(&self, sources: &IndexSources) -> bool {
        self.section(layout::SOURCES) == sources.file_name().as_bytes()
    }

    /// Returns whether anything that was read of it so far was not as it was written: then no answer of it can be believed.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.sections.is_damaged()
    }

    /// Returns whether everything in it is as it was written: one pass over the file.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.sections.is_whole(self.bytes.slice())
    }

    /// Returns how large it is, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.slice().len()
    }

    /// Returns what the index was made of, with what each was then.
    pub fn inputs(&self) -> impl Iterator<Item = BorrowedInput<'_>> {
        Inputs(self.section(layout::INPUTS))
    }

    /// Returns the first file or directory of these parts that is no longer what it was: none means that they are current, but for files that were overwritten in place.
    ///
    /// One system call for each directory and each file with associations.
    #[must_use]
    pub fn stale(&self, parts: &[IndexPart]) -> Option<&Path> {
        input::changed(self.inputs().filter(|input| parts.contains(&input.part)))
    }

    /// Returns the first directory that decides which plugins there are in `namespace` and is no longer what it was: fewer system calls than for all plugins.
    #[must_use]
    pub fn stale_namespace(&self, namespace: &str) -> Option<&Path> {
        let inputs = Inputs(self.section(layout::INPUTS));
        input::changed(input::of_namespace(inputs, namespace))
    }

    /// Returns the first directory that decides which plugin has this identifier, as [`Index::plugin`] returns it, and is no longer what it was: those that count less than the one it is in do not.
    #[must_use]
    pub fn stale_plugin(&self, id: &str) -> Option<&Path> {
        let inputs = Inputs(self.section(layout::INPUTS));
        let found = self.plugin(id).and_then(IndexRecord::path).and_then(Path::parent);
        input::changed(input::up_to(inputs, found))
    }

    /// Returns the first file that is no longer what it was, of those whose records were read from this index: it was overwritten in place. So may a file without a record have been, which could be part of the answer now: those of the same kind are looked at too.
    ///
    /// One system call for each; who is about to use an answer asks this first.
    /// It is enough for what is found by the names of files: applications by their identifiers, the plugins of a namespace. Whatever is found by what is in the files, another file may have come to have: that depends on all of them ([`Basis`](query::Basis)).
    #[must_use]
    pub fn overwritten(&self) -> Option<&Path> {
        let bytes = self.bytes.slice();
        let is_read = |list: RecordList| self.sections.records_read(list).next().is_some();
        let is_any_read = RecordList::ALL.into_iter().any(is_read);
        let lists = RecordList::ALL.into_iter().filter(|list| !is_any_read || is_read(*list));
        let changed = |list: RecordList| {
            let numbers = self.sections.records_read(list);
            let read = numbers.filter_map(|number| self.sections.record(bytes, list, number));
            let read = read.filter_map(|record| Some((record.path()?, record.identity()?)));
            first_changed(read.chain(self.unused_of(list)))
        };
        lists.into_iter().find_map(changed)
    }

    /// Returns the first file of a list that is no longer what it was, also of those without a record: what an answer rests on that names all files, or says that there is none, or is found by what is in files.
    fn overwritten_any(&self, list: RecordList) -> Option<&Path> {
        let all = self.records(list);
        let all = all.filter_map(|record| Some((record.path()?, record.identity()?)));
        first_changed(all.chain(self.unused_of(list)))
    }

    /// Returns the files without a record that would be in a list if they had one.
    fn unused_of(&self, list: RecordList) -> impl Iterator<Item = (&Path, Identity)> {
        let unused = self.unused().filter(|unused| unused.identity != Identity::UNWATCHED);
        let unused = unused.filter(move |unused| list.may_have(unused.path));
        unused.map(|unused| (unused.path, unused.identity))
    }

    /// Returns a file that was overwritten in place, of all that the index knows.
    #[must_use]
    pub fn stale_file(&self) -> Option<&Path> {
        RecordList::ALL.into_iter().find_map(|list| self.overwritten_any(list))
    }

    /// Returns the files that have no record: no plugins, or not to be used.
    fn unused(&self) -> impl Iterator<Item = Unused<'_>> {
        let mut rest = self.section(layout::UNUSED);
        std::iter::from_fn(move || {
            let path = path_of(take(&mut rest)?);
            let (identity, after) = rest.split_first_chunk()?;
            rest = after;
            let reason = str::from_utf8(take(&mut rest)?).ok()?;
            Some(Unused { path, identity: Identity::from_bytes(identity), reason })
        })
    }

    /// Returns the paths that could not be used, with the reason.
    pub fn faults(&self) -> impl Iterator<Item = (&Path, &str)> {
        let faults = self.unused().filter(|unused| !unused.reason.is_empty());
        faults.map(|unused| (unused.path, unused.reason))
    }

    /// Returns all plugins, the ones that count most first.
    pub fn plugins(&self) -> impl Iterator<Item = IndexRecord<'_>> {
        self.records(RecordList::Plugins)
    }

    /// Returns the plugins that are kept under `value`, the one that counts most first.
    pub fn plugins_by(&self, key: PluginKey, value: &str) -> impl Iterator<Item = IndexRecord<'_>> {
        let numbers = self.numbers(key.section(), value);
        numbers.filter_map(|number| self.record(RecordList::Plugins, number))
    }

    /// Returns the plugin of this identifier; of several the one that counts most: in the first root that has one, and there in the first directory, whose own files come before those of directories below it.
    #[must_use]
    pub fn plugin(&self, id: &str) -> Option<IndexRecord<'_>> {
        self.plugins_by(PluginKey::Id, id).next()
    }

    /// Returns all desktop files, those of the directory that counts most first; masked and hidden ones too.
    pub fn apps(&self) -> impl Iterator<Item = IndexRecord<'_>> {
        self.records(RecordList::Apps)
    }

    /// Returns the desktop files that are kept under `value`.
    pub fn apps_by(&self, key: AppKey, value: &str) -> impl Iterator<Item = IndexRecord<'_>> {
        let numbers = self.numbers(key.section(), value);
        numbers.filter_map(|number| self.record(RecordList::Apps, number))
    }

    /// Returns a MIME type and all that it is a kind of, nearest first.
    #[must_use]
    pub fn lineage<'a>(&'a self, mime_type: &'a str) -> Vec<&'a str> {
        let known = self.list(layout::LINEAGE).find(mime_type);
        known.map_or_else(|| vec![mime_type], |list| texts(list).collect())
    }

    /// Returns the claims on one MIME type.
    pub fn claims(&self, mime_type: &str) -> impl Iterator<Item = AssociationClaim<'_>> + use<'_> {
        claims(self.find(layout::OPEN, mime_type))
    }

    /// Returns every type that something is claimed on, with the claims.
    pub fn open_types(
        &self,
    ) -> impl Iterator<Item = (&str, impl Iterator<Item = AssociationClaim<'_>>)> {
        self.list(layout::OPEN).iter().filter_map(|mut element| {
            let mime_type = str::from_utf8(take(&mut element)?).ok()?;
            Some((mime_type, claims(element)))
        })
    }

    /// Returns a file with associations, by its number.
    #[must_use]
    pub fn association_file(&self, number: u32) -> Option<&Path> {
        let mut rest = self.section(layout::FILES);
        let mut paths = std::iter::from_fn(|| take(&mut rest));
        paths.nth(usize::try_from(number).ok()?).map(path_of)
    }

    /// Returns the GIO modules that implement an extension point.
    pub fn gio_modules(&self, point: &str) -> impl Iterator<Item = &Path> + use<'_> {
        let mut rest = self.find(layout::GIO, point);
        std::iter::from_fn(move || take(&mut rest).map(path_of))
    }

    fn numbers(&self, section: Section, value: &str) -> impl Iterator<Item = u32> + use<'_> {
        self.find(section, value).as_chunks().0.iter().map(|number| u32::from_le_bytes(*number))
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
fn claims(mut rest: &[u8]) -> impl Iterator<Item = AssociationClaim<'_>> {
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
            b'd' => AssociationReason::Default,
            b'a' => AssociationReason::Added,
            b'm' => AssociationReason::Declared,
            b'r' => AssociationReason::Removed,
            _ => return None,
        };
        let id = str::from_utf8(take(&mut rest)?).ok()?;
        Some(AssociationClaim {
            id,
            reason,
            level: (level != u32::MAX).then_some(level),
            file,
            line,
        })
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

/// The length of the version.
const VERSION_LEN: usize = 4;

/// A file that has no record.
#[derive(Clone, Copy, Debug)]
struct Unused<'a> {
    path: &'a Path,
    identity: Identity,
    /// Why it cannot be used; empty for a library that is no plugin.
    reason: &'a str,
}

/// Returns the first path that is no longer what it was.
fn first_changed<'a>(files: impl Iterator<Item = (&'a Path, Identity)>) -> Option<&'a Path> {
    files.into_iter().find(|(path, identity)| !identity.is_of(path)).map(|(path, _)| path)
}

fn texts(list: &[u8]) -> impl Iterator<Item = &str> {
    let mut rest = list;
    std::iter::from_fn(move || str::from_utf8(take(&mut rest)?).ok())
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
