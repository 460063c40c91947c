//! The walk through the directories: what did not change is taken over from the old index, what is new is read, by several threads where that pays.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{self, AtomicUsize};
use std::sync::{Arc, Mutex};

use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
use sys::dir::{DT_DIR, DT_LNK, DT_REG, DT_UNKNOWN, Directory};

use super::build::Look;
use super::identity::Identity;
use super::input::{Input, Part};
use super::record::Record;
use super::sources::Sources;
use super::{Index, app, plugin};
use crate::apps::associations::read_whole;
use crate::apps::desktop::{DesktopFile, id_of};
use crate::languages::Languages;
use crate::plugins::elf::ElfError;
use crate::plugins::metadata::{self, MetadataError};

/// How deep directories are followed.
const DEPTH: usize = 8;

/// The most files of one kind: somebody's data directory may be anything.
const FILES_MAX: usize = 50_000;

/// The most directories of one kind; a machine with everything installed has some hundred.
const DIRECTORIES_MAX: usize = 4_000;

/// From how many files on a second thread pays.
const SHARED_FROM: usize = 24;

/// How many threads read at least where many files are new: a disk that is slow to answer answers several at once.
const READERS: usize = 2;

/// How many directories stay open until their files were read; others' files are opened by their whole path, which takes longer.
///
/// A process with threads that opens its 65th file waits for all processors (`synchronize_rcu` in the kernel's `expand_fdtable`), which takes longer than all files.
const HELD_MAX: usize = 40;

/// From how many names on it pays to keep a directory open.
const HELD_FROM: usize = 4;

/// How many bytes of names are read at once.
const NAMES_LEN: usize = 32 << 10;

/// What kind of file a record is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Plugin,
    App,
}

impl Kind {
    fn part(self) -> Part {
        match self {
            Kind::Plugin => Part::Plugins,
            Kind::App => Part::Applications,
        }
    }
}

/// A file that belongs in the index.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub(super) kind: Kind,
    pub(super) what: What<'a>,
}

/// What is known of a file.
#[derive(Debug)]
pub(super) enum What<'a> {
    /// The record of the old index.
    Kept(&'a [u8]),
    /// It is read. There are few of them among many kept ones, which take little memory so.
    New(Box<New>),
}

/// A file that is read.
#[derive(Debug)]
pub(super) struct New {
    pub(super) path: PathBuf,
    /// The namespace of a plugin, the identifier of an application.
    name: String,
    level: u32,
    /// Its directory, while it is open.
    directory: Option<Arc<Directory>>,
    /// Its record, none for a library that is no plugin, or why it cannot be used.
    pub(super) made: Result<Option<Vec<u8>>, String>,
}

/// Why a file or a directory is left out that was not looked into.
const NOT_REGULAR: &str = "not a regular file";
const IN_ITSELF: &str = "a link to a directory that it is in";
const TOO_MANY: &str = "too many files or directories before it";

/// What the walk found.
#[derive(Debug)]
pub(super) struct Walked<'a> {
    pub(super) items: Vec<Item<'a>>,
    pub(super) inputs: Vec<Input>,
    /// Files of directories that did not change which could not be used.
    pub(super) faults: Vec<(&'a Path, &'a str)>,
    /// How many files were opened.
    pub(super) opened: usize,
}

/// Goes through all directories of `sources`.
pub(super) fn walk<'a>(sources: &Sources, old: Option<&'a Index>, look: Look) -> Walked<'a> {
    let old = old.map(Old::new).unwrap_or_default();
    let walked = Walked { items: Vec::new(), inputs: Vec::new(), faults: Vec::new(), opened: 0 };
    let mut gathering =
        Gathering { old: &old, look, walked, files: 0, directories: 0, held: 0, names: Vec::new() };
    // A directory that is named twice would be in the index twice.
    let mut seen = HashSet::new();
    for root in sources.plugin_roots.iter().filter(|root| seen.insert(root.as_os_str())) {
        gathering.root(Kind::Plugin, root, 0);
    }
    (gathering.files, gathering.directories) = (0, 0);
    let mut seen = HashSet::new();
    for (place, level) in sources.places.application_directories().zip(0_u32..) {
        if seen.insert(place.path.clone()) {
            gathering.root(Kind::App, &place.path, level);
        }
    }
    let mut walked = gathering.walked;
    walked.opened = read_new(&mut walked.items, &Languages::of_locale(&sources.locale));
    walked
}

/// What the old index knows, by directory.
#[derive(Default)]
struct Old<'a>(HashMap<&'a OsStr, Known<'a>>);

