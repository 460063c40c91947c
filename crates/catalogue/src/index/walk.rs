//! The walk through the directories: what did not change is taken over from the old index, what is new is read.
//!
//! Whatever was known before, the same directories give the same index: the files of a directory in the order of their names, then what is in the directories below it, in the order of theirs.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr};
use std::fs::Metadata;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use sys::dir::{DT_DIR, DT_LNK, DT_REG, DT_UNKNOWN, OpenDirectory};

use super::identity::Identity;
use super::input::{IndexPart, Input};
use super::new_files::{NOT_REGULAR, NewFile, Reading, read_new};
use super::record::IndexRecord;
use super::sections::RecordList;
use super::sources::IndexSources;
use super::{Index, Unused, app, plugin};
use crate::apps::desktop::id_of;
use crate::unread::{Unread, UnreadCause};
use xdg::languages::Languages;

/// How deep directories are followed.
const DEPTH: usize = 8;

/// The most files of one kind: somebody's data directory may be anything.
const FILES_MAX: usize = 50_000;

/// The most directories of one kind; a machine with everything installed has some hundred.
const DIRECTORIES_MAX: usize = 4_000;

/// How many directories stay open until their files were read; others' files are opened by their whole path, which takes longer.
///
/// A process with threads that opens its 65th file waits for all processors (`synchronize_rcu` in the kernel's `expand_fdtable`), which takes longer than all files.
const HELD_MAX: usize = 40;

/// From how many names on it pays to keep a directory open.
const HELD_FROM: usize = 4;

/// How many bytes of names are read at once.
const NAMES_LEN: usize = 32 << 10;

impl RecordList {
    fn part(self) -> IndexPart {
        match self {
            RecordList::Plugins => IndexPart::Plugins,
            RecordList::Apps => IndexPart::Applications,
        }
    }
}

/// A file that belongs in the index, or cannot be used.
#[derive(Debug)]
pub(super) struct WalkedFile<'a> {
    pub(super) list: RecordList,
    pub(super) what: IndexedFile<'a>,
}

/// How closely is looked at what may have changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CheckDepth {
    /// At directories: one that did not change has the same files. A file that was overwritten in place is noticed when it is used.
    Directories,
    /// At every file.
    Files,
}

/// What is known of a file.
#[derive(Debug)]
pub(super) enum IndexedFile<'a> {
    /// The record of the old index.
    Kept(&'a [u8]),
    /// It is read. There are few of them among many kept ones, which take little memory so.
    New(Box<NewFile>),
}

/// Why a file or a directory is left out that was not looked into.
const IN_ITSELF: &str = "a link to a directory that it is in";
const TOO_MANY: &str = "too many files or directories before it";

/// A file without a record.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct LeftOut {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    /// Why it cannot be used; empty for a library that is no plugin.
    pub(super) reason: String,
}

/// What the walk found.
#[derive(Debug)]
pub(super) struct Walked<'a> {
    pub(super) items: Vec<WalkedFile<'a>>,
    pub(super) inputs: Vec<Input>,
    /// Files that were left out without being read, or when the old index was made.
    pub(super) left_out: Vec<LeftOut>,
    /// How many files were opened.
    pub(super) opened: usize,
    /// What was not read because of a failure of the machine.
    pub(super) failures: Failures,
}

/// What was not read although there is nothing wrong with it.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<(PathBuf, Unread)>);

impl Failures {
    /// Takes a failure; anything else is a fault of the file.
    pub(super) fn note(&mut self, path: &Path, unread: &Unread) {
        if unread.is_failure() {
            self.0.push((path.to_owned(), unread.clone()));
        }
    }

    /// Returns the failure that counts most.
    pub(super) fn worst(self) -> Option<(PathBuf, Unread)> {
        let exhausted = self.0.iter().position(|(_, unread)| unread.is_exhaustion());
        self.0.into_iter().nth(exhausted.unwrap_or(0))
    }
}

