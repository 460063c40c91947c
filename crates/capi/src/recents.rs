//! Recent documents: `unjank_recents_*`.

use std::ffi::{CString, OsStr, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use recents::query::Query;
use recents::{
    Addition, AdditionOutcome, OpeningApplication, Privacy, RecentEntry, Recents, RecentsError,
    Uri, WriterProgram, projection,
};
use sys::clock::SystemClock;
use xdg::mime::Globs;

use crate::abi::{self, AskedAddition, AskedQuery, LentRecent};
use crate::environment;
use crate::error::{CallError, enter, tell};
use crate::handle::{Registry, close, lock};
use crate::watched::WatchedFiles;

/// Recent documents by their handles.
static RECENTS: Registry<Mutex<OpenRecents>> = Registry::new();

/// A handle, which points nowhere.
#[derive(Debug)]
pub(crate) enum RecentsHandle {}

/// What a handle stands for.
#[derive(Debug)]
struct OpenRecents {
    recents: Recents,
    found: Vec<RecentEntry>,
    /// The texts of the document that was given last.
    lent: Vec<CString>,
    files: WatchedFiles,
}

/// A text of an addition may have so many bytes; the list's own bounds are lower.
const LONGEST_TEXT: usize = 1 << 20;
/// The program's argument by which it writes what GTK and KDE read.
const WRITER: &str = "recent-writer";
/// The type of a document whose name does not tell.
const UNKNOWN: &str = "application/octet-stream";

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_recents_open(recents: *mut *mut RecentsHandle) -> c_int {
    enter(|| {
        if recents.is_null() {
            return Err(CallError::invalid("there is no place for the handle"));
        }
        let (clock, disk) = (Arc::new(SystemClock::start()), store::disk::real());
        let (files, program) = (environment::recents(), environment::remembering());
        let mut made = Recents::new(files, program, disk, clock);
        if let Some(path) = environment::program("unjank") {
            made = made.with_writer(WriterProgram { path, arguments: vec![WRITER.into()] });
        }
        let files = WatchedFiles::new()?;
        let opened = OpenRecents { recents: made, found: Vec::new(), lent: Vec::new(), files };
        // SAFETY: by the contract of this function.
        unsafe { abi::put(recents, RECENTS.add(Arc::new(Mutex::new(opened)))) }?;
        Ok(0)
    })
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_recents_close(recents: *mut RecentsHandle) -> c_int {
    enter(|| {
        close(&RECENTS, recents)?;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_recents_add(
    recents: *mut RecentsHandle,
    addition: *const AskedAddition,
) -> c_int {
    enter(|| {
        let opened = RECENTS.get(recents)?;
        abi::check_size(addition)?;
        // SAFETY: by the contract of this function.
        let asked = unsafe { abi::read(addition) }?;
        // SAFETY: by the contract of this function.
        let document = unsafe { abi::text(asked.document, LONGEST_TEXT) }?;
        let document = document.ok_or_else(|| CallError::invalid("there is no document"))?;
        // SAFETY: by the contract of this function, as for those below.
        let text =
            |text| unsafe { abi::utf8(text, LONGEST_TEXT) }.map(|text| text.map(str::to_owned));
        let application = text(asked.application)?;
        let application =
            application.ok_or_else(|| CallError::invalid("there is no application"))?;
        let uri = match document.first() {
            Some(b'/') => Uri::of_path(Path::new(OsStr::from_bytes(document))),
            _ => Uri::parse(document),
        };
        let uri = uri.map_err(|error| CallError::of(&error, libc::EINVAL))?;
        let mime = text(asked.mime_type)?.unwrap_or_else(|| type_of(document));
        let privacy = if asked.is_private == 0 { Privacy::Public } else { Privacy::Private };
        let (groups, exec) = (text(asked.group)?, text(asked.command)?);
        let mut opened = lock(&opened)?;
        let addition = Addition {
            uri,
            mime: Some(mime),
            groups: groups.into_iter().collect(),
            privacy,
            application,
            exec: exec.unwrap_or_else(|| "xdg-open %u".to_owned()),
            at: opened.recents.now(),
        };
        match opened.recents.add(&addition) {
            Ok(AdditionOutcome::Remembered) => Ok(0),
            Ok(AdditionOutcome::Left(reason)) => {
                tell(&format!("the document is not remembered: {reason}"));
                Ok(1)
            }
            Err(error @ RecentsError::Field(_)) => Err(CallError::of(&error, libc::EINVAL)),
            Err(error) => Err(CallError::of(&error, libc::EIO)),
        }
    })
}

/// The type that a document's name tells.
fn type_of(document: &[u8]) -> String {
    let name = document.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let directories = environment::mime_directories();
    let globs = Globs::read_for(directories.iter().map(PathBuf::as_path), name);
    globs.type_of(name).unwrap_or(UNKNOWN).to_owned()
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_recents_list(
    recents: *mut RecentsHandle,
    query: *const AskedQuery,
    count: *mut usize,
) -> c_int {
    enter(|| {
        let opened = RECENTS.get(recents)?;
        // SAFETY: by the contract of this function.
        let asked = unsafe { abi::read(query) }?;
        // SAFETY: by the contract of this function, as for those below.
        let text =
            |text| unsafe { abi::utf8(text, LONGEST_TEXT) }.map(|text| text.map(str::to_owned));
        // SAFETY: by the contract of this function.
        let below = unsafe { abi::text(asked.below, LONGEST_TEXT) }?;
        let query = Query {
            application: text(asked.application)?,
            mime: text(asked.mime_type)?,
            group: text(asked.group)?,
            below: below.map(|path| PathBuf::from(OsStr::from_bytes(path))),
            most: (asked.most != 0).then_some(asked.most),
            ..Query::default()
        };
        let mut opened = lock(&opened)?;
        let list = projection::preview(&mut opened.recents);
        let list = list.map_err(|error| CallError::of(&error, libc::EIO))?;
        let found: Vec<RecentEntry> = query.select(&list).into_iter().cloned().collect();
        // SAFETY: by the contract of this function.
        unsafe { abi::put(count, found.len()) }?;
        opened.found = found;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_recents_get(
    recents: *mut RecentsHandle,
    number: usize,
    recent: *mut LentRecent,
) -> c_int {
    enter(|| {
        let opened = RECENTS.get(recents)?;
        let mut opened = lock(&opened)?;
        let OpenRecents { found, lent, .. } = &mut *opened;
        abi::check_size(recent)?;
        let none = || CallError::new(libc::ENOENT, format!("there is no document {number}"));
        let told = lend(found.get(number).ok_or_else(none)?, lent);
        // SAFETY: by the contract of this function.
        unsafe { abi::write(recent, told) }?;
        Ok(0)
    })
}

/// Lends a document; its texts stay in `lent`.
fn lend(entry: &RecentEntry, lent: &mut Vec<CString>) -> LentRecent {
    lent.clear();
    let mut text = |text: Option<Vec<u8>>| -> *const c_char {
        let Some(text) = text else { return std::ptr::null() };
        lent.push(abi::text_of(text));
        // The bytes of a text stay where they are when the list of texts grows.
        lent.last().map_or(std::ptr::null(), |text| text.as_ptr())
    };
    let path = entry.uri.to_path().map(|path| path.into_os_string().into_vec());
    let last = entry.applications.iter().max_by_key(|one: &&OpeningApplication| one.modified);
    LentRecent {
        uri: text(Some(entry.uri.as_str().into())),
        path: text(path),
        mime_type: text(entry.mime.clone().map(String::into_bytes)),
        application: text(last.map(|one| one.name.clone().into_bytes())),
        command: text(last.map(|one| one.exec.clone().into_bytes())),
        used: entry.last_used().0,
        added: entry.added.0,
        count: last.map_or(0, |one| one.count),
        is_private: u32::from(entry.privacy == Privacy::Private),
        ..LentRecent::default()
    }
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_recents_fd(recents: *mut RecentsHandle) -> c_int {
    enter(|| {
        let opened = RECENTS.get(recents)?;
        let mut opened = lock(&opened)?;
        let OpenRecents { recents, files, .. } = &mut *opened;
        files.add([recents.journal_path(), recents.places().xbel.clone()])?;
        Ok(files.descriptor())
    })
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_recents_changed(recents: *mut RecentsHandle) -> c_int {
    enter(|| Ok(c_int::from(lock(&*RECENTS.get(recents)?)?.files.take()?)))
}
