//! Forgetting documents in every store on this machine that remembers them, and looking whether anything is left.
//!
//! [`survey`] says what each store knows, [`Survey::choose`] which documents are meant, [`remove`] takes them out, and
//! [`left`] searches the bytes of all stores afterwards. docs/recents-forget.md lists the stores.

mod activities;
mod files;
mod guard;
mod name;
mod office;
mod search;
mod settings;
mod whole;
mod xbel;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sys::sqlite::SqliteError;

use super::projection::{ProjectionError, project};
use super::{Places, Recents, RecentsError, Timestamp, Uri};

pub use guard::guarded;
pub use name::Name;
pub use search::Search;

/// What kind of store remembers a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Our own journal.
    Journal,
    /// `recently-used.xbel`, of GTK and KDE programs, its copies, and lists like it of single programs.
    Xbel,
    /// KDE's links in `RecentDocuments`.
    Links,
    /// The database of KDE's activity service, and its backups.
    Activities,
    /// Lists in settings of programs: Okular's, Kate's, VLC's, file dialogs'.
    Settings,
    /// LibreOffice's.
    Office,
    /// What a viewer keeps of each document: where one was in it.
    Reading,
    /// Thumbnails, which show that a file was there and what was in it.
    Thumbnails,
}

impl Kind {
    /// Returns what people call it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Kind::Journal => "unjank's journal",
            Kind::Xbel => "shared list",
            Kind::Links => "KDE's links",
            Kind::Activities => "KDE's activities",
            Kind::Settings => "a program's settings",
            Kind::Office => "LibreOffice",
            Kind::Reading => "a viewer's notes",
            Kind::Thumbnails => "thumbnails",
        }
    }
}

/// A document that a store remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Which document.
    pub name: Name,
    /// What the store calls it, where others go by that: lists of URIs are merged by the text of these.
    pub uri: Option<Uri>,
    /// What kind of store.
    pub kind: Kind,
    /// In which file.
    pub file: PathBuf,
    /// Who opened it, if the store knows.
    pub applications: Vec<String>,
    /// When that was, if the store knows.
    pub at: Option<Timestamp>,
}

/// What could not be looked at or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// Our own list may still have the documents.
    #[error(transparent)]
    Journal(RecentsError),
    /// The lists that others read may still have the documents.
    #[error(transparent)]
    Lists(ProjectionError),
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
    /// A file is too large for a list; nobody looked into it.
    #[error("cannot search {path:?}: it has {len} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How large it is.
        len: u64,
    },
}

/// Which documents are meant: those that fit all that is said; if nothing is, all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Documents, and folders with all that is below them; none means any.
    pub names: Vec<Name>,
    /// Programs of which one opened the document, by the names that stores use; none means any.
    pub applications: Vec<String>,
    /// Opened then or later.
    pub since: Option<Timestamp>,
    /// Opened before that.
    pub before: Option<Timestamp>,
}

impl Selection {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Selection::default()
    }

    /// Whether an item shows that its document is meant.
    #[must_use]
    pub fn fits(&self, item: &Item) -> bool {
        self.fits_name(&item.name)
            && (self.applications.is_empty()
                || item.applications.iter().any(|name| self.fits_application(name)))
            && self.since.is_none_or(|since| item.at.is_some_and(|at| at >= since))
            && self.before.is_none_or(|before| item.at.is_some_and(|at| at < before))
    }

    /// Whether a document of this name can be meant.
    #[must_use]
    pub fn fits_name(&self, name: &Name) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| name.is_at_or_below(wanted))
    }

    /// Whether a program is one that is named: `org.kde.okular` is `okular` too.
    fn fits_application(&self, name: &str) -> bool {
        let short = |name: &str| {
            let name = name.strip_suffix(".desktop").unwrap_or(name);
            name.rsplit('.').next().unwrap_or(name).to_lowercase()
        };
        self.applications.iter().any(|wanted| short(wanted) == short(name))
    }
}

/// What all stores know, except for our own journal.
#[derive(Debug, Default)]
pub struct Survey {
    /// The documents, in the order of the stores.
    pub items: Vec<Item>,
    /// What could not be looked at.
    pub troubles: Vec<Trouble>,
}

