//! Reads a database from the disk, and salvages a damaged one.

use std::io;
use std::path::Path;

use gvdb::gvariant::VariantView;
use store::disk::{Disk, PinnedFile};
use store::publish::{copy_aside, move_aside, remove_all_stale, remove_stale};
use store::snapshots::{SnapshotPolicy, Snapshots};

use super::access::{Access, Entered, Patience, locked};
use super::answer::{ChangeError, EngineNotice, ErrorKind};
use super::failure::raise;
use super::file_identity::{self, FileIdentity};
use super::files::Files;
use super::text;
use super::wal::Wal;
use crate::database::KeyTable;
use crate::earlier;
use crate::history::{Rebuilt, read_file, rebuild};
use crate::merge::difference;
use crate::names::{DatabaseId, DatabaseKind};
use crate::path;
use xdg::keyfile::KeyFile;

/// A database that was read.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) table: KeyTable,
    pub(super) generation: u64,
    pub(super) seen: FileIdentity,
    /// The open file, which keeps its inode number until this is dropped.
    pub(super) held: PinnedFile,
    pub(super) image_bytes: usize,
    /// The generation in the image; 0 without one.
    pub(super) image_generation: u64,
    /// `Writer`: the image, if it was intact.
    pub(super) image: Option<Vec<u8>>,
    /// The paths that differ from the image that readers have.
    pub(super) unseen: Vec<Box<str>>,
    /// Whether readers have no image, or an old one.
    pub(super) must_write: bool,
    /// Whether the image is to be written without a change.
    pub(super) write_now: bool,
    /// `Writer`: the existing snapshots.
    pub(super) snapshots: Option<Snapshots>,
    /// `journal`: the open journal.
    pub(super) wal: Option<Wal>,
}

/// A database that is to be read.
#[derive(Debug)]
pub(super) struct LoadRequest {
    pub(super) id: DatabaseId,
    pub(super) files: Files,
    pub(super) access: Access,
    pub(super) patience: Patience,
    /// When the service started, in nanoseconds since 1970.
    pub(super) started_ns: i128,
}

/// The result of a [`LoadRequest`]: the database, `None` if another service is busy with it, or the error.
#[derive(Debug)]
pub(super) struct LoadDone {
    pub(super) id: DatabaseId,
    pub(super) access: Access,
    pub(super) loaded: Result<Option<Loaded>, ChangeError>,
}

impl LoadRequest {
    /// Reads the database.
    pub(super) fn run(
        mut self,
        disk: &dyn Disk,
        policy: SnapshotPolicy,
        reports: &mut Vec<EngineNotice>,
    ) -> LoadDone {
        let path = locked(&self.id, &self.files);
        let above = path.parent().unwrap_or(path);
        if let Some(kind) = disk.foreign_file_system(above) {
            let (id, path) = (self.id.clone(), path.to_owned());
            reports.push(EngineNotice::ForeignFileSystem { id, path, kind });
        }
        self.remove_stale(disk, reports);
        let loaded = self.load(disk, policy, reports);
        self.access.leave();
        LoadDone { id: self.id, access: self.access, loaded }
    }

    /// Removes the temporary files of writers that were killed.
    fn remove_stale(&self, disk: &dyn Disk, reports: &mut Vec<EngineNotice>) {
        let (files, older) = (&self.files, self.started_ns);
        let of = |path: &Path| remove_stale(disk, path, older).map(|_removed| ());
        let removed = match self.id.kind() {
            DatabaseKind::User => {
                of(&files.image).and(remove_all_stale(disk, &files.snapshots, older))
            }
            DatabaseKind::Shm => of(&files.image),
            DatabaseKind::Keyfile => of(&files.text).and(of(&files.image)),
            DatabaseKind::Journal => {
                of(&files.checkpoint).and(of(&files.log)).and(of(&files.image))
            }
        };
        if let Err(error) = removed {
            let text = format!("cannot remove old temporary files of {}: {error}", self.id);
            reports.push(EngineNotice::Aside { text });
        }
    }

