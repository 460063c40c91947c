//! A listing that goes on, its models, and the descriptor that a main loop watches.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use listing::model::{Changes, Model, RowChange, RowOrder, ViewFilter};
use listing::{
    Entries, EntryId, Following, Ids, Listing, ListingAccess, ListingError, ListingRequest, Update,
};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use sys::clock::{Clock, SystemClock};
use sys::socket::wait_readable;

use crate::error::CallError;
use crate::handle::lock;

/// How long a call that does not wait may sort names, about: a quarter of a frame at 60 Hz, less what one slice may take.
const SORT_TIME: Duration = Duration::from_millis(2);
/// Names that a model sorts in one go: at first, at least and at most.
const FIRST_SLICE: u32 = 1024;
const SMALLEST_SLICE: u32 = 256;
const LARGEST_SLICE: u32 = 1 << 16;
/// So many names become rows as they come; more are sorted first and wait, as long as others come, so long.
const AT_ONCE: u32 = 2048;
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// More changes than this cost a view more than drawing itself anew.
const MOST_CHANGES: usize = 256;

/// What a handle of a listing stands for.
#[derive(Debug)]
pub(crate) struct ListingSession {
    state: Mutex<SessionState>,
    /// Readable when the listing has something to do, or was cancelled.
    ready: OwnedFd,
    /// Readable from when the listing was cancelled.
    cancel: OwnedFd,
    is_cancelled: AtomicBool,
}

/// What one thread at a time works with.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) listing: Listing,
    pub(crate) models: Vec<Option<ModelState>>,
    /// What came last and is told when the models have made rows of what came before.
    held_back: Option<Update>,
    /// What `next` returned last.
    pub(crate) last: Option<Update>,
    /// The last event's columns, where they could not be lent as they are.
    pub(crate) columns: Option<Box<[u64]>>,
    /// Names, where they could not be lent as they are; kept until the listing is closed.
    pub(crate) names: Vec<(EntryId, Box<[u64]>)>,
    /// Later names of entries, with a NUL; kept until the listing is closed, for they are lent.
    pub(crate) renamed: Vec<(EntryId, CString)>,
    following: Following,
    /// Whether attributes were wanted after all.
    has_wants: bool,
    /// Whether the descriptor of the listing may still become another one.
    is_settled: bool,
    /// Readable while a model has rows to put into another order.
    reordering: OwnedFd,
    is_reordering: bool,
    clock: SystemClock,
}

/// The rows of a view, and what changed in them.
#[derive(Debug)]
pub(crate) struct ModelState {
    pub(crate) model: Model,
    /// `None` where any row may be another.
    pub(crate) changes: Option<Vec<RowChange>>,
    /// How many names are sorted, and made rows, in one go where a main loop waits.
    slice: u32,
    portion: u32,
    /// Since when names wait to become rows.
    waits_since: Option<Duration>,
    /// The same entries in the order and with the filter that were chosen last; it is filled some at a time.
    next: Option<NextRows>,
}

/// Rows that are being made in the place of others.
#[derive(Debug)]
struct NextRows {
    model: Model,
    slice: u32,
    portion: u32,
}

/// What a call of `next` came to.
#[derive(Debug)]
pub(crate) enum Happened {
    /// Something arrived; it is in [`SessionState::last`].
    Update,
    /// Nothing arrived; models sorted so many names that arrived before.
    Sorted(u32),
}

impl ListingSession {
    pub(crate) fn open(
        access: &ListingAccess,
        request: &ListingRequest,
    ) -> Result<ListingSession, CallError> {
        let cancel = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let cancel = cancel.map_err(std::io::Error::from)?;
        let ready = epoll::create(CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        watch(&ready, &cancel)?;
        let reordering = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let reordering = reordering.map_err(std::io::Error::from)?;
        watch(&ready, &reordering)?;
        let listing = Listing::open(access, request).map_err(|error| listing_error(&error))?;
        let state = SessionState {
            listing,
            models: Vec::new(),
            held_back: None,
            last: None,
            columns: None,
            names: Vec::new(),
            renamed: Vec::new(),
            following: request.following,
            has_wants: false,
            is_settled: false,
            reordering,
            is_reordering: false,
            clock: SystemClock::start(),
        };
        let session = ListingSession {
            state: Mutex::new(state),
            ready,
            cancel,
            is_cancelled: AtomicBool::new(false),
        };
        session.watch_listing(&*session.lock()?)?;
        Ok(session)
    }

    /// Returns what the listing holds, for this thread alone.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, SessionState>, CallError> {
        lock(&self.state)
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.ready.as_raw_fd()
    }

