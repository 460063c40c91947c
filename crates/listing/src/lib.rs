//! Listing a directory: names and types at once, attributes after, from another process or from threads of this one.
//!
//! Begin with [`ListingRequest`], what is listed, [`Listing::open`] or [`Listing::in_process`], who lists it, and
//! [`Model`](model::Model), the rows as a view shows them, in the order of a [`Collation`](collation::Collation).
//! README.md has an example.
//!
//! Whoever asks holds a [`Listing`]: it takes in what arrives and says what is new. Whoever lists ([`serve`]) is at the
//! other end of a socket: threads of this process, a worker process, or a daemon. Records cross in sealed memory and
//! are used where they are; `docs/listing.md` has the protocol and what is promised.

mod attributes;
pub mod collation;
mod connection;
mod details;
mod entries;
mod entry;
mod error;
mod fields;
mod follow;
mod intern;
pub mod model;
mod pass;
#[doc(hidden)] // For tests and fuzz targets.
pub mod record;
mod request;
mod scan;
mod start;
mod unique_names;
mod worker;

pub use connection::{Connection, ListingMessage};
pub use details::Details;
pub use entries::{AttributeColumns, Entries, Ids, NameColumns, Update};
pub use entry::{Attributes, EntryFailure, EntryId, EntryKind, FileTime, StringId};
pub use error::{Failure, ListingError, ListingStep, StreamFault};
pub use fields::AttributeSet;
pub use pass::{ClientRequest, StreamMark, refusal};
pub use request::{Following, ListingLimits, ListingRequest, ThreadCount, WorkerProgram};
pub use start::{ListingAccess, ReadyWorker, Worker};
pub use worker::{serve, serve_until_hung_up};

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::launch::Child;

/// A listing that goes on, and what arrived of it.
///
/// Dropping it is cancelling it.
#[derive(Debug)]
pub struct Listing {
    path: PathBuf,
    entries: Entries,
    connection: Option<Connection>,
    worker: Option<Child>,
    updates: VecDeque<Update>,
    done: bool,
    /// Everything that was taken in, if it is to be passed on.
    kept: Option<Vec<ListingMessage>>,
    /// What is tried if whoever was asked does not serve us.
    instead: Option<Box<(ListingAccess, ListingRequest)>>,
}

impl Listing {
    /// Returns the entries that arrived.
    #[must_use]
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Returns the directory, as it was asked for.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how many names arrived.
    #[must_use]
    pub fn len(&self) -> EntryId {
        self.entries.len()
    }

    /// Returns whether no name arrived yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the name of an entry; empty if there is none with this id.
    #[must_use]
    pub fn name(&self, id: EntryId) -> &[u8] {
        self.entries.name(id)
    }

    /// Returns the type of an entry.
    #[must_use]
    pub fn kind(&self, id: EntryId) -> EntryKind {
        self.entries.kind(id)
    }

    /// Returns the attributes of an entry, if they arrived.
    #[must_use]
    pub fn attributes(&self, id: EntryId) -> Option<Attributes> {
        self.entries.attributes(id)
    }