    /// Returns the error for a database that was not read.
    pub(super) fn refuse(self, error: ChangeError) -> LoadDone {
        LoadDone { id: self.id, access: self.access, loaded: Err(error) }
    }

    fn load(
        &mut self,
        disk: &dyn Disk,
        policy: SnapshotPolicy,
        reports: &mut Vec<EngineNotice>,
    ) -> Result<Option<Loaded>, ChangeError> {
        let (id, files) = (&self.id, &self.files);
        if id.kind() == DatabaseKind::Journal {
            // Checkpoint and journal belong together; another service may be about to replace both.
            let entered = self.access.enter(disk, id, files, self.patience, reports)?;
            if entered == Entered::Busy {
                return Ok(None);
            }
        }
        load(disk, id, files, policy, reports).map(Some)
    }
}

/// Reads a database.
fn load(
    disk: &dyn Disk,
    id: &DatabaseId,
    files: &Files,
    policy: SnapshotPolicy,
    reports: &mut Vec<EngineNotice>,
) -> Result<Loaded, ChangeError> {
    match id.kind() {
        DatabaseKind::User => {
            let snapshots = Snapshots::open(disk, &files.snapshots, id.name(), policy);
            let snapshots = match snapshots {
                Ok(snapshots) => Some(snapshots),
                Err(error) => {
                    let text = format!("cannot list the snapshots of {id}: {error}");
                    reports.push(EngineNotice::Aside { text });
                    None
                }
            };
            let earlier = Earlier { snapshots: &files.snapshots, history: &files.history };
            let mut loaded = load_image(disk, id, (&files.image, Some(earlier)), reports)?;
            // The file of another program and a removed file have no generation: generations continue from the newest.
            let newest =
                snapshots.as_ref().and_then(|all| Some(all.newest_first().next()?.generation));
            loaded.generation = loaded.generation.max(newest.unwrap_or_default());
            loaded.snapshots = snapshots;
            // A service that was killed may have replaced the file without notifying readers.
            raise(&files.flag, reports);
            Ok(loaded)
        }
        DatabaseKind::Shm => load_image(disk, id, (&files.image, None), reports),
        DatabaseKind::Keyfile => load_text(disk, id, files, reports),
        DatabaseKind::Journal => load_journal(disk, id, files, reports),
    }
}

fn cannot_open(path: &Path, error: &io::Error) -> ChangeError {
    let what = format!("Cannot open dconf database: cannot read {}", path.display());
    ChangeError::new(&what, error, "nothing was changed")
}

/// Why bytes are not an intact image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// They never were an image, or nothing shows it any more.
    NotADatabase,
    /// They were an image.
    Damaged,
}

/// Reads an intact image: its settings and its generation.
pub(super) fn decode(bytes: &[u8]) -> Result<(KeyTable, u64), Broken> {
    let table = gvdb::GvdbTable::open(bytes).map_err(|error| match error {
        gvdb::OpenError::NotGvdb => Broken::NotADatabase,
        _ => Broken::Damaged,
    })?;
    table.check().map_err(|_damage| Broken::Damaged)?;
    let generation = match gvdb::stamp(bytes) {
        gvdb::Stamp::None => 0,
        gvdb::Stamp::Good { generation } => generation,
        gvdb::Stamp::Bad => return Err(Broken::Damaged),
    };
    let order = table.order();
    let entries = table.entries().filter(|(name, _)| path::is_key(name));
    Ok((
        entries.map(|(name, v)| (name, VariantView::inside(v, order).to_variant())).collect(),
        generation,
    ))
}