impl Survey {
    /// Returns the documents that a selection means. Stores that know neither times nor programs follow those that do.
    #[must_use]
    pub fn choose(&self, selection: &Selection) -> BTreeSet<Name> {
        let fitting = self.items.iter().filter(|item| selection.fits(item));
        let mut chosen: BTreeSet<Name> = fitting.map(|item| item.name.clone()).collect();
        // A name that was given may stand where no list is, which the search at the end must find.
        if selection.applications.is_empty()
            && selection.since.is_none()
            && selection.before.is_none()
        {
            chosen.extend(selection.names.iter().cloned());
        }
        chosen
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

/// Looks into every store.
#[must_use]
pub fn survey(recents: &mut Recents) -> Survey {
    let mut survey = Survey::default();
    let file = recents.journal_path();
    match recents.list() {
        Ok(list) => survey.items.extend(list.iter().map(|entry| Item {
            name: Name::of_uri(&entry.uri),
            uri: Some(entry.uri.clone()),
            kind: Kind::Journal,
            file: file.clone(),
            applications: entry.applications.iter().map(|by| by.name.clone()).collect(),
            at: Some(entry.last_used()),
        })),
        Err(error) => survey.troubles.push(Trouble::Journal(error)),
    }
    let places = recents.places();
    xbel::look(places, &mut survey);
    whole::look(places, &mut survey);
    activities::look(places, &mut survey);
    settings::look(places, &mut survey);
    office::look(places, &mut survey);
    survey
}

/// Takes documents out of every store; what could not be done is returned.
///
/// Our own journal comes first, so that nothing comes back from it, and takes note of what other lists had too: programs
/// that still have those in memory do not bring them back.
#[must_use]
pub fn remove(
    recents: &mut Recents,
    survey: &Survey,
    selection: &Selection,
    chosen: &BTreeSet<Name>,
) -> Vec<Trouble> {
    let of_items = survey.items.iter().filter(|item| chosen.contains(&item.name));
    let mut uris: BTreeSet<Uri> = of_items.filter_map(|item| item.uri.clone()).collect();
    uris.extend(chosen.iter().filter_map(Name::to_uri));
    let uris: Vec<Uri> = uris.into_iter().collect();
    let mut troubles = Survey::default();
    troubles.read(recents.forget(&uris).map_err(Trouble::Journal));
    if selection.is_everything() {
        // Also what the limits hide.
        troubles.read(recents.forget_everything().map_err(Trouble::Journal));
    }
    // Under KDE's lock, and with what its programs wrote meanwhile; what cannot be done so is done below.
    troubles.read(project(recents).map_err(Trouble::Lists));
    let (places, disk) = (recents.places(), recents.disk());
    xbel::remove(places, disk, chosen, &mut troubles);
    whole::remove(places, disk, chosen, &mut troubles);
    activities::remove(places, disk, chosen, &mut troubles);
    settings::remove(places, disk, chosen, &mut troubles);
    office::remove(places, disk, chosen, &mut troubles);
    troubles.troubles
}

/// A file in which a forgotten document is still named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Left {
    /// The file.
    pub file: PathBuf,
    /// How many of the documents.
    pub documents: usize,
}

/// Searches the bytes of every store, our own too, for documents that were forgotten.
///
/// What is still remembered on purpose, in `staying`, is no find where its name begins with that of another.
#[must_use]
pub fn left(
    places: &Places,
    chosen: &BTreeSet<Name>,
    staying: &BTreeSet<Name>,
) -> (Vec<Left>, Vec<Trouble>) {
    let staying = staying.iter().filter(|name| !chosen.contains(*name));
    let home = std::os::unix::ffi::OsStrExt::as_bytes(places.home.as_os_str());
    let search = Search::new(chosen, staying, home);
    let mut found = Vec::new();
    let mut survey = Survey::default();
    for file in &searched(places) {
        let Some(bytes) = survey.read(files::read(file)) else { continue };
        let documents = search.found(&bytes).len();
        if documents > 0 {
            found.push(Left { file: file.clone(), documents });
        }
    }
    (found, survey.troubles)
}

/// How much a kind of store keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The kind.
    pub kind: Kind,
    /// How many files it has.
    pub files: usize,
    /// How large they are together.
    pub bytes: u64,
    /// Those that others than the user may read, unless a directory above keeps them out.
    pub open_to_others: Vec<PathBuf>,
}

