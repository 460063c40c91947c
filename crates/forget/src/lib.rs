//! Forgetting documents in every store on this machine that remembers them, and looking whether anything is left.
//!
//! Begin with [`survey`], which says what each store knows, [`Survey::choose`], which documents are meant, [`remove`], which takes
//! them out, and [`search`], which searches the bytes of all stores afterwards. README.md has an example;
//! `docs/recents-forget.md` of the repository lists the stores.

mod activities;
mod copies;
mod databases;
mod dconf;
mod files;
mod guard;
mod holders;
mod json;
mod markup;
mod metadata;
mod name;
mod name_search;
mod office;
mod outcome;
mod scope;
mod search;
mod selection;
mod sessions;
mod settings;
mod sql;
mod stores;
#[cfg(test)]
mod tests;
mod text;
mod thumbnail;
mod values;
mod whole;
mod xbel;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use sys::sqlite::SqliteError;

use recents::projection::{ProjectionError, project};
use recents::volatile::{self, VolatileError};
use recents::writer::{self, WriterError};
use recents::{RecentTime, Recents, RecentsError, RecentsFiles, Uri};

pub use dconf::SettingsService;
pub use guard::guarded;
pub use holders::{HeldDocuments, RunningProgram, holders};
pub use name::DocumentName;
pub use name_search::Search;
pub use outcome::ForgetReport;
pub use scope::{NotSearched, SearchDocuments, SearchLimits, Unsearched};
pub use search::{RemainingFile, SearchReport, UncleanedFileType, search};
pub use selection::Selection;
pub use stores::{Store, stores};

/// What kind of store remembers a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreKind {
    /// Our own journal.
    Journal,
    /// `recently-used.xbel`, of GTK and KDE programs, its copies, and lists like it of single programs.
    Xbel,
    /// KDE's links in `RecentDocuments`.
    Links,
    /// The database of KDE's activity service, and its backups.
    Activities,
    /// Zeitgeist's log.
    Log,
    /// Lists in settings of programs: Okular's, Kate's, VLC's, file dialogs'.
    Settings,
    /// Lists in GSettings, such as Mousepad's session.
    Dconf,
    /// What an editor opens again when it starts.
    Session,
    /// LibreOffice's.
    Office,
    /// What a viewer keeps of each document: where one was in it.
    Reading,
    /// What GNOME's file system layer keeps of each document.
    Metadata,
    /// Thumbnails, which show that a file was there and what was in it.
    Thumbnails,
}

impl StoreKind {
    /// Returns what people call it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            StoreKind::Journal => "unjank's journal",
            StoreKind::Xbel => "shared list",
            StoreKind::Links => "KDE's links",
            StoreKind::Activities => "KDE's activities",
            StoreKind::Log => "Zeitgeist's log",
            StoreKind::Settings => "a program's settings",
            StoreKind::Dconf => "dconf",
            StoreKind::Session => "an editor's session",
            StoreKind::Office => "LibreOffice",
            StoreKind::Reading => "a viewer's notes",
            StoreKind::Metadata => "GNOME's file notes",
            StoreKind::Thumbnails => "thumbnails",
        }
    }
}

/// A document that a store remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedDocument {
    /// Which document.
    pub name: DocumentName,
    /// What the store calls it, where others go by that: lists of URIs are merged by the text of these.
    pub uri: Option<Uri>,
    /// What kind of store.
    pub kind: StoreKind,
    /// In which file.
    pub file: PathBuf,
    /// Who opened it, if the store knows.
    pub applications: Vec<String>,
    /// When that was, if the store knows.
    pub at: Option<RecentTime>,
}

impl RememberedDocument {
    /// Returns a document of a store that knows neither URIs nor times.
    fn in_file(
        name: DocumentName,
        kind: StoreKind,
        file: &Path,
        applications: Vec<String>,
    ) -> RememberedDocument {
        let file = file.to_owned();
        RememberedDocument { name, uri: None, kind, file, applications, at: None }
    }
}

/// What could not be looked at or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// Our own list may still have the documents.
    #[error(transparent)]
    Journal(RecentsError),
    /// Copies of lists that are in memory may still have the documents.
    #[error(transparent)]
    Volatile(VolatileError),
    /// The lists that others read may still have the documents.
    #[error(transparent)]
    Lists(ProjectionError),
    /// Another writer, which hangs, may bring back what it had read.
    #[error(transparent)]
    Writer(WriterError),
    /// What the file holds is not known.
    #[error("cannot read {path:?}")]
    Unread {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is as it was, or as its publisher says.
    #[error("cannot change {path:?}")]
    Unchanged {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database is as it was, or the rows are gone and their bytes may not be.
    #[error("cannot use the database {path:?}")]
    Database {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: SqliteError,
    },
    /// A service would go on writing into the file after it was replaced; the file is as it was.
    #[error("cannot change {path:?} while {service} ({pid}) has it open")]
    InUse {
        /// The file.
        path: PathBuf,
        /// What the service is called.
        service: &'static str,
        /// Its number.
        pid: u32,
    },
    /// A file is too large for a list; nobody looked into it.
    #[error("cannot search {path:?}: it has {len} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How large it is.
        len: u64,
    },
}

/// What all stores know.
#[derive(Debug, Default)]
pub struct Survey {
    /// The documents, in the order of the stores.
    pub items: Vec<RememberedDocument>,
    /// What could not be looked at.
    pub troubles: Vec<Trouble>,
}