    /// Ends the reading, whatever another thread waits for.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
        // It has room for more wishes than anybody makes.
        let _ = rustix::io::write(&self.cancel, &1_u64.to_ne_bytes());
    }

    fn watch_listing(&self, state: &SessionState) -> Result<(), CallError> {
        match state.listing.descriptor() {
            Some(descriptor) => watch(&self.ready, descriptor),
            None => Ok(()),
        }
    }

    /// Waits for what is next, tells the models of it and keeps it; returns the state with it, if there was something.
    pub(crate) fn next(
        &self,
        timeout: Option<Duration>,
    ) -> Result<Option<(MutexGuard<'_, SessionState>, Happened)>, CallError> {
        let mut state = self.lock()?;
        let begun = state.clock.monotonic();
        let sorting = if timeout == Some(Duration::ZERO) { Some(SORT_TIME) } else { None };
        loop {
            // Also of a listing that was cancelled or that ended: what arrived can be looked at.
            let reordered = state.reorder(sorting);
            if reordered > 0 && sorting.is_some() {
                state.last = None;
                return Ok(Some((state, Happened::Sorted(reordered))));
            }
            if self.is_cancelled.load(Ordering::Acquire) {
                state.listing.cancel();
            } else {
                let waited = if sorting.is_some() { LONGEST_WAIT } else { Duration::ZERO };
                let mut sorted = state.sort_names(sorting);
                sorted += state.show_names(waited, sorting);
                if sorted > 0 && sorting.is_some() {
                    state.last = None;
                    return Ok(Some((state, Happened::Sorted(sorted))));
                }
            }
            let next = match state.held_back.take() {
                Some(update) => Ok(Some(update)),
                None => state.listing.next(Some(Duration::ZERO)),
            };
            let next = next.map_err(|error| listing_error(&error));
            if !state.is_settled {
                // Whoever was asked first may not serve us; then the listing is another one.
                self.watch_listing(&state)?;
            }
            if next.is_err() {
                // Nothing follows: what arrived becomes rows whatever it takes.
                state.sort_names(None);
                state.show_names(Duration::ZERO, None);
            }
            let next = match next {
                // Nothing more was to come: who read it is free to end.
                Err(_) if state.is_over() => return Ok(None),
                next => next?,
            };
            // Nothing else to do now, or all is there: then everything that arrived becomes rows.
            if matches!(next, None | Some(Update::Done(_))) {
                let shown = state.show_names(Duration::ZERO, sorting);
                if shown > 0 {
                    state.held_back = next;
                    state.last = None;
                    return Ok(Some((state, Happened::Sorted(shown))));
                }
            }
            if let Some(update) = next {
                state.is_settled = true;
                state.tell(update, sorting);
                return Ok(Some((state, Happened::Update)));
            }
            if state.is_over() {
                return Ok(None);
            }
            let left = match timeout {
                None => None,
                Some(timeout) => {
                    let passed = state.clock.monotonic().saturating_sub(begun);
                    match timeout.saturating_sub(passed) {
                        Duration::ZERO => return Ok(None),
                        left => Some(left),
                    }
                }
            };
            wait_readable(&self.ready, left)?;
        }
    }
}

/// Has `ready` be readable when `descriptor` is.
fn watch(ready: &OwnedFd, descriptor: impl AsFd) -> Result<(), CallError> {
    let data = EventData::new_u64(0);
    match epoll::add(ready, descriptor, data, EventFlags::IN) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(std::io::Error::from(error).into()),
    }
}

impl SessionState {
    /// Whether nothing more can happen.
    fn is_over(&self) -> bool {
        self.listing.is_done() && self.following == Following::Never && !self.has_wants
    }