/// What the old index knows of a directory.
#[derive(Default)]
struct Known<'a> {
    identity: Option<Identity>,
    /// Directories below it.
    below: Vec<&'a Path>,
    records: Vec<(Kind, Record<'a>)>,
    faults: Vec<(&'a Path, &'a str)>,
}

/// Returns the directory of a path.
fn directory_of(path: &Path) -> &OsStr {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    OsStr::from_bytes(&bytes[..end])
}

impl<'a> Old<'a> {
    fn new(index: &'a Index) -> Old<'a> {
        let mut old = Old::default();
        for input in index.inputs() {
            if matches!(input.part, Part::Plugins | Part::Applications) {
                old.of(directory_of(input.path())).below.push(input.path());
                old.of(input.path().as_os_str()).identity = Some(input.identity);
            }
        }
        let plugins = index.plugins().map(|record| (Kind::Plugin, record));
        let apps = index.apps().map(|record| (Kind::App, record));
        let records = plugins
            .chain(apps)
            .filter_map(|(kind, record)| Some((directory_of(record.path()?), (kind, record))));
        let records: Vec<_> = records.collect();
        // Those of one directory are neighbours.
        for same in records.chunk_by(|one, other| one.0 == other.0) {
            let Some((directory, _)) = same.first() else { continue };
            old.of(directory).records.extend(same.iter().map(|(_, record)| *record));
        }
        for (path, reason) in index.faults() {
            old.of(directory_of(path)).faults.push((path, reason));
        }
        old
    }

    fn of(&mut self, directory: &'a OsStr) -> &mut Known<'a> {
        self.0.entry(directory).or_default()
    }
}

/// A directory that is walked through.
#[derive(Clone, Copy)]
struct Place<'p> {
    kind: Kind,
    root: &'p Path,
    /// Where it is below the root.
    below: &'p Path,
    level: u32,
}

impl Place<'_> {
    /// Returns the namespace or the identifier of the file of this name; none for a file that does not belong in the index.
    fn name_of(&self, name: &OsStr) -> Option<String> {
        if self.kind == Kind::App {
            return id_of(&self.below.join(name));
        }
        let name = name.to_str()?;
        let is_plugin = name.ends_with(".so") || name.contains(".so.");
        is_plugin.then(|| self.below.to_string_lossy().into_owned())
    }

    /// Says whether a record has this name and this place among the directories.
    fn has(&self, record: Record<'_>, name: &str) -> bool {
        match self.kind {
            Kind::Plugin => record.text(plugin::NAMESPACE) == Some(name),
            Kind::App => {
                record.text(app::ID) == Some(name)
                    && record.whole(app::LEVEL) == Some(self.level.into())
            }
        }
    }
}

/// A walk through the directories.
struct Gathering<'w, 'a> {
    old: &'w Old<'a>,
    look: Look,
    walked: Walked<'a>,
    /// How many there are of this kind.
    files: usize,
    directories: usize,
    /// How many directories are open.
    held: usize,
    /// Names as they are read.
    names: Vec<MaybeUninit<u8>>,
}

impl<'w, 'a> Gathering<'w, 'a> {
    fn root(&mut self, kind: Kind, root: &Path, level: u32) {
        let at = self.walked.inputs.len();
        self.directory(Place { kind, root, below: Path::new(""), level }, DEPTH);
        let below = self.walked.inputs.len() - at - 1;
        self.walked.inputs[at].below = u32::try_from(below).unwrap_or(u32::MAX);
    }