/// Goes through all directories of `sources`; `start` is the time on the clock of files before anything was looked at.
pub(super) fn walk<'a>(
    sources: &IndexSources,
    old: Option<&'a Index>,
    look: CheckDepth,
    start: u64,
) -> Walked<'a> {
    let old = old.map(Old::new).unwrap_or_default();
    let walked = Walked {
        items: Vec::new(),
        inputs: Vec::new(),
        left_out: Vec::new(),
        opened: 0,
        failures: Failures::default(),
    };
    let mut gathering = Gathering {
        old: &old,
        look,
        start,
        walked,
        above: Vec::new(),
        files: 0,
        directories: 0,
        held: 0,
        names: Vec::new(),
    };
    // A directory that is named twice would be in the index twice.
    let mut seen = HashSet::new();
    for root in sources.plugin_roots.iter().filter(|root| seen.insert(root.as_os_str())) {
        gathering.root(RecordList::Plugins, root, 0);
    }
    (gathering.files, gathering.directories) = (0, 0);
    let mut seen = HashSet::new();
    for (place, level) in sources.places.application_directories().zip(0_u32..) {
        if seen.insert(place.path.clone()) {
            gathering.root(RecordList::Apps, &place.path, level);
        }
    }
    let mut walked = gathering.walked;
    let new = walked.items.iter_mut().filter_map(|item| match &mut item.what {
        IndexedFile::New(new) => Some((item.list, &mut **new)),
        IndexedFile::Kept(_) => None,
    });
    let reading = Reading { languages: Languages::of_locale(&sources.locale), start };
    walked.opened = read_new(new.collect(), &reading);
    walked
}

/// What the old index knows, by directory.
#[derive(Default)]
struct Old<'a>(HashMap<&'a OsStr, PreviousDirectory<'a>>);

/// What the old index knows of a directory.
#[derive(Default)]
struct PreviousDirectory<'a> {
    identity: Option<Identity>,
    /// Directories below it, and links that led nowhere.
    below: Vec<(&'a Path, Identity)>,
    records: Vec<(RecordList, IndexRecord<'a>)>,
    unused: Vec<Unused<'a>>,
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
        // How many of those that follow are below the last root. A root may be in another one, and is below nothing as a root.
        let mut left = 0;
        for input in index.inputs() {
            if !matches!(input.part, IndexPart::Plugins | IndexPart::Applications) {
                continue;
            }
            if left == 0 {
                left = input.below();
            } else {
                left -= 1;
                let above = old.of(directory_of(input.path()));
                if above.below.iter().all(|(known, _)| *known != input.path()) {
                    above.below.push((input.path(), input.identity));
                }
            }
            old.of(input.path().as_os_str()).identity = Some(input.identity);
        }
        let plugins = index.plugins().map(|record| (RecordList::Plugins, record));
        let apps = index.apps().map(|record| (RecordList::Apps, record));
        let records = plugins
            .chain(apps)
            .filter_map(|(list, record)| Some((directory_of(record.path()?), (list, record))));
        let records: Vec<_> = records.collect();
        // Those of one directory are neighbours.
        for same in records.chunk_by(|one, other| one.0 == other.0) {
            let Some((directory, _)) = same.first() else { continue };
            old.of(directory).records.extend(same.iter().map(|(_, record)| *record));
        }
        for unused in index.unused() {
            old.of(directory_of(unused.path)).unused.push(unused);
        }
        old
    }

    fn of(&mut self, directory: &'a OsStr) -> &mut PreviousDirectory<'a> {
        self.0.entry(directory).or_default()
    }
}

/// A directory that is walked through.
#[derive(Clone, Copy)]
struct DirectoryVisit<'p> {
    list: RecordList,
    root: &'p Path,
    /// Where it is below the root.
    below: &'p Path,
    level: u32,
}

impl DirectoryVisit<'_> {
    /// Returns the namespace or the identifier of the file of this name; none for a file that does not belong in the index.
    fn name_of(&self, name: &OsStr) -> Option<String> {
        if self.list == RecordList::Apps {
            return id_of(&self.below.join(name));
        }
        let is_plugin = name.to_str().is_some() && self.list.may_have(Path::new(name));
        is_plugin.then(|| self.below.to_string_lossy().into_owned())
    }

    /// Returns whether a record has this name and this place among the directories.
    fn has(&self, record: IndexRecord<'_>, name: &str) -> bool {
        match self.list {
            RecordList::Plugins => record.text(plugin::NAMESPACE) == Some(name),
            RecordList::Apps => {
                record.text(app::ID) == Some(name)
                    && record.whole(app::LEVEL) == Some(self.level.into())
            }
        }
    }
}

