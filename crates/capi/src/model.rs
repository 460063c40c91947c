//! Models: `unjank_model_*`, the rows of a view.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Weak};

use listing::collation::{Collation, Digits};
use listing::model::{
    By, Case, DirectoryPlacement, Hidden, Model, NamePattern, RowChange, RowOrder, SortDirection,
    ViewFilter,
};

use crate::abi::{self, ModelOptions};
use crate::environment;
use crate::error::{CallError, enter};
use crate::handle::Registry;
use crate::listing::{LISTINGS, ListingHandle};
use crate::session::{ListingSession, ModelState};

/// Models by their handles.
static MODELS: Registry<ModelPlace> = Registry::new();

/// A handle, which points nowhere.
#[derive(Debug)]
pub(crate) enum ModelHandle {}

/// Which of its listing's models a model is.
#[derive(Debug)]
struct ModelPlace {
    listing: Weak<ListingSession>,
    index: usize,
}

/// One change, as `unjank_row_change`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToldChange {
    r#type: u32,
    row: u32,
    count: u32,
    to: u32,
}

/// A text of a filter may have so many bytes: no name is longer.
const LONGEST_FILTER: usize = 4096;
/// A locale may have so many bytes.
const LONGEST_LOCALE: usize = 256;
/// `UNJANK_DESCENDING` and the others.
const DESCENDING: u32 = 1;
const DIRECTORIES_MIXED: u32 = 1 << 1;
const SHOW_HIDDEN: u32 = 1 << 2;
const MATCH_CASE: u32 = 1 << 3;
const GLOB: u32 = 1 << 4;
const IN_SLICES: u32 = 1 << 5;

impl ModelPlace {
    /// Calls `body` with the state of the listing that the model is in.
    fn with<T>(
        &self,
        body: impl FnOnce(&mut ModelState, &listing::Listing) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let session = self.session()?;
        let mut state = session.lock()?;
        let state = &mut *state;
        let model = state.models.get_mut(self.index).and_then(Option::as_mut);
        body(model.ok_or_else(gone)?, &state.listing)
    }

    fn session(&self) -> Result<Arc<ListingSession>, CallError> {
        self.listing.upgrade().ok_or_else(gone)
    }
}

fn gone() -> CallError {
    CallError::new(libc::EBADF, "the listing of the model is closed")
}