    /// Has these read first.
    pub(crate) fn want(&mut self, ids: &[EntryId]) -> Result<(), CallError> {
        self.listing.want(ids).map_err(|error| listing_error(&error))?;
        self.has_wants |= !ids.is_empty();
        Ok(())
    }

    /// Has the models sort names that arrived, for about `limit`; returns how many they sorted. Where there is a limit, many of them wait to become rows.
    fn sort_names(&mut self, limit: Option<Duration>) -> u32 {
        let entries = self.listing.entries();
        let mut sorted = 0;
        let begun = self.clock.monotonic();
        for state in self.models.iter_mut().flatten() {
            while state.model.known() < entries.len() {
                let before = self.clock.monotonic();
                if limit.is_some_and(|limit| before.saturating_sub(begun) >= limit) {
                    return sorted;
                }
                let known = state.model.known();
                let slice = if limit.is_some() { state.slice } else { u32::MAX };
                let end = entries.len().min(known.saturating_add(slice));
                if limit.is_some() && known >= AT_ONCE {
                    state.model.sort_arrivals(entries, end);
                    state.waits_since.get_or_insert(before);
                } else {
                    let changes = state.model.arrived(entries, end);
                    state.note(changes);
                }
                sorted += end - known;
                if limit.is_some() {
                    adapt(&mut state.slice, self.clock.monotonic().saturating_sub(before));
                }
            }
        }
        sorted
    }

    /// Has the models make rows of names that have waited for at least `waited`, for about `limit`; returns how many it were.
    fn show_names(&mut self, waited: Duration, limit: Option<Duration>) -> u32 {
        let entries = self.listing.entries();
        let mut shown = 0;
        let begun = self.clock.monotonic();
        for state in self.models.iter_mut().flatten() {
            let Some(since) = state.waits_since else { continue };
            if begun.saturating_sub(since) < waited {
                continue;
            }
            while state.model.waiting() > 0 {
                let before = self.clock.monotonic();
                if limit.is_some_and(|limit| before.saturating_sub(begun) >= limit) {
                    return shown;
                }
                let most = if limit.is_some() { state.portion as usize } else { usize::MAX };
                let waiting = state.model.waiting();
                let changes = state.model.show_arrivals(entries, most);
                state.note(changes);
                shown += u32::try_from(waiting - state.model.waiting()).unwrap_or(u32::MAX);
                if limit.is_some() {
                    adapt(&mut state.portion, self.clock.monotonic().saturating_sub(before));
                }
            }
            state.waits_since = None;
        }
        shown
    }

    /// Puts the rows of a model into another order, or applies another filter. Returns whether that goes on in later calls
    /// of `next`, which it does for many entries where `in_slices` says so: the rows stay as they are until then.
    pub(crate) fn set_order(
        &mut self,
        index: usize,
        order: RowOrder,
        filter: ViewFilter,
        in_slices: bool,
    ) -> Option<bool> {
        let entries = self.listing.entries();
        let state = self.models.get_mut(index)?.as_mut()?;
        state.next = None;
        let has_filter = *state.model.filter() == filter;
        let has_order = state.model.order() == order;
        if in_slices && !(has_filter && has_order) && state.model.known() > AT_ONCE {
            let model = state.model.successor(entries, order, filter);
            state.next = Some(NextRows { model, slice: FIRST_SLICE, portion: FIRST_SLICE });
            if !std::mem::replace(&mut self.is_reordering, true) {
                // Nothing else writes to it, and it has room.
                let _ = rustix::io::write(&self.reordering, &1_u64.to_ne_bytes());
            }
            return Some(true);
        }
        if !has_filter {
            let changes = state.model.set_filter(entries, filter);
            state.note(changes);
        }
        if !has_order {
            let changes = state.model.set_order(entries, order);
            state.note(changes);
        }
        Some(false)
    }