/// A directory as it is now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct CurrentDirectory {
    identity: Identity,
    is_directory: bool,
    /// Why it could not be looked at, where that does not mean that there is nothing.
    error: Option<Errno>,
}

impl CurrentDirectory {
    fn at(path: &Path) -> CurrentDirectory {
        CurrentDirectory::of(&std::fs::metadata(path))
    }

    fn of(found: &io::Result<Metadata>) -> CurrentDirectory {
        let is_absent =
            |error: &Errno| matches!(*error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
        let error = found.as_ref().err().and_then(Errno::from_io_error);
        CurrentDirectory {
            identity: found.as_ref().map_or(Identity::ABSENT, Identity::of_metadata),
            is_directory: found.as_ref().is_ok_and(Metadata::is_dir),
            error: error.filter(|error| !is_absent(error)),
        }
    }

    /// Returns whether it is a directory, or nothing, as it was.
    fn is_as(self, identity: Identity) -> bool {
        self.is_directory == identity.is_there() && self.is_directory == self.identity.is_there()
    }
}

/// A walk through the directories.
struct Gathering<'w, 'a> {
    old: &'w Old<'a>,
    look: CheckDepth,
    start: u64,
    walked: Walked<'a>,
    /// The identities of the directories above the one that is looked at, from its root on.
    above: Vec<Identity>,
    /// How many there are of this list.
    files: usize,
    directories: usize,
    /// How many directories are open.
    held: usize,
    /// Names as they are read.
    names: Vec<MaybeUninit<u8>>,
}

impl<'w, 'a> Gathering<'w, 'a> {
    fn root(&mut self, list: RecordList, root: &Path, level: u32) {
        let at = self.walked.inputs.len();
        let place = DirectoryVisit { list, root, below: Path::new(""), level };
        self.directory(place, CurrentDirectory::at(root), DEPTH);
        // Beyond the most directories it is none of the inputs.
        let Some(below) = (self.walked.inputs.len() - at).checked_sub(1) else { return };
        self.walked.inputs[at].below = u32::try_from(below).unwrap_or(u32::MAX);
    }

    /// Goes through a directory, or notes that nothing is there yet.
    fn directory(&mut self, place: DirectoryVisit<'_>, seen: CurrentDirectory, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let path = match place.below.as_os_str().is_empty() {
            true => place.root.to_owned(),
            false => place.root.join(place.below),
        };
        // Looked at before it is read: what changes in between makes the index stale, not wrong.
        let identity = seen.identity;
        if self.above.iter().any(|above| above.is_same_file(identity)) {
            return self.leave_out(path, Identity::UNWATCHED, IN_ITSELF);
        }
        self.directories += 1;
        if self.directories >= DIRECTORIES_MAX {
            // Said once.
            if self.directories == DIRECTORIES_MAX {
                self.leave_out(path, Identity::UNWATCHED, TOO_MANY);
            }
            return;
        }
        let input = Input::new(place.list.part(), path.clone(), identity.sure(self.start));
        self.walked.inputs.push(input);
        if let Some(error) = seen.error {
            return self.unread(&path, &error.into());
        }
        if !identity.is_there() {
            let name = place.below.file_name();
            let above =
                DirectoryVisit { below: place.below.parent().unwrap_or(place.below), ..place };
            if name.is_some_and(|name| above.name_of(name).is_some()) {
                self.leave_out(path, Identity::UNWATCHED, NOT_REGULAR);
            }
            return;
        }
        self.above.push(identity);
        let old = self.old;
        let known = old.0.get(path.as_os_str());
        let kept = known.filter(|known| {
            self.look == CheckDepth::Directories
                && known.identity == Some(identity)
                && self.can_keep(place, known)
        });
        let kept = kept.and_then(|known| Some((known, Gathering::below(known)?)));
        match kept {
            Some((known, below)) => self.keep(place, known, below, depth),
            None => self.read(place, &path, known, depth),
        }
        self.above.pop();
    }

