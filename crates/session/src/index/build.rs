//! Making an index: directories that did not change keep their records, files that did not change are not opened.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use store::table::gvdb::WriteError;

use super::Index;
use super::entries::Entries;
use super::identity::Identity;
use super::input::{Input, Part};
use super::record::Record;
use super::sources::Sources;
use super::{app, plugin};
use crate::apps::associations::{Associations, read_bounded};
use crate::apps::desktop::{DesktopFile, id_of};
use crate::languages::Languages;
use crate::mime_types::MimeTypes;
use crate::plugins::metadata;

/// How deep directories are followed.
const DEPTH: usize = 8;

/// The most files of one kind: somebody's data directory may be anything.
const FILES_MAX: usize = 50_000;

/// From how many files on a second thread pays.
const SHARED_FROM: usize = 24;

/// How closely is looked at what may have changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Look {
    /// At directories: one that did not change has the same files. A file that was overwritten in place is noticed when it is used.
    Directories,
    /// At every file.
    Files,
}

/// A finished index.
#[derive(Debug)]
pub struct Built {
    /// The bytes of its file.
    pub image: Vec<u8>,
    /// How many plugins there are.
    pub plugins: usize,
    /// How many desktop files there are.
    pub applications: usize,
    /// How many files were opened; all others were in the old index.
    pub opened: usize,
    /// Files and directories that could not be used, with the reason.
    pub faults: Vec<(PathBuf, String)>,
}

/// What kind of file a record is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Plugin,
    App,
}

/// A file that belongs in the index.
#[derive(Debug)]
struct Item<'a> {
    kind: Kind,
    path: PathBuf,
    /// The namespace of a plugin, the identifier of an application.
    name: String,
    level: u32,
    identity: Identity,
    record: Option<Cow<'a, [u8]>>,
    fault: Option<String>,
}

/// What the old index knows of files and directories.
#[derive(Default)]
struct Old<'a> {
    inputs: HashMap<&'a Path, Identity>,
    /// Directories below a directory.
    below: HashMap<&'a Path, Vec<&'a Path>>,
    /// Records by the directory that their file is in.
    in_directory: HashMap<&'a Path, Vec<(Kind, Record<'a>)>>,
    records: HashMap<&'a Path, Record<'a>>,
}

