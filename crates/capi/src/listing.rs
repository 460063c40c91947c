//! Listings: `unjank_listing_*`.

use std::ffi::{OsStr, c_char, c_int};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use listing::{
    AttributeSet, Attributes, EntryFailure, Failure, FileTime, Following, Ids, ListingAccess,
    ListingLimits, ListingRequest, ListingStep, ThreadCount, Update, WorkerProgram,
};

use crate::abi::{
    self, EntryFacts, LentAttributes, LentNames, ListingEvent, ListingOptions, TimeOfFile,
};
use crate::environment;
use crate::error::{CallError, enter};
use crate::handle::Registry;
use crate::session::{Happened, ListingSession, SessionState};

/// Listings by their handles.
pub(crate) static LISTINGS: Registry<ListingSession> = Registry::new();

/// A handle, which points nowhere.
#[derive(Debug)]
pub(crate) enum ListingHandle {}

/// A path may have so many bytes.
const LONGEST_PATH: usize = libc::PATH_MAX as usize - 1;
/// `UNJANK_FOLLOW` and the others.
const FOLLOW: u32 = 1;
const DAEMON: u32 = 1 << 1;
const WORKER: u32 = 1 << 2;
const ALL_FLAGS: u32 = FOLLOW | DAEMON | WORKER;
/// `UNJANK_OWNER_NAMES` and all below it.
const ALL_FIELDS: u32 = (1 << 15) - 1;

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller: texts end with a NUL, structures have the size that they say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_listing_open(
    path: *const c_char,
    options: *const ListingOptions,
    listing: *mut *mut ListingHandle,
) -> c_int {
    enter(|| {
        // SAFETY: by the contract of this function.
        let path = unsafe { abi::text(path, LONGEST_PATH) }?;
        let path = path.filter(|path| !path.is_empty());
        let path = Path::new(OsStr::from_bytes(
            path.ok_or_else(|| CallError::invalid("there is no path"))?,
        ));
        let path = std::path::absolute(path)?;
        // SAFETY: by the contract of this function.
        let known = unsafe { abi::read(options) }?;
        let (access, request) = request(&path, &known, options.is_null())?;
        if listing.is_null() {
            return Err(CallError::invalid("there is no place for the handle"));
        }
        let handle = LISTINGS.add(Arc::new(ListingSession::open(&access, &request)?));
        // SAFETY: by the contract of this function.
        unsafe { abi::put(listing, handle) }?;
        Ok(0)
    })
}