fn load_image(
    disk: &dyn Disk,
    id: &DatabaseId,
    (path, earlier): (&Path, Option<Earlier<'_>>),
    reports: &mut Vec<EngineNotice>,
) -> Result<Loaded, ChangeError> {
    let file_identity::Contents { bytes, seen, held } =
        file_identity::read(disk, path).map_err(|error| cannot_open(path, &error))?;
    let mut loaded = Loaded {
        table: KeyTable::default(),
        generation: 0,
        seen,
        held,
        image_bytes: bytes.as_ref().map_or(0, Vec::len),
        image_generation: 0,
        image: None,
        unseen: Vec::new(),
        must_write: false,
        write_now: false,
        snapshots: None,
        wal: None,
    };
    let Some(bytes) = bytes else {
        loaded.must_write = id.kind() != DatabaseKind::User;
        return Ok(loaded);
    };
    let broken = match decode(&bytes) {
        Ok((table, generation)) => {
            (loaded.table, loaded.generation) = (table, generation);
            loaded.image_generation = generation;
            loaded.image = (id.kind() == DatabaseKind::User).then_some(bytes);
            return Ok(loaded);
        }
        Err(broken) => broken,
    };
    let rebuilt = earlier.map(|earlier| earlier.rebuild(disk, id)).unwrap_or_default();
    let rescued = rescue(rebuilt, broken, &bytes);
    let nothing = rescued.table.is_empty() && broken == Broken::NotADatabase;
    let kept = if nothing { move_aside(disk, path) } else { copy_aside(disk, path) };
    let kept = kept.map_err(|error| {
        let what = format!(
            "Cannot open dconf database: {} is damaged and cannot be kept aside",
            path.display()
        );
        ChangeError::new(&what, &error, "nothing was changed")
    })?;
    reports.push(match broken {
        Broken::NotADatabase => {
            EngineNotice::NotADatabase { id: id.clone(), kept, restored: rescued.restored }
        }
        Broken::Damaged => EngineNotice::Salvaged {
            id: id.clone(),
            kept: Some(kept),
            intact: rescued.intact,
            restored: rescued.restored,
        },
    });
    if nothing {
        loaded.seen = FileIdentity::Missing;
        loaded.must_write = id.kind() != DatabaseKind::User;
        return Ok(loaded);
    }
    // Readers may have seen any part of the damaged file: everything may look different to them now.
    loaded.unseen.push("/".into());
    loaded.must_write = true;
    loaded.write_now = true;
    loaded.generation = rescued.generation;
    loaded.table = rescued.table;
    Ok(loaded)
}

/// The salvaged contents of a damaged database.
struct Rescued {
    table: KeyTable,
    generation: u64,
    intact: usize,
    restored: usize,
}

/// Where earlier states of a database are.
#[derive(Clone, Copy, Debug)]
struct Earlier<'a> {
    snapshots: &'a Path,
    history: &'a Path,
}

impl Earlier<'_> {
    /// Returns the last state in the snapshots and the history.
    fn rebuild(self, disk: &dyn Disk, id: &DatabaseId) -> Rebuilt {
        let snapshot = earlier::newest(disk, self.snapshots, id);
        // An unreadable history adds nothing.
        let entries = read_file(disk, self.history).unwrap_or_default().entries;
        rebuild(snapshot, id, &entries)
    }
}

/// Takes the keys that the file proves, then those of the newest good snapshot with the history since, and only then
/// keys that are merely well-formed in the file. `docs/decisions/0003-damaged-databases.md` has the reasons.
fn rescue(rebuilt: Rebuilt, broken: Broken, bytes: &[u8]) -> Rescued {
    let Rebuilt { mut table, generation, recorded, unknown, .. } = rebuilt;
    let is_known = |key: &str| recorded.contains(key) && !unknown.contains(key);
    let mut restored = table.len();
    let mut intact = 0;
    if broken == Broken::Damaged {
        let salvaged = gvdb::salvage(bytes);
        let mut unproven = salvaged.unproven.into_iter().peekable();
        for (key, value) in salvaged.entries {
            let proven = unproven.next_if(|name| *name == key).is_none();
            let is_elsewhere = table.get(&key).is_some() || is_known(&key);
            if !path::is_key(&key) || (!proven && is_elsewhere) {
                continue;
            }
            restored -= usize::from(table.put(&key, Some(value)).is_some());
            intact += 1;
        }
    }
    Rescued { table, generation: generation + 1, intact, restored }
}