    /// Has the models go on with the orders that were chosen, for about `limit`; returns how many entries got further.
    fn reorder(&mut self, limit: Option<Duration>) -> u32 {
        if !self.is_reordering {
            return 0;
        }
        let entries = self.listing.entries();
        let begun = self.clock.monotonic();
        let mut done = 0;
        for state in self.models.iter_mut().flatten() {
            let Some(next) = &mut state.next else { continue };
            loop {
                let before = self.clock.monotonic();
                if limit.is_some_and(|limit| before.saturating_sub(begun) >= limit) {
                    return done;
                }
                let most = |most: u32| if limit.is_some() { most } else { u32::MAX };
                let (known, wanted) = (next.model.known(), state.model.known());
                let adapted = if known < wanted {
                    let end = wanted.min(known.saturating_add(most(next.slice)));
                    next.model.sort_arrivals(entries, end);
                    let gone = (known..end).filter(|id| entries.is_removed(*id));
                    let _ = next.model.removed(entries, gone);
                    done += end - known;
                    &mut next.slice
                } else if next.model.waiting() > 0 {
                    let waiting = next.model.waiting();
                    // Only what is new once they take their place is a change.
                    let _ = next.model.show_arrivals(entries, most(next.portion) as usize);
                    let shown = waiting - next.model.waiting();
                    done += u32::try_from(shown).unwrap_or(u32::MAX);
                    &mut next.portion
                } else {
                    break;
                };
                adapt(adapted, self.clock.monotonic().saturating_sub(before));
            }
            if let Some(next) = state.next.take() {
                state.model = next.model;
                state.changes = None;
                state.waits_since = None;
            }
        }
        self.is_reordering = false;
        let _ = rustix::io::read(&self.reordering, &mut [0; 8]);
        done
    }

    /// Tells the models of what happened. Where `limit` is, they may sort some of the names in later calls.
    fn tell(&mut self, update: Update, limit: Option<Duration>) {
        self.columns = None;
        match &update {
            Update::Names(_) => drop(self.sort_names(limit)),
            // Models look these up among the entries that they have.
            Update::Removed(_) | Update::Renamed(_) => drop(self.sort_names(None)),
            _ => {}
        }
        let entries = self.listing.entries();
        if let Update::Renamed(ids) = &update {
            for id in ids {
                let name = CString::new(entries.name(*id)).unwrap_or_default();
                self.renamed.push((*id, name));
            }
        }
        for state in self.models.iter_mut().flatten() {
            if let Some(next) = &mut state.next {
                let _ = happened(&mut next.model, entries, &update);
            }
            let changes = happened(&mut state.model, entries, &update);
            state.note(changes);
        }
        self.last = Some(update);
    }
}

/// Tells a model of what happened to entries that it has.
fn happened(model: &mut Model, entries: &Entries, update: &Update) -> Changes {
    match update {
        Update::Attributes(Ids::Range(range)) => model.attributes_changed(entries, range.clone()),
        Update::Attributes(ids) => model.attributes_changed(entries, ids.iter()),
        Update::Removed(ids) => model.removed(entries, ids.iter().copied()),
        Update::Renamed(ids) => model.renamed(entries, ids.iter().copied()),
        _ => Changes::none(),
    }
}

impl ModelState {
    pub(crate) fn new(model: Model) -> ModelState {
        ModelState {
            model,
            changes: Some(Vec::new()),
            slice: FIRST_SLICE,
            portion: FIRST_SLICE,
            waits_since: None,
            next: None,
        }
    }

    /// Keeps changes until they are taken.
    pub(crate) fn note(&mut self, changes: Changes) {
        match (changes, &mut self.changes) {
            (Changes::Steps(steps), Some(known)) if known.len() + steps.len() <= MOST_CHANGES => {
                known.extend(steps);
            }
            (Changes::Steps(steps), _) if steps.is_empty() => {}
            _ => self.changes = None,
        }
    }
}

/// Chooses how many names the next slice has by what the last one took.
fn adapt(slice: &mut u32, took: Duration) {
    if took > SORT_TIME / 2 {
        *slice = (*slice / 2).max(SMALLEST_SLICE);
    } else if took < SORT_TIME / 4 {
        *slice = (*slice * 2).min(LARGEST_SLICE);
    }
}

/// The error of a listing, as a number.
fn listing_error(error: &ListingError) -> CallError {
    let number = match error {
        ListingError::WorkerEnded { .. } => libc::ECONNRESET,
        ListingError::Hostile { .. } => libc::EBADMSG,
        ListingError::Cancelled { .. } => libc::ECANCELED,
        _ => libc::EIO,
    };
    CallError::of(error, number)
}