/// Makes the request of the options.
fn request(
    path: &Path,
    options: &ListingOptions,
    is_default: bool,
) -> Result<(ListingAccess, ListingRequest), CallError> {
    let mut request = ListingRequest::of(path);
    if is_default {
        return Ok((ListingAccess::default(), request));
    }
    if options.flags & !ALL_FLAGS != 0 || options.fields & !ALL_FIELDS != 0 {
        return Err(CallError::invalid("an option or a field is not known"));
    }
    let fields = AttributeSet::from_bits(options.fields);
    request.fields = fields.ok_or_else(|| CallError::invalid("a field is not known"))?;
    if options.flags & FOLLOW != 0 {
        request.following = Following::Changes;
    }
    if request.fields.contains(AttributeSet::MIME_TYPE) {
        request.mime_directories = environment::mime_directories();
    }
    if options.most != 0 {
        request.limits = ListingLimits { entries: options.most, ..ListingLimits::default() };
    }
    let threads = usize::try_from(options.threads.min(64)).ok().and_then(NonZeroUsize::new);
    request.threads = threads.map_or(ThreadCount::Adaptive, ThreadCount::Exactly);
    let given = |text| -> Result<Option<PathBuf>, CallError> {
        // SAFETY: by the contract of `unjank_listing_open`, whose options these are.
        let text = unsafe { abi::text(text, LONGEST_PATH) }?;
        Ok(text.map(|text| PathBuf::from(OsStr::from_bytes(text))))
    };
    let mut access = ListingAccess::default();
    if options.flags & DAEMON != 0 {
        access.daemon = given(options.daemon)?.or_else(environment::listing_socket);
    }
    if options.flags & WORKER != 0 {
        let program = given(options.worker)?.or_else(|| environment::program("unjank"));
        let arguments = vec!["listing-worker".into()];
        access.worker = program.map(|path| WorkerProgram { path, arguments });
    }
    Ok((access, request))
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_listing_close(listing: *mut ListingHandle) -> c_int {
    enter(|| {
        match LISTINGS.get(listing)?.lock() {
            // What an internal error left can be closed.
            Err(error) if error.number() == libc::EBUSY => return Err(error),
            _ => {}
        }
        LISTINGS.remove(listing)?;
        Ok(0)
    })
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_listing_cancel(listing: *mut ListingHandle) -> c_int {
    enter(|| {
        LISTINGS.get(listing)?.cancel();
        Ok(0)
    })
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_listing_fd(listing: *mut ListingHandle) -> c_int {
    enter(|| Ok(LISTINGS.get(listing)?.descriptor()))
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_listing_next(
    listing: *mut ListingHandle,
    timeout_ms: c_int,
    event: *mut ListingEvent,
) -> c_int {
    enter(|| {
        let session = LISTINGS.get(listing)?;
        // Before anything is taken that could then not be told.
        abi::check_size(event)?;
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        loop {
            let Some((state, happened)) = session.next(timeout)? else { return Ok(0) };
            let told = match happened {
                Happened::Update => state.last.as_ref().and_then(event_of),
                Happened::Sorted(count) => {
                    Some(ListingEvent { r#type: 7, count, ..ListingEvent::default() })
                }
            };
            // Details are asked for by nobody here.
            let Some(told) = told else { continue };
            // SAFETY: by the contract of this function.
            unsafe { abi::write(event, told) }?;
            return Ok(1);
        }
    })
}

fn event_of(update: &Update) -> Option<ListingEvent> {
    let mut event = ListingEvent::default();
    let list = |ids: &[u32]| (ids.as_ptr(), count_of(ids.len()));
    match update {
        Update::Names(range) => {
            (event.r#type, event.first) = (1, range.start);
            event.count = range.end.saturating_sub(range.start);
        }
        Update::Attributes(ids) => {
            event.r#type = 2;
            match ids {
                Ids::Range(range) => {
                    (event.first, event.count) =
                        (range.start, range.end.saturating_sub(range.start));
                }
                Ids::List(ids) => (event.ids, event.count) = list(ids),
            }
        }
        Update::Removed(ids) => (event.r#type, (event.ids, event.count)) = (3, list(ids)),
        Update::Renamed(ids) => (event.r#type, (event.ids, event.count)) = (4, list(ids)),
        Update::Failed(failure) => {
            (event.r#type, event.step) = (5, failure.step as u32);
            event.error = -error_number(failure);
        }
        Update::Done(count) => (event.r#type, event.count) = (6, *count),
        _ => return None,
    }
    Some(event)
}

/// Returns the system's error number, never 0; where the system has reported none, the one that is nearest to what the step means.
fn error_number(failure: &Failure) -> i32 {
    match (failure.number, failure.step) {
        (0, ListingStep::Repeats) => libc::ELOOP,
        (0, ListingStep::TooLarge) => libc::EOVERFLOW,
        (0, ListingStep::Gone) => libc::ENOENT,
        (0, _) => libc::EIO,
        (number, _) => number,
    }
}

fn count_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_listing_names(
    listing: *mut ListingHandle,
    id: u32,
    names: *mut LentNames,
) -> c_int {
    enter(|| {
        let session = LISTINGS.get(listing)?;
        let mut state = session.lock()?;
        let lent = state.lend_names(id).ok_or_else(|| no_entry(id))?;
        // SAFETY: by the contract of this function.
        unsafe { abi::write(names, lent) }?;
        Ok(0)
    })
}

fn no_entry(id: u32) -> CallError {
    CallError::new(libc::ENOENT, format!("there is no entry {id}"))
}

/// Copies bytes to where numbers can be read in them.
fn aligned(bytes: &[u8]) -> Box<[u64]> {
    let word = |part: &[u8]| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_ne_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

/// Whether numbers of every width can be read there.
fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().cast::<u64>().is_aligned()
}

impl SessionState {
    fn lend_names(&mut self, id: u32) -> Option<LentNames> {
        let columns = self.listing.entries().name_columns(id)?;
        let ends = if is_aligned(columns.ends) {
            columns.ends.as_ptr()
        } else {
            // A short message that lies where the allocator put it.
            let known = self.names.iter().position(|(first, _)| *first == columns.first);
            let at = known.unwrap_or_else(|| {
                self.names.push((columns.first, aligned(columns.ends)));
                self.names.len() - 1
            });
            self.names[at].1.as_ptr().cast()
        };
        Some(LentNames {
            first: columns.first,
            count: count_of(columns.kinds.len()),
            types: columns.kinds.as_ptr(),
            ends: ends.cast(),
            text: columns.text.as_ptr().cast(),
            ..LentNames::default()
        })
    }

    fn lend_attributes(&mut self) -> Option<LentAttributes> {
        let Some(Update::Attributes(ids)) = &self.last else { return None };
        let columns = self.listing.entries().attribute_columns(ids)?;
        let is_lent_as_it_is = columns.is_in_place() && is_aligned(columns.bytes());
        let begin: *const u8 = if is_lent_as_it_is {
            columns.bytes().as_ptr()
        } else {
            // Those of a call before are lent until the next event.
            self.columns.get_or_insert_with(|| aligned(columns.bytes())).as_ptr().cast()
        };
        // Places in the payload, which were checked against its length when it arrived.
        let at = |place: usize| begin.wrapping_add(place);
        let column = |field| columns.column(field).map_or(std::ptr::null(), at);
        let (failed, failures) = columns.failures();
        Some(LentAttributes {
            fields: columns.fields().bits(),
            first: columns.first(),
            count: columns.count(),
            failures: count_of(failures),
            ids: columns.ids().map_or(std::ptr::null(), at).cast(),
            bytes: column(AttributeSet::SIZE).cast(),
            mode: column(AttributeSet::MODE).cast(),
            owner: column(AttributeSet::OWNER).cast(),
            modified: column(AttributeSet::MODIFIED).cast(),
            accessed: column(AttributeSet::ACCESSED).cast(),
            changed: column(AttributeSet::CHANGED).cast(),
            born: column(AttributeSet::BORN).cast(),
            inode: column(AttributeSet::INODE).cast(),
            links: column(AttributeSet::LINKS).cast(),
            blocks: column(AttributeSet::BLOCKS).cast(),
            device: column(AttributeSet::DEVICE).cast(),
            file_system: column(AttributeSet::FILE_SYSTEM).cast(),
            target: column(AttributeSet::TARGET).cast(),
            mime_type: column(AttributeSet::MIME_TYPE).cast(),
            failed: if failures == 0 { std::ptr::null() } else { at(failed).cast() },
            ..LentAttributes::default()
        })
    }

    fn facts(&self, id: u32) -> Option<EntryFacts> {
        let entries = self.listing.entries();
        let columns = entries.name_columns(id)?;
        let row = usize::try_from(id - columns.first).ok()?;
        let later = self.renamed.iter().rev().find(|(renamed, _)| *renamed == id);
        let (name, name_length) = match later {
            Some((_, name)) => (abi::lent(name), name.as_bytes().len()),
            None => {
                let begin = row.checked_sub(1).map_or(Some(0), |row| end_of(columns.ends, row))?;
                let length = end_of(columns.ends, row)?.checked_sub(begin + 1)?;
                (columns.text.get(begin..)?.as_ptr().cast(), length)
            }
        };
        let known = entries.attributes(id).unwrap_or_default();
        let error = entries.failure(id).map_or(0, |failure| match failure {
            EntryFailure::Vanished => libc::ENOENT,
            EntryFailure::Denied => libc::EACCES,
            EntryFailure::Other(number) => number,
        });
        let time = |field, time: FileTime| TimeOfFile {
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
            known: u32::from(known.fields.contains(field)),
        };
        let Attributes { device, file_system, .. } = known;
        Some(EntryFacts {
            name,
            name_length,
            fields: known.fields.bits(),
            r#type: u32::from(entries.kind(id).number()),
            removed: u32::from(entries.is_removed(id)),
            error,
            bytes: known.size,
            inode: known.inode,
            blocks: known.blocks,
            mode: u32::from(known.mode),
            user: known.user,
            group: known.group,
            links: known.links,
            device_major: device.0,
            device_minor: device.1,
            file_system_major: file_system.0,
            file_system_minor: file_system.1,
            target: known.target,
            target_mode: u32::from(known.target_mode),
            mime_type: known.mime_type,
            modified: time(AttributeSet::MODIFIED, known.modified),
            accessed: time(AttributeSet::ACCESSED, known.accessed),
            changed: time(AttributeSet::CHANGED, known.changed),
            born: time(AttributeSet::BORN, known.born),
            ..EntryFacts::default()
        })
    }
}

/// Where the name in a row ends.
fn end_of(ends: &[u8], row: usize) -> Option<usize> {
    let bytes = ends.get(4 * row..4 * row + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_listing_attributes(
    listing: *mut ListingHandle,
    attributes: *mut LentAttributes,
) -> c_int {
    enter(|| {
        let session = LISTINGS.get(listing)?;
        let mut state = session.lock()?;
        let none = || CallError::new(libc::ENODATA, "the last event has no attributes");
        let lent = state.lend_attributes().ok_or_else(none)?;
        // SAFETY: by the contract of this function.
        unsafe { abi::write(attributes, lent) }?;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_listing_entry(
    listing: *mut ListingHandle,
    id: u32,
    entry: *mut EntryFacts,
) -> c_int {
    enter(|| {
        let session = LISTINGS.get(listing)?;
        let facts = session.lock()?.facts(id).ok_or_else(|| no_entry(id))?;
        // SAFETY: by the contract of this function.
        unsafe { abi::write(entry, facts) }?;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_listing_text(
    listing: *mut ListingHandle,
    number: u32,
    text: *mut *const c_char,
    length: *mut usize,
) -> c_int {
    enter(|| {
        let session = LISTINGS.get(listing)?;
        let state = session.lock()?;
        // SAFETY: by the contract of this function.
        unsafe { lend_text(state.listing.entries().string(number), text, length) }
    })
}

/// Lends a text.
///
/// # Safety
///
/// The places are null or may be written to.
unsafe fn lend_text(
    found: Option<&[u8]>,
    text: *mut *const c_char,
    length: *mut usize,
) -> Result<c_int, CallError> {
    let found = found.ok_or_else(|| CallError::new(libc::ENOENT, "there is no such text"))?;
    if text.is_null() || length.is_null() {
        return Err(CallError::invalid("a place for a result is NULL"));
    }
    // SAFETY: by the contract of this function.
    unsafe { abi::put(text, found.as_ptr().cast()) }?;
    // SAFETY: by the contract of this function.
    unsafe { abi::put(length, found.len()) }?;
    Ok(0)
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_listing_owner_name(
    listing: *mut ListingHandle,
    is_group: c_int,
    number: u32,
    text: *mut *const c_char,
    length: *mut usize,
) -> c_int {
    enter(|| {
        let session = LISTINGS.get(listing)?;
        let state = session.lock()?;
        let entries = state.listing.entries();
        let found =
            if is_group == 0 { entries.user_name(number) } else { entries.group_name(number) };
        // SAFETY: by the contract of this function.
        unsafe { lend_text(found, text, length) }
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_listing_want(
    listing: *mut ListingHandle,
    ids: *const u32,
    count: usize,
) -> c_int {
    enter(|| {
        let session = LISTINGS.get(listing)?;
        // SAFETY: by the contract of this function.
        let ids = unsafe { abi::array(ids, count) }?;
        session.lock()?.want(ids)?;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_unpack_times(
    packed: *const u64,
    count: usize,
    nanoseconds: *mut i64,
) -> c_int {
    enter(|| {
        // SAFETY: by the contract of this function.
        let packed = unsafe { abi::array(packed, count) }?;
        // SAFETY: by the contract of this function.
        let nanoseconds = unsafe { abi::array_mut(nanoseconds, count) }?;
        let mut unknown = 0_usize;
        for (packed, nanoseconds) in packed.iter().zip(nanoseconds) {
            *nanoseconds = unpacked(*packed).unwrap_or_else(|| {
                unknown += 1;
                i64::MIN
            });
        }
        Ok(c_int::try_from(unknown).unwrap_or(c_int::MAX))
    })
}

/// Returns a time of a column in nanoseconds since 1970, as `unjank_unpack_time` of the header has it.
fn unpacked(packed: u64) -> Option<i64> {
    if packed >= u64::MAX - 1 {
        return None;
    }
    let seconds = i64::try_from(packed >> 30).ok()? - (1 << 31);
    let nanoseconds = i64::try_from(packed & 0x3fff_ffff).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files that need not last")]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_are_lent_stay_when_they_are_asked_for_again() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..9_usize {
            std::fs::write(directory.path().join(number.to_string()), vec![0; number]).unwrap();
        }
        let request = ListingRequest::of(directory.path());
        let session = ListingSession::open(&ListingAccess::default(), &request).unwrap();
        while session.next(None).unwrap().is_some() {}
        let mut state = session.lock().unwrap();
        // No message arrived with these, so that they are put together and not lent as they are.
        state.last = Some(Update::Attributes(Ids::List([7, 2, 5].into())));
        let first = state.lend_attributes().unwrap();
        let again = state.lend_attributes().unwrap();
        assert!(state.columns.is_some() && first.count == 3);
        assert_eq!((first.bytes, first.ids), (again.bytes, again.ids));
        // SAFETY: so many are lent until the next event.
        let lent = unsafe { std::slice::from_raw_parts(first.bytes, 3) };
        let known = |id| state.listing.entries().attributes(id).unwrap().size;
        assert_eq!(lent, [known(7), known(2), known(5)]);
    }
}