    fn directory(&mut self, place: Place<'_>, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let path = match place.below.as_os_str().is_empty() {
            true => place.root.to_owned(),
            false => place.root.join(place.below),
        };
        // Looked at before it is read: what changes in between makes the index stale, not wrong.
        let identity = Identity::of(&path);
        self.directories += 1;
        match self.directories.cmp(&DIRECTORIES_MAX) {
            Ordering::Less => {}
            // Said once.
            Ordering::Equal => return self.leave_out(place, path, TOO_MANY),
            Ordering::Greater => return,
        }
        self.walked.inputs.push(Input::new(place.kind.part(), path.clone(), identity));
        if !identity.is_there() {
            return;
        }
        let old = self.old;
        let known = old.0.get(path.as_os_str());
        let same = known.filter(|known| {
            self.look == Look::Directories
                && known.identity == Some(identity)
                && self.can_keep(place, known)
        });
        match same {
            Some(known) => {
                let records = known.records.iter().filter(|(kind, _)| *kind == place.kind);
                let items = records.map(|(kind, record)| Item {
                    kind: *kind,
                    what: What::Kept(record.as_bytes()),
                });
                self.walked.items.extend(items);
                self.walked.faults.extend(&known.faults);
                for directory in &known.below {
                    if let Some(name) = directory.file_name() {
                        let below = place.below.join(name);
                        self.directory(Place { below: &below, ..place }, depth);
                    }
                }
            }
            None => self.read(place, &path, known, depth),
        }
    }

    /// Reads the names in a directory.
    fn read(&mut self, place: Place<'_>, path: &Path, known: Option<&'w Known<'a>>, depth: usize) {
        let directory = match Directory::open(path) {
            Ok(directory) => directory,
            // A link that led to a directory may lead to a file now.
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                let above = place.below.parent().unwrap_or(place.below);
                let name = place.below.file_name();
                let name = name.and_then(|name| Place { below: above, ..place }.name_of(name));
                if let Some(name) = name {
                    self.file(place, path.to_owned(), name, None, None);
                }
                return;
            }
            Err(_) => return,
        };
        let records = known.into_iter().flat_map(|known| &known.records);
        let records: HashMap<&OsStr, Record<'a>> = records
            .filter(|(kind, _)| *kind == place.kind)
            .filter_map(|(_, record)| Some((record.path()?.as_os_str(), *record)))
            .collect();
        let names = self.names_in(&directory);
        let is_held = self.held < HELD_MAX && names.len() >= HELD_FROM;
        self.held += usize::from(is_held);
        let directory = is_held.then(|| Arc::new(directory));
        for (name, kind) in names {
            let name = OsStr::from_bytes(name.as_bytes());
            match Found::of(kind, || path.join(name)) {
                Found::Directory => {
                    let below = place.below.join(name);
                    self.directory(Place { below: &below, ..place }, depth);
                }
                Found::Around => self.leave_out(place, path.join(name), IN_ITSELF),
                found => {
                    let Some(id) = place.name_of(name) else { continue };
                    let path = path.join(name);
                    if found == Found::File {
                        let known = records.get(path.as_os_str()).copied();
                        self.file(place, path, id, known, directory.as_ref());
                    } else {
                        // Not even opened: that is enough to arm a watchdog, or to rewind a tape.
                        self.leave_out(place, path, NOT_REGULAR);
                    }
                }
            }
        }
        // One whose files are all known, or not ours, is closed again.
        self.held -=
            directory.map_or(0, |directory| usize::from(Arc::strong_count(&directory) == 1));
    }

    /// Returns the names in a directory with their types, as far as it can be read: sorted, because the same directory gives the same index, whatever order the file system has.
    fn names_in(&mut self, directory: &Directory) -> Vec<(CString, u8)> {
        self.names.resize(NAMES_LEN, MaybeUninit::uninit());
        let mut names = Vec::new();
        let mut read = || {
            directory.read(&mut self.names, |name| names.push((name.name.to_owned(), name.kind)))
        };
        while matches!(read(), Ok(true)) {}
        names.sort_unstable();
        names
    }

    fn leave_out(&mut self, place: Place<'_>, path: PathBuf, reason: &str) {
        let made = Err(reason.to_owned());
        let new = New { path, name: String::new(), level: place.level, directory: None, made };
        self.walked.items.push(Item { kind: place.kind, what: What::New(Box::new(new)) });
    }

    /// Says whether the old records of a directory are what would be made of its files now: the index that we begin with may be one of other directories, in which this one had another place.
    fn can_keep(&self, place: Place<'_>, known: &Known<'_>) -> bool {
        let mut records = known.records.iter().filter(|(kind, _)| *kind == place.kind);
        match place.kind {
            Kind::Plugin => {
                let namespace = place.below.to_string_lossy();
                records.all(|(_, record)| place.has(*record, &namespace))
            }
            Kind::App => records.all(|(_, record)| {
                let name = record.path().and_then(Path::file_name);
                let id = name.and_then(|name| place.name_of(name));
                id.is_some_and(|id| place.has(*record, &id))
            }),
        }
    }

    fn file(
        &mut self,
        place: Place<'_>,
        path: PathBuf,
        name: String,
        known: Option<Record<'a>>,
        directory: Option<&Arc<Directory>>,
    ) {
        self.files += 1;
        match self.files.cmp(&FILES_MAX) {
            Ordering::Less => {}
            Ordering::Equal => return self.leave_out(place, path, TOO_MANY),
            Ordering::Greater => return,
        }
        let known = known.filter(|record| {
            place.has(*record, &name) && record.identity() == Some(Identity::of(&path))
        });
        let what = match known {
            Some(record) => What::Kept(record.as_bytes()),
            None => {
                let directory = directory.cloned();
                let made = Ok(None);
                What::New(Box::new(New { path, name, level: place.level, directory, made }))
            }
        };
        self.walked.items.push(Item { kind: place.kind, what });
    }
}