/// Reads the text of a `keyfile` database.
pub(super) fn read_text(
    disk: &dyn Disk,
    files: &Files,
) -> Result<(KeyFile, FileIdentity), ChangeError> {
    let file_identity::Contents { bytes, seen, .. } =
        file_identity::read(disk, &files.text).map_err(|error| cannot_open(&files.text, &error))?;
    let file = KeyFile::parse(&bytes.unwrap_or_default()).map_err(|error| ChangeError {
        kind: ErrorKind::Invalid,
        text: format!(
            "Cannot open dconf database: {} is no key file: {error}; nothing was changed",
            files.text.display()
        ),
    })?;
    Ok((file, seen))
}

fn load_text(
    disk: &dyn Disk,
    id: &DatabaseId,
    files: &Files,
    reports: &mut Vec<EngineNotice>,
) -> Result<Loaded, ChangeError> {
    let (file, seen) = read_text(disk, files)?;
    let (table, skipped) = text::read(&file);
    if skipped > 0 {
        reports.push(EngineNotice::TextSkipped { id: id.clone(), keys: skipped });
    }
    let mut loaded = Loaded {
        table,
        generation: 0,
        seen,
        held: PinnedFile::default(),
        image_bytes: 0,
        image_generation: 0,
        image: None,
        unseen: Vec::new(),
        must_write: false,
        write_now: false,
        snapshots: None,
        wal: None,
    };
    compare_with_readers(disk, files, &mut loaded)?;
    Ok(loaded)
}

/// Reads a `journal` database: the checkpoint and what came after it.
fn load_journal(
    disk: &dyn Disk,
    id: &DatabaseId,
    files: &Files,
    reports: &mut Vec<EngineNotice>,
) -> Result<Loaded, ChangeError> {
    let mut read = read_journal(disk, id, files, reports)?;
    read.image.table = read.table;
    read.image.generation = read.generation;
    read.image.wal = Some(read.wal);
    compare_with_readers(disk, files, &mut read.image)?;
    read.image.write_now |= read.repaired;
    Ok(read.image)
}

/// The contents of checkpoint and journal of a database.
#[derive(Debug)]
pub(super) struct JournalRead {
    pub(super) table: KeyTable,
    pub(super) generation: u64,
    pub(super) wal: Wal,
    /// The checkpoint was damaged.
    repaired: bool,
    /// What was read of the checkpoint beside its table.
    image: Loaded,
}

/// Reads the checkpoint and the journal of a database. The caller holds the right to replace them.
pub(super) fn read_journal(
    disk: &dyn Disk,
    id: &DatabaseId,
    files: &Files,
    reports: &mut Vec<EngineNotice>,
) -> Result<JournalRead, ChangeError> {
    let mut image = load_image(disk, id, (&files.checkpoint, None), reports)?;
    let repaired = std::mem::take(&mut image.write_now);
    let mut table = std::mem::take(&mut image.table);
    let checkpoint = (image.generation, image.seen);
    let (mut wal, generation) = Wal::open(disk, id, files, &mut table, checkpoint, reports)?;
    if repaired {
        wal.distrust_checkpoint();
    }
    Ok(JournalRead { table, generation, wal, repaired, image })
}

/// Finds the changes that the image of readers lacks, for a database that is stored in another file.
fn compare_with_readers(
    disk: &dyn Disk,
    files: &Files,
    loaded: &mut Loaded,
) -> Result<(), ChangeError> {
    let image =
        file_identity::read(disk, &files.image).map_err(|e| cannot_open(&files.image, &e))?.bytes;
    loaded.image_bytes = image.as_ref().map_or(0, Vec::len);
    let readers = image.as_deref().map(decode);
    let stale = !matches!(readers, Some(Ok(_)));
    let (theirs, generation) = readers.and_then(Result::ok).unwrap_or_default();
    let changes = difference(&theirs, &loaded.table);
    loaded.unseen = changes.iter().map(|(path, _)| path.into()).collect();
    loaded.generation = loaded.generation.max(generation);
    loaded.write_now = !loaded.unseen.is_empty();
    loaded.must_write = stale || loaded.write_now;
    Ok(())
}