    /// Returns whether everything was read once. A listing that is followed goes on after that.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Returns a descriptor that can be read when [`Listing::next`] has something to do; none after the end.
    ///
    /// Updates that were received together with one that [`Listing::next`] returned do not show there: call it with
    /// no time until it returns `None`.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(AsFd::as_fd)
    }

    /// Waits for what is new, at most for `timeout` (`None`: for ever), and returns it; `None` if nothing is.
    ///
    /// # Errors
    ///
    /// [`ListingError`]: the listing has ended, before it was done or after; the entries stay as they are.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Update>, ListingError> {
        let next = self.next_here(timeout);
        if matches!(next, Ok(None)) {
            return next;
        }
        // The first word decides whether whoever was asked serves us.
        let Some(instead) = self.instead.take().filter(|_| self.is_empty()) else { return next };
        match next {
            Ok(Some(Update::Failed(Failure {
                step: ListingStep::Refused | ListingStep::Busy,
                ..
            })))
            | Err(ListingError::WorkerEnded { .. } | ListingError::Disconnected { .. }) => {
                let kept = self.kept.is_some();
                *self = Listing::open(&instead.0, &instead.1)?;
                if kept {
                    self.keep_messages();
                }
                self.next(timeout)
            }
            _ => next,
        }
    }

    fn next_here(&mut self, timeout: Option<Duration>) -> Result<Option<Update>, ListingError> {
        loop {
            if let Some(update) = self.updates.pop_front() {
                return Ok(Some(update));
            }
            // A message may hold nothing to be told, as strings that others will speak of; and a signal ends a wait.
            if !self.receive(timeout)? && timeout.is_some() {
                return Ok(None);
            }
        }
    }

    /// Waits for a message and takes it in; returns whether there was one.
    fn receive(&mut self, timeout: Option<Duration>) -> Result<bool, ListingError> {
        let Some(connection) = &self.connection else {
            return Err(ListingError::Cancelled { path: self.path.clone() });
        };
        let received = connection.wait(timeout).and_then(|ready| match ready {
            true => connection.receive(),
            false => Ok(None),
        });
        let taken = match received {
            Ok(None) => return Ok(false),
            Ok(Some(message)) => message.and_then(|message| {
                let updates = self.entries.take(message.chunk())?;
                if let Some(kept) = &mut self.kept {
                    kept.push(message);
                }
                Ok(updates)
            }),
            Err(source) => {
                self.cancel();
                let path = self.path.clone();
                return Err(match source.kind() {
                    std::io::ErrorKind::UnexpectedEof => ListingError::WorkerEnded { path },
                    _ => ListingError::Disconnected { path, source },
                });
            }
        };
        match taken {
            Ok(updates) => {
                self.done |= updates.iter().any(|update| matches!(update, Update::Done(_)));
                self.updates.extend(updates);
                Ok(true)
            }
            Err(fault) => {
                self.cancel();
                Err(ListingError::Hostile { path: self.path.clone(), fault })
            }
        }
    }

    /// Waits until everything was read once, and returns what went wrong with the directory on the way.
    ///
    /// # Errors
    ///
    /// As [`Listing::next`].
    pub fn finish(&mut self) -> Result<Vec<Failure>, ListingError> {
        let mut failures = Vec::new();
        while !self.done || !self.updates.is_empty() {
            if let Some(Update::Failed(failure)) = self.next(None)? {
                failures.push(failure);
            }
        }
        Ok(failures)
    }

    /// Asks for the attributes of these before all others; of those that are known already, anew.
    ///
    /// # Errors
    ///
    /// [`ListingError::Disconnected`] if whoever lists takes no message; the listing goes on as it was.
    pub fn want(&mut self, ids: &[EntryId]) -> Result<(), ListingError> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let sent = connection.want(ids);
        sent.map_err(|source| ListingError::Disconnected { path: self.path.clone(), source })
    }

    /// Asks for what is not looked up for all: access lists, the mark "hidden", the type by contents. It arrives as
    /// [`Update::Details`], for each entry that there is.
    ///
    /// # Errors
    ///
    /// As [`Listing::want`].
    pub fn ask_details(&mut self, ids: &[EntryId]) -> Result<(), ListingError> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let sent = connection.ask_details(ids);
        sent.map_err(|source| ListingError::Disconnected { path: self.path.clone(), source })
    }

    /// Keeps what arrives from now on, so that it can be passed on to others; call it before the first `next`.
    pub(crate) fn keep_messages(&mut self) {
        self.kept.get_or_insert_default();
    }

    /// Returns everything that was taken in since `Listing::keep_messages`, in order.
    #[must_use]
    pub fn messages(&self) -> &[ListingMessage] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// Ends the listing at once, whatever the one who lists is waiting for. What arrived stays readable.
    pub fn cancel(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.hang_up();
        }
        if let Some(worker) = self.worker.take() {
            start::end(worker);
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

#[cfg(test)]
mod tests;
