//! One look at a directory, from another process and not for longer than the patience.

use report::error::chain;
use std::path::Path;
use std::time::Duration;

use listing::{AttributeSet, Listing, ListingRequest, Update, WorkerProgram};
use sys::clock::Clock;

/// How directories are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectoryReader<'a> {
    pub(super) worker: &'a WorkerProgram,
    pub(super) fields: AttributeSet,
    pub(super) patience: Duration,
    pub(super) clock: &'a dyn Clock,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListingOutcome {
    /// It was read.
    Answered(DirectoryTimes),
    /// There is none.
    Missing,
    /// It cannot be read, and why.
    Failed(String),
    /// It did not answer in time.
    Silent,
}

/// What was read, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DirectoryTimes {
    /// The first screenful.
    pub(super) first: Duration,
    /// Everything.
    pub(super) done: Duration,
    pub(super) entries: u32,
}

impl DirectoryReader<'_> {
    /// Looks at a directory; a listing that is given up is cancelled.
    pub(super) fn at(&self, path: &Path) -> ListingOutcome {
        let start = self.clock.monotonic();
        let since = || self.clock.monotonic().saturating_sub(start);
        let request = ListingRequest::of(path).with_fields(self.fields);
        let mut listing = match Listing::in_worker(self.worker, &request) {
            Ok(listing) => listing,
            Err(error) => return ListingOutcome::Failed(chain(&error)),
        };
        let mut seen = DirectoryTimes::default();
        let mut failed = None;
        loop {
            let left = self.patience.saturating_sub(since());
            if left.is_zero() {
                return ListingOutcome::Silent;
            }
            match listing.next(Some(left)) {
                Ok(None) => (),
                Ok(Some(Update::Names(_))) if seen.first.is_zero() => seen.first = since(),
                Ok(Some(Update::Failed(failure))) => failed = Some(failure),
                Ok(Some(Update::Done(entries))) => {
                    seen.done = since();
                    seen.entries = entries;
                    if seen.first.is_zero() {
                        seen.first = seen.done;
                    }
                    return match failed.map(|failure| failure.error()) {
                        None => ListingOutcome::Answered(seen),
                        Some(error) if error.kind() == std::io::ErrorKind::NotFound => {
                            ListingOutcome::Missing
                        }
                        Some(error) => ListingOutcome::Failed(error.to_string()),
                    };
                }
                Ok(Some(_)) => (),
                Err(error) => return ListingOutcome::Failed(chain(&error)),
            }
        }
    }
}