    /// Looks at what is below a directory that did not change; none if something is not what it was, because links lead elsewhere.
    fn below(known: &PreviousDirectory<'a>) -> Option<Vec<(&'a OsStr, CurrentDirectory)>> {
        let below = known.below.iter().map(|(path, identity)| {
            let seen = CurrentDirectory::at(path);
            Some((path.file_name().filter(|_| seen.is_as(*identity))?, seen))
        });
        below.collect()
    }

    /// Takes over what the old index knows of a directory.
    fn keep(
        &mut self,
        place: DirectoryVisit<'_>,
        known: &PreviousDirectory<'a>,
        below: Vec<(&'a OsStr, CurrentDirectory)>,
        depth: usize,
    ) {
        for (list, record) in &known.records {
            if *list == place.list && self.counts(|| record.path().map(Path::to_owned)) {
                let what = IndexedFile::Kept(record.as_bytes());
                self.walked.items.push(WalkedFile { list: *list, what });
            }
        }
        // Those of what is below are found again.
        let is_below = |path: &Path| below.iter().any(|(name, _)| path.file_name() == Some(name));
        for unused in known.unused.iter().filter(|unused| !is_below(unused.path)) {
            self.leave_out(unused.path.to_owned(), unused.identity, unused.reason);
        }
        for (name, seen) in below {
            let below = place.below.join(name);
            self.directory(DirectoryVisit { below: &below, ..place }, seen, depth);
        }
    }

    /// Reads the names in a directory.
    fn read(
        &mut self,
        place: DirectoryVisit<'_>,
        path: &Path,
        known: Option<&PreviousDirectory<'a>>,
        depth: usize,
    ) {
        let directory = match OpenDirectory::open(path) {
            Ok(directory) => directory,
            Err(error) => return self.unread(path, &error.into()),
        };
        let records = known.into_iter().flat_map(|known| &known.records);
        let records: HashMap<&OsStr, IndexRecord<'a>> = records
            .filter(|(list, _)| *list == place.list)
            .filter_map(|(_, record)| Some((record.path()?.as_os_str(), *record)))
            .collect();
        let (names, read) = self.names_in(&directory);
        if let Err(unread) = read {
            self.unread(path, &unread);
        }
        let is_held = self.held < HELD_MAX && names.len() >= HELD_FROM;
        self.held += usize::from(is_held);
        let directory = is_held.then(|| Arc::new(directory));
        let mut below = Vec::new();
        for (name, kind) in &names {
            let name = OsStr::from_bytes(name.as_bytes());
            match DirectoryEntry::of(*kind, || path.join(name)) {
                DirectoryEntry::Directory => below.push((name, None)),
                DirectoryEntry::Linked(seen) => below.push((name, Some(seen))),
                DirectoryEntry::Around => {
                    self.leave_out(path.join(name), Identity::UNWATCHED, IN_ITSELF);
                }
                found => {
                    let Some(id) = place.name_of(name) else { continue };
                    let path = path.join(name);
                    if found == DirectoryEntry::File {
                        let known = records.get(path.as_os_str()).copied();
                        self.file(place, path, id, known, directory.as_ref());
                    } else {
                        // Not even opened: that is enough to arm a watchdog, or to rewind a tape.
                        let identity = Identity::of(&path).sure(self.start);
                        self.leave_out(path, identity, NOT_REGULAR);
                    }
                }
            }
        }
        // One whose files are all known, or not ours, is closed again.
        self.held -=
            directory.map_or(0, |directory| usize::from(Arc::strong_count(&directory) == 1));
        for (name, seen) in below {
            let seen = seen.unwrap_or_else(|| CurrentDirectory::at(&path.join(name)));
            let below = place.below.join(name);
            self.directory(DirectoryVisit { below: &below, ..place }, seen, depth);
        }
    }

    /// Notes that the directory whose input was added last was not looked at, not read, or not to its end: its files are not all there are, and nobody takes them for that.
    fn unread(&mut self, path: &Path, unread: &Unread) {
        // It was one a moment ago.
        if unread.cause() == UnreadCause::Itself {
            return;
        }
        if let Some(input) = self.walked.inputs.last_mut() {
            input.identity = input.identity.unless_read(unread);
        }
        self.walked.failures.note(path, unread);
        self.leave_out(path.to_owned(), Identity::UNWATCHED, &unread.reason);
    }

    /// Returns the names in a directory with their types, as far as it can be read, and why no further: sorted, because the same directory gives the same index, whatever order the file system has.
    fn names_in(&mut self, directory: &OpenDirectory) -> (Vec<(CString, u8)>, Result<(), Unread>) {
        self.names.resize(NAMES_LEN, MaybeUninit::uninit());
        let mut names = Vec::new();
        let mut read = || {
            directory.read(&mut self.names, |name| names.push((name.name.to_owned(), name.kind)))
        };
        let end = loop {
            match read() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        names.sort_unstable();
        (names, end)
    }

    fn leave_out(&mut self, path: PathBuf, identity: Identity, reason: &str) {
        self.walked.left_out.push(LeftOut { path, identity, reason: reason.to_owned() });
    }

    /// Returns whether one more file of this list is taken.
    fn counts(&mut self, path: impl Fn() -> Option<PathBuf>) -> bool {
        self.files += 1;
        // Said once.
        if self.files == FILES_MAX
            && let Some(path) = path()
        {
            self.leave_out(path, Identity::UNWATCHED, TOO_MANY);
        }
        self.files < FILES_MAX
    }

    /// Returns whether the old records of a directory are what would be made of its files now: the index that we begin with may be one of other directories, in which this one had another place.
    fn can_keep(&self, place: DirectoryVisit<'_>, known: &PreviousDirectory<'_>) -> bool {
        // What was too much then need not be too much now.
        if known.unused.iter().any(|unused| unused.reason == TOO_MANY) {
            return false;
        }
        let mut records = known.records.iter().filter(|(list, _)| *list == place.list);
        match place.list {
            RecordList::Plugins => {
                let namespace = place.below.to_string_lossy();
                records.all(|(_, record)| place.has(*record, &namespace))
            }
            RecordList::Apps => records.all(|(_, record)| {
                let name = record.path().and_then(Path::file_name);
                let id = name.and_then(|name| place.name_of(name));
                id.is_some_and(|id| place.has(*record, &id))
            }),
        }
    }

    fn file(
        &mut self,
        place: DirectoryVisit<'_>,
        path: PathBuf,
        name: String,
        known: Option<IndexRecord<'a>>,
        directory: Option<&Arc<OpenDirectory>>,
    ) {
        if !self.counts(|| Some(path.clone())) {
            return;
        }
        let known = known.filter(|record| {
            place.has(*record, &name) && record.identity() == Some(Identity::of(&path))
        });
        let what = match known {
            Some(record) => IndexedFile::Kept(record.as_bytes()),
            None => IndexedFile::New(Box::new(NewFile::new(
                path,
                name,
                place.level,
                directory.cloned(),
            ))),
        };
        self.walked.items.push(WalkedFile { list: place.list, what });
    }
}

/// What an entry of a directory is, or what it leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DirectoryEntry {
    Directory,
    /// A link to a directory, to nothing, or to what cannot be looked at: something may come there without a change of this directory.
    Linked(CurrentDirectory),
    /// A link to a directory that the entry itself is in: who follows it never comes to an end.
    Around,
    File,
    /// A pipe or a device.
    Other,
}

impl DirectoryEntry {
    /// Says what an entry of this type is; its path is asked for only where that does not do.
    fn of(kind: u8, path: impl Fn() -> PathBuf) -> DirectoryEntry {
        match kind {
            DT_DIR => DirectoryEntry::Directory,
            DT_REG => DirectoryEntry::File,
            // A file system need not know the types of what it lists.
            DT_LNK | DT_UNKNOWN => DirectoryEntry::at(&path()),
            _ => DirectoryEntry::Other,
        }
    }

    fn at(path: &Path) -> DirectoryEntry {
        let found = std::fs::metadata(path);
        let seen = CurrentDirectory::of(&found);
        match found {
            Err(_) => return DirectoryEntry::Linked(seen),
            Ok(found) if found.is_file() => return DirectoryEntry::File,
            Ok(found) if !found.is_dir() => return DirectoryEntry::Other,
            Ok(_) => {}
        }
        let is_same = |above: &Path| Identity::of(above).is_same_file(seen.identity);
        if path.ancestors().skip(1).any(is_same) {
            DirectoryEntry::Around
        } else {
            DirectoryEntry::Linked(seen)
        }
    }
}