impl<'a> Old<'a> {
    fn new(index: &'a Index) -> Old<'a> {
        let inputs = index.inputs().map(|input| (input.path(), input.identity));
        let mut old = Old { inputs: inputs.collect(), ..Old::default() };
        for path in old.inputs.keys() {
            if let Some(parent) = path.parent() {
                old.below.entry(parent).or_default().push(path);
            }
        }
        let plugins = index.plugins().map(|record| (Kind::Plugin, record));
        for (kind, record) in plugins.chain(index.apps().map(|record| (Kind::App, record))) {
            let Some(path) = record.path() else { continue };
            old.records.insert(path, record);
            if let Some(parent) = path.parent() {
                old.in_directory.entry(parent).or_default().push((kind, record));
            }
        }
        old
    }
}

/// Makes the index of `sources`; what `old` has and did not change is taken from there.
///
/// # Errors
///
/// More than a file of 4 GiB can hold. A file that cannot be used is a fault of that file alone.
pub fn build(sources: &Sources, old: Option<&Index>, look: Look) -> Result<Built, WriteError> {
    let old = old.map(Old::new).unwrap_or_default();
    let mut gathering = Gathering { old: &old, look, items: Vec::new(), inputs: Vec::new() };
    for root in &sources.plugin_roots {
        gathering.root(Kind::Plugin, root, 0);
    }
    for (place, level) in sources.places.application_directories().zip(0_u32..) {
        gathering.root(Kind::App, &place.path, level);
    }
    let Gathering { mut items, mut inputs, .. } = gathering;
    let languages = Languages::of_locale(&sources.locale);
    let opened = make_records(&mut items, &languages);

    let mut faults = Vec::new();
    let mut entries = Entries::default();
    for item in &items {
        match (&item.record, item.kind) {
            (Some(record), Kind::Plugin) => entries.add_plugin(record),
            (Some(record), Kind::App) => entries.add_app(record, &item.name),
            (None, _) => {}
        }
    }
    let (plugins, applications) = entries.counts();
    for item in items {
        faults.extend(item.fault.map(|reason| (item.path, reason)));
    }
    let types = MimeTypes::read(sources.places.data());
    let associations = Associations::read(&sources.places, &types);
    entries.add_types(&types, &associations);
    for directory in &sources.gio_dirs {
        let cache = directory.join("giomodule.cache");
        inputs.push(Input::new(Part::Gio, cache.clone(), Identity::of(&cache)));
        match read_bounded(&cache) {
            Ok(bytes) => entries.add_gio(directory, &bytes.unwrap_or_default()),
            Err(reason) => faults.push((cache, reason)),
        }
    }
    let relations = sources
        .places
        .data()
        .flat_map(|dir| ["aliases", "subclasses"].map(|name| dir.join("mime").join(name)));
    relations.for_each(|path| look_for(&mut inputs, Part::Types, path));
    let lists = associations.looked_for().iter().cloned();
    lists.for_each(|path| look_for(&mut inputs, Part::Openers, path));
    faults.extend(associations.unusable().iter().cloned());
    entries.add_lists(&inputs, associations.files(), &faults);
    let image = entries.write()?;
    Ok(Built { image, plugins, applications, opened, faults })
}

/// Adds a file that was looked for, so that its change is noticed, or its coming.
fn look_for(inputs: &mut Vec<Input>, part: Part, path: PathBuf) {
    let identity = Identity::of(&path);
    // A link that leads nowhere may lead somewhere later, without a change of its directory.
    let is_missing = |path: &Path| {
        let found = std::fs::symlink_metadata(path);
        found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    let directory = path.parent().filter(|_| !identity.is_there() && is_missing(&path));
    // What is not there cannot come without its directory: that is one look for all of its files.
    if let Some(directory) = directory {
        let known = |input: &Input| input.path == directory && covers(input.part, part);
        if inputs.iter().any(known) {
            return;
        }
        if is_missing(directory) {
            return inputs.push(Input::new(part, directory.to_owned(), Identity::ABSENT));
        }
    }
    inputs.push(Input::new(part, path, identity));
}

/// Says whether everybody who looks at `part` looks at this directory too.
fn covers(directory: Part, part: Part) -> bool {
    directory == part || (part == Part::Openers && directory == Part::Applications)
}

/// A walk through the directories.
struct Gathering<'a> {
    old: &'a Old<'a>,
    look: Look,
    items: Vec<Item<'a>>,
    inputs: Vec<Input>,
}

impl Gathering<'_> {
    fn root(&mut self, kind: Kind, root: &Path, level: u32) {
        let at = self.inputs.len();
        self.directory(kind, root, Path::new(""), level, DEPTH);
        let below = self.inputs.len() - at - 1;
        self.inputs[at].below = u32::try_from(below).unwrap_or(u32::MAX);
    }

    fn directory(&mut self, kind: Kind, root: &Path, below: &Path, level: u32, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let path = if below.as_os_str().is_empty() { root.to_owned() } else { root.join(below) };
        // Looked at before it is read: what changes in between makes the index stale, not wrong.
        let identity = Identity::of(&path);
        let part = if kind == Kind::Plugin { Part::Plugins } else { Part::Applications };
        self.inputs.push(Input::new(part, path.clone(), identity));
        if !identity.is_there() {
            return;
        }
        if self.look == Look::Directories
            && self.old.inputs.get(&*path) == Some(&identity)
            && self.can_keep(kind, &path, below, level)
        {
            self.keep(kind, &path, level);
            for directory in self.old.below.get(&*path).into_iter().flatten() {
                if let Some(name) = directory.file_name().filter(|_| is_directory(directory)) {
                    self.directory(kind, root, &below.join(name), level, depth);
                }
            }
            return;
        }
        let Ok(entries) = std::fs::read_dir(&path) else { return };
        let mut names: Vec<_> = entries.flatten().collect();
        // The same directory gives the same index, whatever order the file system has.
        names.sort_by_key(std::fs::DirEntry::file_name);
        for entry in names {
            let relative = below.join(entry.file_name());
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir || (is_link && is_directory(&entry.path())) {
                self.directory(kind, root, &relative, level, depth);
            } else if let Some(name) = name_of(kind, below, &relative) {
                self.file(kind, entry.path(), name, level);
            }
        }
    }

    /// Says whether the old records of a directory are what would be made of its files now: the index that we begin with may be one of other directories, in which this one had another place.
    fn can_keep(&self, kind: Kind, directory: &Path, below: &Path, level: u32) -> bool {
        let records = self.old.in_directory.get(directory).into_iter().flatten();
        records.filter(|(known, _)| *known == kind).all(|(_, record)| {
            let file = record.path().and_then(Path::file_name);
            let name = file.and_then(|file| name_of(kind, below, &below.join(file)));
            name.is_some_and(|name| is_at(kind, *record, &name, level))
        })
    }