/// Returns how much each kind of store keeps that has any file. Of settings those count that have a list.
#[must_use]
pub fn stores(places: &Places) -> Vec<Store> {
    let mut files: Vec<(PathBuf, Kind)> = whole::files(places);
    let mut add = |found: Vec<PathBuf>, kind| files.extend(found.into_iter().map(|f| (f, kind)));
    add(files::regular(&places.state), Kind::Journal);
    add(xbel::files(places), Kind::Xbel);
    add(activities::files(places), Kind::Activities);
    add(office::files(places), Kind::Office);
    let mut survey = Survey::default();
    settings::look(places, &mut survey);
    let listed: BTreeSet<PathBuf> = survey.items.into_iter().map(|item| item.file).collect();
    add(listed.into_iter().collect(), Kind::Settings);
    let mut stores: BTreeMap<Kind, Store> = BTreeMap::new();
    for (file, kind) in files {
        let Ok(about) = file.metadata() else { continue };
        let empty = Store { kind, files: 0, bytes: 0, open_to_others: Vec::new() };
        let store = stores.entry(kind).or_insert(empty);
        store.files += 1;
        store.bytes = store.bytes.saturating_add(about.len());
        if about.mode() & 0o044 != 0 && !is_behind_a_closed_directory(&file) {
            store.open_to_others.push(file);
        }
    }
    stores.into_values().collect()
}

/// Whether a directory above lets nobody else through.
fn is_behind_a_closed_directory(file: &Path) -> bool {
    let mut above = file.ancestors().skip(1);
    above.any(|dir| dir.metadata().is_ok_and(|about| about.mode() & 0o011 == 0))
}

/// Returns the files of KDE's activity service, as the kernel names them.
#[must_use]
pub fn activities(places: &Places) -> Vec<PathBuf> {
    let files = activities::files(places);
    files.iter().filter_map(|file| file.canonicalize().ok()).collect()
}

/// Whether a file is one of KDE's activity service.
#[must_use]
pub fn is_of_activities(places: &Places, file: &Path) -> bool {
    activities::files(places).iter().any(|known| known == file)
}

/// Returns the files whose bytes are searched: those of all stores, their logs, locks, backups and leftovers.
fn searched(places: &Places) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    // Whatever programs have in their settings, list or not.
    files.extend(files::regular(&places.config));
    for ours in std::iter::once(&places.state).chain(&places.runtime) {
        files.extend(files::regular(ours));
        files.extend(files::directories(ours).iter().flat_map(|dir| files::regular(dir)));
    }
    files.extend(xbel::files(places));
    files.extend(whole::files(places).into_iter().map(|(file, _)| file));
    files.extend(activities::files(places));
    files.extend(settings::files(places));
    files.extend(office::files(places));
    files
}

/// Returns the programs that run now and keep a list in memory with one of these documents, which they may write again.
///
/// `running` are the processes of the user, with their numbers and names.
#[must_use]
pub fn holders<'a>(
    survey: &Survey,
    chosen: &BTreeSet<Name>,
    running: &'a [(u32, String)],
) -> Vec<&'a (u32, String)> {
    let items = survey.items.iter().filter(|item| chosen.contains(&item.name));
    let names = items.flat_map(|item| item.applications.iter().map(|name| last_part(name)));
    let known: BTreeSet<String> = names.collect();
    running.iter().filter(|(_, name)| known.contains(&last_part(name))).collect()
}

fn last_part(name: &str) -> String {
    let name = name.strip_suffix(".desktop").unwrap_or(name);
    // The kernel keeps fifteen bytes of a program's name.
    name.rsplit(['.', '/']).next().unwrap_or(name).to_lowercase().chars().take(15).collect()
}

/// Returns the program to which a file of settings belongs: `okular` of `okularrc`.
fn owner(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let endings = ["staterc", "rc", ".conf", ".ini"];
    let owner = endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    let owner = owner.strip_suffix("-qt-interface").unwrap_or(owner);
    (!owner.is_empty()).then(|| owner.to_owned())
}