/// What an entry of a directory is, or what it leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Found {
    Directory,
    /// A link to a directory that the entry itself is in: who follows it never comes to an end.
    Around,
    File,
    /// A pipe, a device, or a link that leads nowhere.
    Other,
}

impl Found {
    /// Says what an entry of this type is; its path is asked for only where that does not do.
    fn of(kind: u8, path: impl Fn() -> PathBuf) -> Found {
        match kind {
            DT_DIR => Found::Directory,
            DT_REG => Found::File,
            // A file system need not know the types of what it lists.
            DT_LNK | DT_UNKNOWN => Found::at(&path()),
            _ => Found::Other,
        }
    }

    fn at(path: &Path) -> Found {
        let Ok(found) = std::fs::metadata(path) else { return Found::Other };
        if !found.is_dir() {
            return if found.is_file() { Found::File } else { Found::Other };
        }
        let is_same = |above: &Path| {
            let above = std::fs::metadata(above);
            above.is_ok_and(|above| (above.dev(), above.ino()) == (found.dev(), found.ino()))
        };
        if path.ancestors().skip(1).any(is_same) { Found::Around } else { Found::Directory }
    }
}

/// Reads the files that are new, on several threads where that pays; returns how many there were.
fn read_new(items: &mut [Item<'_>], languages: &Languages) -> usize {
    let new = items.iter_mut().filter_map(|item| match &mut item.what {
        What::New(new) if new.made.is_ok() => Some((item.kind, &mut **new)),
        What::New(_) | What::Kept(_) => None,
    });
    let mut new: Vec<(Kind, &mut New)> = new.collect();
    let opened = new.len();
    if opened < SHARED_FROM {
        new.iter_mut().for_each(|(kind, new)| new.read(*kind, languages));
        return opened;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.clamp(READERS, 8);
    // Small helpings: files differ much in size, and a cold disk in speed.
    let next = AtomicUsize::new(0);
    let slots: Vec<_> = new.into_iter().map(Mutex::new).collect();
    let work = || {
        while let Some(slot) = slots.get(next.fetch_add(1, atomic::Ordering::Relaxed)) {
            if let Ok(mut slot) = slot.lock() {
                let (kind, new) = &mut *slot;
                new.read(*kind, languages);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where there is no further thread, those that there are read all.
            let _ = sys::thread::spawn_scoped(scope, "index-reader", work);
        }
        work();
    });
    opened
}

impl New {
    fn read(&mut self, kind: Kind, languages: &Languages) {
        self.made = self.made(kind, languages);
        self.directory = None;
    }

    fn made(&self, kind: Kind, languages: &Languages) -> Result<Option<Vec<u8>>, String> {
        let (file, identity) = self.open()?;
        match kind {
            Kind::Plugin => {
                let raw = match metadata::read(&file) {
                    Ok(raw) => raw,
                    Err(MetadataError::Elf(ElfError::NoMetadata)) => return Ok(None),
                    Err(error) => return Err(error.to_string()),
                };
                let metadata = metadata::decode_in(&raw, languages);
                let metadata = metadata.map_err(|error| error.to_string())?;
                Ok(Some(plugin::record(&self.path, &self.name, identity, &metadata, languages)))
            }
            Kind::App => {
                let bytes = read_whole(file, identity.len_bytes())?;
                let file =
                    DesktopFile::parse_in(&bytes, languages).map_err(|error| error.to_string())?;
                let record =
                    app::record(&self.path, &self.name, self.level, identity, &file, languages);
                Ok(Some(record))
            }
        }
    }

    /// Opens a regular file; a pipe of that name does not make us wait.
    fn open(&self) -> Result<(File, Identity), String> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match (&self.directory, self.path.file_name()) {
            (Some(directory), Some(name)) => openat(directory, name, flags, Mode::empty()),
            _ => openat(CWD, &self.path, flags, Mode::empty()),
        };
        let file = file.map_err(|error| io::Error::from(error).to_string())?;
        match rustix::fs::fstat(&file) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => {
                Ok((File::from(file), Identity::of_stat(&found)))
            }
            _ => Err(NOT_REGULAR.to_owned()),
        }
    }
}
