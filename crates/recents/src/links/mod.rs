//! `RecentDocuments/*.desktop`: the links that KDE's programs list, a file for each document and program.

mod link;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use store::disk::Disk;
use store::publish::{InPlace, PublishError, publish_private};

use super::policy::{PolicySubject, RetentionVerdict};
use super::{RecentEntry, RecentList, RecentTime, Recents, RecentsFiles};

pub use self::link::{DocumentLink, LinkTarget, read};

/// What no link is longer than.
const MAX_BYTES: u64 = 64 << 10;

/// In a directory with more than this nothing is looked at: it is no list of KDE's.
const MAX_LINKS: usize = 10_000;

/// The most documents of one name.
const MAX_SAME_NAME: usize = 1000;

/// Why the links do not show the list.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinksError {
    /// The directory cannot be read; nothing is changed.
    #[error("cannot list {path:?}")]
    Unread {
        /// The directory.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// A link cannot be removed; others may have been.
    #[error("cannot remove {path:?}")]
    NotRemoved {
        /// The link.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// A link cannot be written; others may have been.
    #[error(transparent)]
    NotWritten(#[from] PublishError),
}

/// The outcome of updating the links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinksOutcome {
    /// How many are new.
    pub made: usize,
    /// How many are of a document that was opened again.
    pub touched: usize,
    /// How many went, for being forgotten or beyond the most.
    pub removed: usize,
    /// How many bytes were written.
    pub written_bytes: usize,
}

/// A link that is in the directory.
struct Present {
    path: PathBuf,
    modified: RecentTime,
    /// What it says; `None` if that is no link of KDE's.
    link: Option<DocumentLink>,
}

/// Updates the links for documents opened after `since`, keeps at most `most`, and removes those of forgotten documents.
///
/// A link that was removed is not created again before its document is opened again, because KDE's programs remove links
/// whose file is gone.
///
/// # Errors
///
/// [`LinksError`]; what could be done was done.
pub(super) fn project(
    places: &RecentsFiles,
    list: &RecentList,
    disk: &dyn Disk,
    since: RecentTime,
    most: usize,
) -> Result<LinksOutcome, LinksError> {
    let mut outcome = LinksOutcome::default();
    let Some(mut present) = read_all(places, disk)? else { return Ok(outcome) };
    remove_forgotten(&mut present, list, disk, &mut outcome)?;
    for (entry, application, at) in opened(list, since, most) {
        let Some(link) = DocumentLink::of(entry, application, &places.home) else { continue };
        let same =
            |other: &&mut Present| other.link.as_ref().is_some_and(|other| other.is_same(&link));
        if let Some(there) = present.iter_mut().find(same) {
            if there.modified < at {
                // One that goes at this moment is made when the document is opened again.
                let _ = set_modified(&there.path, at);
                there.modified = at;
                outcome.touched += 1;
            }
            continue;
        }
        // A sandbox gets the places that are free: its links push out none of the user's.
        if present.len() >= most && is_sandboxed(entry, application) {
            continue;
        }
        let taken: HashSet<&Path> = present.iter().map(|other| &*other.path).collect();
        let mut names = (1..=MAX_SAME_NAME).map(|number| places.links.join(link.file_name(number)));
        let Some(path) = names.find(|path| !taken.contains(&**path)) else { continue };
        // No file can have the name, and KDE makes none either.
        if path.file_name().is_none_or(|name| name.len() > 255) {
            continue;
        }
        let text = link.text();
        match publish_private(disk, &path, text.as_bytes(), InPlace::Still(None)) {
            // A program of KDE's has made one of this name.
            Err(PublishError::Overtaken { .. }) => continue,
            other => other?,
        };
        let _ = set_modified(&path, at);
        outcome.made += 1;
        outcome.written_bytes += text.len();
        present.push(Present { path, modified: at, link: Some(link) });
    }
    // KDE keeps its number when it adds; so do we, and else the links are as they are.
    if outcome.made > 0 && present.len() > most {
        present.sort_by_key(|link| link.modified);
        for link in &present[..present.len() - most] {
            remove(&link.path, disk)?;
            outcome.removed += 1;
        }
    }
    Ok(outcome)
}

/// Removes the links that the user's rules or private mode do not let in, and returns how many; one of a document that our
/// list has with the same program gets the time back that it had there.
///
/// # Errors
///
/// [`LinksError`]; what could be done was done.
pub(super) fn take_out_refused(
    recents: &mut Recents,
    list: &RecentList,
) -> Result<usize, LinksError> {
    let present = read_all(&recents.places().clone(), recents.disk())?.unwrap_or_default();
    let mut removed = 0;
    let mut staying: Vec<DocumentLink> = Vec::new();
    let mut refused = Vec::new();
    for Present { path, modified, link } in present {
        let Some(link) = link else { continue };
        let mime = link.mime();
        let is_refused = link.uris().iter().any(|uri| {
            let subject = PolicySubject { uri, mime: Some(&mime), application: link.application() };
            recents.decide_link(subject, modified) != RetentionVerdict::Remember
        });
        if is_refused {
            refused.push((path, modified, link));
        } else {
            staying.push(link);
        }
    }
    for (path, modified, link) in refused {
        // KDE makes a second one of a document that is opened again.
        let has_another = staying.iter().any(|other| other.is_same(&link));
        let entries = link.uris().iter().filter_map(|uri| list.get(uri));
        let mut listed = entries.flat_map(|entry| &entry.applications);
        match listed.find(|known| known.name == link.application() && !has_another) {
            Some(known) => {
                if known.modified < modified {
                    // One that goes at this moment has no time to be set.
                    let _ = set_modified(&path, known.modified);
                }
                staying.push(link);
            }
            None => {
                remove(&path, recents.disk())?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

/// Returns what was opened after `since` and by what, the last `most`, the oldest first, those of sandboxes behind.
fn opened(
    list: &RecentList,
    since: RecentTime,
    most: usize,
) -> Vec<(&RecentEntry, &str, RecentTime)> {
    let mut opened: Vec<(&RecentEntry, &str, RecentTime)> = list
        .iter()
        .flat_map(|entry| {
            let applications = entry.applications.iter();
            applications.map(move |one| (entry, &*one.name, one.modified))
        })
        .filter(|(_, _, at)| *at > since)
        .collect();
    // Those of sandboxes count last.
    opened.sort_by_key(|(entry, by, at)| (!is_sandboxed(entry, by), *at));
    let mut last = opened.split_off(opened.len().saturating_sub(most));
    // The user's come first to the places that are free.
    last.sort_by_key(|(entry, by, at)| (is_sandboxed(entry, by), *at));
    last
}

fn is_sandboxed(entry: &RecentEntry, application: &str) -> bool {
    let mut by = entry.applications.iter();
    by.any(|known| known.name == application && known.is_sandboxed())
}

/// Reads the directory; `None` if it is none of KDE's.
fn read_all(places: &RecentsFiles, disk: &dyn Disk) -> Result<Option<Vec<Present>>, LinksError> {
    let dir = &places.links;
    let names = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
        // Somebody wants no links.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        other => other.map_err(|source| LinksError::Unread { path: dir.clone(), source })?,
    };
    if names.len() > MAX_LINKS {
        return Ok(None);
    }
    let is_link = |name: &OsString| Path::new(name).extension().is_some_and(|e| e == "desktop");
    let mut present = Vec::new();
    for name in names.into_iter().filter(is_link) {
        let path = dir.join(name);
        // What went meanwhile, or is no file, is none.
        let Ok(stat) = disk.stat(&path) else { continue };
        let modified = RecentTime(i64::try_from(stat.mtime_ns / 1000).unwrap_or(i64::MAX));
        let bytes =
            if stat.is_file() && stat.len <= MAX_BYTES { disk.read(&path).ok() } else { None };
        let link = bytes.and_then(|bytes| link::read(&bytes, &places.home));
        present.push(Present { path, modified, link });
    }
    Ok(Some(present))
}

fn remove_forgotten(
    present: &mut Vec<Present>,
    list: &RecentList,
    disk: &dyn Disk,
    outcome: &mut LinksOutcome,
) -> Result<(), LinksError> {
    let mut kept = Vec::new();
    for one in present.drain(..) {
        let is_forgotten = one.link.as_ref().is_some_and(|link| {
            let is_listed = link.uris().iter().any(|uri| list.get(uri).is_some());
            !is_listed && link.uris().iter().any(|uri| list.is_forgotten(uri, one.modified))
        });
        if is_forgotten {
            remove(&one.path, disk)?;
            outcome.removed += 1;
        } else {
            kept.push(one);
        }
    }
    *present = kept;
    Ok(())
}

fn remove(path: &Path, disk: &dyn Disk) -> Result<(), LinksError> {
    match disk.remove(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(LinksError::NotRemoved { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

fn set_modified(path: &Path, at: RecentTime) -> io::Result<()> {
    let since = Duration::from_micros(u64::try_from(at.0).unwrap_or_default());
    File::options().write(true).open(path)?.set_modified(SystemTime::UNIX_EPOCH + since)
}