    /// Takes over the records of a directory that did not change.
    fn keep(&mut self, kind: Kind, directory: &Path, level: u32) {
        let records = self.old.in_directory.get(directory).into_iter().flatten();
        for (_, record) in records.filter(|(known, _)| *known == kind) {
            let (Some(path), Some(identity)) = (record.path(), record.identity()) else { continue };
            let name = match kind {
                Kind::Plugin => record.text(plugin::NAMESPACE),
                Kind::App => record.text(app::ID),
            };
            self.items.push(Item {
                kind,
                path: path.to_owned(),
                name: name.unwrap_or_default().to_owned(),
                level,
                identity,
                record: Some(Cow::Borrowed(record.as_bytes())),
                fault: None,
            });
        }
    }

    fn file(&mut self, kind: Kind, path: PathBuf, name: String, level: u32) {
        if self.items.len() >= FILES_MAX {
            return;
        }
        let identity = Identity::of(&path);
        let known = self.old.records.get(&*path).filter(|record| {
            record.identity() == Some(identity) && is_at(kind, **record, &name, level)
        });
        let record = known.map(|record| Cow::Borrowed(record.as_bytes()));
        self.items.push(Item { kind, path, name, level, identity, record, fault: None });
    }
}

/// Says whether a record has this name and this place among the directories.
fn is_at(kind: Kind, record: Record<'_>, name: &str, level: u32) -> bool {
    match kind {
        Kind::Plugin => record.text(plugin::NAMESPACE) == Some(name),
        Kind::App => {
            record.text(app::ID) == Some(name) && record.whole(app::LEVEL) == Some(level.into())
        }
    }
}

fn is_directory(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_dir())
}

/// Returns the namespace or the identifier of the file at `relative`; none for a file that does not belong in the index.
fn name_of(kind: Kind, below: &Path, relative: &Path) -> Option<String> {
    if kind == Kind::App {
        return id_of(relative);
    }
    let name = relative.file_name()?.to_str()?;
    let is_plugin = name.ends_with(".so") || name.contains(".so.");
    is_plugin.then(|| below.to_string_lossy().into_owned())
}

/// Opens what has no record yet, on two threads where that pays; returns how many files were opened.
fn make_records(items: &mut [Item<'_>], languages: &Languages) -> usize {
    let mut new: Vec<&mut Item<'_>> =
        items.iter_mut().filter(|item| item.record.is_none()).collect();
    let opened = new.len();
    let threads = if opened < SHARED_FROM {
        1
    } else {
        std::thread::available_parallelism().map_or(1, usize::from).clamp(1, 8)
    };
    if threads == 1 {
        new.iter_mut().for_each(|item| item.read(languages));
        return opened;
    }
    // Small helpings: files differ much in size, and a cold disk in speed.
    let next = AtomicUsize::new(0);
    let slots: Vec<_> = new.into_iter().map(std::sync::Mutex::new).collect();
    let work = || {
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Ok(mut item) = slot.lock() {
                item.read(languages);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    opened
}

impl Item<'_> {
    fn read(&mut self, languages: &Languages) {
        match self.made(languages) {
            Ok(record) => self.record = record.map(Cow::Owned),
            Err(reason) => self.fault = Some(reason),
        }
    }

    /// Makes the record; none for a library that is no plugin.
    fn made(&self, languages: &Languages) -> Result<Option<Vec<u8>>, String> {
        match self.kind {
            Kind::Plugin => {
                let file = open(&self.path)?;
                let raw = match metadata::read(&file) {
                    Ok(raw) => raw,
                    Err(metadata::MetadataError::Elf(
                        crate::plugins::elf::ElfError::NoMetadata,
                    )) => return Ok(None),
                    Err(error) => return Err(error.to_string()),
                };
                let metadata = metadata::decode(&raw).map_err(|error| error.to_string())?;
                Ok(Some(plugin::record(
                    &self.path,
                    &self.name,
                    self.identity,
                    &metadata,
                    languages,
                )))
            }
            Kind::App => {
                let Some(bytes) = read_bounded(&self.path)? else { return Ok(None) };
                let file = DesktopFile::parse(&bytes).map_err(|error| error.to_string())?;
                Ok(Some(app::record(
                    &self.path,
                    &self.name,
                    self.level,
                    self.identity,
                    &file,
                    languages,
                )))
            }
        }
    }
}

/// Opens a regular file; a pipe of that name does not make us wait.
fn open(path: &Path) -> Result<File, String> {
    let options = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(options).open(path);
    let file = file.map_err(|error| error.to_string())?;
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(file),
        _ => Err("not a regular file".to_owned()),
    }
}