/// Reads the order and the filter.
///
/// # Safety
///
/// As unjank.h demands of its caller.
unsafe fn read(
    options: *const ModelOptions,
) -> Result<(ModelOptions, RowOrder, ViewFilter), CallError> {
    // SAFETY: by the contract of this function.
    let known = unsafe { abi::read(options) }?;
    let has = |flag| known.flags & flag != 0;
    if known.flags >= IN_SLICES << 1 {
        return Err(CallError::invalid("an option of the model is not known"));
    }
    let by = match known.by {
        0 => By::Name,
        1 => By::Size,
        2 => By::Modified,
        3 => By::Accessed,
        4 => By::Changed,
        5 => By::Born,
        6 => By::Type,
        7 => By::Extension,
        8 => By::Arrival,
        _ => return Err(CallError::invalid("there is no such order of rows")),
    };
    let direction =
        if has(DESCENDING) { SortDirection::Descending } else { SortDirection::Ascending };
    let directories =
        if has(DIRECTORIES_MIXED) { DirectoryPlacement::Mixed } else { DirectoryPlacement::First };
    let case = if has(MATCH_CASE) { Case::Heeded } else { Case::Ignored };
    // SAFETY: by the contract of this function.
    let text = unsafe { abi::text(known.filter, LONGEST_FILTER) }?;
    let pattern = text.filter(|text| !text.is_empty()).map(|text| match has(GLOB) {
        true => NamePattern::glob(text, case),
        false => NamePattern::substring(text, case),
    });
    let hidden = if has(SHOW_HIDDEN) { Hidden::Shown } else { Hidden::Left };
    Ok((known, RowOrder { by, direction, directories }, ViewFilter { hidden, pattern }))
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_model_open(
    listing: *mut ListingHandle,
    options: *const ModelOptions,
    model: *mut *mut ModelHandle,
) -> c_int {
    enter(|| {
        let session = LISTINGS.get(listing)?;
        // SAFETY: by the contract of this function.
        let (known, order, filter) = unsafe { read(options) }?;
        if model.is_null() {
            return Err(CallError::invalid("there is no place for the handle"));
        }
        // SAFETY: by the contract of this function.
        let locale: Option<&[u8]> =
            unsafe { abi::text(known.locale as *const c_char, LONGEST_LOCALE) }?;
        let locale = match locale.map(str::from_utf8) {
            None => environment::collation_locale(),
            Some(Ok(locale)) => locale.to_owned(),
            Some(Err(_)) => return Err(CallError::invalid("the locale is no text")),
        };
        let collation = Arc::new(Collation::new(&locale, Digits::ByValue));
        let mut state = session.lock()?;
        let state = &mut *state;
        let entries = state.listing.entries();
        let mut made = Model::new(collation, order, filter);
        // The view is drawn when it is made; only what comes later is a change.
        let _ = made.arrived(entries, entries.len());
        let _ = made.removed(entries, (0..entries.len()).filter(|id| entries.is_removed(*id)));
        let made = Some(ModelState::new(made));
        let index = state.models.iter().position(Option::is_none);
        let index = index.unwrap_or_else(|| {
            state.models.push(None);
            state.models.len() - 1
        });
        state.models[index] = made;
        let place = ModelPlace { listing: Arc::downgrade(&session), index };
        // SAFETY: by the contract of this function.
        unsafe { abi::put(model, MODELS.add(Arc::new(place))) }?;
        Ok(0)
    })
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_model_close(model: *mut ModelHandle) -> c_int {
    enter(|| {
        let place = MODELS.get(model)?;
        if let Ok(session) = place.session() {
            match session.lock() {
                Ok(mut state) => drop(state.models.get_mut(place.index).and_then(Option::take)),
                Err(error) if error.number() == libc::EBUSY => return Err(error),
                Err(_) => {}
            }
        }
        MODELS.remove(model)?;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_model_set(
    model: *mut ModelHandle,
    options: *const ModelOptions,
) -> c_int {
    enter(|| {
        let place = MODELS.get(model)?;
        // SAFETY: by the contract of this function.
        let (known, order, filter) = unsafe { read(options) }?;
        let session = place.session()?;
        let mut state = session.lock()?;
        let in_slices = known.flags & IN_SLICES != 0;
        let goes_on = state.set_order(place.index, order, filter, in_slices).ok_or_else(gone)?;
        Ok(c_int::from(goes_on))
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_model_rows(
    model: *mut ModelHandle,
    rows: *mut u32,
) -> c_int {
    enter(|| {
        let count = MODELS.get(model)?.with(|state, _| Ok(number(state.model.len())))?;
        // SAFETY: by the contract of this function.
        unsafe { abi::put(rows, count) }?;
        Ok(0)
    })
}

fn number(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX)
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_model_ids(
    model: *mut ModelHandle,
    row: u32,
    count: u32,
    ids: *mut u32,
    given: *mut u32,
) -> c_int {
    enter(|| {
        let (row, most) = (row as usize, count as usize);
        if ids.is_null() || !ids.is_aligned() || given.is_null() {
            return Err(CallError::invalid("a place for a result is NULL"));
        }
        let given_count = MODELS.get(model)?.with(|state, _| {
            let mut count = 0;
            for (place, id) in state.model.entries_from(row).take(most).enumerate() {
                // SAFETY: there are `most` places, by the contract of this function.
                unsafe { ids.wrapping_add(place).write(id) };
                count = place + 1;
            }
            Ok(number(count))
        })?;
        // SAFETY: by the contract of this function.
        unsafe { abi::put(given, given_count) }?;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_model_row(
    model: *mut ModelHandle,
    id: u32,
    row: *mut u32,
) -> c_int {
    enter(|| {
        let found = MODELS.get(model)?.with(|state, listing| {
            let found = state.model.row(listing.entries(), id);
            found.ok_or_else(|| CallError::new(libc::ENOENT, format!("entry {id} is not shown")))
        })?;
        // SAFETY: by the contract of this function.
        unsafe { abi::put(row, number(found)) }?;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_model_changes(
    model: *mut ModelHandle,
    changes: *mut ToldChange,
    most: usize,
) -> c_int {
    enter(|| {
        if most == 0 || changes.is_null() || !changes.is_aligned() {
            return Err(CallError::invalid("there is no place for changes"));
        }
        let told = MODELS.get(model)?.with(|state, _| {
            let rows = state.model.len();
            let steps = state.changes.replace(Vec::new()).filter(|steps| steps.len() <= most);
            let reset = || vec![ToldChange { r#type: 5, row: 0, count: number(rows), to: 0 }];
            Ok(steps.map_or_else(reset, |steps| steps.into_iter().map(told).collect()))
        })?;
        for (place, change) in told.iter().enumerate() {
            // SAFETY: there are `most` places, by the contract of this function, and no more changes.
            unsafe { changes.wrapping_add(place).write(*change) };
        }
        Ok(c_int::try_from(told.len()).unwrap_or(c_int::MAX))
    })
}

fn told(change: RowChange) -> ToldChange {
    let (r#type, row, count, to) = match change {
        RowChange::Inserted { row, count } => (1, row, count, 0),
        RowChange::Removed { row, count } => (2, row, count, 0),
        RowChange::Moved { from, to } => (3, from, 1, to),
        RowChange::Updated { row, count } => (4, row, count, 0),
    };
    ToldChange { r#type, row: number(row), count: number(count), to: number(to) }
}