impl Survey {
    /// Returns the documents that a selection means. Stores that know neither times nor programs follow those that do.
    #[must_use]
    pub fn choose(&self, selection: &Selection) -> BTreeSet<DocumentName> {
        let fitting = self.items.iter().filter(|item| selection.fits(item));
        let mut chosen: BTreeSet<DocumentName> = fitting.map(|item| item.name.clone()).collect();
        // A name that was given may stand where no list is, which the search at the end must find.
        if selection.is_by_name_alone() {
            chosen.extend(selection.names.iter().cloned());
        }
        chosen
    }

    /// Whether a kind of store knows one of the documents.
    #[must_use]
    pub fn has(&self, kind: StoreKind, chosen: &BTreeSet<DocumentName>) -> bool {
        self.items.iter().any(|item| item.kind == kind && chosen.contains(&item.name))
    }

    /// Returns by which URIs lists may have the documents, each with the time at which one of these lists says that it was used.
    fn last_uses(&self, chosen: &BTreeSet<DocumentName>) -> BTreeMap<Uri, RecentTime> {
        let mut uses = BTreeMap::<Uri, RecentTime>::new();
        let mut add = |uri: Uri, at: RecentTime| {
            // A program may have it in memory as the other toolkit writes it.
            for uri in uri.other_spelling().into_iter().chain([uri]) {
                let used = uses.entry(uri).or_default();
                *used = at.max(*used);
            }
        };
        chosen.iter().filter_map(DocumentName::to_uri).for_each(|uri| add(uri, RecentTime(0)));
        for item in self.items.iter().filter(|item| chosen.contains(&item.name)) {
            // Other lists are not merged into ours, whatever their times are.
            let is_merged = matches!(item.kind, StoreKind::Journal | StoreKind::Xbel);
            let at = item.at.filter(|_| is_merged).unwrap_or_default();
            item.uri.iter().for_each(|uri| add(uri.clone(), at));
        }
        uses
    }

    fn read<T>(&mut self, result: Result<T, Trouble>) -> Option<T> {
        match result {
            Ok(read) => Some(read),
            Err(trouble) => {
                self.troubles.push(trouble);
                None
            }
        }
    }
}

/// Looks into every store. Of our own journal all records count, also those that its limits hide.
#[must_use]
pub fn survey(recents: &mut Recents) -> Survey {
    let mut survey = Survey::default();
    let file = recents.journal_path();
    match recents.records() {
        Ok(list) => survey.items.extend(list.iter().map(|entry| RememberedDocument {
            name: DocumentName::of_uri(&entry.uri),
            uri: Some(entry.uri.clone()),
            kind: StoreKind::Journal,
            file: file.clone(),
            applications: entry.applications.iter().map(|by| by.name.clone()).collect(),
            at: Some(entry.last_used()),
        })),
        Err(error) => survey.troubles.push(Trouble::Journal(error)),
    }
    stores::look(recents.places(), &mut survey);
    survey
}

/// Takes documents out of every store; what could not be done is returned.
///
/// Our own journal comes first, so that nothing comes back from it, and takes note of what other lists had too: programs
/// that still have those in memory do not bring them back.
#[must_use]
pub fn remove(
    recents: &mut Recents,
    settings: &mut dyn SettingsService,
    survey: &Survey,
    selection: &Selection,
    chosen: &BTreeSet<DocumentName>,
) -> Vec<Trouble> {
    let mut troubles = Survey::default();
    // A writer that is at work would take in again what it has read of the shared list.
    let lock = troubles.read(writer::lock_writers(recents).map_err(Trouble::Writer));
    troubles.read(recents.forget_used(&survey.last_uses(chosen)).map_err(Trouble::Journal));
    if selection.is_everything() {
        // Also what nobody could read.
        troubles.read(recents.forget_everything().map_err(Trouble::Journal));
    }
    // A list that another program has just written is not left beside the one in memory.
    troubles.read(volatile::settle(recents).map_err(Trouble::Volatile));
    // Under KDE's lock, and with what its programs wrote meanwhile; what cannot be done so is done below.
    troubles.read(project(recents).map_err(Trouble::Lists));
    drop(lock);
    let places = recents.places();
    stores::remove(places, recents.disk(), chosen, &mut troubles);
    dconf::remove_from_databases(places, settings, chosen, &mut troubles);
    let copied = volatile::settle(recents).and_then(|()| volatile::save_if_moved(recents));
    troubles.read(copied.map_err(Trouble::Volatile));
    troubles.troubles
}

/// Returns the files of KDE's activity service, as the kernel names them.
#[must_use]
pub fn activities(places: &RecentsFiles) -> Vec<PathBuf> {
    let files = activities::files(places);
    files.iter().filter_map(|file| file.canonicalize().ok()).collect()
}

/// Returns the files of GNOME's notes on files, as the kernel names them.
#[must_use]
pub fn metadata(places: &RecentsFiles) -> Vec<PathBuf> {
    let files = metadata::files(places);
    files.iter().filter_map(|file| file.canonicalize().ok()).collect()
}

/// Whether a file is one of KDE's activity service.
#[must_use]
pub fn is_of_activities(places: &RecentsFiles, file: &Path) -> bool {
    activities::files(places).iter().any(|known| known == file)
}

/// Returns the program to which a file of settings belongs: `okular` of `okularrc`.
fn owner(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let endings = ["staterc", "metainfos", "-metadata.xml", "rc", ".conf", ".ini"];
    let owner = endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    let owner = owner.strip_suffix("-qt-interface").unwrap_or(owner);
    (!owner.is_empty()).then(|| owner.to_owned())
}

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
